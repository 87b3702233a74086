# SPDX-License-Identifier: Apache-2.0
"""Jobs are what they are without us, and report what they count and time themselves."""

from __future__ import annotations

import sys

import pytest

from tests.training.differential.harness import (
    RUN,
    SCRIPTS,
    WATCH,
    Job,
    Mode,
    compare,
    require_module,
)

TABLE: dict[str, tuple[Mode, ...]] = {
    "loops": (RUN, WATCH),
    "looked_up": (RUN, WATCH),
    "threads": (RUN,),
    "exceptions": (RUN, WATCH),
    "optimizers": (RUN, WATCH),
    "evaluation": (RUN, WATCH),
    "workers": (RUN, WATCH),
    "with_torchdata": (RUN, WATCH),
    "endings": (RUN, WATCH),
    "processes": (RUN,),
    "saving": (RUN,),
    "interpreter": (RUN, WATCH),
    "greenlets": (RUN,),
    "compiled": (RUN,),
}
"""The scripts, and how each is started. Their docstrings say what their cases are.

What `run --print-env` prints is the environment that `run` makes (`test_launch`), so no script is
started with it.
"""
NEEDS = {"greenlets": "gevent", "saving": "safetensors", "with_torchdata": "torchdata"}


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        pytest.param(name, mode, id=f"{name}-{mode}")
        for name, modes in TABLE.items()
        for mode in modes
    ],
)
def test_a_script(name: str, mode: Mode) -> None:
    """Output, exit codes, files and tracebacks are equal; the reports are what happened."""
    require_module("torch")
    require_module(NEEDS.get(name, "torch"))
    found, _ = compare(name, Job([sys.executable, SCRIPTS / f"{name}.py"]), mode)

    assert not found, "\n".join(("", *found))

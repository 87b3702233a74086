# SPDX-License-Identifier: Apache-2.0
"""What the job marks itself changes nothing about the job."""

from __future__ import annotations

from typing import Any

import pytest

from roofline_job import degraded, phase, step, watch
from roofline_job.process import PROCESS
from tests.training.measured import measured

pytestmark = pytest.mark.usefixtures("client", "unheard")


def _phases() -> dict[str, int]:
    account = PROCESS.account_here()
    return {} if account is None else account.phase_ns


def test_what_is_raised_in_a_phase_goes_on() -> None:
    """The phase ends, and the exception is the job's."""
    with pytest.raises(KeyError, match="mine"), phase("checkpoint"):
        raise KeyError("mine")

    assert list(_phases()) == ["checkpoint"]


def test_one_phase_object_may_be_used_again_and_inside_itself() -> None:
    """A job may keep one at hand."""
    kept = phase("logging")
    for _ in range(2):
        with kept, kept:
            pass

    assert list(_phases()) == ["logging"]
    assert not degraded.FOUND


def test_an_end_without_a_beginning_does_nothing() -> None:
    """``__exit__`` may be called by whoever cleans up."""
    phase("logging").__exit__(None, None, None)

    assert not degraded.FOUND


@pytest.mark.parametrize("name", [None, 5, ["data"], "x" * 100_000])
def test_a_phase_may_be_called_anything(name: Any) -> None:
    """What is no name of a phase counts as other, or as a failure, and never ends the job."""
    with phase(name):
        done = True

    assert done
    assert set(_phases()) <= {"other"}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_function_may_contain_phases_and_steps() -> None:
    """With fullgraph, where a break would be an error; traced, they do nothing."""
    torch = pytest.importorskip("torch")

    def work(x: Any) -> Any:
        with phase("forward"):
            y = x * 2
        step()
        return y + 1

    compiled = torch.compile(work, fullgraph=True, backend="eager")
    x = torch.arange(3)
    for _ in watch(range(3)):
        assert compiled(x).equal(work(x))

    assert measured().steps == 3  # those of the calls that were not compiled
    assert not degraded.FOUND

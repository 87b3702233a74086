# SPDX-License-Identifier: Apache-2.0
"""What the job marks itself changes nothing about the job."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

import pytest

from roofline_job import dynamo, phase, step, watch
from roofline_job.failures import FAILURES
from roofline_job.lanes import Lane
from roofline_job.runs import PROCESS
from tests.training.listener import run_job

pytestmark = pytest.mark.usefixtures("client")


def _phases() -> dict[str, int]:
    return PROCESS.run(None, None).totals().phase_ns


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
    assert FAILURES.count == 0


def test_an_end_without_a_beginning_does_nothing() -> None:
    """``__exit__`` may be called by whoever cleans up."""
    phase("logging").__exit__(None, None, None)

    assert FAILURES.count == 0


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

    assert PROCESS.run(None, None).totals().steps == 3  # those of the calls that were not compiled
    assert FAILURES.count == 0


def test_torch_compile_leaves_phases_alone(tmp_path: Path) -> None:
    """Between two compiled parts a phase is not compiled, also in a job that watches nothing; and
    what a capture of a CUDA graph raises has no line of ours.
    """
    pytest.importorskip("torch")
    source = """
        import traceback
        from roofline_job import phase, step
        with phase("other"):
            import torch, torch._dynamo.convert_frame
        with phase("other"):
            step()

        class Graph:
            capture_begin = torch.cuda.CUDAGraph.capture_begin

        def work(x):
            x = x + 1
            torch._dynamo.graph_break()
            with phase("forward"):
                x = x * 2
                torch._dynamo.graph_break()
            step()
            try:
                Graph().capture_begin()
            except AttributeError:
                traceback.print_exc()
            return x + 1

        torch.compile(work, backend="eager")(torch.ones(2))
        seen = [code() for code in torch._dynamo.convert_frame.input_codes.seen]
        print(work.__code__ in seen, [code for code in seen if "exporter" in code.co_filename])
        """
    job = run_job(tmp_path, source, tmp_path / "nobody")
    blamed = re.findall('File "(.*)"', job.stderr)

    assert (job.returncode, job.stdout) == (0, "True []\n")
    assert len(blamed) == 2
    assert "exporter" not in job.stderr.replace(str(tmp_path), "")


def test_steps_alone_have_the_client_left_alone_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a job that has imported torch by then."""
    skipped: list[CodeType] = []
    hook = SimpleNamespace(skip_code=skipped.append)
    monkeypatch.setitem(sys.modules, "torch._C._dynamo.eval_frame", hook)
    monkeypatch.setattr(dynamo, "_marked", set())
    step()

    assert step.__code__ in skipped
    assert Lane.step.__code__ in skipped

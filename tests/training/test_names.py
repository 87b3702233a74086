# SPDX-License-Identifier: Apache-2.0
"""What a job is called: two runs of one script never share a name, all ranks of one run do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.sources.training.decode import MOST_JOB_BYTES
from exporter.web.wording.whose import RUN
from roofline_job import names
from roofline_job.names import JOB_BYTES, default_name, fit, job_name

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/home/me/train.py", "--lr=1"])
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))


@given(st.text(), st.integers(4, 128))
def test_a_label_is_printable_and_short(text: str, limit: int) -> None:
    """Whatever it was, the daemon takes it, and no character is cut in half."""
    fitted = fit(text, limit)

    assert fitted == "" or fitted.isprintable()
    assert len(fitted.encode()) <= limit


def test_labels_are_cut_where_the_daemon_would_refuse_them() -> None:
    """The limits are the daemon's."""
    assert JOB_BYTES == MOST_JOB_BYTES
    assert fit("é" * 100, 3) == "é"
    assert fit("a\nb\x00c\ud800d", 128) == "a_b_c_d"


@pytest.mark.parametrize(
    ("name", "environ", "expected"),
    [
        ("given", {"ROOFLINE_JOB_NAME": "named"}, "given"),
        (None, {"ROOFLINE_JOB_NAME": "named", "SLURM_JOB_NAME": "slurm"}, "named"),
        (None, {"SLURM_JOB_NAME": "a name", "SLURM_JOB_ID": "7"}, "a name@slurm-7"),
        ("\n", {"SLURM_JOB_ID": "7"}, "_"),
        ("   ", {"ROOFLINE_JOB_NAME": "", "SLURM_JOB_ID": "7"}, "train@slurm-7"),
    ],
)
def test_the_job_is_called_by_the_first_name_there_is(
    name: str | None, environ: dict[str, str], expected: str
) -> None:
    """Argument, environment, scheduler, script."""
    assert job_name(name, environ) == expected


@pytest.mark.parametrize(
    ("spec", "argv", "expected"),
    [
        (None, ["/x/train.py", "--lr=1"], "train"),
        ("pkg.train", ["/x/pkg/train.py"], "pkg.train"),
        ("pkg.__main__", ["/x/pkg/__main__.py"], "pkg"),
        (None, ["-c"], "python"),
        (None, ["-"], "python"),
        (None, [""], "python"),
        (None, [], "python"),
    ],
)
def test_a_module_is_called_by_its_name(
    spec: str | None, argv: list[str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``python -m pkg.train`` is pkg.train; what has no name is python."""
    main = ModuleType("__main__")
    main.__spec__ = None if spec is None else SimpleNamespace(name=spec)  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(sys, "argv", argv)

    assert default_name({"SLURM_JOB_ID": "1"}) == f"{expected}@slurm-1"


@pytest.mark.parametrize(
    ("argv", "session", "expected"),
    [
        (["/x/ipykernel_launcher.py", "-f", "k.json"], "/home/ada/tune.ipynb", "tune"),
        (["/x/ipykernel_launcher.py"], "console-1-0b2c", "console-1-0b2c"),
        (["/x/ipykernel_launcher.py"], "", "ipykernel_launcher"),
        (["train.py"], "/home/ada/tune.ipynb", "train"),
    ],
)
def test_a_kernel_is_called_by_its_notebook(
    argv: list[str], session: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not so a script that a cell starts, which has the variable as well."""
    monkeypatch.setattr(sys, "argv", argv)
    environ = {"JPY_SESSION_NAME": session, "SLURM_JOB_ID": "1"}
    assert default_name(environ) == f"{expected}@slurm-1"


ENVIRONMENTS: list[dict[str, str]] = [
    {},
    {"SLURM_JOB_ID": "99", "WORLD_SIZE": "2", "MASTER_ADDR": "node1"},
    {"SLURM_JOB_ID": "²"},
    {"WORLD_SIZE": "8", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"},
    {"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8", "MASTER_ADDR": "h", "MASTER_PORT": "1"},
    {"OMPI_COMM_WORLD_SIZE": "4", "PMIX_NAMESPACE": "x"},
    {"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "abc"},
]


@pytest.mark.parametrize("environ", ENVIRONMENTS)
@pytest.mark.parametrize("script", ["train.py", "é" * 200 + ".py", "a@b.py", "\n.py", ".py"])
def test_every_default_name_says_which_run_it_is(
    environ: dict[str, str], script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a form that the daemon takes off for display, and within the limit."""
    monkeypatch.setattr(sys, "argv", [script])
    name = default_name(environ)
    shown, at, run = name.rpartition("@")

    assert RUN.search(name)
    assert len(name.encode()) <= JOB_BYTES
    assert (at + run).isascii()
    assert shown == fit(shown, JOB_BYTES) != ""


def test_a_process_of_its_own_is_named_by_its_start() -> None:
    """In UTC, and the same however often it is asked."""
    found = re.fullmatch(r"train@(\d{8}T\d{6})-(\d+)", default_name({}))

    assert found
    assert int(found[2]) == os.getpid()
    started = time.strptime(found[1], "%Y%m%dT%H%M%S")
    assert -5 < time.time() - (time.mktime(started) - time.timezone) < 86_400 * 7
    assert default_name({}) == found[0]


def test_two_runs_of_a_script_have_two_names(tmp_path: Path) -> None:
    """Also where both began in the same second."""
    script = tmp_path / "train.py"
    script.write_text("from roofline_job import names; print(names.default_name({}))")
    runs = [
        subprocess.Popen(
            [sys.executable, str(script)],
            env={"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    found = [run.communicate()[0].strip() for run in runs]

    assert len(set(found)) == 2
    assert all(name.startswith("train@") and RUN.search(name) for name in found)


def test_a_process_that_is_hidden_is_named_by_now(tmp_path: Path) -> None:
    """Every process stands for itself there."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text("7 (a) b) S")

    for pid in (7, 8):
        assert re.fullmatch(rf"\d{{8}}T\d{{6}}-{os.getpid()}", names._started(pid, tmp_path))


def test_a_start_is_counted_from_the_boot(tmp_path: Path) -> None:
    """The name of a process may hold anything."""
    (tmp_path / "7").mkdir()
    ticks = 100 * os.sysconf("SC_CLK_TCK")
    fields = ["S", *["0"] * 18, str(ticks), "0"]
    (tmp_path / "7" / "stat").write_text(f"7 (my (job) x) {' '.join(fields)}\n")
    (tmp_path / "stat").write_text("cpu 1 2\nbtime 1000000000\n")

    assert names._started(7, tmp_path) == "20010909T014820-7"


def test_ranks_of_one_node_are_named_by_what_started_them() -> None:
    """Torchrun's agent is the parent of each."""
    environ = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "h"}

    assert default_name(environ).endswith(f"-{os.getppid()}")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_ranks_that_multiprocessing_starts_share_their_name(method: str, tmp_path: Path) -> None:
    """With the process that started them, where it trains too."""
    script = tmp_path / "train.py"
    script.write_text(
        "import multiprocessing\n"
        "from roofline_job import names\n"
        "def rank(names_of, number): names_of.put(names.default_name({}))\n"
        "if __name__ == '__main__':\n"
        f"    context = multiprocessing.get_context('{method}')\n"
        "    found = context.SimpleQueue()\n"
        "    ranks = [context.Process(target=rank, args=(found, n)) for n in range(2)]\n"
        "    [each.start() for each in ranks], [each.join() for each in ranks]\n"
        "    print(names.default_name({}), found.get(), found.get())\n"
    )
    run = subprocess.run(
        [sys.executable, str(script)],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    found = run.stdout.split()

    assert len(found) == 3
    assert len({name.rpartition("@")[2] for name in found}) == 1
    assert len({name for name in found if name.startswith("train@")}) == 1


def test_ranks_of_several_nodes_are_named_by_where_they_meet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rank, the node and the number of its processes do not matter; the meeting place does."""
    environ = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "node1", "RANK": "0"}
    here = default_name({**environ, "MASTER_PORT": "29500"})
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename="node2"))
    there = default_name({**environ, "MASTER_PORT": "29500", "RANK": "3", "LOCAL_WORLD_SIZE": "1"})

    assert here == there
    assert here != default_name({**environ, "MASTER_PORT": "29501"})


def test_ranks_that_meet_on_their_own_node_are_that_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Started by a script of the job's, without torchrun: localhost is another on every node."""
    environ = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename="node1"))
    here = default_name(environ)
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename="node2"))

    assert re.search(r"@rdzv-[0-9a-f]{8}$", here)
    assert here != default_name(environ)


def test_ranks_that_mpi_starts_share_their_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """On all nodes, and with no other run."""
    environ = {"OMPI_COMM_WORLD_SIZE": "8", "PMIX_NAMESPACE": "prterun-node1-4242@1"}
    here = default_name({**environ, "OMPI_COMM_WORLD_RANK": "0"})
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename="node2"))

    assert re.search(r"@rdzv-[0-9a-f]{8}$", here)
    assert here == default_name({**environ, "OMPI_COMM_WORLD_RANK": "7"})
    assert here != default_name({**environ, "PMIX_NAMESPACE": "prterun-node1-4243@1"})

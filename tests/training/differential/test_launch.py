# SPDX-License-Identifier: Apache-2.0
"""However Python is started, and whatever the job has on its path, it is what it is without us."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.training.differential.harness import (
    ISOLATED,
    RUN,
    VARIABLES,
    Done,
    Job,
    Mode,
    baseline,
    compare,
    require_module,
)

TRAIN = """\
import sys
import torch
from torch.utils.data import DataLoader

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
for x in DataLoader(torch.randn(40, 4), 4):
    model(x).square().mean().backward()
    with torch.no_grad():
        for one in model.parameters():
            one -= 0.1 * one.grad
            one.grad = None
print([float(value).hex() for one in model.parameters() for value in one.detach().flatten()])
"""
"""Ten batches, and no optimizer: PyTorch would import its compiler for one."""
HELLO = "import sys\nprint('hello', sys.argv)\n"
PYTHON = sys.executable
SCRIPT = Job([PYTHON, "train.py"], files={"train.py": TRAIN})
"""What prints the same however it is started."""
BASE = str(Path(sys.base_prefix) / "bin" / "python3")
"""The Python that the environment was made of; it has no PyTorch."""


def the_same(name: str, job: Job, mode: Mode, plain: Job | None = None) -> Done:
    """Assert that a job is what it is without us, and return it."""
    found, done = compare(name, replace(job, own=False), mode, plain)
    assert not found, "\n".join(("", *found))
    return done


def trained(done: Done) -> None:
    """Assert that the ten batches of `TRAIN` were counted, by one process."""
    assert [(report["steps"], report["batches"]) for report in done.reports] == [(10, 10)]


@pytest.fixture(autouse=True)
def _torch() -> None:
    require_module("torch")


# How Python is started


@pytest.mark.parametrize(
    "flags",
    ["", "-OO", "-P", "-s", "-X dev", "-W error"],
)
def test_flags(flags: str) -> None:
    """The client is there, and says nothing, not even in development mode."""
    job = replace(SCRIPT, words=[PYTHON, *flags.split(), "train.py"])
    talks = flags[:2] in ("-X", "-W")

    trained(the_same(f"flags {flags}" if talks else "flags", job, RUN, job if talks else SCRIPT))


@pytest.mark.parametrize("flags", ["-I", "-E", "-IS"])
def test_flags_that_keep_it_out(flags: str) -> None:
    """Python ignores the variables then, and the job runs as without us."""
    source = TRAIN
    if "S" in flags:
        folders = [entry for entry in sys.path if entry.endswith("site-packages")]
        source = f"import site\nfor folder in {folders}: site.addsitedir(folder)\n{TRAIN}"
    job = Job([PYTHON, flags, "train.py"], files={"train.py": source})

    assert the_same("flags", job, RUN, SCRIPT).reports == ()


def test_without_site() -> None:
    """-S: the folder is on the path, as Python puts it there; nothing runs in it."""
    job = Job([BASE, "-S", "hello.py"], files={"hello.py": HELLO})

    assert the_same("without site", job, RUN).reports == ()


@pytest.mark.parametrize(
    ("words", "files", "stdin"),
    [
        pytest.param(["-m", "train", "word"], {"train.py": TRAIN}, "", id="module"),
        pytest.param(["-m", "pack"], {"pack/__main__.py": TRAIN}, "", id="package"),
        pytest.param(["pack"], {"pack/__main__.py": TRAIN}, "", id="folder"),
        pytest.param(["-c", TRAIN, "word"], {}, "", id="command"),
        pytest.param(["-"], {}, TRAIN, id="stdin"),
        pytest.param([], {}, TRAIN, id="stdin without a word"),
    ],
)
def test_where_the_code_is(words: list[str], files: Mapping[str, str], stdin: str) -> None:
    """In a module, a package, an argument, or what is read."""
    job = Job([PYTHON, *words], files=files, stdin=stdin)

    trained(the_same("flags", job, RUN, SCRIPT))


def test_in_an_archive(tmp_path: Path) -> None:
    """A zip file that is run, with a module of the job's in it."""
    path = tmp_path / "job.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("__main__.py", "import train")
        archive.writestr("train.py", TRAIN)

    trained(the_same("flags", Job([PYTHON, path]), RUN, SCRIPT))


FAILING = {
    "missing": "import no_such_module\n",
    "syntax": "print(\n",
    "raises": f"{TRAIN}\nraise SystemExit('no more')\n",
    "traceback": TRAIN.replace("    model(x)", "    model(x[:, :2])\n    model(x)"),
}


@pytest.mark.parametrize("name", FAILING)
def test_scripts_that_fail(name: str) -> None:
    """In the very words in which they do."""
    the_same(f"fails {name}", Job([PYTHON, "job.py"], files={"job.py": FAILING[name]}), RUN)


def test_ipython(tmp_path: Path) -> None:
    """A script that IPython runs."""
    require_module("IPython")
    environ = {"IPYTHONDIR": str(tmp_path), "TERM": "dumb"}
    words = [PYTHON, "-m", "IPython", "--no-banner", "--colors=NoColor", "--no-tip"]
    job = Job([*words, "--HistoryManager.enabled=False", "train.py"], environ, {"train.py": TRAIN})

    trained(the_same("flags", job, RUN, SCRIPT))


# What the job has on its path


@pytest.mark.parametrize(
    ("name", "place", "mode"),
    [
        pytest.param("exporter.py", ".", RUN, id="module beside the script"),
        pytest.param("exporter.py", "lib", RUN, id="module"),
        pytest.param("exporter/__init__.py", "lib", RUN, id="package"),
        pytest.param("exporter/__init__.py", "lib", VARIABLES, id="package, variables"),
    ],
)
def test_an_exporter_of_its_own(name: str, place: str, mode: Mode) -> None:
    """The name is the job's: it gets its own, and is measured."""
    files = {
        "train.py": f"import exporter\n{TRAIN}",
        f"{place}/{name}": "print('own exporter')\n",
    }
    environ = {"PYTHONPATH": place} if place != "." else {}
    done = the_same(f"own exporter {place} {name}", Job([PYTHON, "train.py"], environ, files), mode)
    assert done.stdout.startswith("own exporter\n")
    trained(done)


def test_an_exporter_of_its_own_beside_watch() -> None:
    """`watch` needs nothing that is called exporter."""
    watching = TRAIN.replace(
        "in DataLoader(torch.randn(40, 4), 4)",
        "in watch(DataLoader(torch.randn(40, 4), 4), job='tested')",
    )
    source = f"import exporter\nfrom roofline_job import watch\n{watching}"
    files = {"train.py": source, "exporter.py": "print('own exporter')\n"}
    off = Job([PYTHON, "train.py"], {"ROOFLINE_JOB_INSTRUMENT": "0"}, files)
    mode = Mode("watch")

    trained(the_same("own exporter, watch", Job([PYTHON, "train.py"], files=files), mode, off))


STANDARD = (
    *("collections", "contextlib", "dataclasses", "functools", "importlib", "inspect", "json"),
    *("logging", "operator", "pathlib", "random", "re", "socket", "string", "struct", "subprocess"),
    *("threading", "traceback", "types", "typing", "uuid", "warnings", "weakref"),
)
"""Modules that Python does not need itself to start a script."""


@pytest.mark.parametrize("place", [".", "lib"])
def test_names_of_the_standard_library(place: str) -> None:
    """Modules with such names are imported when the job imports them, and not before."""
    files = {f"{place}/{name}.py": f"print('own {name}')\n" for name in STANDARD}
    job = Job(
        [BASE, "hello.py"],
        {"PYTHONPATH": place} if place != "." else {},
        {
            "hello.py": f"{HELLO}import json, logging\nprint(json.__file__, logging.__file__)\n",
            **files,
        },
    )

    the_same(f"standard {place}", job, RUN)


CUSTOMIZED = {
    "prints": "print('own sitecustomize', __name__, __file__)\n",
    "fails": "raise ValueError('two\\nlines')\n",
    "is no code": "this is no Python\n",
    "is interrupted": "raise KeyboardInterrupt\n",
    "is gone": "import sys; del sys.modules['sitecustomize']\n",
    "exits": "import sys\nsys.exit(5)\n",
    "misses": "import no_such_module\n",
    "changes": "import sys\nsys.path.append('/own')\nsys.argv_of_ours = 1\n",
    "imports": "import json\nprint('with json')\n",
}


@pytest.mark.parametrize("name", CUSTOMIZED)
def test_a_sitecustomize_of_its_own(name: str) -> None:
    """It runs once, as the only one, and fails as it does alone."""
    source = f"{HELLO}print(sys.modules.get('sitecustomize'), sys.path[-1])\n"
    files = {"hello.py": source, "lib/sitecustomize.py": CUSTOMIZED[name]}
    job = Job([BASE, "hello.py"], {"PYTHONPATH": "lib"}, files)

    the_same(f"sitecustomize {name}", job, ISOLATED)


def test_a_sitecustomize_and_training() -> None:
    files = {"train.py": TRAIN, "lib/sitecustomize.py": CUSTOMIZED["prints"]}
    job = Job([PYTHON, "train.py"], {"PYTHONPATH": "lib"}, files)
    done = the_same("sitecustomize and training", job, ISOLATED)

    assert done.stdout.count("own sitecustomize") == 1
    trained(done)


def test_a_usercustomize_of_its_own() -> None:
    files = {"hello.py": HELLO, "lib/usercustomize.py": "print('own usercustomize')\n"}
    job = Job([BASE, "hello.py"], {"PYTHONPATH": "lib"}, files)
    done = the_same("usercustomize", job, ISOLATED)

    assert done.stdout.count("own usercustomize") == 1


@pytest.mark.parametrize("path", ["", ":lib", "lib:", "lib::", "/nonexistent"])
def test_entries_of_the_path(path: str) -> None:
    """What the job's path holds stays there, and nothing of ours: an empty entry is the current
    folder."""
    source = "import sys\nprint(sys.path)\n"
    job = Job([BASE, "hello.py"], {"PYTHONPATH": path}, {"hello.py": source})

    the_same(f"path {path}", job, RUN)


def test_environment() -> None:
    """Of the variables, only those that are documented differ."""
    source = (
        "import os\nours = ('PYTHONPATH', 'LC_CTYPE')\n"
        "left = {name: value for name, value in os.environ.items() if name not in ours}\n"
        "print(sorted(pair for pair in left.items() if pair[0][:8] != 'ROOFLINE'))\n"
    )

    the_same("environment", Job([BASE, "hello.py"], files={"hello.py": source}), RUN)


# Switches


def test_switched_off() -> None:
    """ROOFLINE_JOB_INSTRUMENT=0 in front of `run`: no module of ours, no report."""
    source = f"{TRAIN}print([name for name in sys.modules if 'roofline' in name])\n"
    job = Job([PYTHON, "train.py"], {"ROOFLINE_JOB_INSTRUMENT": "0"}, {"train.py": source})

    assert the_same("switched off", job, RUN).reports == ()


def test_without_cuda_events() -> None:
    """Host time is counted as it is with them."""
    job = replace(SCRIPT, environ={"ROOFLINE_JOB_CUDA_EVENTS": "0"})

    trained(the_same("flags", job, RUN, SCRIPT))


def test_debug() -> None:
    """It says what it hooks, and on stderr only; the result is the same."""
    job = replace(SCRIPT, environ={"ROOFLINE_JOB_DEBUG": "1"}, own=False)
    _, done = compare("flags", job, RUN, SCRIPT)

    lines = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (0, baseline("flags", SCRIPT).stdout)
    assert {line.partition(":")[0] for line in lines} == {"roofline_job"}
    for name in ("__next__", "register_optimizer_step_post_hook", "save", "autocast"):
        assert any(name in line for line in lines), name
    trained(done)


def test_its_output_is_closed() -> None:
    """A job without standard streams, as under some daemons, with and without something to say."""
    source = f"import os\nos.environ['ROOFLINE_JOB_DEBUG'] = '1'\n{TRAIN}"
    words = ["sh", "-c", f'exec "{PYTHON}" train.py <&- >&- 2>&-']

    trained(the_same("closed", Job(words, files={"train.py": source}), RUN))


def test_no_socket() -> None:
    """Nobody listens: the job does not notice."""
    words = ["env", "ROOFLINE_TRAINING_SOCKET=/nonexistent/socket", PYTHON, "train.py"]

    assert the_same("flags", replace(SCRIPT, words=words), RUN, SCRIPT).reports == ()

# SPDX-License-Identifier: Apache-2.0
"""What starts instrumentation in every Python of a job is not noticed by any of them."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.run import INJECT

REPOSITORY = Path(__file__).parent.parent.parent
PTH = REPOSITORY / "roofline_job/roofline_exporter_job.pth"
MODULES = "import sys; print(sorted(sys.modules))"
STARTED = {"_roofline_job", "_roofline_job.auto", "_roofline_job.imports"}


def run(
    executable: str, code: str, *folders: Path, instrument: str | None = "1"
) -> subprocess.CompletedProcess[str]:
    """Run code in a new Python with these folders on PYTHONPATH."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("ROOFLINE_")}
    env["PYTHONPATH"] = os.pathsep.join(map(str, folders))
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    if instrument is not None:
        env["ROOFLINE_JOB_INSTRUMENT"] = instrument
    return subprocess.run(
        [executable, "-c", code],
        env=env,
        cwd=INJECT.anchor,  # the first entry of sys.path: not this repository
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def venv(folder: Path, *pth: Path) -> str:
    """Make a bare environment with these files in its site-packages; return its Python."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(folder)],
        check=True,
        timeout=60,
    )
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for path in pth:
        shutil.copy(path, folder / "lib" / version / "site-packages")
    return str(folder / "bin" / "python")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python of an environment in which nothing is installed."""
    return venv(tmp_path_factory.mktemp("bare") / "venv")


def outcome(done: subprocess.CompletedProcess[str]) -> tuple[int, str, str]:
    return done.returncode, done.stdout, done.stderr


def modules(done: subprocess.CompletedProcess[str]) -> set[str]:
    assert done.stderr == ""
    return set(ast.literal_eval(done.stdout))


def sitecustomize(folder: Path, source: str) -> Path:
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(source, encoding="utf-8")
    return folder


@pytest.fixture
def none(tmp_path: Path) -> Path:
    """A sitecustomize that shadows any that this machine has, and does nothing."""
    return sitecustomize(tmp_path / "none", "")


def test_the_folder_holds_only_one_file() -> None:
    """Whatever else lay there would be importable in every job."""
    names = {path.name for path in INJECT.iterdir()} - {"__pycache__"}
    assert names == {"sitecustomize.py"}


def test_its_syntax_is_valid_for_every_python_3() -> None:
    """A job may start any of them."""
    source = (INJECT / "sitecustomize.py").read_text(encoding="ascii")
    ast.parse(source, feature_version=(3, 4))
    assert "__future__" not in source


def test_nothing_is_loaded_that_a_job_could_have_a_module_for(none: Path, bare: str) -> None:
    """At the start, no module of the standard library is imported before the job's own path."""
    before = modules(run(bare, MODULES, none))
    after = modules(run(bare, MODULES, INJECT, none))

    assert after - before == STARTED | {"__future__"}
    assert before <= after


@pytest.mark.parametrize("value", [None, "0", "", "true"])
def test_it_does_nothing_unless_asked(none: Path, value: str | None, bare: str) -> None:
    """Only the value 1 switches it on; a job can switch it off for a part of itself."""
    assert modules(run(bare, MODULES, INJECT, none, instrument=value)) == modules(
        run(bare, MODULES, none)
    )


def test_old_pythons_get_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client needs 3.10."""
    path = INJECT / "sitecustomize.py"
    names = {"__file__": str(path), "__name__": "started"}
    exec(compile(path.read_text(encoding="utf-8"), path, "exec"), names)
    monkeypatch.setenv("ROOFLINE_JOB_INSTRUMENT", "1")
    monkeypatch.setattr(sys, "version_info", (3, 9, 18))
    before = set(sys.modules)

    names["begin"]()  # type: ignore[operator]

    assert set(sys.modules) == before


SHOWN = """
import os, sys
module = sys.modules.get("sitecustomize")
print(getattr(module, "__file__", None), getattr(module, "value", None))
print(os.pathsep.join(sys.path))
"""


def test_the_sitecustomize_that_it_shadows_is_the_one(tmp_path: Path, bare: str) -> None:
    """It is executed once, and it is what `sitecustomize` means from then on."""
    theirs = sitecustomize(tmp_path / "theirs", "print('theirs', __name__, __file__)\nvalue = 5\n")

    assert outcome(run(bare, SHOWN, INJECT, theirs)) == outcome(run(bare, SHOWN, theirs))
    assert "5" in run(bare, SHOWN, INJECT, theirs).stdout


@pytest.mark.parametrize(
    "source",
    [
        "raise ValueError('two\\nlines')",
        "raise ImportError('no')",
        "import a_module_that_is_nowhere",
        "raise SystemExit(5)",
        "raise KeyboardInterrupt",
        "this is no Python",
        "import sys; del sys.modules['sitecustomize']",
    ],
)
def test_its_failures_are_told_as_ever(tmp_path: Path, source: str, bare: str) -> None:
    """Python says about it what it would say without us, and exits the same way."""
    theirs = sitecustomize(tmp_path / "theirs", source + "\n")
    without = run(bare, SHOWN, theirs)
    injected = run(bare, SHOWN, INJECT, theirs)

    assert (injected.returncode, injected.stdout) == (without.returncode, without.stdout)
    assert injected.stderr.splitlines()[-1:] == without.stderr.splitlines()[-1:]
    if "Fatal" not in without.stderr:
        assert injected.stderr == without.stderr


def test_without_any_there_is_none(tmp_path: Path, bare: str) -> None:
    """Where nothing is shadowed, no module of that name exists afterwards."""
    assert outcome(run(bare, SHOWN, INJECT)) == outcome(run(bare, SHOWN))


def test_child_processes_inherit_it(none: Path, bare: str) -> None:
    """PYTHONPATH stays in the environment although the folder leaves `sys.path`."""
    code = (
        "import os, subprocess, sys\n"
        f"assert {str(INJECT)!r} not in sys.path\n"
        "print(os.environ['PYTHONPATH'])\n"
        f"sys.stdout.flush(); subprocess.run([sys.executable, '-c', {MODULES!r}])\n"
    )
    path, names = run(bare, code, INJECT, none).stdout.splitlines()

    assert path == os.pathsep.join((str(INJECT), str(none)))
    assert set(ast.literal_eval(names)) >= STARTED


def test_a_job_keeps_its_own_exporter(tmp_path: Path, none: Path, bare: str) -> None:
    """The client hides no module of the job's, whatever that is called."""
    (tmp_path / "exporter.py").write_text("value = 'of the job'\n", encoding="utf-8")
    done = run(bare, "import exporter; print(exporter.value)", INJECT, none, tmp_path)

    assert outcome(done) == (0, "of the job\n", "")


def test_there_is_one_client(none: Path, bare: str) -> None:
    """A script that uses the client itself gets the one that instruments it."""
    code = (
        "import sys\n"
        "from roofline_job import phase, watch\n"
        "client = sys.modules['_roofline_job']\n"
        "print(watch is client.watch, phase is client.phase, client.watch.__module__)\n"
        "print('roofline_job.lanes' in sys.modules)\n"
    )
    done = run(bare, code, INJECT, none, REPOSITORY)

    assert outcome(done) == (0, "True True _roofline_job.watching\nFalse\n", "")


@pytest.mark.parametrize("broken", ["nothing", "auto.py", "imports.py"])
def test_a_client_that_cannot_be_loaded_is_not_noticed(
    tmp_path: Path, none: Path, broken: str, bare: str
) -> None:
    """A half removed installation leaves jobs alone."""
    package = tmp_path / "client"
    if broken == "nothing":
        shutil.copytree(INJECT, package / "inject")
    else:
        shutil.copytree(INJECT.parent, package)
        (package / broken).write_text("this is no Python\n", encoding="utf-8")

    done = run(bare, "print('fine')", package / "inject", none)

    assert outcome(done) == (0, "fine\n", "")


# The .pth file


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Python of an environment in which roofline-exporter is installed from its source."""
    folder = tmp_path_factory.mktemp("installed")
    editable = folder / "_editable_impl_roofline_exporter.pth"
    editable.write_text(str(REPOSITORY), encoding="utf-8")
    return venv(folder / "venv", PTH, editable)


def test_where_it_is_installed_the_variable_alone_is_enough(installed: str) -> None:
    """No PYTHONPATH is needed, and the package `exporter` is not imported."""
    names = modules(run(installed, MODULES))

    assert names >= STARTED
    assert not {name for name in names if name.partition(".")[0] == "exporter"}


def test_where_it_is_installed_but_not_asked_for_nothing_is_loaded(
    installed: str, tmp_path: Path, bare: str
) -> None:
    """Every Python of that environment starts; most of them are no jobs."""
    without = modules(run(bare, MODULES, instrument=None))
    assert modules(run(installed, MODULES, instrument=None)) == without


def test_both_ways_at_once_start_it_once(installed: str, none: Path) -> None:
    """`run` starts a job in an environment that has the .pth file too."""
    code = (
        "import sys\n"
        "finder = sys.modules['_roofline_job.imports']._finder\n"
        "print({len(calls) for calls in finder.callbacks.values()}, sys.meta_path.count(finder))\n"
    )
    done = run(installed, code, INJECT, none)

    assert outcome(done) == (0, "{1} 1\n", "")


def test_a_pth_file_without_its_package_is_silent(tmp_path: Path) -> None:
    """It may survive the package, or come before its folder is on the path."""
    left = venv(tmp_path / "left", PTH)

    assert outcome(run(left, "print('fine')")) == (0, "fine\n", "")


def test_the_installation_carries_the_pth_file() -> None:
    """The wheel and the editable installation both put it beside the packages."""
    files = importlib.metadata.files("roofline-exporter") or []

    (path,) = (path for path in files if path.name == PTH.name)
    assert path.parent == type(path)(".")
    assert path.read_text(encoding="utf-8") == PTH.read_text(encoding="utf-8")

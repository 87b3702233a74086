# SPDX-License-Identifier: Apache-2.0
"""What starts instrumentation in every Python of a job is not noticed by any of them."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import roofline_job

REPOSITORY = Path(__file__).parent.parent.parent
INJECT = REPOSITORY / "roofline_job" / "inject"
MODULES = "import sys; print(sorted(sys.modules))"
STARTED = {
    "roofline_job",
    "roofline_job.auto",
    "roofline_job.exact_types",
    "roofline_job.identity",
    "roofline_job.imports",
    "roofline_job.summary",
}


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


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python of an environment in which nothing is installed."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(folder)],
        check=True,
        timeout=60,
    )
    return str(folder / "bin" / "python")


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


@pytest.mark.parametrize(("version", "started"), [((3, 10), STARTED), ((3, 9, 18), set())])
def test_old_pythons_get_nothing(
    none: Path, version: tuple[int, ...], started: set[str], bare: str
) -> None:
    """The client needs 3.10."""
    code = f"import runpy, sys; sys.version_info = {version}"
    code += f"; runpy.run_path({str(INJECT / 'sitecustomize.py')!r})['begin'](); {MODULES}"

    assert modules(run(bare, code, none)) & STARTED == started


SHOWN = """
import os, sys
module = sys.modules.get("sitecustomize")
print(getattr(module, "__file__", None), getattr(module, "value", None))
print(os.pathsep.join(sys.path))
"""


def test_without_any_there_is_none(bare: str) -> None:
    """Where nothing is shadowed, no module of that name exists afterwards."""
    assert outcome(run(bare, SHOWN, INJECT)) == outcome(run(bare, SHOWN))


def test_there_is_one_client(none: Path, bare: str) -> None:
    """A script that uses the client itself gets the one that instruments it."""
    code = (
        "import sys\n"
        "started = sys.modules['roofline_job.auto']\n"
        "from roofline_job import auto, phase, step, watch\n"
        "print(auto is started, watch.__module__, phase.__module__)\n"
        f"print(sys.path.count({str(REPOSITORY)!r}))\n"
    )
    for path, count in (((INJECT, none), 0), ((INJECT, none, REPOSITORY), 1)):
        done = run(bare, code, *path)
        expected = f"True roofline_job.watching roofline_job.phases\n{count}\n"
        assert outcome(done) == (0, expected, "")


def test_two_installations_start_one_client(none: Path, bare: str, tmp_path: Path) -> None:
    """`run` of one environment within `run` of another: the inner one's client is there."""
    other = tmp_path / "other" / "roofline_job"
    shutil.copytree(INJECT.parent, other)
    code = "import sys; print(sys.modules['roofline_job'].__file__, len(sys.meta_path), sys.path)"

    one = run(bare, code, INJECT, none)
    both = run(bare, code, INJECT, other / "inject", none)

    assert outcome(both) == outcome(one)


@pytest.mark.parametrize("broken", ["nothing", "__init__.py", "auto.py", "imports.py"])
def test_a_client_that_cannot_be_loaded_is_not_noticed(
    tmp_path: Path, none: Path, broken: str, bare: str
) -> None:
    """A half removed installation leaves jobs alone, and a client of their own to them."""
    package = tmp_path / "client"
    if broken == "nothing":
        shutil.copytree(INJECT, package / "inject")
    else:
        shutil.copytree(INJECT.parent, package)
        (package / broken).write_text("this is no Python\n", encoding="utf-8")
    code = "import sys; print([name for name in sys.modules if 'roofline' in name])"
    code += "; from roofline_job import watch; print(watch.__module__)"

    done = run(bare, code, package / "inject", none, REPOSITORY)

    assert outcome(done) == (0, "[]\nroofline_job.watching\n", "")


OLD = ["python2.7", "python3.6", "python3.7", "python3.8", "python3.9"]


@pytest.mark.parametrize("name", OLD)
def test_old_pythons_run_as_without_it(tmp_path: Path, name: str) -> None:
    """A sitecustomize of their own is executed once, and nothing is loaded."""
    code = "import sys; print([n for n in sys.modules if 'roofline' in n], sys.path)"
    folders = [*map(str, Path.home().glob(".pyenv/versions/*/bin")), "/usr/bin", "/usr/local/bin"]
    python = shutil.which(name, path=os.pathsep.join(folders))
    if python is None:
        pytest.skip(f"{name} is not installed")
    theirs = sitecustomize(tmp_path / "theirs", "print('theirs')\n")
    inject = shutil.copytree(INJECT, tmp_path / "package" / "inject")  # Python 2 writes into it

    done = run(python, code, inject, theirs)

    assert outcome(done) == outcome(run(python, code, theirs))
    assert done.stdout.count("theirs\n") == 1


# The package, without injection


def test_what_the_package_exports() -> None:
    """Three names, loaded when they are asked for; any other is missing."""
    assert roofline_job.__all__ == ["phase", "step", "watch"]
    for name in roofline_job.__all__:
        assert callable(getattr(roofline_job, name))
    with pytest.raises(AttributeError, match=r"^module 'roofline_job' has no attribute 'wach'$"):
        roofline_job.wach  # noqa: B018


def test_the_package_alone_loads_nothing(none: Path, bare: str) -> None:
    """Neither the client nor what it needs, also where the variable is not set."""
    code = "import sys; before = set(sys.modules); import roofline_job"
    code += "; print(sorted(set(sys.modules) - before))"

    done = run(bare, code, none, REPOSITORY, instrument=None)

    assert modules(done) == {"roofline_job", "__future__"}

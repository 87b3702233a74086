# SPDX-License-Identifier: Apache-2.0
"""The command as installers leave it: wherever it lies, and whatever the job has on its path."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import require_tool

ROOT = Path(__file__).parents[2]
VERSION = f"python{sys.version_info[0]}.{sys.version_info[1]}"
BASE = os.path.realpath(sys.executable)
"""A Python that is in no virtual environment."""
OWN = ("exporter/__init__", "logging", "random", "shutil", "signal", "dataclasses", "shlex", "enum")
"""Modules of a job that have names of ours and of the standard library."""

Install = Callable[[Path, Path], Path]


def pip(python: Path | str, *words: str, **environ: str) -> None:
    """Install with the pip of this environment for another Python."""
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), "install", *words],
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INDEX": "1", **environ},
        check=True,
        capture_output=True,
        timeout=120,
    )


def venv(folder: Path) -> Path:
    """Make an environment in which nothing is installed; return its Python."""
    subprocess.run(
        [BASE, "-m", "venv", "--without-pip", "--symlinks", str(folder)], check=True, timeout=60
    )
    return folder / "bin" / "python3"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=60,
    )
    (path,) = folder.iterdir()
    return path


def in_venv(wheel: Path, folder: Path) -> Path:
    python = venv(folder / "with blank")
    pip(python, "--no-deps", str(wheel))
    return python.parent / "roofline-exporter"


def linked(wheel: Path, folder: Path) -> Path:
    """As pipx does, and as docs/deploy.md has it for systemd."""
    link = folder / "links" / "roofline-exporter"
    link.parent.mkdir()
    link.symlink_to(in_venv(wheel, folder))
    return link


def for_user(wheel: Path, folder: Path) -> Path:
    words = ("--no-deps", "--user", "--break-system-packages", str(wheel))
    pip(BASE, *words, PYTHONUSERBASE=str(folder / "user"))
    return folder / "user" / "bin" / "roofline-exporter"


def with_prefix(wheel: Path, folder: Path) -> Path:
    pip(BASE, "--no-deps", "--ignore-installed", "--prefix", str(folder), str(wheel))
    (path,) = folder.rglob("bin/roofline-exporter")  # Debian puts local/ between
    return path


def with_target(wheel: Path, folder: Path) -> Path:
    pip(BASE, "--no-deps", "--target", str(folder), str(wheel))
    return folder / "bin" / "roofline-exporter"


def from_checkout(wheel: Path, folder: Path) -> Path:
    """As `make run` installs it."""
    return Path(require_tool("roofline-exporter", beside_python=True))


@pytest.fixture(
    scope="module", params=[in_venv, linked, for_user, with_prefix, with_target, from_checkout]
)
def command(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    install: Install = request.param
    return install(wheel, tmp_path_factory.mktemp(install.__name__))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command in an environment without anything else."""
    return in_venv(wheel, tmp_path_factory.mktemp("installed"))


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a job, in an environment of its own."""
    return venv(tmp_path_factory.mktemp("job") / "venv")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A folder with nothing but the python3 that the shell finds."""
    folder = tmp_path / "path"
    folder.mkdir()
    (folder / "python3").symlink_to(BASE)
    return folder


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A folder of a job that has modules of its own for everything."""
    folder = tmp_path / "job"
    (folder / "exporter").mkdir(parents=True)
    for name in OWN:
        (folder / f"{name}.py").write_text(f"print('{name} of the job')\n", encoding="utf-8")
    (folder / "sitecustomize.py").write_text("print('its sitecustomize')\n", encoding="utf-8")
    (folder / "train.py").write_text(
        "import os, sys\n"
        "import exporter\n"
        "print(sys.argv[1:], os.environ.get('ROOFLINE_JOB_NAME'))\n"
        "print('roofline_job' in sys.modules)\n",
        encoding="utf-8",
    )
    return folder


def start(
    *words: str | Path, environ: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*map(str, words)],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **(environ or {})},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_job_starts_whatever_modules_it_has(
    command: Path, python: Path, path: Path, job: Path
) -> None:
    """They are the job's alone, its sitecustomize runs once, and the client is there."""
    environ = {"PYTHONPATH": str(job), "PATH": f"{path}:/usr/bin:/bin"}
    plain = start(python, "train.py", "a b", environ=environ, cwd=job)
    words = ("--job", "mine", "--", python, "train.py", "a b")

    within = start(command, "run", *words, environ=environ, cwd=job)

    assert plain.stdout == "its sitecustomize\nexporter/__init__ of the job\n['a b'] None\nFalse\n"
    expected = plain.stdout.replace("None\nFalse", "mine\nTrue")
    assert (within.returncode, within.stderr, within.stdout) == (0, "", expected)


def test_the_variables_are_printed_whatever_modules_the_job_has(
    command: Path, python: Path, path: Path, job: Path
) -> None:
    """What is printed does the same as `run`."""
    environ = {"PYTHONPATH": str(job), "PATH": f"{path}:/usr/bin:/bin"}
    printed = start(command, "run", "--print-env", environ=environ, cwd=job)
    assert (printed.returncode, printed.stderr) == (0, "")

    script = f'{printed.stdout}exec "$0" train.py'
    done = start("/bin/sh", "-c", script, python, environ=environ, cwd=job)

    assert done.stdout.splitlines()[0] == "its sitecustomize"
    assert done.stdout.splitlines()[-1] == "True"
    assert (done.returncode, done.stderr) == (0, "")


def test_mistakes_come_from_the_package(command: Path, path: Path) -> None:
    """The exit code is that of the command line."""
    environ = {"PATH": f"{path}:/usr/bin:/bin"}
    done = start(command, "run", "--jbo", "x", environ=environ)
    assert done.returncode == 2
    assert done.stderr.startswith("roofline-exporter: unknown flag --jbo, did you mean --job? ")
    assert start(command, "run", "--", "no-such-command", environ=environ).returncode == 127


def test_the_job_is_the_same_process_with_the_same_environment(installed: Path) -> None:
    """Neither the shell nor the Python between leaves a trace in it."""
    script = 'echo $$; env | grep -vE "^(_|PYTHONPATH|ROOFLINE_JOB_[A-Z]+)=" | sort'
    script += "; grep -E '^(Sig(Ign|Blk)|FDSize)' /proc/self/status; exit 5"
    environ = {"LANG": "C", "PYTHONPATH": "/a", "PWD": "/", "SHLVL": "1", "PATH": "/usr/bin:/bin"}
    plain = start("/bin/sh", "-c", script, environ=environ)
    with subprocess.Popen(
        [str(installed), "run", "--", "/bin/sh", "-c", script],
        env={"HOME": "/nonexistent", **environ},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        pid, _, rest = process.stdout.read().partition("\n")

    assert process.returncode == 5
    assert int(pid) == process.pid
    assert rest == plain.stdout.partition("\n")[2]


# Without the daemon's dependencies


def test_the_client_needs_no_dependencies(installed: Path) -> None:
    """`pip install --no-deps` is enough for a script that uses it."""
    code = (
        "import sys\n"
        "from roofline_job import phase, step, watch\n"
        "print([*watch([1, 2])], callable(phase), callable(step))\n"
        "print({'exporter', 'yaml', 'pydantic'} & set(sys.modules))\n"
    )
    done = start(installed.parent / "python3", "-c", code, cwd=Path("/"))

    assert (done.returncode, done.stdout, done.stderr) == (0, "[1, 2] True True\nset()\n", "")


def test_what_needs_them_says_so(installed: Path) -> None:
    """One line instead of a traceback."""
    done = start(installed, "once", "--demo")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("roofline-exporter: No module named ")
    assert done.stderr.endswith("installed without its dependencies, it can only `run` jobs\n")
    assert done.stderr.count("\n") == 1


def test_every_other_command_is_an_ordinary_python(installed: Path) -> None:
    """What an operator sets for Python holds for the daemon."""
    folder = installed.parent.parent / "lib" / VERSION / "site-packages"
    shown = folder / "shown.pth"
    shown.write_text("import sys; sys.stderr.write(f'{sys.flags}\\n')\n", encoding="utf-8")
    try:
        for word, isolated, optimized in (("once", 0, 1), ("run", 1, 0)):
            done = start(installed, word, environ={"PYTHONOPTIMIZE": "1"})
            flags = done.stderr.splitlines()[0]
            assert f"isolated={isolated}" in flags
            assert f"optimize={optimized}" in flags
    finally:
        shown.unlink()


# Where it is not found


@pytest.fixture
def alone(tmp_path: Path) -> Path:
    """The command without its packages."""
    (tmp_path / "prefix" / "bin").mkdir(parents=True)
    return Path(shutil.copy(ROOT / "bin/roofline-exporter", tmp_path / "prefix" / "bin"))


@pytest.mark.parametrize("word", ["run", "once"])
def test_packages_that_are_missing_are_one_line(alone: Path, path: Path, word: str) -> None:
    """It names the Python that was asked."""
    done = start(alone, word, environ={"PATH": f"{path}:/usr/bin:/bin"})

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("roofline-exporter: No module named '")
    assert done.stderr.endswith(f"(Python: {path}/python3)\n")


def test_without_a_python_it_is_one_line(alone: Path, tmp_path: Path) -> None:
    """A path without python3, in an image that has another name for it."""
    done = start(alone, "run", environ={"PATH": str(tmp_path)})

    assert (done.returncode, done.stdout) == (127, "")
    line = f"roofline-exporter: no python3 beside {alone} and none on the PATH\n"
    assert done.stderr == line


@pytest.mark.parametrize(("word", "options"), [("run", " -I"), ("once", "")])
def test_the_python_that_it_was_installed_for_is_found(
    alone: Path, path: Path, word: str, options: str
) -> None:
    """`pip3.99 install --user` where python3 is another one, as on older distributions."""
    packages = alone.parent.parent / "lib" / "python3.99" / "site-packages"
    (packages / "roofline_exporter-0.1.0.dist-info").mkdir(parents=True)
    (path / "python3.99").write_text('#!/bin/sh\necho "$@"\n', encoding="utf-8")
    (path / "python3.99").chmod(0o755)

    done = start(alone, word, "--", "x", environ={"PATH": f"{path}:/usr/bin:/bin"})

    expected = f"-X roofline-exporter-again{options} {alone} {word} -- x\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")


def test_it_does_not_look_for_that_for_ever(alone: Path, path: Path) -> None:
    """The other one may lack the packages too, after half an uninstallation."""
    packages = alone.parent.parent / "lib" / "python3.99" / "site-packages"
    (packages / "roofline_exporter-0.1.0.dist-info").mkdir(parents=True)
    (path / "python3.99").symlink_to(BASE)

    done = start(alone, "run", environ={"PATH": f"{path}:/usr/bin:/bin"})

    assert done.returncode == 1
    assert done.stderr.startswith("roofline-exporter: No module named 'roofline_job'")

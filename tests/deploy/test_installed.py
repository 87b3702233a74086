# SPDX-License-Identifier: Apache-2.0
"""The command as installers leave it: wherever it lies, whatever the job has on its path."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import require_tool
from tests.programs import Ended, ended

ROOT = Path(__file__).parents[2]
VERSION = f"python{sys.version_info[0]}.{sys.version_info[1]}"
BASE = os.path.realpath(sys.executable)
"""A Python that is in no virtual environment."""
OWN = ("exporter/__init__", "logging", "random", "shutil", "signal", "dataclasses", "shlex", "enum")
"""Modules of a job that have names of ours and of the standard library."""


class Installed(NamedTuple):
    """The command, its Python, and the variables that it needs."""

    command: Path
    python: Path
    environ: Mapping[str, str] = {}


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


def installed_in(wheel: Path, folder: Path) -> Path:
    python = venv(folder / "with blank")
    pip(python, "--no-deps", str(wheel))
    return python.parent / "roofline-exporter"


def linked(wheel: Path, folder: Path) -> Installed:
    """In an environment, and a link to it, as pipx does and docs/deploy.md has it for systemd."""
    link = folder / "links" / "roofline-exporter"
    link.parent.mkdir()
    command = installed_in(wheel, folder)
    link.symlink_to(command)
    return Installed(link, command.parent / "python3")


def for_user(wheel: Path, folder: Path) -> Installed:
    words = ("--no-deps", "--user", "--break-system-packages", str(wheel))
    base = {"PYTHONUSERBASE": str(folder / "user")}
    pip(BASE, *words, **base)
    return Installed(folder / "user" / "bin" / "roofline-exporter", Path(BASE), base)


def with_target(wheel: Path, folder: Path) -> Installed:
    pip(BASE, "--no-deps", "--target", str(folder), str(wheel))
    command = folder / "bin" / "roofline-exporter"
    return Installed(command, Path(BASE), {"PYTHONPATH": str(folder)})


def from_checkout(wheel: Path, folder: Path) -> Installed:
    """As `make run` installs it."""
    command = Path(require_tool("roofline-exporter", beside_python=True))
    return Installed(command, Path(sys.executable))


@pytest.fixture(
    scope="module",
    params=[
        linked,
        from_checkout,
        *(pytest.param(one, marks=pytest.mark.slow) for one in (for_user, with_target)),
    ],
)
def installation(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Installed:
    install = request.param
    return Installed(*install(wheel, tmp_path_factory.mktemp(install.__name__)))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command in an environment without anything else."""
    return installed_in(wheel, tmp_path_factory.mktemp("installed"))


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a job, in an environment of its own."""
    return venv(tmp_path_factory.mktemp("job") / "venv")


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
    *words: str | Path, environ: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Ended:
    environ = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **(environ or {})}
    return ended(*words, env=environ, cwd=cwd)


def test_a_job_starts_whatever_modules_it_has(
    installation: Installed, python: Path, job: Path
) -> None:
    """The client is there. What runs in the launcher too is what every Python starts with."""
    command, own, environ = installation
    entries = [str(job), *environ.get("PYTHONPATH", "").split()]
    environ = {**environ, "PYTHONPATH": ":".join(entries), "PYTHONUNBUFFERED": "1"}
    launcher = start(own, "-c", "", environ=environ).stdout
    plain = start(python, "train.py", "a b", environ=environ, cwd=job)
    words = ("--job", "mine", "--", python, "train.py", "a b")

    within = start(command, "run", *words, environ=environ, cwd=job)

    assert plain.stdout == "its sitecustomize\nexporter/__init__ of the job\n['a b'] None\nFalse\n"
    expected = launcher + plain.stdout.replace("None\nFalse", "mine\nTrue")
    assert (within.returncode, within.stderr, within.stdout) == (0, "", expected)


def test_an_isolated_launcher_runs_nothing_of_the_job(
    installed: Path, python: Path, job: Path
) -> None:
    """`python3 -I -m roofline_job.command run`, where a sitecustomize must not run twice."""
    isolated = (installed.parent / "python3", "-I", "-m", "roofline_job.command", "run")
    environ = {"PYTHONPATH": str(job), "PYTHONUNBUFFERED": "1"}
    done = start(*isolated, "--", python, "train.py", environ=environ, cwd=job)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "its sitecustomize\nexporter/__init__ of the job\n[] None\nTrue\n"


def test_mistakes_come_from_the_package(installation: Installed) -> None:
    """The exit code is that of the command line."""
    command, _, environ = installation
    done = start(command, "run", "--jbo", "x", environ=environ)
    assert done.returncode == 2
    assert done.stderr.startswith("roofline-exporter: unknown flag --jbo, did you mean --job? ")
    assert start(command, "run", "--", "no-such-command", environ=environ).returncode == 127


def test_the_job_is_the_same_process_with_the_same_environment(installed: Path) -> None:
    """The two Pythons before it leave no trace in it."""
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

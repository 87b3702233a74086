# SPDX-License-Identifier: Apache-2.0
"""Loading and initialising the driver library, and starting over."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from exporter.errors import LibraryUnavailable
from exporter.sources.nvml.identity import text
from exporter.sources.nvml.library import Library
from tests.fake_nvml import DRIVER_535, FakeNvml, build, fault


@pytest.fixture(autouse=True)
def _restore(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave pynvml as it was."""
    monkeypatch.setattr(pynvml, "nvmlLib", pynvml.nvmlLib)
    yield
    pynvml._nvmlGetFunctionPointer_cache.clear()


def refusal(path: str | None) -> str:
    with pytest.raises(LibraryUnavailable) as caught:
        Library(path).start()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_start_counts_generations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each successful initialisation is a generation of its own."""
    fake = FakeNvml(tmp_path, {"devices": {"count": 3}})
    fake.activate(monkeypatch)
    library = Library(str(fake.library))
    library.start()

    assert library.device_count() == 3
    assert text("nvmlDeviceGetUUID", library.handle(2)).startswith("GPU-")
    library.stop()
    assert (library.generation, library.start(), library.generation) == (1, 2, 2)
    assert library.device_count() == 3


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "No such file"), ("not a library", "file too short")]
)
def test_wrong_path_names_the_flag(tmp_path: Path, content: str | None, reason: str) -> None:
    """A path to nothing, or to no library, gives one line with the flag and the path."""
    path = tmp_path / "libnvidia-ml.so.1"
    if content is not None:
        path.write_text(content)

    assert refusal(str(path)).startswith(f"--nvml.library {path} cannot be loaded: ")
    assert reason in refusal(str(path))


def test_library_that_is_not_the_drivers() -> None:
    """Another shared library has none of the driver's functions, and the line says so."""
    assert refusal("libm.so.6") == (
        "NVML cannot be initialised: the library that was loaded is not the NVIDIA driver's"
    )


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (9, "the NVIDIA driver is not loaded, or its device nodes"),
        (4, "no permission to open the NVIDIA device nodes"),
        (18, "different versions"),
        (12, "libnvidia-ml.so.1 was not found"),
        (999, "Unknown Error"),
    ],
)
def test_refused_initialisation_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, reason: str
) -> None:
    """The driver's code becomes one line that says what to look at."""
    fake = FakeNvml(tmp_path, {"faults": [fault("nvmlInit*", error=code)]})
    fake.activate(monkeypatch)
    message = refusal(str(fake.library))

    assert message.startswith("NVML cannot be initialised: ")
    assert reason in message


def run(code: str, environment: dict[str, str]) -> str:
    """What a fresh Python prints: only there nothing was loaded before."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


UPDATE = """
import os
import pynvml
from exporter.sources.nvml.library import Library

library = Library(PATH)
for version in ("535", "580", "535"):
    os.symlink(f"libnvidia-ml.so.{version}", "new")
    os.replace("new", "libnvidia-ml.so.1")
    library.start()
    try:
        pynvml.nvmlDeviceGetMarginTemperature(library.handle(0))
        print("new", library.generation)
    except pynvml.NVMLError_FunctionNotFound:
        print("old", library.generation)
"""


@pytest.mark.parametrize("named", [True, False])
def test_an_updated_driver_is_loaded_anew(tmp_path: Path, named: bool) -> None:
    """The file that the name leads to by now, which a flag names, or the linker finds."""
    fake = FakeNvml(tmp_path, {})
    folder = tmp_path / "driver"
    folder.mkdir()
    shutil.copy(build(DRIVER_535), folder / "libnvidia-ml.so.535")
    shutil.copy(fake.library, folder / "libnvidia-ml.so.580")
    environment = {**fake.environment(), "LD_LIBRARY_PATH": "" if named else str(folder)}
    path = str(folder / "libnvidia-ml.so.1") if named else None
    printed = run(f"import os; os.chdir({str(folder)!r}); PATH = {path!r}" + UPDATE, environment)

    assert printed.split("\n")[:3] == ["old 1", "new 2", "old 3"]


def test_the_fake_library_compiles_without_warnings() -> None:
    """Under -Wall -Wextra -Werror."""
    assert build(extra_flags=("-Werror",)).exists()


def test_hanging_initialisation_blocks_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While `nvmlInit` does not return, other threads run, and their calls answer."""
    fake = FakeNvml(tmp_path, {"faults": [fault("nvmlInit*", hang=True)]}, clock=1e6)
    fake.activate(monkeypatch)
    library = Library(str(fake.library))
    thread = threading.Thread(target=library.start, daemon=True)
    thread.start()
    thread.join(0.2)

    assert thread.is_alive()
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        library.device_count()
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        text("nvmlSystemGetDriverVersion")
    fake.update(faults=[])
    thread.join(5)
    assert not thread.is_alive()
    assert library.device_count() == 1


def test_no_library_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without the driver gives one line with the library's name."""
    code = (
        "from exporter.sources.nvml.library import Library\n"
        "from exporter.errors import LibraryUnavailable\n"
        "try:\n    Library().start()\nexcept LibraryUnavailable as error:\n    print(error)"
    )
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    printed = run(code, {})
    if "cannot be loaded" not in printed:
        pytest.skip("this machine has the driver's library")

    assert printed.startswith("libnvidia-ml.so.1 cannot be loaded: ")
    assert printed.count("\n") == 1

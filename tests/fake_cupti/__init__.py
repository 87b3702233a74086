# SPDX-License-Identifier: Apache-2.0
"""CUPTI and the CUDA driver for tests: libraries that play a scenario, no GPU needed."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Sequence
from pathlib import Path

from tests.fake_cupti.build import build

PACKAGES = {
    12: ("nvidia_cuda_cupti_cu12", "12.9.79", "nvidia/cuda_cupti/lib"),
    13: ("nvidia_cuda_cupti", "13.1.115", "nvidia/cu13/lib"),
}
"""By CUDA version: a package of NVIDIA's, and where it has the libraries."""

__all__ = ["FakeCupti", "build", "uuid_of"]


def uuid_of(index: int) -> str:
    """Return the UUID of one of the scenario's GPUs, as NVML writes it."""
    digits = f"{index + 1:032x}"
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return f"GPU-{'-'.join(parts)}"


class FakeCupti:
    """One scenario, and what the libraries have logged while they played it.

    `src/scenario.h` says what the lines of a scenario mean.
    """

    def __init__(self, folder: Path, chips: Sequence[str] = ("AD102",), *lines: str) -> None:
        """Have one GPU of each of these chips, and play these lines."""
        self.libraries = build()
        self.scenario = folder / "scenario"
        self.log = folder / "calls"
        self._gpus = [f"gpu {index} {chip} {index + 1:032x}" for index, chip in enumerate(chips)]
        self._settings: tuple[str, ...] = ()
        self.play(*lines)

    @property
    def environment(self) -> dict[str, str]:
        """What a process has to have in its environment, so that it finds the fakes."""
        return {"FAKE_CUPTI": str(self.scenario), "LD_LIBRARY_PATH": str(self.libraries)}

    def cupti(self, major: int = 13) -> Path:
        """Return a library of CUPTI."""
        return self.libraries / f"libcupti.so.{major}"

    def install(self, folder: Path, *majors: int) -> None:
        """Have the libraries lie in a folder of Python's path as NVIDIA's packages would."""
        for major in majors:
            name, version, place = PACKAGES[major]
            facts = folder / f"{name}-{version}.dist-info"
            facts.mkdir(parents=True)
            text = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
            (facts / "METADATA").write_text(text, encoding="utf-8")
            libraries = folder / place
            libraries.mkdir(parents=True)
            for library in self.libraries.glob("lib*"):
                (libraries / library.name).symlink_to(library)

    def play(self, *lines: str) -> None:
        """Play these lines from now on, instead of those before."""
        text = "\n".join((*self._gpus, f"log {self.log}", *lines, ""))
        scratch = self.scenario.with_suffix(".new")
        scratch.write_text(text, encoding="utf-8")
        stamp = time.time_ns()  # the file system's own clock may stand still for some ms
        os.utime(scratch, ns=(stamp, stamp))
        scratch.replace(self.scenario)

    def calls(self, *functions: str) -> list[str]:
        """Return the functions that were called, in order: all, or only these."""
        if not self.log.exists():
            return []
        called = [line.split()[1] for line in self.log.read_text("utf-8").splitlines()]
        return [name for name in called if not functions or name in functions]

    # In this process.

    def reset(self) -> None:
        """Have the library begin anew, with a clock that stands still but for `advance`."""
        functions = ctypes.CDLL(str(self.cupti()))
        functions.fake_cupti_reset()
        self.advance(0.0)

    def advance(self, seconds: float) -> None:
        """Let the GPUs sample for so long."""
        functions = ctypes.CDLL(str(self.cupti()))
        functions.fake_cupti_advance(ctypes.c_double(seconds))

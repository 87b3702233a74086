# SPDX-License-Identifier: Apache-2.0
"""Our structures against NVIDIA's headers, by the compiler."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from exporter.sources.cupti.host import INVALID_METRIC_NAME, INVALID_PARAMETER
from exporter.sources.cupti.library import BUSY, OVERFLOW
from exporter.sources.cupti.release import KNOWN
from exporter.sources.cupti.structures import (
    COUNTER_DATA_FULL,
    KEEP_LATEST,
    PM_SAMPLING,
    PM_SAMPLING_API,
    SUPPORTED,
    TIME_INTERVAL,
    Parameters,
    struct_size,
)
from tests.conftest import require_tool
from tests.sources.cupti.real import RELEASES, release

STRUCTURES = {each.__name__: each for each in Parameters.__subclasses__()}
IRREGULAR = {
    "PmSamplingCounterDataImageInitialize": "PmSampling_CounterDataImage_Initialize",
    "PmSamplingCounterDataGetSampleInfo": "PmSampling_CounterData_GetSampleInfo",
}
"""NVIDIA's names with one underscore more than the rule gives."""
NUMBERS = {
    "CUPTI_PROFILER_TYPE_PM_SAMPLING": PM_SAMPLING,
    "CUPTI_PROFILER_PM_SAMPLING": PM_SAMPLING_API,
    "CUPTI_PROFILER_CONFIGURATION_SUPPORTED": SUPPORTED,
    "CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL": TIME_INTERVAL,
    "CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_LATEST": KEEP_LATEST,
    "CUPTI_PM_SAMPLING_DECODE_STOP_REASON_COUNTER_DATA_FULL": COUNTER_DATA_FULL,
    "CUPTI_ERROR_INVALID_PARAMETER": INVALID_PARAMETER,
    "CUPTI_ERROR_INVALID_METRIC_NAME": INVALID_METRIC_NAME,
    "CUPTI_ERROR_OUT_OF_MEMORY": OVERFLOW,
    "CUPTI_ERROR_HARDWARE_BUSY": BUSY,
    "CUPTI_ERROR_NOT_INITIALIZED": 15,
    "CUPTI_ERROR_NOT_SUPPORTED": 27,
    "CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED": 33,
    "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES": 35,
    "CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES": 40,
    "CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED": 41,
    "CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED": 42,
    "CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED": 43,
    "CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED": 44,
    "CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED": 45,
    "CUPTI_ERROR_UNKNOWN": 999,
}
HEADERS = ("cupti_target", "cupti_profiler_target", "cupti_pmsampling", "cupti_profiler_host")
CUDA = """
#pragma once
#include <stdbool.h>
typedef int CUdevice;
typedef struct CUctx_st *CUcontext;
"""
"""In place of cuda.h: all that these headers need of CUDA's, and what those of C++ have."""


def name_in_c(name: str) -> str:
    """Return NVIDIA's name of one of our structures."""
    regular = re.sub("^(PmSampling|ProfilerHost|Profiler|Device)(?=.)", r"\1_", name)
    regular = regular.replace("ProfilerHost_", "Profiler_Host_")
    return f"CUpti_{IRREGULAR.get(name, regular)}_Params"


def member_in_c(name: str) -> str:
    """Return NVIDIA's name of a member."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def members(kind: type[Parameters], version: int) -> list[str]:
    """Return the members that a release has, in order."""
    names = [name for base in kind.__mro__[::-1] for name, *_ in vars(base).get("_fields_", ())]
    return [name for name in names if kind.SINCE.get(name, 0) <= version]


def source(version: int) -> str:
    """Return a program that prints what the compiler makes of NVIDIA's headers, as JSON."""
    lines = [f"#include <{header}.h>" for header in HEADERS]
    lines += ["#include <stdio.h>", "int main() {", 'puts("{");']
    for name, kind in STRUCTURES.items():
        in_c = name_in_c(name)
        lines.append(f'printf("\\"{name}\\": [%zu", (size_t){in_c}_STRUCT_SIZE);')
        for member in members(kind, version):
            place = f"{in_c}, {member_in_c(member)}"
            size = f"sizeof((({in_c}*)0)->{member_in_c(member)})"
            lines.append(f'printf(", [%zu, %zu]", offsetof({place}), {size});')
        lines.append('puts("],");')
    for number in NUMBERS:
        lines.append(f'printf("\\"{number}\\": %d,", (int){number});')
    lines += ['puts("\\"\\": 0}");', "}"]
    return "\n".join(lines)


@pytest.mark.parametrize("package", RELEASES)
def test_every_structure_is_laid_out_as_nvidias_headers_have_it(
    package: str, tmp_path: Path
) -> None:
    """Offsets and sizes of all members, what CUPTI compares as structSize, and our numbers."""
    compiler = require_tool("cc")
    used = release(package)
    version = max(KNOWN[used.cuda])
    (tmp_path / "cuda.h").write_text(CUDA)
    (tmp_path / "string").touch()  # the one word of C++ in the headers of 12; nothing uses it
    (tmp_path / "layout.c").write_text(source(version))
    headers = used.library.parent.parent / "include"
    built = [compiler, "-w", f"-I{tmp_path}", f"-I{headers}", "-o", "layout", "layout.c"]
    subprocess.run(built, cwd=tmp_path, check=True, timeout=120)
    printed = subprocess.run([tmp_path / "layout"], capture_output=True, check=True).stdout
    theirs = json.loads(printed)

    assert {name: theirs.pop(name) for name in STRUCTURES} == {
        name: [
            struct_size(kind, version),
            *(
                [getattr(kind, member).offset, getattr(kind, member).size]
                for member in members(kind, version)
            ),
        ]
        for name, kind in STRUCTURES.items()
    }
    theirs.pop("")
    assert theirs == NUMBERS


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("ProfilerDeviceSupported", {24: 52, 28: 52, 130001: 52, 130100: 56, 130101: 56}),
        ("PmSamplingSetConfig", {24: 60, 26: 64, 28: 64, 130101: 64}),
        ("ProfilerHostGetMetricProperties", {24: 60, 28: 60, 130001: 60, 130100: 64}),
        ("PmSamplingDecodeData", {24: 45, 130101: 45}),
        ("ProfilerHostInitialize", {24: 48, 130101: 48}),
    ],
)
def test_a_release_is_told_the_size_that_it_knows(name: str, sizes: dict[int, int]) -> None:
    """Members of later releases and padding do not count."""
    assert {version: struct_size(STRUCTURES[name], version) for version in sizes} == sizes

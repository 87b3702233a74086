# SPDX-License-Identifier: Apache-2.0
"""The parameter structures of CUPTI's functions, laid out as in its C ABI.

Each begins with its own size, which CUPTI checks: to the end of the last member, without padding.
Members that a later release appended do not count for earlier ones. Members have CUPTI's own names
in snake case.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from ctypes import (
    POINTER,
    c_char_p,
    c_double,
    c_int,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any, ClassVar, TypeVar

CUPTI_12_8 = 26
CUPTI_13_1 = 130100
"""Releases, as cuptiGetVersion numbers them."""

PM_SAMPLING = 1
"""A profiler of the host: CUpti_ProfilerType."""
PM_SAMPLING_API = 3
"""The argument of cuptiProfilerDeviceSupported: CUpti_Profiler_API."""
UNSUPPORTED, DISABLED, SUPPORTED = 1, 2, 3
"""CUpti_Profiler_Support_Level."""
SYSTEM_CLOCK_INTERVAL, TIME_INTERVAL = 0, 1
"""What an interval counts, cycles or nanoseconds: CUpti_PmSampling_TriggerMode."""
KEEP_OLDEST, KEEP_LATEST = 0, 1
"""What a full buffer drops: CUpti_PmSampling_HardwareBuffer_AppendMode."""
COUNTER_DATA_FULL = 1
"""Why decoding stopped: CUpti_PmSampling_DecodeStopReason."""

_Names = POINTER(c_char_p)
_IMAGE: Mapping[str, Any] = {
    "p_counter_data_image": c_void_p,
    "counter_data_image_size": c_size_t,
}


class Parameters(ctypes.Structure):
    """The members that all structures begin with."""

    FUNCTION: ClassVar[str]
    """The function that takes a pointer to it."""
    SINCE: ClassVar[Mapping[str, int]] = {}
    """By member: the release that appended it; the others were there before 12.6."""
    _fields_: ClassVar[Sequence[tuple[str, type[Any]]]] = (
        ("struct_size", c_size_t),
        ("p_priv", c_void_p),
    )


P = TypeVar("P", bound=Parameters)


def struct_size(kind: type[Parameters], version: int) -> int:
    """Return the size in bytes that the release `version` expects of a structure."""
    members = [name for base in kind.__mro__[::-1] for name, *_ in vars(base).get("_fields_", ())]
    known = [name for name in members if kind.SINCE.get(name, 0) <= version]
    last = getattr(kind, known[-1])
    return int(last.offset + last.size)


def parameters(kind: type[P], version: int, **members: Any) -> P:
    """Return a structure for the release `version`, all else than `members` being zero."""
    return kind(struct_size=struct_size(kind, version), **members)


def _structure(
    function: str, since: Mapping[str, int] | None = None, **members: Any
) -> type[Parameters]:
    """Return the structure that a function takes: its members by name, in their order."""
    return type(
        function.removeprefix("cupti"),
        (Parameters,),
        {"FUNCTION": function, "SINCE": since or {}, "_fields_": tuple(members.items())},
    )


# Of the process and its GPUs.

# Once in a process.
ProfilerInitialize = _structure("cuptiProfilerInitialize")
# Once in a process: a second time crashes it.
ProfilerDeInitialize = _structure("cuptiProfilerDeInitialize")
DeviceGetChipName = _structure(
    "cuptiDeviceGetChipName", device_index=c_size_t, p_chip_name=c_char_p
)
# Gives a level of support for each requirement.
ProfilerDeviceSupported = _structure(
    "cuptiProfilerDeviceSupported",
    cu_device=c_int,
    is_supported=c_int,
    architecture=c_int,
    sli=c_int,
    v_gpu=c_int,
    confidential_compute=c_int,
    cmp=c_int,
    wsl=c_int,
    api=c_int,
    sku=c_int,
    since={"sku": CUPTI_13_1},
)

# Sampling.

# Gives `p_pm_sampling_object`, the handle of the GPU in the next calls.
PmSamplingEnable = _structure(
    "cuptiPmSamplingEnable", device_index=c_size_t, p_pm_sampling_object=c_void_p
)
PmSamplingDisable = _structure("cuptiPmSamplingDisable", p_pm_sampling_object=c_void_p)
# The config image is kept by its address for as long as the GPU is enabled.
PmSamplingSetConfig = _structure(
    "cuptiPmSamplingSetConfig",
    p_pm_sampling_object=c_void_p,
    config_size=c_size_t,
    p_config=c_void_p,
    hardware_buffer_size=c_size_t,
    sampling_interval=c_uint64,
    trigger_mode=c_int,
    hw_buffer_append_mode=c_int,
    since={"hw_buffer_append_mode": CUPTI_12_8},
)
PmSamplingStart = _structure("cuptiPmSamplingStart", p_pm_sampling_object=c_void_p)
PmSamplingStop = _structure("cuptiPmSamplingStop", p_pm_sampling_object=c_void_p)
# Moves samples into an image; gives why it stopped and whether the buffer overflowed.
PmSamplingDecodeData = _structure(
    "cuptiPmSamplingDecodeData",
    p_pm_sampling_object=c_void_p,
    **_IMAGE,
    decode_stop_reason=c_int,
    overflow=c_uint8,
)
# Gives the size where the image is NULL, and then fills it.
PmSamplingGetCounterAvailability = _structure(
    "cuptiPmSamplingGetCounterAvailability",
    device_index=c_size_t,
    counter_availability_image_size=c_size_t,
    p_counter_availability_image=c_void_p,
)
PmSamplingGetCounterDataSize = _structure(
    "cuptiPmSamplingGetCounterDataSize",
    p_pm_sampling_object=c_void_p,
    p_metric_names=_Names,
    num_metrics=c_size_t,
    max_samples=c_uint32,
    counter_data_size=c_size_t,
)
PmSamplingCounterDataImageInitialize = _structure(
    "cuptiPmSamplingCounterDataImageInitialize",
    p_pm_sampling_object=c_void_p,
    counter_data_size=c_size_t,
    p_counter_data=c_void_p,
)
PmSamplingGetCounterDataInfo = _structure(
    "cuptiPmSamplingGetCounterDataInfo",
    **_IMAGE,
    num_total_samples=c_size_t,
    num_populated_samples=c_size_t,
    num_completed_samples=c_size_t,
)
# Gives when one sample began and ended, in nanoseconds.
PmSamplingCounterDataGetSampleInfo = _structure(
    "cuptiPmSamplingCounterDataGetSampleInfo",
    p_pm_sampling_object=c_void_p,
    **_IMAGE,
    sample_index=c_size_t,
    start_timestamp=c_uint64,
    end_timestamp=c_uint64,
)

# Of the host, which needs neither GPU nor driver.
# Gives `p_host_object`, the handle of the chip in the next calls.
ProfilerHostInitialize = _structure(
    "cuptiProfilerHostInitialize",
    profiler_type=c_int,
    p_chip_name=c_char_p,
    p_counter_availability_image=c_void_p,
    p_host_object=c_void_p,
)
ProfilerHostDeinitialize = _structure("cuptiProfilerHostDeinitialize", p_host_object=c_void_p)
# Gives the names of all chips that this release knows.
ProfilerHostGetSupportedChips = _structure(
    "cuptiProfilerHostGetSupportedChips", num_chips=c_size_t, pp_chip_names=_Names
)
ProfilerHostGetMetricProperties = _structure(
    "cuptiProfilerHostGetMetricProperties",
    p_host_object=c_void_p,
    p_metric_name=c_char_p,
    p_description=c_char_p,
    p_hw_unit=c_char_p,
    p_dim_unit=c_char_p,
    metric_type=c_int,
    metric_collection_scope=c_int,
    since={"metric_collection_scope": CUPTI_13_1},
)
ProfilerHostConfigAddMetrics = _structure(
    "cuptiProfilerHostConfigAddMetrics",
    p_host_object=c_void_p,
    pp_metric_names=_Names,
    num_metrics=c_size_t,
)
ProfilerHostGetConfigImageSize = _structure(
    "cuptiProfilerHostGetConfigImageSize", p_host_object=c_void_p, config_image_size=c_size_t
)
ProfilerHostGetConfigImage = _structure(
    "cuptiProfilerHostGetConfigImage",
    p_host_object=c_void_p,
    config_image_size=c_size_t,
    p_config_image=c_void_p,
)
# Gives in how many passes the metrics of an image are counted.
ProfilerHostGetNumOfPasses = _structure(
    "cuptiProfilerHostGetNumOfPasses",
    config_image_size=c_size_t,
    p_config_image=c_void_p,
    num_of_passes=c_size_t,
)
# Computes metrics of one sample of a counter data image into `p_metric_values`.
ProfilerHostEvaluateToGpuValues = _structure(
    "cuptiProfilerHostEvaluateToGpuValues",
    p_host_object=c_void_p,
    **_IMAGE,
    range_index=c_size_t,
    pp_metric_names=_Names,
    num_metrics=c_size_t,
    p_metric_values=POINTER(c_double),
)

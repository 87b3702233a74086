# SPDX-License-Identifier: Apache-2.0
"""Whether a GPU can be sampled at all, as CUPTI says before it is tried."""

from __future__ import annotations

import ctypes

from exporter.sources.cupti.errors import CuptiError
from exporter.sources.cupti.host import Image
from exporter.sources.cupti.library import Library
from exporter.sources.cupti.structures import (
    PM_SAMPLING_API,
    SUPPORT_LEVELS,
    DeviceGetChipName,
    PmSamplingGetCounterAvailability,
    ProfilerDeviceSupported,
)

OBSTACLES = (
    ("wsl", 45, 45),
    ("v_gpu", 33, 40),
    ("confidential_compute", 41, 41),
    ("cmp", 42, 42),
    ("sli", 44, 44),
    ("architecture", 27, 27),
    ("is_supported", 27, 27),
)
"""By member of the answer: the result code that says the same, where it is unsupported and where it
is disabled."""


def chip_of(library: Library, index: int) -> str:
    """Return the name of the chip of GPU `index`.

    Raises:
        CuptiError: with CUPTI's code.
    """
    return str(library.call(DeviceGetChipName, device_index=index).p_chip_name.decode())


def check_support(library: Library, index: int) -> None:
    """Raise CuptiError with the code of what stands in the way of sampling GPU `index`."""
    answer = library.call(ProfilerDeviceSupported, cu_device=index, api=PM_SAMPLING_API)
    for member, unsupported, disabled in OBSTACLES:
        level = getattr(answer, member)
        if level in (SUPPORT_LEVELS.index("unsupported"), SUPPORT_LEVELS.index("disabled")):
            code = unsupported if SUPPORT_LEVELS[level] == "unsupported" else disabled
            raise CuptiError(code, ProfilerDeviceSupported.FUNCTION)


def availability_of(library: Library, index: int) -> Image:
    """Return the image of what can be counted on GPU `index` now.

    Raises:
        CuptiError: with CUPTI's code, as while another profiler is active.
    """
    asked = {"device_index": index}
    size = library.call(PmSamplingGetCounterAvailability, **asked).counter_availability_image_size
    image: Image = (ctypes.c_uint8 * size)()
    library.call(
        PmSamplingGetCounterAvailability,
        **asked,
        counter_availability_image_size=size,
        p_counter_availability_image=ctypes.addressof(image),
    )
    return image

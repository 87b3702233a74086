# SPDX-License-Identifier: Apache-2.0
"""Which part of a GPU's ceilings a MIG instance has."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.reading import Device, Instance
from exporter.model.snapshot import Ceilings
from exporter.specs import load_specs, share_ceilings

BOOK = load_specs()
GIB = 1024**3
MIB = 1024**2


def _device(name: str, memory_bytes: int, *instances: Instance) -> Device:
    return Device(
        index=0,
        uuid="GPU-1",
        name=name,
        memory_bytes=memory_bytes,
        nvlink_count=18,
        mig=True,
        instances=instances,
    )


def _instance(
    sms: int | None, memory_bytes: float | None, gpu_instance: int = 3, compute_instance: int = 0
) -> Instance:
    memory = None if memory_bytes is None else int(memory_bytes)
    return Instance(gpu_instance, compute_instance, "profile", "MIG-1", sms, memory)


def _share(device: Device, gpu_instance: int = 3) -> tuple[Ceilings, Ceilings]:
    whole = BOOK.ceilings(device)
    assert whole is not None
    return whole, share_ceilings(whole, device, gpu_instance)


# MiB of the GPU, SMs and GiB of the instance, SMs and memory over the GPU's, name.
_PROFILES = """
143771 16  16.0  16/132 1/8 NVIDIA H200
143771 16  4.0   16/132 1/8 NVIDIA H200
143771 26  32.25 26/132 2/8 NVIDIA H200
143771 60  69.5  60/132 4/8 NVIDIA H200
143771 132 140.0 1/1    8/8 NVIDIA H200
24576  14  5.8   14/56  2/8 NVIDIA A30
24576  56  23.4  1/1    8/8 NVIDIA A30
40960  14  4.75  14/108 1/8 NVIDIA A100-SXM4-40GB
40960  98  39.25 98/108 8/8 NVIDIA A100-SXM4-40GB
97887  46  23.6  46/188 2/8 NVIDIA RTX PRO 6000 Blackwell Server Edition
"""


@pytest.mark.parametrize("row", _PROFILES.strip().splitlines())
def test_known_profiles(row: str) -> None:
    """Compute goes by real SM counts, bandwidth and bus by eighths of the memory."""
    mib, sms, gib, sm_part, memory_part, name = row.split(maxsplit=5)
    of_sms, of_memory = float(Fraction(sm_part)), float(Fraction(memory_part))
    device = _device(name, int(mib) * MIB, _instance(int(sms), float(gib) * GIB))
    whole, share = _share(device)
    assert share.share_of_sms == pytest.approx(of_sms)
    assert share.share_of_memory == of_memory
    assert share.sm_count == int(sms)
    for precision, peak in whole.peak_flops_per_second.items():
        assert share.peak_flops_per_second[precision] == pytest.approx(peak * of_sms)
    assert whole.memory_bandwidth_bytes_per_second is not None
    assert share.memory_bandwidth_bytes_per_second == pytest.approx(
        whole.memory_bandwidth_bytes_per_second * of_memory
    )
    assert share.memory_bus_width_bits == whole.memory_bus_width_bits
    assert share.link_bandwidth_bytes_per_second == {}
    assert share.spec == whole.spec
    assert share.peak_clock_hertz == whole.peak_clock_hertz
    assert share.assumed_precision == whole.assumed_precision


@pytest.mark.parametrize(
    ("sms", "count"),
    [
        ([16, 32], 48),
        # Each compute instance has the whole GPU's count.
        ([132, 132], 132),
        # The sum of the others would be too low a ceiling.
        ([16, None], None),
        ([None], None),
        ([0], None),
        ([500], None),
    ],
)
def test_compute_instances_add_up_and_share_the_memory(
    sms: list[int | None], count: int | None
) -> None:
    """A GPU instance has the SMs of all of them, and its memory once; without a usable count it has
    no compute ceiling, but keeps its bandwidth."""
    own = [_instance(each, 69.5 * GIB, compute_instance=at) for at, each in enumerate(sms)]
    other = _instance(60, 69.5 * GIB, gpu_instance=4)
    _, share = _share(_device("NVIDIA H200", 143771 * MIB, *own, other))
    assert share.sm_count == count
    assert share.share_of_sms == (None if count is None else count / 132)
    assert bool(share.peak_flops_per_second) == (count is not None)
    assert share.share_of_memory == 0.5
    assert share.memory_bandwidth_bytes_per_second == 2400e9


@given(
    st.lists(
        st.builds(
            Instance,
            gpu_instance=st.integers(0, 2),
            compute_instance=st.integers(0, 7),
            profile=st.just(""),
            mig_uuid=st.just(""),
            sm_count=st.none() | st.integers(-5, 300),
            memory_bytes=st.none() | st.integers(-5, 2**60),
        ),
        max_size=6,
    ),
    st.none() | st.integers(-5, 2**60),
)
def test_a_share_is_never_more_than_the_whole(
    instances: list[Instance], memory_bytes: int | None
) -> None:
    """Whatever the driver says of its instances, a share's ceilings are within the GPU's."""
    device = Device(0, "GPU-1", "NVIDIA H200", memory_bytes=memory_bytes, instances=(*instances,))
    whole, share = _share(device, gpu_instance=1)
    for precision, peak in share.peak_flops_per_second.items():
        assert 0 < peak <= whole.peak_flops_per_second[precision]
    bandwidth = share.memory_bandwidth_bytes_per_second
    assert bandwidth is None or 0 < bandwidth <= 4.8e12
    assert share.share_of_sms is None or 0 < share.share_of_sms <= 1
    assert share.share_of_memory in [None, *(n / 8 for n in range(1, 9))]

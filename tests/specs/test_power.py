# SPDX-License-Identifier: Apache-2.0
"""The wide power coefficients hold what was published of real boards; a file replaces them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.errors import ConfigError
from exporter.model.reading import Device, Instance
from exporter.model.snapshot import Bounds, PowerModel
from exporter.specs import SpecBook, load_specs, share_ceilings
from exporter.specs.power import SHARES, SMALL_WATTS

FULL = """\
power:
  h100-sxm5-80gb:
    idle_watts: [70, 122]
    busy_watts: [20, 250.5]
    tensor_watts: [180, 700]
    vector_watts: 300
    dram_watts: [90, 200]
    clock_exponent: [1, 3]
    reference_clock_mhz: 1410
    error_watts: 35
    memory_margin_ratio: 0.08
"""
H100 = Device(
    0,
    "GPU-1",
    "NVIDIA H100 80GB HBM3",
    compute_capability=(9, 0),
    pci_device_id=0x2330,
    power_default_limit_watts=700.0,
)
CALIBRATED = PowerModel(
    idle_watts=Bounds(70, 122),
    busy_watts=Bounds(20, 250.5),
    tensor_watts=Bounds(180, 700),
    vector_watts=Bounds(300, 300),
    dram_watts=Bounds(90, 200),
    clock_exponent=Bounds(1, 3),
    reference_clock_hertz=1410e6,
    error_watts=35,
    memory_margin_ratio=0.08,
    calibrated=True,
)


@pytest.fixture(scope="module")
def book() -> SpecBook:
    return load_specs()


def write(folder: Path, text: str) -> Path:
    path = folder / "power.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def power_of(book: SpecBook, device: Device) -> PowerModel | None:
    ceilings = book.ceilings(device)
    return None if ceilings is None else ceilings.power


ANY = (0.0, 1.0)
NONE = (0.0, 0.0)


@dataclass(frozen=True)
class Sighting:
    """What somebody published of the power of one board, and what it did then."""

    name: str
    capability: tuple[int, int]
    limit_watts: float
    watts: float
    busy: float
    tensor: tuple[float, float]
    vector: tuple[float, float]
    dram: tuple[float, float]
    mhz: float | None
    source: str


PARKING = "arXiv 2605.23918, table of idle power"
SIGHTINGS = (
    Sighting("NVIDIA H100 80GB HBM3", (9, 0), 700, 71.8, 0, NONE, NONE, NONE, None, PARKING),
    Sighting("NVIDIA H100 80GB HBM3", (9, 0), 700, 121.7, 0, NONE, NONE, NONE, None, PARKING),
    Sighting("NVIDIA A100-SXM4-80GB", (8, 0), 400, 53.7, 0, NONE, NONE, NONE, None, PARKING),
    Sighting("NVIDIA A100-SXM4-80GB", (8, 0), 400, 80.0, 0, NONE, NONE, NONE, None, PARKING),
    Sighting("NVIDIA L40S", (8, 9), 350, 35.6, 0, NONE, NONE, NONE, None, PARKING),
    Sighting("NVIDIA L40S", (8, 9), 350, 102.1, 0, NONE, NONE, NONE, None, PARKING),
    Sighting("NVIDIA A40", (8, 6), 300, 30, 0, NONE, NONE, NONE, None, "OGKM issue 874"),
    Sighting("NVIDIA A40", (8, 6), 300, 110, 0, NONE, NONE, NONE, None, "OGKM issue 874"),
    Sighting("Tesla V100S-PCIE-32GB", (7, 0), 250, 25, 0, NONE, NONE, NONE, None, "samples 74"),
    Sighting("Tesla V100S-PCIE-32GB", (7, 0), 250, 50, 0, NONE, NONE, NONE, None, "samples 74"),
    Sighting("Tesla V100-SXM2-32GB", (7, 0), 300, 53, 0, NONE, NONE, NONE, None, "GLM-130B 32"),
    Sighting("Tesla V100-SXM2-32GB", (7, 0), 300, 66, 1, NONE, NONE, NONE, None, "GLM-130B 32"),
    # GEMMs at the limit; cuBLAS keeps the tensor pipe 90 to 95 % busy.
    Sighting(
        *("NVIDIA H100 80GB HBM3", (9, 0), 700, 700, 1, (0.85, 0.97), (0, 0.2), (0, 0.5), 1430),
        "ml-engineering: 794 TFLOP/s at the limit",
    ),
    Sighting(
        *("NVIDIA A100-SXM4-80GB", (8, 0), 400, 400, 1, (0.85, 0.97), (0, 0.2), (0, 0.5), 1250),
        "thonking.ai: 257 TFLOP/s at the limit",
    ),
    # Decoding with the memory as the bottleneck, and reads from L2 with nothing else.
    Sighting(
        *("NVIDIA H200", (9, 0), 700, 137, 1, (0, 0.3), (0, 0.3), (0.1, 1), 1980),
        "arXiv 2605.11999",
    ),
    Sighting(
        *("NVIDIA H200", (9, 0), 700, 300, 1, (0, 0.3), (0, 0.3), (0.6, 1), 1980),
        "arXiv 2605.11999",
    ),
    Sighting(
        *("NVIDIA H100 PCIe", (9, 0), 350, 350, 1, NONE, (0, 0.15), (0, 0.1), 1395),
        "chipsandcheese.com, 2 July 2023",
    ),
    Sighting(
        *("NVIDIA GeForce RTX 4090", (8, 9), 450, 347, 1, NONE, (0.2, 0.9), (0.1, 0.9), 2726),
        "hardwaretimes.com",
    ),
)


@pytest.mark.parametrize("seen", SIGHTINGS, ids=lambda seen: f"{seen.name} {seen.watts:g} W")
def test_the_wide_coefficients_hold_what_was_seen(book: SpecBook, seen: Sighting) -> None:
    """The least and the most that they allow for such a load lie on either side of it."""
    device = Device(
        0,
        "GPU-1",
        seen.name,
        compute_capability=seen.capability,
        power_default_limit_watts=seen.limit_watts,
    )
    power = power_of(book, device)
    assert power is not None
    ratio = 1.0 if seen.mhz is None else seen.mhz * 1e6 / power.reference_clock_hertz
    clocks = [ratio**power.clock_exponent.lower, ratio**power.clock_exponent.upper]
    least = (
        power.idle_watts.lower
        + power.busy_watts.lower * seen.busy
        + min(clocks) * power.tensor_watts.lower * seen.tensor[0]
        + min(clocks) * power.vector_watts.lower * seen.vector[0]
        + power.dram_watts.lower * seen.dram[0]
        - power.error_watts
    )
    most = (
        power.idle_watts.upper
        + power.busy_watts.upper * seen.busy
        + max(clocks) * power.tensor_watts.upper * seen.tensor[1]
        + max(clocks) * power.vector_watts.upper * seen.vector[1]
        + power.dram_watts.upper * seen.dram[1]
        + power.error_watts
    )
    assert least <= seen.watts <= most


def test_nearly_the_limit_is_more_than_other_units_draw() -> None:
    """At 95 % of its limit no board can be idle in all units that saturation is made of."""
    for key, shares in SHARES.items():
        error = 0.1 * (1 - shares.idle.lower)
        assert shares.idle.upper + shares.busy.upper + error < 0.95, key


def test_every_range_is_one() -> None:
    """Lower below upper, and a unit that works draws something."""
    for shares in SHARES.values():
        for bounds in (shares.idle, shares.busy, shares.tensor, shares.vector, shares.dram):
            assert 0 <= bounds.lower < bounds.upper
        assert min(shares.tensor.lower, shares.vector.lower, shares.dram.lower) > 0


def test_defaults_go_by_the_default_limit(book: SpecBook) -> None:
    """Where NVML does not report one, by the TDP of the row; at the clock of the tensor peak."""
    at_700 = power_of(book, H100)
    assert at_700 is not None
    assert not at_700.calibrated
    assert at_700.reference_clock_hertz == 1830e6
    assert at_700.memory_margin_ratio is None
    assert power_of(book, replace(H100, power_default_limit_watts=None)) == at_700
    at_350 = power_of(book, replace(H100, power_default_limit_watts=350.0))
    assert at_350 is not None
    assert at_350.tensor_watts.upper == at_700.tensor_watts.upper / 2
    assert at_350.error_watts == pytest.approx(at_700.error_watts / 2)
    for nonsense in (0.0, -5.0, float("nan"), float("inf")):
        assert power_of(book, replace(H100, power_default_limit_watts=nonsense)) == at_700


def test_a_derived_gpu_has_them_too(book: SpecBook) -> None:
    """By its class and architecture; without a limit or a clock it has none."""
    device = Device(
        0,
        "GPU-1",
        "NVIDIA GeForce RTX 4123",
        compute_capability=(8, 9),
        core_count=12800,
        clock_max_hertz={"sm": 3105e6},
        power_default_limit_watts=300.0,
    )
    power = power_of(book, device)
    assert power is not None
    assert power.tensor_watts == Bounds(0.1 * 300, 1.8 * 300)
    assert 2400e6 < power.reference_clock_hertz < 2600e6
    assert power_of(book, replace(device, power_default_limit_watts=None)) is None
    assert power_of(book, replace(device, clock_max_hertz={})) is None


@pytest.mark.parametrize(
    ("name", "capability", "limit", "tensor_upper"),
    [
        ("Tesla T4", (7, 5), 70.0, 5.0),
        ("NVIDIA L4", (8, 9), 72.0, 5.0),
        ("NVIDIA A16", (8, 6), 62.5, 5.0),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", (8, 9), 150.0, 5.0),
        ("NVIDIA RTX 6000 Ada Generation", (8, 9), 300.0, 3.0),
        ("NVIDIA A10", (8, 6), 150.0, 3.5),
        ("NVIDIA TITAN V", (7, 0), 250.0, 2.2),
        ("NVIDIA B200", (10, 0), 1000.0, 2.2),
    ],
)
def test_the_kind_of_board(
    book: SpecBook, name: str, capability: tuple[int, int], limit: float, tensor_upper: float
) -> None:
    """HBM, GeForce, other boards, and large chips with a low limit."""
    device = Device(
        0,
        "GPU-1",
        name,
        compute_capability=capability,
        power_default_limit_watts=limit,
        clock_max_hertz={"sm": 2100e6},
    )
    power = power_of(book, device)
    assert power is not None
    assert power.tensor_watts.upper == pytest.approx(tensor_upper * limit)
    assert (limit <= SMALL_WATTS or "Laptop" in name) == (tensor_upper == 5.0)


@pytest.mark.parametrize(
    "device",
    [
        Device(0, "GPU-1", "Tesla P100-SXM2-16GB", compute_capability=(6, 0)),
        Device(0, "GPU-1", "Orin (nvgpu)", compute_capability=(8, 7)),
        Device(0, "GPU-1", "NVIDIA GB10", compute_capability=(12, 1)),
        Device(0, "GPU-1", "NVIDIA CMP 170HX", compute_capability=(8, 0)),
        Device(0, "GPU-1", "NVIDIA H20", compute_capability=(9, 0)),
        Device(0, "GPU-1", "NVIDIA Unheard Of", compute_capability=(8, 9)),
        Device(0, "GPU-1", "NVIDIA A40-48Q", compute_capability=(8, 6)),
        replace(H100, virtualized=True),
        replace(H100, mig=True),
    ],
    ids=lambda device: device.name,
)
def test_a_gpu_without_a_model(book: SpecBook, device: Device) -> None:
    """Before Volta, modules, mining, slowed tensor cores, a class not known, vGPU and MIG."""
    described = replace(
        device, power_default_limit_watts=300.0, clock_max_hertz={"sm": 1980e6, "memory": 2e9}
    )
    assert power_of(book, described) is None


def test_a_laptop_without_a_limit_has_none(book: SpecBook) -> None:
    """Its maker chose it: the TDP of the row is only the upper end."""
    name = "NVIDIA GeForce RTX 4090 Laptop GPU"
    device = Device(0, "GPU-1", name, compute_capability=(8, 9))
    ceilings = book.ceilings(device)
    assert ceilings is not None
    assert ceilings.spec != "derived"
    assert ceilings.power is None


def test_an_instance_has_none(tmp_path: Path) -> None:
    """Not even of a calibrated GPU: the power is the board's."""
    book = load_specs(write(tmp_path, FULL))
    whole = book.ceilings(H100)
    assert whole is not None
    assert whole.power == CALIBRATED
    instances = (Instance(1, 0, "1g.10gb", "MIG-1", sm_count=16, memory_bytes=10 << 30),)
    assert share_ceilings(whole, replace(H100, instances=instances), 1).power is None
    assert power_of(book, replace(H100, mig=True, instances=instances)) is None


# The section of a spec file.


def test_calibrated_coefficients_take_the_place_of_the_wide_ones(tmp_path: Path) -> None:
    """Of this GPU model alone, whose row stays as it is."""
    bundled, book = load_specs(), load_specs(write(tmp_path, FULL))
    assert book.models == bundled.models
    assert power_of(book, H100) == CALIBRATED
    other = replace(H100, name="NVIDIA H200", pci_device_id=0x2335)
    assert power_of(book, other) == power_of(bundled, other)


def test_a_gpu_without_a_row_is_calibrated_by_its_name(tmp_path: Path) -> None:
    """With or without "NVIDIA ", and whatever its class."""
    name = "NVIDIA GeForce RTX 4123"
    book = load_specs(write(tmp_path, FULL.replace("h100-sxm5-80gb", name)))
    for each in (name, name.removeprefix("NVIDIA ")):
        device = Device(
            0,
            "GPU-1",
            each,
            compute_capability=(8, 9),
            core_count=12800,
            clock_max_hertz={"sm": 3105e6},
        )
        assert power_of(book, device) == CALIBRATED


def test_a_file_may_calibrate_its_own_gpu_model(tmp_path: Path) -> None:
    """Products and power in one file; optional keys may be left out, a number is a range."""
    own = """\
products:
  mine:
    product: Mine
    names: [NVIDIA Mine]
    architecture: Hopper
    compute_capability: '9.0'
    cores_per_sm: 128
"""
    short = FULL.replace("h100-sxm5-80gb", "mine").replace("    clock_exponent: [1, 3]\n", "")
    book = load_specs(write(tmp_path, own + short.replace("    memory_margin_ratio: 0.08\n", "")))
    power = power_of(book, Device(0, "GPU-1", "NVIDIA Mine"))
    assert power == replace(CALIBRATED, clock_exponent=Bounds(1.0, 3.5), memory_margin_ratio=None)


RANGE = "watts up to 100000, or two of them in order such as [60, 75], got"


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("[70, 122]", "[122, 70]", 3, f"idle_watts': expected {RANGE} [122, 70]"),
        ("[70, 122]", "-1", 3, f"idle_watts': expected {RANGE} -1"),
        ("[70, 122]", "[70]", 3, f"idle_watts': expected {RANGE} [70]"),
        ("[70, 122]", "[70, 80, 90]", 3, f"idle_watts': expected {RANGE} [70, 80, 90]"),
        ("[70, 122]", "[70, .inf]", 3, f"idle_watts': expected {RANGE} [70, inf]"),
        ("[70, 122]", "yes", 3, f"idle_watts': expected {RANGE} True"),
        ("[70, 122]", "{low: 1}", 3, f"idle_watts': expected {RANGE} {{'low': 1}}"),
        (
            "tensor_watts: [180, 700]",
            "tensor_watts: [0, 700]",
            5,
            "key 'power.h100-sxm5-80gb.tensor_watts': expected watts above 0 and up to 100000, "
            "or two of them in order such as [60, 75], got [0, 700]",
        ),
        (
            "clock_exponent: [1, 3]",
            "clock_exponent: 9",
            8,
            "expected a number up to 6, or two of them in order such as [1, 3], got 9",
        ),
        ("reference_clock_mhz: 1410", "reference_clock_mhz: 0", 9, "a clock from 1 to 1e5 MHz, g"),
        ("error_watts: 35", "error_watts: [1, 2]", 10, "expected watts up to 100000, got [1, 2]"),
        ("memory_margin_ratio: 0.08", "memory_margin_ratio: 8", 11, "a ratio from 0 to 1, got 8"),
        (
            "    error_watts: 35\n",
            "",
            2,
            "key 'power.h100-sxm5-80gb.error_watts': missing, expected watts up to 100000",
        ),
        (
            "error_watts: 35",
            "eror_watts: 35",
            10,
            "not known, expected one of idle_watts, busy_watts, tensor_watts, vector_watts, "
            "dram_watts, clock_exponent, reference_clock_mhz, error_watts, memory_margin_ratio",
        ),
        (
            "h100-sxm5-80gb:",
            "h100-sxm5:",
            2,
            "key 'power.h100-sxm5': expected the key of a GPU model, or a name as NVML reports it",
        ),
    ],
)
def test_a_mistake(tmp_path: Path, old: str, new: str, line: int, message: str) -> None:
    """The line, the key and what was expected."""
    assert old in FULL
    path = write(tmp_path, FULL.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        load_specs(path)
    (first, *_) = sorted(caught.value.problems, key=lambda problem: message not in problem)
    assert message in first
    assert first.startswith(f"{path}:{line}: key 'power.")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("power: 3", "key 'power': expected a mapping, got 3"),
        ("power: {t4: 3}", "key 'power.t4': expected a mapping of power coefficients, got 3"),
    ],
)
def test_no_mapping(tmp_path: Path, text: str, message: str) -> None:
    """One line."""
    with pytest.raises(ConfigError) as caught:
        load_specs(write(tmp_path, text))
    assert str(caught.value).endswith(f":1: {message}")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["idle_watts", "tensor_watts", "clock_exponent", "error_watts", "x"]), VALUES
)
def test_any_value_is_taken_or_refused_in_one_line(
    tmp_path: Path, field: str, value: object
) -> None:
    """Whatever stands in a field, the outcome is a power model or lines that name the key."""
    text = FULL.replace(f"    {field}:", f"    {field}: {json.dumps(value)} #", 1)
    text = text if field != "x" else f"{FULL}    x: {json.dumps(value)}\n"
    try:
        book = load_specs(write(tmp_path, text))
    except ConfigError as error:
        problems = error.problems
    else:
        problems = ()
        power = power_of(book, H100)
        assert power is not None
        assert power.idle_watts.lower <= power.idle_watts.upper
        assert power.tensor_watts.lower > 0
    assert all(problem.isprintable() for problem in problems)


def test_documented_example(tmp_path: Path) -> None:
    """The documented section loads."""
    page = (Path(__file__).parents[2] / "docs" / "roofline.md").read_text(encoding="utf-8")
    example = page.partition("```yaml\npower:")[2].partition("```")[0]
    book = load_specs(write(tmp_path, f"power:{example}"))
    device = Device(0, "GPU-1", "NVIDIA GeForce RTX 4090", compute_capability=(8, 9))
    power = power_of(book, device)
    assert power is not None
    assert power.tensor_watts == Bounds(122, 318)

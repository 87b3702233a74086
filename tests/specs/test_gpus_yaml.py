# SPDX-License-Identifier: Apache-2.0
"""What the bundled spec file promises: numbers that add up, or a reason why they do not."""

from __future__ import annotations

import itertools
import re

import pytest

from exporter.model.snapshot import CLOCK_UNITS
from exporter.specs import GpuModel, load_specs
from exporter.specs.derived import GEFORCE_RULES, RULES, SMALL_TURING_RULE, RateRule
from exporter.specs.gpu_model import pcie_bytes_per_second
from exporter.specs.load import BUNDLED
from exporter.specs.spec_file import read_spec_file
from tests.specs.bundle import SPEC_FILE, bundle

BOOK = load_specs()
MODELS = list(BOOK.models.values())
TOLERANCE = 0.015


def rows(table: str) -> list[str]:
    return re.split(r"\s*[|\n]\s*", table.strip())


def _cut(rule: RateRule, **rates: int) -> RateRule:
    return RateRule(rule.cores_per_sm, {**rule.flops_per_clock, **rates})


INTEGRATED = ("jetson-agx-orin-64gb", "jetson-thor-t5000", "gb10")
"""GPUs in one package with the CPU: not on a bus."""

HALF_TENSOR = {"tf32_tensor": 256, "fp16_tensor": 512, "bf16_tensor": 512}
# GPU models that are cut, or printed, in a way that does not follow from their compute capability.
OWN_RULES = {
    "a10g": _cut(RULES[8, 6], **HALF_TENSOR, int8_tensor=1024, int4_tensor=2048),
    "l40": _cut(RULES[8, 9], **HALF_TENSOR, fp8_tensor=1024, int8_tensor=1024, int4_tensor=2048),
    "l20": _cut(RULES[8, 9], **HALF_TENSOR, fp8_tensor=1024, int8_tensor=1024),
    "l40s": _cut(RULES[8, 9], int4_tensor=2048),
}

H20_CUT = "cut: no rate follows the rule of Hopper"
ROUNDED = "the datasheet rounds"
UNKNOWN_SMS = ("b100", "gb300")

# Every published peak of these that is more than 1.5 % off its formula, and why. Any other row
# names such a peak in its note.
EXPLAINED: dict[tuple[str, str], str] = {
    ("m40", "fp32"): ROUNDED,
    ("m40", "fp64"): ROUNDED,
    ("p4", "fp16"): ROUNDED,
    ("p40", "fp32"): ROUNDED,
    ("h100-pcie", "memory"): ROUNDED,
    ("h800-pcie", "memory"): ROUNDED,
    ("h800-sxm5", "fp64"): "cut to 1 TFLOPS",
    ("h800-sxm5", "fp64_tensor"): "cut to 1 TFLOPS",
    **{
        (key, name): H20_CUT
        for key in ("h20", "h20-3e")
        for name in ("fp64", "fp32", "tf32_tensor", "fp16_tensor", "bf16_tensor", "fp8_tensor")
    },
    ("h20", "int8_tensor"): H20_CUT,
    ("h20-3e", "int8_tensor"): H20_CUT,
}


def _rule(model: GpuModel) -> RateRule:
    if model.key in OWN_RULES:
        return OWN_RULES[model.key]
    capability = model.compute_capability
    if model.chip in ("TU116", "TU117"):
        return SMALL_TURING_RULE
    if "GeForce" in model.product and capability in GEFORCE_RULES:
        return GEFORCE_RULES[capability]
    return RULES.get(capability, RateRule(model.cores_per_sm, {}))


def _clock(model: GpuModel, precision: str) -> float | None:
    """Return the clock at which this peak holds; that of FP64 is the vector clock."""
    vector = model.peak_clock_hertz.get("vector")
    if CLOCK_UNITS[precision] == "tensor":
        return model.peak_clock_hertz.get("tensor", vector)
    return vector


def _off(model: GpuModel) -> set[str]:
    """Return what of this GPU model is more than the tolerance off its formula, or has none."""
    off = set()
    rates = _rule(model).flops_per_clock
    for name, peak in model.peak_flops_per_second.items():
        computed = (model.sm_count or 0) * rates.get(name, 0) * (_clock(model, name) or 0)
        if abs(computed / peak - 1) > TOLERANCE:
            off.add(name)
    memory_clock = model.peak_clock_hertz.get("memory")
    bandwidth = model.memory_bandwidth_bytes_per_second
    if memory_clock and bandwidth and model.memory_bus_width_bits:
        computed = memory_clock * 2 * model.memory_bus_width_bits / 8
        if abs(computed / bandwidth - 1) > TOLERANCE:
            off.add("memory")
    return off


@pytest.mark.parametrize(
    "model", [each for each in MODELS if each.key not in UNKNOWN_SMS], ids=lambda each: each.key
)
def test_peaks_follow_from_sms_and_clock(model: GpuModel) -> None:
    """Peak = SMs x FLOP/clk/SM x clock within 1.5 %, or the list above or the row says why not."""
    explained = {name for key, name in EXPLAINED if key == model.key}
    if explained:
        assert _off(model) == explained
        return
    words = re.findall(r"\w+", model.note or "")
    unexplained = sorted(_off(model) - set(words))
    assert not unexplained, (
        f"{model.key}: {', '.join(unexplained)} are not SMs x FLOP per clock and SM x clock (or "
        "the memory's clock x 2 x bus width / 8): correct them, or name each of them in the "
        "row's note, with the reason"
    )


def test_derived_precisions_are_exact() -> None:
    """A peak that is said to be computed is the formula's to four digits."""
    for model in MODELS:
        for name in model.derived_precisions:
            unit = "tensor" if "_tensor" in name else "vector"
            # The vector FP16 of H100 NVL and H200 NVL is twice an FP32 that is rounded to 60.
            clock = model.peak_clock_hertz.get(unit, model.peak_clock_hertz.get("vector"))
            assert model.sm_count is not None
            assert clock is not None
            computed = model.sm_count * _rule(model).flops_per_clock[name] * clock
            assert model.peak_flops_per_second[name] == pytest.approx(computed, rel=2e-3), (
                model.key,
                name,
            )


_DENSE_TFLOPS = """
h100-sxm5-80gb bf16_tensor 989.4          | h100-sxm5-80gb fp8_tensor 1978.9
h100-pcie fp32 51.2                       | h100-pcie bf16_tensor 756.5
h100-nvl bf16_tensor 835.5                | h200-nvl bf16_tensor 835.5
h20 bf16_tensor 148                       | h800-sxm5 fp64 1
a10 bf16_tensor 125                       | a10g bf16_tensor 70
l4 bf16_tensor 121                        | l40 bf16_tensor 181.05
l40s bf16_tensor 362.05                   | t4 fp16_tensor 65
p40 int8 47                               | p40 fp16 0.184
p100-sxm2 fp16 21.2                       | rtx-4090 bf16_tensor 165.2
rtx-4090 fp16_tensor_fp16acc 330.3        | rtx-4090 int8_tensor 660.6
rtx-a6000 bf16_tensor 154.8               | rtx-6000-ada bf16_tensor 364.2
quadro-rtx-6000 fp16_tensor 130.5         | quadro-rtx-6000-passive fp16_tensor 119.4
b300 int8_tensor 153.5                    | b200 fp4_tensor 9000
"""


@pytest.mark.parametrize("row", rows(_DENSE_TFLOPS))
def test_dense_peaks_that_tables_get_wrong(row: str) -> None:
    """Peaks are dense, of the right precision and of the right board."""
    key, precision, tflops = row.split()
    assert BOOK.models[key].peak_flops_per_second[precision] == float(tflops) * 1e12


# FP32 in TFLOP/s, bandwidth in GB/s.
_PRINTED = """
gtx-980-ti 6.06 336          | gtx-1080 8.87 320            | quadro-p6000 12.6 432
quadro-gv100 14.8 870        | t1000 2.5 160                | gtx-1660-super 5.0 336
rtx-2080-ti 13.4 616         | titan-rtx 16.3 672           | rtx-a2000 8.0 288
rtx-a4500 23.7 640           | rtx-a5500 34.1 768           | rtx-3050-8gb 9.1 224
rtx-3070 20.3 448            | rtx-3080-12gb 30.6 912       | rtx-3080-ti 34.1 912
rtx-2000-ada 12.0 256        | rtx-4000-sff-ada 19.2 280    | rtx-5000-ada 65.3 576
rtx-4070-super 35.5 504      | rtx-4080 48.7 717            | rtx-5060-ti 23.7 448
rtx-5080 56.3 960            | rtx-pro-6000-server 117 1597
"""


@pytest.mark.parametrize("row", rows(_PRINTED))
def test_peaks_that_the_vendor_prints(row: str) -> None:
    """FP32 and bandwidth are those of the product pages, in as many digits as they have."""
    key, fp32_tflops, gb_s = row.split()
    model = BOOK.models[key]
    assert model.peak_flops_per_second["fp32"] / 1e12 == pytest.approx(float(fp32_tflops), rel=7e-3)
    bandwidth = model.memory_bandwidth_bytes_per_second
    assert bandwidth is not None
    assert bandwidth / 1e9 == pytest.approx(float(gb_s), rel=3e-3)


_AI_TOPS = """
rtx-4060-ti fp8_tensor_fp16acc 353     | rtx-4070-super fp8_tensor_fp16acc 568
rtx-4080 fp8_tensor_fp16acc 780        | rtx-4070-laptop fp8_tensor_fp16acc 321
rtx-4080-laptop fp8_tensor_fp16acc 542 | rtx-5050 fp4_tensor 421
rtx-5060 fp4_tensor 614                | rtx-5060-ti fp4_tensor 759
rtx-5070 fp4_tensor 988                | rtx-5080 fp4_tensor 1801
rtx-pro-2000 fp4_tensor 545            | gb10 fp4_tensor 1000
"""


@pytest.mark.parametrize("row", rows(_AI_TOPS))
def test_dense_peaks_are_half_of_the_ai_tops(row: str) -> None:
    """NVIDIA advertises sparse FP8 with FP16 accumulation for Ada, and sparse FP4 since."""
    key, precision, ai_tops = row.split()
    sparse = 2 * BOOK.models[key].peak_flops_per_second[precision]
    assert sparse / 1e12 == pytest.approx(float(ai_tops), rel=3e-3)


def test_every_gpu_model_is_complete() -> None:
    """Each has names, sources that the head of the file spells out, a confidence and a bus."""
    used = set()
    for model in MODELS:
        assert model.names, model.key
        assert model.sources, model.key
        assert model.confidence, model.key
        assert "fp32" in model.peak_flops_per_second, model.key
        on_bus = pcie_bytes_per_second(model.pcie_generation, model.pcie_lanes)
        assert (on_bus is None) == (model.key in INTEGRATED), model.key
        used |= {*model.sources, *model.achievable_sources}
    assert used == set(BOOK.sources)


def test_only_boards_with_the_same_chip_share_a_pci_id() -> None:
    """A2 and A16 do, whose names differ; the id of another chip is a mistake."""
    owners: dict[int, list[GpuModel]] = {}
    for model in MODELS:
        for pci_id in model.pci_ids:
            owners.setdefault(pci_id, []).append(model)
    assert [model.key for model in owners[0x25B6]] == ["a2", "a16"]
    for pci_id, models in owners.items():
        assert len({(model.architecture, model.chip) for model in models}) == 1, f"{pci_id:04X}"


def test_file_is_grouped_by_architecture() -> None:
    """Each architecture is one group, so that a person finds a GPU model."""
    groups = [name for name, _ in itertools.groupby(MODELS, lambda model: model.architecture)]
    assert len(groups) == len(set(groups)), groups


def test_the_daemon_loads_what_the_file_has() -> None:
    """`make docs` writes it; nothing is lost on the way."""
    assert BUNDLED.read_text(encoding="utf-8") == bundle()
    read = read_spec_file(SPEC_FILE)
    assert BOOK.models == read.models
    assert list(BOOK.models) == list(read.models)
    assert BOOK.sources == read.sources

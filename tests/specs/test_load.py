# SPDX-License-Identifier: Apache-2.0
"""What ``--specs FILE`` promises: entries add or replace, and a bad file is one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.errors import ConfigError
from exporter.model.reading import Device
from exporter.specs import GpuModel, SpecBook, load_specs

GOOD = """\
products:
  h100:
    product: My H100
    names: [NVIDIA H100 Custom]
    pci_ids: ['23FF']
    architecture: Hopper
    compute_capability: '9.0'
    sm_count: 100
    cores_per_sm: 128
    clock_mhz:
      vector: 1980
      tensor: 1830
    peak_tflops: {fp32: 50.7, bf16_tensor: 749.5}
    memory_bandwidth_gb_s: 3350
    pcie_generation: 5
    pcie_lanes: 16
"""


def _write(folder: Path, text: str) -> Path:
    path = folder / "specs.yml"
    path.write_text(text, encoding="utf-8")
    return path


def _found(book: SpecBook, name: str, pci_id: int | None = None) -> GpuModel:
    model = book.find(Device(0, "GPU-1", name, pci_device_id=pci_id))
    assert model is not None
    return model


def test_added_gpu_model(tmp_path: Path) -> None:
    """An entry with a new key is found by its name and PCI id, beside all bundled ones."""
    book = load_specs(_write(tmp_path, GOOD))
    assert set(book.models) == {*load_specs().models, "h100"}
    for model in (_found(book, "NVIDIA H100 Custom"), _found(book, "something else", 0x23FF)):
        assert model.key == "h100"
        assert model.peak_flops_per_second["bf16_tensor"] == 749.5e12
        assert model.peak_clock_hertz == {"vector": 1980e6, "tensor": 1830e6}


def test_replaced_gpu_model(tmp_path: Path) -> None:
    """An entry with a bundled key replaces that one whole: what it leaves out is absent."""
    text = GOOD.replace("  h100:", "  h100-sxm5-80gb:").replace("23FF", "2330")
    book = load_specs(_write(tmp_path, text))
    assert set(book.models) == set(load_specs().models)
    device = Device(0, "GPU-1", "NVIDIA H100 80GB HBM3", pci_device_id=0x2330)
    ceilings = book.ceilings(device)
    assert ceilings is not None
    assert set(ceilings.peak_flops_per_second) == {"fp32", "bf16_tensor"}
    assert "nvlink" not in ceilings.link_bandwidth_bytes_per_second


def test_taken_name_and_pci_id(tmp_path: Path) -> None:
    """Names and PCI ids in the file are taken from the bundled GPU models that had them."""
    text = GOOD.replace("NVIDIA H100 Custom", "NVIDIA H200").replace("23FF", "2330")
    book = load_specs(_write(tmp_path, text))
    assert book.models["h200-sxm"].names == []
    assert book.models["h100-sxm5-80gb"].pci_ids == ()
    assert _found(book, "H200").key == "h100"
    assert _found(book, "NVIDIA H100 80GB HBM3", 0x2330).key == "h100"


def test_replacing_a2_leaves_the_a16_its_pci_id(tmp_path: Path) -> None:
    """A PCI id that the replaced entry shared stays shared."""
    text = (
        GOOD.replace("  h100:", "  a2:")
        .replace("NVIDIA H100 Custom", "NVIDIA A2")
        .replace("23FF", "25b6")
        .replace("'9.0'", "'8.6'")
    )
    book = load_specs(_write(tmp_path, text))
    for name, key in (("NVIDIA A2", "a2"), ("NVIDIA A16", "a16")):
        assert _found(book, name, 0x25B6).key == key


# Which line of GOOD is another one, and what is said of that line. `...` is "key 'products.h100".
_BAD_LINES = """
12 | tensor: abc      | ....clock_mhz.tensor': expected a positive number, got 'abc'
12 | tensor: 0        | ....clock_mhz.tensor': expected a positive number, got 0
12 | tensor: .nan     | expected a positive number, got nan
12 | tensor: 1.0e+300 | expected a positive number up to 1e9, got 1e+300
12 | sm: 1830         | ....clock_mhz.sm': not known, expected vector, tensor or memory
13 | peak_tflops: 12  | ....peak_tflops': expected a mapping of precision to TFLOPS, got 12
8  | sm_count: 100.5  | ....sm_count': expected a positive whole number, got 100.5
5  | pci_ids: [2330]  | pci_ids.0': expected a quoted PCI device id of four hexadecimal digits
5  | pci_ids: 23FF    | ....pci_ids': expected a list of quoted PCI device ids such as ['20B0']
7  | compute_capability: 9.0 | expected a quoted compute capability such as '9.0', got 9.0
4  | names: []        | expected a list of names as NVML reports
15 | pcie_generation: 9 | expected a PCIe generation from 1 to 6, got 9
16 | achievable_ratio: {fp32: 1.5} | achievable_ratio.fp32': expected a ratio above 0 and at most 1
16 | achievable_ratio: {fp64: 0.5} | expected only where peak_tflops.fp64 is given, and it is not
14 | achievable_ratio: {memory: 0.9} | expected only where memory_bandwidth_gb_s is given
16 | derived: [fp64]  | ....derived.0': expected a precision that peak_tflops has, got 'fp64'
16 | confidence: D    | expected A, B or C, got 'D'
16 | sm_count: 3      | key 'sm_count' again, expected it once
2  | H 100:           | key 'products.H 100': expected lower-case letters
1  | gpus:            | key 'products' is missing, expected a mapping of them
1  | {products: {other: 3}} | key 'products.other': expected a mapping that describes a GPU
1  | {products: {}, version: 1} | key 'version': not known, expected products or sources
1  | {products: {}, sources: {A: 1}} | key 'sources.A': expected text, got 1
"""


@pytest.mark.parametrize("row", _BAD_LINES.strip().splitlines())
def test_bad_line(tmp_path: Path, row: str) -> None:
    """One line that names the file, the line and the key, and says what was expected."""
    number, new, message = (part.strip() for part in row.split("|"))
    lines = GOOD.splitlines()
    old = lines[int(number) - 1]
    lines[int(number) - 1] = old[: len(old) - len(old.lstrip())] + new
    path = _write(tmp_path, "\n".join(lines[:1] if new.startswith("{") else lines))
    with pytest.raises(ConfigError) as caught:
        load_specs(path)
    text = str(caught.value)
    assert text.startswith(f"{path}:{number}: ")
    assert message.replace("...", "key 'products.h100", 1) in text
    assert "\n" not in text


@pytest.mark.parametrize("text", ["", "3", "[]", "products: 3", "products:"])
def test_file_without_gpu_models(tmp_path: Path, text: str) -> None:
    """A file that is something else is refused at its first line."""
    path = _write(tmp_path, text)
    with pytest.raises(ConfigError, match=r"specs\.yml:1: key 'products'.* expected a mapping"):
        load_specs(path)


def test_missing_file(tmp_path: Path) -> None:
    """A file that is not there is refused by its name."""
    with pytest.raises(ConfigError, match=r"none\.yml: cannot be read \(No such file"):
        load_specs(tmp_path / "none.yml")


def test_name_of_two_gpu_models(tmp_path: Path) -> None:
    """Two entries that NVML cannot tell apart may share no name, with or without "NVIDIA "."""
    second = GOOD.removeprefix("products:\n").replace("  h100:", "  other:")
    path = _write(tmp_path, GOOD + second.replace("NVIDIA H100 Custom", "H100 Custom"))
    with pytest.raises(ConfigError) as caught:
        load_specs(path)
    assert str(caught.value) == (
        f"{path}:19: key 'products.other.names.0': expected a name of one GPU model only, "
        "'H100 Custom' is also that of 'h100'"
    )
    book = load_specs(_write(tmp_path, GOOD + second.replace("H100 Custom", "H100 Other")))
    assert _found(book, "NVIDIA H100 Other", 0x23FF).key == "other"


def test_shared_name_stays_with_the_others(tmp_path: Path) -> None:
    """An entry that replaces one of several rows of a name leaves the name to the rest."""
    text = GOOD.replace("  h100:", "  quadro-rtx-6000:")
    book = load_specs(_write(tmp_path, text.replace("NVIDIA H100 Custom", "Quadro RTX 6000")))
    assert book.models["quadro-rtx-6000"].sm_count == 100
    assert book.models["quadro-rtx-6000-passive"].names == ["Quadro RTX 6000"]


def test_documented_example(tmp_path: Path) -> None:
    """The documented file loads, and a wrong clock in it gives the message shown there."""
    page = (Path(__file__).parents[2] / "docs" / "roofline.md").read_text(encoding="utf-8")
    example = page.partition("```yaml\n")[2].partition("```")[0]
    model = load_specs(_write(tmp_path, example)).models["h100-capped"]
    assert model.peak_clock_hertz["tensor"] == 1590e6
    with pytest.raises(ConfigError) as caught:
        load_specs(_write(tmp_path, example.replace("tensor: 1590", "tensor: abc")))
    assert str(caught.value).removeprefix(f"{tmp_path}/") in page


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)
FIELDS = ["names", "pci_ids", "clock_mhz", "peak_tflops", "sm_count", "memory_gb", "derived", "x"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(FIELDS), VALUES)
def test_any_value_is_taken_or_refused_in_one_line(
    tmp_path: Path, field: str, value: object
) -> None:
    """Whatever stands in a field, the outcome is a GPU model or one line that names the key."""
    lines = [line for line in GOOD.splitlines() if not line.startswith(f"    {field}:")]
    if field == "clock_mhz":
        lines = [line for line in lines if not line.startswith("      ")]
    entry = yaml.safe_dump({field: value}, default_flow_style=True, width=10**6).strip()
    path = _write(tmp_path, "\n".join([*lines, f"    {entry[1:-1]}", ""]))
    try:
        load_specs(path)
    except ConfigError as error:
        message = str(error)
        assert message.startswith(f"{path}:")
        assert message.isprintable()


MANY_MISTAKES = """\
nonsenses: {}
products:
  One:
    product: One
  two:
    product: Two
    names: [Two, Two B]
    architecture: Ada
    compute_capability: 8.9
    cores_per_sm: many
    pcie_generation: 7
    nonsense: 1
    peak_tflops: {fp32: -1, fp3: 2}
  three: 5
  four:
    product: Four
    names: [Four]
    architecture: Ada
    compute_capability: '8.9'
    cores_per_sm: 128
    derived: [fp32, fp64]
    achievable_ratio: {memory: 0.9}
  five:
    product: Five
    names: [Four]
    architecture: Ada
    compute_capability: '8.9'
    cores_per_sm: 128
sources: {A: 1, B: 2}
"""


def test_every_mistake_of_a_file_is_named(tmp_path: Path) -> None:
    """A line for each key that is wrong, in the order of the file."""
    path = _write(tmp_path, MANY_MISTAKES.replace("derived: [fp32, fp64]", "derived: [fp3]"))
    with pytest.raises(ConfigError) as caught:
        load_specs(path)
    problems = caught.value.problems
    places = [problem.removeprefix(f"{path}:").split("'")[:2] for problem in problems]
    assert [(int(place.split(":")[0]), key) for place, key in places] == [
        (1, "nonsenses"),
        *((3, f"products.One{rest}") for rest in ("",)),
        *(
            (3, f"products.One.{field}")
            for field in ("names", "architecture", "compute_capability", "cores_per_sm")
        ),
        (9, "products.two.compute_capability"),
        (10, "products.two.cores_per_sm"),
        (11, "products.two.pcie_generation"),
        (12, "products.two.nonsense"),
        (13, "products.two.peak_tflops.fp32"),
        (13, "products.two.peak_tflops.fp3"),
        (14, "products.three"),
        (21, "products.four.derived.0"),
        (29, "sources.A"),
        (29, "sources.B"),
    ]
    assert all("expected" in problem and "\n" not in problem for problem in problems)
    assert str(caught.value) == f"{problems[0]} (and {len(problems) - 1} more problems)"

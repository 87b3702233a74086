# SPDX-License-Identifier: Apache-2.0
"""``specs``: every GPU model's ceilings, and for one where each number comes from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from exporter.cli.specs import find
from exporter.cli.specs.sheet import listing, sheet
from exporter.cli.terminal.screen import Screen, cells
from exporter.errors import ConfigError
from exporter.exposition.pages import Pages
from exporter.exposition.render import RenderOptions
from exporter.specs import GpuModel, SpecBook, load_specs
from exporter.specs.book import bare_name
from exporter.web.app import create_app
from exporter.web.store import Store
from tests.cli.outcomes import Outcome

OWN = """
sources: {LAB: our own bench}
products:
  our-board:
    product: Our Board
    names: [NVIDIA Our Board]
    architecture: Hopper
    compute_capability: '9.0'
    cores_per_sm: 128
    peak_tflops: {fp32: 10, bf16_tensor: 200}
    derived: [fp32]
    memory_bandwidth_gb_s: 2000
    achievable_ratio: {bf16_tensor: 0.5, memory: 0.8}
    achievable_sources: [LAB]
    sources: [LAB, a letter]
    confidence: C
    note: Only for us.
"""


@pytest.fixture(scope="module")
def book() -> SpecBook:
    return load_specs()


@pytest.fixture(scope="module")
def few(book: SpecBook) -> SpecBook:
    """Some rows, so that new rows of the file change no answer."""
    h100 = ("h100-sxm5-80gb", "h100-sxm5-94gb", "h100-nvl")
    a800 = ("a800-sxm4-80gb", "a800-pcie-80gb", "a800-40gb-active")
    return SpecBook({key: book.models[key] for key in (*h100, "t4", *a800)}, book.sources)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.yaml"
    path.write_text(OWN)
    return path


def lines_of(model: GpuModel, book: SpecBook, columns: int = 160) -> list[str]:
    return list(sheet(model, book, Screen(columns)))


def words_of(lines: list[str], start: str) -> list[str]:
    """The words of the one line that starts so."""
    (line,) = [line for line in lines if line.split()[:1] == [start]]
    return line.split()


# Which GPU model is meant.


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("h100-sxm5-80gb", "h100-sxm5-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm5-80gb"),
        ("NVIDIA H100", "h100-sxm5-94gb"),
        ("H100 sxm5 80", "h100-sxm5-80gb"),
        ("h100 NVL", "h100-nvl"),
        ("Tesla T4", "t4"),
    ],
)
def test_a_gpu_model_is_found(name: str, key: str, few: SpecBook) -> None:
    """By key, by the name that NVML reports, and by a part that only one has."""
    assert find(few, name).key == key


def test_every_gpu_model_is_found_by_its_own_key_and_names(book: SpecBook) -> None:
    """An exact name is never taken for a part of others; if several have it, their keys are named.

    Some laptop GPUs have the name of a desktop one.
    """
    of_name: dict[str, list[str]] = {}
    for model in book.models.values():
        assert find(book, model.key) is model
        for name in dict.fromkeys(map(bare_name, model.names)):
            of_name.setdefault(name, []).append(model.key)
    for name, keys in of_name.items():
        if len(keys) == 1:
            assert find(book, name).key == keys[0]
        else:
            with pytest.raises(ConfigError, match=f"expected one GPU model, may be {keys[0]}, "):
                find(book, f"NVIDIA {name}")


def test_an_ambiguous_name_lists_the_candidates(outcome: Outcome, few: SpecBook) -> None:
    """One line, exit code 2; of many only the first."""
    with pytest.raises(ConfigError) as caught:
        find(few, "a800")
    assert str(caught.value) == (
        "specs: 'a800': expected one GPU model, may be a800-sxm4-80gb, a800-pcie-80gb, "
        "a800-40gb-active"
    )

    code, out, err = outcome("specs", "0")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("roofline-exporter: specs: '0': expected one GPU model, may be ")
    assert err.endswith(" more\n")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("h10-sxm5-80gb", "no GPU model has this key or name, did you mean h100-sxm5-80gb?"),
        ("", "no GPU model has this key or name"),
        ("x" * 5000, "no GPU model has this key or name"),
    ],
)
def test_an_unknown_name_is_one_line(name: str, message: str, few: SpecBook) -> None:
    """With the nearest key where there is one."""
    with pytest.raises(ConfigError) as caught:
        find(few, name)

    assert str(caught.value).startswith("specs: '")
    assert str(caught.value).endswith(message)
    assert len(str(caught.value)) < 250


# What is shown.


def test_all_gpu_models(outcome: Outcome, book: SpecBook) -> None:
    """One line for each, in the order of the file."""
    code, out, err = outcome("specs")
    lines = out.splitlines()

    assert (code, err) == (0, "")
    assert lines[0].split("  ")[0] == "KEY"
    keys = [line.split()[0] for line in lines[1 : 1 + len(book.models)]]
    assert keys == list(book.models)
    h100 = words_of(lines, "h100-sxm5-80gb")
    assert " ".join(h100[1:]) == "H100 SXM5 80GB Hopper 66.9 989.4 1978.9 3350 295.3 700"
    assert " ".join(words_of(lines, "t4")[1:]) == "Tesla T4 Turing 8.1 65 320 203.1 70"
    assert words_of(lines, "m40")[-3:] == ["288", "24.31", "250"]  # ridge of FP32: no tensor cores


@pytest.mark.parametrize("columns", [1, 20, 60, 80, 100, 160])
def test_nothing_is_wider_than_the_terminal(columns: int, book: SpecBook) -> None:
    """The list and every sheet, at every width."""
    models = list(book.models.values())
    for line in listing(models, Screen(columns)):
        assert cells(line) <= columns, line
    for model in models:
        for line in lines_of(model, book, columns):
            assert cells(line) <= columns, line


def test_one_gpu_model(book: SpecBook) -> None:
    """Peaks, ridge points (peak over bandwidth), what kernels reach, clocks, links, origin."""
    model = book.models["h100-sxm5-80gb"]
    lines = lines_of(model, book)

    assert lines[0] == "h100-sxm5-80gb: H100 SXM5 80GB"
    for precision, peak in model.peak_flops_per_second.items():
        words = words_of(lines, precision)
        assert float(words[1]) * 1e12 == pytest.approx(peak)
        assert float(words[2]) == pytest.approx(peak / 3350e9, rel=1e-3)
        assert words[-1] == "published"
    assert words_of(lines, "bf16_tensor")[3:7] == ["80.3", "%", "794.5", "264.7"]
    text = "\n".join(lines)
    for fact in (
        "NVIDIA H100 80GB HBM3",
        "Hopper GH100, compute capability 9.0",
        "132, 16896 cores",
        "80 GB HBM3, 5120 bits",
        "3350 GB/s, 89.6 % of it achievable",
        "1830 MHz",
        "450 GB/s per direction",
        "generation 5, 16 lanes",
        "700 W",
        "A: ids from the driver",
        "1979 is sparse FP16 or dense FP8",
        "OGKM: NVIDIA/open-gpu-kernel-modules",
        "DEV: measured on an H100 SXM",
    ):
        assert fact in text, fact


def test_what_was_computed_is_marked(book: SpecBook) -> None:
    """A number that nobody published is not shown as if somebody had."""
    lines = lines_of(book.models["h100-nvl"], book)

    assert lines[0] == "h100-nvl: H100 NVL 94GB (per GPU)"
    assert " ".join(words_of(lines, "fp16")[-3:]) == "SMs x clock"
    assert words_of(lines, "fp32")[-1] == "published"


def test_what_is_unknown_is_not_there(book: SpecBook) -> None:
    """No row and no column of dashes."""
    text = "\n".join(lines_of(book.models["m40"], book))

    assert "NVLink" not in text
    assert "ACHIEVABLE" not in text
    assert "None" not in text


def test_own_specs_are_shown(own: Path, outcome: Outcome) -> None:
    """--specs FILE holds here as it does for the daemon."""
    code, out, _ = outcome("specs", "--specs", str(own), "our board")
    lines = out.splitlines()

    assert code == 0
    bf16 = " ".join(words_of(lines, "bf16_tensor"))
    assert bf16 == "bf16_tensor 200 100 50.0 % 100 62.5 published"
    assert " ".join(words_of(lines, "fp32")) == "fp32 10 5 SMs x clock"
    assert "LAB: our own bench" in out
    assert "a letter" in out
    assert "our-board" in outcome("specs", "--specs", str(own))[1]
    assert outcome("specs", "our board")[0] == 2


def test_hostile_text_is_harmless(own: Path, outcome: Outcome) -> None:
    """Text of a spec file cannot move the cursor."""
    own.write_text(OWN.replace("Our Board\n", '"\\e[2Jx"\n').replace("Only for us.", '"\\u202ex"'))
    for words in ((), ("our-board",)):
        out = outcome("specs", f"--specs={own}", *words)[1]
        assert "\x1b" not in out
        assert "\u202e" not in out
        assert "\\x1b[2Jx" in out


# JSON.


def api() -> dict[str, Any]:
    app = create_app(
        store=Store(),
        pages=Pages(RenderOptions()),
        specs=load_specs,
        poll_interval_seconds=lambda: 1.0,
    )
    with TestClient(app) as client:
        return client.get("/api/v1/specs").json()  # type: ignore[no-any-return]


def test_json_is_the_answer_of_the_api(outcome: Outcome) -> None:
    """One schema for both; one GPU model is a list of one."""
    code, out, err = outcome("specs", "--format", "json")
    assert (code, err) == (0, "")
    answer = json.loads(out)
    assert answer == api()

    one = json.loads(outcome("specs", "--format=json", "h100-sxm5-80gb")[1])
    (model,) = one["products"]
    assert model in answer["products"]
    (bf16,) = [each for each in model["ceilings"] if each["precision"] == "bf16_tensor"]
    assert bf16["spec_ridge_flops_per_byte"] == pytest.approx(989.4e12 / 3350e9)
    assert bf16["achievable_flops_per_second"] == pytest.approx(0.803 * 989.4e12)

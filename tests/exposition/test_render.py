# SPDX-License-Identifier: Apache-2.0
"""Pages say exactly what the snapshot says, by the parsers of the client library."""

from __future__ import annotations

import gc
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

import exporter
from exporter.exposition.catalogue import CATALOGUE
from exporter.exposition.family import Level
from exporter.exposition.formats import END, Format
from exporter.exposition.parts import Node
from exporter.exposition.processes import ProcessRows, dropped_series
from exporter.exposition.render import Renderer, RenderOptions, page
from exporter.model.reading import Process
from exporter.model.snapshot import Bounds, Gpu, Rank, Snapshot
from exporter.model.training import TRAINING_PHASES
from tests import snapshots
from tests.conftest import require_tool
from tests.derive.readings import known
from tests.rows import Row, expected_rows, parsed_rows

GOLDEN = Path(__file__).parents[1] / "golden" / "metrics.txt"
WITH_PROCESSES = RenderOptions(processes=ProcessRows(memory=True, utilization=True))

Parser = Callable[[str], Iterable[Metric]]
PARSERS: dict[Format, Parser] = {
    "text-0.0.4": parse_text,
    "text-1.0.0": parse_text,
    "openmetrics-1.0.0": parse_openmetrics,
}

FORMATS = tuple(END)
EXAMPLES = pytest.mark.parametrize("name", snapshots.EXAMPLES)


def rendered(
    snapshot: Snapshot | None,
    form: Format = "text-0.0.4",
    options: RenderOptions = RenderOptions(),  # noqa: B008 (frozen)
) -> str:
    return page(Renderer(options).blocks(Node(snapshot)), form).decode()


def read_back(text: str, form: Format) -> list[Row]:
    return parsed_rows(list(PARSERS[form](text)))


def series_of_gpus(snapshot: Snapshot, level: Level) -> list[str]:
    text = rendered(snapshot, options=RenderOptions(level=level))
    return [line for line in text.splitlines() if "uuid=" in line and not line.startswith("#")]


@EXAMPLES
@pytest.mark.parametrize("form", FORMATS)
def test_parsers_read_back_the_snapshot(name: str, form: Format) -> None:
    """The client library reads exactly the rows of the snapshot from every format."""
    snapshot = snapshots.EXAMPLES[name]
    options = WITH_PROCESSES
    expected = expected_rows(Node(snapshot), options.processes)
    assert read_back(rendered(snapshot, form, options), form) == expected
    assert len(expected) > 1


@EXAMPLES
def test_metadata_is_that_of_the_catalogue(name: str) -> None:
    """Type, unit and help that OpenMetrics parsers see are the catalogue's."""
    families = {family.base_name: family for family in CATALOGUE.values()}
    text = rendered(snapshots.EXAMPLES[name], "openmetrics-1.0.0")
    for metric in PARSERS["openmetrics-1.0.0"](text):
        family = families[metric.name]
        assert (metric.type, metric.unit) == (family.kind, family.unit)
        assert metric.documentation == family.help


def test_openmetrics_says_since_when_a_counter_counts_if_asked() -> None:
    """Of GPUs, instances, ranks and the exporter; not of what the driver counts."""
    snapshot = snapshots.EXAMPLES["mixed"]
    gpus = [
        replace(
            gpu,
            shares=tuple(
                replace(share, totals=replace(share.totals, since_timestamp_seconds=7.5))
                for share in gpu.shares
            ),
        )
        for gpu in snapshot.gpus
    ]
    rank = replace(snapshot.ranks[0], since_timestamp_seconds=9.0)
    snapshot = replace(snapshot, gpus=tuple(gpus), ranks=(rank, *snapshot.ranks[1:]))
    options = RenderOptions(created=True, started_unix_seconds=3.0)
    text = rendered(snapshot, "openmetrics-1.0.0", options)
    found = list(PARSERS["openmetrics-1.0.0"](text))
    expected = {"share": 7.5, "rank": 9.0, "node": 3.0}
    seen = set()
    for metric in found:
        family = CATALOGUE.get(f"{metric.name}_total")
        created = [one for one in metric.samples if one.name.endswith("_created")]
        counted = [one.labels for one in metric.samples if one.name.endswith("_total")]
        if family is None or family.scope not in expected:
            assert created == [], metric.name
            continue
        seen.add(family.scope)
        dated = [one for one in counted if one.get("training_job") in (None, rank.job)]
        assert [one.labels for one in created] == dated
        assert {one.value for one in created} <= {expected[family.scope]}
    assert seen == expected.keys()
    for form in ("text-0.0.4", "text-1.0.0"):
        assert rendered(snapshot, form, options) == rendered(snapshot, form)
    assert "_created" not in rendered(snapshot, "openmetrics-1.0.0")


@EXAMPLES
def test_promtool_accepts_the_page(name: str) -> None:
    """promtool check metrics finds nothing to say."""
    promtool = require_tool("promtool")
    text = rendered(snapshots.EXAMPLES[name], options=WITH_PROCESSES)
    checked = subprocess.run(
        [promtool, "check", "metrics"],
        input=text.encode(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (checked.returncode, checked.stderr.decode(), checked.stdout.decode()) == (0, "", "")


def test_golden_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page of one snapshot is, byte for byte, the one that was reviewed.

    UPDATE_GOLDEN=1 writes it anew.
    """
    monkeypatch.setattr(exporter, "__version__", "1.2.3")
    monkeypatch.setattr(platform, "python_version", lambda: "3.10.0")
    text = rendered(snapshots.EXAMPLES["mixed"])
    if os.environ.get("UPDATE_GOLDEN") == "1":
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize("example", [snapshots.h100_idle, snapshots.h100_training])
def test_series_of_a_gpu(example: Callable[[], Gpu]) -> None:
    """An H100 without MIG has at most 200 series, 100 at level core, those of the node apart."""
    snapshot = snapshots.snapshot(example())
    assert 130 < len(series_of_gpus(snapshot, "full")) <= 200
    assert 60 < len(series_of_gpus(snapshot, "core")) <= 100


@pytest.mark.parametrize("measured", [True, False])
@pytest.mark.parametrize("example", [snapshots.h100_idle, snapshots.h100_training])
def test_series_of_a_training_rank(example: Callable[[], Gpu], *, measured: bool) -> None:
    """An H100 with one rank has at most 235 series; at level core the rank adds at most 21.

    The rank says all that a job can say. Its stall is either measured or bounded, but what the
    bounds of a job before it added up to stays.
    """
    gpu = example()
    share = gpu.shares[0]
    bounds = {} if measured else {"client": Bounds(0.1, 0.2)}
    seconds = {"client": 12.5}
    totals = replace(
        share.totals, data_stall_lower_seconds=seconds, data_stall_upper_seconds=seconds
    )
    gpu = replace(gpu, shares=(replace(share, data_stall=bounds, totals=totals),))
    rank = snapshots.rank_on_gpu()
    rank = replace(
        rank,
        totals=replace(
            rank.totals,
            phase_seconds={**dict.fromkeys(TRAINING_PHASES, 0.0), "data": 155.0},
            phase_gpu_idle_seconds=rank.totals.phase_gpu_idle_seconds if measured else {},
        ),
    )
    snapshot = snapshots.with_training(snapshots.snapshot(gpu), rank)
    full, core = series_of_gpus(snapshot, "full"), series_of_gpus(snapshot, "core")
    of_full, of_core = (
        [line for line in lines if "training_job=" in line or "data_stall" in line]
        for lines in (full, core)
    )
    assert 200 < len(full) <= 235
    assert 20 < len(of_full) <= 35
    assert len(core) <= 121
    assert 10 < len(of_core) <= 21


def test_every_family_has_an_example() -> None:
    """A metric without one would be in none of the tests above."""
    memory = WITH_PROCESSES.processes
    found = {
        row[0]
        for example in snapshots.EXAMPLES.values()
        for row in expected_rows(
            Node(example, dropped=dropped_series(example, memory), daemon=snapshots.DAEMON), memory
        )
    }
    missing = [name for name in CATALOGUE if name not in found]
    assert not missing, f"in no snapshot of tests/snapshots.py: {', '.join(missing)}"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_values_that_are_no_number_are_absent(value: float) -> None:
    """NaN and infinity are never published, also where a number stood before."""
    gpu = snapshots.h100_training()
    clocks = {"sm": value, "memory": 1.0}
    broken = replace(gpu, vitals=replace(known(gpu.vitals), power_watts=value, clock_hertz=clocks))
    renderer = Renderer(RenderOptions())
    before, after, again = (
        page(renderer.blocks(Node(snapshots.snapshot(each))), "text-0.0.4").decode()
        for each in (gpu, broken, gpu)
    )
    assert "gpu_power_watts{" in before
    assert "gpu_power_watts" not in after
    assert 'clock="sm"' in before.partition("TYPE gpu_clock_hertz ")[2].partition("#")[0]
    assert 'clock="sm"' not in after.partition("TYPE gpu_clock_hertz ")[2].partition("#")[0]
    assert again == before


def test_integers_are_exact() -> None:
    """Byte counts above 2**53 are written digit by digit."""
    gpu = snapshots.h100_training()
    gpu = replace(gpu, board=replace(known(gpu.board), bar1_total_bytes=2**60 + 1))
    text = rendered(snapshots.snapshot(gpu))
    assert re.search(rf"^gpu_bar1_total_bytes{{.*}} {2**60 + 1}$", text, re.MULTILINE)


def test_unlisted_label_values_are_not_published() -> None:
    """The listed values of a label are a contract: a surprise from a source is left out."""
    gpu = snapshots.h100_training()
    clocks = {"sm": 1.0, "turbo": 2.0}
    text = rendered(
        snapshots.snapshot(replace(gpu, vitals=replace(known(gpu.vitals), clock_hertz=clocks)))
    )
    assert 'clock="turbo"' not in text
    assert 'clock="sm"' in text


def with_power(watts: float | None) -> Snapshot:
    gpu = snapshots.h100_training()
    return snapshots.snapshot(replace(gpu, vitals=replace(known(gpu.vitals), power_watts=watts)))


def test_one_renderer_follows_gpus_and_ranks_that_come_and_go() -> None:
    """It shows the new values only: what is lost, moved or split leaves nothing behind."""
    names = ("mixed", "lost", "training", "cpu", "mig", "no_driver", "mixed", "bare", "mixed")
    rank = snapshots.rank_on_gpu()
    later = replace(rank, totals=replace(rank.totals, steps=1001.0, samples=None))
    moved = replace(later, gpu_uuid=None)
    ranks: tuple[tuple[Rank, ...], ...] = ((rank,), (rank,), (later,), (moved,), (), (rank, moved))
    renderer = Renderer(RenderOptions())
    for snapshot in (
        *(snapshots.EXAMPLES[name] for name in names),
        *(with_power(watts) for watts in (100.0, 100.0, 250.5, 0.0, None)),
        *(snapshots.with_training(snapshots.EXAMPLES["idle"], *some) for some in ranks),
    ):
        text = page(renderer.blocks(Node(snapshot)), "text-0.0.4").decode()
        assert read_back(text, "text-0.0.4") == expected_rows(Node(snapshot))


def test_memory_is_flat() -> None:
    """Neither vanished GPUs nor ended processes nor forgotten ranks are remembered."""
    renderer = Renderer(WITH_PROCESSES)
    counts = []
    for number in range(600):
        gpu = snapshots.bare()
        process = Process(number, "compute", 5, f"job{number}", "ada")
        share = replace(gpu.shares[0], processes=(process,))
        stable = replace(gpu, device=replace(gpu.device, index=1), shares=(share,))
        gone = replace(gpu, device=replace(gpu.device, uuid=f"GPU-{number}"))
        rank = replace(snapshots.rank_on_gpu(), job=f"job{number}")
        renderer.blocks(Node(snapshots.with_training(snapshots.snapshot(gone, stable), rank)))
        if number in (100, 599):
            gc.collect()
            counts.append(sys.getallocatedblocks())
    assert counts[1] - counts[0] < 200

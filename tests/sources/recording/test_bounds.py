# SPDX-License-Identifier: Apache-2.0
"""The memory of a replay is bounded, whatever the recording contains."""

from __future__ import annotations

import copy
import gzip
import json
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from exporter.errors import ConfigError
from exporter.model.reading import SlotReport
from exporter.sources.recording import Damage, Recording, bounds
from exporter.sources.recording.bounds import MemoryBudget, weight
from exporter.sources.recording.lines import InvalidLine
from tests.e2e.processes import ROOT

SAMPLE = ROOT / "tests/data/recordings/fake-h100x2__580.95.05__duty-cycle.jsonl.gz"
LINES = gzip.decompress(SAMPLE.read_bytes()).splitlines()
HEADER, TICK = LINES[0], json.loads(LINES[1])
Plain = dict[str, Any]


def written(path: Path, lines: Iterable[bytes]) -> Path:
    """Compress lines as they come: together they may be larger than the memory."""
    stream = zlib.compressobj(1, wbits=31)
    with path.open("wb") as file:
        for line in (HEADER, *lines):
            file.write(stream.compress(line + b"\n"))
        file.write(stream.flush())
    return path


def tick(number: int, change: Callable[[Plain, int], None]) -> bytes:
    """A round of one GPU, changed."""
    plain = {"seconds": float(number), "gpus": [copy.deepcopy(TICK["gpus"][0])]}
    change(plain, number)
    return json.dumps(plain).encode()


def device(plain: Plain) -> Plain:
    return plain["gpus"][0]["reading"]["device"]  # type: ignore[no-any-return]


def instances(number: int, count: int) -> list[Plain]:
    return [
        {"gpu_instance": number, "compute_instance": i, "profile": "1g", "mig_uuid": "MIG-1"}
        for i in range(count)
    ]


def another_gpu(plain: Plain, number: int) -> None:
    device(plain)["uuid"] = f"GPU-{number}"
    plain["gpus"][0]["index"] = number


def large_gpu(plain: Plain, number: int) -> None:
    another_gpu(plain, number)
    processes = [{"pid": n, "kind": "compute", "command": "c" * 400} for n in range(4000)]
    plain["gpus"][0]["reading"]["shares"][0]["processes"] = processes


def another_layout(plain: Plain, number: int) -> None:
    device(plain)["instances"] = instances(number, 8)


def other_names(plain: Plain, number: int) -> None:
    names = {f"{number}-{n}": 1.0 for n in range(64)}
    plain["gpus"][0]["reading"]["vitals"]["throttle_seconds"] = names


def other_xids(plain: Plain, number: int) -> None:
    record = {"count": 1, "last_timestamp_seconds": 1.0}
    plain["xids"] = {f"GPU-{number}-{n}": {"79": record} for n in range(64)}


GROWING = [
    (another_gpu, 1030, "gpus: expected at most 1024 different GPUs in a recording"),
    (large_gpu, 30, "gpus: expected all GPUs together to take at most 33554432 bytes"),
    (another_layout, 2100, "shares: expected at most 2048 different shares in a recording"),
    (other_names, 1030, "expected at most 65536 different names in a recording"),
    (other_xids, 1030, "expected at most 65536 different names in a recording"),
]


@pytest.mark.parametrize(("change", "lines", "message"), GROWING)
def test_what_grows_from_line_to_line_ends_at_a_limit(
    tmp_path: Path, change: Callable[[Plain, int], None], lines: int, message: str
) -> None:
    """Each line alone would do; the refusal names file, line and limit."""
    path = written(tmp_path / "r.gz", (tick(number, change) for number in range(1, lines)))
    seen: list[float] = []
    with pytest.raises(Damage) as caught:
        seen.extend(tick.seconds for tick in Recording(path).ticks())
    assert str(caught.value) == f"{path}:{len(seen) + 2}: {message}"
    assert len(seen) > 5


def changed(*path: str | int, to: Any) -> Callable[[Plain, int], None]:
    """Put a value at this path of a round."""

    def change(plain: Any, _number: int) -> None:
        *parents, last = path
        for key in parents:
            plain = plain.setdefault(key, {}) if isinstance(key, str) else plain[key]
        plain[last] = to

    return change


READING = ("gpus", 0, "reading")
ALLOCATION = {"device": {"index": 0}, "workload": {"scheduler": "slurm"}}
LARGE = [
    (
        changed(*READING, "device", "instances", to=instances(1, 65)),
        "instances: expected at most 64",
    ),
    (
        changed(*READING, "shares", to=[{"gpu_instance": 1}] * 65),
        "shares: expected at most 64 items",
    ),
    (
        changed(*READING, "shares", 0, "processes", to=[{"pid": 1, "kind": "mps"}] * 4097),
        "processes: expected at most 4096 items",
    ),
    (
        changed(*READING, "board", "fan_speed_ratios", to=[0.5] * 100_001),
        "expected at most 100000 values in a line",
    ),
    (
        changed(*READING, "board", "fan_speed_ratios", to=[0.5] * 1_000_000),
        "the line is too long, expected at most 4194304 bytes",
    ),
    (
        changed(*READING, "device", "name", to="x" * 4097),
        "name: expected text of at most 4096 char",
    ),
    (
        changed("workloads", "slurm", "allocations", to=[ALLOCATION] * 4097),
        "allocations: expected at most 4096 items",
    ),
    (
        changed("workloads", "kubernetes", "pod_labels", to={"x" * 401: {}}),
        "pod_labels: expected text of at most 400 characters",
    ),
    (
        changed(*READING, "device", "modes", to={"x" * 101: "on"}),
        "modes: expected text of at most 100 characters",
    ),
]


@pytest.mark.parametrize(("change", "message"), LARGE)
def test_a_line_that_is_too_much_is_refused(
    tmp_path: Path, change: Callable[[Plain, int], None], message: str
) -> None:
    """With the limit."""
    path = written(tmp_path / "r.gz", [tick(1, change)])
    with pytest.raises(Damage) as caught:
        list(Recording(path).ticks())
    assert str(caught.value).startswith(f"{path}:2: {message}")


def test_the_header_is_bounded_too(tmp_path: Path) -> None:
    """It is read before anything else."""
    header = json.loads(HEADER) | {"specs": {f"GPU-{n}": "h100" for n in range(257)}}
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps(header) + "\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"r\.jsonl:1: specs: expected at most 256 items$"):
        Recording(path)


def test_only_a_regular_file_is_read(tmp_path: Path) -> None:
    """A device has no end."""
    path = tmp_path / "r.jsonl"
    path.symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match=r"r\.jsonl: cannot be read: .*not a regular file"):
        Recording(path)


def test_the_largest_report_of_each_gpu_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small reports after a large one make no room for other GPUs."""

    def report(index: int, names: int) -> SlotReport:
        failures = {f"source {number}": 1 for number in range(names)}
        return SlotReport(index, None, None, None, failures)

    budget, large = MemoryBudget(), weight(report(0, 60), "gpus", set())
    monkeypatch.setattr(bounds, "MOST_KEPT_BYTES", 2 * large)
    for names in (60, 1, 1, 60, 1):
        budget.add([report(0, names)])
    budget.add([report(1, 60)])
    with pytest.raises(InvalidLine, match="all GPUs together"):
        budget.add([report(2, 60)])

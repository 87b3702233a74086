# SPDX-License-Identifier: Apache-2.0
"""A recording from a stranger costs no more memory than one of a large node."""

from __future__ import annotations

import copy
import gzip
import json
import os
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from exporter.errors import ConfigError
from exporter.sources.recording import Damage, Recording, bounds, files
from tests.e2e.processes import ROOT

SAMPLE = ROOT / "tests/data/recordings/fake-h100x2__580.95.05__duty-cycle.jsonl.gz"
LINES = gzip.decompress(SAMPLE.read_bytes()).splitlines()
HEADER, TICK = LINES[0], json.loads(LINES[1])
Plain = dict[str, Any]


def written(path: Path, lines: Iterable[bytes]) -> Path:
    """Compress lines as they come: together they may be larger than the memory."""
    stream = zlib.compressobj(9, wbits=31)
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


def too_many(field: str, count: int) -> Callable[[Plain, int], None]:
    """Put so many items into one list or table."""

    def change(plain: Plain, _number: int) -> None:
        reading = plain["gpus"][0]["reading"]
        items: Any = {f"n{n}": 1.0 for n in range(count)}
        if field == "instances":
            device(plain)[field] = instances(1, count)
        elif field == "processes":
            items = [{"pid": n, "kind": "mps"} for n in range(count)]
            reading["shares"][0][field] = items
        elif field == "shares":
            reading[field] = [{"gpu_instance": n} for n in range(count)]
        elif field == "fan_speed_ratios":
            reading["board"][field] = [0.5] * count
        else:
            reading["vitals"][field] = items

    return change


def long_text(plain: Plain, _number: int) -> None:
    device(plain)["name"] = "x" * 4097


def long_key(plain: Plain, _number: int) -> None:
    device(plain)["modes"] = {"x" * 101: "on"}


def too_many_allocations(plain: Plain, _number: int) -> None:
    given = {"device": {"index": 0}, "workload": {"scheduler": "slurm"}}
    plain["workloads"] = {"slurm": {"allocations": [given] * 4097}}


def long_label(plain: Plain, _number: int) -> None:
    plain["workloads"] = {"kubernetes": {"pod_labels": {"x" * 401: {}}}}


LARGE = [
    (too_many("instances", 65), "instances: expected at most 64 items"),
    (too_many("shares", 65), "shares: expected at most 64 items"),
    (too_many("processes", 4097), "processes: expected at most 4096 items"),
    (too_many("fan_speed_ratios", 65), "fan_speed_ratios: expected at most 64 items"),
    (too_many("clock_hertz", 65), "clock_hertz: expected at most 64 items"),
    (too_many("fan_speed_ratios", 100_001), "expected at most 100000 values in a line"),
    (too_many("clock_hertz", 400_000), "the line is too long, expected at most 4194304 bytes"),
    (long_text, "name: expected text of at most 4096 characters"),
    (too_many_allocations, "allocations: expected at most 4096 items"),
    (long_label, "pod_labels: expected text of at most 400 characters"),
    (long_key, "modes: expected text of at most 100 characters"),
]


@pytest.mark.parametrize(("change", "message"), LARGE)
def test_a_line_that_is_too_much_is_refused(
    tmp_path: Path, change: Callable[[Plain, int], None], message: str
) -> None:
    """With the limit."""
    path = written(tmp_path / "r.gz", [tick(1, change)])
    with pytest.raises(Damage) as caught:
        list(Recording(path).ticks())
    assert str(caught.value) == f"{path}:2: {message}"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("MOST_BYTES", "expected at most 20000 bytes, unpacked"),
        ("MOST_LINES", "expected at most 3 lines"),
    ],
)
def test_the_length_of_a_recording_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    """Up to the limit it plays."""
    limit = {"MOST_BYTES": 20_000, "MOST_LINES": 3}[name]
    monkeypatch.setattr(files, name, limit)
    path = written(tmp_path / "r.gz", LINES[1:10])
    with pytest.raises(Damage, match=message):
        list(Recording(path).ticks())


def test_the_header_is_bounded_too(tmp_path: Path) -> None:
    """It is read before anything else."""
    header = json.loads(HEADER) | {"specs": {f"GPU-{n}": "h100" for n in range(257)}}
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps(header) + "\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"r\.jsonl:1: specs: expected at most 256 items$"):
        Recording(path)


@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_only_a_regular_file_is_read(tmp_path: Path, kind: str) -> None:
    """A pipe would make its reader wait for ever, and a device has no end."""
    path = tmp_path / "r.jsonl"
    if kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match=r"r\.jsonl: cannot be read: .*not a regular file"):
        Recording(path)


def test_a_day_of_a_large_node_is_far_from_every_limit() -> None:
    """24 hours of eight GPUs every second, by the size of the sample's GPUs."""
    per_gpu = len(json.dumps(TICK["gpus"][0]))
    assert 24 * 3600 * 8 * per_gpu < bounds.MOST_BYTES / 10
    assert bounds.MOST_LINES / 100 > 24 * 3600
    assert 8 * per_gpu < bounds.LONGEST_LINE_BYTES / 100
    assert LINES[1].count(b",") * 4 < bounds.MOST_VALUES / 50

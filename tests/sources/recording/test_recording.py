# SPDX-License-Identifier: Apache-2.0
"""What is written into a recording is read back, and nothing else is taken for one."""

from __future__ import annotations

import dataclasses
import gzip
import json
import types
import typing
from collections.abc import Iterator
from dataclasses import MISSING
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.errors import ConfigError
from exporter.model.reading import (
    Board,
    Device,
    Process,
    Reading,
    ShareReading,
    SlotReport,
    Vitals,
)
from exporter.sources.recording import Damage, LineFile, Recording, Tick
from exporter.sources.recording.files import read_lines
from exporter.sources.recording.lines import decode, encode
from exporter.sources.recording.recording import (
    Header,
    header_line,
    iso_time,
    read_header,
    read_ticks,
    recorded,
)

HEADER = Header("0.1", "nvml", 1.0, iso_time(1_000_000.0))
SAMPLE = (
    Path(__file__).parent.parent.parent
    / "data/recordings/fake-h100x2__580.95.05__duty-cycle.jsonl.gz"
)
LINES = gzip.decompress(SAMPLE.read_bytes()).splitlines(keepends=True)

FLOATS = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, -0.0, 1.0, 0.1])
INTEGERS = st.integers(-(2**64) + 1, 2**64 - 1)


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Any value that a field of this type may have."""
    simple: dict[Any, st.SearchStrategy[Any]] = {
        float: FLOATS,
        int: INTEGERS,
        str: st.text(max_size=5),
        bool: st.booleans(),
    }
    if hint in simple:
        return simple[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if origin in (types.UnionType, typing.Union):
        return st.none() | values(arguments[0])
    if origin is tuple and arguments[-1] is not Ellipsis:
        return st.tuples(*map(values, arguments))
    if origin is tuple:
        return st.lists(values(arguments[0]), max_size=2).map(tuple)
    if origin is frozenset:
        return st.frozensets(values(arguments[0]), max_size=3)
    if origin is not None:
        keys = st.integers(0, 999) if arguments[0] is int else values(arguments[0])
        return st.dictionaries(keys, values(arguments[1]), max_size=3)
    hints = typing.get_type_hints(hint)
    fields: dict[bool, dict[str, st.SearchStrategy[Any]]] = {True: {}, False: {}}
    for field in dataclasses.fields(hint):
        has_default = field.default is not MISSING or field.default_factory is not MISSING
        fields[has_default][field.name] = values(hints[field.name])
    chosen = st.fixed_dictionaries(fields[False], optional=fields[True])
    return chosen.map(lambda found: hint(**found))


SIMPLE = Device(0, "GPU-a", "A")


@st.composite
def rounds(draw: st.DrawFn) -> list[Tick]:
    """What a node of up to three GPUs may hand over, round by round; much stays as it was."""
    ticks: list[Tick] = []
    before: dict[int, SlotReport] = {}
    for second in range(1, draw(st.integers(2, 5))):
        for index in draw(st.sets(st.integers(0, 2))):
            before[index] = draw(_report(index, second, before.get(index)))
        if before and second % 3 == 0:
            before.pop(draw(st.sampled_from(sorted(before))))
        node = {
            name: draw(values(typing.get_type_hints(Tick)[name]))
            for name in ("xids", "devices", "problem", "failed_initialisations")
        }
        ticks.append(Tick(float(second), tuple(before.values()), **node))
    return ticks


@st.composite
def _report(draw: st.DrawFn, index: int, second: int, before: SlotReport | None) -> SlotReport:
    problem = draw(st.none() | st.text(max_size=5))
    failures = draw(st.dictionaries(st.text(max_size=3), INTEGERS, max_size=2))
    if draw(st.integers(0, 4)) == 0:
        device = before.device if before is not None else draw(st.none() | st.just(SIMPLE))
        return SlotReport(index, device, None, problem, failures)
    found = draw(values(Reading))
    if before is not None and before.reading is not None and draw(st.booleans()):
        found = dataclasses.replace(
            found, device=before.reading.device, board=before.reading.board, shares=()
        )
    found = dataclasses.replace(
        found, timestamp_seconds=float(second), monotonic_seconds=float(second)
    )
    return SlotReport(index, found.device, found, problem, failures)


def encoded(ticks: list[Tick]) -> list[bytes]:
    return [
        encode(dataclasses.replace(tick, gpus=tuple(recorded(r, 0.0) for r in tick.gpus)))
        for tick in ticks
    ]


@given(rounds())
def test_what_was_handed_over_is_read_back(ticks: list[Tick]) -> None:
    """Every field of every class, exactly, whatever changed since the round before."""
    assert list(read_ticks(encoded(ticks))) == ticks


def test_what_is_no_number_is_not_known() -> None:
    """JSON has neither NaN nor infinity."""
    nan = Vitals(power_watts=float("nan"), energy_joules=float("inf"), temperature_celsius=5.0)
    again = decode(Tick, encode(Tick(1.0, (report(nan),)))).gpus[0].reading

    assert again is not None
    assert again.vitals == Vitals(temperature_celsius=5.0)


def report(vitals: Vitals, second: float = 1.0) -> SlotReport:
    shares = (ShareReading(processes=(Process(7, "compute", command="python3"),)),)
    board = Board(power_limit_watts=700.0)
    found = Reading(SIMPLE, second, second, vitals, board, shares)
    return SlotReport(0, SIMPLE, found, None, {})


def steady(second: float, power: float) -> Tick:
    return Tick(second, (report(Vitals(power_watts=power), second),))


def test_a_line_is_the_round_as_a_plain_object() -> None:
    """Whoever opens the file needs nothing but the names of the reading's fields."""
    (line,) = encoded([steady(2.0, 310.5)])

    assert json.loads(line) == {
        "seconds": 2.0,
        "gpus": [
            {
                "index": 0,
                "device": None,
                "reading": {
                    "device": {"index": 0, "uuid": "GPU-a", "name": "A"},
                    "timestamp_seconds": 2.0,
                    "monotonic_seconds": 2.0,
                    "vitals": {"power_watts": 310.5},
                    "board": {"power_limit_watts": 700.0},
                    "shares": [
                        {"processes": [{"pid": 7, "kind": "compute", "command": "python3"}]}
                    ],
                },
                "problem": None,
                "failures": {},
            }
        ],
    }


# Files


def recording(path: Path, *lines: bytes) -> Path:
    path.write_bytes(header_line(HEADER) + b"".join(lines))
    return path


def played(path: Path) -> Iterator[Tick]:
    return Recording(path).ticks()


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
def test_files_are_compressed_by_their_suffix(tmp_path: Path, name: str) -> None:
    """And both are read whatever they are called."""
    ticks = [steady(float(second), 300.0) for second in range(1, 50)]
    file = LineFile(tmp_path / name)
    file.write(header_line(HEADER))
    for line in encoded(ticks):
        file.write(line)
        file.flush()
    size = file.close()

    content = (tmp_path / name).read_bytes()
    assert size == len(content)
    assert content.startswith(b"\x1f\x8b") == name.endswith(".gz")
    plain = gzip.decompress(content) if name.endswith(".gz") else content
    assert plain == header_line(HEADER) + b"".join(encoded(ticks))
    assert Recording(tmp_path / name).header == HEADER
    assert list(played(tmp_path / name)) == ticks


def test_what_was_flushed_is_there_while_recording_goes_on(tmp_path: Path) -> None:
    """A recorder that is killed leaves a whole file, without its last second."""
    path = tmp_path / "r.jsonl.gz"
    ticks = [steady(1.0, 300.0), steady(2.0, 310.0), steady(3.0, 320.0)]
    lines = encoded(ticks)
    file = LineFile(path)
    file.write(header_line(HEADER))
    for line in lines[:2]:
        file.write(line)
    file.flush()
    file.write(lines[2])
    ticks_left = played(path)

    assert list(ticks_left) == ticks[:2]
    assert gzip.decompress(path.read_bytes()) == header_line(HEADER) + b"".join(lines[:2])
    file.close()
    assert list(played(path)) == ticks


def header(**changes: Any) -> bytes:
    return json.dumps({**json.loads(header_line(HEADER)), **changes}).encode() + b"\n"


NOT_RECORDINGS = {
    b"": "1: expected a line of JSON",
    b"gpu,power\n": "1: expected a line of JSON",
    b"[" * 100_000 + b"\n": "1: expected a line of JSON",
    b'{"format":': "1: the line is cut off",
    b"\x1f\x8b\x08": "1: the compressed data is cut off",
    b"\x1f\x8bnot gzip at all": "1: the compressed data is damaged",
    header(format="other"): '1: format: expected "roofline-exporter-recording"',
    header(version=2): "1: version: expected 3, which this exporter can play",
    header(interval_seconds=0): "1: interval_seconds: expected greater than or equal to 0.01",
    header(started="2026-01-31T12:00:00"): "1: started: expected a time such as 2026-01-31T12:00:0",
    header(devices=[{"index": 0, "uuid": "x"}]): "1: devices[0].name: expected a value, found none",
    header(colour=1): "1: colour: expected a field that this version knows",
}


@pytest.mark.parametrize("content", NOT_RECORDINGS, ids=NOT_RECORDINGS.values())
def test_a_file_that_does_not_begin_as_a_recording_is_refused(
    tmp_path: Path, content: bytes
) -> None:
    """One line names the file, the line, the key and what was expected."""
    path = tmp_path / "r"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        Recording(path)

    assert str(caught.value).startswith(f"{path}:{NOT_RECORDINGS[content]}")


FIRST = encoded([steady(1.0, 300.0)])[0]


def _line(**changes: Any) -> bytes:
    return json.dumps({**json.loads(FIRST), **changes}).encode() + b"\n"


def _reading(**changes: Any) -> bytes:
    gpu = json.loads(FIRST)["gpus"][0]
    return _line(gpus=[{**gpu, "reading": {**gpu["reading"], **changes}}])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"7\n", "expected an object"),
        (b"{}\n", "seconds: expected a value, found none"),
        (_line(**{"\n" * 50: 1}), "\\n" * 20 + ": expected a field that this version knows"),
        (_line(seconds=0.5), "seconds: expected a time after that of the line before"),
        (_line(seconds=1e10), "seconds: expected less than or equal to 1000000000"),
        (_line(devices={"pci": "8"}), "devices.pci: expected a valid integer"),
        (_line(workloads={"pbs": {}}), "workloads.pbs: expected "),
        (_line(workload_sources={"pbs": {"up": True}}), "workload_sources.pbs: expected "),
        (_line(gpus=[json.loads(FIRST)["gpus"][0]] * 257), "gpus: expected fewer items"),
        (_line(problem="\ud800"), "expected a line of JSON"),
        (_line(devices={"pci": 10**400}), "expected numbers of fewer than 300 digits"),
        (_reading(monotonic_seconds=-1e10), "gpus: expected readings within 1e+09 s of the start"),
        (_reading(board={"fan_speed_ratios": [1, "x"]}), "board.fan_speed_ratios[1]: expected a"),
        (_reading(vitals={"hue": 1}), "gpus[0].reading.vitals.hue: expected a field that this"),
        (_reading(vitals={"power_watts": float("nan")}), "power_watts: expected a finite number"),
    ],
)
def test_damage_is_named_and_what_is_before_it_played(
    tmp_path: Path, line: bytes, message: str
) -> None:
    """One line names the file, the line, the key and what was expected."""
    ticks = played(recording(tmp_path / "r.jsonl", FIRST, line))
    assert next(ticks) == steady(1.0, 300.0)
    with pytest.raises(Damage) as caught:
        next(ticks)

    assert str(caught.value).startswith(f"{tmp_path / 'r.jsonl'}:3: ")
    assert message in str(caught.value)
    assert str(caught.value).isprintable()


def test_data_after_the_end_is_damage(tmp_path: Path) -> None:
    """Two recordings in one file are not one."""
    path = tmp_path / "r.gz"
    content = gzip.compress(header_line(HEADER))
    path.write_bytes(content + content)
    with pytest.raises(Damage, match="there is more after the end of the compressed data"):
        list(read_lines(path))


def play_all(path: Path) -> int:
    """Play what can be played; anything but a clear refusal is a failure."""
    count, said = 0, f"{path}:"
    try:
        for _ in played(path):
            count += 1
    except (ConfigError, Damage) as error:
        said = str(error)
    assert said.startswith(f"{path}:")
    assert "\n" not in said
    return count


@given(
    line=st.integers(0, 4),
    cut=st.integers(0),
    insert=st.binary(max_size=6),
    length=st.integers(0, 9),
)
@settings(max_examples=3 * settings().max_examples)
def test_a_damaged_recording_is_played_or_refused(
    line: int, cut: int, insert: bytes, length: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Bytes lost or put anywhere; what is before the damage is played."""
    lines = list(LINES[:5])
    at = cut % len(lines[line])
    lines[line] = lines[line][:at] + insert + lines[line][at + length :]
    path = tmp_path_factory.getbasetemp() / "damaged.jsonl"
    path.write_bytes(b"".join(lines))
    assert play_all(path) >= line - 1


@given(at=st.integers(0), byte=st.integers(1, 255))
@settings(max_examples=2 * settings().max_examples)
def test_a_flipped_bit_of_compressed_data_is_noticed(
    at: int, byte: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Nothing crashes, and nothing that was before it is lost."""
    content = bytearray(SAMPLE.read_bytes())
    at = 10 + at % (len(content) - 10)
    content[at] ^= byte
    path = tmp_path_factory.getbasetemp() / "flipped.jsonl.gz"
    path.write_bytes(bytes(content))
    assert play_all(path) <= len(LINES)


def test_the_sample_is_marked_as_simulated_and_named_so() -> None:
    """A recording that no GPU made does not pass for one."""
    readme = (SAMPLE.parent / "README.md").read_text()
    for file in SAMPLE.parent.glob("*.jsonl.gz"):
        assert f"`{file.name}`" in readme
    assert "simulated" in readme
    assert SAMPLE.name.startswith("fake-")


@given(st.floats(-62_135_510_400, 253_402_214_400))
def test_a_recording_of_any_year_is_read(unix_seconds: float) -> None:
    """Also one of a node whose clock stands before 1970."""
    header = Header("0.1", "nvml", 1.0, iso_time(unix_seconds))
    assert read_header(header_line(header)) == header
    assert header.started_unix_seconds == pytest.approx(unix_seconds, abs=1e-5)


def test_a_recording_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    """Unless that was asked for."""
    path = recording(tmp_path / "r.jsonl")
    with pytest.raises(FileExistsError):
        LineFile(path)
    LineFile(path, overwrite=True).close()
    assert path.read_bytes() == b""


def test_a_recording_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """With the system's reason."""
    with pytest.raises(ConfigError, match=r"r\.jsonl: cannot be read: No such file or directory$"):
        Recording(tmp_path / "r.jsonl")
    with pytest.raises(ConfigError, match=r"cannot be read: Is a directory$"):
        Recording(tmp_path)

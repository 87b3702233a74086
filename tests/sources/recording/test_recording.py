# SPDX-License-Identifier: Apache-2.0
"""What is written into a recording is read back, and nothing else is taken for one."""

from __future__ import annotations

import dataclasses
import gzip
import json
import types
import typing
from collections.abc import Iterator
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
    XidRecord,
)
from exporter.sources.recording import (
    Damage,
    Header,
    LineFile,
    Recording,
    Tick,
    TickEncoder,
    iso_time,
)
from exporter.sources.recording import encode as encode_module
from exporter.sources.recording.codec import Malformed, from_plain, to_plain
from exporter.sources.recording.decode import TickDecoder
from exporter.sources.recording.files import LONGEST_LINE_BYTES, read_lines

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
    required = {name: values(hints[name]) for name in hints}
    return st.fixed_dictionaries({}, optional=required).map(
        lambda chosen: _built(hint, hints, chosen)
    )


def _built(cls: Any, hints: dict[str, Any], chosen: dict[str, Any]) -> Any:
    zeros = {float: 0.5, int: 7, str: "x", Vitals: Vitals(), Board: Board()}
    for field in dataclasses.fields(cls):
        is_required = (
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        )
        if is_required and field.name not in chosen:
            hint = hints[field.name]
            chosen[field.name] = zeros.get(hint, Device(0, "u", "n") if hint is Device else ())
    return cls(**chosen)


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
    encoder = TickEncoder(0.0)
    return [
        encoder.line(
            tick.seconds,
            tick.reports,
            tick.xids,
            tick.devices,
            tick.problem,
            tick.failed_initialisations,
        )
        for tick in ticks
    ]


def by_index(tick: Tick) -> Tick:
    reports = sorted(tick.reports, key=lambda report: report.index)
    return dataclasses.replace(tick, reports=tuple(reports))


@given(rounds())
@settings(max_examples=100, deadline=None)
def test_what_was_handed_over_is_read_back(ticks: list[Tick]) -> None:
    """Every field of every class, exactly, whatever changed since the round before."""
    decoder = TickDecoder()

    assert [by_index(decoder.tick(json.loads(line))) for line in encoded(ticks)] == [
        by_index(tick) for tick in ticks
    ]


@given(FLOATS)
def test_floats_keep_every_bit(value: float) -> None:
    """Also zero below zero, which compares equal to zero."""
    vitals = Vitals(power_watts=value)
    again = from_plain(Vitals, json.loads(json.dumps(to_plain(vitals))))

    assert repr(again.power_watts) == repr(value)


def test_every_field_of_a_reading_is_recorded() -> None:
    """Whoever adds a field to the reading or the report has to record it."""
    assert {field.name for field in dataclasses.fields(Reading)} == {
        *("device", "timestamp_seconds", "monotonic_seconds", "vitals", "board", "shares"),
        *("health", "states", "read_seconds"),
    }
    assert {field.name for field in dataclasses.fields(SlotReport)} == {
        *("index", "device", "reading", "problem", "failures"),
    }


def test_what_is_no_number_is_left_out() -> None:
    """JSON has no word for it, and unknown is absent."""
    found = Reading(
        SIMPLE,
        1.0,
        1.0,
        Vitals(power_watts=float("nan"), energy_joules=5.0, clock_hertz={"sm": float("inf")}),
        Board(power_limit_watts=float("inf")),
        (),
    )
    (line,) = encoded([Tick(1.0, (SlotReport(0, SIMPLE, found, None, {}),))])
    again = TickDecoder().tick(json.loads(line)).reports[0].reading

    assert again is not None
    assert again.vitals == Vitals(energy_joules=5.0)
    assert again.board == Board()


def steady(second: float, power: float) -> Tick:
    found = Reading(
        SIMPLE,
        second,
        second,
        Vitals(power_watts=power),
        Board(power_limit_watts=700.0),
        (ShareReading(processes=(Process(7, "compute", command="python3"),)),),
    )
    return Tick(second, (SlotReport(0, SIMPLE, found, None, {}),))


def test_what_stays_is_written_once() -> None:
    """The second line holds a time and a row, and no name."""
    first, second = encoded([steady(1.0, 300.0), steady(2.0, 310.5)])

    assert b"python3" in first
    assert json.loads(second) == {"t": 2_000_000_000, "rows": [[0, 0, 0, 310.5]]}


def test_ever_new_layouts_take_no_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source whose readings come and go at random starts the table over, and is read back."""
    monkeypatch.setattr(encode_module, "MOST_LAYOUTS", 3)
    ticks = []
    for second in range(1, 20):
        found = Reading(
            SIMPLE, float(second), float(second), Vitals(throttle_seconds={}), Board(), ()
        )
        names = {f"r{n}": 1.0 for n in range(second % 7)}
        found = dataclasses.replace(found, vitals=Vitals(throttle_seconds=names))
        ticks.append(Tick(float(second), (SlotReport(0, SIMPLE, found, None, {}),)))
    lines = encoded(ticks)
    decoder = TickDecoder()

    assert [decoder.tick(json.loads(line)) for line in lines] == ticks
    assert {key for line in lines for key in json.loads(line).get("layouts", {})} == {"0", "1", "2"}


# Files


def recording(path: Path, *lines: bytes) -> Path:
    path.write_bytes(HEADER.line() + b"".join(lines))
    return path


def played(path: Path) -> Iterator[Tick]:
    return Recording(path).ticks()


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
def test_files_are_compressed_by_their_suffix(tmp_path: Path, name: str) -> None:
    """And both are read without being told which."""
    ticks = [steady(float(second), 300.0) for second in range(1, 50)]
    file = LineFile(tmp_path / name)
    file.write(HEADER.line())
    for line in encoded(ticks):
        file.write(line)
        file.flush()
    size = file.close()

    content = (tmp_path / name).read_bytes()
    assert size == len(content)
    assert content.startswith(b"\x1f\x8b") == name.endswith(".gz")
    plain = gzip.decompress(content) if name.endswith(".gz") else content
    assert plain == HEADER.line() + b"".join(encoded(ticks))
    assert Recording(tmp_path / name).header == HEADER
    assert list(played(tmp_path / name)) == ticks


def test_what_was_flushed_is_there_while_recording_goes_on(tmp_path: Path) -> None:
    """A recorder that is killed leaves a whole file, without its last second."""
    path = tmp_path / "r.jsonl.gz"
    ticks = [steady(1.0, 300.0), steady(2.0, 310.0), steady(3.0, 320.0)]
    lines = encoded(ticks)
    file = LineFile(path)
    file.write(HEADER.line())
    for line in lines[:2]:
        file.write(line)
    file.flush()
    file.write(lines[2])
    ticks_left = played(path)

    assert list(ticks_left) == ticks[:2]
    assert gzip.decompress(path.read_bytes()) == HEADER.line() + b"".join(lines[:2])
    file.close()
    assert list(played(path)) == ticks


def test_a_recording_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    """Unless that was asked for."""
    path = recording(tmp_path / "r.jsonl")
    with pytest.raises(FileExistsError):
        LineFile(path)
    LineFile(path, overwrite=True).close()
    assert path.read_bytes() == b""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (None, "expected a line of JSON"),
        ({"format": "other"}, 'format: expected "roofline-exporter-recording"'),
        ({"version": 2}, "version: expected 1, the one that this exporter can play"),
        ({"version": True}, "version: expected 1, the one that this exporter can play"),
        ({"interval_seconds": 0}, "interval_seconds: expected seconds from 0.01 to 3600"),
        ({"interval_seconds": "1"}, "interval_seconds: expected a number"),
        ({"started": "soon"}, "started: expected a time such as 2026-01-31T12:00:00+00:00"),
        ({"started": "2026-01-31T12:00:00"}, "started: expected a time such as"),
        ({"devices": [{"index": 0, "uuid": "x"}]}, "devices[0].name: expected a value, found none"),
        ({"devices": {}}, "devices: expected a list"),
        ({"colour": 1}, "colour: expected a field that this version knows"),
        ({"specs": {"GPU-a": 4}}, "specs.GPU-a: expected text"),
    ],
)
def test_a_wrong_header_is_refused(
    tmp_path: Path, change: dict[str, Any] | None, message: str
) -> None:
    """One line names the file, the line, the key and what was expected."""
    path = tmp_path / "r.jsonl"
    header = {**json.loads(HEADER.line()), **(change or {})}
    path.write_text("gpu,power\n" if change is None else json.dumps(header) + "\n")
    with pytest.raises(ConfigError) as caught:
        Recording(path)

    assert str(caught.value).startswith(f"{path}:1: {message}")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "r:1: expected a line of JSON"),
        (b'{"format":', "r:1: the line is cut off"),
        (b"\x1f\x8b\x08", "r:1: the compressed data is cut off"),
        (b"\x1f\x8bnot gzip at all", "r:1: the compressed data is damaged"),
        (b"[" * 100_000 + b"\n", "r:1: expected a line of JSON"),
    ],
)
def test_what_is_no_recording_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    """Whatever else was put in its place."""
    path = tmp_path / "r"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        Recording(path)

    assert message in str(caught.value)


def test_a_recording_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """With the system's reason."""
    with pytest.raises(ConfigError, match=r"r\.jsonl: cannot be read: No such file or directory$"):
        Recording(tmp_path / "r.jsonl")
    with pytest.raises(ConfigError, match=r"cannot be read: Is a directory$"):
        Recording(tmp_path)


FIRST = encoded([steady(1.0, 300.0)])[0]


def _line(**changes: Any) -> bytes:
    return json.dumps({**json.loads(FIRST), **changes}).encode() + b"\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"7\n", "expected an object"),
        (_line(colour=1), "colour: expected a field that this version knows"),
        (_line(t=-1), "t: expected a time after that of the line before"),
        (_line(t=1.5), "t: expected a whole number"),
        (b"{}\n", "t: expected a whole number"),
        (_line(node={"devices": {"pci": "8"}}), "node.devices.pci: expected a whole number"),
        (_line(node={"xids": {"G": {"x": 1}}}), "node.xids.G: expected whole numbers as keys"),
        (_line(node=[]), "node: expected an object"),
        (_line(gpus={"x": {}}), "gpus: expected whole numbers below 1024 as keys"),
        (_line(gpus={"1024": {}}), "gpus: expected whole numbers below 1024 as keys"),
        (_line(gpus={"0": {"hue": 1}}), "gpus.0.hue: expected a field that this version knows"),
        (_line(gpus={"0": {"reading": 1}}), "gpus.0.reading: expected null"),
        (
            _line(gpus={"0": {"device": {"index": 0, "uuid": "\ud800", "name": "n"}}}),
            "gpus.0.device.uuid: expected text",
        ),
        (_line(gpus={"0": {"board": {"fan_speed_ratios": [1, "x"]}}}), "expected a number"),
        (_line(layouts=[]), "layouts: expected an object"),
        (_line(layouts={}), "rows[0][1]: expected a layout that was given before"),
        (_line(gpus={}), "rows[0][0]: expected a GPU that was described before"),
        (_line(rows=[[0, 0, 0]]), "rows[0]: expected a number for each place of the layout"),
        (_line(rows=[[0, 0, 0, 1, 2]]), "rows[0]: expected no more numbers than places"),
        (_line(rows=[[0, 0, 0, "1"]]), "rows[0].vitals.power_watts: expected a number"),
        (_line(rows=[[0, 0, 0, 10**400]]), "rows[0].vitals.power_watts: expected a number"),
        (_line(rows=[[0]]), "rows[0]: expected a list of a GPU, a layout, an age and numbers"),
        (_line(rows=0), "rows: expected a list"),
        (_line(layouts={"0": {"vitals": {"hue": None}}}), "rows[0].vitals.hue: expected a field"),
        (_line(rows=[[0, 0, 0, float("nan")]]), "expected a line of JSON"),
        (b"[" * 100_000 + b"\n", "expected a line of JSON"),
    ],
)
def test_damage_is_named_and_what_is_before_it_played(
    tmp_path: Path, line: bytes, message: str
) -> None:
    """One line names the file, the line, the key and what was expected."""
    ticks = played(recording(tmp_path / "r.jsonl", FIRST.replace(b"1000000000", b"0"), line))
    if line.startswith(b"{") and b'"gpus": {}' not in line and b'"layouts": {}' not in line:
        next(ticks)
    else:
        ticks = played(recording(tmp_path / "r.jsonl", b'{"t":0}\n', line))
        next(ticks)
    with pytest.raises(Damage) as caught:
        next(ticks)

    assert str(caught.value).startswith(f"{tmp_path / 'r.jsonl'}:3: ")
    assert message in str(caught.value)
    assert str(caught.value).isprintable()


def test_shares_and_their_processes_belong_together() -> None:
    """A row with other shares than the lists of processes is refused."""
    plain = json.loads(FIRST)
    plain["gpus"]["0"]["processes"] = [[], []]
    with pytest.raises(Malformed, match="expected as many shares as lists of processes"):
        TickDecoder().tick(plain)


def test_a_line_without_end_is_not_kept_in_memory(tmp_path: Path) -> None:
    """A file of one huge line, or a small one that unpacks to it, ends soon."""
    path = tmp_path / "r.gz"
    path.write_bytes(gzip.compress(b"x" * (LONGEST_LINE_BYTES + 100_000)))
    with pytest.raises(Damage, match="the line is too long"):
        list(read_lines(path))


def test_data_after_the_end_is_damage(tmp_path: Path) -> None:
    """Two recordings in one file are not one."""
    path = tmp_path / "r.gz"
    content = gzip.compress(HEADER.line())
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


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["t", "node", "gpus", "layouts", "rows", "0", "1", "vitals", "board"])
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(lines=st.lists(JSON, max_size=4), whole=st.integers(0, 3))
def test_any_lines_of_json_are_played_or_refused(
    lines: list[Any], whole: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """After any part of a real recording."""
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_bytes(b"".join(LINES[:whole]) + b"".join(_dumped(line) for line in lines))
    assert play_all(path) >= max(whole - 1, 0)


def _dumped(plain: Any) -> bytes:
    return json.dumps(plain).encode() + b"\n"


@given(
    line=st.integers(0, 4),
    cut=st.integers(0),
    insert=st.binary(max_size=6),
    length=st.integers(0, 9),
)
@settings(max_examples=300, deadline=None)
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
@settings(max_examples=200, deadline=None)
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


def test_xids_survive(tmp_path: Path) -> None:
    """Counts and times, by GPU and code."""
    tick = Tick(1.0, xids={"GPU-a": {79: XidRecord(2, 1_000_000.5)}})
    assert list(played(recording(tmp_path / "r.jsonl", *encoded([tick])))) == [tick]

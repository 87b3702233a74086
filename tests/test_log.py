# SPDX-License-Identifier: Apache-2.0
"""A log line is one event on one line, whatever its values hold, and can be read back."""

from __future__ import annotations

import io
import json
import logging
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter import log

FIELD = re.compile(r'([A-Za-z0-9_.:-]+)=("(?:[^"\\]|\\.)*"|[^ "=\\]+)(?: |$)')


pytestmark = pytest.mark.usefixtures("restored_logging")


def parsed_logfmt(line: str) -> dict[str, str]:
    """Read a line back, by the format's rules and not by the formatter's code."""
    assert "".join(match.group() for match in FIELD.finditer(line)) == line
    return {
        key: json.loads(value) if value.startswith('"') else value
        for key, value in FIELD.findall(line)
    }


def written(form: str, level: str = "info", **values: Any) -> str:
    stream = io.StringIO()
    log.setup(level, form, stream)
    logging.getLogger("exporter.test").warning("GPU lost", extra={"fields": values})
    return stream.getvalue()


def formatted(form: str, message: str, values: dict[str, Any]) -> str:
    record = logging.LogRecord("x", logging.INFO, "x", 1, message, None, None)
    record.fields = values
    return log.FORMATTERS[form](tracebacks=False).format(record)


def test_a_line_has_time_level_message_and_fields() -> None:
    """The order is fixed, the time is RFC 3339 in UTC with milliseconds."""
    line = written("logfmt", gpu=3, up=False, name="H100 SXM", seconds=1.5, code=None)
    assert re.fullmatch(
        r"time=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z level=warning "
        r'msg="GPU lost" gpu=3 up=false name="H100 SXM" seconds=1.5\n',
        line,
    )


def test_the_time_is_that_of_the_event() -> None:
    """The record's own time is printed, to the millisecond."""
    record = logging.LogRecord("x", logging.INFO, "x", 1, "m", None, None)
    record.created = 1_700_000_000.25
    line = log.LogfmtFormatter(tracebacks=False).format(record)
    assert line == "time=2023-11-14T22:13:20.250Z level=info msg=m"


def test_json_keeps_numbers_and_booleans() -> None:
    """A JSON line is an object with typed values."""
    line = json.loads(written("json", gpu=3, up=False, name="H100", bad=float("nan"), code=None))
    del line["time"]
    assert line == {
        "level": "warning",
        "msg": "GPU lost",
        "gpu": 3,
        "up": False,
        "name": "H100",
        "bad": "nan",
    }


KEYS = st.from_regex(r"[a-z_]{1,8}", fullmatch=True).filter(
    lambda key: key not in ("time", "level", "msg", "traceback")
)
HOSTILE = st.text() | st.sampled_from(
    ["", '"', "\\", "a=b", "x\ntime=2020 level=error", "\x1b[31m", "\x7f", "\u2028", "\u202e"]
)


@given(HOSTILE, st.dictionaries(KEYS, HOSTILE, max_size=4))
def test_logfmt_is_read_back(message: str, values: dict[str, str]) -> None:
    """No text can end the line, add a field or control a terminal."""
    line = formatted("logfmt", message, values)
    assert line.isascii()
    assert line.isprintable()
    read = parsed_logfmt(line)
    del read["time"]
    assert read == {"level": "info", "msg": message, **values}


JSON_KEYS = HOSTILE.filter(lambda key: key not in ("time", "level", "msg"))


@given(HOSTILE, st.dictionaries(JSON_KEYS, HOSTILE, max_size=4))
def test_json_is_read_back(message: str, values: dict[str, str]) -> None:
    """No text can end the line, whether it is a key or a value."""
    line = formatted("json", message, values)
    assert line.isascii()
    assert line.isprintable()
    read = json.loads(line)
    del read["time"]
    assert read == {"level": "info", "msg": message, **values}


@pytest.mark.parametrize("form", ["logfmt", "json"])
def test_a_field_cannot_take_the_place_of_the_message(form: str) -> None:
    """Fields named like the fixed ones get an underscore."""
    line = formatted(form, "m", {"msg": "x", "level": "y", "time": "z"})
    read = json.loads(line) if form == "json" else parsed_logfmt(line)
    assert (read["msg"], read["level"]) == ("m", "info")
    assert (read["msg_"], read["level_"], read["time_"]) == ("x", "y", "z")


@given(HOSTILE)
def test_a_hostile_key_cannot_forge_a_field(key: str) -> None:
    """Keys come from the code; one that does not is reduced to a plain word."""
    line = formatted("logfmt", "m", {key: "v"})
    assert line.isprintable()
    assert len(parsed_logfmt(line)) == 4


def fail(level: str) -> str:
    stream = io.StringIO()
    log.setup(level, "logfmt", stream)
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        logging.getLogger("exporter.test").exception("read failed")
    return stream.getvalue()


def test_an_exception_is_one_line_with_type_and_message() -> None:
    """At info there is no traceback."""
    line = fail("info")
    assert line.count("\n") == 1
    read = parsed_logfmt(line.rstrip("\n"))
    assert read["error"] == "ValueError: first\nsecond"
    assert "traceback" not in read


def test_at_debug_the_traceback_is_in_the_same_line() -> None:
    """The traceback is a field, escaped like any other."""
    line = fail("debug")
    assert line.count("\n") == 1
    assert "in fail" in parsed_logfmt(line.rstrip("\n"))["traceback"]


def test_an_exception_without_message_is_named() -> None:
    """The type alone still says something."""
    stream = io.StringIO()
    log.setup("info", "logfmt", stream)
    logging.getLogger("exporter.test").error("stopped", exc_info=TimeoutError())
    assert stream.getvalue().endswith(" msg=stopped error=TimeoutError\n")


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("info", ["info", "warning", "error"]),
        ("warning", ["warning", "error"]),
        ("error", ["error"]),
    ],
)
def test_levels_below_are_left_out(level: str, expected: list[str]) -> None:
    """The level is the least that is logged."""
    stream = io.StringIO()
    log.setup(level, "logfmt", stream)
    for name in ("debug", "info", "warning", "error"):
        getattr(logging.getLogger("exporter.test"), name)("m")
    assert re.findall(r"level=(\w+)", stream.getvalue()) == expected


def test_a_second_setup_replaces_the_first() -> None:
    """After a reload each event is still logged once, in the new form."""
    first, second = io.StringIO(), io.StringIO()
    log.setup("debug", "logfmt", first)
    log.setup("error", "json", second)
    logging.getLogger("exporter.test").error("m")
    logging.getLogger("exporter.test").info("m")
    assert first.getvalue() == ""
    assert json.loads(second.getvalue())["msg"] == "m"


def test_the_event_loop_logs_in_the_same_form() -> None:
    """Handlers that asyncio's logger had are taken away; its lines look like ours."""
    theirs, ours = io.StringIO(), io.StringIO()
    logger = logging.getLogger("asyncio")
    logger.addHandler(logging.StreamHandler(theirs))
    logger.propagate = False
    log.setup("info", "logfmt", ours)
    logger.error("slow on %s", ":19400")
    assert theirs.getvalue() == ""
    assert ours.getvalue().endswith('level=error msg="slow on :19400"\n')


@pytest.mark.parametrize("level", ["info", "debug"])
def test_warnings_of_the_event_loop_are_left_out(level: str) -> None:
    """Also after a second setup: clients that go away would fill the log."""
    stream = io.StringIO()
    for _ in range(2):
        log.setup(level, "logfmt", stream)
        logging.getLogger("asyncio").warning("socket.send() raised exception.")
    assert stream.getvalue() == ""


def test_the_default_stream_is_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Standard output belongs to what commands print."""
    log.setup("info", "logfmt")
    logging.getLogger("exporter.test").info("m")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith("level=info msg=m\n")


@pytest.mark.parametrize("form", ["logfmt", "json"])
def test_long_text_is_cut(form: str) -> None:
    """A line is bounded, whatever a driver, a file or a report put into it."""
    line = formatted(form, "m" * 10_000, {"k": "é" * 10_000})
    read = json.loads(line) if form == "json" else parsed_logfmt(line)
    assert read["msg"] == "m" * 2_000 + "..."
    assert read["k"] == "é" * 2_000 + "..."


@pytest.mark.parametrize("form", ["logfmt", "json"])
def test_a_line_that_is_still_too_long_keeps_its_message(form: str) -> None:
    """It can be read back, and says that it was cut."""
    fields = {f"k{number}": "\N{GRINNING FACE}" * 2_000 for number in range(10)}
    line = formatted(form, "\N{GRINNING FACE}" * 3_000, fields)
    read = json.loads(line) if form == "json" else parsed_logfmt(line)
    assert len(line) < 32 * 1024
    assert read["msg"] == "\N{GRINNING FACE}" * 2_000 + "..."
    assert str(read["cut"]).lower() == "true"
    assert "k0" not in read


def test_of_a_long_traceback_the_end_is_kept() -> None:
    """There it says where it happened."""

    stream = io.StringIO()
    log.setup("debug", "logfmt", stream)
    try:
        exec("def f(n):\n" + "\n" * 5 + "  g(n)\ndef g(n):\n  n and f(n - 1) or 1 / 0\nf(200)", {})
    except ZeroDivisionError:
        logging.getLogger("exporter.test").exception("read failed")
    read = parsed_logfmt(stream.getvalue().rstrip("\n"))
    assert read["traceback"].startswith("...")
    assert read["traceback"].endswith("ZeroDivisionError: division by zero\n")
    assert len(read["traceback"]) == 8_003


def test_the_event_loop_logs_ten_lines_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients could cause them at will; the rest is counted."""
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    logger = logging.getLogger("asyncio")
    logger.filters.clear()
    stream = io.StringIO()
    for number in range(50):
        log.setup("info", "logfmt", stream)
        logger.error("bad request %d", number)
    now += 60
    logger.error("later")
    logger.filters.clear()

    lines = stream.getvalue().splitlines()
    assert len(lines) == 11
    assert lines[9].endswith('msg="bad request 9"')
    assert lines[10].endswith("msg=later left_out=40")

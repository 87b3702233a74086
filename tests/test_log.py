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


def parsed(form: str, line: str) -> dict[str, Any]:
    """The fields of a line, which is ASCII that a terminal shows as it is."""
    assert line.isascii()
    assert line.isprintable()
    return json.loads(line) if form == "json" else parsed_logfmt(line)


def logged(level: str, form: str = "logfmt") -> io.StringIO:
    """What is logged from now on."""
    stream = io.StringIO()
    log.setup(level, form, stream)
    return stream


def formatted(form: str, message: str, values: dict[str, Any]) -> str:
    record = logging.LogRecord("x", logging.INFO, "x", 1, message, None, None)
    record.fields = values
    return log.LineFormatter(form, tracebacks=False).format(record)


def test_a_line_has_time_level_message_and_fields() -> None:
    """In this order; the time is that of the event, RFC 3339 in UTC with milliseconds."""
    record = logging.LogRecord("x", logging.WARNING, "x", 1, "GPU lost", None, None)
    record.created = 1_700_000_000.25
    record.fields = {"gpu": 3, "up": False, "name": "H100 SXM", "seconds": 1.5, "code": None}
    assert log.LineFormatter("logfmt", tracebacks=False).format(record) == (
        'time=2023-11-14T22:13:20.250Z level=warning msg="GPU lost" gpu=3 up=false '
        'name="H100 SXM" seconds=1.5'
    )


def test_json_keeps_numbers_and_booleans() -> None:
    """A JSON line is an object with typed values."""
    fields = {"gpu": 3, "up": False, "name": "H100", "bad": float("nan"), "code": None}
    line = json.loads(formatted("json", "GPU lost", fields))
    del line["time"]
    assert line == {
        "level": "info",
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


JSON_KEYS = HOSTILE.filter(lambda key: key not in ("time", "level", "msg"))


@pytest.mark.parametrize(("form", "keys"), [("logfmt", KEYS), ("json", JSON_KEYS)])
@given(message=HOSTILE, data=st.data())
def test_a_line_is_read_back(
    form: str, keys: st.SearchStrategy[str], message: str, data: st.DataObject
) -> None:
    """No text can end the line, add a field or control a terminal; in JSON also no key."""
    values = data.draw(st.dictionaries(keys, HOSTILE, max_size=4))
    read = parsed(form, formatted(form, message, values))
    del read["time"]
    assert read == {"level": "info", "msg": message, **values}


@pytest.mark.parametrize("form", ["logfmt", "json"])
def test_a_field_cannot_take_the_place_of_the_message(form: str) -> None:
    """Fields named like the fixed ones get an underscore."""
    line = formatted(form, "m", {"msg": "x", "level": "y", "time": "z"})
    read = parsed(form, line)
    assert (read["msg"], read["level"]) == ("m", "info")
    assert (read["msg_"], read["level_"], read["time_"]) == ("x", "y", "z")


@given(HOSTILE)
def test_a_hostile_key_cannot_forge_a_field(key: str) -> None:
    """Keys come from the code; one that does not is reduced to a plain word."""
    assert len(parsed("logfmt", formatted("logfmt", "m", {key: "v"}))) == 4


@pytest.mark.parametrize("level", ["info", "debug"])
def test_an_exception_is_one_line(level: str) -> None:
    """With type and message; at debug with the traceback, as a field like any other."""
    stream = logged(level)
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        logging.getLogger("exporter.test").exception("read failed")
    logging.getLogger("exporter.test").error("stopped", exc_info=TimeoutError())
    first, second = stream.getvalue().splitlines()
    read = parsed_logfmt(first)
    assert read["error"] == "ValueError: first\nsecond"
    assert ("in test_an_exception" in read.get("traceback", "")) == (level == "debug")
    assert parsed_logfmt(second)["error"] == "TimeoutError"


@pytest.mark.parametrize("least", range(4))
def test_levels_below_are_left_out(least: int) -> None:
    """The level is the least that is logged."""
    names = ["debug", "info", "warning", "error"]
    stream = logged(names[least])
    for name in names:
        getattr(logging.getLogger("exporter.test"), name)("m")
    assert re.findall(r"level=(\w+)", stream.getvalue()) == names[least:]


def test_a_second_setup_replaces_the_first() -> None:
    """After a reload each event is still logged once, in the new form."""
    first, second = logged("debug"), logged("error", "json")
    logging.getLogger("exporter.test").error("m")
    logging.getLogger("exporter.test").info("m")
    assert first.getvalue() == ""
    assert json.loads(second.getvalue())["msg"] == "m"


def test_the_event_loop_logs_in_the_same_form() -> None:
    """Handlers that asyncio's logger had are taken away; its lines look like ours."""
    theirs = io.StringIO()
    logger = logging.getLogger("asyncio")
    logger.addHandler(logging.StreamHandler(theirs))
    logger.propagate = False
    ours = logged("info")
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


@pytest.mark.parametrize("form", ["logfmt", "json"])
def test_long_text_is_cut(form: str) -> None:
    """A line is bounded, whatever a driver, a file or a report put into it."""
    line = formatted(form, "m" * 10_000, {"k": "é" * 10_000})
    read = parsed(form, line)
    assert read["msg"] == "m" * 2_000 + "..."
    assert read["k"] == "é" * 2_000 + "..."


@pytest.mark.parametrize("form", ["logfmt", "json"])
def test_a_line_that_is_still_too_long_keeps_its_message(form: str) -> None:
    """It can be read back, and says that it was cut."""
    fields = {f"k{number}": "\N{GRINNING FACE}" * 2_000 for number in range(10)}
    line = formatted(form, "\N{GRINNING FACE}" * 3_000, fields)
    read = parsed(form, line)
    assert len(line) < 32 * 1024
    assert read["msg"] == "\N{GRINNING FACE}" * 2_000 + "..."
    assert str(read["cut"]).lower() == "true"
    assert "k0" not in read


def test_of_a_long_traceback_the_end_is_kept() -> None:
    """There it says where it happened."""

    stream = logged("debug")
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
    stream = io.StringIO()
    for number in range(50):
        log.setup("info", "logfmt", stream)
        logger.error("bad request %d", number)
    now += 60
    logger.error("later")

    lines = stream.getvalue().splitlines()
    assert len(lines) == 11
    assert lines[9].endswith('msg="bad request 9"')
    assert lines[10].endswith("msg=later left_out=40")

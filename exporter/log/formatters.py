# SPDX-License-Identifier: Apache-2.0
"""What a log line looks like: one event is one line of logfmt or JSON, whatever it contains."""

from __future__ import annotations

import json
import logging
import re
import traceback
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any

LONGEST_VALUE = 2_000
"""Characters of the message and of each field; the rest is cut off."""
LONGEST_TRACEBACK = 8_000
"""Characters; the beginning is cut off."""
LONGEST_LINE = 32 * 1024
"""Bytes; a line that would be longer has only its message."""
CUT = "..."

_RESERVED = ("time", "level", "msg")
_PLAIN = re.compile(r"[!#-<>-\[\]-~]+")  # ASCII without space, quote, equals sign and backslash
_NOT_IN_KEYS = re.compile(r"[^A-Za-z0-9_.:-]")


class LineFormatter(logging.Formatter):
    """Turns a record into ordered pairs, and these into a line without its end."""

    def __init__(self, form: str, *, tracebacks: bool) -> None:
        super().__init__()
        self._write = FORMS[form]
        self._tracebacks = tracebacks

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        pairs = self._pairs(record)
        line = self._write(pairs)
        if len(line) <= LONGEST_LINE:
            return line
        return self._write({key: pairs[key] for key in _RESERVED} | {"cut": True})

    def _pairs(self, record: logging.LogRecord) -> dict[str, Any]:
        moment = datetime.fromtimestamp(record.created, timezone.utc)
        pairs: dict[str, Any] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "msg": _cut(record.getMessage()),
        }
        for key, value in getattr(record, "fields", {}).items():
            if value is not None:
                pairs[f"{key}_" if key in _RESERVED else key] = _plain(value)
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            text = str(error)
            name = type(error).__name__
            pairs.setdefault("error", _cut(f"{name}: {text}" if text else name))
            if self._tracebacks or getattr(record, "traceback", False):
                frames = "".join(traceback.format_exception(*record.exc_info))
                is_long = len(frames) > LONGEST_TRACEBACK
                pairs["traceback"] = CUT * is_long + frames[-LONGEST_TRACEBACK:]
        return pairs


def _logfmt(pairs: Mapping[str, Any]) -> str:
    """``time=… level=… msg="…" key=value``; text that is not plain is a JSON string in ASCII."""
    return " ".join(f"{_key(key)}={_value(value)}" for key, value in pairs.items())


def _key(key: str) -> str:
    return _NOT_IN_KEYS.sub("_", key) or "_"


def _value(value: object) -> str:
    text = str(value) if not isinstance(value, bool) else str(value).lower()
    return text if _PLAIN.fullmatch(text) else _ascii(text)


def _plain(value: object) -> object:
    """Return a value as JSON can have it, and no longer than it may be."""
    if isinstance(value, float):
        # JSON knows neither infinity nor NaN.
        return value if value - value == 0 else str(value)
    return value if isinstance(value, bool | int) else _cut(str(value))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_VALUE else text[:LONGEST_VALUE] + CUT


def _ascii(value: object) -> str:
    # json.dumps leaves DEL as it is, the one control character that ASCII has above 31.
    return json.dumps(value).replace("\x7f", "\\u007f")


FORMS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {"logfmt": _logfmt, "json": _ascii}
"""``json`` is one object in ASCII; numbers and booleans stay what they are."""

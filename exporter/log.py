# SPDX-License-Identifier: Apache-2.0
"""What a log line looks like: one event is one line of logfmt or JSON, whatever it contains."""

from __future__ import annotations

import json
import logging
import re
import sys
import traceback
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, TextIO

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
FOREIGN_LOGGERS = {
    "asyncio": logging.NOTSET,
    "uvicorn": logging.WARNING,
    "uvicorn.asgi": logging.WARNING,
    "uvicorn.error": logging.WARNING,
    "uvicorn.access": logging.CRITICAL,
}
"""Loggers of libraries, and the lowest level that is logged: requests and start-up are left out."""
SILENT_LOGGER = "uvicorn.access"
"""It formats a line for each request unless it finds no handler up to the root."""

_RESERVED = ("time", "level", "msg")
_PLAIN = re.compile(r"[!#-<>-\[\]-~]+")  # ASCII without space, quote, equals sign and backslash
_NOT_IN_KEYS = re.compile(r"[^A-Za-z0-9_.:-]")


def setup(level: str, form: str, stream: TextIO | None = None) -> None:
    """Send every logger of the process to standard error at `level`, as ``logfmt`` or ``json``.

    May be called again with other values. A line ends with what its record carries in
    ``extra={"fields": {…}}``.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(FORMATTERS[form](tracebacks=level == "debug"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(LEVELS[level])
    for name, lowest in FOREIGN_LOGGERS.items():
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.setLevel(lowest)
        logger.propagate = name != SILENT_LOGGER
    logging.captureWarnings(True)


class _Formatter(logging.Formatter):
    """Turns a record into ordered pairs; subclasses write them."""

    def __init__(self, *, tracebacks: bool) -> None:
        super().__init__()
        self._tracebacks = tracebacks

    def format(self, record: logging.LogRecord) -> str:
        return self.write(self._pairs(record))

    def write(self, pairs: Mapping[str, Any]) -> str:
        raise NotImplementedError

    def _pairs(self, record: logging.LogRecord) -> dict[str, Any]:
        moment = datetime.fromtimestamp(record.created, timezone.utc)
        pairs: dict[str, Any] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "msg": record.getMessage(),
        }
        for key, value in getattr(record, "fields", {}).items():
            if value is not None:
                pairs[f"{key}_" if key in _RESERVED else key] = value
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            text = str(error)
            name = type(error).__name__
            pairs.setdefault("error", f"{name}: {text}" if text else name)
            if self._tracebacks:
                pairs["traceback"] = "".join(traceback.format_exception(*record.exc_info))
        return pairs


class LogfmtFormatter(_Formatter):
    """``time=… level=… msg="…" key=value``; text that is not plain is a JSON string in ASCII."""

    def write(self, pairs: Mapping[str, Any]) -> str:
        """Return the line without its end."""
        return " ".join(f"{_key(key)}={_value(value)}" for key, value in pairs.items())


class JsonFormatter(_Formatter):
    """One JSON object in ASCII; numbers and booleans stay what they are."""

    def write(self, pairs: Mapping[str, Any]) -> str:
        """Return the line without its end."""
        return _ascii({key: _json_value(value) for key, value in pairs.items()})


FORMATTERS = {"logfmt": LogfmtFormatter, "json": JsonFormatter}


def _key(key: str) -> str:
    return _NOT_IN_KEYS.sub("_", key) or "_"


def _value(value: object) -> str:
    text = str(_json_value(value)) if not isinstance(value, bool) else str(value).lower()
    return text if _PLAIN.fullmatch(text) else _ascii(text)


def _json_value(value: object) -> object:
    if isinstance(value, float):
        # JSON knows neither infinity nor NaN.
        return value if value - value == 0 else str(value)
    return value if isinstance(value, bool | int) else str(value)


def _ascii(value: object) -> str:
    # json.dumps leaves DEL as it is, the one control character that ASCII has above 31.
    return json.dumps(value).replace("\x7f", "\\u007f")

# SPDX-License-Identifier: Apache-2.0
"""Converts the text of a flag, variable or YAML value, or says what was expected."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Generic, Literal, TypeVar

from exporter.errors import ConfigError, one_line

T = TypeVar("T")
Number = TypeVar("Number", int, float)
Word = TypeVar("Word", bound=str)

_SECONDS = {
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}
_MULTIPLES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BOOLEANS = dict.fromkeys(("true", "1", "yes", "on"), True) | dict.fromkeys(
    ("false", "0", "no", "off"), False
)
_PORTS = {"http": 80, "https": 443}

DCGM_PORT = 5555
"""Where nv-hostengine listens."""

_DURATION = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)(ms|s|m|h|d)")
_DECIMAL = r"[0-9]{1,24}(?:\.[0-9]{1,24})?(?:[eE][-+]?[0-9]{1,2})?"
_SIZE = re.compile(rf"({_DECIMAL})([kKmMgGtT]?)B?")
_ADDRESS = re.compile(r"(?:\[(?P<ipv6>[^\[\]]+)\]|(?P<host>[^\[\]:]*)):(?P<port>[0-9]{1,5})")
_GPU = re.compile(r"[0-9]{1,5}|[0-9A-Za-z]+(?:-[0-9A-Za-z]+)+")
_HAS_PORT = re.compile(r":[0-9]+$")
_HOST_NAME = re.compile(r"(?![0-9.]+$)[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?")
_HOST = re.compile(r"\*|\.?[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?")


class Unexpected(ValueError):
    """The text cannot be read; a message replaces the kind's own `expected`."""


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """One type of value: how its text is read and how help names it."""

    parse: Callable[[str], T]
    """Raises Unexpected."""
    metavar: str
    expected: str
    """Completes "expected …"; help and the documentation show it too."""
    is_list: bool = False
    """True where YAML may give a list; its items are joined with commas."""
    is_path: bool = False
    """True where a relative path in a YAML file starts at that file's directory (a value that is
    no Path, such as the name of something bundled, stays as it is)."""
    public: Callable[[str], str] = str
    """Returns the text as messages and the log show it, without what is secret."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen; an empty host is every address, port 0 is any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{bracketed(self.host)}:{self.port}"


@dataclass(frozen=True, slots=True)
class Url:
    """Where the pages of a daemon start."""

    scheme: Literal["http", "https"]
    host: str
    port: int
    path: str = ""
    """Before those of the pages: empty, or with a slash in front and none behind."""
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        """Return the URL without user and password."""
        return f"{self.scheme}://{bracketed(self.host)}:{self.port}{self.path}"


def bracketed(host: str) -> str:
    """Return the host as it is written before ``:PORT``."""
    return f"[{host}]" if ":" in host else host


def shown(text: str) -> str:
    """Return the text as messages quote it: on one line and not too long."""
    return f"'{one_line(text if len(text) <= 80 else text[:77] + '...')}'"


def option(flag: str, kind: Kind[T], text: str) -> T:
    """Return the value of a command's own option; raise ConfigError if it cannot be read."""
    try:
        return kind.parse(text)
    except Unexpected:
        problem = f"expected {kind.expected}, got {shown(kind.public(text))}"
        raise ConfigError(f"{flag}: {problem}") from None


def duration(least: str, most: str) -> Kind[float]:
    """Return the kind of value that is a duration between two bounds, such as 500ms, in seconds."""
    shortest, longest = (_seconds(text) for text in (least, most))

    def parse(text: str) -> float:
        seconds = _seconds(text)
        if not shortest <= seconds <= longest:
            raise Unexpected(f"{least} to {most}")
        return seconds

    return Kind(parse, "DURATION", f"a duration from {least} to {most}")


def _seconds(text: str) -> float:
    found = _DURATION.fullmatch(text)
    if not found:
        raise Unexpected("a duration such as 500ms, 1s or 10m")
    return float(Decimal(found[1]) * _SECONDS[found[2]])


def matched(pattern: str, convert: Callable[[str], T]) -> Callable[[str], T]:
    """Return the converter of text that a pattern matches as a whole."""
    whole = re.compile(pattern)

    def parse(text: str) -> T:
        if not whole.fullmatch(text):
            raise Unexpected
        return convert(text)

    return parse


def integer(least: int, most: int) -> Kind[int]:
    """Return the kind of value that is a whole number between two bounds."""
    parse = _between(matched(r"[0-9]{1,9}", int), least, most)
    return Kind(parse, "NUMBER", f"a whole number from {least} to {most}")


def decimal(least: float, most: float) -> Kind[float]:
    """Return the kind of value that is a number between two bounds."""
    parse = _between(matched(_DECIMAL, float), least, most)
    return Kind(parse, "NUMBER", f"a number from {least:g} to {most:g}")


def _between(read: Callable[[str], Number], least: float, most: float) -> Callable[[str], Number]:
    def parse(text: str) -> Number:
        value = read(text)
        if not least <= value <= most:
            raise Unexpected
        return value

    return parse


def choice(*names: Word) -> Kind[Word]:
    """Return the kind of value that is one of a few words."""

    def parse(text: str) -> Word:
        for name in names:
            if name == text:
                return name
        raise Unexpected

    return Kind(parse, "|".join(names), f"{', '.join(names[:-1])} or {names[-1]}")


LogLevel = Literal["debug", "info", "warning", "error"]
_LOG_LEVELS: Kind[LogLevel] = choice("debug", "info", "warning", "error")


def _log_level(text: str) -> LogLevel:
    """Take the names in capitals too, and "warn", as other exporters have them."""
    name = text.lower()
    return _LOG_LEVELS.parse("warning" if name == "warn" else name)


def optional(kind: Kind[T], word: str = "") -> Kind[T | None]:
    """Return the same kind, in which `word` means None."""

    def parse(text: str) -> T | None:
        return None if text == word else kind.parse(text)

    return Kind(parse, kind.metavar, kind.expected, kind.is_list, kind.is_path, kind.public)


def _boolean(text: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise Unexpected
    return _BOOLEANS[text.lower()]


def _bytes_per_second(text: str) -> float:
    found = _SIZE.fullmatch(text)
    if not found:
        raise Unexpected
    return float(Decimal(found[1]) * _MULTIPLES[found[2].lower()])


def _address(text: str) -> Address:
    found = _ADDRESS.fullmatch(text)
    if not found or int(found["port"]) > 65535 or not _is_host(found["ipv6"], found["host"]):
        raise Unexpected
    return Address(found["ipv6"] or found["host"], int(found["port"]))


def _url(text: str) -> Url:
    from urllib.parse import unquote, urlsplit

    if not text.isprintable() or " " in text:
        raise Unexpected
    full = text if "//" in text else f"http://{text}"
    try:
        parts = urlsplit(full)
        port = parts.port
        user, password = (
            None if part is None else unquote(part, errors="strict")
            for part in (parts.username, parts.password)
        )
    except ValueError as error:
        raise Unexpected from error
    if parts.scheme not in _PORTS or not parts.hostname or port == 0 or ":" in (user or ""):
        raise Unexpected
    scheme: Literal["http", "https"] = "https" if parts.scheme == "https" else "http"
    path = parts.path.rstrip("/")
    return Url(scheme, parts.hostname, port or _PORTS[scheme], path, user or None, password)


def _engine(text: str) -> str:
    """Return HOST:PORT or the path of a Unix socket; the port is DCGM's unless it is given."""
    if text.startswith("/") and text.isprintable():
        return text
    address = _address(text if _HAS_PORT.search(text) else f"{text}:{DCGM_PORT}")
    if not address.host or not address.port:
        raise Unexpected
    return f"{bracketed(address.host)}:{address.port}"


def _without_user(url: str) -> str:
    """Return a URL, even a malformed one, without user and password."""
    before, at, after = url.rpartition("@")
    begin, slashes, _ = before.partition("//")
    return f"{begin}{slashes}...@{after}" if slashes else f"...@{after}" if at else after


def _is_host(ipv6: str | None, host: str) -> bool:
    try:
        if ipv6 is not None:
            return bool(IPv6Address(ipv6)) and ipv6.isprintable()
        return not host or bool(_HOST_NAME.fullmatch(host)) or bool(IPv4Address(host))
    except ValueError:
        return False


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",")) if text.strip() else ()
    if not all(name.isprintable() and name for name in names):
        raise Unexpected
    return names


def _matching(pattern: re.Pattern[str]) -> Callable[[str], tuple[str, ...]]:
    """Return the converter of a list of names that all match a pattern."""

    def parse(text: str) -> tuple[str, ...]:
        names = _names(text)
        if not all(map(pattern.fullmatch, names)):
            raise Unexpected
        return names

    return parse


def _pattern(text: str) -> re.Pattern[str]:
    try:
        with warnings.catch_warnings():
            # A warning about how a later Python may read it does not concern the operator.
            warnings.simplefilter("ignore")
            return re.compile(text)
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        reason = error.msg if isinstance(error, re.error) else "too large"
        raise Unexpected(f"a regular expression ({one_line(reason)})") from error


def _scenario(text: str) -> str | Path:
    if text in BUNDLED_SCENARIOS:
        return text
    if "/" not in text and not text.endswith((".yaml", ".yml")):
        raise Unexpected
    return _path(text)


_path = matched(r"[^\0]+", Path)

FORMAT = choice("table", "json")
BOOLEAN: Kind[bool] = Kind(_boolean, "BOOLEAN", "true or false")
LOG_LEVEL: Kind[LogLevel] = Kind(_log_level, _LOG_LEVELS.metavar, _LOG_LEVELS.expected)
RATIO: Kind[float] = Kind(decimal(0, 1).parse, "RATIO", "a ratio from 0 to 1, such as 0.01")
BYTES_PER_SECOND: Kind[float] = Kind(
    _bytes_per_second, "RATE", "bytes per second, such as 10000000, 500k, 10M or 1.5G"
)
ADDRESS: Kind[Address] = Kind(
    _address, "ADDRESS", "HOST:PORT, :PORT or [IPV6]:PORT, such as :19400"
)
NAMES: Kind[tuple[str, ...]] = Kind(
    _names, "NAMES", "names with commas between them, such as Xorg,gnome-shell", is_list=True
)
HOSTS: Kind[tuple[str, ...]] = Kind(
    _matching(_HOST),
    "NAMES",
    "names of hosts with commas between them, such as gpu1.example.com,.example.com",
    is_list=True,
)
GPUS: Kind[tuple[str, ...]] = Kind(
    _matching(_GPU),
    "GPUS",
    "indexes or UUIDs of GPUs with commas between them, such as 0,1",
    is_list=True,
)
MODE: Kind[int] = Kind(
    matched(r"0?[0-7]{3}", lambda text: int(text, 8)), "MODE", "permissions in octal, such as 0660"
)
GROUP: Kind[str] = Kind(
    matched(r"[A-Za-z0-9_][A-Za-z0-9_.@\\-]*\$?", str),
    "GROUP",
    "the name or number of a group, such as gpu-users",
)
PATTERN: Kind[re.Pattern[str]] = Kind(_pattern, "REGEX", "a regular expression")
LIBRARY: Kind[str] = Kind(
    matched(r"[^\0]+", str), "LIBRARY", "the path or name of a library, such as libnvidia-ml.so.1"
)
URL: Kind[Url] = Kind(_url, "URL", "a URL such as http://127.0.0.1:19400", public=_without_user)
ENGINE: Kind[str] = Kind(
    _engine,
    "HOST:PORT|PATH",
    "HOST, HOST:PORT or the path of a Unix socket, such as localhost:5555",
)
USER: Kind[str] = Kind(matched(r"[^:]+", str), "USER", "a name without a colon")
BUNDLED_SCENARIOS = ("demo", "mixed")
SCENARIO: Kind[str | Path] = Kind(
    _scenario,
    "NAME|FILE",
    f"{', '.join(BUNDLED_SCENARIOS)} or the path of a YAML file such as ./mine.yaml",
    is_path=True,
)
PATH: Kind[Path] = Kind(_path, "PATH", "a path", is_path=True)

# SPDX-License-Identifier: Apache-2.0
"""Reads the web configuration file, whose schema is that of Prometheus' exporter-toolkit.

Unknown keys are refused. No message quotes a key, a hash or anything else that is secret.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from difflib import get_close_matches
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from exporter.errors import ConfigError, clipped, one_line, shown
from exporter.yaml_lines import Document, KeyPath

# The words of Go's TLS library that the file uses, and what OpenSSL calls them.
CLIENT_AUTH: Mapping[str, ssl.VerifyMode] = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
NOT_VERIFYING = frozenset({"RequestClientCert", "RequireAnyClientCert", "RequireClientCert"})
"""They ask for a certificate and believe any."""

VERSIONS: Mapping[str, ssl.TLSVersion] = {
    "TLS10": ssl.TLSVersion.TLSv1,
    "TLS11": ssl.TLSVersion.TLSv1_1,
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}
"""From the oldest on."""

CIPHERS: Mapping[str, str] = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
}
"""Go's tls.CipherSuites() for TLS up to 1.2."""

CIPHERS_OF_TLS13 = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)
"""All of them are always on, in Go as here."""

CIPHERS_FOR_HTTP2 = frozenset(
    {"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}
)
"""HTTP/2 over TLS 1.2 needs one of them."""

CURVES: Mapping[str, str] = {
    "CurveP256": "prime256v1",
    "CurveP384": "secp384r1",
    "CurveP521": "secp521r1",
    "X25519": "X25519",
}

HEADERS: Mapping[str, tuple[str, ...]] = {
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
    "Content-Security-Policy": (),
}
"""The headers that may be set, and their values where only some are allowed."""

ALWAYS_SENT = frozenset({"X-Content-Type-Options"})
"""Every answer has this header with its only value, whatever the file says."""

MOST_BURST = 2**31 - 1

_TEXT, _PEM, _FLAG, _LIST = "text", "text in PEM form", "true or false", "a list of texts"
_BURST = f"a whole number from 0 to {MOST_BURST}"
_ANY = ""
"""It is checked elsewhere."""
_TYPES: Mapping[str, type] = {_TEXT: str, _PEM: str, _FLAG: bool, _LIST: list, _BURST: int}
"""By what is expected. No message quotes what is there instead of PEM or a list."""
_TOP = dict.fromkeys(
    ("tls_server_config", "http_server_config", "basic_auth_users", "rate_limit"), _ANY
)
_TLS = {
    "cert_file": _TEXT,
    "key_file": _TEXT,
    "cert": _PEM,
    "key": _PEM,
    "client_auth_type": _TEXT,
    "client_ca_file": _TEXT,
    "client_ca": _PEM,
    "client_allowed_sans": _LIST,
    "min_version": _TEXT,
    "max_version": _TEXT,
    "cipher_suites": _LIST,
    "curve_preferences": _LIST,
    "prefer_server_cipher_suites": _FLAG,
}

COSTS = range(4, 19)
"""One more takes twice the time: 0.07 s at 10, about 20 s at 18."""

_HASH = re.compile(r"\$2[aby]\$(?P<cost>[0-9]{2})\$[./A-Za-z0-9]{21}(?P<end>.)[./A-Za-z0-9]{31}")
_LAST_OF_SALT = frozenset(".Oeu")
"""22 letters hold 132 bits, the salt has 128: the last four are 0."""

_UNITS = {
    "ns": Decimal("1e-9"),
    "us": Decimal("1e-6"),
    "\u00b5s": Decimal("1e-6"),
    "\u03bcs": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
}
_PART = rf"([0-9]{{1,20}}(?:\.[0-9]{{0,20}})?|\.[0-9]{{1,20}})({'|'.join(_UNITS)})"
_DURATION = re.compile(rf"(?:{_PART}){{1,8}}")

Key = str | tuple[str | int, ...] | None
"""Of the section's own keys, of an item below one, or None for the section itself."""


@dataclass(frozen=True, slots=True)
class Pem:
    """Certificates or a key, written into the file or in one that it names."""

    place: str
    """``FILE:LINE: key '…'``, as messages begin."""
    text: str | None = field(repr=False)
    path: Path | None


@dataclass(frozen=True, slots=True)
class Tls:
    """How connections are encrypted, and which certificates clients need."""

    place: str
    cert: Pem
    key: Pem
    client_ca: Pem | None = None
    client_auth: str = "NoClientCert"
    """A key of `CLIENT_AUTH`."""
    allowed_sans: frozenset[str] = frozenset()
    """Names of which a client's certificate needs one; any will do if there are none."""
    min_version: str = "TLS12"
    max_version: str = "TLS13"
    ciphers: tuple[str, ...] = ()
    """Go's names, those for TLS 1.3 too; OpenSSL's own choice if there are none."""
    curves: tuple[str, ...] = ()
    prefer_server_ciphers: bool = True


@dataclass(frozen=True, slots=True)
class RateLimit:
    """A request each interval, and so many at once."""

    interval_seconds: float
    burst: int


@dataclass(frozen=True, slots=True)
class WebConfig:
    """The whole file; ``WebConfig()`` is an empty one."""

    tls: Tls | None = None
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """Names in lower case, and values, that every answer has."""
    users: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """By name: the bcrypt hash, whose cost is at 4 to 6."""
    rate_limit: RateLimit | None = None
    notes: tuple[str, ...] = ()
    """What is accepted but has no effect, or not the one that was meant; a line each."""


def parse(document: Document, folder: Path) -> WebConfig:
    """Return the configuration in a document; relative paths in it start at `folder`."""
    notes: list[str] = []
    top = Section(document, (), document.value, _TOP)
    http = top.section("http_server_config", {"http2": _FLAG, "headers": _ANY})
    http2 = http.values.get("http2")
    if http2:
        notes.append(f"{http.place('http2')}: has no effect, only HTTP/1.1 is served")
    return WebConfig(
        tls=_tls(top.section("tls_server_config", _TLS), folder, notes, http2=http2 is not False),
        headers=_headers(http.section("headers", dict.fromkeys(HEADERS, _ANY))),
        users=_users(top),
        rate_limit=_rate_limit(top, notes),
        notes=tuple(notes),
    )


def _tls(section: Section, folder: Path, notes: list[str], *, http2: bool) -> Tls | None:
    if not any(value not in (None, "") for value in section.values.values()):
        return None
    cert = _pem(section, "cert", folder, notes)
    key = _pem(section, "key", folder, notes)
    if cert is None or key is None:
        name = "key" if cert else "cert"
        raise section.error(None, f"missing one of {name} or {name}_file")
    client_ca = _pem(section, "client_ca", folder, notes)
    client_auth = section.values.get("client_auth_type")
    if client_auth in NOT_VERIFYING:
        raise section.error(
            "client_auth_type",
            f"{client_auth} does not verify certificates, expected RequireAndVerifyClientCert or "
            "VerifyClientCertIfGiven",
        )
    client_auth = section.choice("client_auth_type", "NoClientCert", CLIENT_AUTH)
    sans = section.values.get("client_allowed_sans")
    if sans == []:
        raise section.error("client_allowed_sans", "nobody could connect, expected a name or more")
    allowed_sans = frozenset(map(normal, sans or ()))
    if client_auth == "NoClientCert":
        if client_ca is not None:
            raise section.error(
                None, "a client CA without a client_auth_type, expected RequireAndVerifyClientCert"
            )
        if allowed_sans:
            raise section.error(
                "client_allowed_sans",
                "no certificate is asked for, expected client_auth_type RequireAndVerifyClientCert",
            )
    elif client_ca is None:
        notes.append(
            f"{section.place('client_auth_type')}: without client_ca_file or client_ca, no "
            "client's certificate is trusted"
        )
    least = section.choice("min_version", "TLS12", VERSIONS)
    most = section.choice("max_version", "TLS13", VERSIONS)
    if VERSIONS[least] > VERSIONS[most]:
        raise section.error(
            "max_version", f"expected at least min_version ({least}), got {shown(most)}"
        )
    return Tls(
        place=section.place(None),
        cert=cert,
        key=key,
        client_ca=client_ca,
        client_auth=client_auth,
        allowed_sans=allowed_sans,
        min_version=least,
        max_version=most,
        ciphers=_ciphers(section, least, most, http2=http2),
        curves=_known_words(section, "curve_preferences", tuple(CURVES)),
        prefer_server_ciphers=section.values.get("prefer_server_cipher_suites") is not False,
    )


def _pem(section: Section, key: str, folder: Path, notes: list[str]) -> Pem | None:
    text, name = section.values.get(key), section.values.get(f"{key}_file")
    if name:
        if text:
            notes.append(f"{section.place(key)}: has no effect beside {key}_file")
        return Pem(section.place(f"{key}_file"), None, folder / name)
    return Pem(section.place(key), text, None) if text else None


def _ciphers(section: Section, least: str, most: str, *, http2: bool) -> tuple[str, ...]:
    names = _known_words(section, "cipher_suites", (*CIPHERS, *sorted(CIPHERS_OF_TLS13)))
    if not names or least == "TLS13":
        return names
    # Go's server, which speaks HTTP/2, does not start with such a list. That this one does not
    # either makes a file valid for both.
    if http2 and not CIPHERS_FOR_HTTP2 & set(names):
        raise section.error(
            "cipher_suites",
            f"missing {' or '.join(sorted(CIPHERS_FOR_HTTP2))}, which HTTP/2 needs; expected one "
            "of them, min_version TLS13, or http2: false",
        )
    if most != "TLS13" and not set(CIPHERS) & set(names):
        raise section.error("cipher_suites", f"not one of them is for TLS up to {most}")
    return names


def _known_words(section: Section, key: str, known: tuple[str, ...]) -> tuple[str, ...]:
    names = section.values.get(key) or ()
    for position, name in enumerate(names):
        section.known((key, position), name, known)
    return tuple(dict.fromkeys(names))


def _headers(section: Section) -> tuple[tuple[bytes, bytes], ...]:
    found = []
    for name, allowed in HEADERS.items():
        value = section.values.get(name)
        if value is None:
            continue
        if type(value) is int and abs(value) < 10**9:
            value = str(value)
        section.check(name, value, _TEXT)
        if allowed and value not in allowed:
            raise section.error(name, f"expected {' or '.join(allowed)}, got {shown(value)}")
        if not (value.isascii() and value.isprintable()):
            raise section.error(name, "expected printable ASCII letters")
        if value.strip() and name not in ALWAYS_SENT:
            found.append((name.lower().encode(), value.strip().encode()))
    return tuple(found)


def _users(top: Section) -> dict[str, bytes]:
    users = top.section("basic_auth_users", None)
    for name, value in users.values.items():
        if not name or ":" in name:
            raise users.error(name, "expected a user's name, without a colon")
        found = _HASH.fullmatch(value) if isinstance(value, str) else None
        if found is None or int(found["cost"]) not in COSTS or found["end"] not in _LAST_OF_SALT:
            raise users.error(
                name,
                f"expected a bcrypt hash of cost {COSTS.start} to {COSTS.stop - 1}, such as "
                "htpasswd -nB prints after the colon",
            )
    return {name: value.encode() for name, value in users.values.items()}


def _rate_limit(top: Section, notes: list[str]) -> RateLimit | None:
    section = top.section("rate_limit", {"interval": _ANY, "burst": _BURST})
    interval, burst = section.values.get("interval"), section.values.get("burst") or 0
    try:
        # A number alone is nanoseconds in Go, and hardly ever meant.
        text = "0" if interval is None or (type(interval) is int and not interval) else interval
        length = seconds(text if isinstance(text, str) else "")
    except ValueError:
        raise section.error(
            "interval", f"expected a duration such as 1s, 100ms or 1m30s, got {shown(interval)}"
        ) from None
    if not length:
        return None
    if not burst:
        notes.append(f"{section.place(None)}: with a burst of 0, every request is refused")
    return RateLimit(length, burst)


def seconds(text: str) -> float:
    """Return the length in seconds of ``1s``, ``1m30s`` or ``0``; raise ValueError for others."""
    text = text.removeprefix("+")
    if text == "0":
        return 0.0
    if not _DURATION.fullmatch(text):
        raise ValueError("not a duration")
    parts = re.findall(_PART, text)
    return float(sum(Decimal(number) * _UNITS[unit] for number, unit in parts))


def normal(name: str) -> str:
    """Return an IP address in its one short form, and any other name as it is."""
    try:
        address = ip_address(name.strip())
    except ValueError:
        return name
    return str(getattr(address, "ipv4_mapped", None) or address)


class Section:
    """A mapping whose keys are known, or any where `known` is None; nothing is an empty one.

    Everything raises ConfigError, in one line, for what is not as expected.
    """

    def __init__(
        self, document: Document, path: KeyPath, value: Any, known: Mapping[str, str] | None
    ) -> None:
        """Take the mapping at a path, and what is expected of each key."""
        self._document = document
        self._path = path
        if value is None:
            value = {}
        if not isinstance(value, dict):
            # The value is not quoted: it may be a secret.
            keys = f" of {', '.join(known)}" if known else ""
            raise self.error(None, f"expected a mapping{keys}")
        self.values: Mapping[str, Any] = value
        if known is None:
            return
        for key, each in value.items():
            if key not in known:
                raise self.error(key, f"not known, {_expected(key, known)}")
            if each is not None and known[key] != _ANY:
                self.check(key, each, known[key])

    def check(self, key: str, value: Any, expected: str) -> None:
        """Refuse a value that is not what is expected, a key of `_TYPES`."""
        in_range = expected != _BURST or (type(value) is int and 0 <= value <= MOST_BURST)
        if type(value) is not _TYPES[expected] or not in_range:
            got = "" if expected in (_PEM, _LIST) else f", got {_described(value)}"
            raise self.error(key, f"expected {expected}{got}")
        items: list[Any] = value if isinstance(value, list) else []
        for position, item in enumerate(items):
            if not isinstance(item, str) or not item:
                raise self.error((key, position), f"expected text, got {_described(item)}")

    def place(self, key: Key) -> str:
        """Return the place of this key, as messages begin."""
        parts = () if key is None else key if isinstance(key, tuple) else (key,)
        path = (*self._path, *parts)
        where = one_line(self._document.where(path))
        if not path:
            return where
        return f"{where}: key '{one_line(clipped('.'.join(str(part) for part in path)))}'"

    def error(self, key: Key, problem: str) -> ConfigError:
        """Return the error that something is wrong with this key."""
        return ConfigError(f"{self.place(key)}: {one_line(problem)}")

    def section(self, key: str, known: Mapping[str, str] | None) -> Section:
        """Return the mapping below a key."""
        return Section(self._document, (*self._path, key), self.values.get(key), known)

    def choice(self, key: str, default: str, known: Iterable[str]) -> str:
        """Return one of the known words; empty is nothing."""
        return self.known(key, self.values.get(key) or default, known)

    def known(self, key: Key, text: str, known: Iterable[str]) -> str:
        """Return the text if it is one of the known words."""
        words = tuple(known)
        if text not in words:
            raise self.error(key, f"{shown(text)} is not known, {_expected(text, words)}")
        return text


def _expected(got: str, known: Iterable[str]) -> str:
    near = get_close_matches(clipped(got), known, n=1)
    return f"did you mean {near[0]}?" if near else f"expected one of {', '.join(known)}"


def _described(value: object) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, int) and value.bit_length() > 64:
        return "a very large number"
    return shown(value)

# SPDX-License-Identifier: Apache-2.0
"""The web configuration file is read strictly, and nothing in it makes reading it fail oddly."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import ConfigError
from exporter.web.access import config as schema
from exporter.web.access.config import (
    CIPHERS,
    CIPHERS_OF_TLS13,
    CLIENT_AUTH,
    CURVES,
    HEADERS,
    VERSIONS,
    RateLimit,
    WebConfig,
    parse,
    seconds,
)
from exporter.yaml_lines import loads

HASH = "$2b$04$......................w74bL5gU7LSJClZClCa.Pkz14aTv/XO"
"""Of the empty password."""
TLS = "tls_server_config: {cert_file: a.crt, key_file: a.key"


def config(text: str) -> WebConfig:
    return parse(loads(text, "web.yml"), Path("/etc/exporter"))


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        config(text)
    return str(caught.value)


@pytest.mark.parametrize("text", ["", "# nothing\n", "tls_server_config:\n", "{}"])
def test_an_empty_file_configures_nothing(text: str) -> None:
    """As in the toolkit, where a file may be written before anybody knows what goes into it."""
    assert config(text) == WebConfig()


def test_paths_start_at_the_file() -> None:
    """A mounted folder can be moved as a whole."""
    tls = config("tls_server_config: {cert_file: a.crt, key_file: /keys/a.key}").tls

    assert tls is not None
    assert tls.cert.path == Path("/etc/exporter/a.crt")
    assert tls.key.path == Path("/keys/a.key")
    assert (tls.min_version, tls.max_version) == ("TLS12", "TLS13")
    assert tls.prefer_server_ciphers
    assert tls.client_auth == "NoClientCert"


def test_every_key_is_read() -> None:
    """The whole schema in one file."""
    read = config(
        f"""
tls_server_config:
  cert_file: a.crt
  key_file: a.key
  client_auth_type: RequireAndVerifyClientCert
  client_ca: |
    -----BEGIN CERTIFICATE-----
  client_allowed_sans: [prometheus.example, "2001:DB8:0::1", "::ffff:10.0.0.7"]
  min_version: TLS12
  max_version: TLS12
  cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_AES_128_GCM_SHA256]
  curve_preferences: [X25519, CurveP256]
  prefer_server_cipher_suites: false
http_server_config:
  http2: true
  headers:
    Strict-Transport-Security: max-age=31536000
    X-Content-Type-Options: nosniff
    X-Frame-Options: sameorigin
    X-XSS-Protection: 1
    Content-Security-Policy: ""
basic_auth_users:
  alice: {HASH}
rate_limit:
  interval: 1m0.5s
  burst: 3
"""
    )

    assert read.tls is not None
    assert read.tls.client_ca is not None
    assert (read.tls.client_ca.text or "").startswith("-----BEGIN")
    assert read.tls.allowed_sans == {"prometheus.example", "2001:db8::1", "10.0.0.7"}
    assert read.tls.ciphers == ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256")
    assert read.tls.curves == ("X25519", "CurveP256")
    assert not read.tls.prefer_server_ciphers
    assert dict(read.headers) == {
        b"strict-transport-security": b"max-age=31536000",
        b"x-frame-options": b"sameorigin",
        b"x-xss-protection": b"1",
    }
    assert read.users["alice"] == HASH.encode()
    assert read.rate_limit == RateLimit(60.5, 3)
    assert read.notes == (
        "web.yml:15: key 'http_server_config.http2': has no effect, only HTTP/1.1 is served",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a", "web.yml:1: expected a mapping of tls_server_config, http_server_config, "),
        (
            "\ntls_server_confg: {}",
            "web.yml:2: key 'tls_server_confg': not known, did you mean",
        ),
        ("tls_server_config: {zzz: a}", "key 'tls_server_config.zzz': not known, expected one of "),
        ("tls_server_config: on", "key 'tls_server_config': expected a mapping"),
        ("tls_server_config: {cert_file: 1}", "cert_file': expected text, got 1"),
        ("tls_server_config: {cert: 17}", "cert': expected text in PEM form"),
        (TLS + ", client_auth_type: requireandverifyclientcert}", "did you mean RequireAndVerify"),
        (TLS + ", client_allowed_sans: [a]}", "no certificate is asked for"),
        (TLS + ", client_allowed_sans: []}", "nobody could connect"),
        (TLS + ", client_allowed_sans: [1]}", "client_allowed_sans.0': expected text, got 1"),
        (TLS + ", client_allowed_sans: a}", "expected a list of texts"),
        (TLS + ", min_version: 1.2}", "min_version': expected text, got 1.2"),
        (
            TLS + ", min_version: TLS13, max_version: TLS12}",
            "expected at least min_version",
        ),
        (TLS + ", prefer_server_cipher_suites: 1}", "expected true or false, got 1"),
        ("http_server_config: {http2: maybe}", "expected true or false, got 'maybe'"),
        ('http_server_config: {headers: {X-Frame-Options: ""}}', "expected deny or sameorigin"),
        ('http_server_config: {headers: {X-XSS-Protection: "a\\r\\nb: c"}}', "printable ASCII"),
        ("http_server_config: {headers: {X-XSS-Protection: [1]}}", "expected text, got a list"),
        ("basic_auth_users: [a]", "key 'basic_auth_users': expected a mapping"),
        (f"basic_auth_users: {{'': {HASH}}}", "expected a user's name"),
        (f"basic_auth_users: {{'a:b': {HASH}}}", "expected a user's name, without a colon"),
        ("rate_limit: {interval: 1}", "expected a duration such as 1s, 100ms or 1m30s, got 1"),
        ("rate_limit: {interval: -1s}", "expected a duration"),
        ("rate_limit: {interval: false}", "expected a duration"),
        ("rate_limit: {interval: 1s, burst: -1}", "expected a whole number from 0 to 2147483647"),
        ("rate_limit: {burst: 1.5}", "expected a whole number from 0"),
        (f"rate_limit: {{burst: {'9' * 400}}}", "got a very large number"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, message: str) -> None:
    """In one line."""
    refused = refusal(text)

    assert message in refused
    assert refused.startswith("web.yml:")
    assert refused.isprintable()


@pytest.mark.parametrize(
    "value",
    [
        "hunter2",
        "$2b$03$" + "." * 53,
        "$2b$19$" + "." * 53,
        "$2x$10$" + "." * 53,
        "$2b$10$" + "." * 52,
        "$2b$10$" + "." * 21 + "9" + "." * 31,
        "$1$hunter2",
        "{hunter2: 1}",
        "[hunter2]",
    ],
)
def test_what_is_no_hash_is_refused_unseen(value: str) -> None:
    """It may be the password itself."""
    refused = refusal(f"basic_auth_users:\n  bob: {value}\n")

    assert refused.startswith("web.yml:2: key 'basic_auth_users.bob': expected a bcrypt hash")
    assert "hunter2" not in refused
    assert value not in refused


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("rate_limit: {interval: 1s}", "web.yml:1: key 'rate_limit': with a burst of 0, every "),
        (
            TLS + ", client_auth_type: RequireAndVerifyClientCert}",
            "no client's certificate is",
        ),
        (TLS + ", cert: abc}", "key 'tls_server_config.cert': has no effect beside cert_file"),
    ],
)
def test_what_is_hardly_meant_is_said(text: str, note: str) -> None:
    """The toolkit accepts it, so it is not refused."""
    (line,) = config(text).notes

    assert note in line
    assert line.startswith("web.yml:1:")


LENGTHS = {
    "0": 0.0,
    "1s": 1.0,
    "100ms": 0.1,
    "1m30s": 90.0,
    "1.5h": 5400.0,
    ".5s": 0.5,
    "1.s": 1.0,
    "+2us": 2e-6,
    "2\u00b5s": 2e-6,
    "3ns": 3e-9,
}


def test_durations_are_those_of_go() -> None:
    """What time.ParseDuration reads; others are refused rather than guessed."""
    assert {text: seconds(text) for text in LENGTHS} == pytest.approx(LENGTHS)
    for text in ("", "1", "s", ".s", "1 s", "-1s", "1d", "1e3s", "1S"):
        with pytest.raises(ValueError, match="not a duration"):
            seconds(text)


KEYS = st.sampled_from(
    [*schema._TOP, *schema._TLS, *HEADERS, "http2", "headers", "interval", "burst"]
)
WORDS = st.sampled_from(
    [*CIPHERS, *CIPHERS_OF_TLS13, *CLIENT_AUTH, *CURVES, *VERSIONS, HASH, "1s", "deny", "a.pem", ""]
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | WORDS
VALUES = st.recursive(
    LEAVES,
    lambda below: (
        st.lists(below, max_size=4) | st.dictionaries(KEYS | st.text(), below, max_size=6)
    ),
    max_leaves=20,
)
SECTIONS = st.dictionaries(KEYS, st.dictionaries(KEYS, LEAVES | st.lists(WORDS, max_size=3)))


@given(VALUES | SECTIONS)
def test_no_content_raises_anything_but_the_refusal(value: Any) -> None:
    """Whatever YAML holds, it is a configuration or one line about why it is none."""
    text = yaml.safe_dump(value, allow_unicode=False)
    with suppress(ConfigError):
        assert isinstance(config(text), WebConfig)


@given(st.text())
def test_no_text_raises_anything_but_the_refusal(text: str) -> None:
    """Whatever the file holds."""
    with suppress(ConfigError):
        assert isinstance(config(text), WebConfig)

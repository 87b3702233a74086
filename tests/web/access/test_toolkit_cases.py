# SPDX-License-Identifier: Apache-2.0
"""Each kind of file that exporter-toolkit is tested with is accepted or refused as it is there.

The files are written anew. Two of the toolkit's are refused on purpose: they ask for certificates
without verifying them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.errors import ConfigError
from exporter.web.access.reload import load
from tests.web.access.authority import write_files

BCRYPT = "$2y$10$abcdefghijklmnopqrstuuZ1N8pT4m0c4v2XbN9fQy8a3oO5s6dWe"
COSTLY = BCRYPT.replace("$10$", "$18$")
TLS = "tls_server_config: {cert_file: node.crt, key_file: node.key"
IF_GIVEN = f"{TLS}, client_auth_type: VerifyClientCertIfGiven"
REQUIRED = f"{TLS}, client_auth_type: RequireAndVerifyClientCert"
CA = "client_ca_file: clients.pem"
USERS = f"basic_auth_users: {{ann: {BCRYPT}, bo: {COSTLY}}}"
ONLY_12 = "min_version: TLS12, max_version: TLS12"
SLOW_FIRST = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
NOT_FOR_HTTP2 = "cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384]"
ALL_CIPHERS = (
    "TLS_AES_128_GCM_SHA256, TLS_AES_256_GCM_SHA384, TLS_CHACHA20_POLY1305_SHA256,"
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA,"
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA, TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA,"
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,"
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,"
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"
)
HEADERS = """\
http_server_config:
  headers:
    Content-Security-Policy: "default-src 'self' *.node.example"
    Strict-Transport-Security: max-age=86400; includeSubDomains
    X-Content-Type-Options: nosniff
    X-Frame-Options: deny
    X-XSS-Protection: 1
"""

GOOD = {
    "empty": "",
    "users": f"{TLS}}}\n{USERS}",
    "users without TLS": USERS,
    "certificates verified if given, no CA": f"{IF_GIVEN}}}",
    "certificates required, no CA": f"{REQUIRED}}}",
    "certificates required": f"{REQUIRED}, {CA}}}",
    "names of clients": f"{REQUIRED}, {CA}, client_allowed_sans: [left, right]}}",
    "all ciphers": f"{IF_GIVEN}, cipher_suites: [{ALL_CIPHERS}]}}",
    "some ciphers": f"{IF_GIVEN}, {ONLY_12}, cipher_suites: [{SLOW_FIRST}]}}",
    "some ciphers in the client's order": f"{IF_GIVEN}, {ONLY_12}, "
    f"prefer_server_cipher_suites: false, cipher_suites: [{SLOW_FIRST}]}}",
    "ciphers that HTTP/2 cannot use, without HTTP/2": f"{IF_GIVEN}, max_version: TLS12, "
    f"{NOT_FOR_HTTP2}}}\nhttp_server_config: {{http2: false}}",
    "all curves": f"{IF_GIVEN}, curve_preferences: [X25519, CurveP521, CurveP384, CurveP256]}}",
    "some curves": f"{IF_GIVEN}, min_version: TLS13, curve_preferences: [CurveP521]}}",
    "headers": HEADERS,
    "no rate limit": "rate_limit: {interval: 0, burst: 0}",
    "a rate limit of a second": 'rate_limit: {interval: "1s", burst: 0}',
}

BAD = {
    "k3Jx\nP0aa\nzzQ1\n": "expected a mapping",
    f"{TLS}, client_ca_file: /dev/null}}": "without a client_auth_type",
    'tls_server_config: {cert_file: "", key_file: node.key}': "cert or",
    'tls_server_config: {cert_file: node.crt, key_file: ""}': "one of key or",
    'tls_server_config: {cert_file: "", key_file: "", client_auth_type: "x"}': "one of cert or",
    "tls_server_config: {cert_file: nowhere, key_file: node.key}": "No such file",
    "tls_server_config: {cert_file: node.crt, key_file: nowhere}": "No such file",
    f"{TLS}, cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_512_GCM_SHA384]}}": "is not known",
    f"{TLS}, curve_preferences: [CurveP123]}}": "is not known",
    f"{TLS}, min_version: TLS19}}": "is not known",
    f"{TLS}, max_version: TLS12, {NOT_FOR_HTTP2}}}": "which HTTP/2 needs",
    "http_server_config: {headers: {X-Content-Type-Options: smell}}": "expected nosniff",
    "http_server_config: {headers: {X-Frame-Options: maybe}}": "expected deny or sameorigin",
    "http_server_config: {headers: {Server: me}}": "not known",
}

ON_PURPOSE = {
    f"{TLS}, client_auth_type: {word}}}": f"{word} does not verify certificates"
    for word in ("RequireAnyClientCert", "RequestClientCert", "RequireClientCert")
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_files(tmp_path)


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD)
def test_what_the_toolkit_accepts_is_accepted(folder: Path, text: str) -> None:
    """A file of other exporters can be used here."""
    (folder / "web.yml").write_text(text)

    made = load(folder / "web.yml")

    assert (made.context is not None) is ("tls_server_config" in text)


@pytest.mark.parametrize(("text", "message"), [*BAD.items(), *ON_PURPOSE.items()])
def test_what_the_toolkit_refuses_is_refused(folder: Path, text: str, message: str) -> None:
    """With the place, and what was expected."""
    (folder / "web.yml").write_text(text)

    with pytest.raises(ConfigError) as caught:
        load(folder / "web.yml")

    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{folder}/web.yml:")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """It was named, so it is wanted."""
    with pytest.raises(ConfigError, match=r"cannot read .*nowhere\.yml: No such file"):
        load(tmp_path / "nowhere.yml")

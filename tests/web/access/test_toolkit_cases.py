# SPDX-License-Identifier: Apache-2.0
"""Each kind of file that exporter-toolkit is tested with is accepted or refused as it is there.

The files are written anew. Two of the toolkit's are refused on purpose: they ask for certificates
without verifying them.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from exporter.errors import ConfigError
from exporter.web.access.reload import load
from tests.web.access.authority import ca_pem, cert_pem, client, key_pem, server, write_files

BCRYPT = "$2y$10$abcdefghijklmnopqrstuuZ1N8pT4m0c4v2XbN9fQy8a3oO5s6dWe"
COSTLY = BCRYPT.replace("$10$", "$18$")
PAIR = "cert_file: node.crt\n  key_file: node.key\n"
IF_GIVEN = f"tls_server_config:\n  {PAIR}  client_auth_type: VerifyClientCertIfGiven\n"


def inline(key: str, pem: bytes) -> str:
    return f"  {key}: |\n" + textwrap.indent(pem.decode(), "    ")


GOOD = {
    "empty": "",
    "users": f"tls_server_config:\n  {PAIR}basic_auth_users:\n  ann: {BCRYPT}\n  bo: {COSTLY}\n",
    "users without TLS": f"basic_auth_users:\n  ann: {BCRYPT}\n  bo: {COSTLY}\n",
    "certificates verified if given, no CA": IF_GIVEN,
    "certificates required, no CA": (
        f"tls_server_config:\n  {PAIR}  client_auth_type: RequireAndVerifyClientCert\n"
    ),
    "certificates required": (
        f"tls_server_config:\n  {PAIR}  client_auth_type: RequireAndVerifyClientCert\n"
        "  client_ca_file: clients.pem\n"
    ),
    "names of clients": (
        f"tls_server_config:\n  {PAIR}  client_auth_type: RequireAndVerifyClientCert\n"
        "  client_ca_file: clients.pem\n  client_allowed_sans:\n  - left\n  - right\n"
    ),
    "all in the file": "tls_server_config:\n"
    + inline("cert", cert_pem(server()))
    + inline("key", key_pem(server()))
    + "  client_auth_type: VerifyClientCertIfGiven\n",
    "all ciphers": IF_GIVEN
    + """\
  cipher_suites:
    - TLS_AES_128_GCM_SHA256
    - TLS_AES_256_GCM_SHA384
    - TLS_CHACHA20_POLY1305_SHA256
    - TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA
    - TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA
    - TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA
    - TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA
    - TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
    - TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
    - TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
    - TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384
    - TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256
    - TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
""",
    "some ciphers": IF_GIVEN
    + """\
  min_version: TLS12
  max_version: TLS12
  cipher_suites:
    - TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
    - TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
""",
    "some ciphers in the client's order": IF_GIVEN
    + """\
  min_version: TLS12
  max_version: TLS12
  prefer_server_cipher_suites: false
  cipher_suites:
    - TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
    - TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
""",
    "ciphers that HTTP/2 cannot use, without HTTP/2": IF_GIVEN
    + """\
  max_version: TLS12
  cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384]
http_server_config:
  http2: false
""",
    "all curves": IF_GIVEN + "  curve_preferences: [X25519, CurveP521, CurveP384, CurveP256]\n",
    "some curves": IF_GIVEN + "  min_version: TLS13\n  curve_preferences: [CurveP521]\n",
    "headers": """\
http_server_config:
  headers:
    Content-Security-Policy: "default-src 'self' *.node.example"
    Strict-Transport-Security: max-age=86400; includeSubDomains
    X-Content-Type-Options: nosniff
    X-Frame-Options: deny
    X-XSS-Protection: 1
""",
    "no rate limit": "rate_limit:\n  interval: 0\n  burst: 0\n",
    "a rate limit of a second": 'rate_limit:\n  interval: "1s"\n  burst: 0\n',
}

BAD = {
    "junk": ("k3Jx\nP0aa\nzzQ1\n", "expected a mapping"),
    "a CA without a policy": (
        f"tls_server_config:\n  {PAIR}  client_ca_file: /dev/null\n",
        "without a client_auth_type",
    ),
    "no certificate": ('tls_server_config:\n  cert_file: ""\n  key_file: node.key\n', "cert or"),
    "no key": ('tls_server_config:\n  cert_file: node.crt\n  key_file: ""\n', "one of key or"),
    "neither, and a policy": (
        'tls_server_config:\n  cert_file: ""\n  key_file: ""\n  client_auth_type: "x"\n',
        "missing one of cert or cert_file",
    ),
    "a certificate that is not there": (
        "tls_server_config:\n  cert_file: nowhere\n  key_file: node.key\n",
        "No such file",
    ),
    "a key that is not there": (
        "tls_server_config:\n  cert_file: node.crt\n  key_file: nowhere\n",
        "No such file",
    ),
    "an invented cipher": (
        IF_GIVEN + "  cipher_suites:\n  - TLS_ECDHE_ECDSA_WITH_AES_512_GCM_SHA384\n",
        "is not known",
    ),
    "an invented curve": (IF_GIVEN + "  curve_preferences:\n  - CurveP123\n", "is not known"),
    "an invented version": (IF_GIVEN + "  min_version: TLS19\n", "is not known"),
    "ciphers that HTTP/2 cannot use": (
        IF_GIVEN
        + "  max_version: TLS12\n  cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384]\n",
        "which HTTP/2 needs",
    ),
    "another X-Content-Type-Options": (
        "http_server_config:\n  headers:\n    X-Content-Type-Options: smell\n",
        "expected nosniff",
    ),
    "another X-Frame-Options": (
        "http_server_config:\n  headers:\n    X-Frame-Options: maybe\n",
        "expected deny or sameorigin",
    ),
    "another header": ("http_server_config:\n  headers:\n    Server: me\n", "not known"),
}

ON_PURPOSE = {
    "any certificate": (
        f"tls_server_config:\n  {PAIR}  client_auth_type: RequireAnyClientCert\n",
        "RequireAnyClientCert does not verify certificates",
    ),
    "a certificate that nobody looks at": (
        f"tls_server_config:\n  {PAIR}  client_auth_type: RequestClientCert\n",
        "RequestClientCert does not verify certificates",
    ),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_files(tmp_path)
    (tmp_path / "clients.pem").write_bytes(ca_pem() + cert_pem(client()))
    return tmp_path


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD)
def test_what_the_toolkit_accepts_is_accepted(folder: Path, text: str) -> None:
    """A file of other exporters can be used here."""
    (folder / "web.yml").write_text(text)

    made = load(folder / "web.yml")

    assert (made.context is not None) is ("tls_server_config" in text)


@pytest.mark.parametrize(("text", "message"), [*BAD.values(), *ON_PURPOSE.values()])
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

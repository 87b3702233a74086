# SPDX-License-Identifier: Apache-2.0
"""The contexts do what the file says, seen from the other end of a connection."""

from __future__ import annotations

import contextlib
import os
import ssl
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import ConfigError
from exporter.web.access.config import normal
from exporter.web.access.reload import ActiveConfig, load
from exporter.web.access.tls import allowed
from tests.web.access.authority import (
    authority,
    ca_pem,
    cert_pem,
    client,
    client_context,
    key_pem,
    server,
    write_files,
)
from tests.web.access.handshakes import GREETING, handshake

FILES = "  cert_file: node.crt\n  key_file: node.key\n"
CA = "  client_ca_file: clients.pem\n"
VERIFY = f"  client_auth_type: RequireAndVerifyClientCert\n{CA}"
IF_GIVEN = f"  client_auth_type: VerifyClientCertIfGiven\n{CA}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_files(tmp_path)


def loaded(folder: Path, text: str) -> ActiveConfig:
    (folder / "web.yml").write_text(text, encoding="utf-8")
    return load(folder / "web.yml")


def context(folder: Path, keys: str = "", rest: str = "") -> ssl.SSLContext:
    made = loaded(folder, f"tls_server_config:\n{FILES}{keys}{rest}").context
    assert made is not None
    return made


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(folder, text)
    return str(caught.value).replace(str(folder), "DIR")


def test_a_browser_that_knows_http_2_is_told_that_this_is_http_1_1(folder: Path) -> None:
    """With the newest version of TLS."""
    browser = client_context()
    browser.set_alpn_protocols(["h2", "http/1.1"])
    agreed = handshake(context(folder), browser)
    assert (agreed.greeting, agreed.version) == (GREETING, "TLSv1.3")
    assert agreed.protocol == "http/1.1"


def test_certificate_and_key_may_stand_in_the_file(folder: Path) -> None:
    """They are on no disk but in it: there is nothing to clean up."""
    texts = {"cert": cert_pem(server()), "key": key_pem(server()), "client_ca": ca_pem()}
    lines = [
        f"  {key}: |\n" + "".join(f"    {line}\n" for line in pem.decode().splitlines())
        for key, pem in texts.items()
    ]
    before = len(os.listdir("/proc/self/fd"))
    inline = loaded(
        folder,
        "tls_server_config:\n  client_auth_type: RequireAndVerifyClientCert\n" + "".join(lines),
    ).context
    assert inline is not None

    assert len(os.listdir("/proc/self/fd")) == before
    assert handshake(inline, client_context(leaf=client())).greeting == GREETING
    assert handshake(inline, client_context()).greeting == b""


@pytest.mark.parametrize(
    ("keys", "leaf", "is_accepted"),
    [
        ("", None, True),
        (VERIFY, None, False),
        (VERIFY, client(), True),
        (VERIFY, client("other"), False),
        (IF_GIVEN, None, True),
        (IF_GIVEN, client(), True),
        (IF_GIVEN, client("other"), False),
        (VERIFY.replace(CA, ""), client(), False),
        (IF_GIVEN.replace(CA, ""), client(), False),
        (IF_GIVEN.replace(CA, ""), None, True),
    ],
)
@pytest.mark.parametrize("version", ["TLS12", "TLS13"])
def test_clients_are_verified(
    folder: Path, keys: str, leaf: object, is_accepted: bool, version: str
) -> None:
    """By the authority that is named; without one, nobody's certificate is trusted."""
    made = context(folder, keys, f"  max_version: {version}\n")

    agreed = handshake(made, client_context(leaf=leaf))  # type: ignore[arg-type]

    assert (agreed.greeting == GREETING) is is_accepted, agreed


def test_a_trusted_certificate_need_not_be_a_root(folder: Path) -> None:
    """As in Go: one between a root and the clients may be the one that is trusted."""
    between = authority().create_child_ca()
    (folder / "clients.pem").write_bytes(between.cert_pem.bytes())
    leaf = between.issue_cert("client.example")

    assert handshake(context(folder, VERIFY), client_context(leaf=leaf)).greeting == GREETING
    assert handshake(context(folder, VERIFY), client_context(leaf=client())).greeting == b""


@pytest.mark.parametrize("version", ["TLS12", "TLS13"])
def test_a_session_has_its_certificate_and_does_not_outlive_the_context(
    folder: Path, version: str
) -> None:
    """Its names can be compared; a ticket is void when the authority is not trusted any more."""
    keys = VERIFY + f"  max_version: {version}\n"
    old, client_side = context(folder, keys), client_context(leaf=client())
    session = handshake(old, client_side).session
    agreed = handshake(old, client_side, session)
    assert agreed.resumed
    assert agreed.peer is not None
    assert agreed.peer["subjectAltName"] == (("DNS", "client.example"),)

    (folder / "clients.pem").write_bytes(ca_pem("other"))

    assert handshake(context(folder, keys), client_side, session).greeting == b""


@pytest.mark.parametrize(
    ("least", "most", "offered", "agreed"),
    [
        ("TLS12", "TLS13", ssl.TLSVersion.TLSv1_2, "TLSv1.2"),
        ("TLS13", "TLS13", ssl.TLSVersion.TLSv1_2, None),
        ("TLS12", "TLS12", ssl.TLSVersion.TLSv1_3, "TLSv1.2"),
        ("TLS12", "TLS13", ssl.TLSVersion.TLSv1_1, None),
        ("TLS11", "TLS13", ssl.TLSVersion.TLSv1_1, "TLSv1.1"),
        ("TLS10", "TLS10", ssl.TLSVersion.TLSv1, "TLSv1"),
    ],
)
def test_versions_are_limited(
    folder: Path, least: str, most: str, offered: ssl.TLSVersion, agreed: str | None
) -> None:
    """Also the old ones where they are asked for, without a warning of Python's."""
    made = context(folder, f"  min_version: {least}\n  max_version: {most}\n")
    client_side = client_context()
    client_side.set_ciphers("DEFAULT:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        client_side.minimum_version, client_side.maximum_version = ssl.TLSVersion.TLSv1, offered

    assert handshake(made, client_side).version == agreed


SETTABLE_X25519 = (
    [("X25519", "X25519", True), ("X25519", "prime256v1", False)]
    if sys.version_info >= (3, 11)
    else []
)
"""Python 3.10 sets only those curves that have keys of their own kind."""
CIPHERS = """\
  max_version: TLS12
  cipher_suites:
    - TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
    - TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
"""


@pytest.mark.parametrize(
    ("more", "offered", "chosen"),
    [
        ("", "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES128-GCM-SHA256", "AES128"),
        (
            "  prefer_server_cipher_suites: false\n",
            "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES128-GCM-SHA256",
            "AES256",
        ),
        ("", "ECDHE-ECDSA-CHACHA20-POLY1305", ""),
    ],
)
def test_ciphers_are_limited(folder: Path, more: str, offered: str, chosen: str) -> None:
    """In the server's order, or in the client's."""
    client_side = client_context()
    client_side.set_ciphers(offered)

    agreed = handshake(context(folder, CIPHERS + more), client_side)

    assert (chosen in agreed.cipher) if chosen else (agreed.greeting == b"")


def test_ciphers_of_tls_13_alone_leave_no_older_version(folder: Path) -> None:
    """None of the others was listed."""
    made = context(
        folder,
        "  cipher_suites: [TLS_AES_128_GCM_SHA256]\n",
        "http_server_config: {http2: false}\n",
    )
    client_side = client_context()

    assert handshake(made, client_side).version == "TLSv1.3"
    client_side.maximum_version = ssl.TLSVersion.TLSv1_2
    assert handshake(made, client_side).greeting == b""


@pytest.mark.parametrize(
    ("curves", "offered", "is_accepted"),
    [
        ("CurveP521", "secp521r1", True),
        ("CurveP521", "secp384r1", False),
        *SETTABLE_X25519,
        ("CurveP256, CurveP384, CurveP521, X25519", "secp384r1", True),
        ("CurveP384, CurveP256", "secp384r1", True),
    ],
)
def test_curves_are_limited(folder: Path, curves: str, offered: str, is_accepted: bool) -> None:
    """One of them, or all; several as far as Python can."""
    client_side = client_context()
    client_side.set_ecdh_curve(offered)

    agreed = handshake(context(folder, f"  curve_preferences: [{curves}]\n"), client_side)

    assert (agreed.greeting == GREETING) is is_accepted


def test_a_curve_that_cannot_be_set_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As X25519 in Python 3.10: OpenSSL chooses, and prefers it."""

    def fail(*_: object) -> None:
        raise ValueError("unknown elliptic curve name")

    monkeypatch.setattr(ssl.SSLContext, "set_ecdh_curve", fail)
    monkeypatch.setattr(ssl.SSLContext, "set_groups", None, raising=False)
    made = loaded(folder, f"tls_server_config:\n{FILES}  curve_preferences: [X25519]\n")

    assert [note.partition("': ")[2] for note in made.notes] == [
        "curve_preferences has no effect: this Python cannot set X25519"
    ]
    assert made.context is not None
    assert handshake(made.context, client_context()).greeting == GREETING


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("node.key", key_pem(client("other")), "the key does not belong to the certificate"),
        ("node.key", cert_pem(server()), "expected a private key in PEM form"),
        ("node.crt", key_pem(server()), "expected a certificate in PEM form"),
        ("node.crt", b"-----BEGIN CERTIFICATE-----\nAAAA\n", "certificate or key is damaged"),
        ("clients.pem", b"nobody", "key 'tls_server_config.client_ca_file': expected certificates"),
        ("clients.pem", None, "cannot read DIR/clients.pem: No such file or directory"),
        (
            "node.crt",
            b"x" * (1024 * 1024 + 1),
            "cannot read DIR/node.crt: it has more than",
        ),
    ],
)
def test_what_cannot_be_used_is_named(
    folder: Path, name: str, content: bytes | None, message: str
) -> None:
    """With the line of the key that names it, and nothing of what is in it."""
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)

    refused = refusal(folder, f"tls_server_config:\n{FILES}{VERIFY}")

    assert message in refused
    assert refused.startswith("DIR/web.yml:")
    assert refused.isprintable()


@pytest.mark.parametrize("password", [b"hunter2", b"x"])
def test_an_encrypted_key_is_refused_instead_of_asking(folder: Path, password: bytes) -> None:
    """There is no terminal, or worse, there is one."""
    key = serialization.load_pem_private_key(key_pem(server()), None)
    for form in (serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.TraditionalOpenSSL):
        encrypted = serialization.BestAvailableEncryption(password)
        pem = key.private_bytes(serialization.Encoding.PEM, form, encrypted)
        (folder / "node.key").write_bytes(pem)

        refused = refusal(folder, f"tls_server_config:\n{FILES}")

        assert refused == (
            "DIR/web.yml:3: key 'tls_server_config.key_file': the key is encrypted, expected one "
            "without a password"
        )


PEMS = {"node.crt": cert_pem(server()), "node.key": key_pem(server()), "clients.pem": ca_pem()}


@given(name=st.sampled_from(sorted(PEMS)), at=st.floats(0, 0.999), junk=st.binary(max_size=40))
def test_no_damage_to_a_file_raises_anything_but_the_refusal(
    tmp_path_factory: pytest.TempPathFactory, name: str, at: float, junk: bytes
) -> None:
    """What it does to OpenSSL is for OpenSSL to say."""
    folder = write_files(tmp_path_factory.getbasetemp())
    position = int(at * len(PEMS[name]))
    (folder / name).write_bytes(PEMS[name][:position] + junk + PEMS[name][position + len(junk) :])

    with contextlib.suppress(ConfigError):
        assert loaded(folder, f"tls_server_config:\n{FILES}{VERIFY}").context is not None


CERTIFICATE: dict[str, Any] = {
    "subject": ((("commonName", "common.example"),),),
    "subjectAltName": (
        ("DNS", "scraper.example"),
        ("email", "ops@example.org"),
        ("URI", "spiffe://example.org/scraper"),
        ("IP Address", "10.0.0.7"),
        ("IP Address", "2001:DB8:0:0:0:0:0:1"),
        ("othername", "<unsupported>"),
    ),
}
ALLOWED = (
    "scraper.example ops@example.org spiffe://example.org/scraper 10.0.0.7 ::ffff:10.0.0.7"
    " 2001:db8::1 2001:DB8:0::0:1"
)
OTHERS = "common.example example SCRAPER.example *.example 10.0.0.8 <unsupported>"


def test_one_allowed_name_is_enough() -> None:
    """Of any kind, addresses however they are written; neither the subject nor what is similar."""
    for name in ALLOWED.split():
        assert allowed(CERTIFICATE, {normal("nobody"), normal(name)}), name
    for name in OTHERS.split():
        assert not allowed(CERTIFICATE, {normal(name)}), name
    for certificate in (None, {}, {"subjectAltName": ()}):
        assert not allowed(certificate, {"scraper.example"})
        assert allowed(certificate, frozenset())

# SPDX-License-Identifier: Apache-2.0
"""Certificates of authorities that tests make up, and files that hold them."""

from __future__ import annotations

import ssl
from functools import cache
from pathlib import Path

import trustme


@cache
def _authority(name: str) -> trustme.CA:
    return trustme.CA(organization_name=name)


@cache
def _leaf(name: str, *identities: str) -> trustme.LeafCert:
    return _authority(name).issue_cert(*identities)


def authority(name: str = "first") -> trustme.CA:
    """One authority for each name."""
    return _authority(name)


def server(name: str = "first") -> trustme.LeafCert:
    """The certificate of a server on this machine, by the authority of that name."""
    return _leaf(name, "localhost", "127.0.0.1")


def client(name: str = "first", identity: str = "client.example") -> trustme.LeafCert:
    """The certificate of a client, by the authority of that name."""
    return _leaf(name, identity)


def cert_pem(leaf: trustme.LeafCert) -> bytes:
    return b"".join(blob.bytes() for blob in leaf.cert_chain_pems)


def key_pem(leaf: trustme.LeafCert) -> bytes:
    return leaf.private_key_pem.bytes()


def ca_pem(name: str = "first") -> bytes:
    return authority(name).cert_pem.bytes()


def write_files(folder: Path, name: str = "first") -> Path:
    """Write ``node.crt``, ``node.key`` and ``clients.pem`` by that authority into a folder."""
    (folder / "node.crt").write_bytes(cert_pem(server(name)))
    (folder / "node.key").write_bytes(key_pem(server(name)))
    (folder / "clients.pem").write_bytes(ca_pem(name))
    return folder


def client_context(trusts: str = "first", leaf: trustme.LeafCert | None = None) -> ssl.SSLContext:
    """The context of a client that trusts one authority's servers, and may have a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority(trusts).configure_trust(context)
    if leaf is not None:
        leaf.configure_cert(context)
    return context

# SPDX-License-Identifier: Apache-2.0
"""Makes the TLS context of the server, and says which clients may connect."""

from __future__ import annotations

import os
import ssl
import warnings
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager, nullcontext
from typing import Any

from exporter.errors import ConfigError, one_line
from exporter.web.access.config import CIPHERS, CLIENT_AUTH, CURVES, VERSIONS, Pem, Tls, normal

PROTOCOLS = ["http/1.1"]

_KINDS = frozenset({"DNS", "email", "URI", "IP Address"})

_KEY_BEGINS = b"PRIVATE KEY-----"
_CERTIFICATE_BEGINS = (b"-----BEGIN CERTIFICATE-----", b"-----BEGIN TRUSTED CERTIFICATE-----")
_OLD_VERSIONS = ("TLS10", "TLS11")
_LOWEST_LEVEL = "@SECLEVEL=0"
"""At any other, OpenSSL 3 has neither of the old versions."""


class _Encrypted(Exception):
    """The key is encrypted, and there is no terminal to ask for its password."""


def server_context(
    tls: Tls, cert: bytes, key: bytes, client_ca: bytes | None
) -> tuple[ssl.SSLContext, tuple[str, ...]]:
    """Return a new context, which ends older sessions, and a line for each setting without effect.

    ConfigError, in one line, names the place of what cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(PROTOCOLS)
    _set_versions(context, tls)
    _set_ciphers(context, tls)
    notes = _set_curves(context, tls)
    _load_certificate(context, tls, cert, key)
    context.verify_mode = CLIENT_AUTH[tls.client_auth]
    # As in Go, a certificate that is trusted need not be a root.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if tls.client_ca is not None:
        _load_client_ca(context, tls.client_ca, client_ca or b"")
    return context, notes


def _set_versions(context: ssl.SSLContext, tls: Tls) -> None:
    only_new = bool(tls.ciphers) and not set(tls.ciphers) & set(CIPHERS)
    is_old = tls.min_version in _OLD_VERSIONS
    # Python warns that the old versions are old; so does the documentation.
    with warnings.catch_warnings() if is_old else nullcontext():
        if is_old:
            warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = VERSIONS["TLS13" if only_new else tls.min_version]
        context.maximum_version = VERSIONS[tls.max_version]


def _set_ciphers(context: ssl.SSLContext, tls: Tls) -> None:
    chosen = [CIPHERS[name] for name in tls.ciphers if name in CIPHERS]
    if tls.min_version in _OLD_VERSIONS:
        chosen = [*(chosen or ["DEFAULT"]), _LOWEST_LEVEL]
    if chosen:
        try:
            context.set_ciphers(":".join(chosen))
        except ssl.SSLError as error:
            raise ConfigError(f"{tls.place}: OpenSSL has none of the cipher_suites") from error
    if tls.prefer_server_ciphers:
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    else:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE


def _set_curves(context: ssl.SSLContext, tls: Tls) -> tuple[str, ...]:
    curves = tls.curves
    if not curves or set(curves) == set(CURVES):
        return ()
    set_groups = getattr(context, "set_groups", None)  # from Python 3.15 on
    try:
        if set_groups is not None:
            set_groups(":".join(CURVES[name] for name in curves))
            return ()
        context.set_ecdh_curve(CURVES[curves[0]])
    except (ssl.SSLError, ValueError):  # X25519 in Python 3.10
        return (
            f"{tls.place}: curve_preferences has no effect: this Python cannot set {curves[0]}",
        )
    if len(curves) == 1:
        return ()
    return (
        f"{tls.place}: of curve_preferences only the first, {curves[0]}, is used: this Python can "
        "set one, or leave all",
    )


def _load_certificate(context: ssl.SSLContext, tls: Tls, cert: bytes, key: bytes) -> None:
    if not any(begins in cert for begins in _CERTIFICATE_BEGINS):
        raise ConfigError(f"{tls.cert.place}: expected a certificate in PEM form")
    if _KEY_BEGINS not in key:
        raise ConfigError(f"{tls.key.place}: expected a private key in PEM form")

    def password() -> str:
        raise _Encrypted

    try:
        with _in_memory(cert) as cert_path, _in_memory(key) as key_path:
            context.load_cert_chain(cert_path, key_path, password)
    except _Encrypted:
        raise ConfigError(
            f"{tls.key.place}: the key is encrypted, expected one without a password"
        ) from None
    except (ssl.SSLError, OSError, ValueError) as error:
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            problem = "the key does not belong to the certificate"
        elif "PEM lib" in str(error):  # OpenSSL says no more
            problem = "certificate or key is damaged, or not written to its end"
        else:
            problem = f"certificate and key cannot be used ({_reason(error)})"
        raise ConfigError(f"{tls.key.place}: {problem}") from error


def _load_client_ca(context: ssl.SSLContext, pem: Pem, data: bytes) -> None:
    try:
        with _in_memory(data) as path:
            context.load_verify_locations(path)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise ConfigError(
            f"{pem.place}: expected certificates in PEM form ({_reason(error)})"
        ) from error


@contextmanager
def _in_memory(data: bytes) -> Iterator[str]:
    """Give the path of a file that is on no disk: OpenSSL takes keys from files only."""
    descriptor = os.memfd_create("pem", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
    return one_line(str(reason).lower().replace("_", " "))


def allowed(certificate: Mapping[str, Any] | None, allowed_sans: Set[str]) -> bool:
    """Return whether a certificate has one of the names, exactly; without names, everybody may.

    It is as ``getpeercert()`` returns it; addresses are written as by `normal`.
    """
    if not allowed_sans:
        return True
    return any(
        (normal(name) if kind == "IP Address" else name) in allowed_sans
        for kind, name in (certificate or {}).get("subjectAltName", ())
        if kind in _KINDS
    )

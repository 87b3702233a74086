# SPDX-License-Identifier: Apache-2.0
"""The daemon that a command asks: its URL, and the credentials for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporter.cli.config import Address, Settings, Url
from exporter.cli.http_get import CLIENT_CERTIFICATE_FLAGS, Credentials, DaemonAddress
from exporter.errors import ConfigError, SourceError
from exporter.files import read_regular

if TYPE_CHECKING:
    import ssl

MOST_PASSWORD_BYTES = 4096
MOST_PEM_BYTES = 1024 * 1024

_LOOPBACK = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_KEY_BEGINS = b"PRIVATE KEY-----"


def daemon_of(settings: Settings, command: str) -> DaemonAddress:
    """Return the daemon that the settings name, else that of this node.

    Raises ConfigError if they contradict each other, SourceError if its web configuration is bad.
    """
    url, web_config = (settings.url, None) if settings.url else _local(settings, command)
    _refuse_contradictions(settings, url)
    return DaemonAddress(url, lambda: _credentials(settings, url, web_config))


def _local(settings: Settings, command: str) -> tuple[Url, Path | None]:
    """Return the address of this node's daemon, and the web configuration with its certificate."""
    address: Address = settings.web_listen_address
    if address.port == 0:
        raise ConfigError(f"{command}: web.listen-address has port 0, expected --url URL")
    host = _LOOPBACK.get(address.host, address.host)
    path = settings.web_config_file
    section = {} if path is None else _tls_section(path)
    if path is None or not section:
        return Url("http", host, address.port), None
    needs = section.get("client_auth_type") == "RequireAndVerifyClientCert"
    if needs and settings.url_cert_file is None:
        raise SourceError(f"{path}: a client certificate is needed ({CLIENT_CERTIFICATE_FLAGS})")
    is_told = settings.url_ca_file is not None or settings.url_insecure
    return Url("https", host, address.port), None if is_told else path


def _refuse_contradictions(settings: Settings, url: Url) -> None:
    """Raise ConfigError for a setting without effect, or one that needs another."""
    user = settings.url_user if url.user is None else url.user
    has_password = url.password is not None or settings.url_password_file is not None
    is_plain = url.scheme == "http"
    https = "expected an https:// address in --url"
    https += "" if settings.url is None else f", got {url}"
    both = "missing, expected a user and a password, or neither"
    for is_wrong, problem in (
        (is_plain and settings.url_ca_file, f"url.ca-file: {https}"),
        (is_plain and settings.url_cert_file, f"url.cert-file: {https}"),
        (is_plain and settings.url_insecure, f"url.insecure: {https}"),
        (
            settings.url_key_file and not settings.url_cert_file,
            "url.key-file: expected url.cert-file too",
        ),
        (
            settings.url_ca_file and settings.url_insecure,
            "url.insecure: expected no url.ca-file beside it",
        ),
        (url.user and settings.url_user, "url.user: expected no user in --url beside it"),
        (
            url.password is not None and settings.url_password_file,
            "url.password-file: expected no password in --url beside it",
        ),
        (user is not None and not has_password, f"url.password-file: {both}"),
        (user is None and has_password, f"url.user: {both}"),
    ):
        if is_wrong:
            raise ConfigError(problem)


def _authorization(settings: Settings, url: Url) -> str | None:
    from base64 import b64encode

    user = settings.url_user if url.user is None else url.user
    if user is None:
        return None
    password = url.password
    if settings.url_password_file is not None:
        password = secret("url.password-file", settings.url_password_file)
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


def secret(name: str, path: Path) -> str:
    """Return the secret in a file, without a newline; raise ConfigError if it has no text."""
    return _text(name, path, MOST_PASSWORD_BYTES).rstrip("\r\n")


def _credentials(settings: Settings, url: Url, web_config: Path | None) -> Credentials:
    authorization = _authorization(settings, url)
    if url.scheme == "http":
        return Credentials(authorization=authorization)
    context = _context(settings) if web_config is None else _context_of(web_config)
    _show_certificate(context, settings)
    found = Credentials(context, authorization, settings.url_cert_file is not None)
    if web_config is None:
        return found
    return replace(found, trust=f"expected the one of {web_config}")


def _context(settings: Settings) -> ssl.SSLContext:
    """Return a context that trusts the CA that the settings name, else those of the system."""
    import ssl

    context = ssl.create_default_context()
    if settings.url_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif settings.url_ca_file is not None:
        path = settings.url_ca_file
        text = _text("url.ca-file", path, MOST_PEM_BYTES)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _use("url.ca-file", path, lambda: context.load_verify_locations(cadata=text))
    return context


def _context_of(web_config: Path) -> ssl.SSLContext:
    """Return a context that trusts this web configuration's certificate, and nothing else.

    Host names are not verified: the address of this node is rarely in its certificate.
    """
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    # The certificate of a server is seldom that of a CA: a chain may end with it.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=_certificate(web_config))
    except (ssl.SSLError, ValueError) as error:
        problem = f"{web_config}: expected a certificate in PEM in cert_file or cert"
        raise SourceError(problem) from error
    return context


def _show_certificate(context: ssl.SSLContext, settings: Settings) -> None:
    """Load the client certificate of the settings into a context, if there is one."""
    path, key = settings.url_cert_file, settings.url_key_file
    if path is None:
        return
    # OpenSSL would block on a FIFO, and prompt for a password.
    certificate = _read("url.cert-file", path, MOST_PEM_BYTES)
    if key is not None:
        _read("url.key-file", key, MOST_PEM_BYTES)
    name = "url.cert-file" if key is None else "url.key-file"
    if key is None and _BEGIN.encode() in certificate and _KEY_BEGINS not in certificate:
        raise ConfigError(f"url.key-file: missing, expected it or a key in {path} (url.cert-file)")
    _use(name, key or path, lambda: context.load_cert_chain(path, key, password=lambda: b""))


def _use(name: str, path: Path, load: Callable[[], object]) -> None:
    try:
        load()
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = getattr(error, "reason", None) or "none is in it"
        if reason == "KEY_VALUES_MISMATCH":
            problem = "the key does not belong to the certificate"
        else:
            problem = f"expected PEM without a passphrase ({reason})"
        raise ConfigError(f"{name}: {path}: {problem}") from error


def _read(name: str, path: Path, most_bytes: int) -> bytes:
    try:
        return read_regular(path, most_bytes)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{name}: {path}: cannot be read ({reason})") from error


def _text(name: str, path: Path, most_bytes: int) -> str:
    try:
        return _read(name, path, most_bytes).decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name}: {path}: expected UTF-8 text") from error


def _tls_section(path: Path) -> dict[str, Any]:
    """Return the TLS section of the web configuration; the daemon itself checks it."""
    from exporter.yaml_lines import load

    try:
        value = load(path).value
    except ConfigError as error:
        raise SourceError(f"{error} (--url names the daemon without it)") from error
    section = value.get("tls_server_config") if isinstance(value, dict) else None
    return section if isinstance(section, dict) else {}


def _certificate(path: Path) -> str:
    """Return the first certificate of the web configuration, the server's own; none is empty."""
    section = _tls_section(path)
    text = section.get("cert") or ""
    if section.get("cert_file"):
        file = path.parent / str(section["cert_file"])
        try:
            text = read_regular(file, MOST_PEM_BYTES).decode()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise SourceError(f"{file}: cannot be read ({reason})") from error
    _, begin, rest = str(text).partition(_BEGIN)
    body, end, _ = rest.partition(_END)
    return f"{begin}{body}{end}" if begin and end else ""

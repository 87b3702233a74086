# SPDX-License-Identifier: Apache-2.0
"""GET a page of the daemon, with the standard library only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from exporter.cli.config import Url
from exporter.errors import SourceError

if TYPE_CHECKING:  # http and ssl are imported when the first request is made
    import ssl

    from exporter.exchange import Deadline

HEAD_BYTES = 65536
API_SECONDS = 10.0
"""Timeout of a request to the API: a busy daemon loads it at the first one."""
LOGIN_FLAGS = "--url.user, --url.password-file"
CLIENT_CERTIFICATE_FLAGS = "--url.cert-file, --url.key-file"

_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
"""OpenSSL's reasons when the server does not speak TLS."""
_OTHER_NAME = (62, 64)
"""X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""
_NO_CLIENT_CERTIFICATE = ("CERTIFICATE_REQUIRED", "HANDSHAKE_FAILURE")
_BAD_CLIENT_CERTIFICATE = (
    "UNKNOWN_CA",
    "BAD_CERTIFICATE",
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_REVOKED",
    "CERTIFICATE_UNKNOWN",
    "UNSUPPORTED_CERTIFICATE",
    "ACCESS_DENIED",
)
"""How the TLS alerts end by which a server refuses a client."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials and trusted certificates of a client; by default none."""

    context: ssl.SSLContext | None = None
    """Of a daemon that serves HTTPS; without one HTTP is spoken."""
    authorization: str | None = field(default=None, repr=False)
    """The header."""
    has_certificate: bool = False
    """Whether a client certificate is shown."""
    trust: str = "--url.ca-file names the CA that signs it"
    """The hint in the error if the daemon's certificate is not trusted."""


@dataclass(frozen=True, slots=True)
class DaemonAddress:
    """The URL of a daemon, and the credentials for it."""

    url: Url
    credentials: Callable[[], Credentials] = Credentials
    """Called for each request: passwords and certificates may be replaced."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The response."""

    url: str
    """The URL of the page, without user, password and query."""
    status: int
    body: bytes
    """Cut at `most_bytes`."""
    date: str | None = None
    """The Date header: the daemon's clock, by which its timestamps are."""


def get(daemon: DaemonAddress, path: str, *, seconds: float, most_bytes: int) -> Answer:
    """Return the response to a GET, complete within so many seconds.

    Uses no proxy of the environment, and follows no redirect.

    Raises SourceError if none comes, or a password is needed; ConfigError if a file cannot be used.
    """
    import http.client

    from exporter.exchange import Deadline, connected, get_lines, roundtrip

    url, page = daemon.url, f"{daemon.url}{path.partition('?')[0]}"
    credentials = daemon.credentials()
    headers = (
        {} if credentials.authorization is None else {"Authorization": credentials.authorization}
    )
    deadline = Deadline(seconds)
    try:
        request = get_lines(f"{url.path}{path}", url.host, url.port, headers)
        with (
            connected(url.host, url.port, deadline, credentials.context) as opened,
            roundtrip(opened, request, deadline, most_bytes + HEAD_BYTES) as response,
        ):
            body = response.read(most_bytes)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise SourceError(f"{page}: {_reason(error, url, credentials, deadline)}") from error
    if response.status == 401:
        problem = "expected" if credentials.authorization is None else "refused"
        raise SourceError(f"{page}: 401, user and password {problem} ({LOGIN_FLAGS})")
    return Answer(page, response.status, body, response.getheader("Date"))


def _reason(error: Exception, url: Url, credentials: Credentials, deadline: Deadline) -> str:
    """Return why there is no answer, and, where it is about TLS, what to do."""
    import http.client
    import ssl

    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if isinstance(error, ssl.SSLCertVerificationError):
        problem = f"its certificate is refused: {error.verify_message.rstrip('.')}"
        is_name = error.verify_code in _OTHER_NAME
        return f"{problem} ({'ask by a name that is in it' if is_name else credentials.trust})"
    if isinstance(error, ssl.SSLError):
        reason = error.reason or ""
        if reason in _NO_TLS:
            return "answers without TLS, expected http:// in --url"
        if reason.endswith(_BAD_CLIENT_CERTIFICATE) and credentials.has_certificate:
            return f"the client certificate is refused: {reason} ({CLIENT_CERTIFICATE_FLAGS})"
        if reason.endswith(_NO_CLIENT_CERTIFICATE) and not credentials.has_certificate:
            return f"a client certificate is needed ({CLIENT_CERTIFICATE_FLAGS})"
    is_cut = isinstance(error, ConnectionError | http.client.BadStatusLine | ssl.SSLEOFError)
    if not is_cut or isinstance(error, ConnectionRefusedError):
        return text
    if url.scheme == "http" and _speaks_tls(url, deadline):
        return "answers with TLS, expected https:// in --url, or --web.config.file"
    if url.scheme == "https":
        problem = "refused" if credentials.has_certificate else "needed"
        return f"{text}; a client certificate may be {problem} ({CLIENT_CERTIFICATE_FLAGS})"
    return text


def _speaks_tls(url: Url, deadline: Deadline) -> bool:
    """Return whether a TLS handshake succeeds, or fails only for the client's certificate."""
    import ssl

    from exporter.exchange import connected

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Nothing is sent or believed.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        connected(url.host, url.port, deadline, context).close()
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except (OSError, ValueError):
        return False
    return True

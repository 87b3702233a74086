# SPDX-License-Identifier: Apache-2.0
"""Whether the daemon answers that it is healthy, or ready; needs the standard library only."""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit

from exporter.config import Address, bracketed, one_line, shown
from exporter.errors import ConfigError

TIMEOUT_SECONDS = 3.0
MAX_BYTES = 1000

_CONNECTIONS = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
_PORTS = {"http": http.client.HTTP_PORT, "https": http.client.HTTPS_PORT}
_LOOPBACK = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


def base_url(address: Address) -> str:
    """Return where a daemon on this node that listens there is reached."""
    if address.port == 0:
        raise ConfigError("healthcheck: web.listen-address has port 0, expected --url URL")
    return f"http://{bracketed(_LOOPBACK.get(address.host, address.host))}:{address.port}"


def check(url: str, *, ready: bool, timeout_seconds: float = TIMEOUT_SECONDS) -> tuple[bool, str]:
    """Ask the daemon whose pages start at `url`; return its verdict and one line about it.

    Goes there directly: no proxy that the environment names is asked. Raises ConfigError for a
    `url` that is none.
    """
    parts = urlsplit(_checked(url))
    path = f"{parts.path.rstrip('/')}/-/{'ready' if ready else 'healthy'}"
    page = (
        f"{parts.scheme}://{bracketed(parts.hostname or '')}:{parts.port or _PORTS[parts.scheme]}"
    )
    connection = _CONNECTIONS[parts.scheme](
        parts.hostname or "", parts.port, timeout=timeout_seconds
    )
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read(MAX_BYTES).decode("utf-8", "replace").strip()
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return False, one_line(f"{page}{path}: {reason}")
    finally:
        connection.close()
    return response.status == 200, one_line(f"{page}{path}: {response.status} {body}".rstrip())


def _checked(url: str) -> str:
    """Return the URL with its scheme, which may be left out."""
    full = url if "//" in url else f"http://{url}"
    try:
        parts = urlsplit(full)
        if parts.scheme in _CONNECTIONS and parts.hostname and parts.port != 0:
            return full
    except ValueError:
        pass
    raise ConfigError(f"--url: expected a URL such as http://127.0.0.1:19400, got {shown(url)}")

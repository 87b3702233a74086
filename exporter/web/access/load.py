# SPDX-License-Identifier: Apache-2.0
"""Reads the web configuration file and all that it names, as one whole."""

from __future__ import annotations

import hashlib
import ssl
import time
from dataclasses import dataclass, field
from pathlib import Path

from exporter.errors import ConfigError, one_line
from exporter.web.access.files import Files
from exporter.web.access.schema import Pem, WebConfig, parse
from exporter.web.access.tls import server_context
from exporter.yaml_lines import decoded, loads


@dataclass(frozen=True)
class Loaded:
    """What the files say, ready for use."""

    config: WebConfig
    context: ssl.SSLContext | None
    digests: tuple[bytes, ...]
    """Of the content of each file, the configuration first."""
    notes: tuple[str, ...] = ()
    """What has no effect, or another one than was meant; a line each."""


@dataclass
class Reading:
    """One attempt to read the files; `files` knows them also after it failed."""

    path: Path
    now: float
    """Unix time, in seconds."""
    files: Files = field(init=False)
    _digests: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        self.files = Files(self.now)

    def load(self, before: Loaded | None = None) -> Loaded:
        """Read everything; return `before` itself where all content is the same.

        Raises:
            ConfigError: one line that names the place and the problem.
        """
        text = self._text()
        if before is not None and before.digests[:1] == self._digests:
            config = before.config
        else:
            config = self._config(text)
        tls = config.tls
        pems = [] if tls is None else [tls.cert, tls.key, tls.client_ca]
        cert, key, client_ca = [*map(self._pem, pems), None, None, None][:3]
        if before is not None and before.digests == self._digests:
            return before
        if tls is None:
            return Loaded(config, None, self._digests, config.notes)
        try:
            context, notes = server_context(tls, cert or b"", key or b"", client_ca)
        except ConfigError:
            raise
        except Exception as error:
            # OpenSSL has many ways to refuse what it reads, and Python some of its own.
            raise ConfigError(
                f"{tls.place}: TLS cannot be set up ({one_line(repr(error))})"
            ) from error
        return Loaded(config, context, self._digests, config.notes + notes)

    def _config(self, text: str) -> WebConfig:
        config = parse(loads(text, str(self.path)), self.path.parent)
        if config.users:
            try:
                import bcrypt  # noqa: F401 - here, and not when there may be no descriptor for it
            except ModuleNotFoundError as error:
                name = one_line(str(self.path))
                problem = f"{name}: basic_auth_users needs the Python package bcrypt"
                raise ConfigError(problem) from error
        return config

    def _text(self) -> str:
        try:
            data = self._read(self.path)
        except ConfigError as error:
            raise ConfigError(f"{error}, expected a YAML file") from error
        return decoded(data, one_line(str(self.path)))

    def _pem(self, pem: Pem | None) -> bytes | None:
        if pem is None:
            return None
        if pem.path is None:
            return (pem.text or "").encode()
        try:
            return self._read(pem.path)
        except ConfigError as error:
            raise ConfigError(f"{pem.place}: {error}") from error

    def _read(self, path: Path) -> bytes:
        data = self.files.read(path)
        self._digests += (hashlib.sha256(data).digest(),)
        return data


def load(path: Path) -> Loaded:
    """Read a web configuration file and what it names.

    Raises:
        ConfigError: one line that names the place and the problem.
    """
    return Reading(path, time.time()).load()

# SPDX-License-Identifier: Apache-2.0
"""A recording as its header and its ticks, read as a stream and no further than it is whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from exporter.errors import ConfigError
from exporter.sources.recording.files import Damage, read_lines
from exporter.sources.recording.header import Header, read_header
from exporter.sources.recording.lines import Malformed
from exporter.sources.recording.ticks import Tick, TickReader


class Recording:
    """A recording in a file."""

    def __init__(self, path: Path) -> None:
        """Read the header.

        Raises:
            ConfigError: there is no such file, or it does not begin as a recording.
        """
        self.path = path
        try:
            self.header: Header = read_header(next(read_lines(path), b""))
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
        except (Damage, Malformed) as error:
            raise ConfigError(f"{path}:1: {error}") from error

    def ticks(self) -> Iterator[Tick]:
        """Yield the ticks, in order.

        Raises:
            Damage: the rest cannot be played; the message names file and line.
        """
        reader = TickReader(self.header.version)
        number = 1
        try:
            for number, line in enumerate(read_lines(self.path), 1):
                if number > 1:
                    yield reader.read(line)
        except OSError as error:
            raise Damage(f"{self.path}: cannot be read: {error.strerror or error}") from error
        except Damage as error:
            raise Damage(f"{self.path}:{number + 1}: {error}") from error
        except Malformed as error:
            raise Damage(f"{self.path}:{number}: {error}") from error

# SPDX-License-Identifier: Apache-2.0
"""The lines of a recording in a file, plain or compressed, readable up to where it was cut."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator
from pathlib import Path

from exporter.files import open_regular
from exporter.sources.recording.bounds import LONGEST_LINE_BYTES

GZIP_MAGIC = b"\x1f\x8b"
GZIP_WINDOW_BITS = 31
"""With a header of no name and no time: the same readings make the same file."""
CHUNK_BYTES = 16384
STEP_BYTES = 512
"""How much is decompressed at once: of what is before the damage, no more than that is lost."""


class Damage(Exception):
    """The file cannot be read beyond this point."""


class LineFile:
    """Appends lines; after each `flush` the file on disk is complete and readable."""

    def __init__(self, path: Path, *, overwrite: bool = False) -> None:
        self.path = path
        compressed = path.suffix == ".gz"
        self._compress = zlib.compressobj(9, wbits=GZIP_WINDOW_BITS) if compressed else None
        self._pending: list[bytes] = []
        self._whole_bytes = 0
        """Length of the part of the file that flushes have written, without its end."""
        self._whole_end = b""
        """The end of the compressed stream, as written after that part."""
        self._file = path.open("wb" if overwrite else "xb", buffering=0)

    def write(self, line: bytes) -> None:
        """Take a line, to be written with the next flush."""
        self._pending.append(line if self._compress is None else self._compress.compress(line))

    def flush(self) -> None:
        """Write the lines taken so far and the end of the file, which the next flush overwrites.

        Raises:
            OSError: not all of them could be written; the file ends with the flush before.
        """
        end = b""
        if self._compress is not None:
            self._pending.append(self._compress.flush(zlib.Z_SYNC_FLUSH))
            end = self._compress.copy().flush()
        data = b"".join(self._pending)
        try:
            self._file.seek(self._whole_bytes)
            self._write_all(data + end)
        except OSError:
            self._cut()
            raise
        self._pending.clear()
        self._whole_bytes += len(data)
        self._whole_end = end

    def _write_all(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) or 0 :]

    def _cut(self) -> None:
        """Restore the file as the flush before had left it; that needs no more room than it had."""
        with contextlib.suppress(OSError):
            self._file.truncate(self._whole_bytes)
            self._file.seek(self._whole_bytes)
            self._write_all(self._whole_end)
        with contextlib.suppress(OSError):
            self._file.close()

    def close(self) -> int:
        """Write what is left and end the file; return its size in bytes.

        Raises:
            OSError: not all could be written; the file ends with the last good flush.
        """
        if not self._file.closed:
            self.flush()
            self._file.close()
        return self._whole_bytes + len(self._whole_end)


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a recording without their ends.

    Raises:
        Damage: the rest cannot be read, or is too long; all lines before it were yielded.
        OSError: the file cannot be opened or read, or is no regular file.
    """
    parts: list[bytes] = []
    length = 0
    for piece in _pieces(path):
        first, *others = piece.split(b"\n")
        parts.append(first)
        length += len(first)
        if length > LONGEST_LINE_BYTES:
            raise Damage(f"the line is too long, expected at most {LONGEST_LINE_BYTES} bytes")
        if others:
            yield b"".join(parts)
            yield from others[:-1]
            parts, length = [others[-1]], len(others[-1])
    if length:
        raise Damage("the line is cut off")


def _pieces(path: Path) -> Iterator[bytes]:
    with open_regular(path) as file:
        chunk = file.read(CHUNK_BYTES)
        if not chunk.startswith(GZIP_MAGIC):
            while chunk:
                yield chunk
                chunk = file.read(CHUNK_BYTES)
            return
        stream = zlib.decompressobj(GZIP_WINDOW_BITS)
        while not stream.eof:
            try:
                piece = stream.decompress(chunk, STEP_BYTES)
            except zlib.error as error:
                raise Damage(f"the compressed data is damaged ({error})") from error
            if piece:
                yield piece
            elif not chunk and not stream.eof:
                raise Damage("the compressed data is cut off")
            chunk = stream.unconsumed_tail or file.read(CHUNK_BYTES)
        if stream.unused_data or chunk:
            raise Damage("there is more after the end of the compressed data")

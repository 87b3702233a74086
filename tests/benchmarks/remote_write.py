# SPDX-License-Identifier: Apache-2.0
"""Prometheus's remote write protocol, as far as a benchmark needs it to give a server a past."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping

from tests.serving import answer_of

_SAMPLE = struct.Struct("<3sdc")
_LITERAL_BYTES = 1 << 24
_HEADERS = {
    "Content-Encoding": "snappy",
    "Content-Type": "application/x-protobuf",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}


def varint(number: int) -> bytes:
    """Return a number in protobuf's variable length."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def encode_labels(labels: Mapping[str, str]) -> bytes:
    """Return the labels of a series, the metric's name among them as `__name__`."""
    pairs = (_field(1, k.encode()) + _field(2, v.encode()) for k, v in sorted(labels.items()))
    return b"".join(_field(1, pair) for pair in pairs)


def encode_samples(samples: Iterable[tuple[int, float]]) -> bytes:
    """Return samples at Unix times in milliseconds."""
    out = []
    for at, value in samples:
        stamp = varint(at)
        out.append(_SAMPLE.pack(bytes([0x12, 10 + len(stamp), 0x09]), value, b"\x10") + stamp)
    return b"".join(out)


def encode_series(labels: bytes, samples: bytes) -> bytes:
    """Return a series of a write request; a request is any number of them."""
    return _field(1, labels + samples)


def snappy(content: bytes) -> bytes:
    """Return a valid snappy block that compresses nothing."""
    out = [varint(len(content))]
    for start in range(0, len(content), _LITERAL_BYTES):
        part = content[start : start + _LITERAL_BYTES]
        out.append(b"\xf8" + (len(part) - 1).to_bytes(3, "little") + part)
    return b"".join(out)


def requests(series: Iterable[bytes], most: int) -> Iterator[bytes]:
    """Yield write requests of so many series each."""
    ready: list[bytes] = []
    for each in series:
        ready.append(each)
        if len(ready) == most:
            yield b"".join(ready)
            ready.clear()
    if ready:
        yield b"".join(ready)


def write(url: str, request: bytes) -> None:
    """Send a write request."""
    answer_of(f"{url}/api/v1/write", snappy(request), _HEADERS, timeout=60)

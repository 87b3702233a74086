# SPDX-License-Identifier: Apache-2.0
"""Sends the totals of a thread to the daemon, as one datagram.

The format is described in docs/training-protocol.md.
"""

from __future__ import annotations

import json
import os
from _socket import AF_UNIX, SOCK_CLOEXEC, SOCK_DGRAM, socket
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from . import identity, names
from .degraded import FOUND, NO_FAILURES, raised_by_the_job

if TYPE_CHECKING:
    from .account import Account

VERSION = 1
REPORT_BYTES = 8192
ERROR_BYTES = 256
WORD_BYTES = 64
"""Of the framework's name and version, and of the precision."""
SECOND = 1_000_000_000
"""In nanoseconds, on the clock of the accounts."""
RETRY_SECONDS = 5
"""Before the next attempt while no daemon listens."""
LAST_WAIT_SECONDS = 0.1
"""The most that a last report waits for room in the socket: all ranks of a node may end at once."""
MEMORY_SECONDS = 10
"""Between two reads of the allocator's statistics, which are expensive."""
_MEMORY = (
    ("allocated", "allocated_bytes.all.current"),
    ("reserved", "reserved_bytes.all.current"),
    ("peak", "allocated_bytes.all.peak"),
)
"""The keys of the protocol and those of ``torch.cuda.memory_stats``."""


def candidates(environ: Mapping[str, str] = os.environ) -> Iterator[str]:
    """Yield the possible paths of the daemon's socket, in order of preference."""
    named = environ.get("ROOFLINE_TRAINING_SOCKET")
    if named:
        yield named
    yield "/run/roofline-exporter/training.sock"
    runtime = environ.get("XDG_RUNTIME_DIR")
    if runtime:
        yield os.path.join(runtime, "roofline-exporter", "training.sock")


def deliver(
    datagram: bytes, wait_seconds: float = 0.0, environ: Mapping[str, str] = os.environ
) -> bool:
    """Send a datagram to the first socket that accepts it; return False if no daemon listens.

    A socket that stays full for ``wait_seconds`` loses this datagram: the next one holds the same
    totals. No socket is kept open: the job's descriptors are its own. It is the C module's, because
    a job may put something else in the place of ``socket.socket``, as gevent does.
    """
    try:
        endpoint = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC)
    except OSError:  # the job holds as many descriptors as it may
        return False
    try:
        endpoint.settimeout(wait_seconds)
        for path in candidates(environ):
            try:
                endpoint.connect(path)
                endpoint.send(datagram)
            except (OSError, ValueError) as error:
                if raised_by_the_job(error):
                    raise
                if not isinstance(error, BlockingIOError | TimeoutError):
                    continue
            return True
    finally:
        endpoint.close()
    return False


def seconds(time_ns: int) -> str:
    """Return nanoseconds as seconds, exactly."""
    return f"{time_ns // SECOND}.{time_ns % SECOND:09d}"


def _number(amount: float) -> str:
    """Return a number that every reader of JSON takes, also one that has only doubles."""
    return repr(amount if amount < 1 << 53 else float(amount))


def _word(text: str | None) -> str | None:
    return None if text is None else names.fit(text, WORD_BYTES)


def _by_phase(times_ns: Mapping[str, int]) -> str:
    return ",".join([f'"{phase}":{seconds(time_ns)}' for phase, time_ns in times_ns.items()])


class Report:
    """Writes the reports of one account; caches the part that seldom changes."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._sequence = 0
        self._flops = 0.0
        """The last reported value, so that it never falls."""
        self._device: str | None = None
        self._prefix = ""
        self._prefix_of: tuple[object, ...] = ()
        self._memory = ""
        self._memory_due_ns = 0

    def send(self, now_ns: int, phase: str | None = None, *, ending: bool) -> bool:
        """Send the account's totals and the phase under way; False where no daemon listens."""
        if self._account.rank is None:
            self._account.rank = identity.rank()
        if not ending and now_ns >= self._memory_due_ns:
            self._memory_due_ns = now_ns + MEMORY_SECONDS * SECOND
            self._memory = _allocator()
        return deliver(self.write(phase, ending=ending), LAST_WAIT_SECONDS if ending else 0.0)

    def write(self, phase: str | None = None, *, ending: bool = False) -> bytes:
        """Return the datagram; the optional parts are left out if it would be too long."""
        account = self._account
        # The parts are read before the whole that holds them: the thread may go on meanwhile.
        idles_ns, phases_ns, wall_ns = account.times_ns()
        steps, batches, samples, flops = account.counts.totals()
        required = (
            f'{self._same(batches)},"sequence":{self._sequence},"steps":{steps}'
            f',"batches":{batches},"step_seconds":{seconds(wall_ns)}'
            f',"phase_seconds":{{{_by_phase(phases_ns)}}}'
        )
        parts = [""]
        if samples is not None:
            parts.append(f'"samples":{_number(samples)}')
        if flops is not None:
            done = account.meter.done(flops)
            self._flops = max(self._flops, flops if done is None else done)
            parts.append(f'"model_flops":{_number(self._flops)}')
            if done is None:
                parts.append('"model_flops_launched":true')
        if idles_ns:
            parts.append(f'"phase_gpu_idle_seconds":{{{_by_phase(idles_ns)}}}')
        if account.loader:
            parts.append(f'"loader":{json.dumps(account.loader)}')
            parts.append(f'"loader_start_seconds":{seconds(account.activity.restart_ns)}')
        if account.checkpoints:
            parts.append(f'"checkpoints":{account.checkpoints}')
        host = account.activity.recent()
        if host:
            parts.append(f'"host":{json.dumps({key: round(host[key], 6) for key in host})}')
        if self._memory:
            parts.append(self._memory)
        if FOUND:
            parts.append(_degraded())
        end = ',"exit":true}' if ending else "}" if phase is None else f',"in":"{phase}"}}'
        for optional in (",".join(parts), ""):
            datagram = (required + optional + end).encode()
            if len(datagram) <= REPORT_BYTES:
                break
        self._sequence += 1
        return datagram

    def _same(self, batches: int) -> str:
        """Return the part that seldom changes, without the comma after it."""
        account = self._account
        if self._device is None:
            self._device = identity.device(batches)
        same = (account.job, account.rank, self._device, account.precision, account.instrumentation)
        if self._prefix_of != same:
            # In this order: it may fail, as at the end of the job's recursion limit.
            self._prefix = self._identity()
            self._prefix_of = same
        return self._prefix

    def _identity(self) -> str:
        account = self._account
        known: dict[str, object] = {
            "version": VERSION,
            "id": account.id,
            "pid": os.getpid(),
            "job": account.job,
            "rank": account.rank,
            "world_size": identity.world_size(),
            "device": self._device,
            "framework": _word(identity.framework()),
            "precision": _word(account.precision),
            "instrumentation": account.instrumentation,
        }
        present = {key: value for key, value in known.items() if value is not None}
        return json.dumps(present, ensure_ascii=False, separators=(",", ":"))[:-1]


def _degraded() -> str:
    """Return the degraded parts of this process, and failures, as a part of a report."""
    part = f'"degraded":{json.dumps(list(FOUND))}'
    failures = [found for reason, found in FOUND.items() if reason not in NO_FAILURES]
    if failures:
        first = json.dumps(names.fit(failures[0], ERROR_BYTES))
        part += f',"errors":{len(failures)},"error":{first}'
    return part


def _allocator() -> str:
    """Return the allocator's bytes as a part of a report; empty if they cannot be read."""
    cuda = identity.cuda()
    if cuda is None:
        return ""
    try:
        statistics = cuda.memory_stats()
    except Exception as error:
        if raised_by_the_job(error):
            raise
        return ""
    pairs = [f'"{kind}":{int(statistics[key])}' for kind, key in _MEMORY if key in statistics]
    return f'"memory_bytes":{{{",".join(pairs)}}}' if pairs else ""

# SPDX-License-Identifier: Apache-2.0
"""What a report says, and where it goes."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.training import NO_DEVICE
from exporter.sources.training.decode import MOST_BYTES, VERSION, decode
from roofline_job import degraded, identity, reporter
from roofline_job.degraded import REASONS
from roofline_job.names import JOB_BYTES, fit
from roofline_job.reporter import (
    LAST_WAIT_SECONDS,
    REPORT_BYTES,
    Report,
    candidates,
    deliver,
    seconds,
)
from roofline_job.thread_accounts import PHASES, ThreadAccount
from tests.training.listener import Listener

pytestmark = pytest.mark.usefixtures("client")


def test_limits_and_phases_are_the_daemons() -> None:
    """The client cannot import them, so this compares them."""
    from exporter.model.training import TRAINING_PHASES

    assert (REPORT_BYTES, reporter.VERSION) == (MOST_BYTES, VERSION)
    assert PHASES == TRAINING_PHASES


def test_a_report_that_could_not_be_written_spoils_no_later_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As at the end of the job's recursion limit: the next one is whole again."""

    def too_deep() -> None:
        raise RecursionError

    report = Report(ThreadAccount("job", 0, "auto"))
    with monkeypatch.context() as limited:
        limited.setattr(identity, "framework", too_deep)
        with pytest.raises(RecursionError):
            report.write()
    assert decode(report.write()).job == "job"


def test_a_report_tells_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every field of the protocol arrives as it was counted."""
    statistics = {
        "allocated_bytes.all.current": 1,
        "reserved_bytes.all.current": 2,
        "allocated_bytes.all.peak": 3,
    }

    class Cuda:
        memory_stats = staticmethod(lambda: statistics)

    monkeypatch.setattr(identity, "cuda", Cuda)
    monkeypatch.setattr(identity, "device", lambda _: "none")
    monkeypatch.setattr(identity, "framework", lambda: "torch 2.13.0")
    monkeypatch.setattr(identity, "world_size", lambda: 8)
    sent: list[bytes] = []

    def take(datagram: bytes, _: float) -> bool:
        sent.append(datagram)
        return True

    monkeypatch.setattr(reporter, "deliver", take)
    account = ThreadAccount('"résnet"\\', 3, "auto")
    account.precision = "bf16"
    account.loader = {"workers": 4, "prefetch_factor": 2, "pin_memory": True, "ready_batches": 3}
    degraded.FOUND.update({"checkpoints": "a\nb", "client": "other"})
    _let_it_have(account, 100, 25_600, {"data": 1_500_000_000}, {"data": 7, "logging": 0}, 1.5e25)
    account.counts.add_batches(1, 200)
    account.wall_ns = 12_500_000_001
    report = Report(account)
    for ending in (False, True):
        report.send(0, ending=ending)
    claim = decode(sent[1])

    assert (claim.report_id, claim.job, claim.rank) == (account.id, '"résnet"\\', 3)
    assert (claim.pid, claim.sequence, claim.world_size) == (os.getpid(), 1, 8)
    assert (claim.framework, claim.precision) == ("torch 2.13.0", "bf16")
    assert (claim.instrumentation, claim.device) == ("auto", NO_DEVICE)
    assert (claim.totals.steps, claim.totals.batches, claim.totals.samples) == (100, 200, 25_600)
    assert (claim.totals.step_seconds, claim.totals.model_flops) == (12.500000001, 1.5e25)
    assert claim.totals.phase_seconds == {"data": 1.5}
    assert claim.totals.phase_gpu_idle_seconds == {"data": 7e-9}
    assert (claim.loader.workers, claim.loader.pin_memory, claim.loader.ready_batches) == (
        4,
        True,
        3,
    )
    assert claim.loader.persistent_workers is None
    assert claim.memory_bytes == {"allocated": 1, "reserved": 2, "peak": 3}
    assert set(claim.degraded) == {"checkpoints", "client"}
    assert (claim.errors, claim.error, claim.exited) == (2, "a_b", True)


def _let_it_have(
    account: ThreadAccount,
    steps: int,
    samples: float | None,
    phases_ns: dict[str, int],
    idles_ns: dict[str, int],
    flops: float | None,
) -> None:
    account.counts.explicit(steps, samples, flops)
    account.phase_ns.update(phases_ns)
    account.wall_ns = sum(phases_ns.values())
    account.meter.idle_ns = dict(idles_ns)
    account.meter.measuring = bool(idles_ns)


COUNTS = st.integers(0, 2**53)
TIMES = st.dictionaries(st.sampled_from(PHASES), st.integers(0, 10**17))


@given(st.text(), st.text(), st.text(), COUNTS, TIMES, st.one_of(st.none(), st.floats(0, 1e17)))
def test_every_report_is_taken(
    job: str, precision: str, error: str, steps: int, phases: dict[str, int], samples: float | None
) -> None:
    """Whatever the job is called and has done, the datagram is small enough and well formed."""
    degraded.FOUND.clear()
    degraded.FOUND.update(dict.fromkeys(REASONS, error * 50))
    account = ThreadAccount(fit(job, JOB_BYTES) or "python", 0, "client")
    account.precision = precision
    _let_it_have(account, steps, samples, phases, phases, samples)

    claim = decode(Report(account).write())

    assert claim.totals.steps == steps
    assert claim.totals.samples == samples
    assert set(claim.degraded) == set(REASONS)
    degraded.FOUND.clear()


def test_what_is_too_long_loses_what_it_can_do_without() -> None:
    """The totals are what matters."""
    account = ThreadAccount("job", 0, "client")
    account.loader = {"x" * 9_000: 1}
    account.counts.explicit(5, 7, None)
    claim = decode(Report(account).write())

    assert (claim.totals.steps, claim.totals.samples) == (5, None)


@given(st.integers(0, 10**18))
def test_seconds_are_exact(time_ns: int) -> None:
    """So sums of phases stay below the wall time, as they do in nanoseconds."""
    whole, _, part = seconds(time_ns).partition(".")

    assert int(whole) * 10**9 + int(part) == time_ns
    assert len(part) == 9


def test_the_device_stays_what_it_was_first_known_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """A series never changes its labels."""
    devices: list[str | None] = [None, "none", "GPU-1"]
    monkeypatch.setattr(identity, "device", lambda _: devices.pop(0))
    report = Report(ThreadAccount("job", 0, "client"))

    found = [json.loads(report.write()).get("device") for _ in range(3)]

    assert found == [None, "none", "none"]


def test_the_allocator_is_asked_every_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its statistics are expensive; in between the last ones are repeated."""
    asked: list[int] = []

    class Cuda:
        @staticmethod
        def memory_stats() -> dict[str, int]:
            asked.append(1)
            return {"allocated_bytes.all.current": len(asked)}

    monkeypatch.setattr(identity, "cuda", Cuda)
    monkeypatch.setattr(reporter, "deliver", lambda *_: True)
    report = Report(ThreadAccount("job", 0, "client"))
    for second in range(21):
        report.send(second * 10**9, ending=False)

    assert len(asked) == 3


def test_the_first_socket_that_takes_it_gets_it(
    listener: Listener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stale file, a path that is no socket and one that is too long are passed over."""
    stale = Listener(tmp_path / "stale.sock")
    stale.close()
    plain = tmp_path / "plain"
    plain.touch()
    long = tmp_path / ("x" * 120)
    for path in (stale.path, plain, long, tmp_path / "missing" / "x.sock"):
        monkeypatch.setattr(reporter, "candidates", lambda _, p=path: (str(p), str(listener.path)))
        assert deliver(b"{}")
    assert len(listener.datagrams()) == 4

    monkeypatch.setattr(reporter, "candidates", lambda _: (str(stale.path),))
    assert not deliver(b"{}")


def test_a_full_socket_loses_the_report_and_waits_for_nothing(listener: Listener) -> None:
    """The next report holds the same totals; even a job's default timeout is not waited for."""
    socket.setdefaulttimeout(30)
    try:
        assert all(deliver(b"{}") for _ in range(2_000))
    finally:
        socket.setdefaulttimeout(None)

    assert 0 < len(listener.datagrams()) < 2_000


def test_the_last_report_waits_until_a_full_socket_has_room(listener: Listener) -> None:
    """As when all ranks of a node end at once. It waits no longer where the daemon hangs."""
    for _ in range(2_000):
        deliver(b"{}")
    began = time.monotonic()
    assert deliver(b"lost", LAST_WAIT_SECONDS)
    assert LAST_WAIT_SECONDS * 0.9 <= time.monotonic() - began < 5

    reader = threading.Timer(0.02, listener.receive)
    reader.start()
    assert deliver(b"last", 0.9)
    reader.join()
    assert listener.datagrams()[-1] == b"last"


def test_candidates_are_tried_in_order() -> None:
    """What the job's environment names comes first."""
    environ = {"ROOFLINE_TRAINING_SOCKET": "/a", "XDG_RUNTIME_DIR": "/run/user/1"}

    assert list(candidates(environ)) == [
        "/a",
        "/run/roofline-exporter/training.sock",
        "/run/user/1/roofline-exporter/training.sock",
    ]
    assert list(candidates({})) == ["/run/roofline-exporter/training.sock"]


def test_nothing_else_may_stand_in_for_the_socket(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that replaces ``socket.socket`` (gevent, or a test that forbids it) does not see us."""

    def forbidden(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(socket, "socket", forbidden)

    assert deliver(b"{}")

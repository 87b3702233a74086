# SPDX-License-Identifier: Apache-2.0
"""From the one line in the loop to the report: host wait and exposed stall, to the nanosecond."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from exporter.publisher.ranks import WorkClaim
from exporter.publisher.work import StatedWork
from exporter.sources.training.decode import decode
from roofline_job import degraded, phase, step, switches, watch
from roofline_job.cuda_idle import IdleMeter
from roofline_job.process import PROCESS
from roofline_job.thread_accounts import ThreadAccount
from tests.training.fake_torch import FakeTorch
from tests.training.listener import Listener
from tests.training.scripted_cuda import MS, ScriptedGpu

HOOKED = ("torch.utils.data", "torch.utils.data.dataloader", "torch.optim.optimizer")


class Job:
    """A training job on a scripted GPU, and what it reports."""

    def __init__(self, gpu: ScriptedGpu, listener: Listener, account: ThreadAccount) -> None:
        self.gpu = gpu
        self.account = account
        self.fake = FakeTorch()
        self.datagrams = listener.datagrams

    def loader(self, *waits_ms: float) -> Any:
        """Return a torch DataLoader."""
        return self.fake.loader([functools.partial(self._arrive, ms) for ms in waits_ms])

    def _arrive(self, wait_ms: float) -> float:
        self.gpu.host(wait_ms)
        return wait_ms

    def optimizer_step(self) -> None:
        """Step an optimizer on the current stream."""
        self.fake.step(self)

    def iterable(self, *waits_ms: float) -> Iterator[float]:
        """Return a source of data that is not torch's."""
        for wait_ms in waits_ms:
            self.gpu.host(wait_ms)
            yield wait_ms

    def report(self) -> Any:
        """Return what the job says at its end, when the GPU has done all its work."""
        self.gpu.host(1e6)
        PROCESS.flush()
        datagram = self.datagrams()[-1]
        assert not degraded.FOUND
        assert self.gpu.violations == []
        return json.loads(datagram)


@pytest.fixture(name="job")
def _job(listener: Listener, no_torch: None, monkeypatch: pytest.MonkeyPatch) -> Job:
    gpu = ScriptedGpu()
    account = PROCESS.account("scripted")
    assert account is not None
    account.clock = lambda: gpu.now_ns
    job = Job(gpu, listener, account)
    gpu.torch.Tensor = job.fake.torch.Tensor
    modules = {"torch": gpu.torch, "torch.cuda": gpu.torch.cuda}
    modules |= {name: job.fake.modules[name] for name in HOOKED}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return job


def test_any_iterable(job: Job) -> None:
    """Work of 30 ms is queued for each batch; a wait of 40 ms after 1 ms of host time shows 11."""
    for _ in watch(job.iterable(40, 40, 10, 40), job="scripted"):
        job.gpu.launch(30)
        job.gpu.host(1)
    report = job.report()
    assert report["batches"] == 4
    assert report["phase_seconds"]["data"] == pytest.approx(0.130)
    # 40 with nothing queued; 40 - 29; 10 within the work; then 30 + 19 of it are left.
    assert report["phase_gpu_idle_seconds"]["data"] == pytest.approx(0.040 + 0.011 + 0 + 0)
    assert report["phase_gpu_idle_seconds"].keys() == {"data"}
    assert report["step_seconds"] == pytest.approx(0.134)
    assert report["device"] == "GPU-00000000-0000-0000-0000-000000000000"


def test_compute_on_a_side_stream(job: Job) -> None:
    """The loop itself runs on the default stream, which is always empty: S is the side stream's."""
    side = job.gpu.new_stream()
    for _ in watch(job.iterable(40, 40, 40), job="scripted"):
        with job.gpu.on(side):
            job.gpu.launch(30)
            job.optimizer_step()
    report = job.report()
    assert report["steps"] == 3
    assert report["phase_seconds"]["data"] == pytest.approx(0.120)
    assert report["phase_gpu_idle_seconds"]["data"] == pytest.approx(0.040 + 0.010 + 0.010)


def test_a_prefetcher_that_copies(job: Job) -> None:
    """Its inner DataLoader's wait is data; its own copying and waiting for the copy is h2d."""
    copies = job.gpu.new_stream()

    def prefetch(loader: Any) -> Iterator[float]:
        for batch in loader:
            with job.gpu.on(copies):
                job.gpu.launch(5)
            job.gpu.host(2)
            job.gpu.current_stream().wait_stream(copies)
            yield batch

    for _ in watch(prefetch(job.loader(40, 40)), job="scripted"):
        job.gpu.launch(30)
    report = job.report()
    assert report["phase_seconds"]["h2d"] == pytest.approx(0.004)
    assert report["phase_seconds"]["data"] == pytest.approx(0.080)
    # The copy takes 5 ms from the return of the loader, so the work ends 33 ms after the yield.
    assert report["phase_gpu_idle_seconds"]["data"] == pytest.approx(0.040 + 0.007)
    assert set(report["phase_gpu_idle_seconds"]) == {"data"}


def test_phases_around_waiting(job: Job) -> None:
    """Checkpoint and logging have their own S, unless another phase is inside them."""
    for _ in watch(job.iterable(10), job="scripted"):
        job.gpu.launch(8)
        with phase("logging"):
            job.gpu.host(3)
            with phase("checkpoint"):
                job.gpu.host(7)
            job.gpu.host(1)
        with phase("logging"):
            job.gpu.host(5)
        with phase("eval"):
            job.gpu.launch(20)
            job.gpu.current_stream().synchronize()
    report = job.report()
    waits, idles = report["phase_seconds"], report["phase_gpu_idle_seconds"]
    assert waits == {
        "data": pytest.approx(0.010),
        "logging": pytest.approx(0.009),
        "checkpoint": pytest.approx(0.007),
        "eval": pytest.approx(0.020),
    }
    assert idles == {
        "data": pytest.approx(0.010),
        "logging": pytest.approx(0.005),
        "checkpoint": pytest.approx(0.002),
    }


def test_events_can_be_switched_off(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """W is measured, S is absent."""
    monkeypatch.setattr(switches, "CUDA_EVENTS", False)
    job.account.meter = IdleMeter()
    for _ in watch(job.loader(40, 40), job="scripted"):
        job.gpu.launch(30)
        job.optimizer_step()
    report = job.report()
    assert report["phase_seconds"] == {"data": pytest.approx(0.080), "eval": 0}
    assert "phase_gpu_idle_seconds" not in report
    assert not [call for call in job.gpu.calls if call.startswith(("Event", "current_stream"))]


def test_without_cuda_only_the_wait_is_told(job: Job) -> None:
    """Before the job initialises CUDA nothing is asked of it, and S is absent rather than 0."""
    job.gpu.initialized = False
    job.gpu.contexts.clear()
    for _ in watch(job.loader(40, 40), job="scripted"):
        with phase("checkpoint"):
            job.gpu.host(5)
        job.optimizer_step()
    report = job.report()
    assert job.gpu.calls == []
    assert not job.gpu.contexts
    assert not report.get("phase_gpu_idle_seconds")
    assert report["phase_seconds"]["data"] == pytest.approx(0.080)


def test_cuda_initialised_in_the_first_step(job: Job) -> None:
    """The loop begins on the CPU; S counts from the first wait after the job's own CUDA call."""
    job.gpu.initialized = False
    job.gpu.contexts.clear()
    for batch, _ in enumerate(watch(job.iterable(40, 40, 40), job="scripted")):
        assert job.gpu.calls.count("Event.record") == 2 * batch
        job.gpu.initialized = True
        job.gpu.contexts.add(0)
        job.gpu.launch(30)
    report = job.report()
    assert report["phase_seconds"]["data"] == pytest.approx(0.120)
    assert report["phase_gpu_idle_seconds"]["data"] == pytest.approx(0.020)


def test_a_gpu_that_hangs_does_not_touch_the_wait(job: Job) -> None:
    """Events that never finish: W stays exact, S stops, and few events are in use."""
    job.gpu.stuck = True
    for _ in watch(job.iterable(*[10] * 500), job="scripted"):
        pass
    report = job.report()
    assert report["phase_seconds"]["data"] == pytest.approx(5.0)
    assert not report.get("phase_gpu_idle_seconds")
    assert job.gpu.events == 128


def test_evaluation_waits_are_data_and_its_body_is_eval(job: Job) -> None:
    """A loop that begins with gradients off trains nothing; its wait is exposed like any other."""
    for _ in watch(job.iterable(10), job="scripted"):
        job.gpu.launch(30)
        job.gpu.grad_enabled = False
        for _ in watch(job.iterable(40, 40), job="scripted"):
            job.gpu.launch(15)
        job.gpu.grad_enabled = True
    report = job.report()
    assert report["batches"] == 1
    assert report["phase_gpu_idle_seconds"]["data"] == pytest.approx(0.010 + 0.010 + 0.025)


def _say(job: Job) -> Any:
    """Return what the job reports now."""
    account = job.account
    return json.loads(account._report.write())


def test_flops_are_reported_once_the_gpu_has_done_them(job: Job) -> None:
    """The host launches ten times as fast as the GPU works.

    Until an optimizer steps a batch counts as a step as it comes: that one is ahead of its work.
    """
    flops = 1e12
    launched = 0
    for number, _ in enumerate(
        watch(job.iterable(*[1] * 100), job="scripted", flops_per_step=flops)
    ):
        job.gpu.launch(100)
        job.optimizer_step()
        launched += 1
        job.gpu.host(9)
        if number % 7 == 0:
            done = sum(end <= job.gpu.now_ns for _, end in job.gpu.current_stream().busy)
            report = _say(job)
            assert report["model_flops"] <= max(done, 1) * flops
            assert "model_flops_launched" not in report
    assert report["model_flops"] > 0
    said = [report["model_flops"]]
    for _ in range(100):
        job.gpu.host(100)
        done = sum(end <= job.gpu.now_ns for _, end in job.gpu.current_stream().busy)
        said.append(_say(job)["model_flops"])
        assert said[-2] <= said[-1] <= done * flops
    assert said[-1] == launched * flops


@pytest.mark.parametrize("ahead", [1, 20, 1000])
@pytest.mark.parametrize("host_ms", [3, 30, 51, 90, 100, 700])
@pytest.mark.parametrize("unseen", [0, 30])
def test_no_lower_bound_exceeds_what_the_gpu_has_done(
    job: Job, host_ms: float, ahead: int, unseen: int
) -> None:
    """The host launches steps of 100 ms, at most so many ahead; the exporter comes later or not."""
    work, claims, lower = StatedWork(), [], 0.0
    begun: float | None = None

    def done() -> float:
        now = job.gpu.now_ns
        spans = job.gpu.current_stream().busy
        return sum(max(0, min(now, end) - begin) for begin, end in spans) / (100 * MS) * 1e12

    for number, _ in enumerate(
        watch(job.iterable(*[0] * 300), job="scripted", flops_per_step=1e12)
    ):
        job.gpu.launch(100)
        job.optimizer_step()
        job.gpu.host(host_ms)
        job.gpu.host(
            max(0.0, (job.gpu.current_stream().drain_ns - job.gpu.now_ns) / MS - ahead * 100)
        )
        datagrams = job.datagrams()
        if number < unseen:
            continue
        begun = done() if begun is None else begun
        now = job.gpu.now_ns / 1e9
        for claim in map(decode, datagrams):
            assert not claim.flops_launched
            claims = [WorkClaim(claim.report_id, now, claim.totals.model_flops or 0.0, None)]
        work.take(claims, now, 0.0, now * 1e15, gap=False, measured=False)
        lower = work.lower or 0.0
        assert lower <= done() - begun
    assert (lower > 0.5 * (done() - (begun or 0.0))) == (job.gpu.now_ns > 10e9)


def test_flops_of_which_it_is_not_known_whether_they_are_done(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without events they count as they are launched, and the report says so; it never falls."""
    job.gpu.launch(100)
    step(job="scripted", flops=5.0)
    assert _say(job)["model_flops"] == 0
    job.gpu.failures["Event.record"] = RuntimeError("no events")
    for _ in range(3):
        step(job="scripted", flops=5.0)
        report = _say(job)
    assert (report["model_flops"], report["model_flops_launched"]) == (20, True)
    monkeypatch.setattr(job.account, "meter", IdleMeter())
    job.gpu.failures.clear()
    report = _say(job)
    assert report["model_flops"] == 20
    degraded.FOUND.clear()


def test_flops_on_the_host_are_done_as_they_are_counted(job: Job) -> None:
    """Before CUDA is initialised nothing is on a GPU, and no context is made for it."""
    job.gpu.initialized = False
    job.gpu.contexts.clear()
    step(job="scripted", flops=5.0)
    report = _say(job)
    assert report["model_flops"] == 5
    assert "model_flops_launched" not in report
    job.gpu.initialized = True
    step(job="scripted", flops=5.0)
    assert _say(job)["model_flops"] == 5
    assert job.gpu.contexts == set()

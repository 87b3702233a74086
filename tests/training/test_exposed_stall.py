# SPDX-License-Identifier: Apache-2.0
"""From the one line in the loop to the report: host wait and exposed stall, to the nanosecond."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from roofline_job import lanes, phase, watch
from roofline_job.captures import CAPTURES
from roofline_job.events import FREE_EVENTS
from roofline_job.failures import FAILURES
from roofline_job.runs import PROCESS
from tests.training.scripted_cuda import ScriptedGpu

REPLACED = ("torch", "torch.cuda", "torch.utils.data.dataloader", "torch.optim.optimizer")


class LoaderIterator:
    """As much of ``_BaseDataLoaderIter`` as the client looks at; each batch takes ``wait_ms``."""

    _num_workers = 0
    _prefetch_factor = None
    _pin_memory = False
    _persistent_workers = False
    _index_sampler = None
    _auto_collation = False

    def __init__(self, gpu: ScriptedGpu, waits_ms: list[float]) -> None:
        self._gpu = gpu
        self._waits_ms = iter(waits_ms)

    def __iter__(self) -> LoaderIterator:
        return self

    def __next__(self) -> float:
        wait_ms = next(self._waits_ms)
        self._gpu.host(wait_ms)
        return wait_ms

    def _reset(self, loader: object, first_iter: bool = False) -> None:
        """Begin an epoch."""


class Job:
    """A training job on a scripted GPU, and what it reports."""

    def __init__(self, gpu: ScriptedGpu, server: socket.socket) -> None:
        self.gpu = gpu
        self._server = server
        self.step_hooks: list[Callable[[Any, Any, Any], None]] = []
        self.loader_class = type("Iterator", (LoaderIterator,), dict(LoaderIterator.__dict__))

    def loader(self, *waits_ms: float) -> Any:
        """Return the iterator of a torch DataLoader."""
        return self.loader_class(self.gpu, list(waits_ms))

    def optimizer_step(self) -> None:
        """Step an optimizer on the current stream."""
        for hook in self.step_hooks:
            hook(self, (), {})

    def iterable(self, *waits_ms: float) -> Iterator[float]:
        """Return a source of data that is not torch's."""
        for wait_ms in waits_ms:
            self.gpu.host(wait_ms)
            yield wait_ms

    def report(self) -> Any:
        """Return what the job says at its end, when the GPU has done all its work."""
        self.gpu.host(1e6)
        PROCESS.flush()
        datagram = b""
        while True:
            try:
                datagram = self._server.recv(1 << 16)
            except BlockingIOError:
                break
        assert FAILURES.count == 0, FAILURES.first
        assert self.gpu.violations == []
        return json.loads(datagram)


@pytest.fixture(name="job")
def _job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Job]:
    for name in REPLACED:
        monkeypatch.delitem(sys.modules, name, raising=False)
    gpu = ScriptedGpu()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.setblocking(False)
        server.bind(str(tmp_path / "training.sock"))
        monkeypatch.setenv("ROOFLINE_TRAINING_SOCKET", str(tmp_path / "training.sock"))
        job = Job(gpu, server)
        data: Any = ModuleType("torch.utils.data.dataloader")
        data._BaseDataLoaderIter = job.loader_class
        optimizer: Any = ModuleType("torch.optim.optimizer")
        optimizer._global_optimizer_post_hooks = {}
        optimizer.register_optimizer_step_post_hook = job.step_hooks.append
        modules = (gpu.torch, gpu.torch.cuda, data, optimizer)
        for name, module in zip(REPLACED, modules, strict=True):
            monkeypatch.setitem(sys.modules, name, module)
        PROCESS.forget()
        CAPTURES.reset()
        FREE_EVENTS.clear()
        lane = lanes.current(job="scripted")
        assert lane is not None
        lane.clock = lambda: gpu.now_ns
        yield job
        PROCESS.forget()
        CAPTURES.reset()
        FREE_EVENTS.clear()


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
    assert report["phase_gpu_idle_seconds"]["checkpoint"] == 0
    assert report["phase_gpu_idle_seconds"]["logging"] == 0
    assert report["step_seconds"] == pytest.approx(0.134)
    assert report["device"] == "GPU-00000000-0000-0000-0000-000000000000"


def test_a_watched_data_loader_counts_its_wait_once(job: Job) -> None:
    """Both the loop and the hook inside the loader measure the wait; it is one data phase."""
    for _ in watch(job.loader(40, 40), job="scripted"):
        job.gpu.launch(30)
    report = job.report()
    assert report["batches"] == 2
    assert report["phase_seconds"] == {"data": pytest.approx(0.080)}
    assert report["phase_gpu_idle_seconds"]["data"] == pytest.approx(0.050)


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
    assert set(report["phase_gpu_idle_seconds"]) == {"data", "checkpoint", "logging"}


def test_phases_around_waiting(job: Job) -> None:
    """Checkpoint and logging have their own S; work inside evaluation is not idle time."""
    for _ in watch(job.iterable(10), job="scripted"):
        job.gpu.launch(8)
        with phase("logging"):
            job.gpu.host(3)
            with phase("checkpoint"):
                job.gpu.host(7)
                with phase("eval"):
                    job.gpu.launch(20)
                    job.gpu.current_stream().synchronize()
            job.gpu.host(1)
    report = job.report()
    waits, idles = report["phase_seconds"], report["phase_gpu_idle_seconds"]
    assert waits == {
        "data": pytest.approx(0.010),
        "logging": pytest.approx(0.004),
        "checkpoint": pytest.approx(0.007),
        "eval": pytest.approx(0.020),
    }
    assert idles == {
        "data": pytest.approx(0.010),
        "logging": pytest.approx(0.001),
        "checkpoint": pytest.approx(0.002),
    }


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


def test_a_capture_in_another_thread(job: Job) -> None:
    """While it lasts only W grows; the capture is never touched."""
    began, end = threading.Event(), threading.Event()

    def capture() -> None:
        with job.gpu.torch.cuda.graph(job.gpu.torch.cuda.CUDAGraph()):
            began.set()
            end.wait(10)

    other = threading.Thread(target=capture)
    for batch, _ in enumerate(watch(job.iterable(40, 40, 40, 40), job="scripted")):
        if batch == 0:
            other.start()
            assert began.wait(10)
        if batch == 2:
            end.set()
            other.join()
        job.gpu.launch(30)
    report = job.report()
    assert report["phase_seconds"]["data"] == pytest.approx(0.160)
    assert report["phase_gpu_idle_seconds"]["data"] == pytest.approx(0.040 + 0.010)


def test_host_time_only_under_tracing(job: Job) -> None:
    """``torch.compile`` tracing through the loop sees no event."""
    for batch, _ in enumerate(watch(job.iterable(40, 40, 40), job="scripted")):
        job.gpu.compiling = batch == 0
        job.gpu.launch(30)
    report = job.report()
    assert report["phase_seconds"]["data"] == pytest.approx(0.120)
    assert report["phase_gpu_idle_seconds"]["data"] == pytest.approx(0.050)


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


def test_s_never_exceeds_w_in_any_report(job: Job) -> None:
    """Reports are consistent within themselves whenever they are made."""
    lane = lanes.current(job="scripted")
    assert lane is not None
    for _ in watch(job.loader(*[7.25] * 50), job="scripted"):
        job.gpu.launch(3.5)
        with phase("logging"):
            job.gpu.host(0.125)
        totals = lane.run.totals()
        for name, idle_ns in totals.idle_ns.items():
            assert idle_ns <= totals.phase_ns.get(name, 0)
        assert sum(totals.phase_ns.values()) <= totals.wall_ns
    job.report()

# SPDX-License-Identifier: Apache-2.0
"""Scrape the counters of a dcgm-exporter on the same node, for the GPUs that want them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from exporter.clock import Clock, stale_after_seconds
from exporter.model.readers import CounterState
from exporter.model.reading import Instance, share_group
from exporter.sources.dcgm.page import GpuRows, NotDcgm, parse
from exporter.sources.dcgm.renewal import LOOK_SECONDS, Renewal
from exporter.sources.dcgm.scrape import NothingThere, ScrapeFailed, Target, fetch
from exporter.sources.interface import DCGM, CounterOptions, CounterSource, NodeCounters, OpenedGpu
from exporter.sources.last_sample import Held, HeldSource

USUAL_URL = "http://127.0.0.1:9400/metrics"
"""Where dcgm-exporter listens by default."""
USUAL_PATH = "/metrics"
STEP_SECONDS = 1.0
EMPTY_SECONDS = 4.0
"""Between two scrapes of a page without the GPUs that want counters."""
SHORTEST_SECONDS, LONGEST_SECONDS = 0.2, 1.0
"""Between two scrapes of a page that has counters."""
FIRST_INTERVAL_SECONDS = 1.0
"""Between two renewals, while it is not known."""
LOOKS_RATIO = 0.4
"""Of that time, from one scrape to the next: then the page is seen to stay the same over two of
them, so that no renewal can have been between any two."""
MEAN_INTERVALS = 1.5
"""After which rows that are not renewed stand for more time than they are the mean of."""
CORE_RATIO = 0.05
"""Of one core, that reading the page may take."""
SHORTEST_WAIT_SECONDS = 0.01
TOO_OFTEN = (
    "its values are samples, for it is renewed more often than it is read: dcgm-exporter takes "
    "-c 1000 (DCGM_EXPORTER_INTERVAL)"
)
RETRY_SECONDS = (1.0, 2.0, 4.0, 5.0)
"""After each failed scrape of a page that should be there; it is back within 10 s."""
SEARCH_SECONDS = (1.0, 2.0, 5.0, 15.0, 30.0, 60.0)
"""Between attempts while no page was ever seen and none is configured."""
DRAIN_SECONDS = 0.5
MOST_AHEAD_SECONDS = 2.0
"""By which the clock of another host may be ahead, for its timestamps to be of use."""

log = logging.getLogger(__name__)


def prepare(options: CounterOptions, clock: Clock) -> NodeCounters:
    """Return the configured source: a hostengine if one is named, else a page."""
    if options.dcgm_host is not None:
        from exporter.sources.counters.child_counters import ChildCounters

        engine = {"host": options.dcgm_host, "bindings": options.dcgm_bindings}
        return ChildCounters(DCGM, engine, clock)
    return PageSource(options, clock)


def _check(page: Mapping[str, GpuRows], wanted: Collection[str]) -> None:
    """Raise NotDcgm if a page has fields of these GPUs, and no value of any."""
    own = [page[uuid] for uuid in wanted if uuid in page]
    if any(rows.blank for rows in own) and not any(rows.activities for rows in own):
        raise NotDcgm("its profiling fields have no values: is profiling paused?")


def _look_seconds(renewal: Renewal) -> float:
    """Return after how many seconds to scrape for renewed rows."""
    wait = LOOKS_RATIO * (renewal.mean_interval_seconds or FIRST_INTERVAL_SECONDS)
    return min(max(wait, SHORTEST_SECONDS), LONGEST_SECONDS)


class PageSource:
    """Scrapes one page while a GPU wants it, and keeps the last sample of each GPU."""

    def __init__(
        self,
        options: CounterOptions,
        clock: Clock,
        get: Callable[[Target], str] = fetch,
        cpu_seconds: Callable[[], float] = time.thread_time,
    ) -> None:
        """Scrape the configured page, or try the default address.

        ``cpu_seconds()`` is what the thread has used of a core so far.
        """
        url = options.dcgm_url or USUAL_URL
        parts = urlsplit(url)
        if parts.path in ("", "/"):  # the root of a dcgm-exporter is a page for people
            url = parts._replace(path=USUAL_PATH).geturl()
        seen = Path(options.procfs) if options.dcgm_url is None else None
        self._target = Target(url, options.dcgm_user, options.dcgm_password, seen)
        self._expected = options.dcgm_url is not None
        """Whether there should be a page: one is configured, or was there."""
        self._up = False
        """Whether the last scrape had a page."""
        self._problem: str | None = None
        """Why there is none where one is expected."""
        self._failing_since: float | None = None
        self._failures_total = self._failures_in_a_row = 0
        self._warned: str | None = None
        self._clock = clock
        self._get = get
        self._cpu_seconds = cpu_seconds
        self._read_seconds: float | None = None
        self._stale_seconds = stale_after_seconds(options.interval_seconds)
        self._asked: dict[str, float] = {}
        """By UUID: when a GPU that no preferred source measures last asked for its counters."""
        self._samples: dict[tuple[str, int | None], Held] = {}
        """By UUID and GPU instance."""
        self._renewals: dict[str, Renewal] = {}
        """By UUID, of the GPUs that want their counters."""
        self._layouts: dict[str, tuple[Instance, ...]] = {}
        """By UUID, as the GPU was opened last."""
        self._text = ""
        self._page: Mapping[str, GpuRows] = {}
        """By UUID, as last read."""
        self._silent: frozenset[str] = frozenset()
        """By UUID: which GPUs the page has without a value, or not renewed."""
        self._next = float("-inf")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dcgm", daemon=True)

    def start(self) -> None:
        """Start the scraping thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, without waiting for a scrape."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join(DRAIN_SECONDS)

    def open(self, gpu: OpenedGpu) -> CounterSource:
        """Return the page's counters of one GPU.

        A new layout discards the samples of GPU instances: their numbers may be reused.
        """
        uuid, now = gpu.device.uuid, self._clock.monotonic()
        before, self._layouts[uuid] = self._layouts.get(uuid), gpu.device.instances
        if before != gpu.device.instances:
            for share in gpu.gpu_instances:
                sample = self._samples.get((uuid, share))
                if sample is not None:
                    sample.end(now)
        return HeldSource(gpu, lambda share: self._samples.get((uuid, share)), self._note)

    @property
    def state(self) -> CounterState | None:
        """State of the source; None while no GPU wants it, and if there never was a page."""
        if not self._expected or not self._wanted(self._clock.monotonic()):
            return None
        return CounterState(self._up, self._failures_total, self._read_seconds)

    def _wanted(self, now: float) -> frozenset[str]:
        """Return the GPUs that want their counters, also where a worker has skipped a round."""
        asked = list(self._asked.items())
        return frozenset(uuid for uuid, at in asked if now - at <= self._stale_seconds)

    # Called by the thread.

    def _run(self) -> None:
        while not self._ended.wait(self.step()):
            pass

    def step(self) -> float:
        """Scrape if it is due; return after how many seconds to call this again."""
        now = self._clock.monotonic()
        wanted = self._wanted(now)
        if not wanted:
            return STEP_SECONDS
        if now >= self._next:
            used = self._cpu_seconds()
            wait = self._scrape(wanted)
            used = self._cpu_seconds() - used
            self._read_seconds = self._clock.monotonic() - now
            self._next = now + max(wait, used / CORE_RATIO)
        left = self._next - self._clock.monotonic()
        return min(max(left, SHORTEST_WAIT_SECONDS), STEP_SECONDS)

    def _scrape(self, wanted: Collection[str]) -> float:
        """Scrape the page for these GPUs; return after how many seconds to scrape again."""
        began = self._clock.monotonic()
        try:
            text = self._get(self._target)
            page = self._page if text == self._text else parse(text)
            _check(page, wanted)
        except NothingThere as error:
            return self._failed(str(error), anything_there=False)
        except (ScrapeFailed, NotDcgm) as error:
            return self._failed(str(error))
        except Exception as error:  # without this thread no later page would be read
            log.debug("a page of DCGM could not be read", exc_info=True)
            return self._failed(f"reading its page failed: {type(error).__name__}")
        if not self._up:
            log.info("%s: DCGM's counters are read from this page", self._target.url)
        self._up = self._expected = True
        self._problem = self._failing_since = None
        self._failures_in_a_row = 0
        self._text, self._page = text, page
        self._take(page, wanted, began)
        renewals = self._renewals.values()
        sampled = any(renewal.follows is False for renewal in renewals)
        self._warn(TOO_OFTEN if sampled else None)
        return min(map(_look_seconds, renewals), default=EMPTY_SECONDS)

    def _failed(self, problem: str, *, anything_there: bool = True) -> float:
        """Note why there is no page; return after how many seconds to try again.

        Where none was ever seen or configured, that is no failure; the log only has it if there is
        something else. The last samples stay valid for three rounds more.
        """
        now = self._clock.monotonic()
        self._up = False
        if self._expected or anything_there:
            self._warn(problem)
        waits = RETRY_SECONDS if self._expected else SEARCH_SECONDS
        wait = waits[min(self._failures_in_a_row, len(waits) - 1)]
        self._failures_in_a_row += 1
        if self._expected:
            self._problem = problem
            self._failures_total += 1
            if self._failing_since is None:
                self._failing_since = now
            if now - self._failing_since >= self._stale_seconds:
                for sample in self._samples.values():
                    sample.end(now)
                self._renewals = {}
        return wait

    def _warn(self, problem: str | None) -> None:
        """Log why there are no counters, once; None where there are."""
        if problem is not None and self._warned != problem:
            log.warning("%s: no counters of DCGM: %s", self._target.url, problem)
        self._warned = problem

    def _take(self, page: Mapping[str, GpuRows], wanted: Collection[str], began: float) -> None:
        """Keep the new samples of these GPUs; drop those that are no longer on the page."""
        now = self._clock.monotonic()
        counted = [uuid for uuid in wanted if uuid in page and page[uuid].activities]
        self._renewals = {uuid: self._renewals.get(uuid) or Renewal() for uuid in counted}
        for uuid, renewal in self._renewals.items():
            rows = page[uuid]
            renewal.note(rows.signature, now, began)
            if renewal.is_taken or not renewal.follows:
                continue
            renewal.is_taken = True
            stamped = self._stamped_age(rows)
            age = renewal.age_seconds(stamped)
            lag = LOOK_SECONDS + _look_seconds(renewal) / 2 + (renewal.mean_interval_seconds or 0.0)
            for share, activity in rows.activities.items():
                sample = self._samples.setdefault((uuid, share), Held(LOOK_SECONDS))
                sample.put(
                    replace(activity, age_seconds=age, lag_seconds=lag),
                    now,
                    max(renewal.longest_seconds - (stamped or 0.0), 0.0),
                    mean_seconds=MEAN_INTERVALS * (renewal.interval_seconds or 0.0),
                    made_at=renewal.at,
                )
        for (uuid, share), sample in self._samples.items():
            sampled = uuid in self._renewals and self._renewals[uuid].follows is False
            if sampled or uuid not in page or share not in page[uuid].activities:
                sample.end(now)
        silent = frozenset(uuid for uuid in wanted if self._is_silent(uuid, now))
        self._failures_total += len(silent - self._silent)
        self._silent = silent

    def _is_silent(self, uuid: str, now: float) -> bool:
        """Return whether the page has fields of a GPU, but no fresh sample."""
        rows = self._page.get(uuid)
        if rows is None or not rows.activities:
            return rows is not None and rows.blank
        return not self._has_fresh(uuid, rows.activities, now)

    def _stamped_age(self, rows: GpuRows) -> float | None:
        """Return the age of rows by their timestamps; None without, or if they are ahead."""
        if rows.timestamp_seconds is None:
            return None
        age = self._clock.time() - rows.timestamp_seconds
        return max(age, 0.0) if age >= -MOST_AHEAD_SECONDS else None

    # Called by the workers of the GPUs.

    def _note(self, gpu: OpenedGpu) -> None:
        """Record that the GPU wants its counters, and in its journal why any share has none."""
        better = gpu.better()
        if not better:
            self._asked[gpu.device.uuid] = gpu.journal.now
        state = None if better else self._state_of(gpu)
        if state is None:
            gpu.journal.answered(DCGM)
        else:
            samples = (self._samples.get((gpu.device.uuid, share)) for share in gpu.gpu_instances)
            logged = self._problem is not None
            worked = state == "unreachable" or any(samples)
            gpu.journal.absent(DCGM, state, worked=worked, logged=logged)
        for share in gpu.gpu_instances:
            if share is None:
                continue
            group = share_group(DCGM, share)
            alone = None if better or state is not None else self._state_of_instance(gpu, share)
            if alone is None:
                gpu.journal.answered(group)
            else:
                worked = (gpu.device.uuid, share) in self._samples
                gpu.journal.absent(group, alone, worked=worked)

    def _state_of_instance(self, gpu: OpenedGpu, gpu_instance: int) -> str | None:
        """Return the state of one instance without counters while others of the GPU have some."""
        rows = self._page.get(gpu.device.uuid)
        if not self._up or rows is None:
            return None
        if gpu_instance not in rows.activities:
            return "unsupported"
        sample = self._samples.get((gpu.device.uuid, gpu_instance))
        return None if sample is not None and sample.is_fresh(gpu.journal.now) else "unreachable"

    def _state_of(self, gpu: OpenedGpu) -> str | None:
        """Return the state of a GPU without counters; None if it has some, or expects none."""
        if self._problem is not None:
            return "unreachable"
        if not self._up:
            return None
        rows = self._page.get(gpu.device.uuid)
        shares = gpu.gpu_instances
        if rows is None or not any(share in rows.activities for share in shares):
            return "unreachable" if rows is not None and rows.blank else "unsupported"
        return None if self._has_fresh(gpu.device.uuid, shares, gpu.journal.now) else "unreachable"

    def _has_fresh(self, uuid: str, shares: Iterable[int | None], now: float) -> bool:
        """Return whether any of these shares has a fresh sample, or may soon have one."""
        renewal = self._renewals.get(uuid)
        if renewal is not None and renewal.follows is None:
            return True
        samples = (self._samples.get((uuid, share)) for share in shares)
        return any(each is not None and each.is_fresh(now) for each in samples)

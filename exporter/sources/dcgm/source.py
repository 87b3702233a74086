# SPDX-License-Identifier: Apache-2.0
"""The counters of a dcgm-exporter that runs beside this one, for the GPUs that want them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from urllib.parse import urlsplit

from exporter.clock import Clock, stale_after_seconds
from exporter.model.readers import CounterState
from exporter.model.reading import LONGEST_AGE_SECONDS, Instance, share_group
from exporter.sources.dcgm.page import GpuRows, NotDcgm, parse
from exporter.sources.dcgm.reach import Reach
from exporter.sources.dcgm.renewal import Renewal
from exporter.sources.dcgm.scrape import NothingThere, ScrapeFailed, Target, fetch
from exporter.sources.held import Demand, Held, HeldSource
from exporter.sources.source import DCGM, CounterOptions, CounterSource, NodeCounters, OpenedGpu

USUAL_URL = "http://127.0.0.1:9400/metrics"
"""Where dcgm-exporter listens by default."""
USUAL_PATH = "/metrics"
SHORTEST_INTERVAL_SECONDS = 1.0
LONGEST_INTERVAL_SECONDS = 4.0
"""Between two scrapes: what is not seen to be renewed within 5 s adds to no total."""
LOOK_RATIO = 1.25
"""In so many of these intervals a renewal is seen, also if a scrape takes its time."""
OFTEN_SECONDS = 2 * LONGEST_AGE_SECONDS
"""A page that is renewed so often is scraped in the short interval: from scrapes that are almost as
far apart as renewals it cannot be told which renewals are within LONGEST_AGE_SECONDS."""
SHORTEST_WAIT_SECONDS = 0.05
DRAIN_SECONDS = 0.5
MOST_AHEAD_SECONDS = 2.0
"""By which the clock of another host may be ahead, for its timestamps to be of use."""

log = logging.getLogger(__name__)


def prepare(options: CounterOptions, clock: Clock) -> NodeCounters:
    """Return the source as it is configured: a hostengine if one is named, else a page."""
    if options.dcgm_host is not None:
        from exporter.sources.counters.child_counters import ChildCounters

        engine = {"host": options.dcgm_host, "bindings": options.dcgm_bindings}
        return ChildCounters(DCGM, engine, clock)
    return PageSource(options, clock)


def _check(page: Mapping[str, GpuRows], wanted: Collection[str]) -> None:
    """Find out whether a page has anything of use.

    Raises:
        NotDcgm: it has fields of these GPUs, and no value of any.
    """
    own = [page[uuid] for uuid in wanted if uuid in page]
    if any(rows.blank for rows in own) and not any(rows.activities for rows in own):
        raise NotDcgm("its profiling fields have no values: is profiling paused?")


class PageSource:
    """Scrapes one page while a GPU wants it, and holds what it says of each."""

    def __init__(
        self, options: CounterOptions, clock: Clock, get: Callable[[Target], str] = fetch
    ) -> None:
        """Read the configured page, or look whether there is one at the usual address."""
        url = options.dcgm_url or USUAL_URL
        if not urlsplit(url).path:
            url += USUAL_PATH
        self._target = Target(url, options.dcgm_user, options.dcgm_password)
        self._reach = Reach(url, expected=options.dcgm_url is not None)
        self._clock = clock
        self._get = get
        self._interval = min(
            max(options.interval_seconds, SHORTEST_INTERVAL_SECONDS), LONGEST_INTERVAL_SECONDS
        )
        self._look_seconds = LOOK_RATIO * self._interval
        self._stale_seconds = stale_after_seconds(options.interval_seconds)
        self._demand = Demand(options.interval_seconds)
        self._held: dict[tuple[str, int | None], Held] = {}
        """By UUID and GPU instance."""
        self._renewals: dict[str, Renewal] = {}
        """By UUID, of the GPUs that want their counters."""
        self._layouts: dict[str, tuple[Instance, ...]] = {}
        """By UUID, as the GPU was opened last."""
        self._page: Mapping[str, GpuRows] = {}
        """By UUID, as last read."""
        self._silent: frozenset[str] = frozenset()
        """By UUID: which GPUs the page has without a value, or not renewed."""
        self._next = float("-inf")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dcgm", daemon=True)

    def start(self) -> None:
        """Begin to scrape, when a GPU wants it."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; a scrape under way is not waited for."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join(DRAIN_SECONDS)

    def open(self, gpu: OpenedGpu) -> CounterSource:
        """Return the page's counters of one GPU.

        Nothing that stands of a GPU instance is that of another one, which has its number now.
        """
        uuid, now = gpu.device.uuid, self._clock.monotonic()
        before, self._layouts[uuid] = self._layouts.get(uuid), gpu.device.instances
        if before != gpu.device.instances:
            for share in gpu.gpu_instances:
                held = self._held.get((uuid, share))
                if held is not None:
                    held.end(now)
        return HeldSource(gpu, lambda share: self._held.get((gpu.device.uuid, share)), self._note)

    @property
    def state(self) -> CounterState | None:
        """How it is doing; None while no GPU wants it, and where no page was ever there."""
        if not self._reach.expected or not self._demand.wanted(self._clock.monotonic()):
            return None
        return CounterState(self._reach.up, self._reach.failures_total)

    # The thread.

    def _run(self) -> None:
        while not self._ended.wait(self.step()):
            pass

    def step(self) -> float:
        """Scrape if it is time to; return after how many seconds to look again."""
        now = self._clock.monotonic()
        wanted = self._demand.wanted(now)
        if not wanted:
            return SHORTEST_INTERVAL_SECONDS
        if now >= self._next:
            self._next = now + self._scrape(wanted)
        left = self._next - self._clock.monotonic()
        return min(max(left, SHORTEST_WAIT_SECONDS), SHORTEST_INTERVAL_SECONDS)

    def _scrape(self, wanted: Collection[str]) -> float:
        """Read the page for these GPUs; return after how many seconds to do so again."""
        try:
            page = parse(self._get(self._target))
            _check(page, wanted)
        except NothingThere as error:
            return self._failed(str(error), anything_there=False)
        except (ScrapeFailed, NotDcgm) as error:
            return self._failed(str(error))
        except Exception as error:  # without this thread no later page would be read
            log.debug("a page of DCGM could not be read", exc_info=True)
            return self._failed(f"reading its page failed: {type(error).__name__}")
        self._reach.answered()
        self._take(page, wanted)
        fast = any(self._is_fast(uuid) for uuid in wanted)
        return self._interval if fast else LONGEST_INTERVAL_SECONDS

    def _failed(self, problem: str, *, anything_there: bool = True) -> float:
        """Note why there is no page; what the last one said stands for three rounds more."""
        now = self._clock.monotonic()
        wait = self._reach.failed(problem, now, anything_there=anything_there)
        since = self._reach.failing_since
        if since is not None and now - since >= self._stale_seconds:
            for held in self._held.values():
                held.end(now)
            self._renewals = {}
        return wait

    def _is_fast(self, uuid: str) -> bool:
        """Return whether a GPU's counters are renewed so often that every renewal matters."""
        if uuid not in self._renewals:
            return False
        interval = self._renewals[uuid].interval_seconds
        return interval is None or interval <= OFTEN_SECONDS

    def _take(self, page: Mapping[str, GpuRows], wanted: Collection[str]) -> None:
        """Let what is new of these GPUs stand, and end what is no longer on the page."""
        now = self._clock.monotonic()
        self._page = page
        counted = [uuid for uuid in wanted if uuid in page and page[uuid].activities]
        self._renewals = {
            uuid: self._renewals.get(uuid) or Renewal(self._look_seconds) for uuid in counted
        }
        for uuid, renewal in self._renewals.items():
            rows = page[uuid]
            if not renewal.is_new(rows.signature, now):
                continue
            stamped = self._stamped_age(rows)
            age = renewal.age_seconds(stamped)
            standing = max(renewal.longest_seconds - (stamped or 0.0), 0.0)
            for share, activity in rows.activities.items():
                held = self._held.setdefault((uuid, share), Held(self._look_seconds))
                held.put(replace(activity, age_seconds=age), now, standing)
        for (uuid, share), held in self._held.items():
            if uuid not in page or share not in page[uuid].activities:
                held.end(now)
        silent = frozenset(uuid for uuid in wanted if self._is_silent(uuid, now))
        self._reach.failures_total += len(silent - self._silent)
        self._silent = silent

    def _is_silent(self, uuid: str, now: float) -> bool:
        """Return whether the page has fields of a GPU and nothing that stands."""
        rows = self._page.get(uuid)
        if rows is None or not rows.activities:
            return rows is not None and rows.blank
        held = (self._held.get((uuid, share)) for share in rows.activities)
        return not any(each is not None and each.is_fresh(now) for each in held)

    def _stamped_age(self, rows: GpuRows) -> float | None:
        """Return how old rows are by their own timestamps; None without, or by another clock."""
        if rows.timestamp_seconds is None:
            return None
        age = self._clock.time() - rows.timestamp_seconds
        return max(age, 0.0) if age >= -MOST_AHEAD_SECONDS else None

    # Called by the workers of the GPUs.

    def _note(self, gpu: OpenedGpu) -> None:
        """Note that the GPU wants its counters, and in its journal why it, or one of its instances,
        has none."""
        self._demand.ask(gpu)
        better = gpu.better()
        state = None if better else self._state_of(gpu)
        if state is None:
            gpu.journal.answered(DCGM)
        else:
            held = (self._held.get((gpu.device.uuid, share)) for share in gpu.gpu_instances)
            logged = self._reach.problem is not None
            worked = state == "unreachable" or any(held)
            gpu.journal.absent(DCGM, state, worked=worked, logged=logged)
        for share in gpu.gpu_instances:
            if share is not None:
                alone = None if better or state is not None else self._state_of_instance(gpu, share)
                self._note_instance(gpu, share, alone)

    def _note_instance(self, gpu: OpenedGpu, gpu_instance: int, state: str | None) -> None:
        group = share_group(DCGM, gpu_instance)
        if state is None:
            gpu.journal.answered(group)
        else:
            worked = (gpu.device.uuid, gpu_instance) in self._held
            gpu.journal.absent(group, state, worked=worked)

    def _state_of_instance(self, gpu: OpenedGpu, gpu_instance: int) -> str | None:
        """Return why one instance has no counters where others of the GPU have."""
        rows = self._page.get(gpu.device.uuid)
        if not self._reach.up or rows is None:
            return None
        if gpu_instance not in rows.activities:
            return "unsupported"
        held = self._held.get((gpu.device.uuid, gpu_instance))
        return None if held is not None and held.is_fresh(gpu.journal.now) else "unreachable"

    def _state_of(self, gpu: OpenedGpu) -> str | None:
        """Return why a GPU has no counters; None where it has, or none are to be expected."""
        if self._reach.problem is not None:
            return "unreachable"
        if not self._reach.up:
            return None
        rows = self._page.get(gpu.device.uuid)
        shares = gpu.gpu_instances
        if rows is None or not any(share in rows.activities for share in shares):
            return "unreachable" if rows is not None and rows.blank else "unsupported"
        held = (self._held.get((gpu.device.uuid, share)) for share in shares)
        fresh = any(each is not None and each.is_fresh(gpu.journal.now) for each in held)
        return None if fresh else "unreachable"

# SPDX-License-Identifier: Apache-2.0
"""A counter source in a child process, for the GPUs that want it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from exporter.clock import Clock
from exporter.errors import one_line
from exporter.model.readers import CounterState
from exporter.model.reading import Activity, share_group, share_name
from exporter.sources.counters.child import program
from exporter.sources.counters.supervisor import Orders, Supervisor
from exporter.sources.counters.wire import OK, PAUSED, UNREACHABLE
from exporter.sources.interface import CounterSource, OpenedGpu
from exporter.sources.last_sample import Held, HeldSource

VALID_RATIO = 1.5
"""How many times its own length an activity stays valid, unless the next one arrives."""
LOOK_SECONDS = 1.0
"""How late a child that polls may see new values."""
LONGEST_MESSAGE = 500
PATIENCE_SECONDS = 5.0
"""How long a GPU goes without a preferred source before this one is wanted: those take a moment to
start."""
LINGER_SECONDS = 30.0
"""How long it is still measured after a preferred source measures it again."""

log = logging.getLogger(__name__)

QUIET = frozenset({"unsupported", "mig", PAUSED})
"""States that an operator cannot change: logged at info."""

Place = tuple[str | None, int | None]
"""UUID and GPU instance; (None, None) is every GPU."""
EVERYWHERE: Place = (None, None)


class StateNote(NamedTuple):
    """A reading state, and one line on what can be done about it."""

    state: str
    message: str


class StateLog:
    """The current states, and those last logged: one log line for each change."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._notes: dict[Place, StateNote] = {}
        self._logged: dict[Place, StateNote] = {}

    def note(self, place: Place, state: str, message: str) -> bool:
        """Note a state; return whether it is a new failure, which a pause of all GPUs is not."""
        if state == OK:
            self.over(place)
            return False
        note = StateNote(state, message or state.replace("_", " "))
        self._notes[place] = note
        if self._logged.get(place) == note:
            return False
        self._logged[place] = note
        level = logging.INFO if state in QUIET else logging.WARNING
        log.log(level, "%s%s: %s", self._source, _named(place), note.message)
        return state != PAUSED or place != EVERYWHERE

    def over(self, place: Place) -> None:
        """Note that this GPU or instance can be measured again."""
        self._notes.pop(place, None)
        if self._logged.pop(place, None) is not None:
            log.info("%s%s: it works again", self._source, _named(place))

    def forget(self) -> None:
        """Forget the states of single GPUs when their child ends, but not what was logged."""
        self._notes = {place: note for place, note in self._notes.items() if place == EVERYWHERE}

    def of(self, gpu: str, gpu_instance: int | None) -> StateNote | None:
        """Return the state of a share."""
        return self.everywhere or self.of_share(gpu, gpu_instance)

    def of_share(self, gpu: str, gpu_instance: int | None) -> StateNote | None:
        """Return the state of a share, without that of every GPU."""
        return self._notes.get((gpu, gpu_instance)) or self._notes.get((gpu, None))

    @property
    def everywhere(self) -> StateNote | None:
        """The state of every GPU."""
        return self._notes.get(EVERYWHERE)


def _named(place: Place) -> str:
    gpu, gpu_instance = place
    return "" if gpu is None else f" of {share_name(gpu, gpu_instance)}"


class ChildCounters:
    """The activities of all GPUs that one child process measures."""

    def __init__(
        self,
        source: str,
        options: Mapping[str, Any],
        clock: Clock,
        *,
        command: Sequence[str] | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """Run the program that has the name of the `source` with these `options`."""
        self._source = source
        self._lock = threading.Lock()
        self._patience_seconds = patience_seconds
        self._sources: set[_Source] = set()
        """Of the GPUs that are open."""
        self._notes = StateLog(source)
        self._held: dict[tuple[str, int | None], Held] = {}
        self._failures = 0
        self._is_explained = False
        """Whether the child reported a state of all GPUs."""
        self.paused = False
        self.facts: Mapping[str, str] = {}
        """Names and versions of the libraries that the last child uses."""
        self.supervisor = Supervisor(source, command or program(source), options, clock, self)

    def start(self) -> None:
        """Begin to watch for GPUs that want this source."""
        self.supervisor.start()

    def stop(self) -> None:
        """End the child; one that hangs is not waited for."""
        self.supervisor.stop()

    def pause(self) -> None:
        """Release the hardware counters for another program, such as a profiler."""
        self.paused = True
        self.supervisor.nudge()

    def resume(self) -> None:
        """Measure again."""
        self.paused = False
        with self._lock:
            note = self._notes.everywhere
            if note is not None and note.state == PAUSED:
                self._notes.over(EVERYWHERE)
        self.supervisor.nudge()

    @property
    def state(self) -> CounterState | None:
        """The state of the child; None while no GPU wants it."""
        with self._lock:
            wanted = [source.gpu for source in self._sources if source.is_wanted]
            notes = [
                self._notes.of(gpu.device.uuid, share)
                for gpu in wanted
                for share in gpu.gpu_instances
            ]
        if not wanted:
            return None
        return CounterState(self.supervisor.is_up and not any(notes), self._failures)

    # Called by the workers of the GPUs.

    def open(self, gpu: OpenedGpu) -> CounterSource:
        """Return its counters of one GPU."""
        source = _Source(self, gpu)
        with self._lock:
            self._sources.add(source)
        return source

    def close(self, source: _Source) -> None:
        """Note that a GPU is closed."""
        uuid = source.gpu.device.uuid
        with self._lock:
            self._sources.remove(source)
            if not self._is_open(uuid):
                self._held = {key: held for key, held in self._held.items() if key[0] != uuid}
        self.supervisor.nudge()

    def held(self, gpu: str, gpu_instance: int | None) -> Held | None:
        """Return the last sample of a share; None if there was none."""
        return self._held.get((gpu, gpu_instance))

    def note(self, source: _Source) -> None:
        """Note whether the GPU wants this source, and in its journal why it has no readings."""
        gpu = source.gpu
        now = gpu.journal.now
        better = gpu.better()
        with self._lock:
            changed = source.changes(now, self._patience_seconds, better=better)
            states = {share: self._state_of(gpu, share, now) for share in gpu.gpu_instances}
        if changed:
            self.supervisor.nudge()
        for share, state in states.items():
            group = share_group(self._source, share)
            if state is None or better:
                gpu.journal.answered(group)
            else:
                gpu.journal.absent(group, state, logged=True)

    def _state_of(self, gpu: OpenedGpu, share: int | None, now: float) -> str | None:
        if self.paused and self.supervisor.has_released:
            # A GPU that cannot be measured at all is not reported as paused.
            note = self._notes.of_share(gpu.device.uuid, share)
            return note.state if note is not None and note.state in QUIET else PAUSED
        held = self._held.get((gpu.device.uuid, share))
        if held is not None and held.is_fresh(now):
            return None
        note = self._notes.of(gpu.device.uuid, share)
        return None if note is None else note.state

    # Called by the supervisor's thread.

    def orders(self) -> Orders:
        """Return which GPUs are to be measured."""
        with self._lock:
            wanted = {each.gpu.device.uuid: each.gpu for each in self._sources if each.is_wanted}
        gpus = tuple(
            {"uuid": uuid, "gpu_instances": [n for n in gpu.gpu_instances if n is not None]}
            for uuid, gpu in sorted(wanted.items())
        )
        return Orders(gpus, self.paused)

    def handle(self, message: Mapping[str, Any], now: float) -> None:
        """Take a message of the child."""
        if "hello" in message:
            self.facts = message["hello"]
        elif "state" in message:
            self._note(message)
        elif "ratios" in message:
            self._put(message, now)

    def _note(self, message: Mapping[str, Any]) -> None:
        gpu, share, state = message["gpu"], message.get("gpu_instance"), message["state"]
        text = one_line(message.get("message", "")[:LONGEST_MESSAGE])
        with self._lock:
            if gpu is None:
                self._is_explained = state != OK
            elif not self._is_open(gpu):
                return
            self._failures += self._notes.note((gpu, share), state, text)

    def _put(self, message: Mapping[str, Any], now: float) -> None:
        gpu, share, seconds = message["gpu"], message.get("gpu_instance"), message["seconds"]
        age = message.get("age_seconds")
        with self._lock:
            if not self._is_open(gpu):
                return
            held = self._held.setdefault((gpu, share), Held(LOOK_SECONDS))
            self._is_explained = False
            self._notes.over(EVERYWHERE)
            self._notes.over((gpu, share))
        values = {**message["ratios"], **message["bytes"], "age_seconds": age}
        activity = Activity(self._source, seconds, lag_seconds=LOOK_SECONDS + seconds, **values)
        valid = VALID_RATIO * seconds
        made_at = None if age is None else now - age
        held.put(activity, now, valid, mean_seconds=valid, made_at=made_at)

    def _is_open(self, uuid: str) -> bool:
        return any(source.gpu.device.uuid == uuid for source in self._sources)

    def failed(self, problem: str) -> None:
        """Count a failure; a state of all GPUs that the child reported explains its end better."""
        explained, self._is_explained = self._is_explained, False
        self._failures += 1
        if not explained:
            with self._lock:
                self._notes.note(EVERYWHERE, UNREACHABLE, problem)

    def ended(self, now: float) -> None:
        """Drop the last samples of the child, and the states of single GPUs."""
        with self._lock:
            self._notes.forget()
            for held in self._held.values():
                held.end(now)


class _Source(HeldSource):
    """One GPU's part; while it is open, the GPU can want the child."""

    def __init__(self, counters: ChildCounters, gpu: OpenedGpu) -> None:
        super().__init__(
            gpu,
            lambda share: counters.held(gpu.device.uuid, share),
            lambda _: counters.note(self),
        )
        self.gpu = gpu
        self._counters = counters
        self.is_wanted = False
        self._since = gpu.journal.now
        """When `is_wanted` last was what it should be."""

    def changes(self, now: float, patience_seconds: float, *, better: bool) -> bool:
        """Note in each round whether preferred sources measure the GPU; return whether that changes
        if it is wanted."""
        if self.is_wanted != better:  # as it was
            self._since = now
            return False
        if now - self._since < (LINGER_SECONDS if self.is_wanted else patience_seconds):
            return False
        self.is_wanted, self._since = not self.is_wanted, now
        return True

    def close(self) -> None:
        """Note that the GPU is not read any more."""
        self._counters.close(self)

# SPDX-License-Identifier: Apache-2.0
"""A counter source in a child process: what it measures, for the GPUs that want it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from exporter.clock import Clock
from exporter.model.readers import CounterState
from exporter.model.reading import Device, share_group, share_name
from exporter.sources.counters.child import program
from exporter.sources.counters.supervisor import Orders, Supervisor
from exporter.sources.counters.wire import (
    OK,
    PAUSED,
    UNREACHABLE,
    Hello,
    Measured,
    Message,
    Noted,
)
from exporter.sources.interface import CounterSource, OpenedGpu
from exporter.sources.last_sample import Held, HeldSource

VALID_RATIO = 1.5
"""How many times its own length an activity stays valid, unless the next one arrives."""
LOOK_SECONDS = 1.0
"""How late a child that polls may see new values."""


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
        """Note a state; return whether it is a new failure.

        The exporter itself pauses all GPUs; a single one was paused by somebody else.
        """
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


@dataclass(slots=True)
class _Want:
    device: Device
    gpu_instances: tuple[int | None, ...]
    wanted: bool
    since: float
    """When `wanted` last was what it should be."""


class Demand:
    """Which of the opened GPUs want this source; the keys are their sessions."""

    def __init__(self, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._patience = patience_seconds
        self._wants: dict[object, _Want] = {}

    def add(
        self, session: object, device: Device, gpu_instances: tuple[int | None, ...], now: float
    ) -> None:
        """Note that a GPU was opened, with these shares."""
        self._wants[session] = _Want(device, gpu_instances, wanted=False, since=now)

    def remove(self, session: object) -> None:
        """Note that it was closed."""
        self._wants.pop(session, None)

    def note(self, session: object, now: float, *, better: bool) -> bool:
        """Note in each round whether preferred sources measure the GPU.

        Returns whether that changes if the GPU is wanted.
        """
        want = self._wants.get(session)
        if want is None:
            return False
        if want.wanted != better:  # as it was
            want.since = now
            return False
        if now - want.since < (LINGER_SECONDS if want.wanted else self._patience):
            return False
        want.wanted, want.since = not want.wanted, now
        return True

    def is_wanted(self, gpu: str, gpu_instance: int | None) -> bool:
        """Return whether this share is to be measured."""
        return any(
            want.wanted and want.device.uuid == gpu and gpu_instance in want.gpu_instances
            for want in self._wants.values()
        )

    def has(self, gpu: str, gpu_instance: int | None = None) -> bool:
        """Return whether the GPU is open, and has this instance."""
        return any(
            want.device.uuid == gpu and gpu_instance in (None, *want.gpu_instances)
            for want in self._wants.values()
        )

    @property
    def gpus(self) -> list[dict[str, Any]]:
        """The GPUs to measure, as a child gets them."""
        found = {
            want.device.uuid: {
                "uuid": want.device.uuid,
                "index": want.device.index,
                "pci_bus_id": want.device.pci_bus_id,
                "gpu_instances": [share for share in want.gpu_instances if share is not None],
            }
            for want in self._wants.values()
            if want.wanted
        }
        return sorted(found.values(), key=lambda gpu: gpu["uuid"])


class ChildCounters:
    """The activities that one program measures, of all GPUs that want it."""

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
        self._wants = Demand(patience_seconds)
        self._notes = StateLog(source)
        self._held: dict[tuple[str, int | None], Held] = {}
        self._failures = 0
        self._explained = 0
        """The generation of the child that last reported a state of all GPUs."""
        self._paused = False
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
        self._paused = True
        self.supervisor.nudge()

    def resume(self) -> None:
        """Measure again."""
        self._paused = False
        with self._lock:
            note = self._notes.everywhere
            if note is not None and note.state == PAUSED:
                self._notes.over(EVERYWHERE)
        self.supervisor.nudge()

    @property
    def paused(self) -> bool:
        """Whether the counters are released for another program."""
        return self._paused

    @property
    def state(self) -> CounterState | None:
        """The state of the child; None while no GPU wants it."""
        with self._lock:
            wanted = self._wants.gpus
            well = any(
                self._notes.of(gpu["uuid"], share) is None
                for gpu in wanted
                for share in gpu["gpu_instances"] or (None,)
            )
        if not wanted:
            return None
        return CounterState(self.supervisor.is_up and well, self._failures)

    def open(self, gpu: OpenedGpu) -> CounterSource:
        """Return its counters of one GPU."""
        return _Source(self, gpu)

    # Called by the workers of the GPUs.

    def add(self, session: object, gpu: OpenedGpu) -> None:
        """Note that a GPU is open."""
        with self._lock:
            self._wants.add(session, gpu.device, gpu.gpu_instances, gpu.journal.now)

    def remove(self, session: object, gpu: OpenedGpu) -> None:
        """Note that it is closed."""
        uuid = gpu.device.uuid
        with self._lock:
            self._wants.remove(session)
            if not self._wants.has(uuid):
                self._held = {key: held for key, held in self._held.items() if key[0] != uuid}
        self.supervisor.nudge()

    def held(self, gpu: str, gpu_instance: int | None) -> Held | None:
        """Return the last sample of a share; None if there was none."""
        return self._held.get((gpu, gpu_instance))

    def note(self, session: object, gpu: OpenedGpu) -> None:
        """Note whether the GPU wants this source, and in its journal why it has no readings."""
        now = gpu.journal.now
        better = gpu.better()
        with self._lock:
            changed = self._wants.note(session, now, better=better)
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
        if self._paused and self.supervisor.has_released:
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
            return Orders(tuple(self._wants.gpus), self._paused)

    def handle(self, message: Message, now: float) -> None:
        """Take a message of the child."""
        match message:
            case Hello(facts):
                self.facts = facts
            case Noted(gpu, gpu_instance, state, text):
                if gpu is None:
                    self._explained = self.supervisor.generation if state != OK else 0
                with self._lock:
                    if gpu is None or self._wants.has(gpu, gpu_instance):
                        self._failures += self._notes.note((gpu, gpu_instance), state, text)
            case Measured(gpu, gpu_instance, activity):
                with self._lock:
                    if not self._wants.is_wanted(gpu, gpu_instance):
                        return
                    held = self._held.setdefault((gpu, gpu_instance), Held(LOOK_SECONDS))
                    self._notes.over(EVERYWHERE)
                    self._notes.over((gpu, gpu_instance))
                age = activity.age_seconds
                valid_seconds = VALID_RATIO * activity.seconds
                held.put(
                    replace(activity, lag_seconds=LOOK_SECONDS + activity.seconds),
                    now,
                    valid_seconds,
                    mean_seconds=valid_seconds,
                    made_at=None if age is None else now - age,
                )

    def failed(self, problem: str | None = None, *, ended_itself: bool = False) -> None:
        """Count a failure; a state of all GPUs that the child reported explains its end better."""
        self._failures += 1
        if problem is None or (ended_itself and self._explained == self.supervisor.generation):
            return
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
        uuid = gpu.device.uuid
        super().__init__(
            gpu,
            lambda share: counters.held(uuid, share),
            lambda opened: counters.note(self, opened),
        )
        self._counters = counters
        counters.add(self, gpu)

    def close(self) -> None:
        """Note that the GPU is not read any more."""
        self._counters.remove(self, self._gpu)

# SPDX-License-Identifier: Apache-2.0
"""Why a child gives no readings: of all GPUs, of one, or of one of its instances."""

from __future__ import annotations

import logging
from typing import NamedTuple

from exporter.model.reading import share_name
from exporter.sources.counters.wire import OK, PAUSED

QUIET = frozenset({"unsupported", "mig", PAUSED})
"""States that nobody can mend: not warned of."""

Place = tuple[str | None, int | None]
"""UUID and GPU instance; (None, None) is every GPU."""
EVERYWHERE: Place = (None, None)

log = logging.getLogger(__name__)


class Note(NamedTuple):
    """A reading state, and one line that says what can be done about it."""

    state: str
    message: str


class Notes:
    """The states that hold now, and what the log has of them: one line for each change."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._notes: dict[Place, Note] = {}
        self._logged: dict[Place, Note] = {}

    def note(self, place: Place, state: str, message: str) -> bool:
        """Note a state; return whether it is a failure that was not known.

        Of all GPUs the exporter itself pauses them, of a single one somebody else has.
        """
        if state == OK:
            self.over(place)
            return False
        note = Note(state, message or state.replace("_", " "))
        self._notes[place] = note
        if self._logged.get(place) == note:
            return False
        self._logged[place] = note
        level = logging.INFO if state in QUIET else logging.WARNING
        log.log(level, "%s%s: %s", self._source, _named(place), note.message)
        return state != PAUSED or place != EVERYWHERE

    def over(self, place: Place) -> None:
        """Note that readings of this place arrive, or can."""
        self._notes.pop(place, None)
        if self._logged.pop(place, None) is not None:
            log.info("%s%s: it works again", self._source, _named(place))

    def forget(self) -> None:
        """Forget what a child that has ended said of single GPUs; the log has it nevertheless."""
        self._notes = {place: note for place, note in self._notes.items() if place == EVERYWHERE}

    def of(self, gpu: str, gpu_instance: int | None) -> Note | None:
        """Return what holds for a share."""
        return self.everywhere or self.of_its_own(gpu, gpu_instance)

    def of_its_own(self, gpu: str, gpu_instance: int | None) -> Note | None:
        """Return what holds for a share, and not for every GPU."""
        return self._notes.get((gpu, gpu_instance)) or self._notes.get((gpu, None))

    @property
    def everywhere(self) -> Note | None:
        """What holds for every GPU."""
        return self._notes.get(EVERYWHERE)


def _named(place: Place) -> str:
    gpu, gpu_instance = place
    return "" if gpu is None else f" of {share_name(gpu, gpu_instance)}"

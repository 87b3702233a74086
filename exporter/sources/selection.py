# SPDX-License-Identifier: Apache-2.0
"""Which GPUs the configuration lets this exporter read, by index or UUID."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Selection:
    """Indexes and UUIDs, as a user wrote them."""

    include: tuple[str, ...] = ()
    """Empty is every GPU."""
    exclude: tuple[str, ...] = ()
    """Comes before `include`."""

    @property
    def by_uuid(self) -> bool:
        """True if an entry is not an index."""
        return not all(map(_is_index, (*self.include, *self.exclude)))

    def admits(self, index: int, uuid: str | None = None) -> bool | None:
        """Return whether to read this GPU; None if it depends on the UUID that is not known."""
        excluded = _names(self.exclude, index, uuid)
        if excluded:
            return False
        included = True if not self.include else _names(self.include, index, uuid)
        if included is False:
            return False
        return None if excluded is None or included is None else True

    def unmatched(self, count: int, uuids: Collection[str]) -> tuple[str, ...]:
        """Return the entries that name none of `count` GPUs, of which the UUIDs are `uuids`.

        With fewer UUIDs than GPUs only indexes are judged.
        """
        known = {uuid.lower() for uuid in uuids}
        return tuple(
            entry
            for entry in (*self.include, *self.exclude)
            if (
                int(entry) >= count
                if _is_index(entry)
                else len(known) >= count and entry.lower() not in known
            )
        )


class Admission:
    """What a selection means for the GPUs that the driver lists; it says so once."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._checked = False
        self.refused: set[int] = set()
        """GPUs that are left out by their index."""

    def admitted(self, count: int) -> list[int]:
        """Return those of `count` indexes that are to be opened: not left out by them alone."""
        admitted = []
        for index in range(count):
            if self._selection.admits(index) is not False:
                admitted.append(index)
            elif index not in self.refused:
                self.refused.add(index)
                log.info("GPU %d is left out, as configured", index)
        return admitted

    def check(self, count: int, uuids: Collection[str | None]) -> None:
        """Say once which entries name no GPU; wait while a UUID (None) may be one of them."""
        if self._checked or (None in uuids and self._selection.by_uuid):
            return
        self._checked = True
        unmatched = self._selection.unmatched(count, {uuid for uuid in uuids if uuid})
        if unmatched:
            log.warning(
                "no GPU is %s, as --gpu.include or --gpu.exclude says", " or ".join(unmatched)
            )


def _is_index(entry: str) -> bool:
    return entry.isdecimal()


def _names(entries: tuple[str, ...], index: int, uuid: str | None) -> bool | None:
    """Return whether one of the entries is this GPU; None if one may be."""
    if any(_is_index(entry) and int(entry) == index for entry in entries):
        return True
    uuids = [entry.lower() for entry in entries if not _is_index(entry)]
    if uuid is None and uuids:
        return None
    return uuid is not None and uuid.lower() in uuids

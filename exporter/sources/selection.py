# SPDX-License-Identifier: Apache-2.0
"""Which GPUs the configuration includes and excludes, by index or UUID."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Selection:
    """The indexes and UUIDs that the user wrote."""

    include: tuple[str, ...] = ()
    """Empty means every GPU."""
    exclude: tuple[str, ...] = ()
    """Has precedence over `include`."""

    @property
    def by_uuid(self) -> bool:
        """True if an entry is not an index."""
        return not all(map(_is_index, (*self.include, *self.exclude)))

    def admits(self, index: int, uuid: str | None = None) -> bool | None:
        """Return whether to read this GPU; None if that depends on a UUID that is not known."""
        excluded = _names(self.exclude, index, uuid)
        if excluded:
            return False
        included = True if not self.include else _names(self.include, index, uuid)
        if included is False:
            return False
        return None if excluded is None or included is None else True

    def unmatched(self, count: int, uuids: Collection[str]) -> tuple[str, ...]:
        """Return the entries that match no GPU, of `count` GPUs with these `uuids`.

        If some UUIDs are not known, only indexes are checked.
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
    """Applies a selection to the GPUs that the driver lists, and logs what it leaves out."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._checked = False
        self.refused: set[int] = set()
        """The indexes of the GPUs that are left out by their index."""

    def admitted(self, count: int) -> list[int]:
        """Return the indexes to open, of `count`: those that are not left out by index alone."""
        admitted = []
        for index in range(count):
            if self._selection.admits(index) is not False:
                admitted.append(index)
            elif index not in self.refused:
                self.refused.add(index)
                log.info("GPU %d is left out, as configured", index)
        return admitted

    def check(self, count: int, uuids: Collection[str | None]) -> None:
        """Log once which entries match no GPU; do nothing while a UUID that is needed is None."""
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
    """Return whether an entry matches this GPU; None if that depends on its UUID."""
    if any(_is_index(entry) and int(entry) == index for entry in entries):
        return True
    uuids = [entry.lower() for entry in entries if not _is_index(entry)]
    if uuid is None and uuids:
        return None
    return uuid is not None and uuid.lower() in uuids

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
        return not all(entry.isdecimal() for entry in (*self.include, *self.exclude))

    def admits(self, index: int, uuid: str) -> bool:
        """Return whether to read this GPU."""
        included = not self.include or _names(self.include, index, uuid)
        return included and not _names(self.exclude, index, uuid)

    def leaves_out(self, index: int) -> bool:
        """Return whether this GPU is left out, whatever its UUID is."""
        by_uuid = not all(entry.isdecimal() for entry in self.include)
        included = by_uuid or not self.include or _names(self.include, index)
        return not included or _names(self.exclude, index)


class Admission:
    """Applies a selection to the GPUs that the driver lists, and logs what it leaves out."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._checked = False
        self.refused: set[int] = set()
        """The indexes of the GPUs that are left out by their index."""

    def admitted(self, count: int) -> list[int]:
        """Return the indexes to open, of `count`: all that no entry leaves out by index."""
        left_out = {index for index in range(count) if self._selection.leaves_out(index)}
        for index in sorted(left_out - self.refused):
            log.info("GPU %d is left out, as configured", index)
        self.refused |= left_out
        return [index for index in range(count) if index not in left_out]

    def check(self, count: int, uuids: Collection[str | None]) -> None:
        """Log once which entries match no GPU; do nothing while a UUID that is needed is None."""
        if self._checked or (None in uuids and self._selection.by_uuid):
            return
        self._checked = True
        known = {uuid.lower() for uuid in uuids if uuid}
        unmatched = [
            entry
            for entry in (*self._selection.include, *self._selection.exclude)
            if (
                int(entry) >= count
                if entry.isdecimal()
                else len(known) >= count and entry.lower() not in known
            )
        ]
        if unmatched:
            log.warning(
                "no GPU is %s, as --gpu.include or --gpu.exclude says", " or ".join(unmatched)
            )


def _names(entries: tuple[str, ...], index: int, uuid: str | None = None) -> bool:
    """Return whether an entry is this index or UUID."""
    if any(entry.isdecimal() and int(entry) == index for entry in entries):
        return True
    return uuid is not None and uuid.lower() in [entry.lower() for entry in entries]

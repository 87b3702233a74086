# SPDX-License-Identifier: Apache-2.0
"""What one GPU's readings met: which cannot be read and why, and what of it is told."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

IDENTITY = "identity"
"""The group of facts that many products lack (a serial number, a NUMA node): no state is kept."""
IMPLAUSIBLE = "implausible"

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Past:
    """What outlives a session with a GPU, for the next one to go on from."""

    failures: dict[str, int] = field(default_factory=dict)
    """Failed reads by source."""
    told: dict[str, set[str]] = field(default_factory=dict)
    """By group: what the log says of it, until it is well again."""
    worked: set[str] = field(default_factory=set)
    """Groups of hardware counters that ever answered."""


def _nothing() -> None:
    pass


class Journal:
    """What one GPU's readings met: why groups are absent, and how many reads failed.

    A group of readings has members (its probes and batches), each of which fails and recovers by
    itself. `tell` logs what changed since it was last called: one line for all that is wrong, and
    one for all that is well again.
    """

    def __init__(
        self, gpu: str, past: Past | None = None, progress: Callable[[], None] = _nothing
    ) -> None:
        """Take what was before, and whom to tell before each call that the last one returned."""
        past = Past() if past is None else past
        self._gpu = gpu
        self.progress = progress
        self.now = 0.0
        """Monotonic time of the round."""
        self.failures = past.failures
        self.worked = past.worked
        self.states: dict[str, str] = {}
        """Why a group cannot be read."""
        self._absent: dict[str, dict[object, str]] = {}
        """By group and member: its state."""
        self._wrong: dict[str, dict[object, str]] = {}
        """By group and member: what is to be told."""
        self._told = past.told
        self.last_refusal = "no data"
        """What was last heard from a reading that does not answer."""

    def absent(
        self, group: str, state: str, member: object = None, *, worked: bool = False
    ) -> None:
        """Note that `member` of `group` does not answer, and why.

        That a product lacks a reading is nothing to tell; that one which `worked` is gone is.
        """
        words = state.replace("_", " ")
        if worked or state == "no_permission":
            self._wrong.setdefault(group, {})[member] = words
        if group == IDENTITY:
            return
        members = self._absent.setdefault(group, {})
        if members.get(member) != state:
            members[member] = state
            log.debug("%s: %s cannot be read: %s", self._gpu, group, words)
        self.states[group] = state

    def refused(
        self, source: str, group: str, member: object = None, *, worked: bool = False
    ) -> None:
        """Count that the driver denies `member` of `group` to this user."""
        self.failures[source] = self.failures.get(source, 0) + 1
        self.absent(group, "no_permission", member, worked=worked)

    def implausible(self, group: str, member: object = None, *, worked: bool = False) -> None:
        """Note that what `member` of `group` answers cannot be true."""
        self.absent(group, IMPLAUSIBLE, member, worked=worked)

    def failed(self, source: str, group: str, message: str, member: object = None) -> None:
        """Count one failed read."""
        self.failures[source] = self.failures.get(source, 0) + 1
        self._wrong.setdefault(group, {})[member] = message

    def answered(self, group: str, member: object = None) -> None:
        """Note that `member` of `group` was read."""
        for noted in (self._wrong, self._absent):
            members = noted.get(group)
            if members is not None and members.pop(member, None) is not None and not members:
                del noted[group]
        if group in self.states:
            members = self._absent.get(group)
            if members is None:
                del self.states[group]
            else:
                self.states[group] = next(reversed(members.values()))

    def tell(self) -> None:
        """Log what went wrong or became well since the last call, if anything did."""
        if not self._wrong and not self._told:
            return
        news: dict[str, list[str]] = {}
        for group, members in self._wrong.items():
            told = self._told.setdefault(group, set())
            for reason in dict.fromkeys(members.values()):
                if reason not in told:
                    told.add(reason)
                    news.setdefault(reason, []).append(group)
        well = [group for group in self._told if group not in self._wrong]
        for group in well:
            del self._told[group]
        if news:
            parts = (f"{', '.join(groups)} ({reason})" for reason, groups in news.items())
            log.warning("%s cannot be read in part: %s", self._gpu, "; ".join(parts))
        if well:
            log.info("%s: can be read again: %s", self._gpu, ", ".join(well))

# SPDX-License-Identifier: Apache-2.0
"""Which readings of one GPU are absent and why, how many reads failed, and which were logged.

Every source of a GPU writes here.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from exporter.model.reading import named_group

IDENTITY = "identity"
"""The group of facts that many GPU models lack (a serial number, a NUMA node): it has no state."""
IMPLAUSIBLE = "implausible"
QUIET_SECONDS = 60.0
"""How long after a group is read again it is not logged that it fails again."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Past:
    """The states that one session with a GPU hands to the next."""

    failures: Counter[str] = field(default_factory=Counter)
    """Failed reads by source."""
    logged: dict[str, set[str]] = field(default_factory=dict)
    """By group: the faults that the log has of it, until the group is read again."""
    quiet_until: dict[str, float] = field(default_factory=dict)
    """By group that was read again: the monotonic time from which a fault is logged at once."""
    worked: set[str] = field(default_factory=set)
    """Groups of hardware counters that have answered."""


class Journal:
    """Notes why groups of readings are absent, and counts the reads that failed.

    A group of readings has members (its probes and batches), each of which fails and recovers by
    itself. `log_changes` writes what changed since its last call: one line for everything that
    cannot be read, and one for everything that can be read again.
    """

    def __init__(
        self, gpu: str, past: Past | None = None, progress: Callable[[], None] = lambda: None
    ) -> None:
        """Go on from `past`; sources call `progress` before each driver call, so that a GPU whose
        calls are slow but return is not taken for one that hangs."""
        past = past or Past()
        self._gpu = gpu
        self.progress = progress
        self.now = 0.0
        """Monotonic time of the round."""
        self.failures = past.failures
        self.worked = past.worked
        self._absent: dict[str, dict[object, str]] = {}
        """By group and member: its state; that which was noted last is at the end."""
        self._wrong: dict[str, dict[object, str]] = {}
        """By group and member: the fault that belongs in the log."""
        self._logged = past.logged
        self._quiet_until = past.quiet_until
        self.last_refusal = "no data"
        """The driver's last answer to a reading that failed."""

    @property
    def states(self) -> dict[str, str]:
        """By group: why it cannot be read."""
        return {group: next(reversed(each.values())) for group, each in self._absent.items()}

    def absent(
        self,
        group: str,
        state: str,
        member: object = None,
        *,
        worked: bool = False,
        logged: bool = False,
    ) -> None:
        """Note why `member` of `group` does not answer; logged if it has `worked` or is denied,
        unless it is `logged` already: as of all GPUs at once."""
        words = state.replace("_", " ")
        if not logged and (worked or state == "no_permission"):
            self._wrong.setdefault(group, {})[member] = words
        if group == IDENTITY:
            return
        members = self._absent.setdefault(group, {})
        if members.pop(member, None) != state:
            log.debug("%s: %s cannot be read: %s", self._gpu, named_group(group, self._gpu), words)
        members[member] = state

    def refused(
        self, source: str, group: str, member: object = None, *, worked: bool = False
    ) -> None:
        """Count a read of `member` of `group` that the driver denies to this user."""
        self.failures[source] += 1
        self.absent(group, "no_permission", member, worked=worked)

    def judged(self, group: str, member: object = None, *, possible: bool, worked: bool) -> None:
        """Note whether the values of `member` of `group` are possible."""
        if possible:
            self.answered(group, member)
        else:
            self.absent(group, IMPLAUSIBLE, member, worked=worked)

    def failed(self, source: str, group: str, message: str, member: object = None) -> None:
        """Count one failed read."""
        self.failures[source] += 1
        self._wrong.setdefault(group, {})[member] = message

    def answered(self, group: str, member: object = None) -> None:
        """Note that `member` of `group` was read."""
        for noted in (self._wrong, self._absent):
            if group in noted and noted[group].pop(member, None) is not None and not noted[group]:
                del noted[group]

    def log_changes(self) -> None:
        """Log the faults that are new since the last call, and those that are over; of a group that
        comes and goes, one of each a minute."""
        if not self._wrong and not self._logged:
            return
        news: dict[str, list[str]] = {}
        for group, members in self._wrong.items():
            if group not in self._logged and self.now < self._quiet_until.get(group, 0.0):
                continue
            logged = self._logged.setdefault(group, set())
            for reason in dict.fromkeys(members.values()):
                if reason not in logged:
                    logged.add(reason)
                    news.setdefault(reason, []).append(named_group(group, self._gpu))
        recovered = [group for group in self._logged if group not in self._wrong]
        for group in recovered:
            del self._logged[group]
            self._quiet_until[group] = self.now + QUIET_SECONDS
        if news:
            parts = (f"{', '.join(groups)} ({reason})" for reason, groups in news.items())
            log.warning("%s cannot be read in part: %s", self._gpu, "; ".join(parts))
        if recovered:
            names = ", ".join(named_group(group, self._gpu) for group in recovered)
            log.info("%s: can be read again: %s", self._gpu, names)

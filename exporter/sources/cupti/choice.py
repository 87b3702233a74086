# SPDX-License-Identifier: Apache-2.0
"""Which metrics of a chip are sampled: the most important signals that one pass counts.

Whether metrics are counted at the same time is known only of a whole set, from CUPTI. A set that
takes several passes does so with any metric more; therefore the search adds one signal after the
other, and for a signal that does not fit tries other metrics of those before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from exporter.sources.cupti.errors import CuptiError
from exporter.sources.cupti.host import Host, Image
from exporter.sources.cupti.library import Library
from exporter.sources.cupti.signals import SIGNALS, Form, Signal

MOST_TRIALS = 200
"""Sets that are tried for one signal, at 3 ms each, before it is left out."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric that is sampled."""

    signal: str
    name: str
    """As CUPTI is asked for it."""
    field: str | None
    """Of Activity, which it gives; None: none."""
    form: Form


@dataclass(frozen=True, slots=True)
class Choice:
    """What is sampled of a chip, at the same time."""

    metrics: tuple[Metric, ...]
    missing: tuple[str, ...]
    """The signals that are wanted, or that the chip has, and are not among them."""


class Choices:
    """Chooses, once for each chip and state of its counters."""

    def __init__(self, library: Library) -> None:
        """Ask this release of CUPTI."""
        self._library = library
        self._made: dict[tuple[str, bytes], Choice] = {}

    def of(self, chip: str, availability: Image | None = None) -> Choice:
        """Return what is sampled of a chip; takes up to a second for a new one.

        Raises:
            CuptiError: CUPTI does not know the chip, or cannot sample it.
        """
        key = (chip, b"" if availability is None else bytes(availability))
        if key not in self._made:
            self._made[key] = _chosen(_Trial(self._library, chip, availability))
        return self._made[key]


class _Trial:
    """Tries sets of metrics of one chip."""

    def __init__(self, library: Library, chip: str, availability: Image | None) -> None:
        self._library, self._chip, self._availability = library, chip, availability
        self._known: dict[tuple[Metric, ...], bool] = {}
        self.count = 0

    def describes(self, metric: str, text: str) -> bool:
        """Return whether the chip has a metric with this in its description."""
        with self._host() as host:
            return text in (host.description(metric) or "")

    def fits(self, metrics: tuple[Metric, ...]) -> bool:
        """Return whether one pass counts all of them."""
        if metrics not in self._known:
            self.count += 1
            self._known[metrics] = self._passes([metric.name for metric in metrics]) == 1
        return self._known[metrics]

    def _passes(self, names: Sequence[str]) -> int | None:
        with self._host() as host:
            try:
                host.add(names)
                return host.passes(host.image())
            except CuptiError:
                return None

    def _host(self) -> Host:
        return Host(self._library, self._chip, self._availability)


def _chosen(trial: _Trial) -> Choice:
    candidates: dict[str, list[Metric]] = {}
    best: tuple[Metric, ...] = ()
    for signal in SIGNALS:
        candidates[signal.name] = list(_candidates(signal, trial))
        names = [*(metric.signal for metric in best), signal.name]
        most = trial.count + MOST_TRIALS
        best = next(_sets([candidates[name] for name in names], trial, most), best)
    has = {metric.signal for metric in best}
    return Choice(
        best,
        tuple(s.name for s in SIGNALS if s.name not in has and (s.wanted or candidates[s.name])),
    )


def _candidates(signal: Signal, trial: _Trial) -> Iterator[Metric]:
    """Yield the metrics of a signal that the chip can count alone."""
    seen = set()
    for each in signal.alternatives:
        name = each.metric + signal.form.value
        metric = Metric(signal.name, name, each.field or signal.field, signal.form)
        if name in seen or (
            each.where and not trial.describes(each.where[0] + signal.form.value, each.where[1])
        ):
            continue
        if trial.fits((metric,)):
            seen.add(name)
            yield metric


def _sets(
    candidates: Sequence[Sequence[Metric]],
    trial: _Trial,
    most: int,
    begun: tuple[Metric, ...] = (),
) -> Iterator[tuple[Metric, ...]]:
    """Yield the sets with one of each that one pass counts, those of earlier candidates first."""
    if not candidates:
        yield begun
        return
    for metric in candidates[0]:
        if trial.count < most and trial.fits((*begun, metric)):
            yield from _sets(candidates[1:], trial, most, (*begun, metric))

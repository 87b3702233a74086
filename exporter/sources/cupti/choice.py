# SPDX-License-Identifier: Apache-2.0
"""Choose which metrics of a chip to sample: the most important signals that fit into one pass.

CUPTI says only of a whole set how many passes it takes, and a set never takes fewer with one more
metric. So add one signal after the other; where one does not fit, try other metrics of the signals
before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from exporter.sources.cupti.host import Host, Image
from exporter.sources.cupti.library import CuptiError, CuptiLibrary
from exporter.sources.cupti.signals import SIGNALS, MetricForm, Signal

MOST_TRIALS = 300
"""Sets that are tried for one signal, at 1 to 3 ms each, before it is left out."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric that is sampled."""

    signal: str
    name: str
    """CUPTI's name of it, with the form."""
    field: str
    """Of Activity, which it gives."""
    form: MetricForm


@dataclass(frozen=True, slots=True)
class Choice:
    """The metrics sampled on a chip in one pass."""

    metrics: tuple[Metric, ...]
    missing: tuple[str, ...]
    """The signals that are wanted, or that the chip has, but that did not fit."""


Fits = Callable[[tuple[Metric, ...]], bool]


class Choices:
    """A cache: one choice for each chip and availability of its counters."""

    def __init__(self, library: CuptiLibrary) -> None:
        """Choose with this release of CUPTI."""
        self.library = library
        self._made: dict[tuple[str, bytes], Choice] = {}

    def of(self, chip: str, availability: Image | None = None) -> Choice:
        """Return the choice for a chip; a new one takes up to a second.

        Raises:
            CuptiError: CUPTI does not know the chip, or cannot sample it.
        """
        key = (chip, b"" if availability is None else bytes(availability))
        if key not in self._made:
            self._made[key] = _chosen(_Trial(self.library, chip, availability))
        return self._made[key]


class _Trial:
    """Ask CUPTI whether sets of metrics of one chip fit into one pass."""

    def __init__(self, library: CuptiLibrary, chip: str, availability: Image | None) -> None:
        self._library, self._chip, self._availability = library, chip, availability
        self._known: dict[tuple[Metric, ...], bool] = {}

    def describes(self, metric: str, text: str) -> bool:
        """Return whether the chip has a metric with this in its description."""
        with closing(self._host()) as host:
            return text in (host.description(metric) or "")

    def fits(self, metrics: tuple[Metric, ...]) -> bool:
        """Return whether one pass counts all of them."""
        if metrics not in self._known:
            with closing(self._host()) as host:
                try:
                    host.add([metric.name for metric in metrics])
                    self._known[metrics] = host.passes(host.image()) == 1
                except CuptiError:
                    self._known[metrics] = False
        return self._known[metrics]

    def _host(self) -> Host:
        return Host(self._library, self._chip, self._availability)


def _chosen(trial: _Trial) -> Choice:
    found = {signal: list(_candidates(signal, trial)) for signal in SIGNALS}
    metrics = largest_set(list(found.values()), trial.fits)
    has = {metric.signal for metric in metrics}
    missing = [signal.name for signal in SIGNALS if signal.wanted or found[signal]]
    return Choice(metrics, tuple(name for name in missing if name not in has))


def _candidates(signal: Signal, trial: _Trial) -> Iterator[Metric]:
    """Yield the metrics of a signal that the chip can count alone."""
    seen = set()
    for each in signal.alternatives:
        name = each.metric + signal.form.value
        metric = Metric(signal.name, name, each.field or signal.name, signal.form)
        if name in seen or (each.where and not trial.describes(*each.where)):
            continue
        if trial.fits((metric,)):
            seen.add(name)
            yield metric


def largest_set(candidates: Sequence[Sequence[Metric]], fits: Fits) -> tuple[Metric, ...]:
    """Return one metric of each signal, as far as all fit into one pass.

    Args:
        candidates: by signal, the most important first: its metrics, the best first.
        fits: whether one pass counts a set.
    """
    taken: list[Sequence[Metric]] = []
    best: tuple[Metric, ...] = ()
    for metrics in candidates:
        found = next(_sets([*taken, metrics], _limited(fits)), None)
        if found is not None:
            taken.append(metrics)
            best = found
    return best


def _limited(fits: Fits) -> Fits:
    left = iter(range(MOST_TRIALS))
    return lambda metrics: next(left, None) is not None and fits(metrics)


def _sets(
    candidates: Sequence[Sequence[Metric]], fits: Fits, begun: tuple[Metric, ...] = ()
) -> Iterator[tuple[Metric, ...]]:
    """Yield the sets of one metric per signal that fit into one pass, the preferred ones first."""
    if not candidates:
        yield begun
        return
    for metric in candidates[0]:
        if fits((*begun, metric)):
            yield from _sets(candidates[1:], fits, (*begun, metric))

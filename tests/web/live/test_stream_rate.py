# SPDX-License-Identifier: Apache-2.0
"""How much the live view sends for the demo's 8 GPUs, over ten minutes of its stories."""

from __future__ import annotations

from exporter.model.snapshot import Snapshot
from exporter.publisher import Publisher, Rules
from exporter.sources.simulate import Simulation, load_scenario
from exporter.specs import SpecBook
from exporter.web.live.stream import encoded, merge_patch
from exporter.web.live.view import Views
from exporter.web.store import Store
from tests.clocks import ManualClock

SECONDS = 600
MOST_BYTES_PER_SECOND = 4000
CHUNK_BYTES = 8
"""What HTTP adds to an event: its length and two line breaks."""


def test_four_kilobytes_a_second(book: SpecBook) -> None:
    """Eight GPUs, each with another story, need less than 4 kB a second on average."""
    clock = ManualClock()
    readers = Simulation(load_scenario("demo", book), book, "host:19400", 0, clock)
    store = Store()
    views = Views(store, lambda: 1.0)
    seen: list[Snapshot] = []
    publisher = Publisher(
        readers,
        book,
        Rules(),
        clock,
        (store.publish, seen.append),
        training=[readers.jobs],
    )
    readers.start()
    publisher.tick()
    shown, sizes = views.latest(), []
    whole = len(encoded("snapshot", 1, shown))
    for _ in range(SECONDS):
        clock.advance(1.0)
        publisher.tick()
        after = views.latest()
        sizes.append(len(encoded("diff", 1, merge_patch(shown, after))) + CHUNK_BYTES)
        shown = after
    mean = sum(sizes) / len(sizes)
    print(f"{mean:.0f} bytes/s on average, {max(sizes)} at most, {whole} at first")
    assert sum(gpu.up for gpu in seen[0].gpus) == 8
    assert mean > 500, "nothing changes: is anything simulated?"
    assert mean < MOST_BYTES_PER_SECOND
    assert sorted(sizes)[int(0.99 * SECONDS)] < MOST_BYTES_PER_SECOND

# SPDX-License-Identifier: Apache-2.0
"""Whoever watches sees every snapshot; nobody is held up, and nothing is done for nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.snapshot import Snapshot
from exporter.publisher import Publisher, Rules
from exporter.sources.simulate import Simulation, load_scenario
from exporter.specs import SpecBook
from exporter.web.live import stream
from exporter.web.live.stream import encoded, merge_patch
from exporter.web.live.view import NodeView, Views
from exporter.web.store import Store
from tests import snapshots
from tests.clocks import ManualClock
from tests.web.conftest import Daemon
from tests.web.live.viewer import Viewer, merged


def node(number: int) -> Snapshot:
    """Return a snapshot that differs from those of other numbers."""
    gpu = snapshots.h100_training()
    assert gpu.vitals is not None
    gpu = replace(gpu, vitals=replace(gpu.vitals, power_watts=100.0 + number))
    return replace(snapshots.snapshot(gpu), timestamp_seconds=snapshots.NOW + number)


class Stage:
    """A daemon with a publisher in a thread of its own."""

    def __init__(self, daemon: Daemon, patch: pytest.MonkeyPatch) -> None:
        self.daemon = daemon
        self.patch = patch
        self.number = 0

    async def publish(self, times: int = 1, seconds: float = 1.0) -> None:
        """Publish so many snapshots, so many seconds apart."""
        for _ in range(times):
            self.number += 1
            self.daemon.now += seconds
            await asyncio.to_thread(self.daemon.publish, node(self.number))
            await asyncio.sleep(0)  # the event loop hands it out

    async def view(self) -> NodeView:
        return await asyncio.to_thread(self.daemon.views.latest)

    def viewer(self, address: str = "127.0.0.1") -> Viewer:
        """Return a viewer who stays until the end."""
        return Viewer(self.daemon.app, address)


def on_stage(
    act: Callable[[Stage], Coroutine[Any, Any, None]],
) -> Callable[[Daemon, pytest.MonkeyPatch], None]:
    """Return a test that runs a coroutine on a stage."""

    def test(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
        asyncio.run(act(Stage(daemon, monkeypatch)))

    return test


@on_stage
async def test_a_snapshot_and_then_diffs(stage: Stage) -> None:
    """First the whole view, then patches that lead to each later view."""
    await stage.publish(3)
    viewer = stage.viewer()
    retry, whole = await viewer.event(), await viewer.event()
    assert (retry.name, retry.value) == ("retry", "2000")
    assert (whole.name, whole.sequence) == ("snapshot", 3)
    assert whole.value == await stage.view()
    assert viewer.status == 200
    assert viewer.headers["content-type"] == "text/event-stream"
    assert viewer.headers["cache-control"] == "no-store"
    shown = whole.value
    for number in (4, 5, 6):
        await stage.publish()
        diff = await viewer.event()
        assert (diff.name, diff.sequence) == ("diff", number)
        assert len(diff.value["rows"]) == 1
        shown = merged(shown, diff.value)
        assert shown == await stage.view()


@on_stage
async def test_one_encoding_for_all(stage: Stage) -> None:
    """Ten viewers cost one view and one encoding a snapshot."""
    made: list[str] = []
    encode = stream.encoded

    def counted(name: str, sequence: int, value: dict[str, Any]) -> bytes:
        made.append(name)
        return encode(name, sequence, value)

    stage.patch.setattr(stream, "encoded", counted)
    await stage.publish()
    viewers = [stage.viewer() for _ in range(10)]
    for viewer in viewers:
        await viewer.whole()
    await stage.publish(3)
    for viewer in viewers:
        assert [(await viewer.event()).sequence for _ in range(3)] == [2, 3, 4]
    assert made == ["snapshot", "diff", "diff", "diff"]


@on_stage
async def test_nothing_is_made_while_nobody_watches(stage: Stage) -> None:
    """No view is made before the first viewer and after the last."""
    made: list[int] = []
    latest = stage.daemon.views.latest

    def counted() -> NodeView:
        made.append(stage.number)
        return latest()

    stage.patch.setattr(stage.daemon.views, "latest", counted)
    await stage.publish(5)
    assert made == []
    viewer = stage.viewer()
    await viewer.whole()
    await stage.publish()
    await viewer.event()
    assert made == [5, 6]
    await viewer.leave()
    await stage.publish(5)
    assert made == [5, 6]
    again = stage.viewer()
    assert (await again.whole()).sequence == 11


@on_stage
async def test_a_slow_viewer_holds_nobody_up(stage: Stage) -> None:
    """Others get every diff; the slow one gets the whole view next, then diffs."""
    await stage.publish()
    quick, slow = stage.viewer(), stage.viewer()
    for viewer in (quick, slow):
        await viewer.whole()
    slow.reading.clear()
    await stage.publish(11)
    sequences = [(await quick.event()).sequence for _ in range(11)]
    assert sequences == list(range(2, 13))
    slow.reading.set()
    # The one that was under way, then the whole.
    assert (await slow.event()).name == "diff"
    whole = await slow.event()
    assert (whole.name, whole.value) == ("snapshot", await stage.view())
    await stage.publish()
    diff = await slow.event()
    assert diff.name == "diff"
    assert merged(whole.value, diff.value) == await stage.view()


@on_stage
async def test_too_many_streams(stage: Stage) -> None:
    """The 33rd stream is refused in one line, until another one ends."""
    await stage.publish()
    viewers = [stage.viewer() for _ in range(stream.MOST_STREAMS)]
    for viewer in viewers:
        await viewer.event()
    refused = stage.viewer()
    await refused.ended()
    assert refused.status == 503
    assert refused.body == b"32 streams are open, which is the limit\n"
    assert refused.headers["retry-after"] == "5"
    assert stage.daemon.refused == ["streams"]
    await viewers.pop().leave()
    viewers.append(stage.viewer())
    await viewers[-1].event()
    assert viewers[-1].status == 200


@on_stage
async def test_no_address_has_all_streams(stage: Stage) -> None:
    """At the limit a new address evicts the newest stream of the address with the most."""
    await stage.publish()
    many = [stage.viewer(f"127.0.0.{number}") for number in range(stream.MOST_STREAMS)]
    for viewer in many:
        assert [(await viewer.event()).name for _ in "ab"] == ["retry", "snapshot"]
    # One /64, which is one client, too.
    other = [stage.viewer(f"2001:db8::{number}") for number in range(16)]
    for viewer in other:
        assert [(await viewer.event()).name for _ in "ab"] == ["retry", "snapshot"]
    for viewer in many[16:]:
        await viewer.ended()
    assert stage.daemon.refused == ["streams"] * 16
    refused = [stage.viewer(f"2001:db8::{address}") for address in "ab"]
    refused.append(stage.viewer())
    for viewer in refused:
        await viewer.ended()
        assert viewer.status == 503
    await stage.publish()
    for viewer in (*many[:16], *other):
        assert (await viewer.event()).name == "diff"


def test_snapshots_after_the_event_loop_ended(daemon: Daemon) -> None:
    """Publishing does not fail after the server has stopped."""

    async def act() -> None:
        await asyncio.to_thread(daemon.publish, node(1))
        viewer = Viewer(daemon.app)
        await viewer.whole()
        # As when the loop is closed under an open stream.
        viewer.task.cancel()

    asyncio.run(act())
    daemon.now += 1
    daemon.publish(node(2))


@on_stage
async def test_fast_snapshots_are_left_out(stage: Stage) -> None:
    """At ten snapshots a second there is one event a second, with all changes."""
    await stage.publish(20, 0.1)
    viewer = stage.viewer()
    whole = await viewer.whole()
    shown, sequences = whole.value, []
    await stage.publish(31, 0.1)
    while viewer.waiting:
        diff = await viewer.event()
        sequences.append(diff.sequence)
        shown = merged(shown, diff.value)
    assert sequences == [21, 31, 41, 51]
    assert shown == await stage.view()


@on_stage
async def test_heartbeat(stage: Stage) -> None:
    """While there is no data a comment keeps the connection alive."""
    stage.patch.setattr(stream, "HEARTBEAT_SECONDS", 0.01)
    await stage.publish()
    viewer = stage.viewer()
    await viewer.whole()
    for _ in range(2):
        assert (await viewer.event()).name == "comment"


scalars = st.one_of(st.booleans(), st.integers(), st.text(max_size=3), st.lists(st.integers()))
objects = st.recursive(
    st.dictionaries(st.sampled_from("abcd"), scalars),
    lambda inner: st.dictionaries(st.sampled_from("abcd"), st.one_of(scalars, inner)),
    max_leaves=12,
)


@given(objects, objects)
def test_patches_lead_from_one_to_the_other(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Applied as RFC 7386 says, a patch gives the second object."""
    assert merged(before, merge_patch(before, after)) == after


SECONDS = 240
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

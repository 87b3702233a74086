# SPDX-License-Identifier: Apache-2.0
"""Where the time of a thread goes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline_job import lanes
from roofline_job.lanes import PHASES, Lane, Span
from roofline_job.runs import PROCESS, Run
from roofline_job.totals import Totals


@dataclass
class Clock:
    """A clock that is told the time."""

    now_ns: int = 1_000

    def __call__(self) -> int:
        return self.now_ns


class Token:
    """Stands for a loop."""


@dataclass
class Bench:
    """A lane on a clock that is told the time."""

    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.run = Run("test", 0, "client")
        self.run.over = True
        self.lane = Lane(self.run, self.clock)

    def at(self, now_ns: int) -> Lane:
        self.clock.now_ns = 1_000 + now_ns
        return self.lane


def test_an_inner_phase_is_taken_off_the_outer_one() -> None:
    """Each instant counts once, for the innermost phase."""
    bench = Bench()
    outer = bench.at(0).begin("forward")
    inner = bench.at(10).begin("logging")
    bench.at(14).end(inner)
    bench.at(30).end(outer)

    assert bench.lane.waits() == {"forward": 26, "logging": 4}
    assert bench.lane.wall_ns == 30


def test_an_unknown_phase_counts_as_other() -> None:
    """The phases are a closed list."""
    bench = Bench()
    span = bench.at(0).begin("augmentation")
    bench.at(5).end(span)

    assert bench.lane.waits() == {"other": 5}


def test_wall_time_is_the_union_of_loops_and_phases() -> None:
    """What lies between two loops, with no phase under way, is not part of any loop."""
    bench = Bench()
    first, second = Token(), Token()
    bench.at(0).open_loop(first, evaluating=False)
    bench.at(10).open_loop(second, evaluating=False)
    bench.at(20).close_loop(first)
    bench.at(30).close_loop(second)
    span = bench.at(100).begin("checkpoint")
    bench.at(107).end(span)
    bench.at(200).open_loop(first, evaluating=False)
    bench.at(201).close_loop(first)

    assert bench.lane.wall_ns == 30 + 7 + 1


def test_a_loop_whose_token_is_gone_is_closed() -> None:
    """A loop that was left without a word does not run on; its last event was its end."""
    bench = Bench()
    token = Token()
    bench.at(0).open_loop(token, evaluating=False)
    bench.at(10).end(bench.lane.begin("other"))
    bench.at(50)
    del token
    bench.at(100).end(bench.lane.begin("other"))

    assert bench.lane.wall_ns == 10


def test_the_body_of_an_evaluating_loop_is_eval() -> None:
    """Its waits are data, its batches train nothing, and it is accounted as it goes."""
    bench = Bench()
    token = Token()
    bench.at(0).open_loop(token, evaluating=True)
    span = bench.at(0).begin("data")
    bench.at(3).end(span)
    bench.lane.batch(8)
    span = bench.at(10).begin("data")

    assert bench.lane.waits() == {"data": 3, "eval": 7}

    bench.at(12).end(span)
    bench.at(20).close_loop(token)

    assert bench.lane.waits() == {"data": 5, "eval": 15}
    assert bench.lane.wall_ns == 20
    assert (bench.lane.counts.batches(), bench.lane.counts.samples) == (0, None)
    assert bench.lane.evaluating == 0


def test_a_loop_inside_phase_eval_evaluates() -> None:
    """It need not switch gradients off."""
    bench = Bench()
    token = Token()
    span = bench.at(0).begin("eval")
    bench.at(2).open_loop(token, evaluating=False)
    wait = bench.at(2).begin("data")
    bench.at(6).end(wait)
    bench.lane.batch()
    bench.at(9).close_loop(token)
    bench.at(10).end(span)

    assert bench.lane.waits() == {"data": 4, "eval": 6}
    assert bench.lane.counts.batches() == 0


def test_an_evaluating_loop_that_is_only_held_does_not_evaluate() -> None:
    """An endless validation iterator is asked now and then; in between the job trains."""
    bench = Bench()
    train, validate = Token(), Token()
    lane = bench.at(0)
    for _ in range(2):
        for token, evaluating in ((train, False), (validate, True)):
            lane.open_loop(token, evaluating=evaluating)
            lane.asking = token
            span = lane.begin("data")
            lane.end(span)
            lane.asking = None
            lane.batch()
            bench.at(bench.clock.now_ns - 1_000 + 10)

    assert lane.counts.batches() == 2
    assert lane.waits().get("eval", 0) == 10


def test_a_training_loop_may_begin_while_an_evaluating_one_is_held() -> None:
    """Lightning keeps the iterator of its sanity check, and then trains."""
    bench = Bench()
    check, train = Token(), Token()
    bench.at(0).open_loop(check, evaluating=True)
    bench.at(5).open_loop(train, evaluating=False)
    bench.lane.batch()
    bench.at(9).close_loop(train)

    assert bench.lane.counts.batches() == 1
    assert bench.lane.waits() == {"eval": 5}


def test_steps_are_those_of_the_busiest_optimizer() -> None:
    """A GAN's two optimizers make one step together; batches count only where none steps."""
    bench = Bench()
    token, generator, discriminator = Token(), Token(), Token()
    bench.at(0).open_loop(token, evaluating=False)
    for batch in range(12):
        bench.lane.batch()
        if batch % 2:
            bench.lane.optimizer_step(discriminator)
        if batch % 4 == 3:
            bench.lane.optimizer_step(generator)
    bench.lane.close_loop(token)

    assert bench.lane.counts.steps() == 6
    assert bench.lane.counts.batches() == 12


def test_each_loop_has_its_own_busiest_optimizer() -> None:
    """Steps of one epoch add to those of the last."""
    bench = Bench()
    token, one, other = Token(), Token(), Token()
    for optimizer in (one, other, one):
        bench.lane.open_loop(token, evaluating=False)
        bench.lane.batch()
        bench.lane.optimizer_step(optimizer)
        bench.lane.close_loop(token)

    assert bench.lane.counts.steps() == 3


def arriving(bench: Bench, batches: int, ahead: int) -> Iterator[int]:
    """Yield batches as a loop does that asks for some of them before it needs them."""
    token, arrived = Token(), 0
    bench.lane.open_loop(token, evaluating=False)
    for number in range(1, batches + 1):
        while arrived < min(number + ahead, batches):
            bench.lane.batch()
            arrived += 1
        if arrived < number + ahead:
            bench.lane.close_loop(token)
        yield number
    bench.lane.close_loop(token)


@pytest.mark.parametrize(
    ("ahead", "batches_per_step", "batches", "steps"),
    [(0, 1, 5, 5), (1, 1, 5, 5), (2, 1, 5, 5), (0, 4, 10, 3), (1, 4, 10, 3)],
)
def test_steps_after_the_end_of_the_data_are_those_of_its_last_batches(
    ahead: int, batches_per_step: int, batches: int, steps: int
) -> None:
    """A prefetcher finds the end before the job has had its last batch, and gradients that are
    accumulated may leave a rest: those steps count, with their time. What follows does not.
    """
    bench = Bench()
    optimizer = Token()
    for number in arriving(bench, batches, ahead):
        bench.at(10 * number)
        if number % batches_per_step == 0:
            bench.lane.optimizer_step(optimizer)
    end_ns = 10 * batches
    if batches % batches_per_step:
        end_ns += 5
        bench.at(end_ns).optimizer_step(optimizer)
    for stray in range(1, 4):
        bench.at(1_000 * stray).optimizer_step(optimizer)

    assert (bench.lane.counts.steps(), bench.lane.counts.batches()) == (steps, batches)
    assert bench.lane.wall_ns == end_ns


def test_an_epoch_of_one_batch_is_a_step_too() -> None:
    """Of an optimizer that is known to step for the batches of loops."""
    bench = Bench()
    optimizer = Token()
    for epoch, batches in enumerate((3, 1, 1)):
        for number in arriving(bench, batches, 1):
            bench.at(1_000 * epoch + 10 * number).optimizer_step(optimizer)

    assert bench.lane.counts.steps() == bench.lane.counts.batches() == 5


def test_steps_that_are_never_inside_a_loop_do_not_count() -> None:
    """A job that gathers data in a loop and trains elsewhere: its batches are what is known."""
    bench = Bench()
    for epoch in range(3):
        for number in arriving(bench, 4, 0):
            bench.at(1_000 * epoch + 10 * number)
        for update in range(9):
            bench.at(1_000 * epoch + 100 + update).optimizer_step(bench)

    assert bench.lane.counts.steps() == bench.lane.counts.batches() == 12


def test_two_optimizers_may_step_after_the_end_of_the_data() -> None:
    """As those of a GAN do on the last batch, of which one steps only every other time."""
    bench = Bench()
    generator, discriminator = Token(), Token()
    for number in arriving(bench, 7, 1):
        bench.at(10 * number).optimizer_step(discriminator)
        if number % 2 == 0:
            bench.lane.optimizer_step(generator)
    for _ in range(9):
        bench.at(1_000).optimizer_step(generator)

    assert bench.lane.counts.steps() == 7
    assert bench.lane.wall_ns == 70


def test_phases_after_the_end_of_the_data_count_once() -> None:
    """They are a part of the time up to the step that is still to come."""
    bench = Bench()
    optimizer = Token()
    for number in arriving(bench, 3, 1):
        span = bench.at(10 * number - 4).begin("backward")
        bench.at(10 * number - 1).end(span)
        bench.at(10 * number).optimizer_step(optimizer)
    with_rest = bench.lane.wall_ns
    bench.at(50).end(bench.lane.begin("checkpoint"))

    assert (with_rest, bench.lane.wall_ns) == (30, 30)
    assert bench.lane.waits() == {"backward": 9}


def test_a_loop_that_evaluates_owes_no_steps() -> None:
    """Nor does it leave those of the loop before it to be counted."""
    bench = Bench()
    token, optimizer = Token(), Token()
    for _ in arriving(bench, 3, 0):
        pass
    bench.at(10).open_loop(token, evaluating=True)
    bench.lane.batch()
    bench.at(20).close_loop(token)
    bench.at(30).optimizer_step(optimizer)

    assert (bench.lane.counts.steps(), bench.lane.counts.batches()) == (3, 3)
    assert bench.lane.wall_ns == 10


def test_a_loop_without_a_batch_takes_no_steps_from_the_one_before() -> None:
    """As of an iterator that is asked again after its end; a held-back batch is one."""
    for held_back, steps in ((False, 5), (True, 3)):
        bench = Bench()
        optimizer, token = Token(), Token()
        for number in arriving(bench, 5, 2):
            if number > 3:
                bench.at(10 * number - 5).open_loop(token, evaluating=False)
                if held_back:
                    bench.lane.counts.hold_back()
                bench.lane.close_loop(token)
            bench.at(10 * number).optimizer_step(optimizer)

        assert (bench.lane.counts.steps(), bench.lane.counts.batches()) == (steps, 5)
        assert bench.lane.wall_ns == (30 if held_back else 50)


def test_a_step_that_the_job_tells_of_overrides_the_others() -> None:
    """Who says what a step is, is believed."""
    bench = Bench()
    token, optimizer = Token(), Token()
    bench.lane.open_loop(token, evaluating=False)
    for _ in range(8):
        bench.lane.batch()
        bench.lane.optimizer_step(optimizer)
    bench.lane.step(2, 64, 1e9)
    bench.lane.close_loop(token)

    assert bench.lane.counts.steps() == 2
    assert bench.lane.counts.samples == 64
    assert bench.lane.counts.flops() == 1e9


def test_a_loop_that_is_no_iterator_runs_from_its_first_step() -> None:
    """Outside any watched loop, time passes from step to step, until another loop begins."""
    bench = Bench()
    for now_ns in (100, 110, 130):
        bench.at(now_ns).step(1, None, None)
    token = Token()
    bench.at(500).open_loop(token, evaluating=False)
    bench.at(501).close_loop(token)

    assert bench.lane.counts.steps() == 3
    assert bench.lane.wall_ns == 30 + 1


def test_flops_follow_the_steps() -> None:
    """FLOPs per step count steps, whatever a step turns out to be."""
    bench = Bench()
    token, optimizer = Token(), Token()
    bench.lane.open_loop(token, evaluating=False)
    bench.lane.counts.flops_per_step = 5.0
    for _ in range(3):
        bench.lane.batch()
    assert bench.lane.counts.flops() == 15.0

    bench.lane.optimizer_step(optimizer)
    assert bench.lane.counts.flops() == 5.0


class Machine:
    """Does to a lane what a random job does, and to a list of instants what that should mean.

    The reference keeps the stack of what is under way and gives each nanosecond to the innermost
    phase on it. The body of an evaluating loop is one, that of a training loop is none.
    """

    def __init__(self) -> None:
        self.bench = Bench()
        self.stack: list[tuple[str, Span | Token]] = []
        self.now_ns = 0
        self.wall_ns = 0
        self.expected: dict[str, int] = {}

    def wait(self, time_ns: int) -> None:
        self.now_ns += time_ns
        if self.stack:
            self.wall_ns += time_ns
            phases = [phase for phase, _ in self.stack if phase != "train"]
            for phase in phases[-1:]:
                self.expected[phase] = self.expected.get(phase, 0) + time_ns

    def push(self, kind: str) -> None:
        lane = self.bench.at(self.now_ns)
        if kind in ("loop", "evaluating loop"):
            token = Token()
            in_phase = any(phase == "eval" and isinstance(o, Span) for phase, o in self.stack)
            evaluates = kind != "loop" or in_phase
            lane.open_loop(token, evaluating=kind != "loop")
            if not evaluates:  # the loops around it are only held until they are asked again
                self.stack = [("train" if isinstance(o, Token) else p, o) for p, o in self.stack]
            self.stack.append(("eval" if evaluates else "train", token))
        else:
            self.stack.append((kind, lane.begin(kind)))

    def pop(self) -> None:
        if self.stack:
            _, open_one = self.stack.pop()
            lane = self.bench.at(self.now_ns)
            if isinstance(open_one, Span):
                lane.end(open_one)
            else:
                lane.close_loop(open_one)

    def totals(self) -> Totals:
        totals = Totals()
        totals.add(self.bench.lane)
        return totals


MOVES = st.one_of(
    st.tuples(st.just("wait"), st.integers(0, 1_000_000)),
    st.tuples(st.just("push"), st.sampled_from([*PHASES, "loop", "evaluating loop"])),
    st.tuples(st.just("pop"), st.none()),
)


@given(st.lists(MOVES, max_size=60))
def test_every_instant_counts_once(moves: list[tuple[str, object]]) -> None:
    """However phases and loops nest, each nanosecond belongs to the innermost, and none to two."""
    machine = Machine()
    for name, argument in moves:
        getattr(machine, name)(*([] if argument is None else [argument]))
        totals = machine.totals()
        assert sum(totals.phase_ns.values()) <= totals.wall_ns
    while machine.stack:
        machine.pop()

    totals = machine.totals()
    assert {k: v for k, v in totals.phase_ns.items() if v} == {
        k: v for k, v in machine.expected.items() if v
    }
    assert totals.wall_ns == machine.wall_ns


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1000), st.sampled_from(PHASES))),
)
def test_phases_that_overlap_never_exceed_the_wall(moves: list[tuple[int, int, str]]) -> None:
    """Phases that end in another order than they began lose time, and never invent any."""
    bench = Bench()
    spans: dict[int, Span] = {}
    now_ns, before = 0, Totals()
    for slot, time_ns, phase in moves:
        now_ns += time_ns
        lane = bench.at(now_ns)
        if slot in spans:
            lane.end(spans.pop(slot))
        else:
            spans[slot] = lane.begin(phase)
        totals = Totals()
        totals.add(lane)
        assert sum(totals.phase_ns.values()) <= totals.wall_ns <= now_ns
        assert all(totals.phase_ns[key] >= value for key, value in before.phase_ns.items())
        before = totals


def test_each_thread_has_a_lane_of_its_own(client: None) -> None:
    """A run is the sum over its threads, also of those that have ended."""
    found: list[Lane | None] = []

    def work() -> None:
        lane = lanes.current("job")
        assert lane is not None
        lane.open_loop(lane, evaluating=False)
        lane.batch()
        lane.close_loop(lane)
        found.append(lane)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
        thread.join()
    work()

    assert len({id(lane) for lane in found}) == 4
    assert PROCESS.run("job", None).totals().batches == 4
    assert lanes.current("job") is found[-1] is lanes.current()


def test_lanes_of_ended_threads_are_folded(client: None) -> None:
    """A job that starts a thread per epoch does not grow."""
    for _ in range(20):
        thread = threading.Thread(target=lanes.current)
        thread.start()
        thread.join()

    assert len(PROCESS.run(None, None)._lanes) == 1


def test_a_loader_worker_has_no_lane(client: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that only loads data for another one says nothing."""
    monkeypatch.setattr("roofline_job.identity.is_loader_worker", lambda: True)

    assert lanes.current() is None

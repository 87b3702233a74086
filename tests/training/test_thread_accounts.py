# SPDX-License-Identifier: Apache-2.0
"""Where the time of a thread goes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline_job import phase, process, step, watch
from roofline_job.process import PROCESS
from roofline_job.thread_accounts import PHASES, Span, ThreadAccount
from tests.training.conftest import Clock
from tests.training.measured import Measured, Optimizer, measured

pytestmark = pytest.mark.usefixtures("unheard")


class Bench:
    """A clock by hand, and a torch of which only gradients are of interest."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.began_ns = self.clock.now_ns
        self.grad = True
        version = SimpleNamespace(cuda=None, hip=None)
        self.torch = SimpleNamespace(is_grad_enabled=lambda: self.grad, version=version)

    def account(self, job: str, rank: int | None, instrumentation: str) -> ThreadAccount:
        return ThreadAccount(job, rank, instrumentation, self.clock)

    def at(self, now_ns: int) -> None:
        """Let it be so long after the beginning."""
        self.clock.now_ns = self.began_ns + now_ns

    def batches(self, *waits_ns: int) -> Iterator[int]:
        """Yield batches that take so long."""
        for wait_ns in waits_ns:
            self.clock.spend(wait_ns)
            yield wait_ns


@contextmanager
def on_a_bench() -> Iterator[Bench]:
    bench = Bench()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "ThreadAccount", bench.account)
        patch.setitem(sys.modules, "torch", bench.torch)
        PROCESS.reset()
        yield bench
        PROCESS.reset()


@pytest.fixture
def bench(client: None) -> Iterator[Bench]:
    with on_a_bench() as bench:
        yield bench


def test_data_and_eval_are_there_from_the_start(bench: Bench) -> None:
    """A counter that first appears at 1 has no increase; no other phase is made up."""
    next(iter(watch([1])))
    account = PROCESS.account_here()

    assert account is not None
    assert account.times_ns()[1] == {"data": 0, "eval": 0}


def test_without_torch_nothing_is_known_of_evaluation(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that phase is not there, unless it is marked."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    next(iter(watch([1])))
    account = PROCESS.account_here()

    assert account is not None
    assert account.times_ns()[1] == {"data": 0}


def test_an_evaluation_that_is_only_kept_does_not_evaluate(bench: Bench) -> None:
    """An endless validation iterator is asked now and then; in between the job trains."""
    kept = iter(watch(bench.batches(*[0] * 9)))
    optimizer = Optimizer()
    for _ in watch(bench.batches(0, 0)):
        bench.clock.spend(10)
        bench.grad = False
        next(kept)
        bench.clock.spend(5)
        bench.grad = True
        optimizer.step()

    assert measured().counts == (2, 2, None)
    assert measured().phase_ns == {"eval": 10}


def test_a_training_loop_may_begin_while_an_evaluating_one_is_kept(bench: Bench) -> None:
    """Lightning keeps the iterator of its sanity check, and then trains."""
    bench.grad = False
    check = iter(watch(bench.batches(0, 0)))
    next(check)
    bench.at(5)
    bench.grad = True
    optimizer = Optimizer()
    for _ in watch(bench.batches(0)):
        optimizer.step()
        bench.at(9)

    assert measured().counts == (1, 1, None)
    assert measured().wall_ns <= 9
    assert measured().phase_ns.get("eval", 0) <= 5


def arriving(batches: int, ahead: int) -> Iterator[int]:
    """Yield batches as a loop does that asks for some of them before it needs them."""
    iterator, arrived, is_over = iter(watch(range(batches))), 0, False
    for number in range(1, batches + 1):
        while arrived < number + ahead and not is_over:
            is_over = next(iterator, None) is None
            arrived += not is_over
        yield number
    assert is_over or next(iterator, None) is None


@pytest.mark.parametrize(
    ("ahead", "batches_per_step", "batches", "steps"),
    [(0, 1, 5, 5), (1, 1, 5, 5), (2, 1, 5, 5), (0, 4, 10, 3), (1, 4, 10, 3)],
)
def test_steps_after_the_end_of_the_data_are_those_of_its_last_batches(
    bench: Bench, ahead: int, batches_per_step: int, batches: int, steps: int
) -> None:
    """A prefetcher finds the end before the job has had its last batch, and gradients that are
    accumulated may leave a rest: those steps count, with their time. What follows does not.
    """
    optimizer = Optimizer()
    for number in arriving(batches, ahead):
        bench.at(10 * number)
        if number % batches_per_step == 0:
            optimizer.step()
    end_ns = 10 * batches
    if batches % batches_per_step:
        end_ns += 5
        bench.at(end_ns)
        optimizer.step()
    for stray in range(1, 4):
        bench.at(1_000 * stray)
        optimizer.step()

    assert measured().counts == (steps, batches, None)
    assert measured().wall_ns == end_ns


def test_steps_that_are_never_inside_a_loop_do_not_count(bench: Bench) -> None:
    """A job that gathers data in a loop and trains elsewhere: its batches are what is known."""
    optimizer = Optimizer()
    for epoch in range(3):
        for number in arriving(4, 0):
            bench.at(1_000 * epoch + 10 * number)
        for update in range(9):
            bench.at(1_000 * epoch + 100 + update)
            optimizer.step()

    assert measured().counts == (12, 12, None)


@pytest.mark.parametrize("empty", [True, False])
def test_a_loop_without_a_batch_takes_no_steps_from_the_one_before(
    bench: Bench, empty: bool
) -> None:
    """As of an iterator that is asked again after its end."""
    optimizer = Optimizer()
    for number in arriving(5, 2):
        bench.at(10 * number - 5)
        if number > 3:
            bench.grad = False
            for _ in watch([] if empty else [1]):
                pass
            bench.grad = True
        bench.at(10 * number)
        optimizer.step()

    assert measured().counts == (5 if empty else 3, 5, None)
    assert measured().wall_ns == (50 if empty else 30)


def test_a_loop_that_is_no_iterator_runs_from_its_first_step(bench: Bench) -> None:
    """Outside any watched loop, time passes from step to step, until another loop begins."""
    for now_ns in (100, 110, 130):
        bench.at(now_ns)
        step()
    bench.at(500)
    for _ in watch([1]):
        bench.at(501)

    assert measured().steps == 3 + 1
    assert measured().wall_ns == 30 + 1


def test_flops_follow_the_steps(bench: Bench) -> None:
    """FLOPs per step count steps, whatever a step turns out to be; reported ones never fall."""
    optimizer = Optimizer()
    iterator = iter(watch(range(9), flops_per_step=5.0))
    for _ in range(3):
        next(iterator)
    assert measured().flops == 15.0

    optimizer.step()
    assert measured().flops == 15.0
    for _ in range(4):
        next(iterator)
        optimizer.step()
    assert measured().flops == 25.0


# A random job against the definition: each instant belongs to the innermost, and none to two.


class Level:
    """Something under way, and the phase to which time in it belongs; None: to none."""

    def __init__(self, claims: str | None, *, is_body: bool = False) -> None:
        self.claims = claims
        self.is_body = is_body


class Reference:
    """Does what a random job does, and notes what that should mean.

    The body of an evaluating loop is phase eval until another loop is asked for a batch; that of a
    training loop is no phase.
    """

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.levels: list[Level] = []
        self.expected: dict[str, int] = {}
        self.wall_ns = 0
        self.batches = 0
        self.before = measured()

    def play(self, job: list[Any]) -> None:
        for name, argument in job:
            getattr(self, name)(argument)
            found = measured()
            _assert_nothing_fell(self.before, found)
            self.before = found

    def wait(self, time_ns: int) -> None:
        self.bench.clock.spend(time_ns)
        if self.levels:
            self.wall_ns += time_ns
            for name in [level.claims for level in self.levels if level.claims is not None][-1:]:
                self.expected[name] = self.expected.get(name, 0) + time_ns

    @contextmanager
    def within(self, level: Level) -> Iterator[None]:
        self.levels.append(level)
        yield
        self.levels.pop()

    def phase(self, argument: tuple[str, list[Any]]) -> None:
        name, inside = argument
        with phase(name), self.within(Level(name)):
            self.play(inside)

    def loop(self, argument: tuple[bool, list[Any], bool]) -> None:
        """Go through a loop, which may be left at its first batch."""
        evaluates, rounds, leaves = argument
        claims = [level.claims for level in self.levels]
        bodies = [level.is_body and level.claims is not None for level in self.levels]
        if True in bodies and any(claims[bodies.index(True) + 1 :]):
            return  # the phase around it, which began in that body, loses its time to phase eval
        grad = self.bench.grad
        self.bench.grad = grad and not evaluates
        evaluates = not self.bench.grad or "eval" in claims
        for level in self.levels:
            if level.is_body:
                level.claims = None
        with self.within(Level(None)):
            for inside in watch(self.answers(rounds)):
                self.batches += not evaluates
                if leaves:
                    break
                with self.within(Level("eval" if evaluates else None, is_body=True)):
                    self.play(inside)
        self.bench.grad = grad

    def answers(self, rounds: list[Any]) -> Iterator[list[Any]]:
        for waiting, inside in rounds:
            self.answer(waiting)
            yield inside

    def answer(self, waiting: list[Any]) -> None:
        with self.within(Level("data")):
            for _, time_ns in waiting:
                self.wait(time_ns)


def _assert_nothing_fell(before: Measured, after: Measured) -> None:
    assert after.wall_ns >= before.wall_ns
    assert after.steps >= before.steps
    assert after.batches >= before.batches
    assert all(after.phase_ns[key] >= value for key, value in before.phase_ns.items())


TIMES = st.tuples(st.just("wait"), st.integers(0, 1_000))


def _jobs(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    job = st.lists(st.one_of(TIMES, inner), max_size=4)
    rounds = st.lists(st.tuples(st.lists(TIMES, max_size=2), job), max_size=3)
    return st.one_of(
        st.tuples(st.just("phase"), st.tuples(st.sampled_from(PHASES), job)),
        st.tuples(st.just("loop"), st.tuples(st.booleans(), rounds, st.booleans())),
    )


@given(st.lists(st.recursive(TIMES, _jobs, max_leaves=20), max_size=6))
def test_every_instant_counts_once(job: list[Any]) -> None:
    """However phases and loops nest, each nanosecond belongs to the innermost."""
    with on_a_bench() as bench:
        reference = Reference(bench)
        reference.play(job)
        found = measured()

        assert found.phase_ns == {key: value for key, value in reference.expected.items() if value}
        assert found.wall_ns == reference.wall_ns
        assert found.batches == reference.batches


SLOTS = st.integers(0, 4)
MOVES = st.one_of(
    st.tuples(st.just("phase"), SLOTS, st.sampled_from(PHASES)),
    st.tuples(st.just("ask"), SLOTS, st.integers(0, 1_000)),
    st.tuples(st.just("leave"), SLOTS, st.just(0)),
    st.tuples(st.just("grad"), st.just(0), st.booleans()),
    st.tuples(st.just("optimizer"), st.just(0), st.just(0)),
    st.tuples(st.just("step"), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("wait"), st.just(0), st.integers(0, 1_000)),
)


@given(st.lists(MOVES, max_size=60))
def test_nothing_is_invented_and_nothing_falls(moves: list[tuple[str, int, Any]]) -> None:
    """Phases that end in another order than they began, loops that are asked in any order, left
    or asked again after their end: time may be lost, and never exceeds the wall.
    """
    with on_a_bench() as bench:
        spans: dict[int, Span] = {}
        loops: dict[int, Iterator[int]] = {}
        optimizer, before, account = Optimizer(), measured(), PROCESS.account()
        assert account is not None
        for name, slot, argument in moves:
            if name == "phase":
                if slot in spans:
                    account.end(spans.pop(slot))
                else:
                    spans[slot] = account.begin(argument)
            elif name == "ask":
                if slot not in loops:
                    loops[slot] = iter(watch(bench.batches(*[argument] * slot)))
                next(loops[slot], None)
            elif name == "leave":
                loops.pop(slot, None)
            elif name == "grad":
                bench.grad = argument
            elif name == "optimizer":
                optimizer.step()
            elif name == "step":
                step(slot)
            else:
                bench.clock.spend(argument)
            found = measured()  # which checks the sum
            assert found.wall_ns <= bench.clock.now_ns - bench.began_ns
            _assert_nothing_fell(before, found)
            before = found

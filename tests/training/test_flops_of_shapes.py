# SPDX-License-Identifier: Apache-2.0
"""FLOPs that are counted, against FLOPs by hand; steps whose batches have new shapes."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from roofline_job import batch_flops, degraded, flop_counter, switches, watch
from roofline_job.batch_flops import MOST_AGAIN, SECONDS_BETWEEN
from roofline_job.captures import CAPTURES
from roofline_job.flop_counter import FlopCounter
from tests.conftest import unmet
from tests.training.conftest import Clock
from tests.training.measured import measured

if importlib.util.find_spec("torch") is None:
    unmet("PyTorch is not installed")

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.data import DataLoader

SAMPLES, LENGTH, WIDTH, HEADS, INNER = 4, 12, 16, 2, 32


@pytest.fixture(autouse=True)
def _counting(client: None, unheard: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(switches, "COUNT_FLOPS", True)
    yield
    assert FlopCounter.running is None


def product(rows: int, inner: int, columns: int) -> int:
    """A multiplication and an addition for each product of two numbers."""
    return 2 * rows * inner * columns


def attention_by_hand(length: int) -> int:
    """Queries by keys, weights by values; backward both factors of each."""
    both = 2 * SAMPLES * product(length, WIDTH, length)
    return both + 2 * both


def encoder_by_hand(length: int) -> int:
    """Nothing needs the gradient of what comes in."""
    tokens = SAMPLES * length
    mix = product(tokens, WIDTH, 3 * WIDTH)
    others = product(tokens, WIDTH, WIDTH) + 2 * product(tokens, WIDTH, INNER)
    return 2 * mix + 3 * others + attention_by_hand(length)


class Attention(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = x.unflatten(-1, (HEADS, -1)).transpose(1, 2)
        return nn.functional.scaled_dot_product_attention(*(heads * each for each in self.scale))


def encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, dropout=0.0, batch_first=True)


CONVOLUTIONS = product(8, 3 * 9, 8 * 8), product(4, 8 * 9, 6 * 6)
"""Of 10 x 10 pixels 8 x 8 are left, and 6 x 6 of those."""
BY_HAND: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "linear": (lambda: nn.Linear(WIDTH, 4), (WIDTH,), 2 * product(SAMPLES, WIDTH, 4)),
    "convolutions": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)),
        (3, 10, 10),
        SAMPLES * (2 * CONVOLUTIONS[0] + 3 * CONVOLUTIONS[1]),
    ),
    "attention": (Attention, (LENGTH, WIDTH), attention_by_hand(LENGTH)),
    "transformer": (encoder, (LENGTH, WIDTH), encoder_by_hand(LENGTH)),
}


def train(
    model: nn.Module, batches: Any, *, backward_once_in: int = 1, step_once_in: int = 1
) -> None:
    """Go backward once for so many batches, and step after so many."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses: list[torch.Tensor] = []
    with sdpa_kernel(SDPBackend.MATH):
        for number, batch in enumerate(batches, 1):
            losses.append(model(batch).square().mean())
            if len(losses) == backward_once_in:
                sum(losses, torch.zeros(())).backward()
                losses.clear()
            if number % step_once_in == 0:
                optimizer.step()


@pytest.mark.parametrize("name", BY_HAND)
def test_what_is_counted_is_what_is_computed(name: str) -> None:
    """Forward and backward, of the third step and all after it; FP32 on a CPU is FP32."""
    make, shape, by_hand = BY_HAND[name]

    train(make(), watch([torch.randn(SAMPLES, *shape) for _ in range(6)], job="own"))

    assert measured(job="own").flops == 4 * by_hand
    assert degraded.FOUND == {}


@pytest.mark.parametrize("backward_once_in", [1, 4])
def test_accumulated_gradients_count_as_they_are_computed(backward_once_in: int) -> None:
    """With a backward pass for each batch, or one for all of a step."""
    batches = watch([torch.randn(SAMPLES, WIDTH) for _ in range(16)])
    train(nn.Linear(WIDTH, 4), batches, backward_once_in=backward_once_in, step_once_in=4)

    assert measured().flops == 8 * 2 * product(SAMPLES, WIDTH, 4)


def sequences(*lengths: int) -> list[torch.Tensor]:
    return [torch.randn(SAMPLES, length, WIDTH) for length in lengths]


def as_time_passes(batches: Any, clock: Clock, seconds: float) -> Iterator[Any]:
    for batch in batches:
        clock.wait(seconds)
        yield batch


def scaled(known: int, length: int) -> float:
    """What follows from a batch's size is a lower bound."""
    assert encoder_by_hand(known) * length / known < encoder_by_hand(length)
    return encoder_by_hand(known) * length / known


MANY = range(12, 13 + MOST_AGAIN)


@pytest.mark.parametrize(
    ("lengths", "seconds", "exact", "bounded"),
    [
        ([12, 20, 8, 20, 12], SECONDS_BETWEEN, [12, 20, 8, 20, 12], []),
        ([12, *[20] * 8], SECONDS_BETWEEN / 4, [12, *[20] * 5], 3 * [(12, 20)]),
        ([*MANY, MANY.stop], SECONDS_BETWEEN, MANY, [(MANY[-1], MANY.stop)]),
    ],
    ids=["anew", "once a minute", "so many times"],
)
def test_a_step_with_new_shapes_is_counted_anew(
    lengths: list[int],
    seconds: float,
    exact: list[int],
    bounded: list[tuple[int, int]],
    clock: Clock,
) -> None:
    """From then on exactly; up to the limits, and beyond them what follows from the size."""
    train(encoder(), watch(as_time_passes(sequences(12, 12, *lengths), clock, seconds)))

    by_hand = sum(map(encoder_by_hand, exact)) + sum(scaled(*each) for each in bounded)
    assert measured().flops == pytest.approx(by_hand, rel=1e-12)


def test_batches_of_several_shapes_in_a_step_count_each_their_own() -> None:
    """Where each has its own backward pass; else their mean is that of the largest at most."""
    lengths = [12, 20, 8, 10]
    by_hand = sum(map(encoder_by_hand, lengths))

    train(encoder(), watch(sequences(*lengths * 4), job="each"), step_once_in=4)
    assert measured(job="each").flops == 2 * by_hand

    batches = watch(sequences(*lengths * 4), job="all")
    train(encoder(), batches, backward_once_in=4, step_once_in=4)
    found = measured(job="all").flops
    assert found is not None
    assert by_hand < found < 2 * by_hand


def one_ahead(batches: Any) -> Iterator[Any]:
    """As the loaders of Accelerate, which ask for a batch before they hand over the last."""
    iterator = iter(batches)
    held = next(iterator)
    for batch in iterator:
        yield held
        held = batch
    yield held


def test_a_prefetcher_is_not_taken_at_its_word(clock: Clock) -> None:
    """What a step took is noted for the shapes that the model got, not those asked for last."""
    lengths = [12, 12, 12, 12, 20, 20, 8, 20, 20]
    loader = DataLoader(sequences(*lengths), batch_size=None)
    train(encoder(), as_time_passes(one_ahead(watch(loader)), clock, SECONDS_BETWEEN))

    twelve, twenty = encoder_by_hand(12), encoder_by_hand(20)
    # The steps that 20 and 8 began were trained on the batches before: the second 20 was seen.
    scaled = twelve * 20 / 12 + twelve * (8 / 12) ** 2
    assert measured().flops == twelve + scaled + 3 * twenty


def test_a_step_that_replays_a_graph_is_not_counted() -> None:
    """Its operators are not seen, whoever captured it, and whenever that was."""

    class Graph:
        def replay(self) -> str:
            return "replayed"

    model = nn.Linear(WIDTH, 4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "CUDAGraph", Graph)
        own = Graph.replay
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for batch in watch([torch.randn(SAMPLES, WIDTH) for _ in range(20)]):
            model(batch).sum().backward()
            assert Graph().replay() == "replayed"
            optimizer.step()
        assert Graph.replay is own

    assert measured().flops is None
    assert degraded.FOUND["flops"] == flop_counter.REPLAYED


def test_a_job_that_has_captured_a_graph_is_not_counted() -> None:
    """What is not replayed would be counted alone."""
    CAPTURES.begun = 1
    train(nn.Linear(WIDTH, 4), watch([torch.randn(SAMPLES, WIDTH) for _ in range(6)]))

    assert measured().flops is None
    assert degraded.FOUND["flops"] == "CUDA graphs are captured"


def test_a_job_that_compiles_later_goes_on_with_what_was_counted(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps with new shapes cannot be counted then; the model does the same work."""

    def compiled_at_last() -> Iterator[torch.Tensor]:
        yield from sequences(12, 12, 12, 12)
        clock.wait(SECONDS_BETWEEN)
        monkeypatch.setattr(batch_flops, "unfit", lambda torch: "torch.compile is in use")
        yield from sequences(20, 12)

    train(encoder(), watch(compiled_at_last()))

    assert measured().flops == pytest.approx(encoder_by_hand(12) * (3 + 20 / 12))
    assert degraded.FOUND == {}

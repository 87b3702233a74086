# SPDX-License-Identifier: Apache-2.0
"""FLOPs of batches, from steps that are counted with a real PyTorch, and against FLOPs by hand."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline_job import batch_flops, degraded, flop_counter, switches, watch
from roofline_job import step as count_step
from roofline_job.batch_flops import MOST_AGAIN, MOST_ATTEMPTS, SECONDS_BETWEEN, Unit, size_of
from roofline_job.captures import CAPTURES
from roofline_job.exact_types import shapes
from roofline_job.flop_counter import FlopCounter
from roofline_job.process import PROCESS
from tests.conftest import unmet
from tests.training.conftest import Clock
from tests.training.listener import run_job
from tests.training.measured import measured

if importlib.util.find_spec("torch") is None:
    unmet("PyTorch is not installed")

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader
from torch.utils.flop_counter import FlopCounterMode, flop_registry

SAMPLES, LENGTH, WIDTH, HEADS, INNER = 4, 12, 16, 2, 32


@pytest.fixture(autouse=True)
def _counting(client: None, unheard: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Count, and leave PyTorch as it was."""
    monkeypatch.setattr(switches, "COUNT_FLOPS", True)
    before = nn.Module.__call__, torch.autograd.backward
    yield
    assert (nn.Module.__call__, torch.autograd.backward) == before
    assert torch._C._len_torch_dispatch_stack() == 0
    assert FlopCounter.running is None


def train_on(model: nn.Module, batch: torch.Tensor) -> None:
    model(batch).square().mean().backward()


def flops_of(model: nn.Module, batch: torch.Tensor) -> int:
    """What PyTorch's own counter finds."""
    with FlopCounterMode(display=False) as counter:
        train_on(model, batch)
    return int(counter.get_total_flops())


def linear() -> tuple[nn.Module, tuple[int, ...], int]:
    """Return a model, the shape of its samples, and the FLOPs of eight of them."""
    model = nn.Linear(WIDTH, 4)
    return model, (WIDTH,), flops_of(model, torch.randn(8, WIDTH))


def loader(shape: tuple[int, ...], samples: int, batch_size: int) -> DataLoader[Any]:
    return DataLoader(list(torch.randn(samples, *shape)), batch_size=batch_size)


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


def test_every_batch_from_the_third_step_on_counts() -> None:
    """As much as PyTorch's own counter finds; a smaller last batch never more than it takes."""
    model, shape, full = linear()

    train(model, watch(loader(shape, 8 * 6 + 4, 8)))

    assert measured().batches == 7
    assert measured().flops == 4 * full + full / 4
    assert flops_of(model, torch.randn(4, *shape)) >= full / 4


def test_later_epochs_count_all_their_batches() -> None:
    """Those as well that are held until it is known that they are trained on; evaluations not."""
    model, shape, full = linear()
    watched, held_out = watch(loader(shape, 32, 8)), watch(loader(shape, 32, 8))
    for _ in range(2):
        train(model, watched)
        with torch.no_grad():
            for batch in held_out:
                model(batch)
        for batch in held_out:  # gradients are on, but nothing steps
            model(batch)

    assert measured().flops == (2 + 4) * full


def test_causal_attention_counts_half() -> None:
    """PyTorch's formulas count the square, its kernels compute the triangle."""
    found = []
    for causal in (False, True):
        mode = FlopCounter(torch, lambda: True)
        mode.start()
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            q = torch.randn(1, 2, 8, 4, device="meta", requires_grad=True)
            module = Calls(
                lambda q: torch.ops.aten._scaled_dot_product_flash_attention(
                    q,
                    q,
                    q,
                    0.0,
                    causal,  # noqa: B023 # called at once
                )
            )
            module(q)
        mode.stop()
        found.append(mode.flops)

    assert found[0] == 2 * found[1] > 0


def test_tensors_that_wrap_others_count_by_what_is_inside() -> None:
    """As distributed tensors, of which each rank computes its own part."""
    plain, twice = torch.randn(4, WIDTH), torch.randn(4, WIDTH)
    found = []
    for batch in (plain, TwoTensor(plain, twice)):
        counter = FlopCounter(torch, lambda: True)
        counter.start()
        result = Calls(lambda x: x @ x.mT)(batch)
        counter.stop()
        found.append(counter.flops)
    assert isinstance(result, TwoTensor)
    assert found == [2 * 4 * 4 * WIDTH, 2 * 2 * 4 * 4 * WIDTH]


def test_a_formula_that_fails_is_not_the_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator went well; the step is of no use, and neither are those after it."""
    model, shape, _ = linear()

    def fails(*_: Any, **__: Any) -> int:
        raise AssertionError("a shape that it does not know")

    monkeypatch.setitem(flop_registry, torch.ops.aten.addmm, fails)
    train(model, watch(loader(shape, 8 * 30, 8)))

    assert measured().batches == 30
    assert measured().flops is None
    assert "addmm" in degraded.FOUND["flops"]


def unusual(kind: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a model that uses a part of PyTorch that has modes of its own."""
    torch.manual_seed(1)
    inner = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
    match kind:
        case "checkpoint":
            return Calls(lambda x: checkpoint(inner, x, use_reentrant=False))
        case "reentrant checkpoint":
            return Calls(lambda x: checkpoint(inner, x.requires_grad_(), use_reentrant=True))
        case "script":
            return torch.jit.script(inner)  # type: ignore[no-any-return]
        case "vmap":
            return Calls(torch.vmap(inner))
        case "autocast":
            return Calls(torch.autocast("cpu", torch.bfloat16)(inner))
        case "saved on the host":
            return Calls(offloaded(inner))
    raise AssertionError(kind)


def offloaded(inner: nn.Module) -> Callable[[torch.Tensor], Any]:
    def call(x: torch.Tensor) -> Any:
        with torch.autograd.graph.save_on_cpu():
            return inner(x)

    return call


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize(
    "kind",
    ["checkpoint", "reentrant checkpoint", "script", "vmap", "autocast", "saved on the host"],
)
def test_a_job_computes_the_same_while_it_is_counted(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever of PyTorch it uses."""
    losses: list[list[float]] = []
    for counts in (False, True):
        monkeypatch.setattr(switches, "COUNT_FLOPS", counts)
        PROCESS.reset()
        model = unusual(kind)
        weight = torch.ones(WIDTH, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.01)
        seen: list[float] = []
        losses.append(seen)
        torch.manual_seed(2)
        for batch in watch([torch.randn(8, WIDTH) for _ in range(5)]):
            loss = model(batch * weight).float().square().mean()
            loss.backward()
            optimizer.step()
            seen.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert (measured().flops or 0) > 0
    assert degraded.FOUND == {}


class Calls(nn.Module):  # type: ignore[misc]
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def test_an_exception_inside_the_model_leaves_nothing() -> None:
    """It reaches the job; the step is counted a batch later."""
    model, shape, full = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    raised = 0
    for number, batch in enumerate(watch(loader(shape, 8 * 6, 8)), 1):
        try:
            train_on(model, batch[:, :3] if number == 3 else batch)
        except RuntimeError:
            raised += 1
            assert torch._C._len_torch_dispatch_stack() == 0
            continue
        optimizer.step()

    assert raised == 1
    # The step went on with the next batch: what both took is less than two batches.
    assert measured().flops == full + 2 * full / 2


def test_a_break_in_the_counted_step_ends_the_counting() -> None:
    """The functions are PyTorch's again by the next call of a module."""
    model, shape, _ = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number, batch in enumerate(watch(loader(shape, 8 * 6, 8)), 1):
        train_on(model, batch)
        optimizer.step()
        if number == 3:
            assert FlopCounter.running is not None
            break
    train_on(model, batch)

    assert FlopCounter.running is None
    assert measured().flops is None


def test_generators_and_plain_numbers_are_loops_too() -> None:
    """Batches that show no size count alike."""
    model, shape, full = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in watch(number for number in range(6)):
        train_on(model, torch.randn(8, *shape))
        optimizer.step()

    assert measured().flops == 4 * full


def test_a_mode_of_the_jobs_own_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """Its count is right, ours is not made, and after some attempts that is said."""
    model, shape, full = linear()
    with FlopCounterMode(display=False) as own:
        train(model, watch(loader(shape, 8 * 20, 8)))

    assert own.get_total_flops() == 20 * full
    assert measured().flops is None
    assert "a dispatch mode of the job is active" in degraded.FOUND["flops"]
    assert "FLOPs are not counted" in capsys.readouterr().err


def test_what_the_job_states_goes_first() -> None:
    """As flops_per_step, or in step()."""
    model, shape, _ = linear()
    train(model, watch(loader(shape, 8 * 6, 8), job="one", flops_per_step=10))
    assert measured(job="one").flops == 60

    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in watch(loader(shape, 8 * 6, 8), job="two"):
        train_on(model, batch)
        optimizer.step()
        count_step(job="two", flops=7)
    assert measured(job="two").flops == 42


def test_an_evaluation_inside_the_counted_step_is_not_of_every_step() -> None:
    """The next step is counted instead."""
    model, shape, full = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    held_out = watch(loader(shape, 32, 8))
    for number, batch in enumerate(watch(loader(shape, 8 * 6, 8)), 1):
        if number == 3:
            for other in held_out:
                model(other)
        train_on(model, batch)
        optimizer.step()

    assert measured().flops == 3 * full


def test_a_loop_without_a_backward_pass_is_not_counted() -> None:
    """It is given up after some attempts."""
    model = nn.Linear(WIDTH, 4)
    for batch in watch(loader((WIDTH,), 4 * (40 + MOST_ATTEMPTS), 4)):
        model(batch)

    assert measured().flops is None
    assert "no module with a backward pass" in degraded.FOUND["flops"]


def test_forked_children_do_not_count() -> None:
    """What the child of a fork does belongs to no step of its parent."""
    model, shape, _ = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number, batch in enumerate(watch(loader(shape, 8 * 3, 8)), 1):
        train_on(model, batch)
        optimizer.step()
        if number == 3:
            PROCESS.reset()  # as in the child
            assert FlopCounter.running is None


COMPILED = """
import torch
from torch import nn
from torch._dynamo.utils import counters
from roofline_job import watch
from roofline_job.process import PROCESS

model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
graphs = []

def backend(graph, inputs):
    graphs.append(graph)
    return graph.forward

compiled = torch.compile(model, backend=backend)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in watch([torch.randn(4, 8) for _ in range(12)], job="own"):
    compiled(batch).sum().backward()
    optimizer.step()
print(len(graphs), sum(counters["graph_break"].values()), PROCESS.accounts[0].counts.totals()[3])
"""


def test_a_compiled_model_is_not_counted(tmp_path: Any) -> None:
    """One graph, no break, no second compilation; the report says why there is no count."""
    job, (last,) = run_job(tmp_path, COMPILED, ROOFLINE_JOB_COUNT_FLOPS="1")
    assert job.stdout == "1 0 None\n", job.stderr
    assert job.stderr == "roofline_job: FLOPs are not counted (torch.compile is in use)\n"
    assert last["degraded"] == ["flops"]
    assert "errors" not in last


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 512), st.integers(1, 512))
def test_a_batch_never_counts_more_than_it_takes(b: int, b0: int, n: int, n0: int) -> None:
    """Where FLOPs grow with the samples, and with the length and its square."""

    def takes(samples: int, length: int) -> float:
        return samples * (3.0 * length + 5.0 * length * length)

    same_length = Unit(takes(b0, n0), b0 * n0).of(b * n0)
    assert same_length <= takes(b, n0) * (1 + 1e-9)
    same_samples = Unit(takes(b0, n0), b0 * n0).of(b0 * n)
    assert same_samples <= takes(b0, n) * (1 + 1e-9)


def test_batches_of_a_class_of_the_job_are_not_counted() -> None:
    """Their size is not known: one that is padded further takes more."""

    class Padded:
        def __init__(self, x: torch.Tensor) -> None:
            self.x = x

    model, shape, _ = linear()
    for batch in watch([Padded(torch.randn(8, *shape)) for _ in range(30)]):
        train_on(model, batch.x)

    assert measured().batches == 30
    assert measured().flops is None
    assert "class of the job's own" in degraded.FOUND["flops"]


def test_the_size_of_a_batch_is_that_of_its_tensors() -> None:
    """In containers, of transformers too; None where there are none, or in a class of the job's."""
    transformers = pytest.importorskip("transformers")
    own = type("Own", (transformers.BatchEncoding,), {})
    batch = {"ids": torch.zeros(4, 7), "more": [torch.zeros(3), ("text", 5)], "x": object()}
    for each, elements in (
        (batch, 31),
        (transformers.BatchEncoding(batch), 31),
        (own(batch), None),
        (["text", 5, {}], None),
        (3, None),
    ):
        assert size_of(tuple(shapes(each))) == elements
    assert (Unit(6.0, None).of(None), Unit(6.0, None).of(3), Unit(6.0, 3).of(None)) == (6, 0, 0)


# FLOPs by hand, and steps whose batches have new shapes


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

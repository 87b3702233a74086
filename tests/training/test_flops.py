# SPDX-License-Identifier: Apache-2.0
"""FLOPs of batches, from a step that is counted with a real PyTorch."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline_job import degraded, switches, watch
from roofline_job import step as count_step
from roofline_job.batch_flops import MOST_ATTEMPTS, Unit, size_of
from roofline_job.exact_types import shapes
from roofline_job.flop_counter import FlopCounter
from roofline_job.process import PROCESS
from tests.conftest import unmet
from tests.training.listener import Listener, run_job
from tests.training.measured import measured

if importlib.util.find_spec("torch") is None:
    unmet("PyTorch is not installed")

import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.flop_counter import FlopCounterMode, flop_registry

WIDTH = 16


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
    return DataLoader(TensorDataset(torch.randn(samples, *shape)), batch_size=batch_size)


def run(model: nn.Module, batches: Any) -> None:
    """Train as scripts do."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for (batch,) in batches:
        train_on(model, batch)
        optimizer.step()
        optimizer.zero_grad()


def test_every_batch_from_the_third_step_on_counts() -> None:
    """As much as PyTorch's own counter finds; a smaller last batch never more than it takes."""
    model, shape, full = linear()

    run(model, watch(loader(shape, 8 * 6 + 4, 8)))

    assert measured().batches == 7
    assert measured().flops == 4 * full + full / 4
    assert flops_of(model, torch.randn(4, *shape)) >= full / 4


def test_later_epochs_count_all_their_batches() -> None:
    """Those as well that are held until it is known that they are trained on; evaluations not."""
    model, shape, full = linear()
    watched, held_out = watch(loader(shape, 32, 8)), watch(loader(shape, 32, 8))
    for _ in range(2):
        run(model, watched)
        with torch.no_grad():
            for (batch,) in held_out:
                model(batch)
        for (batch,) in held_out:  # gradients are on, but nothing steps
            model(batch)

    assert measured().flops == (2 + 4) * full


def test_causal_attention_counts_half() -> None:
    """PyTorch's formulas count the square, its kernels compute the triangle."""
    found = []
    for causal in (False, True):
        mode = FlopCounter(torch, lambda: True)
        mode.start()
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
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
    run(model, watch(loader(shape, 8 * 30, 8)))

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
    for number, (batch,) in enumerate(watch(loader(shape, 8 * 6, 8)), 1):
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
    for number, (batch,) in enumerate(watch(loader(shape, 8 * 6, 8)), 1):
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
        run(model, watch(loader(shape, 8 * 20, 8)))

    assert own.get_total_flops() == 20 * full
    assert measured().flops is None
    assert "a dispatch mode of the job is active" in degraded.FOUND["flops"]
    assert "FLOPs are not counted" in capsys.readouterr().err


def test_what_the_job_states_goes_first() -> None:
    """As flops_per_step, or in step()."""
    model, shape, _ = linear()
    run(model, watch(loader(shape, 8 * 6, 8), job="one", flops_per_step=10))
    assert measured(job="one").flops == 60

    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for (batch,) in watch(loader(shape, 8 * 6, 8), job="two"):
        train_on(model, batch)
        optimizer.step()
        count_step(job="two", flops=7)
    assert measured(job="two").flops == 42


def test_an_evaluation_inside_the_counted_step_is_not_of_every_step() -> None:
    """The next step is counted instead."""
    model, shape, full = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    held_out = watch(loader(shape, 32, 8))
    for number, (batch,) in enumerate(watch(loader(shape, 8 * 6, 8)), 1):
        if number == 3:
            for (other,) in held_out:
                model(other)
        train_on(model, batch)
        optimizer.step()

    assert measured().flops == 3 * full


def test_a_loop_without_a_backward_pass_is_not_counted() -> None:
    """It is given up after some attempts."""
    model = nn.Linear(WIDTH, 4)
    for (batch,) in watch(loader((WIDTH,), 4 * (40 + MOST_ATTEMPTS), 4)):
        model(batch)

    assert measured().flops is None
    assert "no module with a backward pass" in degraded.FOUND["flops"]


def test_forked_children_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the child of a fork does belongs to no step of its parent."""
    model, shape, _ = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number, (batch,) in enumerate(watch(loader(shape, 8 * 3, 8)), 1):
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
    listener = Listener(tmp_path / "training.sock")
    job = run_job(tmp_path, COMPILED, listener, {"ROOFLINE_JOB_COUNT_FLOPS": "1"})
    assert job.stdout == "1 0 None\n", job.stderr
    assert job.stderr == "roofline_job: FLOPs are not counted (torch.compile is in use)\n"
    last = listener.reports()[-1]
    listener.close()
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


def elements_of(batch: Any) -> int | None:
    return size_of(tuple(shapes(batch)))


def test_the_size_of_a_batch_of_transformers_is_known() -> None:
    """It is a dictionary with methods."""
    transformers = pytest.importorskip("transformers")
    batch = transformers.BatchEncoding({"ids": torch.zeros(4, 7)})
    assert elements_of(batch) == 28
    assert (
        elements_of(type("Own", (transformers.BatchEncoding,), {})({"ids": torch.zeros(4)})) is None
    )


def test_the_size_of_a_batch_is_that_of_its_tensors() -> None:
    """In containers, arrays as well; None where there are none."""
    batch = {"ids": torch.zeros(4, 7), "more": [torch.zeros(3), ("text", 5)], "x": object()}
    assert elements_of(batch) == 31
    assert elements_of(["text", 5, {}]) is None
    assert elements_of(3) is None
    assert (Unit(6.0, None).of(None), Unit(6.0, None).of(3), Unit(6.0, 3).of(None)) == (6, 0, 0)

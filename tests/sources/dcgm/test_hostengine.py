# SPDX-License-Identifier: Apache-2.0
"""DCGM's hostengine through fake bindings: the real child, up to what a round gets."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.dcgm import FIELDS
from exporter.model.reading import LONGEST_AGE_SECONDS, Activity
from exporter.sources.counters.child import program
from exporter.sources.dcgm.bindings import REFUSALS, TOO_OFTEN, MetricGroup
from exporter.sources.dcgm.hostengine import IMPORTANCE, one_pass
from tests.sources.counters.bench import STEP_SECONDS, Bench, Gpu
from tests.sources.counters.conftest import _bench  # noqa: F401 - a fixture
from tests.sources.dcgm.engine import ALL, BINDINGS, FULL, Engine
from tests.sources.dcgm.engine import gpu as gpu_of


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    made = Engine(tmp_path)
    monkeypatch.setenv("FAKE_DCGM", str(made.file))
    return made


@pytest.fixture
def measuring(engine: Engine, bench: Callable[..., Bench]) -> Callable[..., tuple[Bench, Gpu]]:
    """Return what starts the child and opens the GPU."""

    def start(
        host: str = "localhost:5555", bindings: Path = BINDINGS, **opened: Any
    ) -> tuple[Bench, Gpu]:
        made = bench("", {"host": host, "bindings": str(bindings)}, program=program("dcgm"))
        gpu = made.open(**opened)
        gpu.read()
        return made, gpu

    return start


Measuring = Callable[..., tuple[Bench, Gpu]]


def activity(bench: Bench, gpu: Gpu, share: int | None = None) -> Activity:
    """What the next round gets of a share, once something has arrived."""
    bench.step_until(lambda: gpu.read() == {} and gpu.source.measures(share))
    bench.clock.advance(0.5)
    return gpu.read()[share]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def states(bench: Bench, gpu: Gpu) -> dict[str, str]:
    """The reading states, as soon as there are any."""
    bench.step_until(lambda: gpu.read() or gpu.journal.states)
    return gpu.journal.states


def test_all_fields_become_one_activity(measuring: Measuring, engine: Engine) -> None:
    """Ratios as they are, bytes per second as bytes of the interval, DFMA as the tensor pipe's."""
    bench, gpu = measuring()

    found = activity(bench, gpu)

    assert found.source == "dcgm"
    assert (found.engine, found.sm, found.occupancy) == (0.01, 0.02, 0.03)
    assert (found.tensor, found.dram) == (0.04, 0.05)
    assert (found.fp64, found.fp32, found.fp16, found.integer) == (0.06, 0.07, 0.08, 0.16)
    assert (found.imma, found.hmma, found.dfma) == (0.13, 0.14, 0.15)
    assert found.pcie_transmit_bytes == pytest.approx(0.5 * 1_009_000)
    assert found.nvlink_receive_bytes == pytest.approx(0.5 * 1_012_000)
    assert found.age_seconds is not None
    assert found.integrable
    assert gpu.journal.states == {}
    assert bench.counters.facts["hostengine"] == "localhost:5555"
    assert "connect tcp localhost:5555" in engine.calls


def test_only_what_can_be_counted_at_once_is_watched(measuring: Measuring, engine: Engine) -> None:
    """A T4 counts some groups at a time: those with the tensor pipe and DRAM are chosen."""
    groups = [
        [0, [1001]],
        [1, [1002, 1003, 1007]],
        [1, [1004, 1002]],
        [1, [1006, 1008]],
        [2, [1005]],
        [3, [1009, 1010]],
    ]
    engine.set(gpus={"4": gpu_of("GPU-a", groups)})
    bench, gpu = measuring()

    found = activity(bench, gpu)

    assert engine.watched == ["1001 1002 1004 1005 1009 1010"]
    assert (found.tensor, found.dram, found.fp32) == (0.04, 0.05, None)


def test_blank_values_are_no_values(measuring: Measuring, engine: Engine) -> None:
    """Nor are impossible ones, nor those of a field that has stopped."""
    strange = {"1002": "blank", "1009": "blank", "1003": 17.0, "1006": -0.5, "1007": "status -15"}
    engine.set(values={"1:4": {**FULL, **strange}}, behind={"1008": 60})
    bench, gpu = measuring()

    found = activity(bench, gpu)

    missing = (found.sm, found.occupancy, found.fp64, found.fp32, found.fp16)
    assert missing == (None,) * 5
    assert found.pcie_transmit_bytes is None
    assert found.tensor == 0.04
    assert found.pcie_receive_bytes == pytest.approx(0.5 * 1_010_000)


def test_gpu_instances_are_measured_each(measuring: Measuring, engine: Engine) -> None:
    """They are matched by NVML's instance id; link traffic belongs to none of them."""
    instances = [
        {"entity": 1000, "uuid": "GPU-b", "instance": 1},
        {"entity": 1007, "uuid": "GPU-a", "instance": 1},
        {"entity": 1009, "uuid": "GPU-a", "instance": 5},
        {"entity": 1009, "uuid": "GPU-a", "instance": 0, "kind": 5},
    ]
    values = {"4:1007": {**FULL, "1004": 0.71}, "4:1009": {**FULL, "1004": 0.75}}
    engine.set(instances=instances, values=values)
    bench, gpu = measuring(shares=(1, 5))
    bench.step_until(lambda: gpu.source.measures(1) and gpu.source.measures(5))

    gpu.read()
    bench.clock.advance(0.5)
    found = gpu.read()

    assert {share: each.tensor for share, each in found.items()} == {1: 0.71, 5: 0.75}
    assert {each.pcie_transmit_bytes for each in found.values()} == {None}
    assert "1009" not in engine.watched[0].split()


@pytest.mark.slow
def test_values_that_stop_grow_old_and_are_dropped(measuring: Measuring, engine: Engine) -> None:
    """Old values are published with their age, and add to no total; those of a minute ago are no
    reading."""
    bench, gpu = measuring()
    assert activity(bench, gpu).integrable

    def age() -> float | None:
        bench.clock.advance(STEP_SECONDS)
        found = gpu.read().get(None)
        return None if found is None else found.age_seconds

    engine.set(stopped_at=time.time() - 20.0)
    bench.step_until(lambda: (age() or 0.0) > 20.0)
    first = age()
    assert first is not None
    assert first > LONGEST_AGE_SECONDS
    bench.step_until(lambda: (age() or 0.0) > first + 0.9)
    engine.set(stopped_at=time.time() - 60.0)
    bench.step_until(lambda: age() is None and gpu.journal.states == {"dcgm": "unreachable"})
    engine.set(stopped_at=None)
    bench.step_until(lambda: age() is not None and gpu.journal.states == {})


@pytest.mark.parametrize("every", [0.1, 0.4])
@pytest.mark.slow
def test_values_that_somebody_else_has_read_more_often(
    measuring: Measuring, engine: Engine, caplog: pytest.LogCaptureFixture, every: float
) -> None:
    """Each is a mean over a fraction of a second, so it is refused, with advice in the log."""
    engine.set(every=every)
    bench, gpu = measuring()

    def read(seconds: float) -> dict[str, str]:
        bench.clock.advance(seconds)
        gpu.read()
        return gpu.journal.states

    bench.step_until(lambda: read(0.1) == {"dcgm": "busy"})
    assert not gpu.source.measures(None)
    assert warnings(caplog) == [f"dcgm of GPU-a: {TOO_OFTEN.advice}"]
    engine.set(every=1.0)
    bench.step_until(lambda: read(0.1) == {})


def test_profiling_that_is_paused_elsewhere(
    measuring: Measuring, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """DCGM saves blanks then; the readings return with the values."""
    engine.set(values={})
    bench, gpu = measuring()
    assert states(bench, gpu) == {"dcgm": "paused"}

    engine.set(values={"1:4": FULL})
    activity(bench, gpu)

    assert gpu.journal.states == {}
    assert warnings(caplog) == []


def test_the_counters_are_handed_over_and_taken_back(measuring: Measuring, engine: Engine) -> None:
    """DCGM releases them when the last field is unwatched. A path is a Unix socket."""
    bench, gpu = measuring(host="/run/nvidia-hostengine.socket")
    activity(bench, gpu)
    assert "connect unix /run/nvidia-hostengine.socket" in engine.calls

    bench.counters.pause()
    bench.step_until(lambda: "dcgmUnwatchFields" in engine.calls)
    bench.step_until(lambda: "dcgmGroupDestroy" in engine.calls)
    gpu.read()
    assert gpu.journal.states == {"dcgm": "paused"}
    bench.counters.resume()
    bench.step_until(lambda: len(engine.watched) == 2)
    activity(bench, gpu)

    assert bench.supervisor.generation == 1


def test_a_gpu_that_wants_them_no_more_is_watched_no_more(
    measuring: Measuring, engine: Engine
) -> None:
    """The fields of the other GPU stay watched."""
    gpus = {"4": gpu_of("GPU-a"), "5": gpu_of("GPU-b")}
    engine.set(gpus=gpus, values={"1:4": FULL, "1:5": FULL})
    bench, gpu = measuring()
    other = bench.open("GPU-b")
    other.read()
    bench.step_until(lambda: gpu.source.measures(None) and other.source.measures(None))

    other.source.close()
    bench.step_until(lambda: "dcgmUnwatchFields" in engine.calls)
    bench.clock.advance(2.0)
    activity(bench, gpu)

    assert len(engine.watched) == 2


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("dcgmConnect_v2", -21),
        ("dcgmEntitiesGetLatestValues", -21),
        ("_dcgmInit", -25),
        ("dcgmWatchFields", -29),
        ("dcgmProfGetSupportedMetricGroups", -33),
    ],
)
def test_what_is_wrong_with_the_hostengine(
    measuring: Measuring, engine: Engine, caplog: pytest.LogCaptureFixture, call: str, code: int
) -> None:
    """One state and one line for all GPUs; the next child tries again."""
    caplog.set_level(logging.INFO)
    engine.set(errors={call: code})
    bench, gpu = measuring()

    assert states(bench, gpu) == {"dcgm": REFUSALS[code].state}
    bench.step_until(lambda: bench.supervisor.pid is None)
    gpu.read()

    assert gpu.journal.states == {"dcgm": REFUSALS[code].state}
    assert [each.getMessage() for each in caplog.records] == [
        f"dcgm: the DCGM hostengine at localhost:5555: {REFUSALS[code].advice} "
        f"(DCGM: fake error {code}, {code})"
    ]
    engine.set(errors={})
    bench.clock.advance(1.0)
    activity(bench, gpu)
    assert gpu.journal.states == {}


@pytest.mark.parametrize(("code", "state"), [(-6, "unsupported"), (-999, "unreachable")])
def test_what_is_wrong_with_one_gpu(
    measuring: Measuring,
    engine: Engine,
    caplog: pytest.LogCaptureFixture,
    code: int,
    state: str,
) -> None:
    """The other GPU is measured; an error that nobody knows is quoted."""
    gpus = {"4": gpu_of("GPU-a"), "5": gpu_of("GPU-b")}
    engine.set(gpus=gpus, values={"1:5": FULL}, watch_errors={"1:4": code})
    bench, gpu = measuring()
    other = bench.open("GPU-b")
    other.read()

    assert states(bench, gpu) == {"dcgm": state}
    bench.step_until(lambda: other.source.measures(None))

    quoted = f"dcgm of GPU-a: it refuses (DCGM: fake error {code}, {code})"
    assert (quoted in warnings(caplog)) == (code not in REFUSALS)
    assert bench.supervisor.generation == 1
    assert engine.calls.count("dcgmGroupDestroy") == 1


LOST = {str(number): "status -18" for number in ALL}


@pytest.mark.parametrize(
    ("settings", "share", "expected"),
    [
        ({"gpus": {}}, None, {"dcgm": "unsupported"}),
        ({"gpus": {"4": gpu_of("GPU-a", [])}}, None, {"dcgm": "unsupported"}),
        ({"values": {"1:4": LOST}}, None, {"dcgm": "unreachable"}),
        ({}, 1, {"dcgm_instance_1": "unreachable"}),
    ],
    ids=["not-listed", "no-fields", "lost", "instance-not-listed"],
)
def test_a_gpu_that_cannot_be_read(
    measuring: Measuring,
    engine: Engine,
    settings: dict[str, Any],
    share: int | None,
    expected: dict[str, str],
) -> None:
    """Its state says why; the source is not up, though its child runs."""
    engine.set(**settings)
    bench, gpu = measuring(shares=(share,))

    assert states(bench, gpu) == expected
    assert bench.supervisor.is_up
    assert not bench.is_up


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            None,
            ": install datacenter-gpu-manager-4-core, or name their folder with --dcgm.bindings",
        ),
        ("def (", "cannot be imported: invalid syntax"),
        ("import nothing_of_this_name", "cannot be imported: No module named"),
        ("import dcgm_structs", "are unfit: module 'dcgm_structs' has no attribute"),
    ],
)
def test_bindings_that_are_not_there_or_unfit(
    measuring: Measuring,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    text: str | None,
    reason: str,
) -> None:
    if text is not None:
        (tmp_path / "dcgm_agent.py").write_text(text, encoding="utf-8")
    (tmp_path / "dcgm_structs.py").write_text("DCGMError = ValueError", encoding="utf-8")
    bench, gpu = measuring(bindings=tmp_path)

    assert states(bench, gpu) == {"dcgm": "missing"}
    assert reason in warnings(caplog)[0]


# Which fields are watched where a GPU cannot count all of them at once.

NAMES = {field.number: field.activity for field in FIELDS}
GROUPS = st.lists(
    st.builds(
        MetricGroup,
        st.integers(0, 3),
        st.lists(st.integers(999, 1018), max_size=6).map(tuple),
    ),
    max_size=7,
)


def rank(fields: frozenset[int]) -> list[bool]:
    """Which of the fields in the order of importance are there: the first difference decides."""
    return [name in {NAMES[number] for number in fields} for name in IMPORTANCE]


def test_every_field_has_its_importance() -> None:
    assert {field.activity for field in FIELDS} <= set(IMPORTANCE)
    assert len(set(IMPORTANCE)) == len(IMPORTANCE)


@given(GROUPS)
def test_no_other_choice_has_a_more_important_field(groups: list[MetricGroup]) -> None:
    """One group of each major id is chosen, with known fields only."""
    chosen = frozenset(one_pass(groups))

    by_major: dict[int, list[frozenset[int]]] = {}
    for group in groups:
        by_major.setdefault(group.major, []).append(frozenset(group.fields) & NAMES.keys())
    possible = [
        frozenset(itertools.chain(*choice)) for choice in itertools.product(*by_major.values())
    ]
    assert chosen in possible
    assert rank(chosen) == max(map(rank, possible))

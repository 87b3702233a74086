# SPDX-License-Identifier: Apache-2.0
"""Each cause is shown by the evidence that excludes its neighbours, and by nothing less."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Mapping
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.derive.diagnosis import evidence as given_evidence
from exporter.derive.diagnosis import peers
from exporter.derive.diagnosis.evidence import OF_LOOP
from exporter.model.causes import CAUSES
from roofline_job import causes, diagnosis
from roofline_job.causes import JOB_CAUSES, THRESHOLDS, WAITS_FOR_DATA, condition, judged

NAMED = sorted(
    {name for cause in CAUSES for name, _, _ in cause.conditions}.union(
        *(re.findall(r"\{(\w+)\}", cause.finding + cause.advice) for cause in CAUSES)
    )
)
"""The evidence that conditions and texts name."""
WAITS = {"data_wait_loss_ratio": 0.3, "data_stall_upper_ratio": 0.3}
BUSY_WORKERS = {"workers_count": 4, "worker_running_ratio": 0.95, "worker_blocked_ratio": 0.0}
BLOCKED = {"workers_count": 4, "worker_running_ratio": 0.1, "worker_blocked_ratio": 0.8}
CPU_BOUND = {"free_cores": 0.2, "workers_per_core_ratio": 1.0}
SLOW_CLOCK = {"clock_time_ratio": 0.5, "power_capped": 1, "thermal_throttled": 0}
LAUNCHES = {
    "idle_ratio": 0.4,
    "idle_intervals_ratio": 0.0,
    "data_stall_upper_ratio": 0.01,
    "process_cores": 1.0,
    "gpus_of_process_count": 1,
}
ONE_PROCESS = {"gpus_of_process_count": 4, "trains": 1, "idle_ratio": 0.4, "process_cores": 1.0}
NARROW = {
    "busy_ratio": 0.95,
    "narrow_time_ratio": 0.6,
    "sm_active_ratio": 0.3,
    "memory_used_ratio": 0.2,
    "trains": 1,
}
SLOW_GPU = {
    "peers_count": 7,
    "clock_of_peers_ratio": 0.7,
    "busy_ratio": 0.9,
    "power_capped": 0,
    "thermal_throttled": 0,
}
FP32 = {
    "busy_ratio": 0.9,
    "tensor_active_ratio": 0.0,
    "fma_active_ratio": 0.5,
    "has_tensor_cores": 1,
    "trains": 1,
}
STRAGGLES = {"ranks_count": 8, "data_wait_above_median_ratio": 0.3, "steps_of_median_ratio": 1.0}

CASES: dict[str, tuple[dict[str, float], dict[str, float]]] = {
    "no_workers": (
        {**WAITS, "workers_count": 0, "data_wait_per_batch_seconds": 0.02},
        {"workers_count": 1, "data_wait_loss_ratio": 0.04, "data_wait_per_batch_seconds": 0.002},
    ),
    "cpu_oversubscribed": (
        {**WAITS, **BUSY_WORKERS, **CPU_BOUND, "workers_per_core_ratio": 2.0},
        {"free_cores": 3.0, "worker_running_ratio": 0.2, "data_wait_loss_ratio": 0.0},
    ),
    "workers_cpu_bound": (
        {**WAITS, **BUSY_WORKERS, **CPU_BOUND},
        {"free_cores": 2.0, "worker_running_ratio": 0.3, "workers_count": 0},
    ),
    "too_few_workers": (
        {**WAITS, **BUSY_WORKERS, "free_cores": 12.0, "workers_per_core_ratio": 0.2},
        {"free_cores": 0.5, "worker_running_ratio": 0.7, "data_wait_loss_ratio": 0.01},
    ),
    "small_files": (
        {**WAITS, **BLOCKED, "read_size_bytes": 20_000},
        {"read_size_bytes": 1e6, "worker_blocked_ratio": 0.3},
    ),
    "storage_bound": (
        {**WAITS, **BLOCKED, "read_size_bytes": 4e6},
        {"read_size_bytes": 1e5, "worker_blocked_ratio": 0.3, "data_wait_loss_ratio": 0.0},
    ),
    "epoch_respawn": (
        {"loader_start_of_loop_ratio": 0.2, "persistent_workers": 0},
        {"persistent_workers": 1, "loader_start_of_loop_ratio": 0.02},
    ),
    "transfer_bound": (
        {"h2d_of_loop_ratio": 0.3, "pinned_memory": 0},
        {"pinned_memory": 1, "h2d_of_loop_ratio": 0.05},
    ),
    "checkpoint_too_frequent": (
        {"checkpoint_of_loop_ratio": 0.1, "checkpoints_count": 2},
        {"checkpoint_of_loop_ratio": 0.04, "checkpoints_count": 1},
    ),
    "logging_too_frequent": ({"logging_of_loop_ratio": 0.1}, {"logging_of_loop_ratio": 0.04}),
    "straggler_rank": (
        {**WAITS, **STRAGGLES},
        {"steps_of_median_ratio": 0.5, "ranks_count": 1, "data_wait_above_median_ratio": 0.05},
    ),
    "orphan_processes": (
        {"orphan_workers_count": 4, "orphaned_seconds": 40.0, "busy_ratio": 0.0},
        {"orphaned_seconds": 20.0, "busy_ratio": 0.5},
    ),
    "idle_sibling": (
        {"idle_siblings_count": 3, "busy_ratio": 0.9, "trains": 1},
        {"idle_siblings_count": 0, "busy_ratio": 0.1, "trains": 0},
    ),
    "data_parallel_one_process": (
        ONE_PROCESS,
        {"gpus_of_process_count": 1, "trains": 0, "process_cores": 0.5, "idle_ratio": 0.1},
    ),
    "launch_bound": (
        LAUNCHES,
        {"idle_intervals_ratio": 0.3, "process_cores": 0.4, "idle_ratio": 0.1}
        | {"data_stall_upper_ratio": 0.2},
    ),
    "gpu_side_loader": (
        {"media_engine_ratio": 0.95, "busy_ratio": 0.5, "trains": 1},
        {"media_engine_ratio": 0.3, "busy_ratio": 0.95, "trains": 0},
    ),
    "thermal": (
        {**SLOW_CLOCK, "thermal_throttled": 1},
        {"thermal_throttled": 0, "clock_time_ratio": 0.05},
    ),
    "power_capped": (
        SLOW_CLOCK,
        {"power_capped": 0, "clock_time_ratio": 0.1, "thermal_throttled": 1},
    ),
    "fail_slow_gpu": (
        SLOW_GPU,
        {"clock_of_peers_ratio": 0.97, "peers_count": 2, "busy_ratio": 0.2}
        | {"power_capped": 1, "thermal_throttled": 1},
    ),
    "numa_misaligned": (
        {"numa_misaligned_ratio": 1.0, "idle_ratio": 0.3, "busy_ratio": 0.7},
        {"numa_misaligned_ratio": 0.5, "idle_ratio": 0.05, "busy_ratio": 0.0},
    ),
    "pcie_limited": (
        {"pcie_traffic_ratio": 0.9, "idle_ratio": 0.2},
        {"pcie_traffic_ratio": 0.5, "idle_ratio": 0.02},
    ),
    "collective_wait": ({"communication_time_ratio": 0.5}, {"communication_time_ratio": 0.1}),
    "tensor_cores_unused": (
        FP32,
        {"tensor_active_ratio": 0.3, "fma_active_ratio": 0.05, "trains": 0, "has_tensor_cores": 0},
    ),
    "batch_too_small": (
        NARROW,
        {"narrow_time_ratio": 0.2, "memory_used_ratio": 0.9, "sm_active_ratio": 0.01, "trains": 0},
    ),
}
"""By cause: evidence that shows it, and numbers of which each one by itself shows it no longer."""
NEAR_MISSES = [(slug, *miss) for slug, (_, misses) in CASES.items() for miss in misses.items()]


def slugs(evidence: Mapping[str, float]) -> list[str]:
    return [cause.slug for cause in judged(evidence, CAUSES)[0]]


def missing(evidence: Mapping[str, float]) -> list[str]:
    return judged(evidence, CAUSES)[1]


def test_the_table_is_complete_and_readable() -> None:
    """Every condition and every place in a text is evidence that is looked for."""
    assert tuple(cause.slug for cause in CAUSES) == tuple(CASES)
    looked_for = {f"{name}_of_loop_ratio" for name in (*OF_LOOP, "loader_start")}
    for module in (given_evidence, peers, causes):
        nodes = ast.walk(_tree(module))
        looked_for |= {str(node.value) for node in nodes if isinstance(node, ast.Constant)}
    assert [name for name in NAMED if name not in looked_for] == []
    words = " ".join(text for cause in CAUSES for text in cause.when)
    assert [name for name in THRESHOLDS if name not in words] == []


@pytest.mark.parametrize("slug", CASES)
def test_its_evidence_shows_a_cause_alone(slug: str) -> None:
    """Neighbours are excluded."""
    evidence, _ = CASES[slug]
    assert slugs(evidence) == [slug]
    (cause,), _ = judged(evidence, CAUSES)
    needed = {name for name, _, _ in cause.conditions}
    assert needed <= cause.numbers(evidence).keys()
    for name in needed:
        assert slug not in slugs({key: evidence[key] for key in evidence.keys() - {name}})


@pytest.mark.parametrize(("slug", "name", "value"), NEAR_MISSES)
def test_a_near_miss_does_not(slug: str, name: str, value: float) -> None:
    """One number that is otherwise is enough."""
    assert slug not in slugs({**CASES[slug][0], name: value})


@given(
    st.dictionaries(st.sampled_from(NAMED), st.floats(0.0, 2.0)),
    st.sampled_from(NAMED),
)
def test_less_evidence_shows_no_more_causes(evidence: dict[str, float], name: str) -> None:
    """What is not known never makes a cause; and what is shown misses nothing."""
    less = {key: value for key, value in evidence.items() if key != name}
    assert set(slugs(less)) <= set(slugs(evidence))
    assert set(missing(evidence)).isdisjoint(evidence)


def test_missing_evidence_is_only_what_could_still_decide() -> None:
    """A share that waits for data has a cause that is not known; one that does not, has none."""
    assert missing(WAITS)[0] == "workers_count"
    assert "worker_running_ratio" in missing({**WAITS, "workers_count": 4})
    assert missing({**WAITS, **BLOCKED, "free_cores": 3.0})[0] == "read_size_bytes"
    assert missing({"data_wait_loss_ratio": 0.01}) == []
    assert missing({}) == []
    assert any(cause.when[0] == WAITS_FOR_DATA for cause in CAUSES)


@pytest.mark.parametrize("text", ["workers_count", "workers_count ~ 0", "a >= no_such_threshold"])
def test_a_condition_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises((KeyError, ValueError)):
        condition(text)


def test_a_job_looks_for_all_that_its_own_causes_need() -> None:
    """The others need a node."""
    nodes = [node for module in (causes, diagnosis) for node in ast.walk(_tree(module))]
    known = {str(node.value) for node in nodes if isinstance(node, ast.Constant)}
    known |= {f"{phase}_of_loop_ratio" for phase in OF_LOOP}
    needed = {name for cause in JOB_CAUSES for name, _, _ in cause.conditions}
    assert needed <= known
    assert CAUSES[: len(JOB_CAUSES)] == JOB_CAUSES


def _tree(module: ModuleType) -> ast.AST:
    return ast.parse(inspect.getsource(module))

# SPDX-License-Identifier: Apache-2.0
"""Rules call the owner of a GPU by its workload, wherever a scheduler or runtime names one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tests.rules.cases import (
    BY_UUID,
    CASES,
    GPU,
    HOLDER,
    NODE,
    RANK,
    WARNING,
    Case,
    firing,
    gauge,
    given,
    held,
    held_by,
    owned,
    pod,
    rank,
    workload,
)
from tests.rules.promtool import (
    HOUR,
    MINUTE,
    Expected,
    Interruption,
    Labels,
    Series,
    Test,
    Value,
    check,
    check_all,
    piecewise,
    selector,
    value,
)

AT = 20 * MINUTE
OWNER = "gpu:gpu_workload_owner:info"
SHARE: Labels = {"instance": NODE["instance"], "uuid": "GPU-a"}
INSTANCE: Labels = {**GPU, "gpu_instance": "2"}
HEX = "0123456789abcdef" * 4
UID = "5d1b2b0e-3f77-4d3a-9a39-0c6a3a0a5b11"


def owners(
    folder: Path, series: Sequence[Series], *names: str, at: float = AT, **share: str
) -> None:
    """Check who the owner of the GPU is, or that there is none."""
    rows = [({**SHARE, **share, "owner": name}, 1.0) for name in names]
    check(folder, [OWNER], series, [value(OWNER, at, *rows)])


NAMED: Sequence[tuple[str, Labels, str]] = (
    (
        "kubernetes",
        {"namespace": "team-a", "pod": "train-0", "container": "main"},
        "team-a/train-0",
    ),
    ("kubernetes", {"namespace": "team-a", "pod": "train-0", "id": UID}, "team-a/train-0"),
    ("kubernetes", {"id": UID}, "pod 5d1b2b0e-3f7"),
    ("slurm", {"job": "4711", "user": "ada"}, "ada, job 4711"),
    ("slurm", {"job": "4711", "user": "ada", "step": "batch", "id": "s1"}, "ada, job 4711"),
    ("slurm", {"job": "4711"}, "job 4711"),
    ("slurm", {"job": "4711", "step": "0", "id": "s01H2XC"}, "job 4711"),
    ("slurm", {"user": "ada", "id": "s01H2XC"}, "ada, job s01H2XC"),
    ("slurm", {"id": "s01H2XC"}, "job s01H2XC"),
    ("container", {"container": "web-1", "id": HEX}, "web-1"),
    ("container", {"id": HEX}, HEX[:12]),
)
"""What is known of a workload, and what it is called."""


SEVERAL: Mapping[str, tuple[Sequence[Series], str]] = {
    "two containers of one pod": (
        [
            workload("kubernetes", namespace="a", pod="p", container="main", id=UID),
            workload("kubernetes", namespace="a", pod="p", container="sidecar"),
        ],
        "a/p",
    ),
    "steps of one job": (
        [workload("slurm", job="4711", user="ada", step=step) for step in ("", "0", "batch")],
        "ada, job 4711",
    ),
    "three pods": ([pod("a/p"), pod("b/p"), pod("b/q")], "3 workloads"),
    "Kubernetes before Slurm": ([pod("a/p"), workload("slurm", job="4711", user="ada")], "a/p"),
    "Slurm before containers": (
        [workload("slurm", job="4711"), workload("container", container="web")],
        "job 4711",
    ),
    "several of the preferred one": (
        [pod("a/p"), pod("a/q"), workload("container", id=HEX)],
        "2 workloads",
    ),
    "two containers": (
        [workload("container", id=HEX), workload("container", id=HEX[::-1])],
        "2 workloads",
    ),
}


def test_an_owner_has_the_name_that_people_use(tmp_path: Path) -> None:
    """The beginning of an id stands for a name that is not known; several have one name, so that no
    join finds two."""
    named: list[tuple[str, Sequence[Series], str]]
    named = [(str(said), [workload(scheduler, **said)], owner) for scheduler, said, owner in NAMED]
    named += [(about, series, owner) for about, (series, owner) in SEVERAL.items()]
    tests = [
        Test(about, series, [value(OWNER, AT, ({**SHARE, "owner": owner}, 1.0))])
        for about, series, owner in named
    ]
    check_all(tmp_path, [OWNER], tests)


LABELLED: Sequence[tuple[Sequence[Series], Labels]] = (
    ([pod("team-a/train-0")], {"namespace": "team-a", "pod": "train-0"}),
    ([workload("slurm", job="4711", user="ada")], {"job": "4711", "user": "ada"}),
    ([workload("slurm", job="4711", user="DOMAIN/ada")], {"job": "4711", "user": "DOMAIN/ada"}),
    ([workload("slurm", job="4711_3")], {"job": "4711_3"}),
    ([workload("slurm", user="ada", id="s01H2XC")], {"user": "ada"}),
    ([workload("kubernetes", id=UID)], {}),
    ([workload("container", container="web-1")], {}),
    ([pod("a/p"), pod("a/q")], {}),
    ([pod("a/p", INSTANCE)], {"namespace": "a", "pod": "p"}),
)
"""What is known of the workloads of a GPU, and the labels by which its alerts are routed."""


def test_alerts_are_routed_by_what_the_owner_is_called(tmp_path: Path) -> None:
    """A label that is not known is absent; of several workloads none is known."""
    name = "gpu:gpu_workload_labels:info"
    tests = [
        Test(str(said), series, [value(name, AT, ({**_share(series[0]), **_named(said)}, 1.0))])
        for series, said in LABELLED
    ]
    check_all(tmp_path, [name], tests)


def _share(series: Series) -> Labels:
    names = ("instance", "uuid", "gpu_instance")
    return {name: series.labels[name] for name in names if name in series.labels}


def _named(said: Labels) -> Labels:
    return {f"workload_{what}": name for what, name in sorted(said.items())}


STALLED: Sequence[tuple[Sequence[Series], Labels]] = (
    ([], {}),
    ([pod("team-a/train-0")], {"namespace": "team-a", "pod": "train-0"}),
    ([pod("a/p"), pod("b/q")], {}),
    ([workload("slurm", job="4711", user="ada")], {"job": "4711", "user": "ada"}),
)


def test_alerts_about_stalls_say_whose_job_it_is(tmp_path: Path) -> None:
    """As the driver's holder alone says nothing of a team, there is an alert without labels too."""
    tests = []
    for workloads, said in STALLED:
        rows = [*rank(stall=0.5, uuid="GPU-a"), *workloads]
        labels = {**RANK, **_named(said), **WARNING}
        case = Case("GpuDataStallHigh", "", (), 0, labels)
        tests.append(Test(str(said), rows, [firing(case, 40 * MINUTE)]))
    check_all(tmp_path, ["GpuDataStallHigh"], tests)


def test_a_pod_under_a_new_name_is_a_new_alert_and_the_same_pod_is_not(tmp_path: Path) -> None:
    """A stall whose pod comes back: no label changes. One whose pod is another: the first ends."""
    change = 45 * MINUTE
    stalls = rank(stall=0.5, uuid="GPU-a")
    same, other = (
        [
            *stalls,
            pod("a/first", GPU, (0, change)),
            workload("kubernetes", GPU, (change, 1e9), namespace="a", pod=name, id=UID),
        ]
        for name in ("first", "second")
    )
    case = Case("GpuDataStallHigh", "", (), 0, {**RANK, **WARNING, **_labels_of("first")})
    after = Case("GpuDataStallHigh", "", (), 0, {**RANK, **WARNING, **_labels_of("second")})
    times = [change + 30 * step for step in range(-2, 20)]
    check_all(
        tmp_path,
        ["GpuDataStallHigh"],
        [
            Test("same", same, [firing(case, at) for at in times]),
            Test("other", other, [firing(case, change - 30), firing(after, change + 10 * MINUTE)]),
        ],
    )


def _labels_of(pod_name: str) -> Labels:
    return _named({"namespace": "a", "pod": pod_name})


def test_each_instance_has_an_owner_of_its_own(tmp_path: Path) -> None:
    """One of the GPU itself would be nobody's."""
    other = {**INSTANCE, "gpu_instance": "3"}
    rows = [
        ({**SHARE, "gpu_instance": part, "owner": owner}, 1.0)
        for part, owner in (("2", "a/p"), ("3", "2 workloads"))
    ]
    series = [pod("a/p", INSTANCE), pod("a/p", other), pod("a/q", other)]
    check(tmp_path, [OWNER], series, [value(OWNER, AT, *rows)])


def test_two_jobs_that_read_one_exporter_name_it_once(tmp_path: Path) -> None:
    """Nor does a target's own label make two of one."""
    twice = [pod("a/p"), pod("a/p", {**GPU, "job": "gpus", "cluster": "berlin"})]
    owners(tmp_path, twice, "a/p")


def test_nobody_is_named_where_no_workload_is_known(tmp_path: Path) -> None:
    """The owner of the process stays the owner; rules without workloads are what they were."""
    rows = held(1)
    owners(tmp_path, rows)
    name = "gpu:gpu_holder:info"
    check(tmp_path, [name], rows, [value(name, AT, ({**SHARE, **HOLDER}, 1.0))])


def _unless(start: float, end: float) -> Value:
    """What is there but for a while."""
    return lambda at: None if start <= at < end else 1.0


def _restarted(end: float) -> list[Series]:
    """A pod that holds a GPU idle, of an exporter that is started anew at 45 minutes and knows
    until `end` only the processes."""
    start = 45 * MINUTE
    known = workload("kubernetes", namespace="a", pod="p", container="main", id=UID)
    return [
        *held(1, {**HOLDER, "owner": "root"}),
        gauge("gpu_allocated", _unless(start, end)),
        replace(known, value=_unless(start, end)),
        workload("kubernetes", GPU, (start, end), id=UID),
    ]


def test_a_restart_does_not_change_an_owner(tmp_path: Path) -> None:
    """The processes are known before the kubelet was asked: who had the GPU before has it."""
    case = Case("GpuHeldIdle", "", (), 0, {**BY_UUID, **HOLDER, **owned("a/p"), **WARNING})
    times = [40 * MINUTE + 30 * step for step in range(120)]
    check(
        tmp_path,
        ["GpuHeldIdle"],
        _restarted(47 * MINUTE),
        [firing(case, at) for at in times],
        Interruption(45 * MINUTE, 46 * MINUTE, restart=True),
    )


def test_a_name_is_not_remembered_for_ever(tmp_path: Path) -> None:
    """What the process says counts then."""
    owners(tmp_path, _restarted(1e9), "a/p", at=49 * MINUTE)
    owners(tmp_path, _restarted(1e9), "pod 5d1b2b0e-3f7", at=51 * MINUTE)


def test_a_pod_that_replaces_another_is_a_new_owner(tmp_path: Path) -> None:
    """The alert about the first ends; that about the second comes after half an hour of its own."""
    change = 45 * MINUTE
    rows = [
        *held(1, {**HOLDER, "owner": "root"}),
        pod("a/first", GPU, (0, change)),
        pod("a/second", GPU, (change, 1e9)),
    ]
    alerts = [
        Case("GpuHeldIdle", "", (), 0, {**BY_UUID, **HOLDER, **owned(owner), **WARNING})
        for owner in ("a/first", "a/second")
    ]
    none = selector("ALERTS", {"alertname": "GpuHeldIdle", "alertstate": "firing", **WARNING})
    quiet = [Expected(none, change + MINUTE + 60 * step, []) for step in range(25)]
    expected = [firing(alerts[0], change - 30), *quiet, firing(alerts[1], change + 37 * MINUTE)]
    check(tmp_path, ["GpuHeldIdle"], rows, expected)


def test_a_container_that_is_started_anew_is_the_same_owner(tmp_path: Path) -> None:
    """Its id changes, and so may the pod's; what people call it does not."""
    change = 45 * MINUTE
    rows = [
        *held(1, {**HOLDER, "owner": "root"}),
        *(
            workload("kubernetes", GPU, spell, namespace="a", pod="p", container="main", id=uid)
            for spell, uid in (((0, change), UID), ((change, 1e9), UID[::-1]))
        ),
    ]
    case = Case("GpuHeldIdle", "", (), 0, {**BY_UUID, **HOLDER, **owned("a/p"), **WARNING})
    times = [change - 60 + 30 * step for step in range(20)]
    check(tmp_path, ["GpuHeldIdle"], rows, [firing(case, at) for at in times])


def test_unopened_hours_go_to_whom_the_gpu_was_given(tmp_path: Path) -> None:
    """An hour of one pod, of which it uses the second half, a pause, and an hour of another."""
    rows = given(
        ("a/first", 0, HOUR),
        ("a/second", 1.5 * HOUR, 2.5 * HOUR),
        held_value=piecewise((0, 0), (HOUR / 2, 1), (HOUR, 0)),
    )
    job = {"job": NODE["job"]}
    for name, values in (
        (
            "owner:gpu_allocated_unopened_seconds:hours1d",
            [({**job, "owner": "a/first"}, 0.5), ({**job, "owner": "a/second"}, 1.0)],
        ),
        (
            "workload:gpu_allocated_unopened_seconds:hours1d",
            [({**BY_UUID, "owner": "a/first"}, 0.5), ({**BY_UUID, "owner": "a/second"}, 1.0)],
        ),
    ):
        check(tmp_path, [name], rows, [value(name, 3 * HOUR, *values, to=0.1)])


def test_unopened_hours_of_a_node_are_those_of_the_counter(tmp_path: Path) -> None:
    """Also over a restart of the exporter."""
    rows = given(("a/p", 0, 1e9))
    name = "node:gpu_allocated_unopened_seconds:hours1d"
    event = Interruption(HOUR, HOUR + 2 * MINUTE, restart=True)
    check(tmp_path, [name], rows, [value(name, 3 * HOUR, (NODE, 3.0), to=0.1)], event)


def test_what_is_given_away_is_not_free(tmp_path: Path) -> None:
    """Four GPUs: held, given and not opened, free, and free where no scheduler says."""
    gpus = [{**GPU, "gpu": str(i), "uuid": f"GPU-{i}"} for i in range(4)]
    rows = [gauge("gpu_held", held, gpu) for gpu, held in zip(gpus, (1, 0, 0, 0), strict=True)]
    rows += [gauge("gpu_allocated", due, gpu) for gpu, due in zip(gpus, (1, 1, 0), strict=False)]
    for name, count in (("gpu_free", 2), ("gpu_unopened", 1), ("gpu_held", 1)):
        for level, labels in (("node", NODE), ("job", {"job": NODE["job"]})):
            series = f"{level}:{name}:count"
            check(tmp_path, [series], rows, [value(series, AT, (labels, float(count)))])


UNOPENED = next(case for case in CASES if case.alert == "GpuAllocatedUnopened" and case.labels)
"""A pod that never opens its GPU."""
ANY_UNOPENED = selector("ALERTS", {"alertname": "GpuAllocatedUnopened", "alertstate": "firing"})


def test_the_alert_ends_when_the_gpu_is_opened_or_given_back(tmp_path: Path) -> None:
    """At once: no window is waited for."""
    change = 45 * MINUTE
    opened = given(("team-a/notebook-7", 0, 1e9), held_value=piecewise((0, 0), (change, 1)))
    back = given(("team-a/notebook-7", 0, change))
    taken = given(("team-a/notebook-7", 0, change), ("team-b/train-0", change, 1e9))
    for rows in (opened, back, taken):
        expected = [firing(UNOPENED, change - 30)]
        expected += [Expected(ANY_UNOPENED, change + MINUTE + 60 * i, []) for i in range(20)]
        check(tmp_path, [UNOPENED.alert], rows, expected)


def test_a_scheduler_that_cannot_be_asked_after_a_restart_does_not_end_it(tmp_path: Path) -> None:
    """That no process holds the GPU is known, to whom it is given is not."""
    start, end = 45 * MINUTE, 65 * MINUTE

    rows = [
        gauge("gpu_held", 0),
        gauge("gpu_allocated", _unless(start, end)),
        replace(pod("team-a/notebook-7"), value=_unless(start, end)),
    ]
    times = [40 * MINUTE + 30 * step for step in range(120)]
    check(tmp_path, [UNOPENED.alert], rows, [firing(UNOPENED, at) for at in times])


def test_idle_time_before_a_workload_came_is_not_its_own(tmp_path: Path) -> None:
    """A GPU that was free is held by a pod: nothing of the free time is charged to it."""
    come = HOUR
    rows = [
        *held_by(("root", come, 1e9)),
        pod("a/p", GPU, (come, 1e9)),
        gauge("gpu_allocated", piecewise((0, 0), (come, 1))),
    ]
    name = "holder:gpu_held_idle_seconds:hours1d"
    mine = ({**BY_UUID, **HOLDER, "owner": "a/p"}, 1.0)
    check(tmp_path, [name], rows, [value(name, 2 * HOUR, mine, to=0.1)])

# SPDX-License-Identifier: Apache-2.0
"""Whose work is on each share: what schedulers gave away, and what the processes say."""

from __future__ import annotations

import pytest

from exporter.derive.workloads import OnShare, ShareKey, work_of_shares
from exporter.model.reading import Device, Instance, Process
from exporter.model.workload import (
    NO_WORK,
    Allocation,
    DeviceName,
    Membership,
    ShareWork,
    Workload,
    WorkloadReport,
)

UID = "5d3b7a3e-7b2c-4f55-9f0a-aaaaaaaaaaaa"
ID = "0123456789abcdef" * 4
WHOLE = Device(0, "GPU-0", "H100", minor_number=3)
SECOND = Device(1, "GPU-1", "H100", minor_number=0)
DIVIDED = Device(
    2,
    "GPU-2",
    "H100",
    minor_number=1,
    mig=True,
    instances=(
        Instance(7, 0, "1g.10gb", "MIG-7"),
        Instance(8, 0, "1g.10gb+me", "MIG-8"),
        Instance(9, 0, "1g.10gb", "MIG-9"),
        Instance(2, 0, "3g.40gb", "MIG-2"),
    ),
)
KEYS = [
    ShareKey("GPU-0", None),
    ShareKey("GPU-1", None),
    *(ShareKey("GPU-2", gi) for gi in (7, 8, 9, 2)),
]


def _shares(**processes: tuple[Process, ...]) -> list[OnShare]:
    """All shares; processes by g0, g1 or the number of the instance."""
    return [
        OnShare(WHOLE, None, processes.get("g0", ())),
        OnShare(SECOND, None, processes.get("g1", ())),
        *(OnShare(DIVIDED, gi, processes.get(f"i{gi}", ())) for gi in (7, 8, 9, 2)),
    ]


def _pod(name: str, container: str = "main", uid: str = "") -> Workload:
    return Workload("kubernetes", "team-a", name, container, id=uid)


def _process(
    pid: int, uid: str | None = UID, container: str | None = ID, runtime: str = "containerd"
) -> Process:
    return Process(pid, "compute", membership=Membership(uid, container, runtime))


def _given(*devices: tuple[DeviceName, Workload]) -> WorkloadReport:
    return WorkloadReport(tuple(Allocation(*each) for each in devices), allocates=True)


def _allocated(report: WorkloadReport, shares: list[OnShare]) -> list[bool | None]:
    work = work_of_shares([report], shares)
    return [work[key].allocated for key in KEYS]


@pytest.mark.parametrize(
    ("name", "given"),
    [
        (DeviceName(uuid="GPU-1"), [1]),
        (DeviceName(index=0), [0]),
        (DeviceName(minor=0), [1]),
        (DeviceName(minor=3), [0]),
        (DeviceName(uuid="GPU-2"), [2, 3, 4, 5]),
        (DeviceName(mig_uuid="MIG-8"), [3]),
        (DeviceName(minor=1, gpu_instance=9), [4]),
        (DeviceName(uuid="GPU-2", gpu_instance=2), [5]),
        (DeviceName(uuid="GPU-2", gpu_instance=5), []),
        (DeviceName(mig_uuid="MIG-1"), []),
        (DeviceName(uuid="GPU-9"), []),
        (DeviceName(minor=1, profile="3g40gb"), [5]),
        (DeviceName(minor=1, profile="1g10gb-me"), [3]),
        (DeviceName(minor=1, profile="7g80gb"), []),
        (DeviceName(minor=3, profile=""), []),
        (DeviceName(), []),
    ],
)
def test_a_scheduler_names_a_share_in_many_ways(name: DeviceName, given: list[int]) -> None:
    """The others are free, as it names all that it gave away."""
    assert _allocated(_given((name, _pod("one"))), _shares()) == [
        number in given for number in range(6)
    ]


@pytest.mark.parametrize(
    ("profile", "open_ones"), [("1g10gb", [2, 4]), ("", [2, 3, 4, 5])], ids=["profile", "any"]
)
def test_one_instance_of_several_is_given_but_not_which(profile: str, open_ones: list[int]) -> None:
    """Of these it is not known that they are free; of one that is given besides, that it is not."""
    unclear = (DeviceName(minor=1, profile=profile), _pod("one"))
    known = (DeviceName(mig_uuid="MIG-9"), _pod("two"))

    assert _allocated(_given(unclear), _shares()) == [
        None if number in open_ones else False for number in range(6)
    ]
    work = work_of_shares([_given(unclear, known)], _shares())
    assert work[ShareKey("GPU-2", 9)] == ShareWork((_pod("two"),), True)
    assert work[ShareKey("GPU-2", 7)] == NO_WORK


def test_a_process_belongs_to_the_container_that_the_pods_api_knows() -> None:
    """One workload, not a second one beside what is given."""
    full = _pod("one", uid=UID)
    report = WorkloadReport(
        (Allocation(DeviceName(index=0), full), Allocation(DeviceName(index=1), full)),
        allocates=True,
        named={UID: _pod("one", ""), ID: full},
    )

    work = work_of_shares([report], _shares(g0=(_process(1),)))

    assert work[KEYS[0]] == ShareWork((full,), True, {1: full})
    assert work[KEYS[1]] == ShareWork((full,), True)


def test_without_the_pods_api_a_pod_is_known_by_its_gpus() -> None:
    """It is the only one that has all of them; its container is the only one there."""
    one, two = _pod("one"), _pod("two")
    report = _given(
        (DeviceName(index=0), one), (DeviceName(index=1), one), (DeviceName(index=1), two)
    )

    work = work_of_shares([report], _shares(g0=(_process(1),), g1=(_process(2),)))

    assert work[KEYS[0]].workloads == (one,)
    assert work[KEYS[1]] == ShareWork((one, two), True, {2: one})


def test_two_containers_of_a_pod_are_told_apart_by_the_pods_api() -> None:
    main, side = _pod("one", uid=UID), _pod("one", "side", uid=UID)
    report = WorkloadReport(
        (Allocation(DeviceName(index=0), main), Allocation(DeviceName(index=0), side)),
        allocates=True,
        named={UID: _pod("one", ""), ID: side},
    )

    work = work_of_shares([report], _shares(g0=(_process(1),)))

    assert work[KEYS[0]] == ShareWork((main, side), True, {1: side})

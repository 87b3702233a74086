# SPDX-License-Identifier: Apache-2.0
"""Whether GPUs have been idle for so long, for scripts; doubtful cases are not known."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from exporter.derive.waits import live_ranks
from exporter.model.reading import Place, share_name, share_names
from exporter.model.snapshot import Gpu, Rank, Share, Snapshot
from exporter.web.wording.numbers import duration
from exporter.web.wording.whose import display_names

State = Literal["idle", "busy", "not_known"]
OLD_SECONDS = 10.0
"""What older readings say is not of now."""
LONGEST_SECONDS = 30 * 86400.0
_DURATION = re.compile(r"([0-9]{1,9})([smhd])")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Asked(NamedTuple):
    """The GPUs to judge; all, if nothing is given."""

    gpu: str | None = None
    """An index, a share (2/1) or a UUID."""
    pod: str | None = None
    """A name, or NAMESPACE/NAME."""
    job: str | None = None
    """A Slurm job or step, or a training job."""
    user: str | None = None


class Found(NamedTuple):
    """The state of one GPU or MIG instance."""

    gpu: int
    uuid: str
    gpu_instance: int | None
    state: State
    reason: str


def seconds_of(text: str) -> float:
    """Read a duration such as 90s, 30m, 2h or 1d.

    Raises:
        ValueError: it is none, or longer than 30 days; the text says what was expected.
    """
    found = _DURATION.fullmatch(text)
    seconds = int(found[1]) * _UNITS[found[2]] if found else 0.0
    if not 0.0 < seconds <= LONGEST_SECONDS:
        raise ValueError("expected a duration from 1s to 30d, such as 90s, 30m or 2h")
    return seconds


def idle_for(
    snapshot: Snapshot | None, age_seconds: float | None, seconds: float, asked: Asked
) -> tuple[State, str, list[Found]]:
    """Return the state of all GPUs that are asked for, why, and what is known of each.

    They are idle if every one has been idle without a break for so long, and busy if one was seen
    busy in that time. `age_seconds` is how old the snapshot is.
    """
    if snapshot is None or age_seconds is None:
        return "not_known", "no GPU was read yet", []
    if age_seconds > OLD_SECONDS:
        return "not_known", f"the readings are {duration(age_seconds)} old", []
    now, live = snapshot.timestamp_seconds, live_ranks(snapshot.ranks)
    jobs = display_names({rank.job for rank in snapshot.ranks})
    found = [
        Found(gpu.device.index, gpu.device.uuid, share.gpu_instance if share else None, *said)
        for gpu in snapshot.gpus
        for share in _parts(gpu)
        if (said := _state(gpu, share, now, live, jobs, seconds, asked)) is not None
    ]
    for state in ("busy", "not_known"):
        named = [each for each in found if each.state == state]
        if named:
            more = f", and {len(named) - 1} more" if len(named) > 1 else ""
            name = share_name(named[0].gpu, named[0].gpu_instance)
            return state, f"GPU {name}: {named[0].reason}{more}", found
    if not found:
        what = ", ".join(f"{name} {each!r}" for name, each in asked._asdict().items() if each)
        problem = snapshot.problem or (f"no GPU here is known to be of {what}" if what else "")
        return "not_known", problem or "no GPU is listed", []
    on_the_bus = snapshot.devices.get("pci", 0)
    if not any(asked) and on_the_bus > len(snapshot.gpus):
        return (
            "not_known",
            f"{on_the_bus} GPUs are on the bus, {len(snapshot.gpus)} are read",
            found,
        )
    all_of_them = f"{len(found)} GPUs have" if len(found) > 1 else "the GPU has"
    return "idle", f"{all_of_them} been idle for {duration(seconds)} and longer", found


def _parts(gpu: Gpu) -> tuple[Share | None, ...]:
    """Return the shares of a GPU, and None for a part that cannot be read."""
    if not gpu.up or not gpu.shares:
        return (None,)
    is_whole = gpu.states.get("mig") in (None, "unsupported")
    return gpu.shares if is_whole else (*gpu.shares, None)


def _state(
    gpu: Gpu,
    share: Share | None,
    now: float,
    live: Mapping[Place, list[Rank]],
    jobs: Mapping[str, str],
    seconds: float,
    asked: Asked,
) -> tuple[State, str] | None:
    """Return the state of a share (None: of a GPU that is not read), and why; None if it is not
    asked for."""
    device = gpu.device
    instance = None if share is None else share.gpu_instance
    if asked.gpu is not None and asked.gpu not in share_names(device, instance):
        return None
    if share is None:
        return "not_known", gpu.down_reason or "it has MIG instances that cannot be read"
    ranks = live.get(Place(device.uuid, instance), [])
    wanted = asked._replace(gpu=None)
    for kind, name in wanted._asdict().items():
        if name is not None and name not in set(_whose(kind, share, ranks, jobs)):
            reports = kind == "job" and name in {*jobs, *jobs.values()}
            return (
                None
                if reports or _is_known(kind, share)
                else ("not_known", "whose it is, is not known")
            )
    since, idle = share.same_work_since_seconds, share.totals.idle_for_seconds
    busy = share.totals.seen_busy_timestamp_seconds
    if busy is not None and now - busy < seconds:
        return "busy", "it is busy" if idle == 0 else f"it was busy {duration(now - busy)} ago"
    if idle is None or idle < seconds:
        watched = "nothing" if idle is None else f"it idle for {duration(idle)}"
        return "not_known", f"the exporter has seen {watched} without a break"
    there_for = 0.0 if since is None else max(0.0, now - since)
    if any(wanted) and there_for < seconds:
        return "not_known", f"its work has been there for {duration(there_for)}"
    return "idle", f"idle for {duration(idle)}"


def _is_known(kind: str, share: Share) -> bool:
    """Return whether every process on a share has a name of this kind, or a scheduler says whose
    the share is."""
    if kind != "user" and share.work.allocated is not None:
        return True
    processes = share.processes
    if processes is None:
        return False
    if kind == "user":
        return all(each.owner is not None for each in processes)
    return all(each.pid in share.work.of_process for each in processes)


def _whose(
    kind: str, share: Share, ranks: list[Rank], jobs: Mapping[str, str]
) -> Iterator[str | None]:
    """Yield the names by which a share may be asked for."""
    for work in share.work.workloads:
        if kind == "pod":
            yield from (work.pod, f"{work.namespace}/{work.pod}")
        elif kind == "job":
            yield from (work.job, f"{work.job}.{work.step}")
        else:
            yield work.user
    if kind == "job":
        yield from (name for rank in ranks for name in (rank.job, jobs[rank.job]))
    if kind == "user":
        yield from (each.owner for each in share.processes or ())

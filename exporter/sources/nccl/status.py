# SPDX-License-Identifier: Apache-2.0
"""What the status of NCCL's RAS says of the processes of its job."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterator
from typing import Any

from exporter.model.training import RAS_STATES, Collectives
from exporter.sources.poller import Unreadable

_SEVERITY = {state: number for number, state in enumerate(RAS_STATES)}


class Malformed(Unreadable):
    """It is not the status of a RAS."""


def collectives(data: bytes) -> Collectives:
    """Return what a status in JSON says.

    Raises:
        Malformed: it is none.
    """
    try:
        status = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Malformed("the status of NCCL's RAS is no JSON") from error
    communicators = status.get("communicators") if isinstance(status, dict) else None
    if not isinstance(communicators, list):
        raise Malformed('the status of NCCL\'s RAS has no list "communicators"')
    worst: dict[Hashable, str] = {}
    for number, communicator in enumerate(communicators):
        for rank, state in _ranks(communicator):
            key = _process(rank) or (number, _integer(rank.get("rank")))
            if _SEVERITY[state] >= _SEVERITY[worst.get(key, RAS_STATES[0])]:
                worst[key] = state
    counted = Counter(worst.values())
    return Collectives({state: counted[state] for state in RAS_STATES}, len(communicators))


def _ranks(communicator: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield every rank of a communicator with its state."""
    if not isinstance(communicator, dict):
        raise Malformed("a communicator in the status of NCCL's RAS is no object")
    for rank in _objects(communicator, "ranks"):
        yield rank, "responding"
    for rank in _objects(communicator, "missing_ranks"):
        status = rank.get("status")
        said = status if isinstance(status, dict) else {}
        if said.get("considered_dead") is True:
            yield rank, "dead"
        else:
            yield rank, "unresponsive" if said.get("unresponsive") is True else "missing"


def _objects(communicator: dict[str, Any], key: str) -> list[dict[str, Any]]:
    found = communicator.get(key, [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise Malformed(f"{key} in the status of NCCL's RAS is no list of ranks")
    return found


def _process(rank: dict[str, Any]) -> Hashable:
    """Return what identifies a rank over communicators; None where RAS does not know its process.

    One process may drive several GPUs, each a rank of its own.
    """
    host, pid = rank.get("host"), _integer(rank.get("pid"))
    if not isinstance(host, str) or pid is None or pid < 0:
        return None
    return host, pid, _integer(rank.get("cuda_dev"))


def _integer(value: Any) -> int | None:
    return value if type(value) is int else None

# SPDX-License-Identifier: Apache-2.0
"""Attaches to each share the known causes that its evidence shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from exporter.derive import waits
from exporter.derive.diagnosis.evaluate import Evidence, missing, numbers_of, shown
from exporter.derive.diagnosis.evidence import share_evidence
from exporter.derive.diagnosis.peers import peers
from exporter.derive.diagnosis.recoverable import recoverable
from exporter.model.causes import Cause
from exporter.model.diagnosis import Diagnosis
from exporter.model.snapshot import Gpu, Rank, Share


def diagnosed(gpus: Sequence[Gpu], ranks: Sequence[Rank], now: float) -> tuple[Gpu, ...]:
    """Return the GPUs with what is known of the causes, at the Unix time `now`."""
    live = waits.live_ranks(ranks)
    beside = peers(gpus, ranks, live)
    found = []
    for gpu in gpus:
        shares = []
        for share in gpu.shares:
            place = gpu.device.uuid, share.gpu_instance
            here = live.get(place, ())
            evidence = share_evidence(gpu, share, here, now, beside.get(place, {}))
            causes = shown(evidence)
            unknown = () if causes else missing(evidence)
            diagnoses = tuple(_diagnosis(cause, evidence, share, here) for cause in causes)
            if diagnoses or unknown:
                share = replace(share, diagnoses=diagnoses, missing_evidence=unknown)
            shares.append(share)
        found.append(replace(gpu, shares=tuple(shares)))
    return tuple(found)


def _diagnosis(cause: Cause, evidence: Evidence, share: Share, ranks: Sequence[Rank]) -> Diagnosis:
    cost = recoverable(cause.costs, share, [rank for rank in ranks if rank.verified])
    return Diagnosis(
        cause=cause.slug,
        job=waits.job_of(ranks),
        evidence=numbers_of(cause, evidence),
        recoverable_lower_seconds=None if cost is None else cost.lower,
        recoverable_upper_seconds=None if cost is None else cost.upper,
    )

# SPDX-License-Identifier: Apache-2.0
"""Why a share is slow: its evidence, and the known causes that it shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from exporter.derive import waits
from exporter.derive.diagnosis.evidence import recoverable, share_evidence
from exporter.derive.diagnosis.peers import Evidence
from exporter.derive.diagnosis.peers import peers as compared
from exporter.model.causes import CAUSES
from exporter.model.reading import Place
from exporter.model.snapshot import Diagnosis, Gpu, Rank, Share
from roofline_job.causes import judged


def diagnosed(gpus: Sequence[Gpu], ranks: Sequence[Rank], now: float) -> tuple[Gpu, ...]:
    """Return the GPUs with the causes that the evidence shows at the Unix time `now`."""
    live = waits.live_ranks(ranks)
    beside = compared(gpus, ranks, live)
    found = []
    for gpu in gpus:
        places = [Place(gpu.device.uuid, share.gpu_instance) for share in gpu.shares]
        shares = tuple(
            _diagnosed(gpu, share, live.get(place, ()), now, beside.get(place, {}))
            for place, share in zip(places, gpu.shares, strict=True)
        )
        shows = any(share.diagnoses or share.missing_evidence for share in shares)
        found.append(replace(gpu, shares=shares) if shows else gpu)
    return tuple(found)


def _diagnosed(
    gpu: Gpu, share: Share, ranks: Sequence[Rank], now: float, beside: Evidence
) -> Share:
    evidence = share_evidence(gpu, share, ranks, now, beside)
    causes, missing = judged(evidence, CAUSES)
    if not causes and not missing:
        return share
    worst, verified = waits.worst_rank(ranks), [rank for rank in ranks if rank.verified]
    diagnoses = []
    for cause in causes:
        cost = recoverable(cause.costs, share, verified)
        diagnoses.append(
            Diagnosis(
                cause=cause.slug,
                job=None if worst is None else worst.job,
                evidence=cause.numbers(evidence),
                recoverable_lower_seconds=None if cost is None else cost.lower,
                recoverable_upper_seconds=None if cost is None else cost.upper,
            )
        )
    return replace(share, diagnoses=tuple(diagnoses), missing_evidence=tuple(missing))

# SPDX-License-Identifier: Apache-2.0
"""``why``: which known causes hold a GPU or a job back, the evidence, and what to change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from exporter.cli import config
from exporter.cli.command import STOPPED, Invocation
from exporter.errors import ConfigError, SourceError

if TYPE_CHECKING:
    from exporter.model.snapshot import Gpu, Share, Snapshot

NONE_SHOWN, NOT_KNOWN = 3, 4
"""Exit codes: no known cause is shown; evidence that would tell is missing."""
LOCAL_READINGS = 5
"""How often the GPUs are read without a daemon: means need some intervals."""


def add_options(parser: config.Parser) -> None:
    """Add the options of the command."""
    parser.own.add_argument(
        "name",
        nargs="?",
        metavar="GPU|JOB",
        help="One GPU (2, 2/1, or a UUID) or one training job. (default: all GPUs)",
    )
    parser.own.add_argument(
        "--json", action="store_true", help="Print the answer of the API at /api/v1/diagnosis."
    )


def run(invocation: Invocation) -> int:
    """Say why; return 0 if a cause is shown, 3 if none is, 4 if evidence is missing."""
    settings, name = invocation.settings(), invocation.options.name

    from exporter.cli.snapshot_reader import snapshot_reader
    from exporter.cli.terminal.screen import print_lines
    from exporter.web.api.convert import diagnosis_answer
    from exporter.web.api.models.json import json_text
    from exporter.web.facts import notice_of

    with ExitStack() as stack:
        reader, is_local = snapshot_reader(settings, stack, "why")
        replies = [reader() for _ in range(1 + LOCAL_READINGS * is_local)]
    snapshot, notices = replies[-1].snapshot, replies[-1].notices
    if not snapshot.gpus:
        raise SourceError(": ".join(filter(None, ("no GPU", snapshot.problem))))
    snapshot = snapshot if name is None else _only(snapshot, name)
    if invocation.options.json:
        print(json_text(diagnosis_answer(snapshot)))
    else:
        said = _said(snapshot, everything=name is not None)
        print_lines(filter(None, (*notices, notice_of(snapshot), *said)))
    shares = [share for gpu in snapshot.gpus if gpu.up for share in gpu.shares]
    if any(share.diagnoses for share in shares):
        return STOPPED
    return NOT_KNOWN if any(share.missing_evidence for share in shares) else NONE_SHOWN


def _only(snapshot: Snapshot, name: str) -> Snapshot:
    """Return the named part of a snapshot: a GPU, a share of it, or a training job."""
    from exporter.model.reading import share_names
    from exporter.web.wording.whose import display_names

    jobs = display_names({rank.job for rank in snapshot.ranks})

    def is_meant(gpu: Gpu, share: Share) -> bool:
        device, instance = gpu.device, share.gpu_instance
        place = device.uuid, instance
        here = {each.job for each in snapshot.ranks if (each.gpu_uuid, each.gpu_instance) == place}
        return name in share_names(device, instance) | here | {jobs[job] for job in here}

    kept = [
        replace(gpu, shares=shares)
        for gpu in snapshot.gpus
        if (shares := tuple(share for share in gpu.shares if is_meant(gpu, share)))
    ]
    if not kept:
        known = [str(gpu.device.index) for gpu in snapshot.gpus if gpu.up]
        expected = ", ".join((*known, *sorted(jobs.values())))
        raise ConfigError(f"why: expected a GPU or a training job ({expected}), got {name!r}")
    return replace(snapshot, gpus=tuple(kept))


def _said(snapshot: Snapshot, *, everything: bool) -> Iterator[str]:
    """Yield the diagnoses; GPUs without a cause are left out unless named."""
    from exporter.web.facts import lines_of
    from exporter.web.wording.diagnosis import address, not_known, sentences
    from exporter.web.wording.summary import headline
    from roofline_job.causes import shown

    quiet = 0
    for _, share, _, facts in lines_of(snapshot):
        if share is None:  # the board of a GPU with MIG on
            continue
        unknown = not_known(share.missing_evidence)
        if not (share.diagnoses or unknown or everything):
            quiet += 1
            continue
        yield headline([facts]).text
        for each in share.diagnoses:
            evidence = (f"{name} {shown(name, value)}" for name, value in each.evidence.items())
            yield f"  {sentences(each)}"
            yield f"  evidence: {', '.join(evidence)}"
            yield f"  {address(each.cause)}"
        if not share.diagnoses:
            yield f"  {unknown or 'no known cause shows'}"
    if quiet:
        yield f"{quiet} {'GPU shows' if quiet == 1 else 'GPUs show'} no known cause"

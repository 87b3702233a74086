# SPDX-License-Identifier: Apache-2.0
"""Why no GPU is shown: what was tried, and what a person can do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from exporter.model.snapshot import Snapshot
from exporter.web.wording.recorded import recording_ended

_COUNTERS = {
    "pci": "on the PCI bus",
    "driver": "known to the kernel driver",
    "nvml": "listed by the driver library (NVML)",
}
NO_GPU = (
    "Check that nvidia-smi lists the GPUs on this host; if it does not, install or load the "
    "NVIDIA driver.",
    "In a container: start it with --gpus all and NVIDIA_DRIVER_CAPABILITIES=utility; on "
    "Kubernetes with runtimeClassName: nvidia.",
    "If the driver library lies in an unusual place, name it: --nvml.library PATH (on WSL2 "
    "/usr/lib/wsl/lib/libnvidia-ml.so.1).",
    "To look around without a GPU, start the exporter with --demo.",
)
GPUS_DOWN = (
    "Look for the GPU's Xid in the kernel log (dmesg); a lost GPU usually needs a reset or a "
    "reboot.",
    "The exporter goes on by itself when the GPU answers again; nothing has to be restarted.",
)
RECORDING_ENDED = (
    "To play it again, restart the exporter; with --replay.loop it is played over and over.",
)


def problem_view(snapshot: Snapshot, tried: Sequence[str] = ()) -> dict[str, Any] | None:
    """Return what is wrong, what was tried and what to do; None if at least one GPU is up.

    `tried` says where GPUs were looked for; a recording that has ended looks for none.
    """
    what = snapshot.problem
    if what is None:
        return None
    what = " ".join(what.split())
    if recording_ended(what) is not None:
        return {"what": what, "tried": [], "do": list(RECORDING_ENDED)}
    counted = [
        f"{count} {_COUNTERS.get(where, where)}" for where, count in snapshot.devices.items()
    ]
    return {
        "what": what,
        "tried": [*tried, *([f"GPUs counted: {', '.join(counted)}"] if counted else [])],
        "do": list(GPUS_DOWN if snapshot.gpus else NO_GPU),
    }

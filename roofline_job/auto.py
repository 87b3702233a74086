# SPDX-License-Identifier: Apache-2.0
"""Automatic instrumentation: hooks PyTorch's modules when the job imports them.

Imported at the start of every Python of the job, like ``imports``; the rest of the client is
imported when the job imports torch.
"""

from __future__ import annotations

from . import summary
from .imports import after_import

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

HOOKED = {
    "torch.utils.data.dataloader": "loaders",
    "torchdata.stateful_dataloader.stateful_dataloader": "loader_details",
    "torch.optim.optimizer": "optimizers",
    "torch.amp.autocast_mode": "autocast",
    "torch.serialization": "checkpoints",
    "torch.distributed.checkpoint.state_dict_saver": "checkpoints",
    "safetensors.torch": "checkpoints",
}
"""Modules, and the reason to report, as in ``degraded``, where one cannot be hooked."""


def start() -> None:
    """Hook modules that are imported already now, and the others after their import."""
    after_import(dict.fromkeys(HOOKED, _hook), _missed)
    if summary.is_first():
        import atexit

        atexit.register(summary.write_nothing_measured)


def _hook(module: ModuleType) -> None:
    from . import torch_hooks

    torch_hooks.automatic(HOOKED[module.__name__], module)


def _missed(name: str) -> None:
    from .degraded import degrade

    degrade(HOOKED[name], f"{name} is imported in an unusual way")

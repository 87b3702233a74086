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
    "torch.utils.data.dataloader": "hook_loaders",
    "torch.optim.optimizer": "hook_optimizers",
    "torch.amp.autocast_mode": "hook_autocast",
    "torch.serialization": "hook_saving",
    "torch.distributed.checkpoint.state_dict_saver": "hook_saving",
    "safetensors.torch": "hook_saving",
}
"""Modules, and the function of ``torch_hooks`` that hooks each."""

LOST = {
    "hook_loaders": "loaders",
    "hook_optimizers": "optimizers",
    "hook_autocast": "autocast",
    "hook_saving": "checkpoints",
}
"""The reason to report, as in ``degraded``, where a hook cannot be set."""


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

    degrade(LOST[HOOKED[name]], f"{name} is imported in an unusual way")

# SPDX-License-Identifier: Apache-2.0
"""A job of PyTorch's next release: what the client needs has another name, or another form.

``python next_release.py CHANGE`` makes one change of ``CHANGES`` as modules are executed, in their
source or right after; without one nothing is changed, and the result is the same.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

LOADER, OPTIMIZER = "torch.utils.data.dataloader", "torch.optim.optimizer"

Change = Callable[[ModuleType], None]


def renamed(old: str, new: str, **names: Any) -> Change:
    """Execute the module with every occurrence of a text replaced, and with these names."""

    def execute(module: ModuleType) -> None:
        vars(module).update(names)
        source = Path(str(module.__file__)).read_text(encoding="utf-8")
        if old not in source:
            raise AssertionError(
                f"{module.__name__} has no {old} any more: the test is out of date"
            )
        exec(compile(source.replace(old, new), str(module.__file__), "exec"), vars(module))

    return execute


def after(function: Callable[[Any], None]) -> Change:
    """Change the module when it is executed."""

    def execute(module: ModuleType) -> None:
        renamed("import", "import")(module)
        function(module)

    return execute


def next_of_each_kind(module: Any) -> None:
    """Both kinds of iterator have a method of their own."""
    base = module._BaseDataLoaderIter
    for kind in base.__subclasses__():
        kind.__next__ = base.__next__
    del base.__next__


def closed_iterators(module: Any) -> None:
    """Iterators take no attributes that they do not know."""

    def refuse(self: Any, name: str, value: Any) -> None:
        if name.startswith("_roofline"):
            raise AttributeError(f"no attribute {name}")
        object.__setattr__(self, name, value)

    module._BaseDataLoaderIter.__setattr__ = refuse


class Fixed(type):
    """The kind of a class that cannot be changed, as of those written in C."""

    def __setattr__(cls, name: str, value: Any) -> None:
        raise TypeError(f"cannot set {name!r} of immutable type {cls.__name__!r}")


def hook_of_two(module: Any) -> None:
    """The registration wants more than it did."""
    before = module.register_optimizer_step_post_hook
    module.register_optimizer_step_post_hook = lambda hook, kind: before(hook)


def hook_of_one(module: Any) -> None:
    """The hook is called with less than it was."""
    before = module.register_optimizer_step_post_hook
    module.register_optimizer_step_post_hook = lambda hook: before(
        lambda optimizer, *_: hook(optimizer)
    )


# By name: the reason in the report, none where nothing is lost, and the modules that change.
CHANGES: dict[str, tuple[str, dict[str, Change]]] = {
    "iterator_class": ("loaders", {LOADER: renamed("_BaseDataLoaderIter", "_BaseIterator")}),
    "iterator_next": ("loaders", {LOADER: after(next_of_each_kind)}),
    "iterators_are_closed": ("loaders", {LOADER: after(closed_iterators)}),
    "iterator_class_is_fixed": (
        "loaders",
        {
            LOADER: renamed(
                "class _BaseDataLoaderIter:",
                "class _BaseDataLoaderIter(metaclass=Fixed):",
                Fixed=Fixed,
            )
        },
    ),
    "task_info": ("loader_details", {LOADER: renamed("_task_info", "_tasks_known")}),
    "data_queue": ("loader_details", {LOADER: renamed("_data_queue", "_batches")}),
    "tasks_outstanding": ("loader_details", {LOADER: renamed("_tasks_outstanding", "_under_way")}),
    "step_hook": (
        "optimizers",
        {
            OPTIMIZER: renamed("register_optimizer_step_post_hook", "register_step_hook"),
            "torch.profiler": renamed(
                "Optimizer, register_optimizer_step_post_hook",
                "Optimizer, register_step_hook as register_optimizer_step_post_hook",
            ),
        },
    ),
    "step_hook_of_two": ("optimizers", {OPTIMIZER: after(hook_of_two)}),
    "step_hook_of_one": ("", {OPTIMIZER: after(hook_of_one)}),
    "autocast_enabled": (
        "autocast",
        {"torch.amp.autocast_mode": renamed("self._enabled", "self._is_on")},
    ),
    "autocast_dtype": ("autocast", {"torch.amp.autocast_mode": renamed("fast_dtype", "low_dtype")}),
    "save": (
        "checkpoints",
        {
            "torch.serialization": renamed("\ndef save(", "\ndef store("),
            "torch": renamed("import load, save", "import load, store as save"),
        },
    ),
    "save_file": ("checkpoints", {"safetensors.torch": renamed("save_file", "write_file")}),
}


def change(name: str) -> None:
    """Put a change in the way of the modules that it is for."""
    execute = SourceFileLoader.exec_module
    changes = CHANGES[name][1]

    def exec_module(self: SourceFileLoader, module: ModuleType) -> None:
        (changes.pop(module.__name__, None) or (lambda module: execute(self, module)))(module)

    setattr(SourceFileLoader, "exec_module", exec_module)  # noqa: B010


def main() -> None:
    import safetensors.torch
    import torch
    from torch.utils.data import DataLoader

    from tests.training.differential.own import Own, Pairs

    own = Own()
    for batch in DataLoader(Pairs(40), 4, num_workers=1):
        own.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = own.model(batch[0])
        torch.nn.functional.mse_loss(output.float(), batch[1]).backward()
        own.step()
    torch.save(own.model.state_dict(), "model.pt")
    write = getattr(safetensors.torch, "save_file", None) or safetensors.torch.write_file
    write(own.model.state_dict(), "model.safetensors")
    reason = CHANGES[sys.argv[1]][0] if sys.argv[1:] else None
    expected: dict[str, Any] = {"degraded": [reason]} if reason else {}
    own.batches = None if reason == "loaders" else 10
    own.samples = None if reason == "loaders" else 40
    if reason == "loaders":
        expected["phases"] = ["checkpoint"]
    own.expect(clock=False, **expected)


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    if sys.argv[1:]:
        change(sys.argv[1])
    main()

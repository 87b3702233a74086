# SPDX-License-Identifier: Apache-2.0
"""Reads objects of the job without running its code, which may count or change with each call.

Imported at the start of every Python of the job, like ``imports``.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from typing import Any

DEEPEST, WIDEST = 4, 8
"""Levels of containers, and items of each, in which the tensors of a batch are looked for."""
PLAIN = frozenset({dict, list, tuple, str, bytes, int, float, bool, type(None)})
_DICTS = (
    ("transformers.tokenization_utils_base", "BatchEncoding"),
    ("transformers.feature_extraction_utils", "BatchFeature"),
)
"""Classes that only hold a dictionary."""


def attribute(owner: object, name: str) -> Any:
    """Return an object's own attribute, or None; call no property and no ``__getattr__``, and load
    no lazy module."""
    try:
        return required_attribute(owner, name)
    except (AttributeError, KeyError):
        return None


def required_attribute(owner: object, name: str) -> Any:
    """Return an object's own attribute; raise KeyError if there is none."""
    return dict.__getitem__(object.__getattribute__(owner, "__dict__"), name)


def shapes(batch: Any, depth: int = 0) -> Iterator[tuple[int, ...]]:
    """Yield the shapes of the tensors and arrays in a batch.

    Only exact types are looked into: a container or a tensor of another class may run the job's
    own code when it is asked.
    """
    kind = type(batch)
    if kind is _found("torch", "Tensor"):
        with without_torch_function():
            shape = None if getattr(batch, "is_nested", False) else tuple(map(int, batch.shape))
        if shape is not None:
            yield shape
    elif kind is _found("numpy", "ndarray"):
        yield batch.shape
    elif any(kind is _found(*name) for name in _DICTS):
        yield from shapes(attribute(batch, "data"), depth)
    elif depth < DEEPEST and kind in (dict, list, tuple):
        items = batch.values() if kind is dict else batch
        for _, item in zip(range(WIDEST), items, strict=False):
            yield from shapes(item, depth + 1)


def without_torch_function() -> AbstractContextManager[None]:
    """Access tensors without calling the job's ``__torch_function__``, of classes and modes."""
    context: AbstractContextManager[None] = attribute(
        _found("torch", "_C"), "DisableTorchFunction"
    )()
    return context


def _found(module: str, name: str) -> Any:
    return attribute(sys.modules.get(module), name)

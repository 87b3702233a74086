# SPDX-License-Identifier: Apache-2.0
"""Which GPU model a name means."""

from __future__ import annotations

import re

from exporter.cli import config
from exporter.errors import ConfigError
from exporter.specs import GpuModel, SpecBook
from exporter.specs.book import bare_name

MOST_CANDIDATES = 8


def find(book: SpecBook, name: str) -> GpuModel:
    """Return the GPU model of this key or NVML name, or the only one that it is a part of.

    Case, spaces and dashes do not matter in a part. Raises ConfigError, in one line that names
    those that may be meant, if no GPU model or more than one has it: some laptop GPUs have the name
    of a desktop one.
    """
    if name in book.models:
        return book.models[name]
    bare = bare_name(name)
    part = _letters(name)
    found = [
        model
        for model in book.models.values()
        if any(bare_name(each) == bare for each in model.names)
    ]
    if not found and part:
        found = [
            model
            for key, model in book.models.items()
            if any(part in _letters(text) for text in (key, model.product, *model.names))
        ]
    if len(found) == 1:
        return found[0]
    what = f"specs: {config.shown(name)}"
    if not found:
        nearest = config.did_you_mean(name.lower(), book.models)
        raise ConfigError(f"{what}: no GPU model has this key or name{nearest}")
    keys = [model.key for model in found[:MOST_CANDIDATES]]
    more = len(found) - len(keys)
    others = f" or {more} more" if more else ""
    raise ConfigError(f"{what}: expected one GPU model, may be {', '.join(keys)}{others}")


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", text.lower())

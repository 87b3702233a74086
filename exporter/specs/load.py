# SPDX-License-Identifier: Apache-2.0
"""Loads the bundled GPU models, and the user's file, which overrides them."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

from exporter.specs.book import SpecBook, bare_name
from exporter.specs.gpu_model import GpuModel

BUNDLED = Path(__file__).with_name("gpus.json")
"""Made from ``gpus.yaml`` by `tests.specs.bundle`."""


def load_specs(override: Path | None = None) -> SpecBook:
    """Return the GPU models of the bundled file, with those of `override` added or in their place.

    An entry of `override` replaces the bundled one of the same key whole. Names and PCI ids that
    the replaced entry did not have are taken from all other GPU models. Raises ConfigErrors.
    """
    bundled = _bundled()
    if override is None:
        return bundled
    models = bundled.models
    from exporter.specs.spec_file import read_spec_file  # loaded only where there is a file

    own = read_spec_file(override)
    own_models = own.models
    taken_names = {
        bare_name(name)
        for key, model in own_models.items()
        for name in model.names
        if key not in models or name not in models[key].names
    }
    taken = {
        pci_id
        for key, model in own_models.items()
        for pci_id in model.pci_ids
        if key not in models or pci_id not in models[key].pci_ids
    }
    others = {
        key: replace(
            model,
            names=[name for name in model.names if bare_name(name) not in taken_names],
            pci_id_texts=[each for each in model.pci_id_texts if int(each, 16) not in taken],
        )
        for key, model in models.items()
    }
    return SpecBook({**others, **own_models}, {**bundled.sources, **own.sources})


@cache
def _bundled() -> SpecBook:
    read = json.loads(BUNDLED.read_text(encoding="utf-8"))
    models = {key: GpuModel(key=key, **entry) for key, entry in read["products"].items()}
    return SpecBook(models, read["sources"])

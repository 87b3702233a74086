# SPDX-License-Identifier: Apache-2.0
"""Writes the bundled GPU models as the daemon loads them, from the spec file.

``python -m tests.specs.bundle exporter/specs/gpus.json``, or ``make docs``: JSON in base units,
checked here, so that the daemon needs a tenth of the time and neither YAML nor pydantic.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from exporter.specs.load import BUNDLED
from exporter.specs.spec_file import read_spec_file

SPEC_FILE = BUNDLED.with_suffix(".yaml")


def bundle() -> str:
    """Return the GPU models as JSON with one on each line; what is not known is left out."""
    book = read_spec_file(SPEC_FILE)
    rows = []
    for key, model in book.models.items():
        entry = {name: value for name, value in asdict(model).items() if value and name != "key"}
        rows.append(f"{json.dumps(key)}: {json.dumps(entry, ensure_ascii=False)}")
    sources = json.dumps(book.sources, ensure_ascii=False, indent=0)
    return f'{{"sources": {sources},\n"products": {{\n' + ",\n".join(rows) + "\n}}\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(bundle(), encoding="utf-8")

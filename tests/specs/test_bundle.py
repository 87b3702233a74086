# SPDX-License-Identifier: Apache-2.0
"""The GPU models as the daemon loads them."""

from __future__ import annotations

from exporter.specs import load_specs
from exporter.specs.load import BUNDLED
from exporter.specs.spec_file import read_spec_file
from tests.specs.bundle import SPEC_FILE, bundle


def test_they_are_those_of_the_spec_file() -> None:
    """`make docs` writes them; nothing is lost on the way."""
    assert BUNDLED.read_text(encoding="utf-8") == bundle()
    loaded, read = load_specs(), read_spec_file(SPEC_FILE)
    assert loaded.models == read.models
    assert list(loaded.models) == list(read.models)
    assert loaded.sources == read.sources

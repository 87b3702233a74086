# SPDX-License-Identifier: Apache-2.0
"""The live view to the letter, of every example node."""

from __future__ import annotations

from typing import Any

import pytest

from exporter.web.live.view import node_view
from tests.snapshots import EXAMPLES
from tests.web.golden import check_json


@pytest.mark.usefixtures("installed_by_pip")
def test_golden() -> None:
    """Each row with its numbers and words, the roofs, and the sentences about the node."""
    views: dict[str, Any] = {
        name: node_view(snapshot, sequence=7, interval_seconds=1.0)
        for name, snapshot in EXAMPLES.items()
    }
    check_json(views, "views.json")

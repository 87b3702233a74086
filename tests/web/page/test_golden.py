# SPDX-License-Identifier: Apache-2.0
"""The live view and the pages to the letter, as scripts and a browser without them get them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from exporter import __version__
from exporter.web.live.view import node_view
from tests import snapshots
from tests.web.conftest import Daemon
from tests.web.golden import check_json, check_text

PAGES = {
    "node": "/",
    "gpu": "/gpu/0",
    "estimate": "/gpu/1",
    "divided": "/gpu/2",
    "instance": "/gpu/2?instance=1",
    "lost": "/gpu/3",
}


@pytest.mark.usefixtures("installed_by_pip")
@pytest.mark.parametrize("name", PAGES)
def test_golden(daemon: Daemon, name: str) -> None:
    """Rows, sentences, charts as tables, facts, and the data that scripts start from."""
    for second in range(70):
        now = snapshots.NOW + second
        daemon.store.publish(replace(snapshots.EXAMPLES["mixed"], timestamp_seconds=now))
    text = daemon.client.get(PAGES[name]).text.replace(__version__, "VERSION")
    check_text(re.sub(r"/static/[0-9a-f]+/", "/static/DIGEST/", text), f"page-{name}.html")


@pytest.mark.usefixtures("installed_by_pip")
def test_golden_views() -> None:
    """Of every example node: rows with numbers and words, the roofs, the sentences about it."""
    views: dict[str, Any] = {
        name: node_view(snapshot, sequence=7, interval_seconds=1.0)
        for name, snapshot in snapshots.EXAMPLES.items()
    }
    check_json(views, "views.json")

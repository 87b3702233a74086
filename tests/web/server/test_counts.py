# SPDX-License-Identifier: Apache-2.0
"""What is refused and ended is counted under the reasons that the metrics list."""

from __future__ import annotations

import pytest

from exporter.model.daemon import CONNECTION_REFUSALS, REQUEST_ABORTS, REQUEST_REFUSALS
from exporter.web.server.counts import Counts


def test_counts() -> None:
    """Every reason is there from the start; what was read stays as it was."""
    counts = Counts(lambda: 3, lambda: False)
    before = counts.read()
    counts.refuse_connection("limit")
    counts.refuse_request("host")
    counts.refuse_request("host")
    counts.abort("room")
    after = counts.read()

    assert before.connections_refused_total == dict.fromkeys(CONNECTION_REFUSALS, 0)
    assert before.requests_refused_total == dict.fromkeys(REQUEST_REFUSALS, 0)
    assert before.requests_aborted_total == dict.fromkeys(REQUEST_ABORTS, 0)
    assert after.connections_refused_total["limit"] == 1
    assert after.requests_refused_total["host"] == 2
    assert after.requests_aborted_total["room"] == 1
    assert (after.log_lines_dropped_total, after.web_config_ok) == (3, False)
    assert (Counts().read().log_lines_dropped_total, Counts().read().web_config_ok) == (0, None)


def test_only_reasons_that_are_listed() -> None:
    """Or a metric would have a label that nothing explains."""
    for count in (Counts().refuse_connection, Counts().refuse_request, Counts().abort):
        with pytest.raises(KeyError):
            count("whim")

# SPDX-License-Identifier: Apache-2.0
"""Scrapers get the format that they ask for, and label values survive every format."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from exporter.exposition.formats import Format, escaped, labels_text, negotiate

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
PROMETHEUS_2_42 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
TEXT = "text/plain; version=0.0.4; charset=utf-8"
TEXT_1 = "text/plain; version=1.0.0; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

ACCEPTS: list[tuple[str, Format, str]] = [
    ("", "text-0.0.4", TEXT),
    ("text/html,application/xhtml+xml,*/*;q=0.8", "text-0.0.4", TEXT),
    ("text/plain;version=0.0.4", "text-0.0.4", TEXT),
    ("application/json", "text-0.0.4", TEXT),
    ("text/plain;version=1.0.0", "text-1.0.0", f"{TEXT_1}; escaping=underscores"),
    ("application/openmetrics-text", "openmetrics-1.0.0", OPENMETRICS),
    ("application/openmetrics-text; version=0.0.1", "text-0.0.4", TEXT),
    (PROMETHEUS, "openmetrics-1.0.0", f"{OPENMETRICS}; escaping=allow-utf-8"),
    (PROMETHEUS_2_42, "openmetrics-1.0.0", f"{OPENMETRICS}; escaping=underscores"),
]


@pytest.mark.parametrize(("accept", "form", "content_type"), ACCEPTS)
def test_negotiation(accept: str, form: Format, content_type: str) -> None:
    """The format and the Content-Type are those of client_python."""
    assert negotiate(accept) == (form, content_type)
    assert choose_encoder(accept)[1] == content_type


@pytest.mark.parametrize("kind", ["text/plain", "application/openmetrics-text"])
@pytest.mark.parametrize("escaping", ["allow-utf-8", "underscores", "values"])
def test_the_escaping_is_that_of_the_client_library(kind: str, escaping: str) -> None:
    accept = f"{kind};version=1.0.0;escaping={escaping}"
    assert negotiate(accept)[1] == choose_encoder(accept)[1]


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("application/openmetrics-text;version=2.0.0", f"{OPENMETRICS}; escaping=underscores"),
        ("text/plain;version=1.0.0;escaping=dots", f"{TEXT_1}; escaping=underscores"),
        ("text/plain;version=1.x", TEXT),
        ("application/openmetrics-text;version=x", TEXT),
    ],
)
def test_what_we_cannot_write_is_not_claimed(accept: str, content_type: str) -> None:
    """A newer version, names with dots, a version that is no number: we answer with what we do."""
    assert negotiate(accept)[1] == content_type


@given(st.text())
def test_negotiation_never_fails(accept: str) -> None:
    """Any header gets one of the three formats."""
    assert negotiate(accept)[0] in ("text-0.0.4", "text-1.0.0", "openmetrics-1.0.0")


@given(st.text(alphabet=st.characters(exclude_characters="\0", codec="utf-8")))
@example('a\\nb\n"c"\\')
@example("\\")
@example("\r\u2028\x85 end")
def test_label_values_round_trip(value: str) -> None:
    """Both parsers of client_python read back any label value."""
    line = f"gpu_x{{{labels_text([('a', value), ('b', 'z')])}}} 1\n"
    for parse, end in ((parse_text, ""), (parse_openmetrics, "# EOF\n")):
        [metric] = list(parse(f"# HELP gpu_x x\n# TYPE gpu_x gauge\n{line}{end}"))
        [sample] = metric.samples
        assert sample.labels == {"a": value, "b": "z"}


def test_what_utf8_cannot_hold_is_replaced() -> None:
    """Lone surrogates (names that are not UTF-8) and NUL never reach the page."""
    assert escaped("a\udc80b") == "a?b"
    assert escaped("a\0b") == "a\N{REPLACEMENT CHARACTER}b"

# SPDX-License-Identifier: Apache-2.0
"""Clients are let in by the names in their certificate."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.web.access.config import normal
from exporter.web.access.tls import allowed

CERTIFICATE: dict[str, Any] = {
    "subject": ((("commonName", "common.example"),),),
    "subjectAltName": (
        ("DNS", "scraper.example"),
        ("email", "ops@example.org"),
        ("URI", "spiffe://example.org/scraper"),
        ("IP Address", "10.0.0.7"),
        ("IP Address", "2001:DB8:0:0:0:0:0:1"),
        ("othername", "<unsupported>"),
    ),
}


@pytest.mark.parametrize(
    "name",
    [
        "scraper.example",
        "ops@example.org",
        "spiffe://example.org/scraper",
        "10.0.0.7",
        "::ffff:10.0.0.7",
        "2001:db8::1",
        "2001:DB8:0::0:1",
    ],
)
def test_one_name_is_enough(name: str) -> None:
    """Of any kind; addresses however they are written."""
    assert allowed(CERTIFICATE, {normal("nobody"), normal(name)})


@pytest.mark.parametrize(
    "name",
    ["common.example", "example", "SCRAPER.example", "*.example", "10.0.0.8", "<unsupported>", ""],
)
def test_other_names_are_not(name: str) -> None:
    """Neither the subject nor what is only similar."""
    assert not allowed(CERTIFICATE, {normal(name)})


@pytest.mark.parametrize("certificate", [None, {}, {"subjectAltName": ()}])
def test_who_has_no_name_is_not_let_in(certificate: dict[str, Any] | None) -> None:
    """Unless no name is asked for."""
    assert not allowed(certificate, {"scraper.example"})
    assert allowed(certificate, frozenset())


ANYTHING = st.recursive(
    st.none() | st.integers() | st.text() | st.binary(),
    lambda below: st.lists(below) | st.tuples(below, below) | st.dictionaries(st.text(), below),
    max_leaves=8,
)


@given(ANYTHING | st.builds(lambda names: {"subjectAltName": names}, ANYTHING))
def test_whatever_a_certificate_holds_is_no_name(certificate: Any) -> None:
    """What comes from the other end of a connection never raises."""
    assert not allowed(certificate, {"scraper.example"})

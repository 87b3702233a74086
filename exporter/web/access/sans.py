# SPDX-License-Identifier: Apache-2.0
"""Which clients may connect, by the names in their certificate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from ipaddress import IPv6Address, ip_address
from typing import Any

_KINDS = frozenset({"DNS", "email", "URI", "IP Address"})


def allowed(certificate: Mapping[str, Any] | None, allowed_sans: Set[str]) -> bool:
    """Return whether a certificate has one of the names, exactly; without names, everybody may.

    Args:
        certificate: what ``getpeercert()`` of a verified connection returned; None or an empty
            mapping without a certificate.
        allowed_sans: DNS names, e-mail addresses, URIs, and addresses as `normal` writes them.
    """
    if not allowed_sans:
        return True
    return not allowed_sans.isdisjoint(_names(certificate))


def normal(name: str) -> str:
    """Return an IP address in its one short form, and any other name as it is."""
    try:
        address = ip_address(name.strip())
    except ValueError:
        return name
    if isinstance(address, IPv6Address):
        return str(address.ipv4_mapped or address)
    return str(address)


def _names(certificate: object) -> Iterator[str]:
    names = certificate.get("subjectAltName") if isinstance(certificate, Mapping) else None
    for entry in names if isinstance(names, tuple | list) else ():
        if isinstance(entry, tuple | list) and len(entry) == 2:
            kind, name = entry
            if isinstance(kind, str) and isinstance(name, str) and kind in _KINDS:
                yield normal(name) if kind == "IP Address" else name

# SPDX-License-Identifier: Apache-2.0
"""The exposition formats: which one a scraper gets, and what differs between them.

Sample lines are the same in all three; only the headings above them and the end differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

from prometheus_client.exposition import (
    CONTENT_TYPE_PLAIN_0_0_4,
    CONTENT_TYPE_PLAIN_1_0_0,
    choose_encoder,
)
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as OPENMETRICS_1_0_0

Format = Literal["text-0.0.4", "text-1.0.0", "openmetrics-1.0.0"]

END: dict[Format, str] = {"text-0.0.4": "", "text-1.0.0": "", "openmetrics-1.0.0": "# EOF\n"}

_CONTENT_TYPE: dict[Format, str] = {
    "text-0.0.4": CONTENT_TYPE_PLAIN_0_0_4,
    "text-1.0.0": CONTENT_TYPE_PLAIN_1_0_0,
    "openmetrics-1.0.0": OPENMETRICS_1_0_0,
}

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\"", "\0": "\N{REPLACEMENT CHARACTER}"})


def escaped(value: str) -> str:
    """Return an escaped label value; lone surrogates become ``?``."""
    if value.isalnum() and value.isascii():
        return value
    return value.encode("utf-8", "replace").decode("utf-8").translate(_ESCAPES)


def labels_text(pairs: Iterable[tuple[str, str]]) -> str:
    """Return the label pairs between the braces of a sample."""
    return ",".join([f'{name}="{escaped(value)}"' for name, value in pairs])


def headings(name: str, base_name: str, kind: str, unit: str, text: str) -> dict[Format, str]:
    """Return the comment lines above the samples of a family, in every format.

    `base_name` is `name` without ``_total`` or ``_info``. The `text` of the HELP line has no
    quotes, backslashes or line ends.
    """
    plain = f"# HELP {name} {text}\n# TYPE {name} {'gauge' if kind == 'info' else kind}\n"
    openmetrics = f"# HELP {base_name} {text}\n# TYPE {base_name} {kind}\n"
    if unit:
        openmetrics += f"# UNIT {base_name} {unit}\n"
    return {"text-0.0.4": plain, "text-1.0.0": plain, "openmetrics-1.0.0": openmetrics}


LONGEST_KEPT = 1024
"""Longer Accept headers, in characters, are not cached."""


def negotiate(accept: str) -> tuple[Format, str]:
    """Return the format for an Accept header, and the Content-Type to answer with.

    The choice is client_python's. All names here are legal without escaping, so every escaping
    scheme leaves them as they are, except ``dots``, which is answered with ``underscores``.
    """
    return (_negotiated.__wrapped__ if len(accept) > LONGEST_KEPT else _negotiated)(accept)


@lru_cache(maxsize=64)
def _negotiated(accept: str) -> tuple[Format, str]:
    try:
        chosen = choose_encoder(accept)[1]
    except TypeError:  # a version that is not a number
        chosen = CONTENT_TYPE_PLAIN_0_0_4
    form: Format = "text-0.0.4"
    if chosen.startswith("application/openmetrics-text"):
        form = "openmetrics-1.0.0"
    elif "version=1.0.0" in chosen:
        form = "text-1.0.0"
    scheme = chosen.partition("escaping=")[2]
    if not scheme:
        return form, _CONTENT_TYPE[form]
    return form, f"{_CONTENT_TYPE[form]}; escaping={'underscores' if scheme == 'dots' else scheme}"

# SPDX-License-Identifier: Apache-2.0
"""Reads prices.yml, and makes of it what the rules have in place of <prices.…>."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from deploy.prometheus.thresholds import HERE, BadThresholds, Value, amount
from exporter.errors import ConfigError, limited, one_line
from exporter.yaml_lines import Document
from exporter.yaml_lines import load as load_yaml

PRICES = HERE / "prices.yml"
NONE = "vector(0) < 0"
"""An expression without any series: where there are no prices, nothing has a cost."""
_CURRENCY = re.compile(r"[A-Za-z]{1,12}")
_NAME = re.compile(r"[^\"'\\<>{}\n]{1,120}")


def load(path: Path = PRICES) -> dict[str, Value]:
    """Return the currency, and the expression of the prices by model, by `prices.…`.

    Raises:
        BadThresholds: the file has something else; a line for each mistake, with file and line.
    """
    try:
        document = load_yaml(path)
    except ConfigError as error:
        raise BadThresholds(str(error)) from None
    value = document.value
    if not isinstance(value, dict) or value.keys() != {"currency", "per_gpu_hour"}:
        raise BadThresholds(f"{document.where(())}: expected the keys currency and per_gpu_hour")
    currency, per_hour = value["currency"], value["per_gpu_hour"] or {}
    problems = list(_problems(document, currency, per_hour))
    if problems:
        raise BadThresholds("\n".join(limited([one_line(each) for each in problems])))
    lines = (
        f'label_replace(vector({price:.10g}), "name", "{name}", "", "")'
        for name, price in per_hour.items()
    )
    joined = "\n          or\n          ".join(lines)
    return {"prices.currency": str(currency), "prices.by_model": joined or NONE}


def _problems(
    document: Document, currency: object, per_hour: Mapping[str, object]
) -> Iterator[str]:
    if not _CURRENCY.fullmatch(str(currency)):
        where = document.where(("currency",))
        yield f"{where}: currency: expected a word such as EUR, not {currency!r}"
    if not isinstance(per_hour, dict):
        yield f"{document.where(('per_gpu_hour',))}: per_gpu_hour: expected prices by GPU model"
        return
    for name, price in per_hour.items():
        where = document.where(("per_gpu_hour", name))
        if not _NAME.fullmatch(name):
            yield f"{where}: {name!r}: expected the name of a GPU model, as gpu_info has it"
        if isinstance(price, bool) or not isinstance(price, (int, float)):
            yield f"{where}: {name}: expected a price, 0 or more, not {price!r}"
            continue
        try:
            amount("a price, 0 or more", lambda number: number >= 0)(price)
        except BadThresholds as error:
            yield f"{where}: {name}: {error}"

# SPDX-License-Identifier: Apache-2.0
"""A hostengine that does what a test sets, for children that load the fake bindings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

BINDINGS = Path(__file__).parent / "fake_bindings"
ALL = [*range(1001, 1017)]
FULL = {
    **{str(number): (number - 1000) / 100 for number in ALL},
    **{str(number): number * 1000 for number in range(1009, 1013)},
}
"""A value of each field, by its number: ratios, and bytes per second."""


class Engine:
    """Has one GPU, GPU-a, whose number is 4; what is set holds from the next call on."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "script.json"
        self._calls = folder / "calls"
        self._script: dict[str, Any] = {
            "calls": str(self._calls),
            "gpus": {"4": gpu("GPU-a")},
            "values": {"1:4": FULL},
        }
        self.set()

    def set(self, **changes: Any) -> None:
        self._script.update(changes)
        fresh = self.file.with_suffix(".new")
        fresh.write_text(json.dumps(self._script), encoding="utf-8")
        fresh.replace(self.file)

    @property
    def calls(self) -> list[str]:
        return self._calls.read_text(encoding="utf-8").splitlines()

    @property
    def watched(self) -> list[str]:
        """The lists of fields that a watch was asked for."""
        prefix = "dcgmFieldGroupCreate "
        return [call.removeprefix(prefix) for call in self.calls if call.startswith(prefix)]


def gpu(uuid: str, groups: list[Any] | None = None) -> dict[str, Any]:
    """One that can count all fields at once, or such groups of them."""
    return {"uuid": uuid, "groups": [[0, ALL]] if groups is None else groups}

# SPDX-License-Identifier: Apache-2.0
"""The flag table as Markdown, for docs/configuration.md.

``python -m tests.cli.config.table docs/configuration.md`` writes it between the markers.
"""

from __future__ import annotations

import sys
from pathlib import Path

from exporter.cli.config.flags import FLAGS, Flag

BEGIN = "<!-- flags: generated from exporter/cli/config/flags.py by `make docs` -->"
END = "<!-- /flags -->"

_HEAD = ("| Flag | Variable | Default | Expected | SIGHUP | Meaning |", "|---|---|---|---|---|---|")


def markdown() -> str:
    """Return the table, one row for each flag, with its head."""
    return "\n".join((*_HEAD, *map(_row, FLAGS)))


def updated(document: str) -> str:
    """Return the document with the table between its markers made anew."""
    before, _, rest = document.partition(f"{BEGIN}\n")
    _, _, after = rest.partition(f"\n{END}")
    return f"{before}{BEGIN}\n{markdown()}\n{END}{after}"


def _row(flag: Flag) -> str:
    name = f"`{flag.option}`, `--no-{flag.name}`" if flag.is_switch else f"`{flag.option}`"
    default = f"`{flag.default}`" if flag.default else "unset"
    cells = (
        name,
        f"`{flag.variable}`",
        default.replace(",", ", "),
        flag.kind.expected,
        "yes" if flag.reloadable else "restart",
        flag.help,
    )
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(updated(path.read_text(encoding="utf-8")), encoding="utf-8")

# SPDX-License-Identifier: Apache-2.0
"""Writes every dashboard in its two flavours: provisioned, and for import from grafana.com."""

from __future__ import annotations

from dashboards.write import write

if __name__ == "__main__":
    write()

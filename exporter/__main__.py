# SPDX-License-Identifier: Apache-2.0
"""Runs the command line as ``python -m exporter``."""

from __future__ import annotations

import sys

from exporter.cli.main import main

sys.exit(main())

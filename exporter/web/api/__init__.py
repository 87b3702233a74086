# SPDX-License-Identifier: Apache-2.0
"""The JSON API below ``/api/``.

The types of its JSON (models), how they are made from a snapshot (convert), the application that
answers (app), and the history, which needs no framework.
"""

SCHEMA_VERSION = 1
"""Of every answer; it counts up when one changes so that an old reader would fail."""

# SPDX-License-Identifier: Apache-2.0
"""The JSON API below ``/api/``.

The types of its JSON (models), how they are made from a snapshot (convert), and the routes, those
of the history apart.
"""

SCHEMA_VERSION = 1
"""Of every answer; it counts up when one changes so that an old reader would fail."""

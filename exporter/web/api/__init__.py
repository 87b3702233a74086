# SPDX-License-Identifier: Apache-2.0
"""What is answered below ``/api/``.

The types of its JSON (models), what of a snapshot goes where (convert, training), the application
that answers and describes itself (app, described), and the history, which needs no framework.
"""

SCHEMA_VERSION = 1
"""Of every answer; it counts up when one changes so that an old reader would fail."""

# SPDX-License-Identifier: Apache-2.0
"""The fake driver's GPU, for tests that derive from what is read of it."""

from __future__ import annotations

from tests.sources.conftest import _open_gpu  # noqa: F401 (the fixture open_gpu)

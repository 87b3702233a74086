# SPDX-License-Identifier: Apache-2.0
"""GPUs of the fake driver library, for tests that publish what is read of them."""

from __future__ import annotations

from tests.sources.conftest import _only_gpm, _open_gpu, pid_namespace  # noqa: F401 (fixtures)

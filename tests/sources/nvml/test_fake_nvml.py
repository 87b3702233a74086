# SPDX-License-Identifier: Apache-2.0
"""The fake NVML library is clean C."""

from __future__ import annotations

from tests.fake_nvml import build


def test_compiles_without_warnings() -> None:
    """Under -Wall -Wextra -Werror."""
    assert build(extra_flags=("-Werror",)).exists()

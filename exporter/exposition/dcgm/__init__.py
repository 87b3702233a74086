# SPDX-License-Identifier: Apache-2.0
"""The readings of this node under the names, labels and units of dcgm-exporter, in two generations.

`fields` has one row per metric. May import exposition and model.
"""

from typing import Literal, get_args

Names = Literal["legacy", "current"]
"""Up to dcgm-exporter 4.8, and from 4.9 on."""
NAMES: tuple[str, ...] = get_args(Names)

# SPDX-License-Identifier: Apache-2.0
"""The client inside a training job: what it waits for, and when its GPU is idle.

    from roofline_job import phase, watch

    for batch in watch(loader, job="resnet"):
        ...
        with phase("checkpoint"):
            ...

There is one client in a process. `roofline-exporter run` loads this package by its path under a
name of its own, so that it hides no module of the job's; an import by the usual name then gives
what is loaded already.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

_ONE = "_roofline_job"

if TYPE_CHECKING or sys.modules.setdefault(_ONE, sys.modules[__name__]) is sys.modules[__name__]:
    from .phases import phase, step
    from .watching import watch
else:
    phase = sys.modules[_ONE].phase
    step = sys.modules[_ONE].step
    watch = sys.modules[_ONE].watch

__all__ = ["phase", "step", "watch"]

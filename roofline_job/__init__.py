# SPDX-License-Identifier: Apache-2.0
"""The client inside a training job: what it waits for, and when its GPU is idle.

    from roofline_job import phase, watch

    for batch in watch(loader, job="resnet"):
        ...
        with phase("checkpoint"):
            ...

Nothing but the standard library is needed, and nothing of that is loaded with the package itself:
in a job that ``roofline-exporter run`` started, that happens before the job's own path is known.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .phases import phase as phase
    from .phases import step as step
    from .watching import watch as watch

__all__ = ["phase", "step", "watch"]


def __getattr__(name: str) -> object:
    """Import a name on first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "watch":
        from .watching import watch

        return watch
    from . import phases

    return getattr(phases, name)

# SPDX-License-Identifier: Apache-2.0
"""Two sources of the driver's library: NVML's readings of one GPU, and its GPM counters.

Every call may be refused, missing or answered wrongly; what cannot be true is left out. All readers
raise DeviceGone if the driver says that the GPU is lost, and LibraryUnavailable if it says that the
library must be initialised again.
"""

NVML, GPM = "nvml", "gpm"
"""The names of the two sources in flags, metrics and logs."""

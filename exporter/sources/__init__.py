# SPDX-License-Identifier: Apache-2.0
"""Where readings come from: device sources run inside a GPU's worker, in the order listed here."""

DEVICE_SOURCES = ("nvml", "gpm")

# SPDX-License-Identifier: Apache-2.0
"""roofline-exporter: how busy, how saturated and how idle each NVIDIA GPU of a node is."""

__version__ = "0.1.0"

# SPDX-License-Identifier: Apache-2.0
"""Measured counters of GPUs without GPM, by NVIDIA's CUPTI: sampled performance monitors.

NVIDIA's library is found among the installed packages, never shipped, and loaded only by a process
of its own and by `roofline-exporter counters check`.
"""

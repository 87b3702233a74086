# SPDX-License-Identifier: Apache-2.0
"""The driver's error numbers, from NVML events and from the kernel log."""

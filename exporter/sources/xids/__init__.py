# SPDX-License-Identifier: Apache-2.0
"""Xids, the driver's error numbers: from NVML events and the kernel log, counted in one ledger."""

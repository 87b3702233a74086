# SPDX-License-Identifier: Apache-2.0
"""Reads one GPU through NVML and its GPM counters, and survives what drivers answer wrongly."""

# SPDX-License-Identifier: Apache-2.0
"""Hardware counters that DCGM has read: off a dcgm-exporter's page, or from a hostengine.

May import model, specs, the clock, and what is beside it in sources.
"""

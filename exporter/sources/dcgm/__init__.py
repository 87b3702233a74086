# SPDX-License-Identifier: Apache-2.0
"""Hardware counters of DCGM, from a dcgm-exporter's page or from a hostengine.

May import model, specs, the clock, and what is beside it in sources.
"""

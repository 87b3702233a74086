# SPDX-License-Identifier: Apache-2.0
"""``report``: GPU-hours, stalls, energy and cost of a fleet, from what Prometheus has recorded."""

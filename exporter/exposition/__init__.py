# SPDX-License-Identifier: Apache-2.0
"""The metrics, one row each, and the pages that Prometheus scrapes.

A row is in the module named for what the metric describes; `catalogue` lists these modules.

May import model.
"""

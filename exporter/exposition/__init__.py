# SPDX-License-Identifier: Apache-2.0
"""The metrics: one row for each, and the pages made of them that Prometheus scrapes.

A row holds all that is known of a metric, and is in the module named for what the metric describes;
`catalogue` lists these modules.

May import model.
"""

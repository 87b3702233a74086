# SPDX-License-Identifier: Apache-2.0
"""The metrics: one row for each, and the pages made of them that Prometheus scrapes.

May import model.
"""

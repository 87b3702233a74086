# SPDX-License-Identifier: Apache-2.0
"""The readings of this node under the names, labels and units of dcgm-exporter, in two generations.

One row for each of its metrics, in `fields`. May import what is beside it in exposition, and model.
"""

# SPDX-License-Identifier: Apache-2.0
"""The readings of this node under the names, labels and units of dcgm-exporter, in two generations.

`fields` has one row per metric. May import exposition and model.
"""

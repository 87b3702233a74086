# SPDX-License-Identifier: Apache-2.0
"""Where readings come from: the driver, the kernel, training jobs, recordings and simulations.

`table.py` has the table of all sources. May import model and specs.
"""

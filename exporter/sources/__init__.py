# SPDX-License-Identifier: Apache-2.0
"""Where readings come from: the driver, the kernel, recordings and simulations."""

# SPDX-License-Identifier: Apache-2.0
"""``compare``: what two jobs waited for and computed, side by side."""

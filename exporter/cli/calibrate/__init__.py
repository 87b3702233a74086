# SPDX-License-Identifier: Apache-2.0
"""``calibrate``: measures what a board draws for what it does, and writes that for ``--specs``."""

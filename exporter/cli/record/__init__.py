# SPDX-License-Identifier: Apache-2.0
"""``record``: writes all readings of this node to a file, to be played with ``--replay``."""

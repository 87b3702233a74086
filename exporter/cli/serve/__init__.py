# SPDX-License-Identifier: Apache-2.0
"""``serve``: the daemon."""

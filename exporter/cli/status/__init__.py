# SPDX-License-Identifier: Apache-2.0
"""``status``: what each GPU of this node does now, one line a GPU."""

# SPDX-License-Identifier: Apache-2.0
"""``specs``: the ceilings of each GPU model in the spec file, and where they come from."""

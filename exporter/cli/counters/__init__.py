# SPDX-License-Identifier: Apache-2.0
"""The command ``counters``: what hardware counters can give, and who has them."""

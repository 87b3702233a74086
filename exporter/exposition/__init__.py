# SPDX-License-Identifier: Apache-2.0
"""How a snapshot becomes the pages that Prometheus scrapes."""

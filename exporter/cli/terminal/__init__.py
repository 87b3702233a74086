# SPDX-License-Identifier: Apache-2.0
"""Output to a terminal: its size and colours, escaping (screen), tables that fit (table)."""

# SPDX-License-Identifier: Apache-2.0
"""What a person sees in a terminal: its size and colours (screen), and tables that fit it."""

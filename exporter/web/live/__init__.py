# SPDX-License-Identifier: Apache-2.0
"""The live view of the node, which pages show and the stream keeps up to date.

What is in it (view, rows, row_words, roofs, rounding, addresses), one view for all who ask (views),
and the events that say what changed in it (stream, patch).
"""

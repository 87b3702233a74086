# SPDX-License-Identifier: Apache-2.0
"""The live view of the node, which pages show and the stream keeps up to date.

What is in it (view, rows, roofs; rounding of its numbers), and the events that say what changed in
it (stream).
"""

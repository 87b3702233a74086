# SPDX-License-Identifier: Apache-2.0
"""The live view of the node, which pages show, and the stream of its changes."""

# SPDX-License-Identifier: Apache-2.0
"""The source `proc`: states of the processes on idle GPUs and of their data loaders, from /proc."""

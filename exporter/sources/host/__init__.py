# SPDX-License-Identifier: Apache-2.0
"""The source `proc`: what the processes on idle GPUs and their data loaders do, from /proc."""

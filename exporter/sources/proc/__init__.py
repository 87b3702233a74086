# SPDX-License-Identifier: Apache-2.0
"""What /proc and /sys show: who processes are, how many GPUs the node has, which are asleep."""

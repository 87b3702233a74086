# SPDX-License-Identifier: Apache-2.0
"""What /proc and /sys say: processes and what kind of work they do, GPUs on the bus, sleep."""

# SPDX-License-Identifier: Apache-2.0
"""What NCCL says of its ranks, through the port of its RAS."""

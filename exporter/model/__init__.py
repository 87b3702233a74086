# SPDX-License-Identifier: Apache-2.0
"""What flows: what sources hand over, what everything after the publisher reads, what Xids mean.

Frozen data and no logic; imports no other room.
"""

# SPDX-License-Identifier: Apache-2.0
"""What flows: what sources hand over, what everything after the publisher reads, what Xids mean.

Frozen data without logic, and the interfaces of who hands it over; imports no other room.
"""

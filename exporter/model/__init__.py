# SPDX-License-Identifier: Apache-2.0
"""The data that the rooms pass on: readings, reports of training jobs, snapshots, Xids.

Frozen data without logic, and the interfaces through which it comes; imports no other room.
"""

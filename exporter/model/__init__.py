# SPDX-License-Identifier: Apache-2.0
"""The data that packages exchange: readings, reports of training jobs, snapshots, Xids.

Frozen data without logic, and the interfaces of its sources; imports no other package.
"""

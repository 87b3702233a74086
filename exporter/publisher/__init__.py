# SPDX-License-Identifier: Apache-2.0
"""The one clock: each tick merges readings, integrates, derives and publishes one snapshot.

May import model, derive and specs.
"""

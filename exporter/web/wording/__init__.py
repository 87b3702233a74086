# SPDX-License-Identifier: Apache-2.0
"""What a GPU is doing, in words: once for the page and for ``status``.

Both have the same `facts`. `state` has the one word for a GPU, `phrases` what else is said of it,
`whose` the names of workloads and jobs, `measuring` what would measure it better, `short` phrases
for a table in a terminal, `summary` the lines about the whole node, `recorded` what is said of
recorded and simulated data, `numbers` how numbers are written. None imports the snapshot.
"""

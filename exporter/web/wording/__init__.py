# SPDX-License-Identifier: Apache-2.0
"""What a GPU is doing, in words: once for the page and for ``status``.

Both fill in `facts`. Then `state` has the one word for a GPU, `phrases` what else is said of it,
`errors` what is said of its Xids, `measuring` what would measure it, `short` the same in few
letters for a table in a terminal, `summary` the lines about the whole node, `advice` where the
documentation goes on, `recorded` what is said of data that is not of now, and `numbers` how numbers
are written. All are pure functions; none imports the snapshot.
"""

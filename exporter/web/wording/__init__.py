# SPDX-License-Identifier: Apache-2.0
"""The state of a GPU in words, for the page and for ``status``.

`facts` is the input; `state` the one word for a GPU; `phrases` the other words of the page, `short`
those of ``status``; `whose` names of workloads and jobs; `measuring` how to measure more; `summary`
the lines about the node; `recorded` notices about recorded and simulated data; `numbers` formats.
"""

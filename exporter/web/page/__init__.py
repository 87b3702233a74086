# SPDX-License-Identifier: Apache-2.0
"""The two pages, ``/`` and ``/gpu/{uuid}``, as HTML that is readable without scripts.

The addresses (routes), what every page has around its content (document), the content of each page
(node, gpu), and its parts: table, jobs, charts, details.
"""

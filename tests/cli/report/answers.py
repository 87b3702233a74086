# SPDX-License-Identifier: Apache-2.0
"""Names that somebody chose to do harm with."""

HOSTILE = "<script>fetch('//evil.test')</script>\x1b[2J\"'&" + "m" * 200
FORMULA = '=HYPERLINK("http://evil.test", "here")'

# SPDX-License-Identifier: Apache-2.0
"""The JSON that the API answers with, as types, one module a path.

What is not known is left out of the JSON; it is never null, 0 or a special value.
"""

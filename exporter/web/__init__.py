# SPDX-License-Identifier: Apache-2.0
"""What the daemon answers over HTTP: metrics, API, page and live stream, and the last minutes.

May import model, exposition and specs.
"""

# SPDX-License-Identifier: Apache-2.0
"""One worker thread per GPU: cadences, watchdog, slots that hold the last reading, sessions."""

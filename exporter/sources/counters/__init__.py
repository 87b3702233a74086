# SPDX-License-Identifier: Apache-2.0
"""Counter sources that live in a child process: NVIDIA's libraries are loaded only there.

What such a library does to its process (a crash, a hang, 210 MB) costs the exporter no more than
the readings.
"""

# SPDX-License-Identifier: Apache-2.0
"""The GPUs of this node: one worker thread reads each GPU, and a supervisor watches the workers.

A slot holds the last reading of one GPU, a session the sources that are opened on it.
"""

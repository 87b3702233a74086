# SPDX-License-Identifier: Apache-2.0
"""The command line: a module or folder for each command, the settings, and the terminal.

May import every other room.
"""

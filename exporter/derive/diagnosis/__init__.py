# SPDX-License-Identifier: Apache-2.0
"""Why a share is slow: its evidence, the table of known causes, and the causes it shows."""

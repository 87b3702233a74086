# SPDX-License-Identifier: Apache-2.0
"""What Slurm says: prolog files of what it gave away, and control groups of who runs."""

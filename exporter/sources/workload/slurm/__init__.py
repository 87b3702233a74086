# SPDX-License-Identifier: Apache-2.0
"""Slurm's jobs: prolog files of allocated GPUs, and control groups of running jobs."""

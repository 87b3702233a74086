# SPDX-License-Identifier: Apache-2.0
"""Whose work is on the GPUs: what Kubernetes, Slurm and container runtimes say."""

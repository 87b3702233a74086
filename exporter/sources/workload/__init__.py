# SPDX-License-Identifier: Apache-2.0
"""The owners of the work on GPUs, by Kubernetes, Slurm and container runtimes."""

# SPDX-License-Identifier: Apache-2.0
"""What Docker and Podman call their containers."""

# SPDX-License-Identifier: Apache-2.0
"""Names of containers, by Docker and Podman."""

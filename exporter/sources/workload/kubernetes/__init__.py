# SPDX-License-Identifier: Apache-2.0
"""What the kubelet says: which pods have which devices, over its Unix sockets."""

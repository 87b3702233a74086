# SPDX-License-Identifier: Apache-2.0
"""Which pods have which devices, from the kubelet over its Unix sockets."""

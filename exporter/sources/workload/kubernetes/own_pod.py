# SPDX-License-Identifier: Apache-2.0
"""Which pod this daemon runs in: a GPU that it is given in order to watch it is not in use."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping

from exporter.files import read_regular

NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"


def own_pod(
    environment: Mapping[str, str], namespace_file: str = NAMESPACE_FILE
) -> re.Pattern[str] | None:
    """Return a pattern of NAMESPACE/POD that is this pod; None where the daemon runs in none.

    A pod's host name is its own name, unless it shares the network of its node; POD_NAME and
    POD_NAMESPACE, which the manifest may set, come first.
    """
    if "KUBERNETES_SERVICE_HOST" not in environment:
        return None
    name = environment.get("POD_NAME") or socket.gethostname()
    namespace = environment.get("POD_NAMESPACE") or _namespace(namespace_file)
    return re.compile((re.escape(namespace) if namespace else "[^/]+") + "/" + re.escape(name))


def _namespace(path: str) -> str:
    """Return what the service account's token is of; empty where there is none."""
    try:
        return read_regular(path, 1024).decode("utf-8", "replace").strip()
    except OSError:
        return ""

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A service of JupyterHub: stops servers that nobody uses and that hold their GPUs idle.

Both have to be known: the hub saw no activity for so long, and every GPU of the server was idle for
so long. It asks Prometheus about the pod of a server (PROMETHEUS), or the exporter on the hub's own
host about the user (DAEMON). docs/automation.md has the service's entry in jupyterhub_config.py.
"""

from __future__ import annotations

import json
import os
import time
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

IDLE_SECONDS = int(os.environ.get("IDLE_SECONDS", "7200"))
EVERY_SECONDS = 600
HUB = os.environ.get("JUPYTERHUB_API_URL", "http://127.0.0.1:8081/hub/api")
TOKEN = os.environ.get("JUPYTERHUB_API_TOKEN", "")
PROMETHEUS = os.environ.get("PROMETHEUS", "").rstrip("/")
DAEMON = os.environ.get("DAEMON", "").rstrip("/")
QUERY = (
    f"pod:gpu_idle_seconds:min >= {IDLE_SECONDS}"
    f" and pod:gpu_idle_seconds:min offset {IDLE_SECONDS}s"
)


def ask(url: str, method: str = "GET", token: str = "") -> Any:
    """Return the JSON of an answer, None if it has none."""
    headers = {"Accept": "application/jupyterhub-pagination+json"} if token else {}
    headers |= {"Authorization": f"token {token}"} if token else {}
    request = Request(url, headers=headers, method=method)  # noqa: S310 (our own URLs)
    with urlopen(request, timeout=30) as answer:  # noqa: S310
        body = answer.read()
    return json.loads(body) if body else None


def users() -> list[dict[str, Any]]:
    """Return the users that have a server, of all pages."""
    found: list[dict[str, Any]] = []
    url: str | None = f"{HUB}/users?state=ready"
    while url:
        page = ask(url, token=TOKEN)
        found += page["items"]
        url = (page["_pagination"]["next"] or {}).get("url")
    return found


def idle_pods() -> set[tuple[str, str]]:
    """Return namespace and name of the pods whose GPUs are known to have been idle."""
    if not PROMETHEUS:
        return set()
    answer = ask(f"{PROMETHEUS}/api/v1/query?{urlencode({'query': QUERY})}")
    metrics = [one["metric"] for one in answer["data"]["result"]]
    return {(one["namespace"], one["pod"]) for one in metrics}


def is_idle(user: str, server: dict[str, Any], pods: set[tuple[str, str]]) -> bool:
    """Return whether the GPUs of a server are known to have been idle."""
    if DAEMON:
        asked = urlencode({"for": f"{IDLE_SECONDS}s", "user": user})
        return bool(ask(f"{DAEMON}/api/v1/idle?{asked}")["state"] == "idle")
    state = server.get("state") or {}
    return (state.get("namespace", ""), state.get("pod_name", "")) in pods


def unused(server: dict[str, Any]) -> bool:
    """Return whether the hub saw no activity of a server for so long, and it runs for so long."""
    times = [server.get("last_activity"), server.get("started")]
    ages = [time.time() - datetime.fromisoformat(t[:19] + "+00:00").timestamp() for t in times if t]
    return bool(server.get("ready")) and len(ages) == 2 and min(ages) >= IDLE_SECONDS


def cull() -> None:
    """Stop each server that is unused and idle."""
    pods = idle_pods()
    for user in users():
        for name, server in user["servers"].items():
            if unused(server) and is_idle(user["name"], server, pods):
                path = f"servers/{quote(name, safe='')}" if name else "server"
                ask(f"{HUB}/users/{quote(user['name'], safe='')}/{path}", "DELETE", TOKEN)
                print(f"stopped the server {name!r} of {user['name']}", flush=True)


if __name__ == "__main__":
    while True:
        try:
            cull()
        except (OSError, ValueError, LookupError) as error:
            print(f"nothing stopped: {error}", flush=True)
        time.sleep(EVERY_SECONDS)

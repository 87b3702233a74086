#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Scale down what holds the GPUs of a namespace idle: notify first, act after a grace.

It acts on what Prometheus knows and on nothing else: a pod without an answer counts as busy. Each
run asks once and ends; docs/automation.md says what it does to what.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import time
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

PROMETHEUS = os.environ["PROMETHEUS"].rstrip("/")
NAMESPACE = os.environ["NAMESPACE"]
IDLE_SECONDS = int(os.environ.get("IDLE_SECONDS", "7200"))
GRACE_SECONDS = int(os.environ.get("GRACE_SECONDS", "3600"))
KUBERNETES = os.environ.get("KUBERNETES", "https://kubernetes.default.svc")
ACCOUNT = Path(os.environ.get("ACCOUNT", "/var/run/secrets/kubernetes.io/serviceaccount"))
TRUSTED = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
# Idle for so long, and known to Prometheus as this pod on these GPUs when that time began.
QUERY = (
    f'pod:gpu_idle_seconds:min{{namespace="{NAMESPACE}"}} >= {IDLE_SECONDS}'
    f" and pod:gpu_idle_seconds:min offset {IDLE_SECONDS}s"
)
LABEL = "gpu-idle-reclaim"
NOTIFIED = f"{LABEL}/notified"
BEFORE = f"{LABEL}/replicas-before"
QUEUE = "kueue.x-k8s.io/queue-name"
KINDS = {
    "Deployment": "apis/apps/v1/namespaces/{}/deployments/{}",
    "StatefulSet": "apis/apps/v1/namespaces/{}/statefulsets/{}",
    "ReplicaSet": "apis/apps/v1/namespaces/{}/replicasets/{}",
    "Job": "apis/batch/v1/namespaces/{}/jobs/{}",
}
WORKLOADS = f"apis/kueue.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/workloads"
Object = dict[str, Any]


def ask(url: str, method: str = "GET", body: Object | None = None, token: str = "") -> Object:
    """Return the JSON of an answer; whatever is wrong with it ends this run."""
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    headers = {"Accept": "application/json", "Content-Type": kind}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    data = None if body is None else json.dumps(body).encode()
    request = Request(url, data=data, headers=headers, method=method)  # noqa: S310 (our own URLs)
    with urlopen(request, timeout=30, context=TRUSTED if token else None) as answer:  # noqa: S310
        found: Object = json.load(answer)
    return found


def cluster(path: str, method: str = "GET", body: Object | None = None) -> Object:
    """Ask the API server."""
    return ask(f"{KUBERNETES}/{path}", method, body, (ACCOUNT / "token").read_text())


def idle_pods() -> dict[str, float]:
    """Return for how long the GPUs of each pod have been idle, of those of which it is known."""
    answer = ask(f"{PROMETHEUS}/api/v1/query?{urlencode({'query': QUERY})}")
    if answer["status"] != "success":
        raise SystemExit(f"Prometheus: {answer}")
    return {one["metric"]["pod"]: float(one["value"][1]) for one in answer["data"]["result"]}


def seconds_since(text: str | None) -> float:
    """Return the age of a timestamp; 0 if there is none, or no timestamp."""
    try:
        return time.time() - datetime.fromisoformat((text or "").replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0


def owner_of(found: Object) -> Object | None:
    """Return what a pod belongs to, or None: a bare pod, or a kind that is not known here."""
    for reference in found["metadata"].get("ownerReferences", []):
        if reference.get("controller") and reference["kind"] in KINDS:
            path = KINDS[reference["kind"]].format(NAMESPACE, quote(reference["name"]))
            owner = cluster(path) | {"path": path, "kind": reference["kind"]}
            return owner_of(owner) if reference["kind"] == "ReplicaSet" else owner
    return None


def opted_out(found: Object) -> bool:
    """Return whether an object has the label."""
    return found["metadata"].get("labels", {}).get(LABEL) == "off"


def spared(owner: Object) -> str:
    """Return why an owner is not to be stopped; nothing if it is."""
    metadata = owner["metadata"]
    if opted_out(owner):
        return f"{LABEL}=off"
    if any(each.get("controller") for each in metadata.get("ownerReferences", [])):
        return f"another controller owns its {owner['kind']}"
    if owner["kind"] == "Job" and QUEUE not in metadata.get("labels", {}):
        return "its Job is not Kueue's"
    return ""


def pods_of(owner: Object) -> int:
    """Return how many pods it has, or is to have."""
    if owner["kind"] == "Job":
        return int(owner.get("status", {}).get("active", 0))
    return max(owner["spec"].get("replicas", 1), owner.get("status", {}).get("replicas", 0))


def change(owner: Object, annotations: Object, **spec: object) -> None:
    """Patch it, unless somebody else has changed it since it was read."""
    version = owner["metadata"]["resourceVersion"]
    body: Object = {"metadata": {"resourceVersion": version, "annotations": annotations}}
    cluster(owner["path"], "PATCH", body | ({"spec": spec} if spec else {}))


def say(owner: Object, reason: str, message: str) -> None:
    """Write an event that `kubectl describe` shows, and a line of the log."""
    name, now = owner["metadata"]["name"], datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    version = "batch/v1" if owner["kind"] == "Job" else "apps/v1"
    event = {
        "metadata": {"generateName": f"{name}.", "namespace": NAMESPACE},
        "involvedObject": {
            "apiVersion": version,
            "kind": owner["kind"],
            "name": name,
            "namespace": NAMESPACE,
            "uid": owner["metadata"]["uid"],
        },
        "type": "Warning",
        "reason": reason,
        "message": message,
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "source": {"component": LABEL},
    }
    cluster(f"api/v1/namespaces/{NAMESPACE}/events", "POST", event)
    print(f"{owner['kind']} {name}: {message}")


def stop(owner: Object) -> None:
    """Scale it to 0; of a Job, deactivate the Workload by which Kueue admitted it."""
    if owner["kind"] != "Job":
        change(owner, {BEFORE: str(owner["spec"].get("replicas", 1)), NOTIFIED: None}, replicas=0)
        return
    change(owner, {NOTIFIED: None})
    chosen = urlencode({"labelSelector": f"kueue.x-k8s.io/job-uid={owner['metadata']['uid']}"})
    for workload in cluster(f"{WORKLOADS}?{chosen}")["items"]:
        name = quote(workload["metadata"]["name"])
        cluster(f"{WORKLOADS}/{name}", "PATCH", {"spec": {"active": False}})


def judge(owner: Object, idle_seconds: float) -> None:
    """Notify, wait or stop: what stayed idle since the notice, for all of the grace."""
    since = seconds_since(owner["metadata"].get("annotations", {}).get(NOTIFIED))
    idle, grace = f"{idle_seconds / 3600:.1f} h", f"{GRACE_SECONDS / 3600:.1f} h"
    if since <= 0.0 or since > idle_seconds:
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        change(owner, {NOTIFIED: now})
        text = f"its GPUs have been idle for {idle}; it is stopped in {grace} unless they work,"
        say(owner, "GpuIdle", f"{text} or it has the label {LABEL}=off")
    elif since >= GRACE_SECONDS:
        stop(owner)
        say(owner, "GpuIdleReclaimed", f"stopped: its GPUs have been idle for {idle}")


def main() -> int:
    """Judge each owner of which every pod is known to be idle."""
    idle, count, owners = idle_pods(), Counter[str](), {}
    for name, seconds in idle.items():
        pod = cluster(f"api/v1/namespaces/{NAMESPACE}/pods/{quote(name)}")
        if opted_out(pod) or seconds_since(pod.get("status", {}).get("startTime")) < IDLE_SECONDS:
            continue
        owner = owner_of(pod)
        reason = "it has no owner that can be stopped" if owner is None else spared(owner)
        if owner is None or reason:
            print(f"pod {name}: idle for {seconds / 3600:.1f} h; left alone: {reason}")
            continue
        count[owner["path"]] += 1
        shortest = min(seconds, owners.get(owner["path"], (owner, seconds))[1])
        owners[owner["path"]] = (owner, shortest)
    for path, (owner, seconds) in owners.items():
        if count[path] >= pods_of(owner) > 0:
            judge(owner, seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())

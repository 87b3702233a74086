# SPDX-License-Identifier: Apache-2.0
"""The DaemonSet: it names its own pods, takes no GPU, and has no right too many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

MANIFEST = Path(__file__).parents[2] / "deploy" / "kubernetes" / "daemonset.yml"


def _spec() -> dict[str, Any]:
    spec: dict[str, Any] = yaml.safe_load(MANIFEST.read_text())["spec"]
    return spec


def test_selects_its_own_pods() -> None:
    """Otherwise the API server refuses it."""
    spec = _spec()
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]


def test_takes_no_gpu_from_jobs() -> None:
    """It requests none, and only its liveness is probed: a node with a lost GPU keeps it."""
    (container,) = _spec()["template"]["spec"]["containers"]
    assert "nvidia.com/gpu" not in str(container["resources"])
    assert container["livenessProbe"]["httpGet"]["path"] == "/-/healthy"
    assert "readinessProbe" not in container


def test_has_few_rights() -> None:
    """Root only by number."""
    pod = _spec()["template"]["spec"]
    (container,) = pod["containers"]
    rights = container["securityContext"]
    assert rights["capabilities"] == {"drop": ["ALL"], "add": ["SYS_PTRACE"]}
    assert rights["readOnlyRootFilesystem"]
    assert rights["allowPrivilegeEscalation"] is False
    assert pod["automountServiceAccountToken"] is False
    paths = [volume["hostPath"]["path"] for volume in pod["volumes"]]
    assert paths == ["/run/roofline-exporter"]

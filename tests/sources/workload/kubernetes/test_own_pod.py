# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import socket

import pytest

from exporter.sources.workload.kubernetes.kubernetes_pods import own_pod

IN_A_POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}


def _is(environment: dict[str, str], name: str) -> bool:
    pattern = own_pod(IN_A_POD | environment)
    assert pattern is not None
    return pattern.fullmatch(name) is not None


def test_outside_a_pod_there_is_none() -> None:
    assert own_pod({"POD_NAME": "x"}) is None


def test_the_manifest_may_say_which_it_is() -> None:
    """POD_NAME and POD_NAMESPACE, where the host's name is that of the node."""
    environment = {"POD_NAME": "roofline.x", "POD_NAMESPACE": "monitoring"}

    assert _is(environment, "monitoring/roofline.x")
    assert not _is(environment, "monitoring/roofline-x")
    assert not _is(environment, "team-a/roofline.x")


def test_else_it_is_the_hosts_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of a DaemonSet's pod has a random end."""
    monkeypatch.setattr(socket, "gethostname", lambda: "roofline-exporter-abcde")

    assert _is({}, "any/roofline-exporter-abcde")
    assert not _is({}, "any/other")

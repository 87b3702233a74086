# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import socket
from pathlib import Path

import pytest

from exporter.sources.workload.kubernetes.kubernetes_pods import own_pod

IN_A_POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}


def _is(environment: dict[str, str], name: str, namespace_file: Path) -> bool:
    pattern = own_pod(IN_A_POD | environment, str(namespace_file))
    assert pattern is not None
    return pattern.fullmatch(name) is not None


def test_outside_a_pod_there_is_none() -> None:
    assert own_pod({"POD_NAME": "x"}) is None


def test_the_manifest_may_say_which_it_is(tmp_path: Path) -> None:
    """POD_NAME and POD_NAMESPACE, where the host's name is that of the node."""
    environment = {"POD_NAME": "roofline.x", "POD_NAMESPACE": "monitoring"}

    assert _is(environment, "monitoring/roofline.x", tmp_path / "none")
    assert not _is(environment, "monitoring/roofline-x", tmp_path / "none")
    assert not _is(environment, "team-a/roofline.x", tmp_path / "none")


def test_else_it_is_the_hosts_name_and_the_namespace_of_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "roofline-exporter-abcde")
    token = tmp_path / "namespace"
    token.write_text("monitoring\n")

    assert _is({}, "monitoring/roofline-exporter-abcde", token)
    assert not _is({}, "team-a/roofline-exporter-abcde", token)


def test_without_a_token_any_namespace_may_be_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of a DaemonSet's pod has a random end."""
    monkeypatch.setattr(socket, "gethostname", lambda: "roofline-exporter-abcde")

    assert _is({}, "any/roofline-exporter-abcde", tmp_path / "none")
    assert not _is({}, "any/other", tmp_path / "none")

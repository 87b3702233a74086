# SPDX-License-Identifier: Apache-2.0
"""The manifests: they are what the chart renders, follow the schema, and pass the *restricted*
profile but for the exceptions that the default and each overlay name."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy import helm
from tests.deploy.kubectl import exporter_of, of_kind, pod_of, rendered, validate
from tests.deploy.pod_security import rights, violations

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
MANIFEST = FOLDER / "base" / "daemonset.yml"
RESTRICTED = "restricted"
"""The overlay that takes off what the default has beyond that profile."""
ROOT_USER = {
    ("Running as Non-root", "{}: runAsNonRoot is not true"),
    ("Running as Non-root user", "{}: runAsUser is 0"),
}
HOST_PATH = {("HostPath Volumes", "pod: hostPath"), ("Volume Types", "pod: hostPath")}
HOST_PIDS = {("Host Namespaces", "pod: hostPID")}


def _root(container: str) -> set[tuple[str, str]]:
    return {(control, said.format(container)) for control, said in ROOT_USER}


DEFAULT = HOST_PATH | {
    ("Running as Non-root", "exporter: runAsNonRoot is not true"),
    ("Running as Non-root user", "pod: runAsUser is 0"),
}
"""What it takes to ask the kubelet whose pods are on the GPUs."""
EXCEPTIONS: Mapping[str, set[tuple[str, str]]] = {
    "holders": HOST_PIDS,
    "training": HOST_PATH | _root("socket-directory"),
    "other-users": HOST_PIDS
    | _root("exporter")
    | {
        ("Capabilities", "exporter: adds DAC_READ_SEARCH SYS_PTRACE"),
        ("AppArmor", "exporter: appArmorProfile Unconfined"),
    },
    "cupti": _root("exporter") | {("Capabilities", "exporter: adds PERFMON")},
    "tls": set(),
    "network-policy": set(),
    RESTRICTED: set(),
}
"""What each overlay does that the restricted profile forbids, and nothing else."""


def render(tmp: Path, overlays: Sequence[str]) -> list[dict[str, Any]]:
    """The base with overlays, as a user's own kustomization chooses them."""
    chosen = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(FOLDER / "base", tmp)],
        "components": [os.path.relpath(FOLDER / "overlays" / name, tmp) for name in overlays],
    }
    (tmp / "kustomization.yaml").write_text(yaml.safe_dump(chosen), encoding="utf-8")
    return rendered(tmp)


@cache
def _objects() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(MANIFEST.read_text()))


def _ordered(value: Any) -> Any:
    """The same without the order of lists whose items have names."""
    if isinstance(value, list):
        items = [_ordered(each) for each in value]
        is_named = all(isinstance(each, dict) and "name" in each for each in items)
        return sorted(items, key=lambda each: each["name"]) if is_named else items
    if isinstance(value, dict):
        return {key: _ordered(each) for key, each in value.items() if each != []}
    return value


def test_default_is_what_the_chart_renders() -> None:
    """`make manifests` wrote it; `kubectl apply -f` and `-k` give the same."""
    assert MANIFEST.read_text() == helm.manifest(), "run `make manifests`"
    assert _ordered(rendered(FOLDER / "base")) == _ordered(_objects())


def test_default_follows_the_schema_and_asks_the_kubelet() -> None:
    """By its folder and as its owner, and with nothing else that the restricted profile forbids."""
    validate(_objects())
    pod = pod_of(_objects())
    assert violations(pod) == DEFAULT
    (volume,) = pod["volumes"]
    (mount,) = exporter_of(_objects())["volumeMounts"]
    assert volume["hostPath"]["path"] == mount["mountPath"] == "/var/lib/kubelet/pod-resources"
    assert mount["readOnly"] is True


def test_restricted_passes_without_exception(tmp_path: Path) -> None:
    """It is what the chart renders without Kubernetes as a source."""
    objects = render(tmp_path, [RESTRICTED])
    assert violations(pod_of(objects)) == set()
    assert not pod_of(objects).get("volumes")
    assert _ordered(objects) == _ordered(helm.objects({"kubernetes": {"enabled": False}}))


@pytest.mark.parametrize(
    ("overlay", "values"),
    [("holders", {"hostPID": True}), ("training", {"training": {"enabled": True}})],
)
def test_overlays_are_what_the_chart_renders(
    tmp_path: Path, overlay: str, values: helm.Values
) -> None:
    """The same with kubectl and with Helm."""
    assert _ordered(render(tmp_path, [overlay])) == _ordered(helm.objects(values))


def test_every_overlay_is_known() -> None:
    """The tests below take all of them."""
    assert {path.name for path in (FOLDER / "overlays").iterdir()} == set(EXCEPTIONS)


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_overlay_has_the_exceptions_that_it_names(name: str, tmp_path: Path) -> None:
    """It renders, follows the schema, takes what it says, and says what it costs."""
    objects = render(tmp_path, [name])
    validate(objects)
    expected = DEFAULT if name != RESTRICTED else set()
    assert violations(pod_of(objects)) == EXCEPTIONS[name] | expected
    head = (FOLDER / "overlays" / name / "kustomization.yml").read_text().partition("kind:")[0]
    assert "# Gives: " in head
    assert "# Costs: " in head


@pytest.mark.parametrize("left_out", ["cupti", "other-users"])
def test_overlays_go_together(tmp_path: Path, left_out: str) -> None:
    """All but one at once have all their exceptions and no other: `restricted` takes none off.

    Capabilities are a list, of which the last overlay's holds: `cupti` says so.
    """
    assert "`other-users`" in (FOLDER / "overlays" / "cupti" / "kustomization.yml").read_text()
    together = [name for name in EXCEPTIONS if name != left_out]
    objects = render(tmp_path, together)
    validate(objects)
    assert violations(pod_of(objects)) == set().union(*map(EXCEPTIONS.__getitem__, together))
    names = [each["name"] for each in exporter_of(objects)["env"]]
    assert len(names) == len(set(names))


def test_example_renders() -> None:
    """It is what the documentation applies."""
    objects = rendered(FOLDER / "example")
    validate(objects)
    assert {each["metadata"]["namespace"] for each in objects} == {"monitoring"}
    expected = DEFAULT | EXCEPTIONS["holders"] | EXCEPTIONS["training"]
    assert violations(pod_of(objects)) == expected


def test_selects_its_own_pods(tmp_path: Path) -> None:
    """Otherwise the API server refuses it; the network policy selects the same."""
    objects = render(tmp_path, ["network-policy"])
    daemonset, policy, service = (
        of_kind(objects, kind) for kind in ("DaemonSet", "NetworkPolicy", "Service")
    )
    labels = daemonset["spec"]["template"]["metadata"]["labels"]
    assert daemonset["spec"]["selector"]["matchLabels"] == labels
    assert service["spec"]["selector"] == labels
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    (rule,) = policy["spec"]["ingress"]
    (port,) = rule["ports"]
    assert port["port"] in {each["name"] for each in exporter_of(objects)["ports"]}
    assert policy["spec"]["egress"] == []
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]


def test_takes_no_gpu_from_jobs() -> None:
    """It requests none, and only its liveness is probed: a node with a lost GPU keeps it."""
    container = exporter_of(_objects())
    assert "nvidia.com/gpu" not in str(container["resources"])
    assert container["livenessProbe"]["httpGet"]["path"] == "/-/healthy"
    assert container["startupProbe"]["httpGet"] == container["livenessProbe"]["httpGet"]
    assert "readinessProbe" not in container


def test_default_has_few_rights() -> None:
    """Beyond the profile: nothing to write to, no token, limits, and no foreign variables."""
    pod, container = pod_of(_objects()), exporter_of(_objects())
    assert rights(container)["capabilities"] == {"drop": ["ALL"]}
    assert rights(container)["readOnlyRootFilesystem"] is True
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False, "ROOFLINE_EXPORTER_PORT is an unknown variable"
    assert container["resources"]["limits"] == {"memory": "256Mi"}
    assert not {"hostPID", "hostNetwork", "hostIPC"} & set(pod)
    assert of_kind(_objects(), "ServiceAccount")["automountServiceAccountToken"] is False


def test_tls_asks_over_https(tmp_path: Path) -> None:
    """The probes too, and the Secret's files are for the exporter's group only."""
    objects = render(tmp_path, ["tls"])
    pod, container = pod_of(objects), exporter_of(objects)
    for probe in ("startupProbe", "livenessProbe"):
        wanted = {"path": "/-/healthy", "port": "metrics", "scheme": "HTTPS"}
        assert container[probe]["httpGet"] == wanted
    (volume,) = (each for each in pod["volumes"] if "secret" in each)
    assert volume["secret"]["defaultMode"] == 0o440
    assert rights(pod)["fsGroup"] == 65532
    (variable,) = (each for each in container["env"] if each["name"].endswith("CONFIG_FILE"))
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == volume["name"])
    assert variable["value"].startswith(f"{mount['mountPath']}/")


def test_jobs_have_no_socket_but_with_the_overlay(tmp_path: Path) -> None:
    """The default looks for none; the overlay puts it where jobs look first."""
    assert {"name": "ROOFLINE_SOURCE_TRAINING", "value": "false"} in exporter_of(_objects())["env"]
    objects = render(tmp_path, ["training"])
    pod = pod_of(objects)
    (volume,) = (each for each in pod["volumes"] if each["name"] == "training")
    assert volume["hostPath"]["path"] == "/run/roofline-exporter"
    assert {"name": "ROOFLINE_SOURCE_TRAINING", "value": "true"} in exporter_of(objects)["env"]
    before, after = pod["initContainers"][0], exporter_of(objects)
    assert all(each in after["volumeMounts"] for each in before["volumeMounts"])
    assert re.search(rf"chgrp {rights(pod)['runAsGroup']} \.", before["args"][0])

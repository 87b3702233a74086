# SPDX-License-Identifier: Apache-2.0
"""The manifests: they render, follow the schema, and pass the *restricted* profile but for the
exceptions that an overlay is named for."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.deploy.kubectl import rendered
from tests.deploy.pod_security import CONTROLS, containers, rights, violations

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
MANIFEST = FOLDER / "base" / "daemonset.yml"
VERSIONS = ("1.31.0", "1.37.0")
"""The oldest and the newest Kubernetes whose schema the objects are checked with."""
ROOT_USER = {
    ("Running as Non-root", "{}: runAsNonRoot is not true"),
    ("Running as Non-root user", "{}: runAsUser is 0"),
}
HOST_PATH = {("HostPath Volumes", "pod: hostPath"), ("Volume Types", "pod: hostPath")}
HOST_PIDS = {("Host Namespaces", "pod: hostPID")}


def _root(container: str) -> set[tuple[str, str]]:
    return {(control, said.format(container)) for control, said in ROOT_USER}


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


def _pod(objects: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    (daemonset,) = (each for each in objects if each["kind"] == "DaemonSet")
    pod: dict[str, Any] = daemonset["spec"]["template"]["spec"]
    return pod


@cache
def _base() -> dict[str, Any]:
    daemonset: dict[str, Any] = yaml.safe_load(MANIFEST.read_text())
    return daemonset


def _exporter(pod: Mapping[str, Any]) -> dict[str, Any]:
    (container,) = pod["containers"]
    found: dict[str, Any] = container
    return found


def _validate(objects: Sequence[Mapping[str, Any]]) -> None:
    for each in objects:
        for version in VERSIONS:
            kubernetes_validate.validate(each, version, strict=True)


def test_schema_refuses_a_wrong_key() -> None:
    """The check below can fail."""
    wrong = copy.deepcopy(_base())
    wrong["spec"]["template"]["spec"]["hostPIDs"] = True
    with pytest.raises(kubernetes_validate.ValidationError):
        _validate([wrong])


def test_default_is_one_file() -> None:
    """`kubectl apply -f` and `-k` give the same."""
    assert rendered(FOLDER / "base") == [_base()]


def test_default_follows_the_schema_and_passes_restricted() -> None:
    """Without exception."""
    _validate([_base()])
    assert violations(_pod([_base()])) == set()


def test_every_overlay_is_known() -> None:
    """The tests below take all of them."""
    assert {path.name for path in (FOLDER / "overlays").iterdir()} == set(EXCEPTIONS)


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_overlay_has_the_exceptions_that_it_names(name: str, tmp_path: Path) -> None:
    """It renders, follows the schema, takes what it says, and says what it costs."""
    objects = render(tmp_path, [name])
    _validate(objects)
    assert violations(_pod(objects)) == EXCEPTIONS[name]
    head = (FOLDER / "overlays" / name / "kustomization.yml").read_text().partition("kind:")[0]
    assert "# Gives: " in head
    assert "# Costs: " in head


def test_overlays_go_together(tmp_path: Path) -> None:
    """All of them at once have all exceptions and no other; `cupti` goes with all but one."""
    together = [name for name in EXCEPTIONS if name != "cupti"]
    objects = render(tmp_path, together)
    _validate(objects)
    assert violations(_pod(objects)) == set().union(*map(EXCEPTIONS.__getitem__, together))


def test_cupti_goes_with_all_overlays_but_the_one_it_names(tmp_path: Path) -> None:
    """Capabilities are a list, of which the last overlay's holds."""
    assert "`other-users`" in (FOLDER / "overlays" / "cupti" / "kustomization.yml").read_text()
    together = [name for name in EXCEPTIONS if name != "other-users"]
    objects = render(tmp_path, together)
    _validate(objects)
    assert violations(_pod(objects)) == set().union(*map(EXCEPTIONS.__getitem__, together))
    names = [each["name"] for each in _exporter(_pod(objects))["env"]]
    assert len(names) == len(set(names))


def test_example_renders() -> None:
    """It is what the documentation applies."""
    objects = rendered(FOLDER / "example")
    _validate(objects)
    assert {each["metadata"]["namespace"] for each in objects} == {"monitoring"}
    expected = EXCEPTIONS["holders"] | EXCEPTIONS["training"]
    assert violations(_pod(objects)) == expected


def test_images_of_overlays_are_the_default_ones(tmp_path: Path) -> None:
    """One image, whatever is chosen."""
    images = {each["image"] for each in containers(_pod(render(tmp_path, list(EXCEPTIONS))))}
    assert images == {_exporter(_pod([_base()]))["image"]}


def test_selects_its_own_pods(tmp_path: Path) -> None:
    """Otherwise the API server refuses it; the network policy selects the same."""
    daemonset, policy = render(tmp_path, ["network-policy"])
    labels = daemonset["spec"]["template"]["metadata"]["labels"]
    assert daemonset["spec"]["selector"]["matchLabels"] == labels
    assert policy["spec"]["podSelector"]["matchLabels"] == labels
    (rule,) = policy["spec"]["ingress"]
    (port,) = rule["ports"]
    assert port["port"] in {each["name"] for each in _exporter(_pod([daemonset]))["ports"]}
    assert policy["spec"]["egress"] == []
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]


def test_takes_no_gpu_from_jobs() -> None:
    """It requests none, and only its liveness is probed: a node with a lost GPU keeps it."""
    container = _exporter(_pod([_base()]))
    assert "nvidia.com/gpu" not in str(container["resources"])
    assert container["livenessProbe"]["httpGet"]["path"] == "/-/healthy"
    assert container["startupProbe"]["httpGet"] == container["livenessProbe"]["httpGet"]
    assert "readinessProbe" not in container


def test_default_has_few_rights() -> None:
    """Beyond the profile: nothing to write to, no token, limits, and no foreign variables."""
    pod = _pod([_base()])
    container = _exporter(pod)
    assert rights(pod)["runAsUser"] == 65532
    assert rights(container)["readOnlyRootFilesystem"] is True
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False, "ROOFLINE_EXPORTER_PORT is an unknown variable"
    assert container["resources"]["limits"] == {"memory": "256Mi"}
    assert "volumes" not in pod


def test_tls_asks_over_https(tmp_path: Path) -> None:
    """The probes too, and the Secret's files are for the exporter's group only."""
    pod = _pod(render(tmp_path, ["tls"]))
    container = _exporter(pod)
    for probe in ("startupProbe", "livenessProbe"):
        wanted = {"path": "/-/healthy", "port": "metrics", "scheme": "HTTPS"}
        assert container[probe]["httpGet"] == wanted
    (volume,) = pod["volumes"]
    assert volume["secret"]["defaultMode"] == 0o440
    assert rights(pod)["fsGroup"] == 65532
    (variable,) = (each for each in container["env"] if each["name"].endswith("CONFIG_FILE"))
    (mount,) = container["volumeMounts"]
    assert variable["value"].startswith(f"{mount['mountPath']}/")


def test_jobs_have_no_socket_but_with_the_overlay(tmp_path: Path) -> None:
    """The default looks for none; the overlay puts it where jobs look first."""
    assert {"name": "ROOFLINE_SOURCE_TRAINING", "value": "false"} in _exporter(_pod([_base()]))[
        "env"
    ]
    pod = _pod(render(tmp_path, ["training"]))
    (volume,) = pod["volumes"]
    assert volume["hostPath"]["path"] == "/run/roofline-exporter"
    assert {"name": "ROOFLINE_SOURCE_TRAINING", "value": "true"} in _exporter(pod)["env"]
    before, after = pod["initContainers"][0], _exporter(pod)
    assert before["volumeMounts"] == after["volumeMounts"]
    assert re.search(rf"chgrp {rights(pod)['runAsGroup']} \.", before["args"][0])


# The table of controls itself

GOOD: Mapping[str, Any] = {
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [
        {
            "name": "c",
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
            },
        }
    ],
    "volumes": [{"name": "s", "secret": {"secretName": "s"}}],
}
BAD: Sequence[tuple[str, Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]] = (
    ("HostProcess", {"windowsOptions": {"hostProcess": True}}, {}, {}),
    ("Host Namespaces", {}, {"hostPID": True}, {}),
    ("Host Namespaces", {}, {"hostNetwork": True}, {}),
    ("Host Namespaces", {}, {"hostIPC": True}, {}),
    ("Privileged Containers", {"privileged": True}, {}, {}),
    ("Capabilities", {"capabilities": {}}, {}, {}),
    ("Capabilities", {"capabilities": {"drop": ["ALL"], "add": ["SYS_PTRACE"]}}, {}, {}),
    ("HostPath Volumes", {}, {"volumes": [{"name": "h", "hostPath": {"path": "/"}}]}, {}),
    ("Host Ports", {}, {}, {"ports": [{"containerPort": 1, "hostPort": 1}]}),
    ("Host Probes / Lifecycle Hooks", {}, {}, {"livenessProbe": {"httpGet": {"host": "1.2.3.4"}}}),
    ("AppArmor", {"appArmorProfile": {"type": "Unconfined"}}, {}, {}),
    ("SELinux", {"seLinuxOptions": {"type": "spc_t"}}, {}, {}),
    ("SELinux", {"seLinuxOptions": {"role": "sysadm_r"}}, {}, {}),
    ("/proc Mount Type", {"procMount": "Unmasked"}, {}, {}),
    ("Sysctls", {}, {"securityContext": {"sysctls": [{"name": "kernel.shmmax"}]}}, {}),
    ("Volume Types", {}, {"volumes": [{"name": "n", "nfs": {}}]}, {}),
    ("Privilege Escalation", {"allowPrivilegeEscalation": True}, {}, {}),
    ("Running as Non-root", {"runAsNonRoot": False}, {}, {}),
    ("Running as Non-root user", {"runAsUser": 0}, {}, {}),
    ("Seccomp", {"seccompProfile": {"type": "Unconfined"}}, {}, {}),
    ("Seccomp", {}, {"securityContext": {"runAsNonRoot": True}}, {}),
)
"""A control; and what is added to a container's rights, the pod and the container to fail it."""


def test_a_good_pod_passes() -> None:
    """The one that the bad ones are made of."""
    assert violations(GOOD) == set()


@pytest.mark.parametrize(("control", "given", "pod", "container"), BAD)
def test_each_control_refuses(
    control: str, given: Mapping[str, Any], pod: Mapping[str, Any], container: Mapping[str, Any]
) -> None:
    """In a container, and in one that runs before it."""
    for kind in ("containers", "initContainers"):
        bad = copy.deepcopy(dict(GOOD)) | copy.deepcopy(dict(pod))
        changed = copy.deepcopy(GOOD["containers"][0]) | dict(container)
        changed["securityContext"] |= given
        bad[kind] = [changed]
        assert control in {name for name, _ in violations(bad)}


def test_each_control_has_a_case() -> None:
    """None of them is only believed to work."""
    assert {control for control, *_ in BAD} == set(CONTROLS)

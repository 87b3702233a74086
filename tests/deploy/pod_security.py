# SPDX-License-Identifier: Apache-2.0
"""The *restricted* Pod Security profile, which contains the *baseline*, as a table of checks.

https://kubernetes.io/docs/concepts/security/pod-security-standards/ (Linux pods; the names of
the controls are those of that page). Sysctls and SELinux options, of which the profile lets some
through, are all named: ours has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

Pod = Mapping[str, Any]
Check = Callable[[Pod], Iterable[str]]

SAFE_CAPABILITIES = {"NET_BIND_SERVICE"}
SAFE_VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
SAFE_SECCOMP = {"RuntimeDefault", "Localhost"}
SAFE_APPARMOR = {None, "RuntimeDefault", "Localhost"}


def containers(pod: Pod) -> Iterator[Mapping[str, Any]]:
    """Every container of a pod, those that run before and beside it as well."""
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        yield from pod.get(kind, ())


def rights(holder: Mapping[str, Any]) -> Mapping[str, Any]:
    """The security context of a pod or a container."""
    found: Mapping[str, Any] = holder.get("securityContext", {})
    return found


def _in_containers(says: Callable[[Mapping[str, Any]], str | None]) -> Check:
    def check(pod: Pod) -> Iterator[str]:
        for container in containers(pod):
            said = says(container)
            if said is not None:
                yield f"{container['name']}: {said}"

    return check


def _in_all(says: Callable[[Mapping[str, Any]], str | None]) -> Check:
    """A check of the pod's security context and of each container's."""

    def check(pod: Pod) -> Iterator[str]:
        for holder in (pod, *containers(pod)):
            said = says(rights(holder))
            if said is not None:
                yield f"{holder.get('name', 'pod')}: {said}"

    return check


def _host_namespaces(pod: Pod) -> Iterator[str]:
    return (f"pod: {name}" for name in ("hostNetwork", "hostPID", "hostIPC") if pod.get(name))


def _volume_types(pod: Pod) -> Iterator[str]:
    for volume in pod.get("volumes", ()):
        for kind in set(volume) - {"name"} - SAFE_VOLUMES:
            yield f"pod: {kind}"


def _host_path(pod: Pod) -> Iterator[str]:
    return ("pod: hostPath" for volume in pod.get("volumes", ()) if "hostPath" in volume)


def _run_as_non_root(pod: Pod) -> Iterator[str]:
    whole = rights(pod).get("runAsNonRoot")
    for container in containers(pod):
        if rights(container).get("runAsNonRoot", whole) is not True:
            yield f"{container['name']}: runAsNonRoot is not true"


def _seccomp(pod: Pod) -> Iterator[str]:
    whole = rights(pod).get("seccompProfile", {}).get("type")
    for container in containers(pod):
        kind = rights(container).get("seccompProfile", {}).get("type", whole)
        if kind not in SAFE_SECCOMP:
            yield f"{container['name']}: seccompProfile {kind}"


def _host_ports(container: Mapping[str, Any]) -> str | None:
    return "hostPort" if any(port.get("hostPort") for port in container.get("ports", ())) else None


def _capabilities(container: Mapping[str, Any]) -> str | None:
    given = rights(container).get("capabilities", {})
    if "ALL" not in given.get("drop", ()):
        return "does not drop ALL capabilities"
    added = sorted(set(given.get("add", ())) - SAFE_CAPABILITIES)
    return f"adds {' '.join(added)}" if added else None


def _host_probes(container: Mapping[str, Any]) -> str | None:
    hooks = container.get("lifecycle", {})
    handlers = [container.get(f"{kind}Probe", {}) for kind in ("liveness", "readiness", "startup")]
    handlers += [hooks.get("postStart", {}), hooks.get("preStop", {})]
    named = any(
        each.get(way, {}).get("host") for each in handlers for way in ("httpGet", "tcpSocket")
    )
    return "a probe or hook names a host" if named else None


def _sysctls(pod: Pod) -> Iterator[str]:
    return (f"pod: sysctl {each['name']}" for each in rights(pod).get("sysctls", ()))


def _selinux(given: Mapping[str, Any]) -> str | None:
    return "seLinuxOptions" if given.get("seLinuxOptions") else None


def _apparmor(given: Mapping[str, Any]) -> str | None:
    kind = given.get("appArmorProfile", {}).get("type")
    return None if kind in SAFE_APPARMOR else f"appArmorProfile {kind}"


CONTROLS: Mapping[str, Check] = {
    "Host Namespaces": _host_namespaces,
    "Privileged Containers": _in_containers(
        lambda container: "privileged" if rights(container).get("privileged") else None
    ),
    "Capabilities": _in_containers(_capabilities),
    "HostPath Volumes": _host_path,
    "Host Ports": _in_containers(_host_ports),
    "Host Probes / Lifecycle Hooks": _in_containers(_host_probes),
    "AppArmor": _in_all(_apparmor),
    "SELinux": _in_all(_selinux),
    "/proc Mount Type": _in_containers(
        lambda container: (
            "procMount" if rights(container).get("procMount", "Default") != "Default" else None
        )
    ),
    "Sysctls": _sysctls,
    "Volume Types": _volume_types,
    "Privilege Escalation": _in_containers(
        lambda container: (
            None
            if rights(container).get("allowPrivilegeEscalation") is False
            else "allowPrivilegeEscalation is not false"
        )
    ),
    "Running as Non-root": _run_as_non_root,
    "Running as Non-root user": _in_all(
        lambda given: "runAsUser is 0" if given.get("runAsUser") == 0 else None
    ),
    "Seccomp": _seccomp,
}


def violations(pod: Pod) -> set[tuple[str, str]]:
    """What a pod does that the profile forbids: the control, and who does what."""
    return {(control, said) for control, check in CONTROLS.items() for said in check(pod)}

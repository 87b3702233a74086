# SPDX-License-Identifier: Apache-2.0
"""The compose files: readable by docker-compose 1.29 and by v2, pinned, closed to others."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.containers import compose_command
from tests.programs import ended, said

DEPLOY = Path(__file__).parents[2] / "deploy"
BASE, GPU = DEPLOY / "docker-compose.yml", DEPLOY / "docker-compose.gpu.yml"
CAPABILITIES = {
    "cupti": {"PERFMON"},
    "host-jobs": set(),
    "kernel-log": {"SYSLOG"},
    "other-users": {"SYS_PTRACE", "DAC_READ_SEARCH"},
    "tls": set(),
}
"""What each overlay adds."""
OVERLAYS = {name: DEPLOY / f"docker-compose.{name}.yml" for name in CAPABILITIES}
FILES = [BASE, GPU, *OVERLAYS.values()]

SCHEMA = "vendor.compose-spec"


def _services(path: Path = BASE) -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load(path.read_text())["services"]
    return services


def test_files_follow_the_compose_specification() -> None:
    """Every key is known and has the right shape."""
    said(sys.executable, "-m", "check_jsonschema", "--builtin-schema", SCHEMA, *FILES)


def test_every_file_is_known() -> None:
    """The tests below take all of them."""
    assert set(DEPLOY.glob("docker-compose*.yml")) == set(FILES)


@pytest.mark.parametrize(
    "files",
    [
        [BASE],
        [BASE, GPU],
        *(pytest.param([BASE, GPU, path], marks=pytest.mark.slow) for path in OVERLAYS.values()),
        FILES,
    ],
    ids=["demo", "gpu", *OVERLAYS, "all"],
)
def test_files_are_read_by_compose(files: list[Path]) -> None:
    """The Compose that is here reads them, alone and together."""
    names = [word for file in files for word in ("--file", str(file))]
    done = ended(*compose_command(), *names, "config")
    assert done.returncode == 0, done.stderr
    assert "warn" not in done.stderr.lower()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_nothing_newer_than_1_29(path: Path) -> None:
    """Keys that docker-compose 1.29 refuses, or that v2 warns of, are not used."""
    document = yaml.safe_load(path.read_text())
    assert set(document) <= {"services", "volumes", "networks"}
    for name, service in document["services"].items():
        newer = {"gpus", "pull_policy", "develop", "attach", "post_start", "pre_stop"}
        assert not newer & set(service), name
        assert "start_interval" not in service.get("healthcheck", {}), name
        for port in service.get("ports", []):
            assert isinstance(port, str), name


def test_images_are_pinned() -> None:
    """By a whole version, and those of others by digest: what runs today runs tomorrow."""
    for name, service in _services().items():
        image, _, digest = service["image"].rstrip("}").partition("@")
        assert image.rpartition(":")[2].lstrip("v").count(".") == 2, name
        assert name == "exporter" or re.fullmatch("sha256:[0-9a-f]{64}", digest), name


def test_ports_are_open_on_loopback_only() -> None:
    """A variable may open a port to others; Grafana's, which asks for no password, has none."""
    for name, service in _services().items():
        for port in service["ports"]:
            address = f"${{{name.upper()}_ADDRESS:-127.0.0.1}}:"
            assert port.startswith("127.0.0.1:" if name == "grafana" else address), name
    assert _services()["grafana"]["environment"]["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"


def test_every_service_has_a_healthcheck_and_comes_back() -> None:
    """The exporter's is in its image."""
    for name, service in _services().items():
        assert name == "exporter" or "healthcheck" in service
        assert service["restart"] == "unless-stopped"
        assert service["cap_drop"] == ["ALL"]


def test_mounted_folders_exist() -> None:
    """Docker would make what is missing, as root."""
    for name, service in _services().items():
        for volume in service.get("volumes", []):
            # Of `${NAME:-default}` the default.
            source = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", volume).split(":")[0]
            assert not source.startswith(".") or (BASE.parent / source).is_dir(), name


def test_exporter_runs_without_rights() -> None:
    """As a user that is not root, and within limits; the file for GPUs adds no right."""
    service = _services()["exporter"]
    assert service["user"] == "65532:65532"
    assert (service["mem_limit"], service["pids_limit"]) == ("256m", 128)
    assert service["read_only"] is True
    assert service["security_opt"] == ["no-new-privileges:true"]
    added = {"cap_add", "user", "privileged", "devices", "security_opt", "group_add"}
    assert not added & set(_services(GPU)["exporter"])


def test_gpu_file_reaches_the_node() -> None:
    """The GPUs by reservation, the host's processes, and a volume for reports; no host path."""
    service = _services(GPU)["exporter"]
    (device,) = service["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["count"]) == ("nvidia", "all")
    assert "utility" in device["capabilities"]
    assert service["pid"] == "host"
    assert service["environment"]["ROOFLINE_DEMO"] == "false"
    assert service["volumes"] == ["training:/run/roofline-exporter"]
    volumes = yaml.safe_load(GPU.read_text())["volumes"]
    assert volumes == {"training": {"name": "roofline-exporter-training"}}


@pytest.mark.parametrize("name", OVERLAYS)
def test_overlay_gives_what_it_names(name: str) -> None:
    """It says what it gives and costs, and root is only where a capability needs it."""
    text = OVERLAYS[name].read_text()
    head = text.partition("services:")[0]
    assert "# Gives: " in head
    assert "# Costs: " in head
    service = yaml.safe_load(text)["services"]["exporter"]
    assert set(service.get("cap_add", [])) == CAPABILITIES[name]
    assert ("user" in service) == bool(CAPABILITIES[name])
    assert not {"privileged", "pid", "network_mode", "cap_drop"} & set(service)


def test_stack_with_tls_differs_in_tls_only() -> None:
    """Prometheus keeps its other flags, and its other jobs."""
    plain, other = _services()["prometheus"], _services(OVERLAYS["tls"])["prometheus"]
    assert other["command"][1:] == plain["command"][1:]
    folder = DEPLOY / "prometheus"
    ours = yaml.safe_load((folder / "prometheus-tls.yml").read_text())
    for job in ours["scrape_configs"]:
        if job["job_name"] == "roofline-exporter":
            assert job.pop("scheme") == "https"
            assert job.pop("tls_config")
            assert job.pop("basic_auth")["username"] == "prometheus"
    assert ours == yaml.safe_load((folder / "prometheus.yml").read_text())
    assert other["command"][0] == "--config.file=/etc/prometheus/prometheus-tls.yml"

# SPDX-License-Identifier: Apache-2.0
"""The chart, by a real Helm: what it renders, refuses, packs and documents."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import bcrypt
import pytest
import yaml
from cryptography import x509

from deploy.prometheus import render_rules
from deploy.prometheus.prices import NONE as NO_PRICES
from deploy.prometheus.prices import load as load_prices
from deploy.prometheus.thresholds import load
from exporter import __version__
from exporter.cli.config.flags import FLAGS
from tests.cli.outcomes import outcome
from tests.deploy.helm import CHART, NAME, ROOT, Values, helm, objects, refusal, rendering
from tests.deploy.kubectl import VERSIONS, Object, exporter_of, of_kind, pod_of, validate
from tests.deploy.pod_security import rights, violations
from tests.programs import said

GOLDEN = ROOT / "tests" / "golden" / "helm"
RULES = ROOT / "deploy" / "prometheus" / "rules"
DASHBOARDS = ROOT / "deploy" / "grafana" / "dashboards"
AT_SCALE = DASHBOARDS.with_name("dashboards-at-scale")
GUIDE = (ROOT / "docs" / "helm.md").read_text()
DEFAULTS: Mapping[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: Mapping[str, Any] = json.loads((CHART / "values.schema.json").read_text())
DRA_VERSIONS = ("1.34.0", "1.37.0")
OPERATOR = "monitoring.coreos.com/v1"
MEBIBYTE = 1 << 20
HASH = "$2y$10$XKgrmF.2fbb/sIcE/GaNgOBVFSTt5nUqLtOHVHDvwW6fNx1BMdyYW"
ON = {"enabled": True}
MOST_CRONJOB_NAME = 52
SELECTED = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/instance": NAME}

MATRIX: Mapping[str, Values] = {
    "dra": {
        "dra": {"enabled": True},
        "kubernetes": {"enabled": False},
        "service": {"enable": False},
    },
    "secured": {
        "basicAuth": {"users": {"prometheus": HASH}},
        "tlsServerConfig": {
            "enabled": True,
            "existingSecret": "exporter-tls",
            "clientAuthType": "RequireAndVerifyClientCert",
        },
        "networkPolicy": {"enabled": True},
        "serviceMonitor": {
            "enabled": True,
            "additionalLabels": {"release": "prometheus"},
            "relabelings": [{"targetLabel": "cluster", "replacement": "berlin"}],
            "metricRelabelings": [{"regex": "command", "action": "labeldrop"}],
            "tlsConfig": {"serverName": "exporter"},
        },
    },
    "reported": {
        "service": {"enable": False},
        "report": {
            "enabled": True,
            "prometheusUrl": "http://prometheus-operated.monitoring:9090",
            "timeZone": "Europe/Berlin",
            "tokenSecret": "prometheus-token",
            "volume": {"persistentVolumeClaim": {"claimName": "reports"}},
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "tolerations": [{"operator": "Exists"}],
        },
    },
    "like-dcgm-exporter": {
        "image": {"tag": "0.2.0", "digest": f"sha256:{'ab' * 32}", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "registry"}],
        "arguments": ["--metrics.level=core"],
        "hostPID": True,
        "runtimeClassName": "",
        "priorityClassName": "",
        "serviceAccount": {"create": False, "name": "monitor"},
        "rollingUpdate": {"maxUnavailable": "10%"},
        "podLabels": {"team": "sre", "app.kubernetes.io/name": "no-way"},
        "podAnnotations": {"prometheus.io/scrape": "true"},
        "securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "p.json"}},
        "service": {"port": 9400, "address": ":9400", "internalTrafficPolicy": "Local"},
        "kubernetes": {"enablePodLabels": True, "podLabelAllowlistRegex": ["app", "team/.*"]},
        "kubeletPath": "/data/kubelet/pod-resources/",
        "podMonitor": {"enabled": True, "dcgm": True},
        "extraHostVolumes": [{"name": "specs", "hostPath": "/etc/gpus"}],
        "extraConfigMapVolumes": [{"name": "config", "configMap": {"name": "config"}}],
        "extraVolumeMounts": [{"name": "config", "mountPath": "/etc/config"}],
        "extraEnv": [{"name": "ROOFLINE_METRICS_LEVEL", "value": "core"}],
        "gpuOperator": {"waitForToolkit": True},
        "training": {"enabled": True},
        "nodeSelector": {"nvidia.com/gpu.deploy.dcgm-exporter": "true"},
        "readinessProbe": {"initialDelaySeconds": 45},
        "livenessProbe": {"tcpSocket": {"port": "metrics"}},
    },
}
"""Values by the name of the golden file; what the default gives is in deploy/kubernetes/base."""


def _by_name(made: Sequence[Object]) -> dict[str, Object]:
    return {each["metadata"]["name"]: each for each in made}


def _environment(made: Sequence[Object]) -> dict[str, str]:
    """The variables of the exporter that are words."""
    return {each["name"]: each["value"] for each in exporter_of(made)["env"] if "value" in each}


def _affinity(**affinity: Any) -> Any:
    return pod_of(objects({"affinity": affinity}))["affinity"]


# What it renders


def test_helm_finds_nothing_wrong() -> None:
    """With warnings as errors."""
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout
    assert "[ERROR]" not in done.stdout


@pytest.mark.parametrize("name", MATRIX)
def test_rendering_is_the_golden_one(name: str) -> None:
    """``UPDATE_GOLDEN=1`` writes the files anew; what changed is then in the diff."""
    golden = GOLDEN / f"{name}.yaml"
    made = objects(MATRIX[name])
    if os.environ.get("UPDATE_GOLDEN") == "1":
        golden.write_text(yaml.safe_dump_all(made, sort_keys=False), encoding="utf-8")
    assert made == list(yaml.safe_load_all(golden.read_text()))


def test_every_golden_file_is_of_a_case() -> None:
    """None of them is left over."""
    assert {path.stem for path in GOLDEN.iterdir()} == set(MATRIX)


@pytest.mark.parametrize("name", MATRIX)
def test_objects_follow_the_schema(name: str) -> None:
    """Of the oldest and the newest Kubernetes; the Prometheus operator's are looked at below."""
    made = [each for each in objects(MATRIX[name]) if each["apiVersion"] != OPERATOR]
    validate(made, DRA_VERSIONS if name == "dra" else VERSIONS)


def test_without_kubernetes_it_passes_restricted() -> None:
    """With passwords, certificates and a claim, too."""
    off: Values = {"kubernetes": {"enabled": False}}
    for values in (off, {**MATRIX["secured"], **off}, MATRIX["dra"]):
        assert violations(pod_of(objects(values))) == set()


@pytest.mark.parametrize(
    ("values", "added"),
    [
        ({"hostPID": True}, {"Host Namespaces"}),
        ({"hostNetwork": True}, {"Host Namespaces"}),
        ({"gpuOperator": {"waitForToolkit": True}}, {"HostPath Volumes", "Volume Types"}),
        ({"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}, {"Capabilities"}),
    ],
    ids=["hostPID", "hostNetwork", "waitForToolkit", "capabilities"],
)
def test_a_value_takes_no_more_than_it_says(values: Values, added: set[str]) -> None:
    """What is laid over a security context leaves the rest of it."""
    found = violations(pod_of(objects({"kubernetes": {"enabled": False}, **values})))
    assert {control for control, _ in found} == added


def test_null_takes_a_right_off() -> None:
    """As OpenShift wants it, which chooses the user itself."""
    values = {"podSecurityContext": {"runAsUser": None}, "kubernetes": {"enabled": False}}
    assert "runAsUser" not in rights(pod_of(objects(values)))
    assert rights(pod_of(objects(values)))["runAsNonRoot"] is True


def test_group_of_the_socket_instead_of_its_owner() -> None:
    """As docs/helm.md has it, where the kubelet's socket lets a group in."""
    (example,) = re.findall(r"```yaml\n(podSecurityContext:.*?)```", GUIDE, re.DOTALL)
    found = {control for control, _ in violations(pod_of(objects(yaml.safe_load(example))))}
    assert found == {"HostPath Volumes", "Volume Types"}


# Where it runs

CLIENT = "nvidia.com/gpu.deploy.client"
MAY_STAY: Sequence[Object] = (
    {"key": CLIENT, "operator": "In", "values": ["true"]},
    {"key": CLIENT, "operator": "DoesNotExist"},
)
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def test_own_affinity_holds_beside_the_label_of_clients() -> None:
    """Terms are alternatives: each of the user's is there with each of the two."""
    here = {"key": "zone", "operator": "In", "values": ["a"]}
    name = {"key": "metadata.name", "operator": "In", "values": ["gpu-1"]}
    weighed = [{"weight": 1, "preference": {"matchExpressions": [here]}}]
    apart = {REQUIRED: [{"topologyKey": "kubernetes.io/hostname"}]}
    terms = [{"matchExpressions": [here]}, {"matchFields": [name]}]
    made = _affinity(
        nodeAffinity={REQUIRED: {"nodeSelectorTerms": terms}, PREFERRED: weighed},
        podAntiAffinity=apart,
    )
    assert made["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] == [
        *({"matchExpressions": [here, each]} for each in MAY_STAY),
        *({"matchExpressions": [each], "matchFields": [name]} for each in MAY_STAY),
    ]
    assert made["nodeAffinity"][PREFERRED] == weighed
    assert made["podAntiAffinity"] == apart


def test_preferences_alone_leave_the_label_required() -> None:
    """A user who names no term gets both."""
    made = _affinity(nodeAffinity={PREFERRED: []})
    assert made["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] == [
        {"matchExpressions": [each]} for each in MAY_STAY
    ]


DRA_LABEL = "nvidia.com/gpu.deploy.dcgm-exporter-dra"


@pytest.mark.parametrize(
    ("values", "selected"),
    [
        ({}, {}),
        ({"gpuOperator": {"clientLabel": True}}, {CLIENT: "true"}),
        ({"dra": {"enabled": True}}, {DRA_LABEL: "true"}),
        # Nodes of claims have no label of clients: with both there would be no pods.
        ({"dra": {"enabled": True}, "gpuOperator": {"clientLabel": True}}, {DRA_LABEL: "true"}),
        ({"dra": {"enabled": True}, "nodeSelector": {DRA_LABEL: None}}, {}),
    ],
    ids=["neither", "clients", "claims", "both", "claims without the operator"],
)
def test_who_changes_the_driver_waits_for_the_pod(
    values: Values, selected: Mapping[str, str]
) -> None:
    """The managers look at the node selector of a DaemonSet's pods, and at nothing else."""
    pod = pod_of(objects(values))
    assert pod["nodeSelector"] == {"nvidia.com/gpu.present": "true", **selected}
    terms = pod["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert terms == [{"matchExpressions": [each]} for each in MAY_STAY]


# What monitors it


def _endpoints(made: Sequence[Object], kind: str) -> list[Object]:
    spec = of_kind(made, kind)["spec"]
    assert spec["selector"]["matchLabels"] == SELECTED
    found: list[Object] = spec["endpoints" if kind == "ServiceMonitor" else "podMetricsEndpoints"]
    return found


def test_monitors_find_the_port() -> None:
    """By its name, which Service and pod have; and every instance is its node's."""
    for key, kind in (("serviceMonitor", "ServiceMonitor"), ("podMonitor", "PodMonitor")):
        made = objects({key: {"enabled": True}})
        ports = {each["name"] for each in of_kind(made, "Service")["spec"]["ports"]}
        ports &= {each["name"] for each in exporter_of(made)["ports"]}
        assert of_kind(made, kind)["apiVersion"] == OPERATOR
        (endpoint,) = _endpoints(made, kind)
        assert endpoint.pop("port") in ports
        assert endpoint == {
            "path": "/metrics",
            "scheme": "http",
            "interval": "15s",
            "scrapeTimeout": "10s",
            "honorLabels": False,
            "relabelings": [
                {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "instance"}
            ],
        }


def test_two_pages_of_a_pod_are_two_targets() -> None:
    """Their labels differ, else `up` would be there twice."""
    made = objects({"podMonitor": {"enabled": True, "dcgm": True}})
    one, other = _endpoints(made, "PodMonitor")
    assert other["path"] == "/metrics/dcgm"
    added = [each for each in other["relabelings"] if each not in one["relabelings"]]
    assert added == [{"sourceLabels": ["__metrics_path__"], "targetLabel": "metrics_path"}]


@cache
def _monitored(*, at_scale: bool = False) -> list[Object]:
    return objects(
        {
            "prometheusRule": {
                "enabled": True,
                "queries": True,
                "grafanaUrl": "https://grafana.example.com/",
                "additionalLabels": {"release": "prometheus"},
            },
            "dashboards": {"enabled": True, "namespace": "grafana", "atScale": at_scale},
        }
    )


JOB_OR_DAEMONSET = {"job": f'job=~"(.+/)?{NAME}"', "daemonset": f'daemonset="{NAME}"'}


def _rules() -> Iterator[tuple[Path, Object]]:
    made = _by_name(_monitored(at_scale=True))
    for path in sorted(RULES.glob("*.yml")):
        yield path, made[f"{NAME}-{path.stem}"]


def test_rules_are_those_of_the_files() -> None:
    """All of them, with links to the Grafana that is there."""
    for path, rule in _rules():
        assert (rule["apiVersion"], rule["kind"]) == (OPERATOR, "PrometheusRule")
        assert rule["metadata"]["labels"]["release"] == "prometheus"
        values = {**load(), "links.grafana": "https://grafana.example.com"}
        text = render_rules.rules(values)[path.name]
        for name in ("job", "daemonset"):
            text = text.replace(f'{name}=~"{values["exporter.job"]}"', JOB_OR_DAEMONSET[name])
        assert rule["spec"] == yaml.safe_load(text)
        assert "localhost" not in json.dumps(rule)


@pytest.mark.parametrize("name", ["roofline-exporter", "gpus"])
def test_rules_know_what_the_operator_calls_the_job(name: str) -> None:
    """NAMESPACE/NAME of a PodMonitor, the Service of a ServiceMonitor: whatever the release's name
    is, and unless somebody says otherwise. No link leads to a Grafana that nobody named."""
    on: Values = {"prometheusRule": {"enabled": True}, "fullnameOverride": name}
    for values, found in (
        (on, f'up{{job=~"(.+/)?{name}"}}'),
        ({**on, "prometheusRule": {"enabled": True, "job": r"gpu-\d+"}}, r'up{job=~"gpu-\\d+"}'),
    ):
        rules = _by_name(objects(values))[f"{name}-alerts"]
        alerts = {
            rule["alert"]: rule for group in rules["spec"]["groups"] for rule in group["rules"]
        }
        assert found in alerts["GpuExporterDown"]["expr"]
        assert f'daemonset="{name}"' in alerts["GpuExporterMissing"]["expr"]
        assert not any("dashboard_url" in rule["annotations"] for rule in alerts.values())


def _pages(folder: Path) -> dict[str, Any]:
    """The dashboards of a folder by their names in the cluster."""
    found = folder.glob("*.json")
    return {f"roofline-{path.name}": json.loads(path.read_text()) for path in found}


def test_dashboards_are_those_of_the_files() -> None:
    """Each in an object of its own, which Grafana's sidecar finds and the API server takes."""
    made = [each for each in _monitored() if each["kind"] == "ConfigMap"]
    files: dict[str, str] = {}
    validate(made, VERSIONS[:1])
    for each in made:
        assert each["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert each["metadata"]["namespace"] == "grafana"
        assert len(json.dumps(each)) < MEBIBYTE
        assert len(json.dumps(each)) < 262144, "what kubectl apply keeps of an object"
        files |= each["data"]
    assert {name: json.loads(text) for name, text in files.items()} == _pages(DASHBOARDS)
    assert len(made) == len(files)


def _price_rule(values: Values) -> Object:
    on = {"prometheusRule": {"enabled": True, **values}}
    rules = _by_name(objects(on))[f"{NAME}-recording"]
    found: list[Object] = [
        rule
        for group in rules["spec"]["groups"]
        for rule in group["rules"]
        if rule.get("record") == "model:gpu_price_per_hour:max"
    ]
    return found[0]


def test_prices_are_those_of_the_values(tmp_path: Path) -> None:
    """The rule is the one that prices.yml gives; without prices nothing has a cost."""
    prices = {"NVIDIA H100 80GB HBM3": 2.5, "NVIDIA A100-SXM4-80GB MIG": 0, "Tesla T4": 1e6}
    file = tmp_path / "prices.yml"
    file.write_text(yaml.safe_dump({"currency": "USD", "per_gpu_hour": prices}), "utf-8")
    wanted = load_prices(file)
    rule = _price_rule({"pricePerGpuHour": prices, "currency": "USD"})
    assert rule["labels"] == {"currency": wanted["prices.currency"]}
    parts = str(wanted["prices.by_model"]).replace("1000000", "1e+06").split("or")
    assert {part.strip() for part in parts} == {each.strip() for each in rule["expr"].split("or")}
    assert _price_rule({})["expr"].strip() == NO_PRICES
    for name, price in (('a"b', 1), ("T4", -1), ("T4", "2.5")):
        assert name in refusal({"prometheusRule": {"pricePerGpuHour": {name: price}}})


def test_series_for_own_queries_are_a_choice() -> None:
    """Nothing of the chart reads them."""
    names = _by_name(objects({"prometheusRule": ON})).keys()
    assert f"{NAME}-recording" in names
    assert not {f"{NAME}-queries", f"{NAME}-scale"} & names
    chosen = _by_name(objects({"prometheusRule": {**ON, "queries": True}}))
    assert chosen.keys() - names == {f"{NAME}-queries"}


def test_dashboards_at_scale_come_with_the_rules_that_they_read() -> None:
    """One value chooses both: the pages in the place of the others, and what is recorded."""
    at_scale = {"enabled": True, "atScale": True}
    made = objects({"prometheusRule": ON, "dashboards": at_scale})
    files = [each["data"] for each in made if each["kind"] == "ConfigMap"]
    found = {name: json.loads(text) for data in files for name, text in data.items()}
    assert found == _pages(AT_SCALE)
    names = _by_name(made)
    assert f"{NAME}-scale" in names
    assert f"{NAME}-queries" not in names


# The report


def _report(made: Sequence[Object]) -> Object:
    pod: Object = of_kind(made, "CronJob")["spec"]["jobTemplate"]["spec"]["template"]
    return pod


def test_report_is_off_and_needs_a_prometheus() -> None:
    """The name that is missing is said."""
    assert all(each["kind"] != "CronJob" for each in objects())
    assert "report.prometheusUrl is missing" in refusal({"report": {"enabled": True}})
    assert "prometheusUrl" in refusal({"report": {"enabled": True, "prometheusUrl": "host:9090"}})


def test_report_is_no_exporter() -> None:
    """Nothing selects its pods, they have no right and no GPU, and any name is short enough."""
    made = objects({**MATRIX["reported"], "service": {"enable": True}, "networkPolicy": ON})
    pod = _report(made)
    for selected in (
        of_kind(made, "Service")["spec"]["selector"],
        of_kind(made, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        of_kind(made, "DaemonSet")["spec"]["selector"]["matchLabels"],
    ):
        assert not selected.items() <= pod["metadata"]["labels"].items()
    assert violations(pod["spec"]) == set()
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in pod["spec"]["containers"][0][
        "env"
    ]
    long = objects({**MATRIX["reported"], "fullnameOverride": "x" * 63})
    assert len(of_kind(long, "CronJob")["metadata"]["name"]) == MOST_CRONJOB_NAME


def test_report_runs_with_the_words_it_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    """The command takes all of them; nobody answers at this address."""
    values = {"enabled": True, "prometheusUrl": "http://127.0.0.1:1", "volume": {"emptyDir": {}}}
    (container,) = _report(objects({"report": values}))["spec"]["containers"]
    assert "--output=/reports" in container["args"]
    code, out, err = outcome(capsys, *container["args"])
    assert (code, out) == (1, "")
    assert "http://127.0.0.1:1/api/v1/query_range" in err
    assert "volumes" not in _report(objects({"report": {**values, "volume": None}}))["spec"]


# HTTPS and passwords


def _web(made: Sequence[Object]) -> Any:
    return yaml.safe_load(_by_name(made)[f"{NAME}-web"]["stringData"]["web.yml"])


def _check_config(environment: Mapping[str, str], *words: str) -> None:
    """The exporter itself takes its configuration."""
    environment = {"PATH": os.environ["PATH"], **environment}
    said(sys.executable, "-m", "exporter", "check-config", *words, env=environment, cwd=ROOT)


def test_passwords_are_kept_as_hashes_that_the_exporter_reads(tmp_path: Path) -> None:
    """One that is a hash already stays; the Secret is mounted where the exporter looks."""
    made = objects({"basicAuth": {"users": {"ada": "a long word", "bob": HASH}}})
    users = _web(made)["basic_auth_users"]
    assert users["bob"] == HASH
    assert bcrypt.checkpw(b"a long word", users["ada"].encode())
    assert "a long word" not in json.dumps(made)
    web = tmp_path / "web.yml"
    web.write_text(yaml.safe_dump(_web(made)), encoding="utf-8")
    _check_config({"ROOFLINE_WEB_CONFIG_FILE": str(web)})
    (mount,) = (each for each in exporter_of(made)["volumeMounts"] if each["name"] == "web")
    assert _environment(made)["ROOFLINE_WEB_CONFIG_FILE"] == f"{mount['mountPath']}/web.yml"


def test_own_certificate_belongs_to_its_key_and_name(tmp_path: Path) -> None:
    """The exporter serves it, and the monitor trusts its authority, by its name."""
    made = objects({"tlsServerConfig": {"enabled": True}, "podMonitor": {"enabled": True}})
    secret = _by_name(made)[f"{NAME}-tls"]
    files = {name: base64.b64decode(data) for name, data in secret["data"].items()}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    served = _web(made)["tls_server_config"]
    own = {key: Path(path).name for key, path in served.items()}
    (tmp_path / "web.yml").write_text(yaml.safe_dump({"tls_server_config": own}), "utf-8")
    _check_config({"ROOFLINE_WEB_CONFIG_FILE": str(tmp_path / "web.yml")})
    (endpoint,) = _endpoints(made, "PodMonitor")
    assert endpoint["scheme"] == "https"
    trusted = endpoint["tlsConfig"]["ca"]["secret"]
    certificate = x509.load_pem_x509_certificate(files["tls.crt"])
    authority = x509.load_pem_x509_certificate(files[trusted["key"]])
    certificate.verify_directly_issued_by(authority)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [endpoint["tlsConfig"]["serverName"]]


def test_probes_ask_as_the_page_is_served() -> None:
    """Over HTTPS; where clients need a certificate, which the kubelet has none of, by the port."""
    for values, wanted in (
        ({}, "HTTP"),
        ({"tlsServerConfig": {"enabled": True}}, "HTTPS"),
        ({"webConfig": {"existingSecret": "web"}}, "HTTPS"),
        ({"webConfig": {"existingSecret": "web", "scheme": "HTTP"}}, "HTTP"),
    ):
        container = exporter_of(objects(values))
        for probe in ("startupProbe", "livenessProbe"):
            assert container[probe]["httpGet"]["scheme"] == wanted
        assert "readinessProbe" not in container
    container = exporter_of(objects(MATRIX["secured"]))
    assert container["startupProbe"]["tcpSocket"] == {"port": "metrics"}
    assert "httpGet" not in container["livenessProbe"]


@pytest.mark.parametrize("name", MATRIX)
def test_the_exporter_reads_what_it_is_given(name: str) -> None:
    """Every variable and every argument is one of its own."""
    made = objects(MATRIX[name])
    given = _environment(made)
    given.pop("ROOFLINE_WEB_CONFIG_FILE", None)  # its file is not here
    _check_config(given, *exporter_of(made).get("args", ()))


def _notes(*values: str) -> str:
    done = helm(
        "install", NAME, str(CHART), "--dry-run=client", *(f"--set={each}" for each in values)
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("\nNOTES:\n")[2]


def test_level_is_core_unless_somebody_says_more() -> None:
    """Once: a list of variables in which one is there twice is refused by the API server."""
    own, given = "ROOFLINE_METRICS_LEVEL", [{"name": "ROOFLINE_METRICS_LEVEL", "value": "full"}]
    for values, level in (
        ({}, "core"),
        ({"metricsLevel": "full"}, "full"),
        ({"extraEnv": given}, "full"),
    ):
        made = objects(values)
        assert [e["value"] for e in exporter_of(made)["env"] if e["name"] == own] == [level]
    _check_config(_environment(objects()))
    notes = _notes("prometheusRule.enabled=true")
    assert "need more than metricsLevel=core: docs/helm.md#core-or-full" in notes
    assert "metricsLevel" not in _notes("prometheusRule.enabled=true", "metricsLevel=full")


def test_notes_say_what_is_left_to_do() -> None:
    """Of the namespace's two labels, and of what scrapes it; nothing where nothing is left."""
    notes = _notes("dra.enabled=true", "hostPID=true", "service.address=:9400")
    assert "kubectl label namespace default resource.kubernetes.io/admin-access=true" in notes
    assert 'profile is "privileged", because of: kubernetes.enabled hostPID\n' in notes
    assert "Nothing scrapes it yet" in notes
    assert "http://localhost:9400/" in notes
    notes = _notes(
        "kubernetes.enabled=false", "podMonitor.enabled=true", "tlsServerConfig.enabled=true"
    )
    assert "https://localhost:19400/" in notes
    assert not re.search("privileged|scrapes|label namespace", notes)


def test_kubelets_sockets_are_mounted_where_they_are_looked_for() -> None:
    """Wherever the kubelet's root is; that of the pods API only for those who ask for it."""
    defaults = {flag.name: flag.default for flag in FLAGS}
    values = {"kubeletPath": "/data/kubelet/pod-resources/", "kubernetes": {"enablePodUID": True}}
    made = objects(values)
    mounts = {each["name"]: each for each in exporter_of(made)["volumeMounts"]}
    paths = {each["name"]: each["hostPath"]["path"] for each in pod_of(made)["volumes"]}
    for name, flag, path in (
        ("pod-resources", "kubernetes.socket", "/data/kubelet/pod-resources/"),
        ("pods-api", "kubernetes.pods-socket", "/data/kubelet/pods-api"),
    ):
        assert mounts[name]["mountPath"] == str(Path(defaults[flag]).parent)
        assert mounts[name]["readOnly"] is True
        assert paths[name] == path
    assert [each["name"] for each in pod_of(objects())["volumes"]] == ["pod-resources"]


def test_names_that_look_like_numbers_stay_names() -> None:
    """A namespace may be ``123``, which YAML without quotes has as a number that none takes."""
    values: Values = {
        "fullnameOverride": "7",
        "nameOverride": "8",
        "namespaceOverride": "123",
        "runtimeClassName": "9",
        "priorityClassName": "10",
        "serviceAccount": {"name": "11"},
        "extraHostVolumes": [{"name": "12", "hostPath": "/specs"}],
        "tlsServerConfig": {"enabled": True},
        "podMonitor": {"enabled": True},
        "networkPolicy": {"enabled": True},
    }
    done = helm(
        "template",
        "14",
        str(CHART),
        *(f"--set-json={k}={json.dumps(v)}" for k, v in values.items()),
    )
    assert done.returncode == 0, done.stderr
    made = [each for each in yaml.safe_load_all(done.stdout) if each]
    for each in made:
        meta = each["metadata"]
        assert isinstance(meta["name"], str), each["kind"]
        assert meta["namespace"] == "123"
        assert meta["labels"]["app.kubernetes.io/name"] == "8"
        assert meta["labels"]["app.kubernetes.io/instance"] == "14"
    pod = pod_of(made)
    assert pod["runtimeClassName"] == "9"
    assert pod["priorityClassName"] == "10"
    assert pod["serviceAccountName"] == "11"
    assert pod["volumes"][-1]["name"] == "12"
    monitor = of_kind(made, "PodMonitor")
    assert monitor["spec"]["podMetricsEndpoints"][0]["tlsConfig"]["serverName"] == "7"
    assert monitor["spec"]["selector"]["matchLabels"]["app.kubernetes.io/instance"] == "14"


# What it refuses

REFUSED: Sequence[tuple[Values, str]] = (
    ({"hostPIDs": True}, "additional properties 'hostPIDs' not allowed"),
    ({"image": {"repo": "x"}}, "'/image': additional properties 'repo' not allowed"),
    ({"service": {"port": "19400"}}, "'/service/port': got string, want integer"),
    (
        {"arguments": ["--log.level=debug", "-m", "ns:configmap"]},
        'arguments: "-m" is no flag of this exporter, each of which is one word, --flag=value; '
        "docs/dcgm.md and docs/helm.md#coming-from-dcgm-exporter say",
    ),
    (
        {"arguments": ["--web.listen-address=:9400"]},
        "arguments: --web.listen-address is service.address here, so that port and probes follow",
    ),
    (
        {"extraEnv": [{"name": "ROOFLINE_WEB_CONFIG_FILE", "value": "/etc/web.yml"}]},
        "extraEnv: ROOFLINE_WEB_CONFIG_FILE is webConfig.existingSecret here",
    ),
    (
        {"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}},
        "serviceMonitor.enabled, podMonitor.enabled: with both, every exporter is scraped twice",
    ),
    ({"kubeletPath": "/var/lib/kubelet"}, "'/kubeletPath': '/var/lib/kubelet' does not match"),
    (
        {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}]}}}},
        "nodeSelectorTerms/0': minProperties",
    ),
    ({"basicAuth": {"users": {"a": "x" * 73}}}, "basicAuth.users.a: a password has at most 72"),
    (
        {"webConfig": {"existingSecret": "w"}, "tlsServerConfig": {"enabled": True}},
        "webConfig.existingSecret: has everything itself",
    ),
    (
        {"tlsServerConfig": {"enabled": True, "clientAuthType": "VerifyClientCertIfGiven"}},
        "tlsServerConfig.clientAuthType: needs the authority",
    ),
    (
        {"tlsServerConfig": {"enabled": True, "autoGenerated": False}},
        "tlsServerConfig: cert and key are needed",
    ),
    (
        {"service": {"enable": False}, "serviceMonitor": {"enabled": True}},
        "serviceMonitor.enabled: needs service.enable",
    ),
)


@pytest.mark.parametrize(("values", "why"), REFUSED, ids=[why[:40] for _, why in REFUSED])
def test_wrong_values_are_refused_by_name(values: Values, why: str) -> None:
    """Before anything reaches the cluster."""
    assert why in refusal(values)


def test_old_clusters_are_refused() -> None:
    """Those whose kubelet has no stable API, and those without claims."""
    assert "requires kubeVersion: >=1.28.0-0" in refusal({}, "--kube-version", "1.27")
    claims: Values = {"dra": {"enabled": True}}
    assert "dra.enabled: needs Kubernetes 1.34" in refusal(claims, "--kube-version", "1.33")
    assert objects({}, "--kube-version", "1.28")


# What is packed


@cache
def _packed() -> bytes:
    """The released file, as `helm package` makes it."""
    with tempfile.TemporaryDirectory() as folder:
        done = helm("package", str(CHART), "--destination", folder)
        assert done.returncode == 0, done.stderr
        (file,) = Path(folder).iterdir()
        assert file.name == f"{NAME}-{__version__}.tgz"
        return file.read_bytes()


def test_package_has_rules_and_dashboards_as_files(tmp_path: Path) -> None:
    """The repository's links to them are followed: it renders the same on its own."""
    package = tmp_path / "chart.tgz"
    package.write_bytes(_packed())
    with tarfile.open(package) as archive:
        assert all(member.isfile() for member in archive)
        for source, kind in (
            (RULES, "rules"),
            (DASHBOARDS, "dashboards"),
            (AT_SCALE, "dashboards-at-scale"),
        ):
            for path in source.iterdir():
                member = archive.extractfile(f"{NAME}/files/{kind}/{path.name}")
                assert member is not None
                assert member.read() == path.read_bytes()
    values: Values = {"prometheusRule": {"enabled": True}, "dashboards": {"enabled": True}}
    assert objects(values, chart=package) == objects(values)


def test_a_release_fits_into_its_secret() -> None:
    """Helm keeps chart and manifest in a Secret, compressed and in base 64."""
    values: Values = {"prometheusRule": {"enabled": True}, "dashboards": {"enabled": True}}
    manifest = gzip.compress(rendering(values).stdout.encode())
    assert (len(_packed()) + len(manifest)) * 4 / 3 < MEBIBYTE


def test_chart_is_of_this_version() -> None:
    """And names the image of it by that."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__
    assert exporter_of(objects())["image"] == f"{DEFAULTS['image']['repository']}:{__version__}"


# What is documented


def _keys(schema: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Every key that the schema knows by name, down to those that are Kubernetes' own."""
    if "$ref" in schema:
        schema = SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]]
    for name, inner in schema.get("properties", {}).items():
        is_ours = inner.get("properties") or inner.get("$ref") == "#/definitions/monitor"
        if is_ours and f"{prefix}{name}" not in ("affinity", "resources"):
            yield from _keys(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _given(values: Mapping[str, Any], keys: set[str], prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        if f"{prefix}{name}" in keys or not isinstance(value, dict):
            yield f"{prefix}{name}"
        else:
            yield from _given(value, keys, f"{prefix}{name}.")


def test_schema_and_defaults_have_the_same_keys() -> None:
    """But for `global`, which is Helm's."""
    keys = set(_keys(SCHEMA)) - {"global"}
    assert set(_given(DEFAULTS, keys)) == keys


def test_every_value_is_documented_with_its_default() -> None:
    """One row each in the table of docs/helm.md; those of both monitors in one."""
    _, _, section = GUIDE.partition("\n## Values\n")
    table = section.partition("\n## ")[0]
    cells = [line.split("|") for line in table.splitlines() if line.startswith("| `")]
    rows = {row[1].strip(" `"): row[2].strip() for row in cells}
    keys = {re.sub("^podMonitor", "serviceMonitor", key) for key in _keys(SCHEMA)} - {"global"}
    assert set(rows) == keys
    for key, shown in rows.items():
        value: Any = DEFAULTS
        for part in key.split("."):
            value = value[part]
        if isinstance(value, bool | int) or (isinstance(value, str) and value):
            assert shown == f"`{json.dumps(value) if not isinstance(value, str) else value}`", key
        elif not value:
            assert shown == "", key


def test_every_value_of_dcgm_exporter_has_an_answer() -> None:
    """Those of its chart 4.8.2 have the same name here, or a row that says what takes its place."""
    _, _, section = GUIDE.partition("\n## Coming from dcgm-exporter\n")
    answered = set(re.findall(r"`([a-zA-Z.]+)`", section.partition("\n## ")[0]))
    theirs = (ROOT / "tests" / "data" / "dcgm_exporter_values.txt").read_text().split()
    ours = set(_keys(SCHEMA))
    missing = {
        key
        for key in theirs
        if not {key, key.partition(".")[0]} & answered
        and not any(key == each or key.startswith(f"{each}.") for each in ours)
    }
    assert not missing

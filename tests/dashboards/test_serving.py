# SPDX-License-Identifier: Apache-2.0
"""Inference servers beside their GPUs: what the row *Serving* shows, and the rules of its page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from dashboards import serving
from dashboards.promql import NUMBERS
from tests.dashboards.models import NAMES, ROOT, everything, load, targets
from tests.dashboards.test_sums import query_of, substituted
from tests.rules.cases import GPU, counter, gauge, pod, workload
from tests.rules.promtool import (
    MINUTE,
    Expected,
    Interruption,
    Labels,
    Series,
    Test,
    Value,
    between,
    run,
    run_suite,
    value,
)

AT = 20 * MINUTE
PAGES = ROOT / "tests" / "data" / "inference_servers"
PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
NAME = "{{workload_namespace}}/{{workload_pod}}"
ROOM = "fleet/Serving pods/full by what it is at least, room by what it is at most"
SHOWN = {
    "waiting": f"fleet/Requests waiting/{NAME}",
    "least": f"fleet/Saturation of serving pods/{NAME}, at least",
    "most": f"fleet/Saturation of serving pods/{NAME}, at most",
    "tokens": f"fleet/Tokens per second/{NAME}, generated",
    "prompts": f"fleet/Tokens per second/{NAME}, prompts",
    "per_joule": f"fleet/Tokens per joule/{NAME}",
    "limiter": f"fleet/What limits serving pods/{NAME}",
    "full": ROOM,
    "gpus": "fleet/Serving pods/A",
    "running": "fleet/Serving pods/C",
    "cache": "fleet/Serving pods/D",
}
"""What the panels ask, by the fields of `Pod`."""


@dataclass(frozen=True)
class Pod:
    """What is to be seen of a pod; what is None has no series."""

    name: str
    waiting: float | None = 8
    least: float | None = 0.9
    most: float | None = 0.9
    tokens: float | None = 200
    prompts: float | None = 400
    per_joule: float | None = 0.4
    limiter: str | None = "memory"
    full: int | None = 1
    """0 if there is room."""
    gpus: int | None = 1
    running: float | None = 30
    cache: float | None = 0.5

    def labels(self) -> Labels:
        namespace, _, of_pod = self.name.partition("/")
        return {"workload_namespace": namespace, "workload_pod": of_pod}


def gpu_labels(number: int, **more: str) -> Labels:
    return {**GPU, "gpu": str(number), "uuid": f"GPU-{'abc'[number]}", **more}


def measured(
    saturation: float = 0.9, watts: float = 500, limiter: str = "memory", labels: Labels = GPU
) -> list[Series]:
    """A GPU whose counters are read, and that one limiter holds all of the time."""
    return [
        counter("gpu_energy_joules_total", watts, board(labels)),
        counter("gpu_limited_seconds_total", 1, labels, limiter=limiter),
        counter("gpu_saturation_seconds_total", saturation, labels),
        counter("gpu_time_seconds_total", saturation, labels, part="saturated"),
        counter("gpu_time_seconds_total", 1 - saturation, labels, part="idle"),
        gauge("gpu_saturation_ratio", saturation, labels),
        gauge("gpu_saturation_lower_ratio", saturation, labels),
        gauge("gpu_saturation_upper_ratio", saturation, labels),
    ]


def bounded(lower: float, upper: float) -> list[Series]:
    """A GPU without counters."""
    return [
        counter("gpu_energy_joules_total", 500),
        counter("gpu_limited_seconds_total", 1, limiter="unknown"),
        gauge("gpu_saturation_lower_ratio", lower),
        gauge("gpu_saturation_upper_ratio", upper),
    ]


def board(labels: Labels) -> Labels:
    return {name: value for name, value in labels.items() if name != "gpu_instance"}


RATES = {
    "vllm:generation_tokens_total": 100.0,
    "vllm:prompt_tokens_total": 200.0,
    "nv_inference_count": 50.0,
}
"""By which each of these series grows each second."""


def samples(page: str) -> list[tuple[str, Labels, float]]:
    """What a page has: names, labels and values."""
    text = (PAGES / f"{page}.txt").read_text(encoding="utf-8")
    found = re.findall(r"^([a-z_:]+)\{(.*)\} (\S+)$", text, re.MULTILINE)
    return [
        (name, dict(re.findall(r'([a-z_]+)="([^"]*)"', labels)), float(said))
        for name, labels, said in found
    ]


def server(
    name: str = "team-a/llama-0", page: str = "vllm", until: float = 1e9, **target: str
) -> list[Series]:
    """A server whose page is scraped of this pod, and that does the same all of the time."""
    namespace, _, of_pod = name.partition("/")
    of_target = {"job": "servers", "instance": of_pod, "namespace": namespace, "pod": of_pod}

    def grows(start: float, rate: float) -> Value:
        return between(0, until, lambda at: start + rate * at)

    return [
        Series(
            metric,
            {**of_target, **labels, **target},
            grows(start, RATES.get(metric, 0.0)),
            answers=False,
        )
        for metric, labels, start in samples(page)
    ]


@dataclass(frozen=True)
class Scene:
    """What is scraped, and what is to be seen of it."""

    about: str
    series: Sequence[Series]
    pods: Sequence[Pod]
    event: Interruption | None = None
    at: float = AT


LLAMA = Pod("team-a/llama-0")
OTHER, THIRD = gpu_labels(1), gpu_labels(2)
PART = {**GPU, "gpu_instance": "3"}
NO_VLLM: dict[str, Any] = {
    **dict.fromkeys(("tokens", "prompts", "per_joule", "running", "cache"), None)
}
ROOMY: dict[str, Any] = {"full": 0, "limiter": "unknown"}
SCENES = (
    Scene("a full GPU and a queue", [*measured(), pod(LLAMA.name), *server()], [LLAMA]),
    Scene(
        "a GPU with room and a queue",
        [*measured(0.3, 250, "latency"), pod(LLAMA.name), *server()],
        [replace(LLAMA, least=0.3, most=0.3, per_joule=0.8, limiter="latency", full=0)],
    ),
    Scene(
        "no counters: room",
        [*bounded(0.05, 0.4), pod(LLAMA.name), *server()],
        [replace(LLAMA, least=0.05, most=0.4, **ROOMY)],
    ),
    Scene(
        "no counters: nothing can be said of the GPU",
        [*bounded(0, 1), pod(LLAMA.name), *server()],
        [replace(LLAMA, least=0, most=1, full=None, limiter="unknown")],
    ),
    Scene(
        "two GPUs: the busier one counts, and the energy of both",
        [
            *measured(0.9, 300),
            *measured(0.3, 500, "idle", OTHER),
            pod(LLAMA.name),
            pod(LLAMA.name, OTHER),
            *server(),
        ],
        [replace(LLAMA, per_joule=0.25, limiter="mixed", gpus=2)],
    ),
    Scene(
        "two GPUs, one without bounds and energy: at most is not known, nor what tokens cost",
        [*measured(), pod(LLAMA.name), pod(LLAMA.name, OTHER), *server()],
        [replace(LLAMA, most=None, per_joule=None, gpus=2)],
    ),
    Scene(
        "two pods on a GPU: its saturation in both, and the joules of neither",
        [*measured(), pod(LLAMA.name), pod("team-b/chat"), *server(), *server("team-b/chat")],
        [replace(LLAMA, per_joule=None), replace(LLAMA, name="team-b/chat", per_joule=None)],
    ),
    Scene(
        "a pod beside one that serves nothing",
        [*measured(), pod(LLAMA.name), pod("team-b/notebook"), *server()],
        [replace(LLAMA, per_joule=None)],
    ),
    Scene(
        "two containers of the pod are one pod",
        [
            *measured(),
            workload("kubernetes", namespace="team-a", pod="llama-0", container="a"),
            workload("kubernetes", namespace="team-a", pod="llama-0", container="b", id="uid"),
            *server(),
        ],
        [LLAMA],
    ),
    Scene(
        "an instance of a board whose energy is not its own",
        [*measured(labels=PART), pod(LLAMA.name, PART), *server()],
        [replace(LLAMA, per_joule=None)],
    ),
    Scene(
        "a GPU that another pod had a minute ago",
        [
            *measured(),
            pod("a/old", GPU, (0, AT - 60)),
            pod(LLAMA.name, GPU, (AT - 60, 1e9)),
            *server(),
        ],
        [replace(LLAMA, per_joule=None)],
    ),
    Scene(
        "the exporter is down",
        [*measured(), pod(LLAMA.name), *server()],
        [],
        Interruption(AT - 90, AT + 90),
    ),
    Scene(
        "the server is down",
        [*measured(), pod(LLAMA.name), *server(until=AT - 6 * MINUTE)],
        [],
    ),
    Scene("the server has no pod", [*measured(), pod(LLAMA.name), *server(pod="")], []),
    Scene("a server without a GPU", [*measured(), pod("team-b/notebook"), *server()], []),
    Scene(
        "both are scraped by two jobs",
        [
            *measured(),
            *measured(labels={**GPU, "job": "gpus"}),
            pod(LLAMA.name),
            pod(LLAMA.name, {**GPU, "job": "gpus", "namespace": "monitoring", "pod": "exporter"}),
            *server(),
            *server(job="others"),
        ],
        [LLAMA],
    ),
    Scene(
        "Triton",
        [*measured(), pod(LLAMA.name), *server(page="triton")],
        [replace(LLAMA, waiting=12, **NO_VLLM)],
    ),
    Scene(
        "Triton with TensorRT-LLM: before its batch, and before the backend",
        [*measured(), pod(LLAMA.name), *server(page="triton_tensorrt_llm")],
        [replace(LLAMA, waiting=9, **NO_VLLM)],
    ),
    Scene(
        "Triton with vLLM: 4 in vLLM, 1 before it",
        [*measured(), pod(LLAMA.name), *server(page="triton_vllm")],
        [replace(LLAMA, waiting=5, tokens=100, prompts=200, per_joule=0.2, running=8, cache=0.75)],
    ),
    Scene(
        "KServe",
        [*measured(), pod(LLAMA.name), *server(page="kserve")],
        [replace(LLAMA, waiting=6, tokens=100, prompts=200, per_joule=0.2, running=16, cache=1)],
    ),
)


def rows(scene: Scene, name: str) -> list[tuple[Labels, float]]:
    found = [(one.labels(), getattr(one, name)) for one in scene.pods]
    if name == "limiter":
        found = [(labels, said and NUMBERS.index(said)) for labels, said in found]
    return [(labels, float(said)) for labels, said in found if said is not None]


def test_the_panels_show_each_pod(tmp_path: Path) -> None:
    """By hand: 2 engines generate 100 tokens/s each, of which 500 W make 0.4 a joule."""
    tests = [
        Test(
            scene.about,
            scene.series,
            [value(query_of(query), scene.at, *rows(scene, name)) for name, query in SHOWN.items()],
            scene.event,
        )
        for scene in SCENES
    ]
    run_suite(tmp_path, {}, [test.group() for test in tests])


def chosen(name: str, **variables: str) -> str:
    """A query of the row with something chosen, and else everything."""
    (found,) = [one for one in targets("fleet") if one.name == SHOWN[name]]
    text = found.expression
    for variable, said in variables.items():
        text = text.replace(f'"${variable}"', f'"{said}"')
    return substituted(text)


def test_what_is_chosen_hides_no_sharer_and_halves_no_energy(tmp_path: Path) -> None:
    """A pod of another namespace shares the GPU all the same, and a second GPU draws its power."""
    (two,) = [one for one in SCENES if one.about.startswith("two GPUs: ")]
    (shared,) = [one for one in SCENES if one.about.startswith("two pods")]
    labels = LLAMA.labels()
    groups = [
        Test(
            "namespace",
            shared.series,
            [
                value(chosen("waiting", namespace="team-a"), AT, (labels, 8)),
                value(chosen("per_joule", namespace="team-a"), AT),
            ],
        ).group(),
        Test(
            "gpu",
            two.series,
            [
                value(chosen("least", gpu="1"), AT, (labels, 0.3)),
                value(chosen("most", gpu="1"), AT),
                value(chosen("per_joule", gpu="1"), AT),
            ],
        ).group(),
    ]
    run_suite(tmp_path, {}, groups)


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


RULES: Mapping[str, Any] = next(
    found for text in _blocks("yaml") if "groups" in (found := yaml.safe_load(text))
)
FULL, HAS_ROOM, PER_JOULE, SHARE, INFERENCES = _blocks("promql")


def documented(scene: Scene) -> list[Expected]:
    """What the rules and queries of the page give: over five minutes, as nothing changes."""
    seen = {
        "pod:inference_requests_waiting:sum": rows(scene, "waiting"),
        "pod:inference_generated_tokens:sum_rate5m": rows(scene, "tokens"),
        PER_JOULE: rows(scene, "per_joule"),
        FULL: [row for row in rows(scene, "least") if row[1] >= 0.8],
        HAS_ROOM: [row for row in rows(scene, "most") if row[1] <= 0.5],
    }
    queue = rows(scene, "waiting")
    of_servers = " and pod:inference_requests_waiting:sum"
    for bound, name in (("lower", "least"), ("upper", "most")):
        seen[f"pod:gpu_saturation_{bound}:max_avg5m{of_servers}"] = rows(scene, name)
    for query in (FULL, HAS_ROOM):
        seen[query] = [(labels, said) for labels, said in queue if labels in labels_of(seen[query])]
    return [value(query, scene.at, *found) for query, found in seen.items()]


def labels_of(found: Sequence[tuple[Labels, float]]) -> list[Labels]:
    return [labels for labels, _ in found]


def test_the_rules_of_the_page_give_the_same(tmp_path: Path) -> None:
    """A server that has no GPU here is theirs alone; all else is as on the panels."""
    without = ("a server without a GPU", "the exporter is down", "the server has no pod")
    groups = []
    for scene in SCENES:
        expected = documented(scene)
        if scene.about in without:
            expected = [value(query, scene.at) for query in (FULL, HAS_ROOM, PER_JOULE)]
        groups.append(Test(scene.about, scene.series, expected, scene.event).group())
    run_suite(tmp_path, RULES, groups)


def test_the_other_queries_of_the_page(tmp_path: Path) -> None:
    """Half of the time of two GPUs, and 50 inferences/s over 500 W."""
    (two,) = [one for one in SCENES if one.about.startswith("two GPUs: ")]
    labels = LLAMA.labels()
    triton = [*measured(), pod(LLAMA.name), *server(page="triton")]
    model = {"model": "resnet50", **labels}
    groups = [
        Test("share", two.series, [value(SHARE, AT, (labels, 0.5))]).group(),
        Test("inferences", triton, [value(INFERENCES, AT, (model, 0.1))]).group(),
    ]
    run_suite(tmp_path, RULES, groups)


def test_no_query_of_any_page_fails_while_pods_serve(tmp_path: Path) -> None:
    """None finds two series where it wants one, and none is NaN."""
    groups = []
    for scene in SCENES:
        texts = [substituted(one.expression) for name in NAMES for one in targets(name)]
        expected = [Expected(f"({text}) unless abs({text}) < Inf", AT, []) for text in texts]
        if scene.about.startswith(("two pods", "an instance", "both are")):
            groups.append(Test(scene.about, scene.series, expected, scene.event).group())
    run_suite(tmp_path, {}, groups)


def test_the_row_costs_nothing_until_it_is_opened() -> None:
    """Grafana asks for the panels of a closed row when somebody opens it."""
    (row,) = [one for one in everything(load("fleet")) if one["title"] == "Serving"]
    assert row["collapsed"]
    assert {query.split("/")[1] for query in SHOWN.values()} == {
        panel["title"] for panel in row["panels"]
    }


def test_what_is_asked_of_servers_is_on_their_pages() -> None:
    """Under names and labels that are in the sources that the README beside them lists."""
    found = [one for path in PAGES.glob("*.txt") for one in samples(path.stem)]
    asked = set(re.findall(r"\b(?:vllm:|nv_|revision_)[a-z_]+\b", PAGE))
    for one in targets("fleet"):
        asked |= set(re.findall(r"\b(?:vllm:|nv_)[a-z_]+\b", one.expression)) - {"vllm:"}
    told_apart = set(serving.SERVER.split(", ")) - {"__name__", "namespace", "pod"}

    assert len(asked) > 9
    assert asked <= {name for name, _, _ in found}
    assert told_apart <= {label for _, labels, _ in found for label in labels}


def test_the_documented_configuration_gives_both_labels(tmp_path: Path) -> None:
    """Prometheus reads it, and the page names each panel of the row."""
    config = next(text for text in _blocks("yaml") if "scrape_configs" in text)
    wanted = {rule["target_label"] for rule in _relabeled(config) if "target_label" in rule}
    assert wanted == {"namespace", "pod"}
    path = tmp_path / "prometheus.yml"
    # Debian's has no Kubernetes in it.
    path.write_text(config.replace("kubernetes_sd_configs: [{role: pod}]", "static_configs: []"))
    run("check", "config", str(path))
    for query in SHOWN.values():
        assert query.split("/")[1] in PAGE


def _relabeled(config: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(config)["scrape_configs"][0]["relabel_configs"]
    return found

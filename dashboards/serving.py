# SPDX-License-Identifier: Apache-2.0
"""The PromQL that joins inference servers with the GPUs of their pods; docs/serving.md explains it.

A server's series carry the `namespace` and `pod` of its target, ours what `gpu_workload_info` calls
them. GPUs are joined by their UUID, so that one which two jobs scrape counts once.
"""

from __future__ import annotations

from dashboards.palette import LIMITERS
from dashboards.promql import (
    NEAR_ROOF_SATURATION,
    NODES,
    NUMBERS,
    WINDOW,
    rate,
    saturation,
    saturation_bound,
    select,
)

POD = "workload_namespace, workload_pod"
SHARE = "uuid, gpu_instance"
"""What identifies a GPU or MIG instance, whoever scrapes it."""
SERVER = "__name__, namespace, pod, model_name, engine, model, version"
"""What tells a server's series apart: what two jobs scrape counts once."""
ROOM_SATURATION = 0.5
"""A GPU of which at most this is used would carry the same load once more."""

WAITING = (
    '{__name__=~"vllm:num_requests_waiting|nv_inference_pending_request_count"}'
    ' or nv_trt_llm_request_metrics{request_type="waiting"}'
)
"""Requests that nothing works on yet: of vLLM, of Triton, and of TensorRT-LLM within Triton."""
RUNNING = "vllm:num_requests_running"
CACHE = '{__name__=~"vllm:(kv|gpu)_cache_usage_perc"}'
"""Versions between the old name and the new one have both."""
GENERATED = "vllm:generation_tokens_total"
PROMPTS = "vllm:prompt_tokens_total"


def of_server(value: str, over: str = "sum") -> str:
    """Return what a server says, by its pod in the words of `gpu_workload_info`."""
    named = f"max by ({SERVER}) ({value})"
    for label in ("namespace", "pod"):
        named = f'label_replace({named}, "workload_{label}", "$1", "{label}", "(.+)")'
    return f"({over} by ({POD}) ({named}) and on ({POD}) {pods()})"


def pods() -> str:
    """Return 1 for each pod of the chosen namespaces on each GPU or MIG instance."""
    info = select(
        "gpu_workload_info", NODES, scheduler="kubernetes", workload_namespace="$namespace"
    )
    return f"max by ({SHARE}, {POD}) ({info})"


def waiting() -> str:
    """Return how many requests wait."""
    return of_server(WAITING)


def tokens(counter: str) -> str:
    """Return tokens per second."""
    return of_server(f"rate({counter}[{WINDOW}])")


def gpus() -> str:
    """Return how many GPUs or MIG instances a server's pod has."""
    return f"count by ({POD}) ({pods()}) and on ({POD}) {waiting()}"


def of_its_gpus(value: str, over: str) -> str:
    """Return a value of GPUs by the pods on them, whether these serve or not."""
    each = f"max by ({SHARE}) ({value})"
    return f"{over} by ({POD}) ({pods()} * on ({SHARE}) group_left () {each})"


def at_least() -> str:
    """Return the lower bound of the saturation of a pod's busiest GPU."""
    lower = of_its_gpus(f"{saturation()} or {saturation_bound('lower')}", "max")
    return f"({lower} and on ({POD}) {waiting()})"


def at_most() -> str:
    """Return the upper bound of the same; nothing where one of its GPUs has none."""
    upper = f"{saturation()} or {saturation_bound('upper')}"
    unknown = f"{pods()} unless on ({SHARE}) ({upper})"
    known = f"{of_its_gpus(upper, 'max')} unless on ({POD}) ({unknown})"
    return f"({known} and on ({POD}) {waiting()})"


def room() -> str:
    """Return 1 for a pod with a full GPU, 0 for one whose GPUs all have room; else nothing."""
    full = f"1 + 0 * ({at_least()} >= {NEAR_ROOF_SATURATION})"
    return f"{full} or on ({POD}) 0 * ({at_most()} <= {ROOM_SATURATION})"


def watts() -> str:
    """Return the power of the GPUs of each pod that nobody shares.

    Nothing for a pod of which one GPU was shared in the window, is an instance of a board, or has
    no reading: then it is not known what its tokens cost.
    """

    def there(scheduler: str) -> str:
        info = select("gpu_workload_info", NODES, scheduler=scheduler)
        return f"last_over_time({info}[{WINDOW}])"

    on_gpus = f"max by ({SHARE}, {POD}) ({there('kubernetes')})"
    several = (
        f"(count by ({SHARE}) ({on_gpus}) > 1 or max by ({SHARE}) ({there('slurm|container')}))"
    )
    own = f"(max by ({SHARE}) ({rate('gpu_energy_joules_total')}) unless on ({SHARE}) {several})"
    return (
        f"(sum by ({POD}) ({on_gpus} * on ({SHARE}) group_left () {own})"
        f" unless on ({POD}) ({on_gpus} unless on ({SHARE}) {own}))"
    )


def tokens_per_joule() -> str:
    """Return the tokens that a pod generates for each joule of its GPUs."""
    return f"{tokens(GENERATED)} / on ({POD}) ({watts()} > 0)"


def limiter_number() -> str:
    """Return the number of the limiter that held most of a pod's GPUs for most of the time.

    Where none did it is mixed, and a GPU without a reading does not count. The number of a limiter
    comes from constants that have its name: a query for each limiter takes several times as long.
    """
    seconds = rate("gpu_limited_seconds_total")
    every = f"sum by ({SHARE}) ({seconds})"
    held = f"sum by ({SHARE}, limiter) ({seconds}) > on ({SHARE}) group_left () 0.5 * {every}"
    of_each = f"{pods()} * on ({SHARE}) group_left (limiter) ({held}) ^ 0"
    most = (
        f"sum by ({POD}, limiter) ({of_each})"
        f" > on ({POD}) group_left () 0.5 * {of_its_gpus(f'{every} ^ 0', 'sum')}"
    )
    numbers = " or ".join(
        f'label_replace(vector({NUMBERS.index(name)}), "limiter", "{name}", "", "")'
        for name in LIMITERS
    )
    number = f"max by ({POD}) (({most}) ^ 0 * on (limiter) group_left () ({numbers}))"
    mixed = f"{NUMBERS.index('mixed')} * {of_its_gpus(every, 'max')}"
    return f"({number} or on ({POD}) {mixed}) and on ({POD}) {waiting()}"

# SPDX-License-Identifier: Apache-2.0
"""The row about inference servers: whose queue is long, and whether its GPUs have room."""

from __future__ import annotations

from dashboards import palette, serving
from dashboards.model import Lines, Panel, Query, Row, States, Values
from dashboards.tables import Column, table

LEGEND = "{{workload_namespace}}/{{workload_pod}}"
NO_SERVERS = "no server is scraped that runs on these GPUs"
LIMITER_TEXTS = {
    str(number): (name, color) for number, (name, color) in enumerate(palette.NUMBERED.items())
}


def _table() -> Panel:
    chart, queries, steps, overrides = table(
        (
            Column("Namespace", label="workload_namespace", width=125),
            Column("Pod", label="workload_pod", width=170),
            Column("GPUs", expression=serving.gpus(), unit="none", width=65),
            Column("Waiting", expression=serving.waiting(), unit="short", width=80),
            Column(
                "Running", expression=serving.of_server(serving.RUNNING), unit="short", width=80
            ),
            Column(
                "KV cache",
                expression=serving.of_server(serving.CACHE, "max"),
                unit="percentunit",
                decimals=0,
                width=85,
            ),
            *(
                Column(
                    bound.capitalize(),
                    expression=saturation,
                    bound=bound,
                    unit="percentunit",
                    decimals=0,
                    bar=palette.SATURATION,
                    width=110,
                )
                for bound, saturation in (
                    ("at least", serving.at_least()),
                    ("at most", serving.at_most()),
                )
            ),
            Column(
                "Its GPUs",
                expression=serving.room(),
                bound="full by what it is at least, room by what it is at most",
                texts={"1": ("full", palette.GREEN), "0": ("have room", palette.AMBER)},
                width=100,
            ),
            Column(
                "Limited by", expression=serving.limiter_number(), texts=LIMITER_TEXTS, width=125
            ),
            Column(
                "Tokens/s",
                expression=serving.tokens(serving.GENERATED),
                unit="short",
                decimals=0,
                width=85,
            ),
            Column(
                "Tokens/J",
                expression=serving.tokens_per_joule(),
                unit="short",
                decimals=2,
                width=85,
            ),
        ),
        sort_by="Waiting",
    )
    return Panel(
        "Serving pods",
        "vLLM and Triton, also under KServe, beside the GPUs of their pods. A long queue says that "
        "more is needed; the saturation of the pod's busiest GPU, at least and at most, says "
        "where. Full (at least 80 %): another replica on these GPUs takes from this one, so give "
        "it other GPUs; where memory is the limiter and the KV cache has room, a larger batch "
        "first. Have room (at most 50 %): another replica or a larger batch here would help, if "
        "there is memory for it. Neither: not known, or in between. docs/serving.md has the four "
        "cases.",
        chart,
        Values("none", no_value=NO_SERVERS),
        queries,
        width=24,
        height=9,
        overrides=overrides,
        transformations=steps,
    )


QUEUE = Panel(
    "Requests waiting",
    "Requests that nothing works on yet, by pod: those that vLLM, Triton or its TensorRT-LLM "
    "backend counts as waiting. Read it beside the saturation: a queue alone does not say whether "
    "the GPUs are full.",
    Lines(),
    Values("short", minimum=0, no_value=NO_SERVERS),
    (Query(serving.waiting(), LEGEND),),
)
SATURATION = Panel(
    "Saturation of serving pods",
    "Of the busiest GPU of each pod, at least and at most; one line on the other where it is "
    "measured. What several pods do on one GPU is in all of their lines. A queue under low lines: "
    "the batch, the host or the KV cache is the limit, not the GPU.",
    Lines(),
    Values("percentunit", minimum=0, maximum=1, no_value=NO_SERVERS),
    (
        Query(serving.at_least(), f"{LEGEND}, at least"),
        Query(serving.at_most(), f"{LEGEND}, at most"),
    ),
)
THROUGHPUT = Panel(
    "Tokens per second",
    "Tokens that each pod generated, and those of prompts that it took in, as vLLM counts them. "
    "Falling under a growing queue: requests became longer, or the KV cache is full and vLLM "
    "starts over.",
    Lines(),
    Values("short", minimum=0, no_value=NO_SERVERS),
    (
        Query(serving.tokens(serving.GENERATED), f"{LEGEND}, generated"),
        Query(serving.tokens(serving.PROMPTS), f"{LEGEND}, prompts"),
    ),
)
ENERGY = Panel(
    "Tokens per joule",
    "Generated tokens over the energy of the pod's boards, idle time included. It rises with the "
    "batch and with the KV cache that prompts share. Not shown for a pod that shares a GPU, has a "
    "MIG instance, or of which one GPU has no reading: nobody knows its part of the energy.",
    Lines(),
    Values("short", minimum=0, no_value=NO_SERVERS),
    (Query(serving.tokens_per_joule(), LEGEND),),
)
LIMITERS = Panel(
    "What limits serving pods",
    "The limiter of most of each pod's GPUs for most of the time; mixed where none was. Memory is "
    "usual while tokens are generated in small batches, compute for long prompts and large "
    "batches. Idle or latency under a queue: the server does not feed its GPUs.",
    States(rows=12),
    Values(
        "none",
        texts=tuple((number, *text) for number, text in LIMITER_TEXTS.items()),
        no_value=NO_SERVERS,
    ),
    (Query(serving.limiter_number(), LEGEND),),
    width=24,
    height=10,
)
SERVING = Row("Serving", (_table(), QUEUE, SATURATION, THROUGHPUT, ENERGY, LIMITERS), closed=True)

# SPDX-License-Identifier: Apache-2.0
"""``/api/v1/gpus/{uuid}/history`` of 15 minutes, and ``/api/v1/roofline/trails`` of all."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from exporter.model.reading import THROTTLE_REASONS, share_name
from exporter.web.api import SCHEMA_VERSION
from exporter.web.history import Columns, Key, Series
from exporter.web.query_params import requested_gpu, requested_instance
from exporter.web.responses import answer
from exporter.web.store import Store
from exporter.web.threads import Threads

HISTORY_PATH = "/api/v1/gpus/{uuid}/history"
TRAILS_PATH = "/api/v1/roofline/trails"
TRAIL_SECONDS = 180.0
TRAIL_STEP_SECONDS = 5.0
"""More points than that would not be seen."""
TRAIL_COLUMNS = ("flops", "bytes")


def _numbers(values: Sequence[float | None]) -> str:
    """Write numbers as JSON, to 4 significant digits: text at once is a third of the time."""
    return f"[{','.join(['null' if value is None else f'{value:.4g}' for value in values])}]"


def series_json(series: Series, uuid: str, gpu_instance: int | None) -> bytes:
    """Return the answer as JSON. Times are to hundredths of a second."""
    head = {"schema_version": SCHEMA_VERSION, "uuid": uuid}
    if gpu_instance is not None:
        head["gpu_instance"] = gpu_instance
    head["throttle_reasons"] = THROTTLE_REASONS
    timestamps = ",".join(f"{each:.2f}" for each in series.timestamps)
    columns = ",".join(f'"{name}":{_numbers(each)}' for name, each in series.columns.items())
    start = json.dumps(head, separators=(",", ":"))[:-1]
    return f'{start},"timestamps":[{timestamps}],"columns":{{{columns}}}}}\n'.encode("ascii")


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def trails_json(times: Sequence[float], found: Mapping[Key, Columns]) -> bytes:
    """Return where every GPU and instance was: means of 5 s, null where nothing was known."""
    slots = [int(time // TRAIL_STEP_SECONDS) for time in times]
    starts = [at for at, slot in enumerate(slots) if at == 0 or slot != slots[at - 1]]
    pieces = [slice(*ends) for ends in pairwise([*starts, len(times)])]
    trails = []
    for (uuid, instance), columns in found.items():
        if any(value is not None for value in columns["flops"]):
            means = ",".join(
                f'"{name}":{_numbers([_mean(points[piece]) for piece in pieces])}'
                for name, points in columns.items()
            )
            trails.append(f"{json.dumps(share_name(uuid, instance))}:{{{means}}}")
    timestamps = ",".join(f"{sum(times[each]) / len(times[each]):.2f}" for each in pieces)
    return (
        f'{{"schema_version":{SCHEMA_VERSION},"timestamps":[{timestamps}],'
        f'"trails":{{{",".join(trails)}}}}}\n'
    ).encode("ascii")


def _number(request: Request, name: str) -> float | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise HTTPException(400, f"{name}: expected a number, got {text[:40]!r}")
    return value


def _answer(request: Request, body: bytes) -> Response:
    return answer(request, body, "application/json", {"Cache-Control": "no-store"})


def history_routes(store: Store, threads: Threads) -> list[Route]:
    """Return the routes of the history."""

    def history(request: Request) -> Response:
        key = request.path_params["uuid"]
        instance, since = requested_instance(request), _number(request, "since")
        found = requested_gpu(store.latest(), key)
        uuid = key if found is None else found.device.uuid
        series = store.history.series(uuid, instance, since or 0.0)
        if series is None:
            raise HTTPException(404, f"there is no history of a GPU {share_name(key, instance)!r}")
        return _answer(request, series_json(series, uuid, instance))

    def trails(request: Request) -> Response:
        times, found = store.history.recent(TRAIL_COLUMNS, TRAIL_SECONDS)
        return _answer(request, trails_json(times, found))

    return [
        Route(HISTORY_PATH, threads.aside(history)),
        Route(TRAILS_PATH, threads.aside(trails)),
    ]

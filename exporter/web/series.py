# SPDX-License-Identifier: Apache-2.0
"""``/api/v1/gpus/{uuid}/history``: the last 15 minutes of one GPU or instance, in columns."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Sequence

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from exporter.history import Series
from exporter.reading import THROTTLE_REASONS
from exporter.store import Store
from exporter.web.metrics import accepts_gzip
from exporter.web.refusal import SCHEMA_VERSION

HISTORY_PATH = "/api/v1/gpus/{uuid}/history"


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


def history_routes(store: Store) -> list[Route]:
    """Return the route of the history."""

    def _uuid(key: str) -> str:
        """Return the UUID that a UUID or an index stands for."""
        snapshot = store.latest()
        for gpu in snapshot.gpus if snapshot is not None else ():
            if key in (gpu.device.uuid, str(gpu.device.index)):
                return gpu.device.uuid
        return key

    def history(request: Request) -> Response:
        key = request.path_params["uuid"]
        number, since = _number(request, "instance"), _number(request, "since")
        if number is not None and not number.is_integer():
            raise HTTPException(400, f"instance: expected a whole number, got {number:g}")
        instance = None if number is None else int(number)
        uuid = _uuid(key)
        series = store.history.series(uuid, instance, since)
        if series is None:
            of = "" if instance is None else f" with a GPU instance {instance}"
            raise HTTPException(404, f"there is no history of a GPU {key!r}{of}")
        body = series_json(series, uuid, instance)
        headers = {"Cache-Control": "no-store", "Vary": "Accept-Encoding"}
        if accepts_gzip(request.headers.get("accept-encoding", "")):
            body = gzip.compress(body, 1, mtime=0)
            headers["Content-Encoding"] = "gzip"
        return Response(body, media_type="application/json", headers=headers)

    return [Route(HISTORY_PATH, history)]

# SPDX-License-Identifier: Apache-2.0
"""The routes of the JSON API of the latest snapshot and the spec file.

``openapi.json`` describes it; ``make docs`` writes that from the types of the answers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from exporter.model.snapshot import Snapshot
from exporter.specs import SpecBook
from exporter.web.api.convert import (
    diagnosis_answer,
    gpu_json,
    gpu_ranks,
    gpus_answer,
    roofline_answer,
    specs_answer,
    training_answer,
)
from exporter.web.api.models.diagnosis import DiagnosisAnswer, IdleAnswer, IdleForJson
from exporter.web.api.models.gpus import GpuAnswer, GpusAnswer
from exporter.web.api.models.json import Json, json_text
from exporter.web.api.models.roofline import RooflineAnswer
from exporter.web.api.models.training import TrainingAnswer
from exporter.web.api.readings import readings
from exporter.web.facts import notice_of
from exporter.web.idle_for import Asked, idle_for, seconds_of
from exporter.web.query_params import requested_gpu
from exporter.web.store import Store
from exporter.web.threads import Threads

SCHEMA = Path(__file__).with_name("openapi.json")
JSON = "application/json"
Endpoint = Callable[[Request], Response]


def api_routes(store: Store, specs: Callable[[], SpecBook], threads: Threads) -> list[Route]:
    """Return the routes below ``/api/`` but those of the history."""

    def of_node(convert: Callable[[Snapshot], Json], before: Json) -> Endpoint:
        """Return what answers with the latest snapshot, and before the first one with `before`."""

        def endpoint(request: Request) -> Response:
            snapshot = store.latest()
            return _answer(before if snapshot is None else convert(snapshot))

        return endpoint

    def gpu(request: Request) -> Response:
        key, snapshot = request.path_params["uuid"], store.latest()
        found = requested_gpu(snapshot, key)
        if snapshot is None or found is None:
            raise HTTPException(404, f"no GPU has the UUID or index {key!r}")
        return _answer(
            GpuAnswer(
                timestamp_seconds=snapshot.timestamp_seconds,
                notice=notice_of(snapshot),
                gpu=gpu_json(found, gpu_ranks(snapshot)),
                readings=readings(found, snapshot),
            )
        )

    def idle(request: Request) -> Response:
        query, snapshot = request.query_params, store.latest()
        duration = query.get("for", "30m")
        try:
            seconds = seconds_of(duration)
        except ValueError as error:
            raise HTTPException(400, f"for: {error}, got {duration!r}") from None
        asked = Asked(*(query.get(name) for name in ("gpu", "pod", "job", "user")))
        state, reason, found = idle_for(snapshot, store.age_seconds(), seconds, asked)
        return _answer(
            IdleAnswer(
                timestamp_seconds=None if snapshot is None else snapshot.timestamp_seconds,
                state=state,
                reason=reason,
                gpus=[IdleForJson(**each._asdict()) for each in found],
            )
        )

    def gpu_models(request: Request) -> Response:
        book = specs()
        return _answer(specs_answer(book.models.values(), book))

    def openapi(request: Request) -> Response:
        return Response(SCHEMA.read_bytes(), media_type=JSON)

    no_gpus = GpusAnswer(problem="no snapshot yet", gpus=[])
    answers: dict[str, Endpoint] = {
        "/api/v1/gpus": of_node(gpus_answer, no_gpus),
        "/api/v1/gpus/{uuid}": gpu,
        "/api/v1/roofline": of_node(roofline_answer, RooflineAnswer(rooflines=[])),
        "/api/v1/training": of_node(training_answer, TrainingAnswer(jobs=[])),
        "/api/v1/diagnosis": of_node(diagnosis_answer, DiagnosisAnswer(diagnoses=[], not_known=[])),
        "/api/v1/idle": idle,
        "/api/v1/specs": gpu_models,
        "/api/openapi.json": openapi,
    }
    return [Route(path, threads.aside(answer)) for path, answer in answers.items()]


def _answer(answer: Json) -> Response:
    return Response(f"{json_text(answer)}\n", media_type=JSON)

# SPDX-License-Identifier: Apache-2.0
"""The JSON API of the latest snapshot and the spec file; its answers are made in threads.

``openapi.json`` describes it; `tests.web.api.schema` writes that, with the models of the answers: a
framework that knew them here would prepare to check each, for 4 MB.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from fastapi import FastAPI, Query, Response
from starlette.exceptions import HTTPException

from exporter import __version__
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
from exporter.web.api.models.diagnosis import IdleAnswer, IdleForJson
from exporter.web.api.models.gpus import GpuAnswer
from exporter.web.api.models.json import Json, json_text
from exporter.web.api.readings import readings
from exporter.web.error_handler import refuse
from exporter.web.facts import notice_of
from exporter.web.idle_for import Asked, idle_for, seconds_of
from exporter.web.query_params import requested_gpu
from exporter.web.store import Store
from exporter.web.threads import Threads

DESCRIPTION = (
    "How busy, how saturated and how idle each NVIDIA GPU of this node is. What is not known is "
    "left out of the JSON; it is never null (but in columns of a history), 0 or a special value. "
    "Ratios are 0 to 1, all else is in base units: seconds, bytes, joules, watts, hertz, FLOP/s."
)


SCHEMA = Path(__file__).with_name("openapi.json")


def _answer(answer: Json) -> Response:
    return Response(f"{json_text(answer)}\n", media_type="application/json")


def api_app(store: Store, specs: Callable[[], SpecBook], threads: Threads) -> FastAPI:
    """Return the application that answers below ``/api/``."""
    app = FastAPI(
        title="roofline-exporter",
        version=__version__,
        description=DESCRIPTION,
        # Their pages load scripts from elsewhere; the schema is a file.
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        exception_handlers={HTTPException: refuse},
    )

    @app.get("/api/v1/gpus")
    @threads.aside
    def gpus() -> Response:
        """Every GPU of the node with its newest readings; empty before the first snapshot."""
        return _answer(gpus_answer(store.latest()))

    @app.get("/api/v1/gpus/{uuid}")
    @threads.aside
    def gpu(uuid: str) -> Response:
        """One GPU, by its UUID or its index."""
        snapshot = store.latest()
        found = requested_gpu(snapshot, uuid)
        if snapshot is None or found is None:
            raise HTTPException(404, f"no GPU has the UUID or index {uuid!r}")
        return _answer(
            GpuAnswer(
                timestamp_seconds=snapshot.timestamp_seconds,
                notice=notice_of(snapshot),
                gpu=gpu_json(found, gpu_ranks(snapshot)),
                readings=readings(found, snapshot),
            )
        )

    @app.get("/api/v1/roofline")
    @threads.aside
    def roofline() -> Response:
        """Ceilings, ridge points and the current point of each GPU or MIG instance."""
        return _answer(roofline_answer(store.latest()))

    @app.get("/api/v1/training")
    @threads.aside
    def training() -> Response:
        """Training jobs that report, rank by rank: what they waited for, and what that cost."""
        return _answer(training_answer(store.latest()))

    @app.get("/api/v1/diagnosis")
    @threads.aside
    def diagnosis() -> Response:
        """The known causes that each GPU shows now: finding, advice, evidence, cost."""
        return _answer(diagnosis_answer(store.latest()))

    @app.get("/api/v1/idle")
    @threads.aside
    def idle(
        for_: Annotated[str, Query(alias="for")] = "30m",
        gpu: str | None = None,
        pod: str | None = None,
        job: str | None = None,
        user: str | None = None,
    ) -> Response:
        """Whether all GPUs that are asked for have been idle for so long: idle, busy, not_known."""
        try:
            seconds = seconds_of(for_)
        except ValueError as error:
            raise HTTPException(400, f"for: {error}, got {for_!r}") from None
        snapshot = store.latest()
        asked = Asked(gpu, pod, job, user)
        state, reason, found = idle_for(snapshot, store.age_seconds(), seconds, asked)
        return _answer(
            IdleAnswer(
                timestamp_seconds=None if snapshot is None else snapshot.timestamp_seconds,
                state=state,
                reason=reason,
                gpus=[IdleForJson(**each._asdict()) for each in found],
            )
        )

    @app.get("/api/v1/specs", summary="GPU models")
    @threads.aside
    def gpu_models() -> Response:
        """Every GPU model of the spec file in use."""
        book = specs()
        return _answer(specs_answer(book.models.values(), book))

    @app.get("/api/openapi.json", include_in_schema=False)
    @threads.aside
    def openapi() -> Response:
        """Describe this API."""
        return Response(SCHEMA.read_bytes(), media_type="application/json")

    return app

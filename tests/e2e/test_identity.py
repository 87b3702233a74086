# SPDX-License-Identifier: Apache-2.0
"""What identifies a GPU is shown only where that is wanted."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from signal import SIGHUP
from typing import Any

import pytest

from tests.e2e.conftest import MakeDriver, RunCommand, StartDaemon
from tests.e2e.daemons import Daemon, StreamClient
from tests.waiting import wait_until

SERIAL = "1654922006536"
GPU: dict[str, Any] = {"product": "h100-sxm", "serial": SERIAL, "utilization": 50}
PATHS = (
    "/",
    "/gpu/0",
    "/metrics",
    "/metrics/dcgm",
    "/api/v1/gpus",
    "/api/v1/gpus/0",
    "/api/v1/gpus/0/history",
    "/api/v1/roofline",
    "/api/v1/roofline/trails",
    "/api/v1/training",
    "/api/v1/diagnosis",
    "/api/v1/specs",
    "/api/openapi.json",
    "/-/ready",
    "/-/healthy",
)


def _shown_at(daemon: Daemon) -> list[str]:
    """The paths whose answers hold the serial number; the stream's first picture is among them."""
    found = []
    for path in PATHS:
        answer = daemon.get(path)
        assert answer.status == 200, path
        if SERIAL in f"{answer.headers}{answer.text}":
            found.append(path)
    client = StreamClient(daemon.port)
    client.read_until(b"event: snapshot")
    client.read_for(1.2)
    client.close()
    return [*found, *["/api/v1/stream"] * (SERIAL.encode() in client.data)]


def _is_shown(daemon: Daemon, wanted: bool) -> bool:
    shown = ["/gpu/0", "/metrics", "/api/v1/gpus", "/api/v1/gpus/0"]
    return _shown_at(daemon) == (shown if wanted else [])


def test_a_serial_number_is_nowhere_where_it_is_not_wanted(
    make_driver: MakeDriver, start: StartDaemon, tmp_path: Path
) -> None:
    """On no path, on no stream, in no log line; SIGHUP brings it back, and takes it off again."""
    config = tmp_path / "config.yml"
    config.write_text("identity: {serial: false}\n")
    driver = make_driver({"devices": [GPU]})
    daemon = start(driver, f"--config.file={config}", wait_for=1)

    assert _shown_at(daemon) == []
    ((labels, _),) = daemon.metrics().rows("gpu_info")
    assert labels["serial"] == ""
    assert labels["board_part_number"]
    assert "serial" not in json.loads(daemon.get("/api/v1/gpus/0").text)["gpu"]["identity"]

    for wanted in ("true", "false"):
        config.write_text(f"identity: {{serial: {wanted}}}\n")
        daemon.signal(SIGHUP)
        wait_until(partial(_is_shown, daemon, wanted == "true"), 15.0, f"serial {wanted}")
    assert not [line for line in daemon.lines() if SERIAL in line]


@pytest.mark.slow
def test_recordings_and_once_leave_it_out(
    make_driver: MakeDriver, command: RunCommand, tmp_path: Path
) -> None:
    """`record` writes it unless the flag says otherwise; `once` prints what /metrics shows."""
    driver = make_driver({"devices": [GPU]})
    for flags, is_there in (((), True), (("--no-identity.serial",), False)):
        file = tmp_path / f"{len(flags)}.jsonl"
        recorded = command(driver, "record", str(file), "--duration=1s", *flags)
        assert recorded.wait() == 0, recorded.lines()
        assert (SERIAL in file.read_text()) == is_there
        once = command(driver, "once", *flags)
        assert (SERIAL.encode() in once.stdout) == is_there

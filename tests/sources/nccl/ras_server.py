# SPDX-License-Identifier: Apache-2.0
"""A port that speaks as NCCL's RAS does, with the status that a test sets."""

from __future__ import annotations

import json
import socketserver
import threading
from typing import Any


def rank(number: int, pid: int, host: str = "10.0.0.7", gpu: int = 0) -> dict[str, Any]:
    """Return a rank that reports itself."""
    return {
        "rank": number,
        "host": host,
        "pid": pid,
        "cuda_dev": gpu,
        "nvml_dev": gpu,
        "status": {"init_state": 0, "async_error": 0, "abort_flag": False},
        "collective_counts": {"Broadcast": 4, "AllReduce": 812},
    }


def absent(
    number: int, pid: int, *, unresponsive: bool = False, dead: bool = False
) -> dict[str, Any]:
    """Return a rank that a communicator lacks."""
    plain = rank(number, pid)
    del plain["collective_counts"]
    return {**plain, "status": {"unresponsive": unresponsive, "considered_dead": dead}}


def status(*communicators: tuple[list[dict[str, Any]], list[dict[str, Any]]]) -> dict[str, Any]:
    """Return the status of a job with these communicators: ranks, and missing ranks, of each."""
    return {
        "nccl_version": "2.28.9",
        "communicators_count": len(communicators),
        "communicators": [
            {
                "hash": hex(0x1000 + number),
                "size": len(ranks) + len(missing),
                "ranks": ranks,
                "missing_ranks": missing,
            }
            for number, (ranks, missing) in enumerate(communicators)
        ],
        "ras": {"collection_time_sec": 0.003, "timeouts_count": 0},
    }


class RasServer:
    """The port; `says` is sent as it is if it is bytes."""

    def __init__(
        self, says: Any = None, *, has_json: bool = True, greeting: bytes = b"SERVER PROTOCOL 2\n"
    ) -> None:
        self.says = says
        self.has_json = has_json
        self.greeting = greeting
        self.commands: list[str] = []
        ras = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                for line in self.rfile:
                    command = line.decode().strip()
                    ras.commands.append(command)
                    if ras.answer(command, self.wfile):
                        return

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def answer(self, command: str, file: Any) -> bool:
        """Answer a command; return whether the connection ends with that."""
        words = command.lower()
        if words.startswith("client protocol "):
            file.write(self.greeting)
            return not self.greeting.startswith(b"SERVER")
        if words.startswith("timeout ") or (words == "set format json" and self.has_json):
            file.write(b"OK\n")
        elif words == "status":
            said = self.says
            file.write(said if isinstance(said, bytes) else json.dumps(said).encode() + b"\n")
            return True
        else:
            file.write(f"ERROR: Unknown command {command}\n".encode())
        return False

    def __enter__(self) -> RasServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

# SPDX-License-Identifier: Apache-2.0
"""A kubelet's socket as real gRPC serves it, with the answers of a test."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent import futures
from pathlib import Path
from typing import Any

# Tests start processes while its threads run; none of those uses gRPC.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import grpc

from tests.sources.workload.kubernetes.messages import Message

LIST = "/v1.PodResourcesLister/List"
LIST_PODS = "/v1alpha1.Pods/ListPods"


class Refused(Exception):
    """Answers with a status of gRPC."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


Answer = Any
"""A message, the bytes of one, or Refused."""


class FakeKubelet:
    """Serves one method on one socket; `answer` may be changed at any time."""

    def __init__(self, path: Path, method: str, answer: Answer) -> None:
        self.path = path
        self.answer = answer
        self.asked = 0
        self.metadata: dict[str, str] = {}
        self.before_answering: Callable[[], object] = lambda: None
        _, service, name = method.split("/")
        handler = grpc.unary_unary_rpc_method_handler(self._answer)
        self._handlers = grpc.method_handlers_generic_handler(service, {name: handler})
        self._server: Any = None

    def start(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._server = grpc.server(futures.ThreadPoolExecutor(2))
        self._server.add_generic_rpc_handlers((self._handlers,))
        self._server.add_insecure_port(f"unix:{self.path}")
        self._server.start()

    def stop(self) -> None:
        """End at once, as a kubelet that is killed; its socket stays behind."""
        if self._server is None:
            return
        self._server.stop(None).wait()
        self._server = None

    def _answer(self, request: bytes, context: Any) -> bytes:
        assert request == b""
        self.asked += 1
        self.metadata = {str(name): str(value) for name, value in context.invocation_metadata()}
        self.before_answering()
        if isinstance(self.answer, Refused):
            context.abort(self.answer.code, self.answer.text)
        if isinstance(self.answer, bytes):
            return self.answer
        message: Message = self.answer
        encoded: bytes = message.SerializeToString()
        return encoded

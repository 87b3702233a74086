# SPDX-License-Identifier: Apache-2.0
"""Kubelets that end with their test."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.sources.workload.kubernetes.kubelet import LIST, Answer, FakeKubelet

StartKubelet = Callable[..., FakeKubelet]
"""Starts one: ``start_kubelet(answer, LIST)``."""


@pytest.fixture
def sockets() -> Iterator[Path]:
    """A folder whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="kubelet-") as folder:
        yield Path(folder)


@pytest.fixture
def start_kubelet(sockets: Path) -> Iterator[StartKubelet]:
    """Starts kubelets."""
    started: list[FakeKubelet] = []

    def start(answer: Answer, method: str = LIST) -> FakeKubelet:
        kubelet = FakeKubelet(sockets / f"{len(started)}" / "kubelet.sock", method, answer)
        started.append(kubelet)
        kubelet.start()
        return kubelet

    yield start
    for each in started:
        each.stop()

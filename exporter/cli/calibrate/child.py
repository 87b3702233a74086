# SPDX-License-Identifier: Apache-2.0
"""The process that puts loads on a GPU: ``kernels.py``, run by a Python that has torch."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from exporter.cli.calibrate.loads import Load
from exporter.errors import ExporterError, clipped, one_line

KERNELS = Path(__file__).with_name("kernels.py")
LONGEST_LINE = 4096
START_SECONDS = 180.0
"""How long to wait until torch is imported and CUDA has opened the GPU."""
ANSWER_SECONDS = 60.0
"""How long a load may take to begin: its operands are made, and its kernels loaded."""
END_SECONDS = 5.0
LOOK_SECONDS = 60.0
"""How long a Python may take to say whether it has torch."""

HAS_TORCH, NO_TORCH, NO_CUDA = 0, 1, 2
# To import it takes seconds; this file of it says how it was built, and is run alone.
_LOOK = f"""
import importlib.util, os, runpy, sys
spec = importlib.util.find_spec("torch")
if spec is None:
    sys.exit({NO_TORCH})
version = os.path.join(os.path.dirname(spec.origin or ""), "version.py")
if os.path.exists(version) and runpy.run_path(version).get("cuda", "unknown") is None:
    sys.exit({NO_CUDA})
"""


@dataclass(frozen=True, slots=True)
class Work:
    """What was done since the start, by the process's own clock."""

    seconds: float
    flops: float
    bytes: float


@dataclass(frozen=True, slots=True)
class Started:
    """What the process has found."""

    torch: str
    precision: str
    """Of the tensor GEMM: bf16_tensor or fp16_tensor."""


class Loader(Protocol):
    """Puts loads on one GPU."""

    def start(self) -> Started:
        """Open the GPU. Raise ExporterError with the reason if that cannot be done."""

    def put(self, load: Load) -> None:
        """Begin a load in place of the one before."""

    def work(self) -> Work:
        """Return what was done so far; raise ExporterError if it has ended."""

    def close(self) -> None:
        """End it; the GPU is as it was before."""


def find_python(wanted: str | None, environ: Mapping[str, str]) -> str:
    """Return the Python that has torch: the wanted one, else this one, else that on the PATH.

    Raises:
        ExporterError: there is none.
    """
    if wanted is not None:
        python = shutil.which(wanted, path=environ.get("PATH"))
        if python is None:
            raise ExporterError(f"--python: {one_line(clipped(wanted))} is no program")
        return python
    tried = (sys.executable, shutil.which("python3", path=environ.get("PATH")))
    pythons = [python for python in dict.fromkeys(tried) if python]
    without_cuda = []
    for python in pythons:
        found = _look(python, environ)
        if found == HAS_TORCH:
            return python
        if found == NO_CUDA:
            without_cuda.append(python)
    problem = "built without CUDA" if without_cuda else "not installed"
    raise ExporterError(
        f"torch is {problem} for {' or '.join(map(one_line, without_cuda or pythons))}: --python "
        "PATH names the Python of an environment that has it"
    )


def _look(python: str, environ: Mapping[str, str]) -> int:
    try:
        looked = subprocess.run(  # noqa: S603 - a Python that the user runs as well
            [python, "-c", _LOOK],
            env=dict(environ),
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LOOK_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return NO_TORCH
    return looked.returncode


class Child:
    """The process, in a session of its own: a Ctrl-C in the terminal does not reach it.

    It ends with its standard input, so also when this process is killed.
    """

    def __init__(self, python: str, gpu_uuid: str, environ: Mapping[str, str]) -> None:
        self._python = python
        self._environ = {**environ, "CUDA_VISIBLE_DEVICES": gpu_uuid}
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[bytes] | None = None
        self._messages: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._work = Work(0.0, 0.0, 0.0)

    def start(self) -> Started:
        """Start the process, and wait until it has opened the GPU."""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `close`
        try:
            self._process = subprocess.Popen(  # noqa: S603 - a Python that the user runs as well
                [self._python, str(KERNELS)],
                env=self._environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,
                text=True,
                encoding="utf-8",
                errors="replace",
            )
        except OSError as error:
            reason = error.strerror or error
            raise ExporterError(f"{one_line(self._python)} cannot be run: {reason}") from error
        assert self._process.stdout is not None  # noqa: S101 - a pipe, as asked for
        threading.Thread(
            target=self._read, args=(self._process.stdout,), name="loads", daemon=True
        ).start()
        ready = self._await("ready", START_SECONDS)["ready"]
        return Started(str(ready.get("torch")), str(ready.get("precision")))

    def _read(self, lines: IO[str]) -> None:
        with lines:
            for message in _messages(lines):
                self._messages.put(message)
        self._messages.put(None)

    def _await(self, key: str, wait_seconds: float) -> dict[str, Any]:
        """Return the next message that has this key."""
        while True:
            try:
                message = self._messages.get(timeout=wait_seconds)
            except queue.Empty:
                raise ExporterError(
                    f"the loads do not answer for {wait_seconds:g} s: is the GPU hung?"
                ) from None
            self._take(message)
            if message is not None and key in message:
                return message

    def _take(self, message: dict[str, Any] | None) -> None:
        if message is None:
            raise ExporterError(f"the loads ended: {self._last_words()}")
        if "problem" in message:
            raise ExporterError(one_line(str(message["problem"])[:400]))
        if "kernel" in message:
            done = (message.get(name) for name in ("seconds", "flops", "bytes"))
            self._work = Work(*(float(each or 0.0) for each in done))

    def _last_words(self) -> str:
        """Return the last line of its standard error, or how it ended."""
        assert self._process is not None  # noqa: S101 - it has been started
        assert self._errors is not None  # noqa: S101 - likewise
        try:
            code = self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            return "it closed its output"
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - LONGEST_LINE))
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        last = one_line(lines[-1])[:400] if lines else "it said nothing"
        return f"{last} (exit code {code})"

    def put(self, load: Load) -> None:
        """Begin a load, and wait until it has begun."""
        self._drain()
        command = {"kernel": load.kernel, "zeros": load.zeros, "duty": load.duty}
        assert self._process is not None  # noqa: S101 - it has been started
        assert self._process.stdin is not None  # noqa: S101 - a pipe, as asked for
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
        except OSError:
            self._await("kernel", END_SECONDS)  # says why it is gone
        while self._await("kernel", ANSWER_SECONDS)["kernel"] != load.kernel:
            pass

    def work(self) -> Work:
        """Return what was done so far."""
        self._drain()
        return self._work

    def _drain(self) -> None:
        while not self._messages.empty():
            self._take(self._messages.get())

    def close(self) -> None:
        """End the process; one that hangs is killed."""
        process = self._process
        if process is not None:
            if process.stdin is not None:
                with contextlib.suppress(OSError):
                    process.stdin.close()
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._errors is not None:
            self._errors.close()


def _messages(lines: IO[str]) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects; what is something else is passed over."""
    while line := lines.readline(LONGEST_LINE):
        try:
            message = json.loads(line)
        except ValueError:
            continue
        if isinstance(message, dict):
            yield message

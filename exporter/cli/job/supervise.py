# SPDX-License-Identifier: Apache-2.0
"""The parent of a job under ``run --with-daemon``: it starts or finds the daemon, then waits.

It needs nothing but the standard library, so that the job runs also where the daemon cannot.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import socket
import stat
import sys
import tempfile
from collections.abc import Callable
from select import select

from exporter.cli.job.step import (
    CONTROL,
    DONE,
    FORWARDED,
    REPORT_SECONDS,
    REPORT_SO_FAR,
    START_SECONDS,
    TRAINING,
    Environment,
    node_of,
    step_of,
)

READY, NO_GPUS = b"ready", b"-"
MOST_BYTES = 1 << 20
LONGEST_PATH = 107
"""Of a Unix socket, in bytes."""
_USUAL = "roofline-exporter/training.sock"
_PR_SET_PDEATHSIG, _SI_KERNEL = 1, 0x80


def supervise(
    become: Callable[[Environment], int], environ: Environment, report: str | None
) -> int:
    """Run a job beside a daemon of its own; return the job's exit code, 128 + n after signal n.

    `become` makes a process the job, with these variables more; it returns a code if it cannot.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*FORWARDED, signal.SIGCHLD})
    ignored = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # or nobody could wait for the job
    daemon, more, folder = None, dict[str, str](), ""
    try:
        folder = _folder(environ)
        daemon = _joined(folder, environ, report, before)
        more = {"ROOFLINE_TRAINING_SOCKET": f"{folder}/{TRAINING}", **_site(environ)}
    except Exception as error:  # whatever it is, the job runs
        _say(f"no daemon of its own, the job runs without: {_reason(error)}")
    parent, job = os.getpid(), os.fork()
    if not job:
        signal.signal(signal.SIGCHLD, ignored)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        with contextlib.suppress(OSError, AttributeError):  # it dies as one that `run` became
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os._exit(become(more) if os.getppid() == parent else 128 + signal.SIGKILL)
    code = _waited(job, daemon)
    if daemon is not None:
        _leave(folder, daemon)
    return code


def _folder(environ: Environment) -> str:
    """Make a private folder for the sockets, the same one for all tasks of a step on a node."""
    step = step_of(environ)
    name = f"roofline-job-{step}-{node_of(environ)}" if step else "roofline-job-XXXXXXXX"
    *chosen, last = [environ.get(each, "") for each in ("XDG_RUNTIME_DIR", "TMPDIR")] + ["/tmp"]  # noqa: S108
    for base in chosen:
        is_short = len(os.fsencode(f"{base}/{name}/{TRAINING}")) <= LONGEST_PATH
        if os.path.isabs(base) and is_short:
            with contextlib.suppress(OSError):
                return _made(base, name if step else None)
    return _made(last, name if step else None)


def _made(base: str, name: str | None) -> str:
    if name is None:
        return tempfile.mkdtemp(prefix="roofline-job-", dir=base)
    path = f"{base}/{name}"
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    found = os.lstat(path)
    if (found.st_uid, found.st_mode) != (os.getuid(), stat.S_IFDIR | 0o700):
        raise PermissionError(0, "somebody else's, or open to others", path)
    return path


def _joined(folder: str, environ: Environment, report: str | None, mask: set[int]) -> socket.socket:
    """Return a connection to the step's daemon, which the first task starts.

    While it is open, the daemon stays; the kernel closes it if this process is killed.
    """
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    daemon = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if daemon.connect_ex(f"{folder}/{CONTROL}"):
            if not os.path.isdir(folder) or not os.path.samestat(os.fstat(lock), os.stat(folder)):
                raise ConnectionError("another task of this step could not start it")
            _start(folder, environ, report, mask)
            daemon.connect(f"{folder}/{CONTROL}")
        daemon.send(os.fsencode(environ.get("CUDA_VISIBLE_DEVICES", "")) or NO_GPUS)
    except OSError:
        with contextlib.suppress(OSError):  # it is another task's if there is something in it
            os.rmdir(folder)
        raise
    finally:
        os.close(lock)
    return daemon


def _start(folder: str, environ: Environment, report: str | None, mask: set[int]) -> None:
    """Start the daemon in a session of its own; return once it listens."""
    reading, writing = os.pipe()
    daemon = os.fork()
    if not daemon:
        try:
            os.setsid()
            os.dup2(writing, 3)
            for held in map(int, os.listdir("/proc/self/fd")):  # pipes and locks are the job's
                with contextlib.suppress(OSError):
                    os.close(held if held > 3 else -1)
            for stream in (0, 1, 2):  # another task may be the last one
                os.dup2(os.open(os.devnull, os.O_RDWR), stream)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask - FORWARDED)
            from exporter.cli.job.daemon import serve

            serve(folder, environ, report, lambda: os.write(3, READY))
        except BaseException as error:
            with contextlib.suppress(OSError):
                os.write(3, _reason(error).encode(errors="replace")[:4096])
        os._exit(0)
    os.close(writing)
    is_there, _, _ = select([reading], [], [], START_SECONDS)
    said = os.read(reading, 4096) if is_there else b"it did not start in time"
    os.close(reading)
    if said != READY:
        os.kill(daemon, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)
        raise ConnectionError(said.decode(errors="replace") or "it ended at once")
    for path in _site(environ).values():
        _say(f"the daemon of this node at {path} gets the job's reports, too")


def _site(environ: Environment) -> dict[str, str]:
    """Return the variable that names the socket of the node's own daemon, if it takes reports."""
    user = environ.get("XDG_RUNTIME_DIR")
    usual = [f"{each}/{_USUAL}" for each in ("/run", user) if each]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        for path in (environ.get("ROOFLINE_TRAINING_SOCKET", ""), *usual):
            if path and not probe.connect_ex(path):
                return {"ROOFLINE_JOB_SITE_SOCKET": path}
    return {}


def _waited(job: int, daemon: socket.socket | None) -> int:
    """Pass on signals until the job ends; return its exit code."""
    while True:
        got = signal.sigwaitinfo({*FORWARDED, signal.SIGCHLD})
        ended, status = os.waitpid(job, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        # A terminal signals the job, too; Slurm and all others this process alone.
        if got.si_signo != signal.SIGCHLD and got.si_code != _SI_KERNEL:
            os.kill(job, got.si_signo)
        if got.si_signo == signal.SIGTERM and daemon is not None:
            with contextlib.suppress(OSError):
                daemon.send(REPORT_SO_FAR)


def _leave(folder: str, daemon: socket.socket) -> None:
    """Tell the daemon that the job has ended; the last one waits for its report."""
    daemon.settimeout(REPORT_SECONDS)
    reason = "it ended early"
    try:
        daemon.shutdown(socket.SHUT_WR)
        said = daemon.recv(MOST_BYTES).decode()
        if said.startswith(DONE.decode()):
            _write(said[len(DONE) :])
            return
    except OSError as error:
        reason = reason if isinstance(error, ConnectionError) else _reason(error)
    _say(f"no report by the daemon of this job: {reason}")
    shutil.rmtree(folder, ignore_errors=True)


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return ": ".join(filter(None, (error.filename, error.strerror.lower())))
    return " ".join(str(error).split()) or type(error).__name__


def _say(line: str) -> None:
    _write(f"roofline-exporter: run: {line}\n")


def _write(text: str) -> None:
    if sys.stderr is not None:  # closed from the start
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)
            sys.stderr.flush()

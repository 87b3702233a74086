# SPDX-License-Identifier: Apache-2.0
"""The parent of a job under ``run --with-daemon``: it starts the daemon, then waits for both.

It needs nothing but the standard library, so that the job runs also where the daemon cannot.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from select import select

from exporter.cli.job import READY, Environment, node_of, say, step_of

FORWARDED = frozenset(
    {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2}
)
START_SECONDS, REPORT_SECONDS = 20.0, 15.0
"""How long the job waits for its daemon, and its exit code for the report: half of what Slurm's
KillWait gives by default."""
_PR_SET_PDEATHSIG, _SI_KERNEL = 1, 0x80


def supervise(
    become: Callable[[Environment], int], environ: Environment, report: str | None
) -> int:
    """Run a job beside a daemon of its own; return the job's exit code, 128 + n after signal n.

    `become` makes a process the job, with these variables more; it returns a code if it cannot.
    The first task of a step on a node has the daemon. Any other is its job at once, and so is the
    first without a daemon, whatever keeps that from starting.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*FORWARDED, signal.SIGCHLD})
    ignored = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # or nobody could wait for the job
    parent, daemon, more = os.getpid(), None, dict[str, str]()
    try:
        path = _socket_path(environ)
        if environ.get("SLURM_LOCALID", "0") == "0":
            daemon = _started(path, environ, report)
        more = {"ROOFLINE_TRAINING_SOCKET": path}
    except Exception as error:
        say(f"run: no daemon of its own, the job runs without: {error}")
    if daemon is not None:
        if job := os.fork():
            code = _waited(job)
            _end(*daemon, path)
            return code
        with suppress(OSError, AttributeError):  # it dies as one that `run` became
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(128 + signal.SIGKILL)
    signal.signal(signal.SIGCHLD, ignored)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return become(more)


def _socket_path(environ: Environment) -> str:
    """Return the path of the daemon's socket, in a private folder: one for a step on a node."""
    own = step_of(environ) if "SLURM_STEP_ID" in environ else os.getpid()
    folder = f"/tmp/roofline-job-{own}-{node_of(environ)}"  # noqa: S108
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    found = os.lstat(folder)
    if (found.st_uid, found.st_mode) != (os.getuid(), stat.S_IFDIR | 0o700):
        raise PermissionError(f"{folder}: somebody else's, or open to others")
    return f"{folder}/training.sock"


def _started(path: str, environ: Environment, report: str | None) -> tuple[int, socket.socket]:
    """Return the daemon's pid, and a connection that the kernel ends if this process is killed.

    Signals that are forwarded stay blocked in it: a terminal and Slurm signal all processes.
    """
    run, daemon = socket.socketpair()
    if not (pid := os.fork()):
        run.close()
        try:
            from exporter.cli.job.daemon import serve

            serve(daemon, path, environ, report)
        except BaseException as error:
            with suppress(OSError):
                daemon.sendall(str(error).encode(errors="replace")[:4096])
        os._exit(0)
    daemon.close()
    has_said = select([run], (), (), START_SECONDS)[0]
    said = run.recv(4096) if has_said else b"it did not start in time"
    if said != READY:
        _kill(pid, path)
        raise ConnectionError(said.decode(errors="replace") or "it ended at once")
    return pid, run


def _waited(job: int) -> int:
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


def _end(pid: int, daemon: socket.socket, path: str) -> None:
    """Wait for the daemon's report, and for its end."""
    with suppress(OSError):
        daemon.shutdown(socket.SHUT_WR)
        if not select([daemon], (), (), REPORT_SECONDS)[0] or daemon.recv(4096) != READY:
            say("run: the daemon of this job gave no report")
    _kill(pid, path)


def _kill(pid: int, path: str) -> None:
    os.kill(pid, signal.SIGKILL)
    shutil.rmtree(os.path.dirname(path), ignore_errors=True)

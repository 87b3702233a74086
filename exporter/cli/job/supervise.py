# SPDX-License-Identifier: Apache-2.0
"""The parent of a job under ``run --with-daemon``: it starts or finds the daemon, then waits.

It needs nothing but the standard library, so that the job runs also where the daemon cannot.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping

Environment = Mapping[str, str]

FORWARDED = frozenset(
    {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2}
)
START_SECONDS = 20.0
"""How long the job waits for its daemon."""
REPORT_SECONDS = 15
"""How long its exit code waits for the report: half of what Slurm's KillWait gives by default."""
_PR_SET_PDEATHSIG, _SI_KERNEL = 1, 0x80


def step_of(environ: Environment) -> str | None:
    """Return JOB.STEP, as Slurm names it; None outside of Slurm."""
    job = environ.get("SLURM_JOB_ID")
    return job and f"{job}.{environ.get('SLURM_STEP_ID') or 'batch'}"


def node_of(environ: Environment) -> str:
    """Return the node's name, as Slurm has it, else the host's."""
    return environ.get("SLURMD_NODENAME") or socket.gethostname()


def is_own(peer: socket.socket) -> bool:
    """Return whether the other end is of this user: the socket's name is open to all."""
    found = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return bool(struct.unpack("=iII", found)[1] == os.getuid())


def supervise(
    become: Callable[[Environment], int], environ: Environment, report: str | None
) -> int:
    """Run a job beside a daemon of its own; return the job's exit code, 128 + n after signal n.

    `become` makes a process the job, with these variables more; it returns a code if it cannot.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*FORWARDED, signal.SIGCHLD})
    ignored = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # or nobody could wait for the job
    daemon, more = None, dict[str, str]()
    try:
        daemon, path = _joined(environ, report)
        more = {"ROOFLINE_TRAINING_SOCKET": path}
    except Exception as error:  # whatever it is, the job runs
        _say(f"no daemon of its own, the job runs without: {_reason(error)}")
    parent, job = os.getpid(), os.fork()
    if not job:
        signal.signal(signal.SIGCHLD, ignored)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        with contextlib.suppress(OSError, AttributeError):  # it dies as one that `run` became
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os._exit(become(more) if os.getppid() == parent else 128 + signal.SIGKILL)
    code = _waited(job)
    if daemon is not None:
        _leave(daemon, os.path.dirname(path))
    return code


def _joined(environ: Environment, report: str | None) -> tuple[socket.socket, str]:
    """Return a connection to the step's daemon, which its first task starts; and where it listens.

    While it is open, the daemon stays; the kernel closes it if this process is killed. Only one
    task can have the abstract name, which the kernel frees with its last owner.
    """
    name = f"\0roofline-exporter-job-{step_of(environ) or os.getpid()}-{node_of(environ)}"
    daemon, started = socket.socket(socket.AF_UNIX), 0
    daemon.settimeout(START_SECONDS)
    for _ in range(100):
        if not daemon.connect_ex(name):
            break
        with socket.socket(socket.AF_UNIX) as listener:
            try:
                listener.bind(name)
            except OSError:  # another task has it, and is about to listen
                time.sleep(0.01)
                continue
            listener.listen(1024)
            started = _start(listener, environ, report)
    try:
        if not is_own(daemon):
            raise PermissionError(0, "another user has the name of its socket")
        said = os.fsdecode(daemon.recv(4096))
        if not said.startswith("/"):
            raise ConnectionError(said or "it ended at once")
    except OSError:
        if started:
            os.kill(started, signal.SIGKILL)
        raise
    return daemon, said


def _start(listener: socket.socket, environ: Environment, report: str | None) -> int:
    """Start the daemon in a session of its own, without any descriptor of the job; return its pid.

    The signals that are forwarded stay blocked in it: a terminal and Slurm signal it, too.
    """
    if daemon := os.fork():
        return daemon
    try:
        os.setsid()
        for held in {*map(int, os.listdir("/proc/self/fd"))} - {listener.fileno()}:
            with contextlib.suppress(OSError):  # that of the list is closed
                os.close(held)
        for _ in range(3):  # another task may be the last one
            os.open(os.devnull, os.O_RDWR)
        from exporter.cli.job.daemon import serve

        serve(listener, environ, report)
    except BaseException as error:
        with contextlib.suppress(OSError):
            listener.settimeout(1.0)
            listener.accept()[0].sendall(_reason(error).encode(errors="replace")[:4096])
    os._exit(0)


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


def _leave(daemon: socket.socket, folder: str) -> None:
    """Tell the daemon that the job has ended; the last task waits for what it says of its report.

    Any other task gets an empty line. What the daemon cannot remove any more is removed here.
    """
    daemon.settimeout(REPORT_SECONDS)
    said, reason = b"", "it ended early"
    try:
        daemon.shutdown(socket.SHUT_WR)
        said = b"".join(iter(lambda: daemon.recv(65536), b""))
    except OSError as error:
        reason = reason if isinstance(error, ConnectionError) else _reason(error)
    if said:
        _write(said.decode(errors="replace").lstrip("\n"))
    else:
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

# SPDX-License-Identifier: Apache-2.0
"""The daemon under the unit's seccomp filters, limits and umask: it works, and they hold."""

from __future__ import annotations

import signal
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.conftest import require_tool, unmet
from tests.deploy import confined
from tests.e2e.containers import fetch
from tests.e2e.daemons import COMMAND, Page
from tests.e2e.processes import Process
from tests.fake_nvml import FakeNvml
from tests.programs import said
from tests.waiting import wait_until

UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "roofline-exporter.service"
REFUSED: Mapping[str, str] = {
    "process_vm_readv": "call('process_vm_readv', os.getppid(), 0, 0, 0, 0, 0)",
    "process_vm_writev": "call('process_vm_writev', os.getppid(), 0, 0, 0, 0, 0)",
    "ptrace": "call('ptrace', 16, os.getppid(), 0, 0)",
    "chown": "os.chown('/', 0, 0)",
    "setuid": "os.setuid(1)",
    "nice": "os.setpriority(os.PRIO_PROCESS, 0, 19)",
    "keyring": "call('keyctl', 0, -3, 1)",
    "netlink": "socket.socket(socket.AF_NETLINK)",
    "packet": "socket.socket(socket.AF_PACKET)",
    "executable": "mmap.mmap(-1, 4096, prot=mmap.PROT_WRITE | mmap.PROT_EXEC)",
    "mount": "call('mount', 0, 0, 0, 0, 0)",
}
"""Python that fails for want of a right, by what it tries."""
PROBE = """
import ctypes, errno, mmap, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *words):
    if getattr(libc, name)(*words) == -1:
        raise OSError(ctypes.get_errno(), name)
try:
    {}
except OSError as error:
    print(errno.errorcode[error.errno])
"""


def _words() -> list[str]:
    require_tool("systemd-analyze")  # it knows what a group of system calls has
    if confined.LIBRARY is None:
        unmet("there is no libseccomp")
    return [sys.executable, confined.__file__, str(UNIT)]


@pytest.mark.parametrize("what", REFUSED)
def test_unit_refuses(what: str) -> None:
    """The very call that an attacker inside the daemon would make."""
    code = PROBE.format(REFUSED[what].replace("'keyctl'", "'syscall', 250"))
    expected = "EAFNOSUPPORT" if what in {"netlink", "packet"} else "EPERM"
    assert said(*_words(), sys.executable, "-c", code) == f"{expected}\n"


@pytest.fixture
def daemon(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Process]:
    """The daemon, confined, on the fake driver or with simulated GPUs."""
    environment: Mapping[str, str] = {}
    words = ["--demo"]
    if request.param == "driver":
        fake = FakeNvml(tmp_path / "fake", {"devices": {"count": 8}})
        environment, words = fake.environment(), [f"--nvml.library={fake.library}"]
    socket = tmp_path / "made" / "training.sock"
    command = [*_words(), *COMMAND, "serve", "--web.listen-address=127.0.0.1:0"]
    process = Process(
        [*command, f"--training.socket={socket}", *words], tmp_path / "daemon", environment
    )
    yield process
    process.kill()


@pytest.mark.parametrize("daemon", ["demo", "driver"], indirect=True)
def test_daemon_works_confined(daemon: Process, tmp_path: Path) -> None:
    """It serves all GPUs, is read again, has its socket open to everybody, and ends."""
    url = daemon.find_in_line(r"listening on (http://\S+?)/")[1]

    def up() -> bool:
        page = Page((fetch(f"{url}/metrics") or b"").decode())
        return sum(value for _, value in page.rows("gpu_up")) == 8

    wait_until(up, 30, "eight GPUs")
    made = (tmp_path / "made" / "training.sock").stat()
    assert stat.S_IMODE(made.st_mode) == 0o666, "whatever the umask is"
    assert fetch(f"{url}/api/v1/gpus") is not None
    daemon.signal(signal.SIGHUP)
    daemon.find_in_line("configuration reloaded")
    assert daemon.stop()[0] == 0
    assert daemon.lines("Operation not permitted") == []
    assert daemon.lines("level=error") == []

# SPDX-License-Identifier: Apache-2.0
"""A real Slurm of one node with GPUs that are only device files: munged, slurmctld and slurmd.

It runs as root without systemd, in a folder, on ports and under a node name of its own, so that
neither the machine's /etc/slurm nor another such cluster meets it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.conftest import require_tool, unmet
from tests.e2e.processes import ROOT, Process, environment
from tests.serving import free_port
from tests.waiting import wait_until

CGROUPS = Path("/sys/fs/cgroup")
SCRIPTS = ROOT / "deploy/slurm"
PROGRAMS = (
    *("munged", "slurmctld", "slurmd", "srun", "salloc", "sbatch", "scancel"),
    *("sinfo", "squeue", "scontrol"),
)
ANSWER_SECONDS = 30.0
USER = "nobody"

SLURM_CONF = """\
ClusterName={node}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
MailProg=/bin/true
MpiDefault=none
PlugStackConfig={folder}/plugstack.conf
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
ReturnToService=2
KillWait=2
Prolog={folder}/prolog
Epilog={folder}/epilog
PrologFlags=Alloc,Contain
NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 CPUs={cpus} Gres=gpu:{gpus} State=UNKNOWN
PartitionName=all Nodes={node} Default=YES State=UP
"""
CGROUP_CONF = """\
CgroupPlugin=cgroup/{version}
CgroupMountpoint={mount}
{more}
"""
SCRIPT = """\
#!/bin/sh
export ROOFLINE_GPUSTAT={folder}/gpustat ROOFLINE_JOB_MAP={folder}/job-mapping
export ROOFLINE_NVIDIA_PROC={folder}/nvidia
exec {script}
"""
INFORMATION = "Model: \t\t NVIDIA\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n"


class Gpu(NamedTuple):
    """One GPU of the node, as its driver has it."""

    uuid: str
    minor: int


class Groups(NamedTuple):
    """The control groups that Slurm may use on this machine."""

    version: str
    mount: Path
    root: Path
    """Where it may make folders."""


def groups() -> Groups:
    """Return control groups that can be written, of version 1 if there are; skip without any."""
    found = [
        each
        for each in (Groups("v1", CGROUPS, CGROUPS / "freezer"), Groups("v2", CGROUPS, CGROUPS))
        if _is_writable(each)
    ]
    if not found:
        unmet(f"no control groups can be made under {CGROUPS}")
    return found[0]


def _is_writable(groups: Groups) -> bool:
    marker = "cgroup.procs" if groups.version == "v1" else "cgroup.controllers"
    probe = groups.root / f"roofline-{secrets.token_hex(4)}"
    try:
        if there := (groups.root / marker).exists():
            probe.mkdir()
            probe.rmdir()
    except OSError:
        return False
    return there


class SlurmCluster:
    """A cluster of one node, running; every GPU of it is a device file nvidiaN."""

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        """Start it: its gres.conf lists the device files by N, the driver the GPUs as they come."""
        self._tools = {name: require_tool(name) for name in PROGRAMS}
        if os.geteuid() != 0:
            unmet("Slurm's daemons run jobs of several users: that takes root")
        self._cgroups = groups()
        self.node = f"roofline-{secrets.token_hex(4)}"
        # Paths of sockets have to be shorter than those of tests may be.
        self.folder = Path(tempfile.mkdtemp(prefix="roofline-slurm-", dir="/tmp"))
        self.folder.chmod(0o755)
        self.gpustat, self.job_map = self.folder / "gpustat", self.folder / "job-mapping"
        """Where the prolog writes files, by UUID and by number."""
        self._started: list[Process] = []
        self._configure(gpus)

    def _configure(self, gpus: Sequence[Gpu]) -> None:
        text = SLURM_CONF.format(
            node=self.node,
            host=socket.gethostname().partition(".")[0],
            folder=self.folder,
            controller_port=free_port(),
            node_port=free_port(),
            cpus=os.cpu_count(),
            gpus=len(gpus),
        )
        for name in ("state", "spool", "dev", "gpustat", "job-mapping"):
            (self.folder / name).mkdir()
        minors = sorted(gpu.minor for gpu in gpus)
        for minor in minors:
            os.mknod(self.folder / f"dev/nvidia{minor}", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        for position, gpu in enumerate(gpus):
            folder = self.folder / f"nvidia/gpus/0000:{position:02x}:00.0"
            folder.mkdir(parents=True)
            (folder / "information").write_text(INFORMATION.format(uuid=gpu.uuid, minor=gpu.minor))
        self._write("slurm.conf", text)
        self._write("plugstack.conf", "")
        devices = (f"Name=gpu File={self.folder}/dev/nvidia{minor}\n" for minor in minors)
        self._write("gres.conf", "".join(devices))
        self._write(
            "cgroup.conf",
            CGROUP_CONF.format(
                version=self._cgroups.version,
                mount=self._cgroups.mount,
                more="IgnoreSystemd=yes" if self._cgroups.version == "v2" else "",
            ),
        )
        for script in ("prolog", "epilog"):
            file = self._write(
                script, SCRIPT.format(folder=self.folder, script=SCRIPTS / f"{script}.sh")
            )
            file.chmod(0o755)
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)

    def _write(self, name: str, text: str) -> Path:
        file = self.folder / name
        file.write_text(text)
        return file

    @property
    def environment(self) -> Mapping[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def start(self) -> None:
        """Start the daemons; return once the node is idle."""
        folder = self.folder
        self._daemon(
            "munged",
            "--foreground",
            f"--socket={folder}/munge.sock",
            f"--key-file={folder}/munge.key",
            f"--pid-file={folder}/munged.pid",
            f"--log-file={folder}/munged.log",
            f"--seed-file={folder}/munge.seed",
        )
        wait_until((folder / "munge.sock").exists, ANSWER_SECONDS, "munged listens")
        self._daemon("slurmctld", "-D", "-c")
        self._daemon("slurmd", "-D", "-N", self.node)
        wait_until(self._is_idle, ANSWER_SECONDS, "the node is idle")

    def _daemon(self, name: str, *flags: str) -> None:
        folder = self.folder / f"{name}.out"
        self._started.append(Process([self._tools[name], *flags], folder, self.environment))

    def _is_idle(self) -> bool:
        return self.ask("sinfo", "--noheader", "--format=%t", check=False).strip() == "idle"

    def ask(self, program: str, *words: str, check: bool = True) -> str:
        """Run one of Slurm's commands to its end; return what it said."""
        done = subprocess.run(
            [self._tools[program], *words],
            cwd="/",
            env=environment(self.environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=ANSWER_SECONDS,
            check=False,
        )
        assert done.returncode == 0 or not check, done.stdout
        return done.stdout

    def allocate(self) -> int:
        """Give one GPU to a job that runs nothing; return its id."""
        said = self.ask(
            "salloc", "--no-shell", f"--uid={USER}", "--gres=gpu:1", f"--immediate={20}"
        )
        return int(said.partition("Granted job allocation ")[2].split()[0])

    def run(self, job: int) -> int:
        """Start a process in a new step of a job; return its pid."""
        step = Process(
            [
                self._tools["srun"],
                f"--jobid={job}",
                f"--uid={USER}",
                "--gres=gpu:1",
                "--overlap",
                "--chdir=/",
                "sh",
                "-c",
                "echo $$; exec sleep 600",
            ],
            self.folder / f"srun-{len(self._started)}",
            self.environment,
        )
        self._started.append(step)
        wait_until(lambda: step.stdout.endswith(b"\n"), ANSWER_SECONDS, f"a step: {step.lines()}")
        return int(step.stdout)

    def step(self, folder: Path, environ: Mapping[str, str], *words: str) -> Process:
        """Start a job of a user in this folder: flags of srun, and its command."""
        wait_until(self._is_idle, ANSWER_SECONDS, "the node is idle")
        command = [self._tools["srun"], f"--uid={USER}", "--gres=gpu:1", *words]
        step = Process(
            ["sh", "-c", 'cd "$0" && exec "$@"', str(folder), *command],
            self.folder / f"srun-{len(self._started)}",
            {**self.environment, **environ, "TMPDIR": str(folder)},
        )
        self._started.append(step)
        return step

    def batch(self, output: Path, *words: str) -> int:
        """Submit a job of one GPU that sleeps and writes to a file; return its id."""
        sleep = ("--wrap=exec sleep 600", f"--output={output}", "--chdir=/")
        flags = (f"--uid={USER}", "--gres=gpu:1", "--parsable")
        return int(self.ask("sbatch", *flags, *sleep, *words))

    def cancel(self, job: int) -> None:
        """End a job."""
        self.ask("scancel", str(job))

    def said(self) -> str:
        """What its daemons wrote."""
        return "\n".join(line for process in self._started for line in process.lines())

    def stop(self) -> None:
        """End everything that was started, the processes of jobs too, and leave nothing behind."""
        with contextlib.suppress(AssertionError, OSError, subprocess.SubprocessError):
            self.ask("scancel", f"--user={USER}")
            wait_until(lambda: not self._pids(), 10.0, "the jobs have ended")
        for process in reversed(self._started):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.stop()
            process.kill()
        for pid in self._pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not self._pids(), 10.0, "the last process has ended")
        for group in self._made():
            with contextlib.suppress(OSError):
                group.rmdir()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _made(self) -> list[Path]:
        """The control groups that this cluster has made, the innermost first."""
        tops = [
            *CGROUPS.glob(f"*/slurm_{self.node}"),
            *CGROUPS.glob(f"system.slice/{self.node}_slurmstepd.scope"),
        ]
        return [Path(folder) for top in tops for folder, _, _ in os.walk(top, topdown=False)]

    def _pids(self) -> list[int]:
        found: set[int] = set()
        for group in self._made():
            with contextlib.suppress(OSError):
                found.update(map(int, (group / "cgroup.procs").read_text().split()))
        return sorted(found)

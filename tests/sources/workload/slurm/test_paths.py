# SPDX-License-Identifier: Apache-2.0
"""Which job and step a control group of Slurm's is of, in every layout that Slurm has had."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.workload import Membership
from exporter.sources.proc.cgroup import membership

SLUID = "s01ARZ3NDEKTSV"
JOBS = {
    "v1": ("/slurm/uid_1000/job_7/step_0/task_1", "0"),
    "v1, the freezer's": ("/slurm/uid_1000/job_7/step_0", "0"),
    "v1, several slurmd": ("/slurm_gpu-1/uid_1000/job_7/step_batch/task_0", "batch"),
    "v1, in a container": (f"/docker/{'a' * 64}/slurm/uid_0/job_7/step_0", "0"),
    "v1, the job itself": ("/slurm/uid_1000/job_7", None),
    "v2": ("/system.slice/slurmstepd.scope/job_7/step_0/user/task_0", "0"),
    "v2, Slurm's own": ("/system.slice/slurmstepd.scope/job_7/step_extern/slurm", "extern"),
    "v2, special": ("/system.slice/slurmstepd.scope/job_7/step_batch/user/task_special", "batch"),
    "v2, interactive": (
        "/system.slice/slurmstepd.scope/job_7/step_interactive/user/task_0",
        "interactive",
    ),
    "v2, several slurmd": ("/system.slice/gpu-1_slurmstepd.scope/job_7/step_12/user/task_0", "12"),
    "v2, CgroupSlice": ("/hpc.slice/hpc-slurm.slice/slurmstepd.scope/job_7/step_0/user", "0"),
    "v2, without systemd": ("/slurmstepd.scope/job_7/step_0/user/task_0", "0"),
    "v2, slurmd in a pod": (
        "/kubepods.slice/kubepods-pod8f9ba0f5_8b5f_4d6a_a3d1_0a1b2c3d4e5f.slice/"
        f"cri-containerd-{'a' * 64}.scope/system.slice/slurmstepd.scope/job_7/step_0/user/task_0",
        "0",
    ),
    "v2, seen from a container with a namespace of its own": (
        "/../../slurmstepd.scope/job_7/step_0/user/task_0",
        "0",
    ),
    "v2, a container in the job": (
        f"/system.slice/slurmstepd.scope/job_7/step_0/user/task_0/libpod-{'b' * 64}.scope",
        "0",
    ),
}
NOBODY = (
    "/",
    "/system.slice/slurmd.service",
    "/system.slice/slurmstepd.scope",
    "/system.slice/slurmstepd.scope/system",
    "/system.slice/slurmstepd.scope/system/job_7",
    "/system.slice/slurmstepd.scope/job_7x/step_0",
    "/system.slice/slurmstepd.scope/s01ARZ3NDEKTSU/step_0",  # U is no Crockford base32
    "/system.slice/slurmstepd.scope/s01ARZ3NDEKTS/step_0",
    "/system.slice/job_7/step_0",
    "/slurm/uid_1000",
    "/slurm/uid_1000/system",
    "/slurmish/uid_1000/job_7/step_0",
    "/user.slice/slurm/job_7/step_0",
)


@pytest.mark.parametrize("name", JOBS)
def test_the_job_and_the_step_of_a_path(name: str) -> None:
    """Of arrays and of jobs of several components, the number is that of this part alone."""
    path, step = JOBS[name]
    assert membership(f"0::{path}\n") == Membership(slurm_job="7", slurm_step=step)


@pytest.mark.parametrize("path", NOBODY)
def test_what_is_no_job(path: str) -> None:
    """Slurm's own folders, and names that only look alike."""
    assert membership(f"0::{path}\n") is None


@pytest.mark.parametrize("scope", ["slurmstepd.scope", "gpu-1_slurmstepd.scope"])
@pytest.mark.parametrize(
    ("below", "step"),
    [("/step_0/user/task_0", "0"), ("/step_batch/slurm", "batch"), ("", None)],
)
def test_a_sluid(scope: str, below: str, step: str | None) -> None:
    """From 26.05 on it stands where the number of the job was."""
    found = membership(f"0::/system.slice/{scope}/{SLUID}{below}\n")
    assert found == Membership(slurm_id=SLUID, slurm_step=step)


def test_of_several_hierarchies_the_one_that_has_the_step() -> None:
    """As seen with Slurm 22.05: only the controllers that it uses are below its folder."""
    text = (
        "8:pids:/\n"
        "6:freezer:/slurm_gpu-1/uid_65534/job_4/step_0\n"
        "5:devices:/slurm_gpu-1/uid_65534/job_4/step_0/task_0\n"
        f"4:memory:/docker/{'a' * 64}\n"
        "1:cpu:/slurm_gpu-1/uid_65534/job_4\n"
        "0::/\n"
    )
    assert membership(text) == Membership(slurm_job="4", slurm_step="0")


@given(
    st.integers(1, 2**32 - 1),
    st.one_of(
        st.integers(0, 2**32 - 1).map(str), st.sampled_from(["batch", "extern", "interactive"])
    ),
    st.from_regex(r"(/[a-z][a-z0-9.-]{0,10}){0,3}", fullmatch=True),
    st.sampled_from(
        [
            "slurm/uid_0/job_{}/step_{}/task_0",
            "slurm_n/uid_9/job_{}/step_{}",
            "slurmstepd.scope/job_{}/step_{}/user/task_0",
            "n_slurmstepd.scope/job_{}/step_{}/slurm",
        ]
    ),
)
def test_any_job_below_any_prefix(job: int, step: str, prefix: str, layout: str) -> None:
    """CgroupSlice, CgroupMountpoint and containers put Slurm's folder anywhere."""
    found = membership(f"0::{prefix}/{layout.format(job, step)}\n")
    assert found == Membership(slurm_job=str(job), slurm_step=step)


@given(st.text(max_size=300))
def test_no_text_is_a_fault(text: str) -> None:
    """Whatever a kernel or a container writes."""
    membership(text)
    membership(f"0::/system.slice/slurmstepd.scope/{text}")

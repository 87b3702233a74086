# SPDX-License-Identifier: Apache-2.0
"""``why`` names the cause, the knob and the evidence; its exit code says whether one is shown."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator

import pytest

from exporter.model.snapshot import Diagnosis, Snapshot
from exporter.publisher import Publisher, Rules
from exporter.sources.simulate import Simulation, load_scenario
from exporter.specs import load_specs
from exporter.web.api.convert import gpus_answer
from exporter.web.api.models.json import json_text
from tests.cli.outcomes import Outcome
from tests.cli.stub import NOBODY, Stub
from tests.clocks import ManualClock
from tests.serving import serving
from tests.snapshots import h100_mig, snapshot

BOOK = load_specs()
STARTED, SECONDS = 1_000_000.0, 400
SIMULATED = "Not real GPUs. This data is simulated."


@pytest.fixture(name="demo", scope="module")
def _demo() -> Snapshot:
    """The demo, some minutes after its start."""
    clock = ManualClock(STARTED)
    simulation = Simulation(load_scenario("demo", BOOK), BOOK, "host:19400", 0, clock)
    publisher = Publisher(simulation, BOOK, Rules(), clock, training=[simulation.jobs])
    for _ in range(SECONDS):
        clock.advance(1.0)
        snapshot = publisher.tick()
    return snapshot


@pytest.fixture(name="daemon")
def _daemon(demo: Snapshot) -> Iterator[Stub]:
    server = Stub()
    server.now = STARTED + SECONDS
    server.body = json_text(gpus_answer(demo)).encode()
    with serving(server):
        yield server


Why = Callable[..., tuple[int, list[str], str]]


@pytest.fixture(name="why")
def _why(daemon: Stub, outcome: Outcome) -> Why:
    """Runs `why` beside the daemon; gives its exit code, the lines of its output, and errors."""

    def run(*argv: str) -> tuple[int, list[str], str]:
        place = f"127.0.0.1:{daemon.server_port}"
        code, out, err = outcome("why", "--web.listen-address", place, *argv)
        return code, out.splitlines(), err

    return run


@pytest.mark.parametrize("name", ["2", "uuid", "bob-training"])
def test_a_gpu_and_its_job_have_the_same_cause(name: str, demo: Snapshot, why: Why) -> None:
    """By index, UUID or the job's name: what is seen, the knob, numbers, cost and section."""
    name = (demo.gpus[2].device.uuid or "") if name == "uuid" else name
    code, lines, _ = why(name)
    assert code == 0
    assert lines[0] == SIMULATED
    assert "bob-training" in lines[1]
    assert lines[2:] == [
        "  The workers compute all the time, and 11 cores are free. Set num_workers=8 (it is 4)."
        " Recoverable so far: 0.07 GPU-hours.",
        lines[3],
        "  https://github.com/roofline-exporter/roofline-exporter/blob/main/docs/causes.md"
        "#too_few_workers",
    ]
    assert lines[3].startswith("  evidence: data_wait_loss_ratio ")
    assert "workers_count 4, worker_running_ratio 100 %, free_cores 11" in lines[3]


def test_without_a_name_all_causes_are_shown(why: Why) -> None:
    """And how many GPUs show none."""
    code, lines, _ = why()
    assert code == 0
    assert [line.split("#")[1] for line in lines if "#" in line] == [
        "too_few_workers",
        "power_capped",
    ]
    assert lines[-1].endswith("show no known cause")


def test_a_gpu_without_a_cause_has_a_code_of_its_own(why: Why) -> None:
    """3, for scripts: nothing failed, and nothing is shown."""
    code, lines, _ = why("0")
    assert (code, lines[-1]) == (3, "  no known cause shows")


def test_evidence_that_is_missing_is_named(daemon: Stub, demo: Snapshot, why: Why) -> None:
    """With code 4: it waits for data, and why cannot be told."""
    gpu = demo.gpus[2]
    unknown = dataclasses.replace(
        gpu.shares[0], diagnoses=(), missing_evidence=("worker_running_ratio",)
    )
    gpus = (*demo.gpus[:2], dataclasses.replace(gpu, shares=(unknown,)), *demo.gpus[3:])
    daemon.body = json_text(gpus_answer(dataclasses.replace(demo, gpus=gpus))).encode()
    code, lines, _ = why("2")
    assert code == 4
    assert lines[-1].startswith("  not known why: the states of its workers cannot be read; a job")


@pytest.mark.parametrize("name", ["2/1", "MIG-00000000-0000-0000-0000-000000000011"])
def test_a_mig_instance_has_its_own_causes(name: str, daemon: Stub, why: Why) -> None:
    """Named by the index or by the UUID of a compute instance; its neighbour is left out."""
    gpu = h100_mig(2)
    too_few = Diagnosis(cause="too_few_workers", evidence={"free_cores": 11.0})
    shown = dataclasses.replace(gpu.shares[0], diagnoses=(too_few,))
    hot = dataclasses.replace(gpu.shares[1], diagnoses=(Diagnosis(cause="thermal"),))
    divided = dataclasses.replace(gpu, shares=(shown, hot))
    daemon.body = json_text(gpus_answer(snapshot(divided))).encode()
    code, lines, _ = why(name)
    assert code == 0
    assert any(line.startswith("GPU 2/1 ") for line in lines)
    assert [line.split("#")[1] for line in lines if "#" in line] == ["too_few_workers"]
    assert "  evidence: free_cores 11" in lines
    (said,) = json.loads(why(name, "--json")[1][0])["diagnoses"]
    assert (said["gpu"], said["gpu_instance"], said["cause"]) == (2, 1, "too_few_workers")
    assert "thermal" in "".join(why("2")[1])


def test_an_unknown_name_is_refused(why: Why) -> None:
    """In one line that names what there is."""
    code, lines, err = why("0/1")
    assert (code, lines) == (2, [])
    assert "expected a GPU or a training job (0, 1, 2" in err
    assert "bob-training" in err
    assert err.count("\n") == 1


def test_json_is_the_answer_of_the_api(why: Why) -> None:
    """Of what was named alone, in one line."""
    code, lines, _ = why("6", "--json")
    (line,) = lines
    (found,) = json.loads(line)["diagnoses"]
    assert code == 0
    assert (found["gpu"], found["cause"], found["job"]) == (6, "power_capped", "erin-training")
    assert why("0", "--json")[0] == 3


def test_without_daemon_and_driver_it_fails(outcome: Outcome) -> None:
    """With code 1 and one line."""
    code, out, err = outcome("why", "--url", NOBODY)
    assert (code, out) == (1, "")
    assert "Connection refused" in err

# SPDX-License-Identifier: Apache-2.0
"""A datagram is a claim in the form of the protocol, or is refused for one of a few reasons."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import one_line
from exporter.model.host import HostActivity
from exporter.model.training import (
    NO_DEVICE,
    TRAINING_DEGRADATIONS,
    TRAINING_PHASES,
    TRAINING_REJECTIONS,
    Loader,
    TrainingTotals,
)
from exporter.sources.training.decode import MOST_BYTES, Claim, decode
from exporter.sources.training.refusals import Rejected
from roofline_job.degraded import REASONS as REASONS_OF_CLIENT
from tests.sources.training.reports import FULL, LEAST, MISSING, datagram, message

CASES = sorted((Path(__file__).parents[2] / "data" / "training_reports").glob("*/*"))
TAKEN = "taken"
UUID = FULL["device"]


def outcome(data: bytes) -> str:
    """Return the reason for which it is refused, or ``taken``."""
    try:
        decode(data)
    except Rejected as refused:
        return refused.reason
    return TAKEN


def complaint(**changes: Any) -> str:
    with pytest.raises(Rejected) as refused:
        decode(datagram(**changes))
    return f"{refused.value.reason}: {refused.value}"


def test_everything_that_a_report_can_say_is_read() -> None:
    """Each key ends where it belongs."""
    assert decode(json.dumps(FULL).encode()) == Claim(
        report_id=FULL["id"],
        sequence=17,
        pid=FULL["pid"],
        job="resnet",
        rank=0,
        totals=TrainingTotals(
            steps=100.0,
            batches=100.0,
            samples=25600.0,
            step_seconds=2.5,
            phase_seconds={"data": 1.5, "checkpoint": 0.4},
            phase_gpu_idle_seconds={"data": 0.7, "checkpoint": 0.0},
            model_flops=1.2e18,
            loader_start_seconds=0.3,
            checkpoints=2.0,
        ),
        host=HostActivity(
            method="client",
            seconds=10.0,
            workers=4,
            worker_running_ratio=0.9,
            worker_blocked_ratio=0.05,
            cores=16.0,
            cores_busy=4.5,
            read_size_bytes=2e5,
        ),
        device="GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
        world_size=8,
        framework="torch 2.13.0",
        precision="bf16",
        instrumentation="auto",
        loader=Loader(4, 2, True, False, 3),
        memory_bytes={"allocated": 1, "reserved": 2, "peak": 3},
        degraded=("loader_details", "helper_thread"),
        errors=0,
        error=None,
        exited=False,
        phase="data",
        flops_launched=True,
    )


def test_no_phase_is_idle_that_was_not_measured() -> None:
    """Clients may name all phases that they could measure; one without host time is not there."""
    claim = decode(datagram(phase_seconds={"data": 1.0}, phase_gpu_idle_seconds={"logging": 0.0}))
    assert claim.totals.phase_gpu_idle_seconds == {}


def test_what_is_not_said_is_not_known() -> None:
    """Absent is None, never 0; totals that were not measured stay unknown."""
    claim = decode(datagram())

    assert (claim.device, claim.world_size, claim.framework, claim.precision) == (None,) * 4
    assert claim.totals.samples is None
    assert claim.totals.model_flops is None
    assert claim.totals.phase_gpu_idle_seconds == {}
    assert claim.loader == Loader()
    assert claim.memory_bytes == {}
    assert claim.degraded == ()
    assert (claim.instrumentation, claim.errors, claim.exited) == ("client", 0, False)


@pytest.mark.parametrize("key", sorted(set(FULL) - set(LEAST)))
def test_null_means_not_known(key: str) -> None:
    """Writers may name a key whose value they do not know."""
    assert decode(datagram(**{key: None})) == decode(datagram())


@pytest.mark.parametrize("key", sorted(LEAST))
def test_what_is_required_cannot_be_left_out(key: str) -> None:
    """The complaint names the key."""
    reason = "version" if key == "version" else "schema"
    for value in (MISSING, None):
        assert complaint(**{key: value}).startswith(f"{reason}: {key}: expected ")


@pytest.mark.parametrize(
    ("said", "phase"), [(None, None), ("checkpoint", "checkpoint"), ("tokenize", "other")]
)
def test_the_phase_that_is_under_way_is_one_of_the_table(said: object, phase: str | None) -> None:
    """An unknown one counts as other, as in the totals."""
    assert decode(datagram(**{"in": said})).phase == phase


def test_unknown_keys_are_passed_over() -> None:
    """A newer client within version 1 is understood."""
    changes = {"novel": {"a": [1]}, "loader": {"novel": 1}, "memory_bytes": {"novel": "x"}}
    assert decode(datagram(**changes)) == decode(datagram())


@pytest.mark.parametrize("version", [0, 2, 1.0, True, "1", [1]])
def test_another_version_is_refused_as_such(version: object) -> None:
    """Whatever else it says: that may mean something else."""
    assert complaint(version=version, rank="?").startswith("version: version: expected 1, got")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": "0" * 31}, "id: expected 32 hexadecimal digits in lower case, got '000"),
        ({"id": "0" * 32 + "\n"}, "id: expected"),
        ({"sequence": True}, "sequence: expected a whole number from 0 to 1000000000000000000, go"),
        ({"pid": 0}, "pid: expected a whole number from 1 to 2147483647, got 0"),
        ({"rank": 1_000_001}, "rank: expected a whole number from 0 to 1000000, got 1000001"),
        ({"world_size": 0}, "world_size: expected a whole number from 1 to 1000001, got 0"),
        ({"steps": True}, "steps: expected a number from 0 to 1e+18, got true"),
        ({"samples": 1.1e18}, "samples: expected a number from 0 to 1e+18, got 1.1e+18"),
        ({"model_flops": 1e31}, "model_flops: expected a number from 0 to 1e+30, got 1e+31"),
        ({"phase_seconds": []}, "phase_seconds: expected an object, got a list"),
        ({"phase_seconds": {"data": None}}, "phase_seconds: expected numbers from 0 to 1e+18, got"),
        ({"phase_seconds": {"data": 7, "eval": 6}}, "phase_seconds: add up to more than step_sec"),
        ({"phase_gpu_idle_seconds": {"data": 1.7}}, "phase_gpu_idle_seconds: data is more than ph"),
        ({"device": "GPU-0\n"}, "device: expected"),
        ({"device": "GPU-" + "0" * 92}, "device: expected"),
        ({"device": {"uuid": 1}}, "device: expected GPU-<uuid>, MIG-<uuid>, none or null, got an"),
        ({"instrumentation": "magic"}, "instrumentation: expected client or auto, got 'magic'"),
        ({"loader": 4}, "loader: expected an object, got 4"),
        ({"loader": {"workers": 1.5}}, "workers: expected a whole number from 0 to 1000000, got 1"),
        ({"loader": {"pin_memory": 1}}, "pin_memory: expected true or false, got 1"),
        ({"memory_bytes": {"peak": 0.5}}, "peak: expected a whole number"),
        ({"host": []}, "host: expected an object"),
        ({"host": {}}, "seconds: expected a number"),
        ({"host": {"seconds": 1, "worker_running_ratio": 1.1}}, "worker_running_ratio: expected a"),
        ({"host": {"seconds": 1, "workers": True}}, "workers: expected a whole number"),
        ({"host": {"seconds": 1, "cores": 1e9}}, "cores: expected a number from 0 to 1e+06"),
        ({"loader_start_seconds": 9.0}, "loader_start_seconds: more than phase_seconds of data"),
        ({"model_flops_launched": 1}, "model_flops_launched: expected true or false"),
        ({"exit": "yes"}, "exit: expected true or false, got 'yes'"),
        ({"job": 5}, "job: expected text, got 5"),
        ({"in": 3}, "in: expected text, got 3"),
        ({"in": "x" * 65}, "label: in: expected 1 to 64 printable bytes"),
        ({"degraded": "client"}, "degraded: expected a list of at most 16 names, got 'client'"),
        ({"degraded": ["a\nb"]}, "label: degraded: expected 1 to 64 printable bytes"),
    ],
)
def test_a_value_that_does_not_fit_is_named(changes: dict[str, Any], message: str) -> None:
    """The complaint names the key and what was expected."""
    assert complaint(**changes).removeprefix("schema: ").startswith(message)


@pytest.mark.parametrize(
    "job",
    ["", "x" * 129, "é" * 65, "a\nb", "a\tb", "\x1b[31m", "\ud800", "\u202eevil", "a\u2028b", "\0"],
)
def test_a_label_is_short_and_printable(job: str) -> None:
    """Neither a page nor a log line nor a terminal is at a job's mercy."""
    assert complaint(job=job).startswith("label: job: expected 1 to 128 printable bytes")
    if job:
        assert complaint(framework=job).startswith("label: framework: expected 1 to 64")
        assert complaint(precision=job).startswith("label: precision: expected 1 to 64")


@pytest.mark.parametrize("job", ["x", "x" * 128, "é" * 64, "7 b/λ-🤗", 'a"b\\c', " "])
def test_other_names_are_kept_as_they_are(job: str) -> None:
    """Any printable text is a name."""
    assert decode(datagram(job=job)).job == job


@pytest.mark.parametrize("device", [UUID, UUID.replace("GPU", "MIG"), f"MIG-{UUID}/11/0"])
def test_devices_are_named_by_uuid(device: str) -> None:
    """Old drivers name a MIG device by its GPU and instances."""
    assert decode(datagram(device=device)).device == device
    assert decode(datagram(device="none")).device == NO_DEVICE


def test_unknown_phases_count_as_other() -> None:
    """A job may name its phases as it likes."""
    totals = decode(
        datagram(
            phase_seconds={"data": 1, "warmup": 0.5, "other": 0.25, "x" * 2000: 0.125},
            phase_gpu_idle_seconds={"data": 0, "warmup": 0.5},
        )
    ).totals

    assert totals.phase_seconds == {"data": 1.0, "other": 0.875}
    assert totals.phase_gpu_idle_seconds == {"data": 0.0, "other": 0.5}


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ([], ()),
        (["client", "loaders", "client"], ("loaders", "client")),
        (["novel", "newer", "cuda_events"], ("cuda_events", "other")),
        (["unverified", "x" * 64], ("other",)),
        (["autocast"] * 16, ("autocast",)),
    ],
)
def test_what_is_degraded_is_named_once(said: list[str], kept: tuple[str, ...]) -> None:
    """In the order of the table; unknown reasons are one, and so is what the daemon itself says."""
    assert decode(datagram(degraded=said)).degraded == kept


def test_every_reason_of_the_client_is_known() -> None:
    """None of them counts as other."""
    assert set(REASONS_OF_CLIENT) <= set(TRAINING_DEGRADATIONS)


def test_of_a_clients_failure_little_is_kept() -> None:
    """Memory is bounded, whatever it says."""
    assert decode(datagram(errors=1, error="é" * 1000)).error == "é" * 200


def test_parts_may_exceed_their_whole_by_a_little() -> None:
    """Clocks are read in turn, and events are timed on the GPU."""
    decode(datagram(step_seconds=10, phase_seconds={"data": 10.19}))
    decode(datagram(phase_seconds={"data": 1}, phase_gpu_idle_seconds={"data": 1.1}))
    assert "add up" in complaint(step_seconds=10, phase_seconds={"data": 10.21})


def test_size_is_limited() -> None:
    """8 KiB is enough, one byte more is too large."""
    filled = datagram(novel="x" * (MOST_BYTES - len(datagram(novel=""))))

    assert len(filled) == MOST_BYTES
    assert outcome(filled) == TAKEN
    assert outcome(filled + b" ") == "too_large"


def test_numbers_of_thousands_of_digits_are_refused() -> None:
    """Newer Pythons refuse to read them, older ones find them too large."""
    digits = b"9" * 5000
    for key in ("rank", "samples", "sequence"):
        report = datagram(**{key: 7}).replace(b'"%s": 7' % key.encode(), b'"%s": ' % key.encode())
        assert outcome(report) == "not_json"
        colon = report.index(b'"%s": ' % key.encode()) + len(key) + 4
        assert outcome(report[:colon] + digits + report[colon:]) in ("not_json", "schema")


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}/{case.name}")
def test_known_cases(case: Path) -> None:
    """Each file is refused for the reason that its folder names, or taken."""
    assert outcome(case.read_bytes()) == case.parent.name


def test_there_are_known_cases() -> None:
    """For every reason that a datagram alone can give."""
    reasons = {case.parent.name for case in CASES}
    assert reasons == {"too_large", "not_json", "version", "schema", "label", TAKEN}


def assert_sound(data: bytes) -> None:
    """Fail unless the bytes are refused for a listed reason, or give a claim in bounds."""
    claim, refused = None, None
    try:
        claim = decode(data)
    except Rejected as error:
        refused = error
    if claim is None:
        assert refused is not None
        assert refused.reason in TRAINING_REJECTIONS
        assert one_line(str(refused)).isprintable()
        return
    totals = claim.totals
    known = [value for value in (totals.samples, totals.model_flops) if value is not None]
    numbers = [
        *(totals.steps, totals.batches, totals.step_seconds, *known),
        *totals.phase_seconds.values(),
        *totals.phase_gpu_idle_seconds.values(),
    ]
    assert all(type(number) is float and 0 <= number <= 1e30 for number in numbers)
    assert all(math.copysign(1, number) == 1 for number in numbers)
    assert {*totals.phase_seconds, *totals.phase_gpu_idle_seconds} <= set(TRAINING_PHASES)
    for name in (claim.job, claim.framework, claim.precision, claim.device, claim.instrumentation):
        assert name is None or (name.isprintable() and len(name.encode()) <= 128)
    assert len(claim.error or "") <= 200
    assert list(claim.degraded) == [
        name for name in TRAINING_DEGRADATIONS if name in claim.degraded
    ]
    assert type(claim.rank) is int
    assert 0 <= claim.rank <= 1_000_000
    assert 1 <= claim.pid < 2**31


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=200)
    | st.sampled_from([1e18, 10**400, -0.0, "none", "GPU-1", "\ud800", 5e-324])
)
KEYS = st.sampled_from([*FULL, *FULL["loader"], *TRAINING_PHASES, "peak"]) | st.text(max_size=5)
VALUES = st.recursive(
    LEAVES,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(KEYS, below, max_size=6),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(sorted(FULL)), VALUES | st.just(MISSING), max_size=4))
def test_any_value_under_any_key_is_refused_or_sound(changes: dict[str, Any]) -> None:
    """Of a report that was right: any value in the place of any other, or none."""
    assert_sound(json.dumps(message(**{**FULL, **changes})).encode())


PARTS = st.lists(
    st.tuples(st.sampled_from([*TRAINING_PHASES, "warmup", "a", "b"]), st.floats(0, 1e6)),
    max_size=12,
    unique_by=lambda part: part[0],
)


@given(PARTS, st.permutations(range(12)), st.floats(0, 1e6))
def test_phases_that_rise_never_fall_by_rounding(
    parts: list[tuple[str, float]], order: list[int], more: float
) -> None:
    """Unknown phases are added up alike in whatever order they stand."""
    before = dict(parts)
    shuffled = [parts[index] for index in order if index < len(parts)]
    now = {phase: seconds + more for phase, seconds in shuffled}
    first, second = (
        decode(datagram(step_seconds=2e7, phase_seconds=phases)).totals.phase_seconds
        for phases in (before, now)
    )

    assert all(second[phase] >= seconds for phase, seconds in first.items())


def test_flops_that_were_only_launched_are_told_apart() -> None:
    """A client that does not know when the GPU has done them says so."""
    assert decode(datagram(model_flops=1, model_flops_launched=True)).flops_launched
    with pytest.raises(Rejected, match="model_flops_launched: expected true or false"):
        decode(datagram(model_flops=1, model_flops_launched=1))

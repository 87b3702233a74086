# SPDX-License-Identifier: Apache-2.0
"""What each generation of GPU and driver reports of a board's health, on the fake driver."""

from __future__ import annotations

from typing import Any

import pytest

from exporter.model.reading import Health
from exporter.sources.nvml.board import HealthReader
from exporter.sources.nvml.links import fabric_health
from tests.fake_nvml import DRIVER_470, DRIVER_535, DRIVER_550, fault
from tests.sources.conftest import Open


def reader(rig: Any, links: int = 18) -> HealthReader:
    return HealthReader(rig.handle, links, rig.journal)


def none(*severities: str) -> dict[str, dict[str, int]]:
    return {severity: {"dram": 0, "sram": 0} for severity in severities}


def test_a_sound_h100(open_gpu: Open) -> None:
    """All is known, all counters are there at 0, and nothing is marked absent."""
    rig = open_gpu()
    health = reader(rig).read()

    assert health == Health(
        ecc_errors_total=none("corrected", "uncorrected"),
        ecc_lifetime_errors=none("corrected", "uncorrected"),
        remapped_rows={"correctable": 0, "uncorrectable": 0},
        row_remap_pending=False,
        row_remap_failure=False,
        row_remap_banks={"max": 640, "high": 0, "partial": 0, "low": 0, "none": 0},
        sram_error_threshold_exceeded=False,
        unrepairable_memory=False,
        recovery_action=0,
        nvlink_links={"active": 18, "inactive": 0},
        nvlink_links_expected=18,
        fabric_state=3,
        fabric_healthy=True,
        fabric_cluster_uuid="00000000-0000-0000-0000-000000000000",
        fabric_clique=0,
    )
    assert rig.journal.states == {}
    assert rig.failures == {}


def test_a_sick_h100(open_gpu: Open) -> None:
    """Each reading is the driver's own; SRAM is the sum of parity and SEC-DED errors."""
    errors = {"volatile_cor": 2, "volatile_unc_parity": 3, "volatile_unc_secded": 4}
    lifetime = {"aggregate_cor": 20, "aggregate_unc_parity": 30, "aggregate_unc_secded": 40}
    rows = {"correctable": 1, "uncorrectable": 2, "pending": 1, "failure": 1}
    rig = open_gpu(
        ecc={
            "volatile": {"corrected": {"dram": 5, "sram": 999}, "uncorrected": {"dram": 1}},
            "aggregate": {"corrected": {"dram": 50}, "uncorrected": {"dram": 10}},
        },
        sram={**errors, **lifetime, "bucket_l2": 70, "threshold_exceeded": 1},
        remapped_rows={**rows, "histogram": [600, 30, 7, 2, 1]},
        unrepairable_memory=1,
        recovery_action=4,
        nvlink={"inactive": [3, 17]},
    )
    health = reader(rig).read()

    assert health.ecc_errors_total == {
        "corrected": {"dram": 5, "sram": 2},
        "uncorrected": {"dram": 1, "sram": 7},
    }
    assert health.ecc_lifetime_errors == {
        "corrected": {"dram": 50, "sram": 20},
        "uncorrected": {"dram": 10, "sram": 70},
    }
    assert health.remapped_rows == {"correctable": 1, "uncorrectable": 2}
    assert (health.row_remap_pending, health.row_remap_failure) == (True, True)
    assert list(health.row_remap_banks.values()) == [600, 30, 7, 2, 1]
    assert health.sram_error_threshold_exceeded is True
    assert health.unrepairable_memory is True
    assert health.recovery_action == 4
    assert health.nvlink_links == {"active": 16, "inactive": 2}
    assert health.nvlink_links_expected == 18
    assert (health.retired_pages, health.retired_pages_pending) == ({}, None)


def test_banks_that_are_all_ones_are_not_known(open_gpu: Open) -> None:
    """The rest of the group is, and says that something is missing."""
    rig = open_gpu(remapped_rows={"correctable": 1, "histogram": [640, 2**32 - 1, 0, 0, 0]})
    health = reader(rig).read()

    assert health.row_remap_banks == {}
    assert health.remapped_rows == {"correctable": 1, "uncorrectable": 0}
    assert rig.journal.states == {"row_remap": "implausible"}


@pytest.mark.parametrize("missing", [(), DRIVER_470], ids=["new", "470"])
def test_v100(open_gpu: Open, missing: tuple[str, ...]) -> None:
    """Before Ampere pages retire; SRAM is the sum over the caches that the GPU counts apart."""
    counts = {"dram": 4, "l1": 1, "l2": 2, "registers": 3}
    rig = open_gpu(
        product="v100-sxm2",
        missing=missing,
        ecc={"volatile": {"corrected": counts}, "aggregate": {"uncorrected": counts}},
        retired_pages={"single_bit": [4096], "double_bit": [8192, 12288, 16384], "pending": 1},
    )
    health = reader(rig, links=6).read()

    assert health.ecc_errors_total["corrected"] == {"dram": 4, "sram": 6}
    assert health.ecc_errors_total["uncorrected"] == {"dram": 0, "sram": 0}
    assert health.ecc_lifetime_errors["uncorrected"] == {"dram": 4, "sram": 6}
    assert health.retired_pages == {"single_bit": 1, "double_bit": 3}
    assert health.retired_pages_pending is True
    assert (health.remapped_rows, health.row_remap_banks) == ({}, {})
    assert health.row_remap_pending is None
    assert health.sram_error_threshold_exceeded is None
    assert (health.fabric_state, health.fabric_healthy) == (None, None)
    assert rig.journal.states["row_remap"] == "unsupported"
    assert "ecc" not in rig.journal.states


@pytest.mark.parametrize("missing", [DRIVER_470, DRIVER_535, DRIVER_550])
def test_a100_on_older_drivers(open_gpu: Open, missing: tuple[str, ...]) -> None:
    """Where the newer call is missing, the older one answers the same."""
    rig = open_gpu(
        product="a100-sxm4-80gb",
        missing=(*missing, "nvmlDeviceGetSramEccErrorStatus"),
        ecc={"volatile": {"uncorrected": {"dram": 1, "sram": 2}}},
    )
    health = reader(rig, links=12).read()

    assert health.ecc_errors_total["uncorrected"] == {"dram": 1, "sram": 2}
    assert health.sram_error_threshold_exceeded is None
    assert health.row_remap_pending is False
    assert health.nvlink_links == {"active": 12, "inactive": 0}
    assert rig.journal.states["sram_status"] == "old_driver"


def test_a_gpu_without_ecc_has_no_errors_to_count(open_gpu: Open) -> None:
    """Absent, not 0; and the state says why."""
    rig = open_gpu(product="rtx-4090")
    health = reader(rig, links=0).read()

    assert health == Health(recovery_action=0)
    absent = "ecc sram_status row_remap retired_pages unrepairable_memory fabric"
    assert rig.journal.states == dict.fromkeys(absent.split(), "unsupported")
    again = reader(rig, links=0)
    again.read()
    rig.calls()
    again.read()
    assert sum(rig.calls().values()) == 1  # only the recovery action is asked again


def test_link_states_by_field(open_gpu: Open) -> None:
    """One call reads all links; a link that sleeps is well, one without traffic is not."""
    states = {str(link): 1 for link in range(4)} | {"1": 2, "2": 0, "3": 3}
    rig = open_gpu(nvlink={"links": 4}, fields={"165": {"type": "uint", "scope": states}})
    rig.calls()
    health = reader(rig, links=4).read()

    assert health.nvlink_links == {"active": 2, "inactive": 2}
    assert "nvmlDeviceGetNvLinkState" not in rig.calls()


def test_links_that_do_not_all_answer_are_not_counted(open_gpu: Open) -> None:
    """A count that is one short would look like a link that is down."""
    states: dict[str, Any] = {str(link): 1 for link in range(4)}
    states["2"] = {"error": 10}
    rig = open_gpu(nvlink={"links": 4}, fields={"165": {"type": "uint", "scope": states}})
    health = reader(rig, links=4).read()

    assert health.nvlink_links == {}
    assert health.nvlink_links_expected == 4


@pytest.mark.parametrize(
    ("function", "group"),
    [
        ("nvmlDeviceGetMemoryErrorCounter", "ecc"),
        ("nvmlDeviceGetSramEccErrorStatus", "sram_status"),
        ("nvmlDeviceGetRemappedRows", "row_remap"),
        ("nvmlDeviceGetGpuFabricInfo*", "fabric"),
        ("nvmlDeviceGetNvLinkState", "nvlink_state"),
        ("nvmlDeviceGetUnrepairableMemoryFlag_v1", "unrepairable_memory"),
    ],
)
def test_what_is_denied_is_absent_and_says_so(open_gpu: Open, function: str, group: str) -> None:
    """The other health readings are still read."""
    rig = open_gpu()
    rig.fake.update(faults=[fault(function, error=4)])
    health = reader(rig).read()

    assert rig.journal.states[group] == "no_permission"
    assert health.recovery_action == 0


@pytest.mark.parametrize(("code", "state"), [(2, "unsupported"), (4, "no_permission")])
def test_a_refused_field_has_its_state(open_gpu: Open, code: int, state: str) -> None:
    """An old driver does not know the recovery action (INVALID_ARGUMENT)."""
    rig = open_gpu(fields={"230": {"error": code}})
    sick = reader(rig)

    assert [sick.read().recovery_action for _ in range(2)] == [None, None]
    assert rig.journal.states["recovery_action"] == state


def test_a_sum_is_not_published_without_one_of_its_parts(open_gpu: Open) -> None:
    """The sum would fall and rise again, which looks like a counter reset."""
    rig = open_gpu(product="v100-sxm2", ecc={"volatile": {"corrected": {"l2": 5}}})
    old = reader(rig, links=0)
    assert old.read().ecc_errors_total["corrected"]["sram"] == 5
    rig.fake.device(0, ecc={"volatile": {"corrected": {"l1": {"error": 27}}}})

    assert old.read().ecc_errors_total["corrected"] == {"dram": 0}
    rig.fake.device(0, ecc={"volatile": {"corrected": {"l1": 0}}})
    assert old.read().ecc_errors_total["corrected"]["sram"] == 5


def test_the_older_call_does_not_stand_in_for_a_moment(open_gpu: Open) -> None:
    """The two calls may count differently; only a call that never answers is replaced."""
    rig = open_gpu(sram={"volatile_cor": 9}, ecc={"volatile": {"corrected": {"sram": 1}}})
    new = reader(rig)
    assert new.read().ecc_errors_total["corrected"]["sram"] == 9
    rig.fake.update(faults=[fault("nvmlDeviceGetSramEccErrorStatus", error=27)])

    assert new.read().ecc_errors_total["corrected"] == {"dram": 0}


@pytest.mark.parametrize("missing", [(), ("nvmlDeviceGetGpuFabricInfoV",)], ids=["v3", "v1"])
def test_fabric(open_gpu: Open, missing: tuple[str, ...]) -> None:
    """The domain and the clique are known once the registration is completed."""
    cluster = "0a1b2c3d-0000-4000-8000-00000000000f"
    rig = open_gpu(missing=missing, fabric={"cluster_uuid": cluster, "clique": 7, "state": 2})
    found = []
    for change in ({}, {"state": 3, "health_summary": 2}, {"status": 999}):
        rig.fake.device(0, fabric=change)
        read = reader(rig).read()
        registered = read.fabric_cluster_uuid, read.fabric_clique
        found.append((read.fabric_state, read.fabric_healthy, *registered))

    # The oldest call knows nothing of health.
    healthy = None if missing else False
    assert found == [(2, None, None, None), (3, healthy, cluster, 7), (3, False, None, None)]


def test_no_fabric_is_unsupported(open_gpu: Open) -> None:
    """State 0 means that the GPU is on no fabric."""
    rig = open_gpu(fabric={"state": 0})

    assert reader(rig).read().fabric_state is None
    assert rig.journal.states["fabric"] == "unsupported"


WELL = 0b0001_10_10_10_10


@pytest.mark.parametrize(
    ("summary", "mask", "healthy"),
    [
        (1, 0, True),
        (2, WELL, False),
        (0, 0, None),
        (0, WELL, True),
        (0, WELL & ~0b11 | 0b01, False),
        (0, WELL & ~0b110000 | 0b010000, False),
        (0, WELL & ~0xF00 | 0x400, False),
        (0, 0b10, True),
    ],
)
def test_fabric_health(summary: int, mask: int, healthy: bool | None) -> None:
    """The summary counts; without one, each known part of the mask must be well."""
    assert fabric_health(summary, mask) is healthy


def test_with_mig_the_health_is_the_boards(open_gpu: Open) -> None:
    """It is read from the board, not from its instances."""
    rig = open_gpu(mig={"instances": [{"gi": 1}]})
    health = rig.session().read().health

    assert health is not None
    assert health.row_remap_pending is False
    assert health.ecc_errors_total == none("corrected", "uncorrected")

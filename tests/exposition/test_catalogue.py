# SPDX-License-Identifier: Apache-2.0
"""The catalogue keeps the rules that Prometheus, OpenMetrics and the contract set."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from exporter.exposition.catalogue import CATALOGUE, SECTIONS, selected
from exporter.exposition.docs import metrics_page
from exporter.exposition.families import ProcessMemory, readers
from exporter.exposition.family import Family
from exporter.exposition.roofline import PRECISION
from exporter.model.reading import TRAINING_PHASES
from exporter.specs import PRECISIONS

ROOT = Path(__file__).parents[2]

UNITS = {
    "",
    "seconds",
    "bytes",
    "joules",
    "watts",
    "celsius",
    "hertz",
    "ratio",
    "flops",
    "flops_per_second",
    "bytes_per_second",
    "flops_per_byte",
}

OWNED_BY_PROMETHEUS = {"job", "instance", "pod", "namespace", "container", "node", "cluster", "le"}

ALL = pytest.mark.parametrize("family", CATALOGUE.values(), ids=lambda family: family.name)

CORE = """
gpu_info gpu_up gpu_last_read_timestamp_seconds gpu_saturation_source_info
gpu_utilization_ratio gpu_busy_seconds_total gpu_observed_seconds_total
gpu_memory_total_bytes gpu_memory_used_bytes gpu_memory_free_bytes gpu_memory_reserved_bytes
gpu_power_watts gpu_power_limit_watts gpu_energy_joules_total gpu_temperature_celsius
gpu_clock_hertz gpu_throttle_seconds_total gpu_pcie_link_generation gpu_processes
gpu_xid_errors_total gpu_xid_last_timestamp_seconds gpu_ecc_errors_total
gpu_row_remap_pending gpu_row_remap_failure gpu_recovery_action
gpu_nvlink_links
gpu_engine_active_seconds_total gpu_sm_active_seconds_total gpu_dram_active_seconds_total
gpu_pipe_active_seconds_total
gpu_saturation_ratio gpu_saturation_seconds_total gpu_saturation_lower_ratio
gpu_saturation_upper_ratio gpu_time_seconds_total
gpu_peak_flops_per_second gpu_peak_memory_bandwidth_bytes_per_second gpu_peak_clock_hertz
gpu_flops_total gpu_dram_bytes_total gpu_flops_per_second
gpu_roof_ratio gpu_limited_seconds_total
gpu_held gpu_holder_info gpu_last_busy_timestamp_seconds gpu_idle_seconds_total
gpu_held_idle_seconds_total
gpu_training_steps_total gpu_training_batches_total gpu_training_samples_total
gpu_training_step_seconds_total gpu_training_run_seconds gpu_training_phase_seconds_total
gpu_training_phase_gpu_idle_seconds_total gpu_training_verified
gpu_inferred_data_stall_lower_ratio gpu_inferred_data_stall_upper_ratio
gpu_inferred_data_stall_lower_seconds_total gpu_inferred_data_stall_upper_seconds_total
roofline_exporter_build_info roofline_exporter_source_up roofline_exporter_devices
roofline_exporter_snapshot_timestamp_seconds
"""

FULL = """
gpu_nvlink_links_expected gpu_tensor_op_active_seconds_total gpu_dram_bytes_per_second
gpu_arithmetic_intensity_flops_per_byte gpu_idle_energy_joules_total
gpu_mode_info gpu_mig_info
gpu_memory_controller_utilization_ratio gpu_encoder_utilization_ratio
gpu_decoder_utilization_ratio gpu_jpeg_utilization_ratio gpu_ofa_utilization_ratio
gpu_bar1_used_bytes gpu_bar1_total_bytes gpu_power_default_limit_watts gpu_power_max_limit_watts
gpu_module_power_watts gpu_temperature_threshold_celsius gpu_temperature_margin_celsius
gpu_clock_max_hertz gpu_fan_speed_ratio gpu_performance_state
gpu_pcie_transmit_bytes_total gpu_pcie_receive_bytes_total gpu_pcie_replays_total
gpu_pcie_errors_total gpu_pcie_link_recoveries_total gpu_pcie_link_generation_max
gpu_pcie_link_width gpu_pcie_link_width_max
gpu_nvlink_transmit_bytes_total gpu_nvlink_receive_bytes_total gpu_nvlink_errors_total
gpu_c2c_transmit_bytes_total gpu_c2c_receive_bytes_total gpu_peak_link_bandwidth_bytes_per_second
gpu_process_memory_bytes
gpu_ecc_lifetime_errors gpu_remapped_rows gpu_row_remap_banks
gpu_retired_pages gpu_retired_pages_pending
gpu_sram_error_threshold_exceeded gpu_unrepairable_memory
gpu_fabric_state gpu_fabric_healthy gpu_fabric_info
gpu_engine_active_ratio gpu_sm_active_ratio gpu_sm_occupancy_ratio gpu_dram_active_ratio
gpu_pipe_active_ratio gpu_tensor_op_active_ratio
gpu_resource_saturation_lower_ratio gpu_resource_saturation_upper_ratio
gpu_tensor_flops_utilization_ratio
gpu_flops_lower_total gpu_flops_upper_total gpu_flops_lower_per_second gpu_flops_upper_per_second
gpu_training_info gpu_training_model_flops_total gpu_training_prefetch_batches
gpu_training_dataloader_workers gpu_training_memory_bytes gpu_training_processes
gpu_training_last_report_timestamp_seconds
roofline_exporter_training_reports_total roofline_exporter_training_rejected_total
roofline_exporter_training_degraded
roofline_exporter_source_read_seconds roofline_exporter_source_failures_total
roofline_exporter_reading_state roofline_exporter_series_dropped_total
"""


def test_contract_names_and_levels() -> None:
    """The families and their levels are exactly those of the contract."""
    assert {family.name for family in selected("core")} == set(CORE.split())
    assert set(CATALOGUE) == set(CORE.split()) | set(FULL.split())


def test_level_core_lists_fewer_label_values() -> None:
    """What is rarely asked for goes, so that a GPU stays within 100 series; sums stay whole."""
    core = {family.name: family for family in selected("core")}
    clocks = core["gpu_clock_hertz"].labels[0]
    assert clocks.values == ("sm", "memory")
    assert not core["gpu_clock_hertz"].lists(("video",))
    assert CATALOGUE["gpu_clock_hertz"].lists(("video",))
    for name in ("gpu_flops_total", "gpu_limited_seconds_total", "gpu_time_seconds_total"):
        assert core[name].labels == CATALOGUE[name].labels


def test_names_are_unique_in_openmetrics() -> None:
    """No two families share a name after _total or _info is taken off."""
    names = [family.base_name for families in SECTIONS.values() for family in families]
    assert len(names) == len(set(names))


@ALL
def test_name_shape(family: Family) -> None:
    """Names are lower case, and their suffix says counter, info or neither."""
    assert re.fullmatch(r"(gpu|roofline_exporter)_[a-z0-9_]*[a-z0-9]", family.name)
    assert (family.kind == "counter") == family.name.endswith("_total")
    assert (family.kind == "info") == family.name.endswith("_info")
    assert not re.search(r"_(sum|count|bucket|created)$", family.base_name)


@ALL
def test_unit_is_a_base_unit_and_ends_the_name(family: Family) -> None:
    """Only base units, said at the end of the name."""
    assert family.unit in UNITS
    if family.unit:
        assert family.base_name.endswith(f"_{family.unit}")
    else:
        ends = tuple(f"_{unit}" for unit in UNITS if unit)
        assert not family.base_name.endswith(ends) or family.kind == "info"
    assert not re.search(r"percent|mib|mebi|kilo|mega|milli|micro|mhz", family.name)


@ALL
def test_labels_are_free_to_use(family: Family) -> None:
    """No family uses a label of Prometheus, one twice, or one that names its own total."""
    labels = family.all_labels
    assert not OWNED_BY_PROMETHEUS.intersection(labels)
    assert len(labels) == len(set(labels))
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", label) for label in labels)
    for label in family.labels:
        assert len(label.values) == len(set(label.values))
        assert not {"all", "total", ""}.intersection(label.values)


@ALL
def test_help_is_one_plain_line_with_the_origin(family: Family) -> None:
    """HELP needs no escaping in any format and says where the value comes from."""
    text = family.help
    assert text.isascii()
    assert text.isprintable()
    assert not set('"\\') & set(text)
    assert f" Source: {family.origin}." in text
    assert family.meaning.endswith(".")
    assert text == " ".join(text.split())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpu_saturation_ratio", "of the units that can be read; a kernel limited by another unit"),
        ("gpu_flops_total", "vector FLOPs are counted as if every instruction were an FMA"),
        ("gpu_clock_hertz", "graphics and video at the slow cadence"),
        ("gpu_power_watts", "nvmlDeviceGetPowerUsage"),
        ("gpu_energy_joules_total", "field 83"),
        ("gpu_training_phase_seconds_total", "whether or not the GPU had work"),
        ("gpu_training_phase_gpu_idle_seconds_total", "would gain between S and W"),
        ("gpu_inferred_data_stall_upper_ratio", "found without CUDA events in the job"),
    ],
)
def test_help_says_what_a_reader_would_get_wrong(name: str, words: str) -> None:
    """The caveats that the design demands are in HELP."""
    assert words in CATALOGUE[name].help


def test_every_family_has_a_reader() -> None:
    """The table of readers and the catalogue name the same families."""
    assert set(readers(ProcessMemory(enabled=True))) == set(CATALOGUE)
    assert set(CATALOGUE) - set(readers(ProcessMemory())) == {"gpu_process_memory_bytes"}


def test_readers_fit_the_labels() -> None:
    """A reader of one value has no labels, one by label exactly one."""
    for name, reader in readers(ProcessMemory(enabled=True)).items():
        family = CATALOGUE[name]
        assert reader.part.scope == family.scope, name
        count = len(family.labels)
        assert {"one": count == 0, "by_label": count == 1, "rows": count >= 1}[reader.shape], name


def test_precisions_are_those_of_the_spec_file() -> None:
    """A peak that the spec file can hold has a listed label value."""
    assert PRECISION.values == PRECISIONS


def test_labels_of_a_rank() -> None:
    """A rank is known by its job first; its own labels come last."""
    family = CATALOGUE["gpu_training_phase_seconds_total"]
    assert family.all_labels == ("training_job", "rank", "uuid", "gpu_instance", "phase")
    assert family.labels[0].values == TRAINING_PHASES


def test_exclude_matches_whole_names() -> None:
    """--metrics.exclude drops a family only if the whole name matches."""
    some = selected("full", re.compile("gpu_pcie_.*|gpu_up"))
    names = {family.name for family in some}
    assert "gpu_up" not in names
    assert not [name for name in names if name.startswith("gpu_pcie_")]
    assert {family.name for family in selected("full", re.compile("gpu"))} == set(CATALOGUE)


def test_docs_are_up_to_date() -> None:
    """docs/metrics.md is what the catalogue says now."""
    written = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert written == metrics_page(), "run: python -m exporter.exposition.docs > docs/metrics.md"


def test_docs_name_every_family_once() -> None:
    """Each family has exactly one row."""
    rows = re.findall(r"^\| `([a-z0-9_]+)` \|", metrics_page(), re.MULTILINE)
    assert sorted(rows) == sorted(CATALOGUE)

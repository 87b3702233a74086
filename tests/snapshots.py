# SPDX-License-Identifier: Apache-2.0
"""Example snapshots for tests: one GPU of each kind that the exposition has to show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from exporter.exposition.exporter_metrics import REJECTION, SENDER
from exporter.model.daemon import Daemon
from exporter.model.reading import (
    NVSWITCH,
    THROTTLE_REASONS,
    Activity,
    Board,
    Device,
    Health,
    Instance,
    Memory,
    Process,
    Utilization,
    Vitals,
    XidRecord,
)
from exporter.model.snapshot import (
    LIMITERS,
    TIME_PARTS,
    BoardTotals,
    Bounds,
    Ceilings,
    Diagnosis,
    Gpu,
    Holder,
    Peer,
    Rank,
    Recent,
    Roofline,
    Saturation,
    Share,
    ShareTotals,
    Snapshot,
    SourceState,
    TimeParts,
    TrainingState,
)
from exporter.model.training import Collectives, Loader, TrainingTotals
from exporter.model.workload import ShareWork, Workload

NOW = 1_790_000_000.25

TRAIN_POD = Workload(
    "kubernetes",
    namespace="team-a",
    pod="train-0",
    container="main",
    id="5d1b2b0e-3f77-4d3a-9a39-0c6a3a0a5b11",
)
SIDE_POD = Workload("kubernetes", namespace="team-a", pod="notebook-7", container="jupyter")
BATCH_JOB = Workload("slurm", job="4711", user="ada")
TRAINER = Process(4101, "compute", 61_000_000_000, "python3", "ada", "training")

H100_CEILINGS = Ceilings(
    spec="h100-sxm5-80gb",
    peak_flops_per_second={
        "fp64": 33.5e12,
        "fp64_tensor": 66.9e12,
        "fp32": 66.9e12,
        "fp16": 133.8e12,
        "bf16": 133.8e12,
        "tf32_tensor": 494.7e12,
        "fp16_tensor": 989.4e12,
        "bf16_tensor": 989.4e12,
        "fp8_tensor": 1978.9e12,
        "int8_tensor": 1978.9e12,
    },
    peak_clock_hertz={"tensor": 1830e6, "vector": 1980e6, "memory": 2619e6},
    memory_bandwidth_bytes_per_second=3350e9,
    achievable_ratio={"bf16_tensor": 0.8, "fp8_tensor": 0.75, "memory": 0.9},
    memory_bus_width_bits=5120,
    sm_count=132,
    link_bandwidth_bytes_per_second={"pcie": 63e9, "nvlink": 450e9},
    architecture="Hopper",
    assumed_precision="bf16_tensor",
)

H100_DEVICE = Device(
    index=0,
    uuid="GPU-11111111-2222-3333-4444-000000000000",
    name="NVIDIA H100 80GB HBM3",
    architecture="Hopper",
    compute_capability=(9, 0),
    pci_bus_id="00000000:19:00.0",
    pci_device_id=0x2330,
    serial="1654922006536",
    board_part_number="692-2G520-0200-000",
    minor_number=0,
    numa_node=0,
    driver_version="580.95.05",
    cuda_version="13.0",
    vbios_version="96.00.A5.00.01",
    core_count=16896,
    memory_bus_width_bits=5120,
    memory_bytes=85_520_809_984,
    clock_max_hertz={"sm": 1980e6, "memory": 2619e6, "graphics": 1980e6, "video": 1545e6},
    power_default_limit_watts=700.0,
    power_max_limit_watts=700.0,
    temperature_threshold_celsius={
        "shutdown": 95.0,
        "slowdown": 92.0,
        "memory_max": 95.0,
        "gpu_max": 87.0,
    },
    pcie_generation_max=5,
    pcie_width_max=16,
    nvlink_count=18,
    nvlink_bandwidth_bytes_per_second=450e9,
    nvlink_ends={NVSWITCH: 18},
    cpu_affinity="0-55,112-167",
    numa_affinity=0,
    modes={
        "persistence": "enabled",
        "compute": "default",
        "ecc": "enabled",
        "mig": "disabled",
        "virtualization": "none",
        "confidential": "off",
    },
)

H100_MEMORY = Memory(
    total_bytes=85_520_809_984,
    used_bytes=61_203_283_968,
    free_bytes=23_682_285_568,
    reserved_bytes=635_240_448,
)

H100_BOARD = Board(
    power_limit_watts=700.0,
    temperature_margin_celsius=31.0,
    performance_state=0,
    bar1_used_bytes=27_262_976,
    bar1_total_bytes=137_438_953_472,
    pcie_generation=5,
    pcie_width=16,
    pcie_replays_total=0,
    pcie_errors_total={"correctable": 2, "non_fatal": 0, "fatal": 0, "naks_sent": 1},
    pcie_link_recoveries_total=3,
    nvlink_errors_total={"crc_flit": 0, "crc_data": 0, "replay": 0, "recovery": 0},
)

_NO_ERRORS = {"dram": 0, "sram": 0}

H100_HEALTH = Health(
    ecc_errors_total={"corrected": {"dram": 3, "sram": 1}, "uncorrected": _NO_ERRORS},
    ecc_lifetime_errors={"corrected": {"dram": 17, "sram": 2}, "uncorrected": _NO_ERRORS},
    remapped_rows={"correctable": 0, "uncorrectable": 1},
    row_remap_pending=False,
    row_remap_failure=False,
    row_remap_banks={"max": 639, "high": 1, "partial": 0, "low": 0, "none": 0},
    sram_error_threshold_exceeded=False,
    unrepairable_memory=False,
    recovery_action=0,
    nvlink_links={"active": 17, "inactive": 1},
    nvlink_links_expected=18,
    fabric_state=3,
    fabric_healthy=True,
    fabric_cluster_uuid="00000000-0000-0000-0000-000000000000",
    fabric_clique=0,
)

T4_HEALTH = Health(
    ecc_errors_total={"corrected": _NO_ERRORS, "uncorrected": _NO_ERRORS},
    ecc_lifetime_errors={"corrected": _NO_ERRORS, "uncorrected": {"dram": 1, "sram": 0}},
    retired_pages={"single_bit": 0, "double_bit": 1},
    retired_pages_pending=True,
)

H100_VITALS = Vitals(
    utilization=Utilization(0.993, 1.0, 1.002, 0.61, 0.76),
    encoder_ratio=0.0,
    decoder_ratio=0.0,
    jpeg_ratio=0.0,
    ofa_ratio=0.0,
    power_watts=641.37,
    energy_joules=1_234_567_890.123,
    temperature_celsius=61.0,
    memory_temperature_celsius=74.0,
    clock_hertz={"sm": 1755e6, "memory": 2619e6, "graphics": 1755e6, "video": 1395e6},
    busy_sm_clock_hertz=1741.5e6,
    throttle_reasons=frozenset({"sw_power_cap"}),
    throttle_seconds={"sw_power_cap": 86.4, "hw_thermal": 0.0},
    nvlink_transmit_bytes_total=8.8e15,
    nvlink_receive_bytes_total=8.7e15,
)

TRAINING_ACTIVITY = Activity(
    source="gpm",
    seconds=1.0014,
    engine=0.991,
    sm=0.942,
    occupancy=0.271,
    dram=0.38,
    tensor=0.561,
    fp64=0.0,
    fp32=0.113,
    fp16=0.0214,
    integer=0.204,
    hmma=0.561,
    imma=0.0,
    dmma=0.0,
    dfma=0.0,
    pcie_transmit_bytes=3.1e8,
    pcie_receive_bytes=1.2e9,
    nvlink_transmit_bytes=8.1e10,
    nvlink_receive_bytes=8.0e10,
)

TRAINING_TOTALS = ShareTotals(
    busy_seconds=3571.25,
    observed_seconds={"utilization": 3600.5, "activity": 3599.75},
    engine_active_seconds=3540.1,
    sm_active_seconds=3380.2,
    dram_active_seconds=1360.3,
    pipe_active_seconds={"tensor": 2011.4, "fp64": 0.0, "fp32": 402.5, "fp16": 77.6, "int": 731.7},
    tensor_op_active_seconds={"hmma": 2011.4, "imma": 0.0, "dmma": 0.0, "dfma": 0.0},
    saturation_seconds=2040.8,
    time_seconds=dict(zip(TIME_PARTS, (59.65, 160.1, 1339.2, 120.3, 1920.5), strict=True)),
    flops={"bf16_tensor": 1.95e18, "fp64": 0.0, "fp32": 2.69e16, "fp16": 1.04e16},
    flops_lower=9.8e17,
    flops_upper=4.0e18,
    dram_bytes=4.55e15,
    roof_seconds={"spec": 1960.2, "clock": 2040.8, "achievable": 2448.5},
    limited_seconds=dict(
        zip(LIMITERS, (55.0, 0.0, 81.5, 420.25, 100.0, 2800.0, 143.0, 0.0), strict=True)
    ),
    idle_seconds=52.5,
    held_idle_seconds=49.5,
    idle_energy_joules=5250.75,
    held_idle_energy_joules=4200.5,
    last_busy_timestamp_seconds=NOW - 0.01,
    idle_for_seconds=0.0,
)

H100_BOARD_TOTALS = BoardTotals(
    energy_joules=1_234_567_890.123,
    throttle_seconds=dict.fromkeys(THROTTLE_REASONS, 0.0) | {"sw_power_cap": 86.4},
    pcie_transmit_bytes=1.1e12,
    pcie_receive_bytes=4.3e12,
    nvlink_transmit_bytes=8.8e15,
    nvlink_receive_bytes=8.7e15,
)

ACTIVE = {
    "engine": 0.985,
    "sm": 0.94,
    "dram": 0.38,
    "tensor": 0.561,
    "fp64": 0.0,
    "fp32": 0.113,
    "fp16": 0.0214,
    "int": 0.204,
}

STATES = {"ecc": "unsupported", "fabric": "no_permission"}

SOURCES = {
    "nvml": SourceState(up=True, read_seconds=0.0042),
    "gpm": SourceState(up=True, read_seconds=0.0011, failures_total=2),
}


def h100_training(index: int = 0) -> Gpu:
    """An H100 in the middle of a training run, everything measured."""
    device = replace(
        H100_DEVICE,
        index=index,
        uuid=f"GPU-11111111-2222-3333-4444-{index:012d}",
        minor_number=index,
    )
    work: dict[str, Any] = {
        "flops_per_second": {"bf16_tensor": 532e12, "fp64": 0.0, "fp32": 6.7e12, "fp16": 2.5e12},
        "flops_bounds_per_second": Bounds(266e12, 1073e12),
        "dram_bytes_per_second": 1.27e12,
        "intensity_flops_per_byte": 426.14,
        "roof_ratio": {"spec": 0.538, "clock": 0.561, "achievable": 0.672},
    }
    share = Share(
        gpu_instance=None,
        ceilings=H100_CEILINGS,
        totals=TRAINING_TOTALS,
        utilization=H100_VITALS.utilization,
        memory=H100_MEMORY,
        processes=(
            replace(TRAINER, sm_utilization_ratio=0.97, cpu_cores=1.37),
            Process(999, "graphics", 20_000_000, "Xorg", "root", "display", cpu_cores=0.004),
        ),
        held=True,
        holder=Holder("ada", "python3", "training"),
        activity=TRAINING_ACTIVITY,
        saturation=Saturation("gpm", True, Bounds(0.561, 0.561), 0.561, "tensor"),
        time_parts=TimeParts(0.009, 0.049, 0.381, 0.0272, 0.5338),
        roofline=Roofline(**work, tensor_flops_utilization_ratio=0.538),
        limiter="compute",
        recent=Recent(
            seconds=10.0,
            busy_ratio=0.985,
            utilization_ratio=0.99,
            saturation_ratio=0.561,
            saturation_bounds=Bounds(0.561, 0.561),
            saturation_unit="tensor",
            active_ratio=ACTIVE,
            time_parts=dict(zip(TIME_PARTS, (0.015, 0.045, 0.379, 0.023, 0.538), strict=True)),
            limited_ratio={**dict.fromkeys(LIMITERS, 0.0), "compute": 0.9, "latency": 0.1},
            limiter="compute",
            **work,
            idle_ratio=0.0,
            held_idle_ratio=0.0,
        ),
    )
    return Gpu(
        device=device,
        up=True,
        last_read_timestamp_seconds=NOW - 0.01,
        ceilings=H100_CEILINGS,
        vitals=H100_VITALS,
        board=H100_BOARD,
        health=H100_HEALTH,
        xids={94: XidRecord(2, NOW - 300.5)},
        totals=H100_BOARD_TOTALS,
        shares=(share,),
        states=STATES,
    )


def h100_starved(index: int = 0) -> Gpu:
    """The same GPU, idle for 40 % of the last seconds."""
    gpu = h100_training(index)
    [share] = gpu.shares
    assert share.recent is not None
    parts = dict(zip(TIME_PARTS, (0.4, 0.0, 0.0, 0.039, 0.561), strict=True))
    return replace(gpu, shares=(replace(share, recent=replace(share.recent, time_parts=parts)),))


def h100_idle(index: int = 0) -> Gpu:
    """An H100 that does nothing and that nobody holds."""
    gpu = h100_training(index)
    pipes = ("tensor", "fp64", "fp32", "fp16", "integer", "hmma", "imma", "dmma", "dfma")
    activity = Activity(
        "gpm", 1.0, **dict.fromkeys(("engine", "sm", "occupancy", "dram", *pipes), 0.0)
    )
    work: dict[str, Any] = {
        "flops_per_second": {"bf16_tensor": 0.0, "fp64": 0.0, "fp32": 0.0, "fp16": 0.0},
        "flops_bounds_per_second": Bounds(0.0, 0.0),
        "dram_bytes_per_second": 0.0,
        "roof_ratio": {"spec": 0.0, "clock": 0.0, "achievable": 0.0},
    }
    share = replace(
        gpu.shares[0],
        utilization=Utilization(0.0, 0.01, 1.0, 0.0, 0.15),
        processes=(),
        held=False,
        holder=None,
        totals=replace(
            gpu.shares[0].totals, last_busy_timestamp_seconds=NOW - 3720, idle_for_seconds=3719.99
        ),
        activity=activity,
        saturation=Saturation("gpm", True, Bounds(0.0, 0.0), 0.0, "tensor"),
        time_parts=TimeParts(1.0, 0.0, 0.0, 0.0, 0.0),
        roofline=Roofline(**work, tensor_flops_utilization_ratio=0.0),
        limiter="idle",
        recent=Recent(
            seconds=10.0,
            busy_ratio=0.0,
            utilization_ratio=0.0,
            saturation_ratio=0.0,
            saturation_bounds=Bounds(0.0, 0.0),
            active_ratio=dict.fromkeys(ACTIVE, 0.0),
            time_parts=dict.fromkeys(TIME_PARTS, 0.0) | {"idle": 1.0},
            limited_ratio=dict.fromkeys(LIMITERS, 0.0) | {"idle": 1.0},
            limiter="idle",
            **work,
            idle_ratio=1.0,
            held_idle_ratio=0.0,
        ),
    )
    return replace(gpu, shares=(share,))


def t4_estimate(index: int = 0) -> Gpu:
    """A T4: no hardware counters, so bounds from the driver's utilization only."""
    ceilings = Ceilings(
        spec="t4",
        peak_flops_per_second={
            "fp32": 8.1e12,
            "fp16": 16.2e12,
            "fp16_tensor": 65e12,
            "int8_tensor": 130e12,
            "int4_tensor": 260e12,
        },
        peak_clock_hertz={"tensor": 1590e6, "vector": 1590e6, "memory": 5001e6},
        memory_bandwidth_bytes_per_second=320e9,
        memory_bus_width_bits=256,
        sm_count=40,
        link_bandwidth_bytes_per_second={"pcie": 15.75e9},
        architecture="Turing",
        assumed_precision="fp16_tensor",
    )
    bounds = dict.fromkeys(("sm", "tensor", "fma", "fp64", "int", "dram"), Bounds(0.0, 0.43))
    share = Share(
        gpu_instance=None,
        ceilings=ceilings,
        totals=ShareTotals(
            busy_seconds=41.5,
            observed_seconds={"utilization": 100.25},
            time_lower_seconds=dict(zip(TIME_PARTS, (57.75, 0.0, 0.0, 0.0, 0.0), strict=True)),
            time_upper_seconds=dict(zip(TIME_PARTS, (59.75, 42.5, 42.5, 3.6, 42.5), strict=True)),
            limited_seconds=dict.fromkeys(LIMITERS, 0.0) | {"unknown": 100.0},
            idle_seconds=3.0,
            held_idle_seconds=0.0,
            last_busy_timestamp_seconds=NOW - 2,
            idle_for_seconds=0.0,
            data_stall_lower_seconds={"client": 11.5},
            data_stall_upper_seconds={"client": 30.25},
        ),
        diagnoses=(
            Diagnosis(
                cause="no_workers",
                job="vision",
                evidence={
                    "data_wait_loss_ratio": 0.12,
                    "workers_count": 0.0,
                    "workers_to_try_count": 4.0,
                },
                recoverable_lower_seconds=11.5,
                recoverable_upper_seconds=30.25,
            ),
        ),
        utilization=Utilization(0.42, 0.43, 1.0, 0.2, 0.35, lower_ratio=0.41),
        memory=Memory(16_106_127_360, 4_294_967_296, 11_811_160_064),
        processes=(Process(77, "compute", None, "python", "bob", "other"),),
        held=True,
        holder=Holder("bob", "python", "other"),
        saturation=Saturation(
            "estimate",
            False,
            Bounds(0.0, 0.43),
            unmeasured=bounds,
            estimates={"dram": 0.154, "tensor": 0.25},
        ),
        time_bounds=dict.fromkeys(TIME_PARTS, Bounds(0.0, 0.43))
        | {"idle": Bounds(0.57, 0.59), "clock": Bounds(0.0, 0.036)},
        roofline=Roofline(
            flops_bounds_per_second=Bounds(0.0, 28e12),
            dram_bounds_bytes_per_second=Bounds(0.0, 137.6e9),
            dram_estimate_bytes_per_second=49.28e9,
            stated_flops_per_second=12e12,
        ),
        limiter="unknown",
        data_stall={"client": Bounds(0.125, 0.3125)},
    )
    return Gpu(
        device=Device(
            index=index,
            uuid=f"GPU-aaaaaaaa-0000-0000-0000-{index:012d}",
            name="Tesla T4",
            architecture="Turing",
            compute_capability=(7, 5),
            pci_bus_id="00000000:00:1E.0",
            driver_version="535.261.03",
            cuda_version="12.2",
            clock_max_hertz={"sm": 1590e6, "memory": 5001e6},
            power_default_limit_watts=70.0,
        ),
        up=True,
        last_read_timestamp_seconds=NOW - 0.02,
        ceilings=ceilings,
        vitals=Vitals(
            utilization=share.utilization,
            power_watts=33.25,
            temperature_celsius=52.0,
            clock_hertz={"sm": 1455e6, "memory": 5001e6},
        ),
        board=Board(power_limit_watts=70.0, fan_speed_ratios=(), performance_state=0),
        health=T4_HEALTH,
        totals=BoardTotals(
            energy_joules=2500.5,
            energy_is_power=True,
            throttle_seconds=dict.fromkeys(THROTTLE_REASONS, 0.0),
        ),
        shares=(share,),
        states={"gpm": "unsupported"},
    )


def h100_mig(index: int = 0) -> Gpu:
    """An H100 with MIG on: instance 1 with two compute instances, measured; instance 2 unknown."""
    whole = h100_training(index)
    instances = (
        Instance(1, 0, "1c.3g.40gb", "MIG-00000000-0000-0000-0000-000000000010", 16),
        Instance(1, 1, "2c.3g.40gb", "MIG-00000000-0000-0000-0000-000000000011", 32),
        Instance(2, 0, "3g.40gb", "MIG-00000000-0000-0000-0000-000000000020", 60),
    )
    ceilings = replace(
        H100_CEILINGS,
        peak_flops_per_second={"bf16_tensor": 449.7e12},
        memory_bandwidth_bytes_per_second=1675e9,
        sm_count=60,
        share_of_sms=60 / 132,
        share_of_memory=0.5,
    )
    recent = whole.shares[0].recent
    assert recent is not None
    measured = replace(
        whole.shares[0],
        gpu_instance=1,
        recent=replace(recent, utilization_ratio=None),
        ceilings=ceilings,
        utilization=None,
        totals=replace(
            TRAINING_TOTALS,
            busy_seconds=None,
            idle_energy_joules=None,
            held_idle_energy_joules=None,
            allocated_unopened_seconds=0.0,
        ),
        work=ShareWork((TRAIN_POD, SIDE_POD), allocated=True, of_process={4101: TRAIN_POD}),
    )
    unknown = Share(
        gpu_instance=2,
        ceilings=ceilings,
        totals=ShareTotals(allocated_unopened_seconds=61.5, unopened_for_seconds=61.5),
        processes=(),
        held=False,
        recent=Recent(seconds=0.0),
        work=ShareWork((BATCH_JOB,), allocated=True),
    )
    unread: dict[str, Any] = dict.fromkeys(
        ("utilization", "encoder_ratio", "decoder_ratio", "jpeg_ratio", "ofa_ratio")
    )
    vitals = replace(H100_VITALS, **unread)
    device = replace(
        whole.device,
        mig=True,
        instances=instances,
        modes={**whole.device.modes, "mig": "enabled"},
    )
    states = {**whole.states, "utilization": "mig", "memory_instance_2": "no_permission"}
    return replace(whole, device=device, vitals=vitals, shares=(measured, unknown), states=states)


def lost(index: int = 0) -> Gpu:
    """A GPU that fell off the bus: only its identity and the time of its last read are left."""
    return Gpu(
        device=replace(H100_DEVICE, index=index, uuid=f"GPU-dddddddd-0000-0000-0000-{index:012d}"),
        up=False,
        down_reason="lost",
        last_read_timestamp_seconds=NOW - 61,
        ceilings=H100_CEILINGS,
        xids={31: XidRecord(1, NOW - 63), 79: XidRecord(1, NOW - 62.5)},
    )


def bare(index: int = 0) -> Gpu:
    """A GPU whose driver answers hardly anything, and whose ceilings are not known."""
    return Gpu(
        device=Device(index=index, uuid=f"GPU-eeeeeeee-0000-0000-0000-{index:012d}", name="GPU"),
        up=True,
        last_read_timestamp_seconds=NOW,
        vitals=Vitals(),
        board=Board(),
        shares=(
            Share(
                gpu_instance=None, ceilings=None, totals=ShareTotals(), recent=Recent(seconds=0.0)
            ),
        ),
    )


def gh200(index: int = 0) -> Gpu:
    """A GPU with a link to a CPU on the same module, whose power is measured together."""
    whole = h100_training(index)
    device = replace(
        whole.device,
        uuid=f"GPU-cccccccc-0000-0000-0000-{index:012d}",
        name="NVIDIA GH200 480GB",
        c2c_bandwidth_bytes_per_second=450e9,
    )
    totals = replace(H100_BOARD_TOTALS, c2c_transmit_bytes=2.1e13, c2c_receive_bytes=3.4e13)
    vitals = replace(H100_VITALS, module_power_watts=802.5)
    return replace(whole, device=device, vitals=vitals, totals=totals)


def two_fans(index: int = 0) -> Gpu:
    """A GPU that cools itself."""
    return replace(bare(index), board=Board(fan_speed_ratios=(0.41, 0.43)))


def gb10(index: int = 0) -> Gpu:
    """A GPU without memory of its own."""
    memory = Memory(128_522_530_816, 64_424_509_440, 64_098_021_376, unified=True)
    return replace(bare(index), shares=(replace(bare(index).shares[0], memory=memory),))


def rank_on_gpu(index: int = 0) -> Rank:
    """A rank that measures with CUDA events and says all that a job can say."""
    return Rank(
        job="resnet",
        rank=index,
        gpu_uuid=f"GPU-11111111-2222-3333-4444-{index:012d}",
        gpu_instance=None,
        totals=TrainingTotals(
            steps=1000.0,
            batches=4000.0,
            samples=1_024_000.0,
            step_seconds=500.0,
            phase_seconds={"data": 155.0, "checkpoint": 12.5, "logging": 2.5, "h2d": 5.0},
            phase_gpu_idle_seconds={"data": 120.0, "checkpoint": 12.0, "logging": 0.0},
            model_flops=1.26e19,
        ),
        processes=1,
        run_seconds=400.0,
        last_report_timestamp_seconds=NOW - 0.75,
        world_size=8,
        framework="torch 2.13.0",
        precision="bf16",
        instrumentation="client",
        loader=Loader(4, 2, pin_memory=True, persistent_workers=False, ready_batches=3),
        memory_bytes={"allocated": 41 * 10**9, "reserved": 52 * 10**9, "peak": 49_500_000_000},
        data_wait_ratio=0.31,
        data_stall_ratio=0.24,
        owner="ada",
        verified=True,
    )


def rank_on_instance(index: int = 2) -> Rank:
    """A rank on MIG instance 1 that has only host times, under a name made to do harm."""
    return Rank(
        job='evil"} 1\\ {x="<b>\U0001f680',
        rank=0,
        gpu_uuid=f"GPU-11111111-2222-3333-4444-{index:012d}",
        gpu_instance=1,
        totals=TrainingTotals(
            steps=10.0, batches=10.0, step_seconds=4.0, phase_seconds={"data": 2.0, "backward": 1.5}
        ),
        processes=1,
        run_seconds=4.0,
        last_report_timestamp_seconds=NOW - 2,
        instrumentation="auto",
        loader=Loader(workers=0),
        data_wait_ratio=0.5,
        owner="eve",
        verified=True,
        degraded=("loader_details", "optimizers"),
    )


def rank_on_cpu() -> Rank:
    """A rank that uses no GPU and whose process has ended."""
    return Rank(
        job="tiny",
        rank=1,
        gpu_uuid=None,
        gpu_instance=None,
        totals=TrainingTotals(),
        processes=0,
        run_seconds=0.0,
        last_report_timestamp_seconds=NOW - 240,
    )


TRAINING_STATE = TrainingState(
    reports_total=4321,
    rejected_total=dict.fromkeys(REJECTION.values, 0) | {"rate": 5, "stall_exceeds_idle": 2},
    quota_hits_total=dict.fromkeys(SENDER.values, 0) | {"user": 5},
)


def with_training(snapshot: Snapshot, *ranks: Rank) -> Snapshot:
    """Let this node take reports, of these ranks."""
    sources = {**snapshot.sources, "training": SourceState(up=True)}
    return replace(snapshot, ranks=ranks, training=TRAINING_STATE, sources=sources)


def snapshot(*gpus: Gpu) -> Snapshot:
    """Put these GPUs on one node."""
    up = any(gpu.up for gpu in gpus)
    problem = None if up else "every GPU is down: GPU 0 is lost"
    devices = {"pci": len(gpus), "driver": len(gpus), "nvml": len(gpus)}
    return Snapshot(NOW, gpus, SOURCES, problem, devices)


def with_pods(snapshot: Snapshot) -> Snapshot:
    """Let the kubelet have answered, and the labels of one pod be published."""
    return replace(
        snapshot,
        sources={**snapshot.sources, "kubernetes": SourceState(True, 0.004, 1, age_seconds=3.5)},
        collectives=Collectives(
            {"responding": 14, "missing": 1, "unresponsive": 0, "dead": 1}, communicators=3
        ),
        pod_labels={"team-a/train-0": {"app.kubernetes.io/name": "train", "team": "vision"}},
    )


NO_DRIVER = Snapshot(
    NOW,
    (),
    {"nvml": SourceState(up=False, failures_total=7)},
    "the NVIDIA driver library libnvidia-ml.so.1 cannot be loaded",
)

DAEMON = Daemon(log_lines_dropped_total=3, web_config_ok=True)
"""What the daemon counts beside a snapshot."""


def linked(of: Snapshot) -> Snapshot:
    """Put its H100 on one NVSwitch fabric, and the others beyond the other socket."""
    names = {gpu.device.uuid: gpu.device.name for gpu in of.gpus}

    def peer(one: Device, other: Device) -> Peer:
        near = names[one.uuid] == names[other.uuid] == H100_DEVICE.name
        return Peer(other.index, other.uuid, "NV18" if near else "SYS")

    return replace(
        of,
        gpus=tuple(
            replace(
                gpu, peers=tuple(peer(gpu.device, each.device) for each in of.gpus if each != gpu)
            )
            for gpu in of.gpus
        ),
    )


EXAMPLES: dict[str, Snapshot] = {
    "training": snapshot(h100_training()),
    "idle": snapshot(h100_idle()),
    "estimate": snapshot(t4_estimate()),
    "mig": with_pods(snapshot(h100_mig())),
    "lost": snapshot(lost()),
    "bare": snapshot(bare()),
    "boards": snapshot(gh200(0), two_fans(1), gb10(2)),
    "cpu": with_training(NO_DRIVER, rank_on_cpu()),
    "mixed": with_training(
        linked(snapshot(h100_training(0), t4_estimate(1), h100_mig(2), lost(3), h100_idle(4))),
        rank_on_instance(2),
        rank_on_gpu(0),
        rank_on_cpu(),
    ),
    "no_driver": NO_DRIVER,
}

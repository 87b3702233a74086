# SPDX-License-Identifier: Apache-2.0
"""The signals measured on a GPU, and CUPTI's metrics for each, best first.

Which metrics a chip has follows no rule, and not all of them fit into one pass: `choice` finds out.
Names with a dot before `sm__` and the like are of groups that
NVIDIA's own tools sample in one pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class MetricForm(Enum):
    """The form of a metric: the suffix of its name."""

    PERCENT = ".avg.pct_of_peak_sustained_elapsed"
    """Percent of what the unit can do in the cycles of its own clock."""
    BYTES = ".sum"
    """Bytes in the sample."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """One metric that gives a signal."""

    metric: str
    """Without its form."""
    field: str | None = None
    """The field of Activity, where it is not called as the signal."""
    where: tuple[str, str] | None = None
    """A metric in its form, and what its description has to contain on the chip: one name is not
    the same pipe on every chip."""


@dataclass(frozen=True, slots=True)
class Signal:
    """One thing to measure."""

    name: str
    """That of a field of Activity too, unless an alternative names another one."""
    alternatives: tuple[Alternative, ...]
    form: MetricForm = MetricForm.PERCENT
    wanted: bool = True
    """Report it as missing on every chip; else only on chips that can count it alone."""


def _of(
    *metrics: str, field: str | None = None, where: tuple[str, str] | None = None
) -> tuple[Alternative, ...]:
    return tuple(Alternative(metric, field, where) for metric in metrics)


def _traffic(name: str, *metrics: str) -> Signal:
    return Signal(name, _of(*metrics, field=f"{name}_bytes"), MetricForm.BYTES, wanted=False)


_SHARED = "sm__pipe_shared_cycles_active_realtime"
"""The pipe that FP16 has together with tensor cores (Turing) or alone (Turing without them), and
FP64 together with tensor cores (GA100, GH100, GB100)."""
_FP16_AND_TENSOR = (_SHARED + MetricForm.PERCENT.value, "(fp16+tensor)")
_FP16_ALONE = (_SHARED + MetricForm.PERCENT.value, "(fp16)")
_FP16_APART = (_SHARED + MetricForm.PERCENT.value, "(fp16")

SIGNALS: tuple[Signal, ...] = (
    Signal("sm", _of("sm__cycles_active")),
    Signal("engine", _of("gr__cycles_active")),
    # All that is read and written; of Turing's `dram__` metrics none is counted in one pass.
    Signal("dram", _of("dram__throughput", "dramc__throughput")),
    Signal(
        "tensor",
        (
            *_of("sm__pipe_tensor_cycles_active_realtime_v2"),
            *_of("sm__pipe_tensor_cycles_active_realtime"),
            *_of(_SHARED, field="tensor_fp16", where=_FP16_AND_TENSOR),
        ),
    ),
    # Instructions first: since GA10x the pipe has two halves, and the cycles in which either works
    # are no share of what both can do.
    Signal(
        "fma",
        (
            *_of("sm__inst_executed_pipe_fma_realtime", field="fp32", where=_FP16_APART),
            *_of(
                "sm__inst_executed_pipe_fma_realtime",
                "TPC.TriageCompute.sm__inst_executed_pipe_fma_realtime",
                "SM_C.TriageAC.smsp__inst_executed_pipe_fma",
                "SM_C.TriageTop.smsp__inst_executed_pipe_fma",
                "sm__pipe_fma_cycles_active_realtime",
                "TPC.TriageCompute.sm__pipe_fma_cycles_active_realtime",
            ),
        ),
    ),
    Signal("fp16", _of(_SHARED, where=_FP16_ALONE), wanted=False),
    Signal(
        "fp64",
        _of(
            "sm__pipe_fp64_cycles_active",
            "TPC.TriageCompute.sm__pipe_fp64_cycles_active_realtime",
            "sm__inst_executed_pipe_fp64",
        ),
    ),
    Signal(
        "int",
        _of(
            "sm__pipe_alu_cycles_active",
            "sm__inst_executed_pipe_alu_realtime",
            "TPC.TriageCompute.sm__inst_executed_pipe_alu_realtime",
            field="integer",
        ),
    ),
    Signal(
        "occupancy",
        _of("sm__warps_active_realtime", "sm__warps_active", "tpc__warps_active_realtime"),
    ),
    Signal(
        "hmma",
        _of(
            "sm__pipe_tensor_subpipe_hmma_cycles_active_realtime",
            "TPC.TriageCompute.sm__pipe_tensor_subpipe_hmma_cycles_active_realtime",
            "TPC.TriageCompute.sm__pipe_tensor_op_hmma_cycles_active_realtime",
        ),
        wanted=False,
    ),
    Signal(
        "imma",
        _of(
            "sm__pipe_tensor_subpipe_imma_cycles_active_realtime",
            "TPC.TriageCompute.sm__pipe_tensor_subpipe_imma_cycles_active_realtime",
            "TPC.TriageCompute.sm__pipe_tensor_op_imma_cycles_active_realtime",
        ),
        wanted=False,
    ),
    Signal(
        "dmma",
        _of(
            "SM_C.TriageCompute.smsp__pipe_tensor_subpipe_dmma_cycles_active",
            "SM_C.TriageCompute.smsp__pipe_tensor_op_dmma_cycles_active",
        ),
        wanted=False,
    ),
    # Reads of the GPU are received bytes.
    _traffic("pcie_receive", "pcie__read_bytes", "PCI.TriageCompute.pcie__read_bytes"),
    _traffic("pcie_transmit", "pcie__write_bytes", "PCI.TriageCompute.pcie__write_bytes"),
    _traffic("nvlink_receive", "nvlrx__bytes"),
    _traffic("nvlink_transmit", "nvltx__bytes"),
)
"""The most important first: the last ones are left out if not all fit into one pass."""

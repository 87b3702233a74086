# SPDX-License-Identifier: Apache-2.0
"""Pages as a dcgm-exporter writes them, in both generations of names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from exporter.model.dcgm import FIELDS, MEDIA_FIELDS, PREFIX

UUID = "GPU-6c5f8f5e-8a3b-4a47-9d3e-0123456789ab"
OTHER = "GPU-00000000-8a3b-4a47-9d3e-0123456789ab"

STOCK = {1001: 0.93, 1004: 0.41, 1005: 0.27, 1009: 1.5e9, 1010: 2.5e9}
"""The profiling fields of dcgm-exporter's own list, by number."""
FULL = STOCK | {1002: 0.88, 1003: 0.5, 1006: 0.0, 1007: 0.3, 1008: 0.1, 1016: 0.2}
COMPLETING = tuple(
    field
    for field in FIELDS
    if field.activity in {"sm", "occupancy", "fp64", "fp32", "fp16", "integer", "imma", "hmma"}
)
"""The fields to add to dcgm-exporter's own list; with them the saturation is complete."""
BLANKS = (
    2147483632.0,
    2147483633.0,
    2147483635.0,
    140737488355328.0,
    9223372036854775792.0,
    9.223372036854775794e18,
    float("nan"),
    float("inf"),
    -1.0,
)
"""What DCGM has instead of a value, and what cannot be one."""

_NAMES = {field.number: (field.legacy, field.current) for field in (*FIELDS, *MEDIA_FIELDS)}
_DEVICE = {
    "power": ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS"),
    "energy": ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL"),
    "temperature": ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CELSIUS"),
    "memory": ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_USED_BYTES"),
}
READINGS = {"power": 301.5, "energy": 7_000_000.0, "temperature": 61.0, "memory": 4096.0}


class Rows(NamedTuple):
    """The rows of one GPU, or of one of its instances."""

    fields: Mapping[int, float] = STOCK
    readings: Mapping[str, float] = READINGS
    uuid: str = UUID
    gpu_instance: int | None = None
    pods: Sequence[str] = ("",)
    """One row each; an empty one has no labels of Kubernetes."""
    timestamp_ms: int | None = None

    def labels(self, pod: str, *, current: bool) -> str:
        """The labels of a row, as either generation has them."""
        labels = {
            "gpu": "0",
            "UUID": self.uuid,
            "pci_bus_id": "00000000:3B:00.0",
            "device": "nvidia0",
            "modelName": "NVIDIA A100-SXM4-80GB",
        }
        if self.gpu_instance is not None:
            labels |= {"GPU_I_PROFILE": "1g.10gb", "GPU_I_ID": str(self.gpu_instance)}
        labels["hostname" if current else "Hostname"] = "node-17"
        if pod:
            labels |= {"container": "train", "namespace": "team", "pod": pod}
        return ",".join(f'{name}="{value}"' for name, value in labels.items())


def page(*gpus: Rows, current: bool = False, uuid_label: str = "UUID") -> str:
    """The whole page, family by family as dcgm-exporter has it, rates typed as counters."""
    lines: list[str] = []
    numbers = sorted({number for rows in gpus for number in rows.fields})
    for number in numbers:
        name = PREFIX + _NAMES[number][current]
        kind = "counter" if name.endswith("_BYTES") else "gauge"
        lines += [f"# HELP {name} Something.", f"# TYPE {name} {kind}"]
        lines += _family(name, ((rows, rows.fields.get(number)) for rows in gpus), current)
    for reading, names in _DEVICE.items():
        lines += [f"# HELP {names[current]} Something.", f"# TYPE {names[current]} gauge"]
        values = ((rows, rows.readings.get(reading)) for rows in gpus)
        lines += _family(names[current], values, current)
    return "\n".join(lines).replace("UUID=", f"{uuid_label}=") + "\n"


def _family(name: str, values: Iterable[tuple[Rows, float | None]], current: bool) -> Iterable[str]:
    for rows, value in values:
        if value is None:
            continue
        stamp = "" if rows.timestamp_ms is None else f" {rows.timestamp_ms}"
        for pod in rows.pods:
            yield f"{name}{{{rows.labels(pod, current=current)}}} {value:f}{stamp}"

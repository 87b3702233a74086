# SPDX-License-Identifier: Apache-2.0
"""One GPU model: a row of the spec file, checked and in base units."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from exporter.model.snapshot import PRECISIONS

DERIVED = "derived"
"""The key of derived ceilings, which no GPU model may have."""

# These bounds keep every number finite and above 0 in base units too.
Positive = Annotated[float, Field(ge=1e-6, le=1e9, allow_inf_nan=False)]
Ratio = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Count = Annotated[int, Field(gt=0, le=1_000_000_000)]
Text = Annotated[str, Field(min_length=1, max_length=1000)]
PciId = Annotated[str, Field(pattern=r"^[0-9A-Fa-f]{4}$")]
CapabilityText = Annotated[str, Field(pattern=r"^[0-9]{1,2}\.[0-9]$")]
ClockUnit = Annotated[str, Field(pattern="^(?:vector|tensor|memory)$")]
Precision = Annotated[str, Field(pattern=f"^(?:{'|'.join(PRECISIONS)})$")]
PrecisionOrMemory = Annotated[str, Field(pattern=f"^(?:memory|{'|'.join(PRECISIONS)})$")]


def _scaled(value: float, *, scale: float) -> float:
    """Scale to base units without rounding errors: 494.7e12, not 494700000000000.06."""
    return float(round(value * scale))


Mega = Annotated[Positive, AfterValidator(partial(_scaled, scale=1e6))]
Giga = Annotated[Positive, AfterValidator(partial(_scaled, scale=1e9))]
Tera = Annotated[Positive, AfterValidator(partial(_scaled, scale=1e12))]


class GpuModel(BaseModel):
    """One row of the spec file; None is not known, or not in the hardware.

    An alias is the key in the file, whose numbers are in its unit.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    product: Text
    """The vendor's name."""
    names: list[Text] = Field(min_length=1)
    """Names that NVML reports."""
    pci_id_texts: list[PciId] = Field(default=[], alias="pci_ids")
    architecture: Text
    chip: Text | None = None
    capability_text: CapabilityText = Field(alias="compute_capability")
    sm_count: Count | None = None
    cores_per_sm: Count
    peak_clock_hertz: dict[ClockUnit, Mega] = Field(default={}, alias="clock_mhz")
    """By unit: tensor, vector, memory."""
    peak_flops_per_second: dict[Precision, Tera] = Field(default={}, alias="peak_tflops")
    """By precision; dense, FMA = 2 operations."""
    derived_precisions: list[Precision] = Field(default=[], alias="derived")
    """The precisions whose peak is computed from SMs and clock, not published."""
    memory_bytes: Giga | None = Field(default=None, alias="memory_gb")
    """The size in the GPU model's name, in decimal units."""
    memory_type: Text | None = None
    memory_bus_width_bits: Count | None = Field(default=None, alias="memory_bus_bits")
    memory_bandwidth_bytes_per_second: Giga | None = Field(
        default=None, alias="memory_bandwidth_gb_s"
    )
    nvlink_bandwidth_bytes_per_second: Giga | None = Field(default=None, alias="nvlink_gb_s")
    """All links together, per direction; the next one too."""
    c2c_bandwidth_bytes_per_second: Giga | None = Field(default=None, alias="c2c_gb_s")
    pcie_generation: int | None = Field(default=None, ge=1, le=6)
    pcie_lanes: int | None = Field(default=None, ge=1, le=32)
    tdp_watts: Positive | None = None
    achievable_ratio: dict[PrecisionOrMemory, Ratio] = {}
    """By precision, and ``memory``: what the best public kernels reach of the peak."""
    achievable_sources: list[Text] = []
    sources: list[Text] = []
    """Codes of the spec file's table of sources, or free text."""
    confidence: Literal["A", "B", "C"] | None = None
    """As the head of the spec file defines them."""
    note: Text | None = None
    _key: str = ""

    @classmethod
    def of(cls, key: str, entry: dict[str, object]) -> GpuModel:
        """Return the entry under this key; raise ValidationError."""
        model = cls.model_validate(entry)
        model._key = key
        return model

    @property
    def key(self) -> str:
        """Its key in the spec file."""
        return self._key

    @property
    def pci_ids(self) -> tuple[int, ...]:
        """Device ids under vendor 10DE."""
        return tuple(int(pci_id, 16) for pci_id in self.pci_id_texts)

    @property
    def compute_capability(self) -> tuple[int, int]:
        """Major and minor number."""
        major, minor = self.capability_text.split(".")
        return int(major), int(minor)

    @property
    def core_count(self) -> int | None:
        """FP32 (CUDA) cores of the whole GPU."""
        return None if self.sm_count is None else self.sm_count * self.cores_per_sm


def assumed_precision(
    peak_flops_per_second: Mapping[str, float], wanted: str | None = None
) -> str | None:
    """Return the precision that tensor work is counted in; None without tensor peaks.

    `wanted` is a tensor precision with or without ``_tensor`` ("bf16", "bf16_tensor"); it is
    passed over where these peaks lack it. The default is what training mostly uses: bf16, and
    fp16 on hardware without it (Volta, Turing).
    """
    preferred: tuple[str, ...] = (
        () if wanted is None else (f"{wanted.removesuffix('_tensor')}_tensor",)
    )
    for name in (*preferred, "bf16_tensor", "fp16_tensor"):
        if name in peak_flops_per_second:
            return name
    return None

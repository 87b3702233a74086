# SPDX-License-Identifier: Apache-2.0
"""What an entry under ``power`` of a spec file may contain, and how it becomes a PowerModel."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)

from exporter.errors import shown
from exporter.model.snapshot import Bounds, PowerModel
from exporter.specs.power import CLOCK_EXPONENT
from exporter.specs.schema import MEGA, EntryError, Mistake

MOST_WATTS = 1e5
MOST_EXPONENT = 6.0


def _two_numbers(value: Any) -> Any:
    """Return a number as the range that holds only it, and anything else as it is."""
    return [value, value] if isinstance(value, int | float) else value


def _in_order(value: list[float]) -> list[float]:
    if value[0] > value[1]:
        raise ValueError("the first is above the second")
    return value


Watts = Annotated[float, Field(ge=0, le=MOST_WATTS, allow_inf_nan=False)]
PositiveWatts = Annotated[float, Field(gt=0, le=MOST_WATTS, allow_inf_nan=False)]
Exponent = Annotated[float, Field(ge=0, le=MOST_EXPONENT, allow_inf_nan=False)]
_AS_TWO, _TWO, _ORDER = (
    BeforeValidator(_two_numbers),
    Field(min_length=2, max_length=2),
    AfterValidator(_in_order),
)
WattRange = Annotated[list[Watts], _AS_TWO, _TWO, _ORDER]
PositiveWattRange = Annotated[list[PositiveWatts], _AS_TWO, _TWO, _ORDER]
ExponentRange = Annotated[list[Exponent], _AS_TWO, _TWO, _ORDER]


class PowerEntry(BaseModel):
    """The power coefficients of one GPU model as the file has them."""

    model_config = ConfigDict(extra="forbid", strict=True)

    idle_watts: WattRange
    busy_watts: WattRange
    tensor_watts: PositiveWattRange
    vector_watts: PositiveWattRange
    dram_watts: PositiveWattRange
    clock_exponent: ExponentRange = [CLOCK_EXPONENT.lower, CLOCK_EXPONENT.upper]
    reference_clock_mhz: Annotated[float, Field(ge=1, le=1e5, allow_inf_nan=False)]
    error_watts: Watts
    memory_margin_ratio: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None


_RANGE = f"watts up to {MOST_WATTS:g}, or two of them in order such as [60, 75]"
_ABOVE_ZERO = f"watts above 0 and up to {MOST_WATTS:g}, or two of them in order such as [60, 75]"
_EXPECTED = {
    "idle_watts": _RANGE,
    "busy_watts": _RANGE,
    "tensor_watts": _ABOVE_ZERO,
    "vector_watts": _ABOVE_ZERO,
    "dram_watts": _ABOVE_ZERO,
    "clock_exponent": f"a number up to {MOST_EXPONENT:g}, or two of them in order such as [1, 3]",
    "reference_clock_mhz": "a clock from 1 to 1e5 MHz",
    "error_watts": f"watts up to {MOST_WATTS:g}",
    "memory_margin_ratio": "a ratio from 0 to 1",
}


def parse_power(entry: Any) -> PowerModel:
    """Check one entry of ``power`` and convert it to base units.

    Raises:
        EntryError: with everything that is wrong with it.
    """
    if not isinstance(entry, dict):
        problem = f"expected a mapping of power coefficients, got {shown(entry)}"
        raise EntryError([Mistake((), problem)])
    try:
        row = PowerEntry.model_validate(entry)
    except ValidationError as error:
        raise EntryError(_mistakes(error, entry)) from None
    return PowerModel(
        idle_watts=Bounds(*row.idle_watts),
        busy_watts=Bounds(*row.busy_watts),
        tensor_watts=Bounds(*row.tensor_watts),
        vector_watts=Bounds(*row.vector_watts),
        dram_watts=Bounds(*row.dram_watts),
        clock_exponent=Bounds(*row.clock_exponent),
        reference_clock_hertz=float(round(row.reference_clock_mhz * MEGA)),
        error_watts=row.error_watts,
        memory_margin_ratio=row.memory_margin_ratio,
        calibrated=True,
    )


def _mistakes(error: ValidationError, entry: dict[str, Any]) -> list[Mistake]:
    """Turn the errors of pydantic into ours, one for each key."""
    found: dict[str, Mistake] = {}
    for each in error.errors(include_url=False):
        key = str(each["loc"][0])
        if each["type"] == "extra_forbidden":
            problem = f"not known, expected one of {', '.join(PowerEntry.model_fields)}"
        elif key not in entry:
            problem = f"missing, expected {_EXPECTED[key]}"
        else:
            problem = f"expected {_EXPECTED[key]}, got {shown(entry[key])}"
        found.setdefault(key, Mistake((key,), problem))
    return list(found.values())

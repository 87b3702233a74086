# SPDX-License-Identifier: Apache-2.0
"""A scriptable libnvidia-ml.so.1 for tests: unmodified clients run on it, no GPU needed."""

from __future__ import annotations

import copy
import ctypes
import math
import os
import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.fake_nvml.build import build as build
from tests.fake_nvml.tables import scenario_text

if TYPE_CHECKING:
    import pytest

Wave = float | Mapping[str, Any]

# A dict with one of these is a value, not a group of readings to merge into.
_VALUE_KEYS = frozenset({"square", "sine", "steps", "error", "value", "rate", "count"})
# A change takes effect this much later, when every process has read it: the library looks for a
# new file every 5 ms. Otherwise a counter could be read past the change and then step back.
_LEAD_SECONDS = 0.025
_STATS_ENTRY = struct.Struct("<56sQ")


class FakeNvml:
    """One scenario file, the library that plays it, and the control over both.

    With `clock` the driver's time stands still at that Unix time until `set_clock` or `advance`
    moves it, and every change of the scenario is seen by the very next call.
    """

    def __init__(
        self,
        directory: Path,
        scenario: Mapping[str, Any],
        *,
        missing: Sequence[str] = (),
        clock: float | None = None,
    ) -> None:
        self.directory = directory
        self.library = build(missing)
        self.scenario_path = directory / "scenario.json"
        self.stats_path = directory / "calls.bin"
        self.clock_path = directory / "clock" if clock is not None else None
        self._stamp = 0
        directory.mkdir(parents=True, exist_ok=True)
        if clock is not None:
            self.set_clock(clock)
        self.epoch = float(scenario.get("epoch", self.now()))
        self.scenario: dict[str, Any] = {}
        self._store(scenario, since=None)

    def now(self) -> float:
        """The driver's time: the frozen clock, or the real one."""
        if self.clock_path is None:
            return time.time()
        return float(self.clock_path.read_text())

    def set_clock(self, unix_seconds: float) -> None:
        """Move the frozen clock."""
        if self.clock_path is None:
            message = "this fake runs on the real clock: pass clock= to freeze it"
            raise RuntimeError(message)
        self._replace(self.clock_path, f"{unix_seconds:.9f}\n")

    def advance(self, seconds: float) -> None:
        """Move the frozen clock on."""
        self.set_clock(self.now() + seconds)

    def environment(self) -> dict[str, str]:
        """What a subprocess needs in its environment to find the library and the scenario."""
        path = os.environ.get("LD_LIBRARY_PATH")
        directory = str(self.library.parent)
        return {
            "LD_LIBRARY_PATH": f"{directory}:{path}" if path else directory,
            "FAKE_NVML_SCENARIO": str(self.scenario_path),
            "FAKE_NVML_STATS": str(self.stats_path),
            "FAKE_NVML_CLOCK": str(self.clock_path or ""),
        }

    def activate(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        """Make pynvml in this process use the fake; gives the (uninitialised) module."""
        import pynvml

        for name, text in self.environment().items():
            if name.startswith("FAKE_NVML_"):
                monkeypatch.setenv(name, text)
        library = ctypes.CDLL(str(self.library))
        library.fake_nvml_reset()
        monkeypatch.setattr(pynvml, "nvmlLib", library)
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        monkeypatch.setattr(pynvml, "_nvmlLib_refcount", 0)
        return pynvml

    def write(self, scenario: Mapping[str, Any]) -> None:
        """Replace the whole scenario; running totals go on from what they were."""
        if self.clock_path is not None:
            self._store(scenario, since=self.now())
            return
        since = time.time() + _LEAD_SECONDS
        self._store(scenario, since=since)
        while time.time() <= since:
            time.sleep(0.002)

    def update(self, **changes: Any) -> None:
        """Replace top-level keys of the scenario."""
        self.write({**self.scenario, **changes})

    def device(self, index: int, **changes: Any) -> None:
        """Change readings of one GPU; groups such as `clocks` are merged, values replaced."""
        scenario = copy.deepcopy(self.scenario)
        devices = scenario.setdefault("devices", {"count": 1})
        if isinstance(devices, list):
            devices[index] = _merged(devices[index], changes)
        else:
            overrides = devices.setdefault("overrides", {})
            overrides[str(index)] = _merged(overrides.get(str(index), {}), changes)
        self.write(scenario)

    def happen(self, *xids: tuple[int, int]) -> None:
        """Let these Xids (GPU, code) happen now, one after the other."""
        now = self.now() - self.epoch + _LEAD_SECONDS + 0.005
        more = [
            {"at": now + 0.001 * n, "gpu": gpu, "xid": xid} for n, (gpu, xid) in enumerate(xids)
        ]
        self.update(xids=[*self.scenario.get("xids", []), *more])

    def calls(self) -> dict[str, int]:
        """How often each C function has been called so far, by any process."""
        try:
            data = self.stats_path.read_bytes()
        except FileNotFoundError:
            return {}
        usable = data[: len(data) - len(data) % _STATS_ENTRY.size]
        entries = _STATS_ENTRY.iter_unpack(usable)
        return {name.rstrip(b"\0").decode(): count for name, count in entries if count}

    def _store(self, scenario: Mapping[str, Any], *, since: float | None) -> None:
        stored: dict[str, Any] = {"epoch": self.epoch, **copy.deepcopy(dict(scenario))}
        stored.pop("since", None)
        if since is not None:
            stored["since"] = since
        self._replace(self.scenario_path, scenario_text(stored))
        self.scenario = stored

    def _replace(self, path: Path, text: str) -> None:
        scratch = path.with_name(f"{path.name}.{os.getpid()}.new")
        scratch.write_text(text, encoding="utf-8")
        # File times move in steps of some milliseconds; two writes in one step must still differ.
        self._stamp = max(self._stamp + 1, time.time_ns())
        os.utime(scratch, ns=(self._stamp, self._stamp))
        scratch.replace(path)


def _merged(old: Any, new: Any) -> Any:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return copy.deepcopy(new)
    if _VALUE_KEYS & (old.keys() | new.keys()):
        return copy.deepcopy(new)
    result = dict(old)
    for key, item in new.items():
        result[key] = _merged(old[key], item) if key in old else copy.deepcopy(item)
    return result


def fault(function: str = "*", **effect: Any) -> dict[str, Any]:
    """A fault for the `faults` list: `gpu`, `start`, `until`, `latency_us`, `hang`, `error`."""
    if "start" in effect:
        effect["from"] = effect.pop("start")
    return {"function": function, **effect}


def square(
    period: float, duty: float, high: float, low: float = 0, phase: float = 0
) -> dict[str, Any]:
    """High for the first `duty` share of each period, then low."""
    return {"square": {"period": period, "duty": duty, "high": high, "low": low, "phase": phase}}


def sine(period: float, mean: float, amplitude: float, phase: float = 0) -> dict[str, Any]:
    """A sine around `mean`."""
    return {"sine": {"period": period, "mean": mean, "amplitude": amplitude, "phase": phase}}


def steps(*points: tuple[float, float]) -> dict[str, Any]:
    """Constant from each (time, value) to the next."""
    return {"steps": [list(point) for point in points]}


def integral(wave: Wave, a: float, b: float) -> float:
    """The exact integral of the wave from `a` to `b`, seconds after the epoch."""
    if not isinstance(wave, Mapping):
        return float(wave) * (b - a)
    if "square" in wave:
        return _square_area(wave["square"], b) - _square_area(wave["square"], a)
    if "sine" in wave:
        body = wave["sine"]
        k, phase = math.tau / body["period"], body.get("phase", 0)
        swing = math.cos(k * (a - phase)) - math.cos(k * (b - phase))
        return float(body["mean"] * (b - a) + body["amplitude"] / k * swing)
    points = wave["steps"]
    starts = [a, *(point[0] for point in points[1:])]
    ends = [*(point[0] for point in points[1:]), b]
    area = 0.0
    for (_, level), start, end in zip(points, starts, ends, strict=True):
        area += level * max(0.0, min(b, end) - max(a, start))
    return area


def mean(wave: Wave, a: float, b: float) -> float:
    """The exact mean of the wave from `a` to `b`, seconds after the epoch."""
    return integral(wave, a, b) / (b - a)


def _square_area(body: Mapping[str, Any], t: float) -> float:
    turns = (t - body.get("phase", 0)) / body["period"]
    whole = math.floor(turns)
    on = whole * body["duty"] + min(turns - whole, body["duty"])
    low = body.get("low", 0)
    return float(body["period"] * (low * turns + (body["high"] - low) * on))


# Which of the symbols that are asked for older drivers lack (nvml.h of their CUDA releases).

# CUDA 12.4
DRIVER_550 = (
    *("nvmlDeviceGetFanSpeedRPM", "nvmlDeviceGetMarginTemperature", "nvmlDeviceGetTemperatureV"),
    "nvmlDeviceGetUnrepairableMemoryFlag_v1",
)

# CUDA 12.2
DRIVER_535 = (
    *DRIVER_550,
    *("nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetNumaNodeId", "nvmlDeviceGetPciInfoExt"),
    "nvmlDeviceGetSramEccErrorStatus",
)

# CUDA 11.4
DRIVER_470 = (
    *DRIVER_535,
    *(f"nvmlDeviceGet{kind}RunningProcesses_v3" for kind in ("Compute", "Graphics", "MPSCompute")),
    *("nvmlDeviceGetConfComputeMemSizeInfo", "nvmlSystemGetConfComputeState"),
    *("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetRunningProcessDetailList"),
    *("nvmlDeviceGetGpuFabricInfo", "nvmlDeviceGetNumFans", "nvmlDeviceGetNumGpuCores"),
    *("nvmlDeviceGetJpgUtilization", "nvmlDeviceGetOfaUtilization"),
    *("nvmlDeviceGetMemoryBusWidth", "nvmlDeviceGetMemoryInfo_v2"),
    *("nvmlGpmMetricsGet", "nvmlGpmMigSampleGet", "nvmlGpmQueryDeviceSupport"),
    *("nvmlGpmSampleAlloc", "nvmlGpmSampleFree", "nvmlGpmSampleGet"),
)

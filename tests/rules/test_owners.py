# SPDX-License-Identifier: Apache-2.0
"""GPU-hours, energy and cost by owner, and the prices that they take."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from deploy.prometheus import prices
from deploy.prometheus.prices import NONE
from deploy.prometheus.render_rules import main
from deploy.prometheus.thresholds import BadThresholds
from tests.rules import promtool
from tests.rules.cases import GPU, NODE, counter, gauge, given, held, pod
from tests.rules.promtool import HOUR, MINUTE, Labels, Series, Test, run, run_suite, total, value
from tests.rules.rules import only

BOARD: Labels = {**GPU, "gpu": "1", "uuid": "GPU-b"}
INSTANCE: Labels = {**BOARD, "gpu_instance": "2"}
JOB: Labels = {"job": NODE["job"]}
H100, T4 = "NVIDIA H100 80GB HBM3", "Tesla T4"


def at_prices(**by_model: float) -> Mapping[str, object]:
    """The rules with other prices than those that ship."""
    wanted = [
        *(f"owner:gpu_{name}_seconds:hours{w}" for name in HOURS for w in ("1h", "7d", "30d")),
        *(f"owner:gpu_{name}:sum{w}" for name in ("energy_joules", "cost") for w in ("1d", "30d")),
        "owner:gpu_allocated_seconds:hours1d",
    ]
    text = json.dumps(only(wanted))
    lines = [
        f'label_replace(vector({price}), "name", "{name}", "", "")'
        for name, price in by_model.items()
    ]
    rules: Mapping[str, object] = json.loads(
        text.replace(NONE, json.dumps(" or ".join(lines) or NONE)[1:-1])
    )
    return rules


HOURS = ("allocated", "held_idle", "allocated_unopened")


def three_hours() -> list[Series]:
    """A pod holds a GPU for two of three hours, idle in the second, and then does not open it."""
    ends = 2 * HOUR
    opened = promtool.piecewise((0, 1), (ends, 0))
    return [
        *given(("team-a/train", 0, 1e9), held_value=opened),
        *(
            each
            for each in held(total((0, 0), (HOUR, 1)), held_value=opened)
            if each.name not in ("gpu_held", "gpu_held_idle_seconds_total")
        ),
        counter("gpu_held_idle_seconds_total", total((0, 0), (HOUR, 1), (ends, 0))),
        counter("gpu_energy_joules_total", 100),
        gauge("gpu_info", 1, name=H100),
        # An instance that a pod holds idle, of a board that draws power, too.
        *held(1, labels=INSTANCE),
        gauge("gpu_info", 1, BOARD, name=H100),
        counter("gpu_energy_joules_total", 300, BOARD),
        pod("team-b/infer", INSTANCE),
    ]


def check(tmp_path: Path, rules: Mapping[str, object], *expected: promtool.Expected) -> None:
    run_suite(tmp_path, rules, [Test("", three_hours(), expected).group()])


def test_hours_and_energy_by_owner(tmp_path: Path) -> None:
    """Over weeks, in whole hours: those that have not ended are not in it."""
    a, b = {**JOB, "owner": "team-a/train"}, {**JOB, "owner": "team-b/infer"}
    classed = {"class": "training"}
    # The first two minutes of a rate, and the last before a change, are known in part only.
    at, near = 3 * HOUR + 10 * MINUTE, 0.1
    hours = [
        value(f"owner:gpu_allocated_seconds:hours{window}", at, (a, 3), (b, 3), to=near)
        for window in ("1d", "7d", "30d")
    ]
    idle = ({**a, **classed}, 1), ({**b, **classed}, 3)
    check(
        tmp_path,
        at_prices(),
        *hours,
        value("owner:gpu_held_idle_seconds:hours7d", at, *idle, to=near),
        value("owner:gpu_allocated_unopened_seconds:hours30d", at, (a, 1), to=near),
        # 100 W for three hours; the board with instances is nobody's.
        value("owner:gpu_energy_joules:sum30d", at, (a, 3 * 3600 * 100), to=3600 * 100 * near),
    )


def test_cost_by_owner(tmp_path: Path) -> None:
    """Of what has a price; nothing else has a cost, not even 0."""
    a, b = {**JOB, "owner": "team-a/train"}, {**JOB, "owner": "team-b/infer"}
    at, name, euros = 3 * HOUR + 10 * MINUTE, "owner:gpu_cost:sum1d", {"currency": "EUR"}
    check(tmp_path, at_prices(**{T4: 9}), value(name, at))
    check(tmp_path, at_prices(**{H100: 2}), value(name, at, ({**a, **euros}, 6), to=0.2))
    both = at_prices(**{H100: 2, f"{H100} MIG": 0.5})
    rows = ({**a, **euros}, 6), ({**b, **euros}, 1.5)
    check(
        tmp_path,
        both,
        value(name, at, *rows, to=0.25),
        value(
            "model:gpu_price_per_hour:max",
            at,
            ({"name": H100, **euros}, 2),
            ({"name": f"{H100} MIG", **euros}, 0.5),
        ),
    )


def test_prices_are_rendered(tmp_path: Path) -> None:
    """promtool takes the rules, with a line for each model."""
    path, output = tmp_path / "prices.yml", tmp_path / "rules"
    path.write_text(f"currency: USD\nper_gpu_hour:\n  {H100}: 2.5\n  {T4}: 0\n")
    assert main(["--prices", str(path), "--output", str(output)]) == 0
    run("check", "rules", str(output / "recording.yml"))
    text = (output / "recording.yml").read_text()
    assert f'label_replace(vector(2.5), "name", "{H100}", "", "")\n          or\n' in text
    assert f'label_replace(vector(0), "name", "{T4}", "", "")' in text
    assert "currency: USD" in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1: expected the keys currency and per_gpu_hour"),
        ("currency: EUR", "1: expected the keys currency and per_gpu_hour"),
        ("currency: 3\nper_gpu_hour: {}", "1: currency: expected a word such as EUR, not 3"),
        ("currency: EUR\nper_gpu_hour: [1]", "2: per_gpu_hour: expected prices by GPU model"),
        (
            "currency: EUR\nper_gpu_hour:\n  T4: free",
            "3: T4: expected a price, 0 or more, not 'free'",
        ),
        ("currency: EUR\nper_gpu_hour:\n  T4: -1", "3: T4: expected a price, 0 or more, not -1"),
        (
            "currency: EUR\nper_gpu_hour:\n  'T\"4': 1",
            "3: 'T\"4': expected the name of a GPU model",
        ),
    ],
)
def test_what_is_wrong_with_prices_is_named(text: str, message: str, tmp_path: Path) -> None:
    """File, line, name, and what was expected."""
    path = tmp_path / "prices.yml"
    path.write_text(text)
    with pytest.raises(BadThresholds) as raised:
        prices.load(path)
    assert str(raised.value).startswith(f"{path}:{message}")


def test_no_price_ships() -> None:
    """What a GPU costs, only its owner knows."""
    assert prices.load() == {"prices.currency": "EUR", "prices.by_model": NONE}

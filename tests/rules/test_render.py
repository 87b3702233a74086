# SPDX-License-Identifier: Apache-2.0
"""Rules come from templates and one file of thresholds, and mistakes in it are named."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from deploy.prometheus import render_rules
from deploy.prometheus.render_rules import (
    BadThresholds,
    Value,
    load,
    main,
    render,
    rules,
    seconds,
)
from tests.rules.promtool import run


def test_the_rules_that_ship_are_what_the_templates_give() -> None:
    """`make rules` changes nothing in a clean checkout."""
    for name, text in rules(load()).items():
        assert (render_rules.RULES / name).read_text(encoding="utf-8") == text, name


def test_a_threshold_has_three_forms() -> None:
    """As it stands, in seconds, and in percent."""
    thresholds: dict[str, Value] = {"a.window": "1h30m", "a.share": 0.95, "a.bytes": 524288000}
    text = "x[<a.window>] > <a.window:seconds> or <a.share> <a.share:percent> <a.bytes> < 3"
    assert render(text, thresholds) == "x[1h30m] > 5400 or 0.95 95 524288000 < 3"


@pytest.mark.parametrize(
    ("duration", "expected"), [("30s", 30), ("1m", 60), ("2h", 7200), ("1d12h", 129600), ("0s", 0)]
)
def test_durations(duration: str, expected: float) -> None:
    """The units of Prometheus."""
    assert seconds(duration) == expected


@pytest.mark.parametrize("duration", ["", "5", 5, "m5", "5m 3s", "1w"])
def test_what_is_no_duration_is_refused(duration: str | int) -> None:
    """With what was expected."""
    with pytest.raises(BadThresholds, match="expected a duration such as"):
        seconds(duration)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<a.missing>", "a.missing: missing in the thresholds"),
        ("<a.share:seconds>", "a.share: expected a duration such as"),
        ("<a.window:percent>", "a.window: expected a share from 0 to 1"),
        ("<a.share:hours>", "<a.share:hours>: expected seconds or percent"),
    ],
)
def test_a_template_that_does_not_fit_is_named(text: str, message: str) -> None:
    """The key, and what is wrong with it."""
    with pytest.raises(BadThresholds, match=message):
        render(text, {"a.share": 0.95, "a.window": "5m"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a", "expected sections with keys"),
        ("held_idle: 3", "held_idle: expected keys with values"),
        ("held_idle: {share: [1]}", "held_idle.share: expected a number or text"),
        ("held_idle: {share: yes}", "held_idle.share: expected a number or text"),
        ("a: {", "while parsing"),
        ("held_idle: {shere: 0.9}", "held_idle.shere: no rule has such a threshold"),
        ("held_idle: {share: 0.9}", "missing in the thresholds"),
    ],
)
def test_a_bad_file_is_one_line(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, the key and what was expected; nothing is written."""
    path = tmp_path / "thresholds.yml"
    path.write_text(text, encoding="utf-8")
    assert main(["--thresholds", str(path), "--output", str(tmp_path / "rules")]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not (tmp_path / "rules").exists()


def test_other_thresholds_give_other_rules(tmp_path: Path) -> None:
    """Windows, shares, intervals and links are all in the one file; promtool takes the result."""
    sections = yaml.safe_load(render_rules.THRESHOLDS.read_text(encoding="utf-8"))
    sections["held_idle"] |= {"window": "20s", "for": "5s", "share": 0.5}
    sections["links"]["runbook"] = "https://wiki.example/gpu"
    sections["evaluation"]["interval"] = "1s"
    path = tmp_path / "thresholds.yml"
    path.write_text(yaml.safe_dump(sections), encoding="utf-8")
    assert main(["--thresholds", str(path), "--output", str(tmp_path / "rules")]) == 0
    written = [tmp_path / "rules" / name for name in ("alerts.yml", "recording.yml")]
    run("check", "rules", *map(str, written))
    alerts, recording = (file.read_text(encoding="utf-8") for file in written)
    assert ">= 0.5\n        for: 5s" in alerts
    assert "https://wiki.example/gpu#gpuheldidle" in alerts
    assert "increase(gpu_held_idle_seconds_total[20s])" in recording
    assert "interval: 1s" in recording

# SPDX-License-Identifier: Apache-2.0
"""Rules come from templates and one file of thresholds, and mistakes in it are named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from deploy.prometheus import render_rules, thresholds
from deploy.prometheus.render_rules import main, render, rules
from deploy.prometheus.thresholds import (
    KINDS,
    NOT_SHORTER,
    PLACEHOLDER,
    SHORTER,
    TEMPLATES,
    THRESHOLDS,
    WINDOWS,
    BadThresholds,
    Value,
    load,
    seconds,
)
from tests.conftest import require_tool
from tests.rules.promtool import run

WRITTEN = ("alerts.yml", "queries.yml", "recording.yml", "scale.yml")


def test_the_rules_that_ship_are_what_the_templates_give() -> None:
    """`make rules` changes nothing in a clean checkout."""
    for name, text in rules(load()).items():
        assert (render_rules.RULES / name).read_text(encoding="utf-8") == text, name


def test_a_threshold_has_five_forms() -> None:
    """As it stands, in seconds, in percent, half as long again, and nine tenths as long."""
    thresholds: dict[str, Value] = {"a.window": "1h30m", "a.share": 0.95, "a.bytes": 524288000}
    text = "x[<a.window>] > <a.window:seconds> or <a.share> <a.share:percent> <a.bytes> < 3"
    assert render(text, thresholds) == "x[1h30m] > 5400 or 0.95 95 524288000 < 3"
    assert render("x[<a.window:longer>]", thresholds) == "x[8100000ms]"
    assert render("x[<a.window:shorter>]", thresholds) == "x[4860000ms]"


@pytest.mark.parametrize(
    ("duration", "expected"), [("30s", 30), ("1m", 60), ("2h", 7200), ("1d12h", 129600), ("0s", 0)]
)
def test_durations(duration: str, expected: float) -> None:
    """The units of Prometheus."""
    assert seconds(duration) == expected


@pytest.mark.parametrize(
    "duration", ["", "5", 5, "m5", "5m 3s", "1w", "1M", "1.5h", "-5m", "٣m", 20 * "9" + "s"]
)
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
        ("<a.share:longer>", "a.share: expected a duration such as"),
        ("<a.share:hours>", "<a.share:hours>: expected seconds, percent, longer, shorter"),
    ],
)
def test_a_template_that_does_not_fit_is_named(text: str, message: str) -> None:
    """The key, and what is wrong with it."""
    with pytest.raises(BadThresholds, match=message):
        render(text, {"a.share": 0.95, "a.window": "5m"})


def test_a_threshold_without_a_kind_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule has it, and so has the file: what is missing is its row in thresholds.py."""
    kinds = {name: kind for name, kind in KINDS.items() if name != "pcie.busy"}
    monkeypatch.setattr(thresholds, "KINDS", kinds)
    with pytest.raises(BadThresholds, match=r"\d: pcie.busy: its kind is missing in thresholds.py"):
        load()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1: expected sections with keys"),
        ("held_idle: 3", "1: held_idle: expected keys with values"),
        ("held_idle:\n  share: [1]", "2: held_idle.share: expected a number or text"),
        ("a: {", "2: did not find expected node content, expected valid YAML"),
        ("held_idle:\n  shere: 0.9", "2: held_idle.shere: no rule has such a threshold"),
        ("held_idle: {share: 0.9}", "1: held_idle.window: missing in the thresholds"),
        ("held_idle: {share: 0.9}", "1: xid: missing in the thresholds, with all its keys"),
        ("held_idle: {1: 0.9}", "1: held_idle.1: no rule has such a threshold"),
        ("\0", "1: control character U+0000"),
        ("pcie:\n  busy: 0.5\n  busy: 0.6", "3: key 'busy' again, expected it once"),
        ("pcie: {}\nxid: {}\npcie: {}", "3: key 'pcie' again, expected it once"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, the key and what was expected; nothing is written."""
    path = tmp_path / "thresholds.yml"
    path.write_text(text, encoding="utf-8")
    lines = refused(path, capsys)
    assert sum(line.startswith(message) for line in lines) == 1
    # What is not there is named too, after what is wrong.
    assert len(lines) == 1 or "missing in the thresholds" in lines[-1]


def refused(path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What is said of thresholds of which no rules are made, without the program and the file."""
    output = path.parent / "rules"
    assert main(["--thresholds", str(path), "--output", str(output)]) == 2
    assert not output.exists()
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith("render_rules: ") for line in lines)
    return [line.removeprefix("render_rules: ").removeprefix(f"{path}:") for line in lines]


def test_all_mistakes_of_a_file_are_named_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong values, unknown and missing keys, and values that do not fit each other."""
    sections = yaml.safe_load(THRESHOLDS.read_text(encoding="utf-8"))
    sections["held_idle"] |= {"share": 95, "critical_window": "10m", "whidnow": "1h"}
    sections["thermal"]["window"] = "15"
    sections["lost"] = "soon"
    sections["checkpoint"]["steps"] = "2h"
    del sections["ecc"]["window"]
    del sections["fabric"]
    path = tmp_path / "thresholds.yml"
    path.write_text(yaml.safe_dump(sections, sort_keys=False), encoding="utf-8")
    lines = refused(path, capsys)
    assert [line.split(": ", 1)[1] for line in lines] == [
        f"held_idle.share: {UP_TO}, not 95",
        "held_idle.whidnow: no rule has such a threshold",
        f"thermal.window: {A_DURATION}, not '15'",
        "lost: expected keys with values",
        "ecc.window: missing in the thresholds",
        "fabric: missing in the thresholds, with all its keys",
        "checkpoint.steps: expected less than checkpoint.window (1h), not '2h'",
        "held_idle.critical_window: expected at least held_idle.window (30m), not '10m'",
    ]
    written = path.read_text(encoding="utf-8").splitlines()
    assert written[int(lines[0].split(":")[0]) - 1] == "  share: 95"
    assert written[int(lines[-1].split(":")[0]) - 1] == "  critical_window: 10m"


def test_a_hundred_mistakes_are_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Then a line says that there may be more."""
    path = tmp_path / "thresholds.yml"
    path.write_text("".join(f"nonsense{number}: 1\n" for number in range(500)), encoding="utf-8")
    lines = refused(path, capsys)
    assert len(lines) == 101
    assert lines[-1].endswith("only the first 100 problems are named, there may be more")


def test_a_file_that_is_no_text_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor one that is not there."""
    path = tmp_path / "thresholds.yml"
    assert len(refused(path, capsys)) == 1
    path.write_bytes(b"\xff\xfe\x00")
    assert len(refused(path, capsys)) == 1


A_WINDOW = "expected a duration of more than 0s"
A_DURATION = "expected a duration such as 30s, 15m or 2h"
ABOVE = "expected a share from 0 to below 1"
UP_TO = "expected a share above 0, 1 at most"
A_NUMBER = "expected a number, 0 or more"
A_LINK = "expected a link such as http://localhost:3000 without #"
A_BASE = "expected a link such as http://localhost:3000 without ? and #, or nothing"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("held_idle.for", "1M", A_DURATION),
        ("held_idle.for", None, "expected a number or text, not None"),
        ("held_idle.window", "0s", A_WINDOW),
        ("evaluation.interval", "2m", "expected a duration of at most 1m"),
        ("orphan_memory.bytes", 10**400, A_NUMBER),
        ("power_brake.window", "10s", "expected at least twice evaluation.slow_interval (1m)"),
        ("exporter.stale_after", "1s", "expected at least twice evaluation.interval (30s)"),
        ("held_idle.critical_window", "29m", "expected at least held_idle.window (30m), not '29m'"),
        ("checkpoint.steps", "1h", "expected less than checkpoint.window (1h)"),
        ("held_idle.share", "0.9.5", UP_TO),
        ("held_idle.share", 0, UP_TO),
        ("held_idle.share", float("nan"), UP_TO),
        ("data_stall.share", 1, ABOVE),
        ("straggler.tensor", 0.15, "expected a factor above 1"),
        ("orphan_memory.bytes", "500MiB", A_NUMBER),
        ("links.runbook", "https://a/runbook.md#top", A_LINK),
        ("links.grafana", "https://a/grafana?orgId=1", A_BASE),
        ("exporter.job", 'a"b', "expected a regular expression in one line and without quotes"),
        ("exporter.job", " ", "expected a regular expression in one line and without quotes"),
    ],
)
def test_a_value_that_gives_no_working_rule_is_named(
    name: str, value: object, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What Prometheus would refuse, and what could never fire: file, key, and what was expected."""
    path = changed(tmp_path, name, value)
    (said,) = refused(path, capsys)
    line = 1 + path.read_text(encoding="utf-8").splitlines().index(_written(name, value))
    assert said.startswith(f"{line}: {name}: {message}")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("held_idle.for", "0s"),
        ("held_idle.share", 1),
        ("held_idle.critical_window", "30m"),
        ("power_brake.share", 0),
        ("orphan_memory.bytes", "5e8"),
        ("exporter.job", r"gpu-\d+\.prod|roofline"),
        ("links.grafana", "https://grafana.example/a/b"),
        ("links.grafana", ""),
        ("links.runbook", "https://wiki.example/?page=gpu"),
        ("thermal.window", "2m"),
        ("evaluation.interval", "30s"),
    ],
)
def test_a_value_at_the_edge_gives_rules(name: str, value: object, tmp_path: Path) -> None:
    """promtool takes them."""
    path = changed(tmp_path, name, value)
    assert main(["--thresholds", str(path), "--output", str(tmp_path / "rules")]) == 0
    run("check", "rules", *map(str, sorted((tmp_path / "rules").iterdir())))


def _written(name: str, value: object) -> str:
    return "  " + yaml.safe_dump({name.split(".")[1]: value}, allow_unicode=False).rstrip("\n")


def changed(directory: Path, name: str, value: object) -> Path:
    """Return the thresholds that ship with another value."""
    sections = yaml.safe_load(THRESHOLDS.read_text(encoding="utf-8"))
    section, key = name.split(".")
    assert key in sections[section]
    sections[section][key] = value
    path = directory / "thresholds.yml"
    path.write_text(yaml.safe_dump(sections), encoding="utf-8")
    return path


def test_every_threshold_has_a_kind_and_is_used() -> None:
    """No value goes unchecked, and none is there for nothing."""
    sections = yaml.safe_load(THRESHOLDS.read_text(encoding="utf-8"))
    names = {f"{section}.{key}" for section, keys in sections.items() for key in keys}
    texts = [
        path.read_text(encoding="utf-8")
        for path in (*TEMPLATES.glob("*.yml"), TEMPLATES.parent / "render_rules.py")
    ]
    used = {name for text in texts for name, _ in PLACEHOLDER.findall(text)}
    assert names == set(KINDS)
    assert names <= used


def test_every_window_holds_two_evaluations() -> None:
    """Of the rules that look back so far: also those of the slowest group that does."""
    texts = [path.read_text(encoding="utf-8") for path in TEMPLATES.glob("*.yml")]
    found: dict[str, set[str]] = {}
    for group in [group for text in texts for group in yaml.safe_load(text)["groups"]]:
        for rule in group["rules"]:
            for name, _ in PLACEHOLDER.findall(rule["expr"]):
                found.setdefault(name, set()).add(group["interval"].strip("<>"))
    kinds = ("interval", "slow_interval", "long_interval", "day_interval")
    ascending = [f"evaluation.{kind}" for kind in kinds]
    slowest = {name: max(both, key=ascending.index) for name, both in found.items()}
    windows = {name for name in KINDS if KINDS[name] is KINDS["thermal.window"]}
    assert windows == set(WINDOWS)
    assert {name: slowest[name] for name in WINDOWS} == WINDOWS
    for pairs in (SHORTER, NOT_SHORTER):
        assert set(pairs) | set(pairs.values()) <= set(KINDS)


def test_a_folder_that_cannot_be_written_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 and the flag."""
    (tmp_path / "file").write_text("")
    output = tmp_path / "file" / "rules"
    assert main(["--output", str(output)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"render_rules: --output {output}: Not a directory, expected a folder")
    assert said.count("\n") == 1


def test_it_runs_from_anywhere_and_says_what_it_wrote(tmp_path: Path) -> None:
    """As a script, also where only the checkout has its modules: each file, and whether it
    changed."""
    command = [sys.executable, render_rules.__file__, "--output", str(tmp_path / "rules")]
    paths = [f"rules/{name}" for name in WRITTEN]

    def said() -> list[str]:
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return done.stdout.splitlines()

    assert said() == [f"wrote {path}" for path in paths]
    (tmp_path / "rules" / "alerts.yml").write_text("")
    unchanged = [f"wrote {path} (no change)" for path in paths[1:]]
    assert said() == [f"wrote {paths[0]}", *unchanged]


def test_keep_firing_for_can_be_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For a vmalert that refuses it, which takes the rest; never over the rules that ship."""
    assert main(["--without-keep-firing-for"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["--without-keep-firing-for", "--output", str(tmp_path)]) == 0
    for name in WRITTEN:
        shipped, written = (
            yaml.safe_load((folder / name).read_text(encoding="utf-8"))["groups"]
            for folder in (render_rules.RULES, tmp_path)
        )
        for group in shipped:
            for rule in group["rules"]:
                rule.pop("keep_firing_for", None)
        assert written == shipped
    done = subprocess.run(
        [require_tool("vmalert"), "-dryRun", f"-rule={tmp_path / '*.yml'}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_other_thresholds_give_other_rules(tmp_path: Path) -> None:
    """Windows, shares, intervals and links are all in the one file; promtool takes the result."""
    sections = yaml.safe_load(THRESHOLDS.read_text(encoding="utf-8"))
    sections["held_idle"] |= {"window": "20s", "for": "5s", "share": 0.5}
    sections["links"]["runbook"] = "https://wiki.example/gpu"
    sections["links"]["grafana"] = "https://grafana.example/"
    sections["evaluation"] |= {"interval": "1s", "slow_interval": "2s", "long_interval": "2s"}
    path = tmp_path / "thresholds.yml"
    path.write_text(yaml.safe_dump(sections), encoding="utf-8")
    assert main(["--thresholds", str(path), "--output", str(tmp_path / "rules")]) == 0
    written = [tmp_path / "rules" / name for name in WRITTEN]
    run("check", "rules", *map(str, written))
    alerts, _, recording, _ = (file.read_text(encoding="utf-8") for file in written)
    assert ">= 0.5,\n" in alerts
    assert "for: 5s" in alerts
    assert "https://wiki.example/gpu#gpuheldidle" in alerts
    assert "https://grafana.example/d/roofline-idle" in alerts
    assert 'class!~"notebook|serving|display|system"}[20s])' in recording
    assert "[30000ms])" in recording
    assert "interval: 1s" in recording

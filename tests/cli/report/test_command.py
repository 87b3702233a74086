# SPDX-License-Identifier: Apache-2.0
"""What ``report`` says where there is nothing to report, and where it writes what there is."""

from __future__ import annotations

import csv
import http.server
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from exporter.cli.report import queries
from tests.cli.outcomes import Outcome
from tests.cli.report.answers import FORMULA, HOSTILE
from tests.cli.stub import NOBODY, Stub
from tests.serving import serving

HOUR = 3600


class _Prometheus(Stub):
    """Answers range queries with what is put here, by words of the query; else with nothing."""

    def __init__(self, answers: dict[str, list[dict[str, Any]]]) -> None:
        super().__init__()
        self.answers = answers
        self.error: str | bytes | None = None
        self.seen: list[tuple[str, str | None]] = []

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> tuple[int, bytes]:
        if isinstance(self.error, bytes):
            return self.status, self.error
        fields = parse_qs(urlsplit(request.path).query)
        (query,), (end,) = fields["query"], fields["end"]
        self.seen.append((query, request.headers["Authorization"]))
        found = next((rows for words, rows in self.answers.items() if words in query), [])
        result = [
            {"metric": row["metric"], "values": [[int(end), str(row["value"])]]} for row in found
        ]
        body: dict[str, Any] = {"status": "success", "data": {"result": result}}
        if self.error is not None:
            body = {"status": "error", "errorType": "execution", "error": self.error}
        return self.status, json.dumps(body).encode()


GPU = {"of": HOSTILE, "name": "NVIDIA H100", "instance": "n1", "uuid": "GPU-1", "gpu": "0"}
OBSERVED: dict[str, list[dict[str, Any]]] = {
    queries.STEPS: [{"metric": {}, "value": 30}],
    queries.RULES: [{"metric": {}, "value": 30}],
    "(increase(gpu_idle_seconds_total": [{"metric": GPU, "value": HOUR / 4}],
    "(increase(gpu_held_idle_seconds_total": [{"metric": GPU, "value": HOUR / 4}],
    "(increase(gpu_limited_seconds_total": [{"metric": {**GPU, "limiter": "idle"}, "value": HOUR}],
}


@pytest.fixture
def prometheus() -> Iterator[_Prometheus]:
    server = _Prometheus(dict(OBSERVED))
    with serving(server):
        yield server


def test_nobody_answers(outcome: Outcome) -> None:
    """One line with the address."""
    code, out, err = outcome("report", "--prometheus", NOBODY)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert NOBODY in err


@pytest.mark.parametrize(
    ("status", "error", "said"),
    [
        (401, b"Unauthorized\n", ": 401, user and password expected (--url.user,"),
        (200, b"<html>Grafana</html>", "status 200, expected the API of a Prometheus"),
        (200, b'{"status": "success"}', "status 200, expected the API of a Prometheus"),
        (200, b"[]", "status 200, expected the API of a Prometheus"),
        (422, "parse error\x1b[2J", "status 422: parse error"),
    ],
    ids=["no password", "a page", "no data", "a list", "refused"],
)
def test_it_is_no_prometheus_or_refuses(
    status: int, error: str | bytes, said: str, prometheus: _Prometheus, outcome: Outcome
) -> None:
    """It says what came, without what a terminal would obey."""
    prometheus.status, prometheus.error = status, error
    code, out, err = outcome("report", "--prometheus", prometheus.url)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert said in err
    assert "\x1b" not in err


def test_no_series_and_no_rules(prometheus: _Prometheus, outcome: Outcome) -> None:
    """Nothing is made up; and it is told what works without the rules."""
    prometheus.answers.pop(queries.RULES)
    code, out, err = outcome("report", "--prometheus", prometheus.url)
    assert (code, out) == (1, "")
    assert "docs/rules.md" in err
    code, out, err = outcome("report", "--prometheus", prometheus.url, "--by", "node")
    assert (code, err) == (0, "")
    prometheus.answers.clear()
    code, out, err = outcome("report", "--prometheus", prometheus.url)
    assert (code, out) == (1, "")
    assert "no gpu_limited_seconds_total in this range" in err


def test_token_is_sent_and_not_shown(
    prometheus: _Prometheus, tmp_path: Path, outcome: Outcome
) -> None:
    """With each query, from a file."""
    file = tmp_path / "token"
    file.write_text("abc.def\n")
    words = ("report", "--prometheus", prometheus.url, "--bearer-file", str(file))
    code, out, err = outcome(*words)
    assert (code, err) == (0, "")
    assert {authorization for _, authorization in prometheus.seen} == {"Bearer abc.def"}
    assert "abc.def" not in out


def test_hostile_names_are_text(prometheus: _Prometheus, outcome: Outcome) -> None:
    """No mark-up on the page, no escape in the terminal, no formula in the spreadsheet."""

    def said(form: str) -> str:
        words = ("report", "--prometheus", prometheus.url, "--format", form)
        code, out, err = outcome(*words)
        assert (code, err) == (0, "")
        return out

    assert "<script" not in said("html")
    assert "&lt;script&gt;" in said("html")
    assert "\x1b" not in said("table")
    prometheus.answers |= {
        words: [{**row, "metric": {**row["metric"], "of": FORMULA}} for row in rows]
        for words, rows in OBSERVED.items()
        if words not in (queries.STEPS, queries.RULES)
    }
    (row,) = csv.DictReader(io.StringIO(said("csv")))
    assert row["name"] == f"'{FORMULA}"
    assert float(row["used_gpu_hours"]) == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("form", "suffix"), [("html", "html"), ("table", "txt"), ("csv", "csv"), ("json", "json")]
)
def test_output_is_a_file_or_one_of_a_day(
    form: str,
    suffix: str,
    prometheus: _Prometheus,
    tmp_path: Path,
    outcome: Outcome,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both have the same text, and nothing is left beside them."""
    monkeypatch.setattr("exporter.cli.report.time.time", lambda: 1_773_014_433.0)
    words = ("report", "--prometheus", prometheus.url, "--format", form, "--output")
    (tmp_path / "report").write_text("the last one")
    for path in (tmp_path, tmp_path / "report"):
        assert outcome(*words, str(path)) == (0, "", "")
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == [f"gpu-report-2026-03-09.{suffix}", "report"]
    one, other = (file.read_text(encoding="utf-8") for file in tmp_path.iterdir())
    assert one == other
    assert one != "the last one"


def test_a_report_that_fails_leaves_the_last_one(
    prometheus: _Prometheus, tmp_path: Path, outcome: Outcome
) -> None:
    """Whether Prometheus or the disk is to blame; the line names the file."""
    file = tmp_path / "report.html"
    file.write_text("the last one")
    words = ("report", "--prometheus", prometheus.url, "--output")
    code, out, err = outcome(*words, str(tmp_path / "no" / "report.html"))
    assert (code, out) == (2, "")
    assert (
        err
        == f"roofline-exporter: --output: {tmp_path}/no/report.html: No such file or directory\n"
    )
    prometheus.status, prometheus.error = 503, b"starting"
    assert outcome(*words, str(file))[0] == 1
    assert file.read_text() == "the last one"

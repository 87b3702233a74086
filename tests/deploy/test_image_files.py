# SPDX-License-Identifier: Apache-2.0
"""The Dockerfile as text: any builder can read it, and nothing needless goes in."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
STAGES = re.split(r"(?m)^(?=FROM )", DOCKERFILE)[1:]
LAST = STAGES[-1]


def instructions(text: str) -> list[str]:
    """One line for each instruction, comments left out, continuations joined."""
    kept = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return [line for line in re.sub(r"\\\n\s*", " ", kept).splitlines() if line]


@pytest.mark.parametrize("syntax", ["# syntax=", "--mount", "<<", "--link", "--chmod", "--parents"])
def test_needs_no_buildkit(syntax: str) -> None:
    """docker-compose 1.29 and old engines build it."""
    assert syntax not in DOCKERFILE


def test_base_is_the_one_that_dependabot_renews() -> None:
    """`make lock` copies it."""
    renewed = (ROOT / "requirements" / "Dockerfile").read_text()
    (image,) = re.findall(r"^FROM (\S+)$", renewed, re.MULTILINE)
    assert f"\nARG PYTHON_IMAGE={image}\n" in DOCKERFILE, "run `make lock`"


def test_last_stage_installs_nothing() -> None:
    """No package manager and no copy from outside: all comes from the first stage."""
    for line in instructions(LAST):
        assert not re.search(r"\b(pip|apt-get|apt|curl|wget)\b", line), line
        assert not line.startswith("ADD")
        assert not line.startswith("COPY") or "--from=build" in line


def test_runs_as_a_number_without_a_shell() -> None:
    """Kubernetes can check that it is not root, and signals reach the daemon itself."""
    lines = instructions(LAST)
    assert "USER 65532:65532" in lines
    assert 'ENTRYPOINT ["roofline-exporter"]' in lines
    assert any('CMD ["roofline-exporter", "healthcheck"]' in line for line in lines)


def test_installs_only_locked_wheels() -> None:
    """Every installation from the network asks for hashes and wheels."""
    for line in instructions(DOCKERFILE):
        for command in line.split("&&"):
            if re.search(r"pip\b.*\b(install|wheel)\b", command) and "--no-index" not in command:
                assert "--require-hashes" in command, command
                assert "--only-binary=:all:" in command, command


def test_context_is_a_list_of_what_is_needed() -> None:
    """.dockerignore leaves all out but what the image is made of: no credentials, no history."""
    lines = [
        line
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert lines[0] == "*"
    for line in lines[1:]:
        if line.startswith("!"):
            assert line.startswith("!.git/") or (ROOT / line[1:]).exists(), line
    assert not {"!.git", "!.git/", "!.git/config", "!tests"} & set(lines)

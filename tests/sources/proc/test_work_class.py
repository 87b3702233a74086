# SPDX-License-Identifier: Apache-2.0
"""What kind of work a process does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.reading import WORK_CLASSES
from exporter.sources.proc.work_class import RULES, classify

DOCUMENT = Path(__file__).parent.parents[2] / "docs" / "idle.md"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("/usr/bin/python3 -m ipykernel_launcher -f /run/kernel.json", "notebook"),
        ("python3 -Xfrozen_modules=off -m ipykernel_launcher -f k.json", "notebook"),
        ("python -X frozen_modules=off -um ipykernel", "notebook"),
        ("/opt/venv/bin/python /opt/venv/bin/jupyter-lab --no-browser", "notebook"),
        ("python /x/site-packages/ipykernel/__main__.py", "notebook"),
        ("python /usr/local/bin/vllm serve meta-llama/Llama-3.1-8B", "serving"),
        ("python3 -m vllm.entrypoints.openai.api_server --model x", "serving"),
        ("VLLM::EngineCore", "serving"),
        ("ray::ServeReplica:app:Model", "serving"),
        ("gunicorn: worker [app]", "serving"),
        ("torchrun --nproc-per-node=8 job.py", "training"),
        ("/usr/bin/python3 /usr/bin/accelerate launch job.py", "training"),
        ("ray::RayTrainWorker._RayTrainWorker__execute", "training"),
        ("python -u train.py --lr 1e-3", "training"),
        ("python -m project.train_model", "training"),
        ("./train_gpt2cu -b 4", "training"),
        ("/usr/lib/xorg/Xorg :0 -auth /run/x", "display"),
        ("/usr/bin/python3 /usr/bin/nvitop -m", "system"),
        ("python", "other"),
        ("python -", "other"),
        ("python3 evaluate.py", "other"),
    ],
)
def test_classes_by_command_line(line: str, expected: str) -> None:
    """The usual programs are recognised by the name of the program, script or module."""
    assert classify(line.split()) == expected


@pytest.mark.parametrize(
    "line",
    [
        "python3 evaluate.py --data /data/vllm --resume train.py",
        "python3 -c import\tvllm train.py",
        "blender --python train.py",
        "python -W ignore::x.train evaluate.py",
        "python --check-hash-based-pycs always evaluate.py vllm",
    ],
)
def test_what_stands_behind_the_program_says_nothing(line: str) -> None:
    """An argument that looks like a program does not count."""
    assert classify(line.split(" ")) == "other"


@pytest.mark.parametrize("variable", ["RANK", "LOCAL_RANK", "WORLD_SIZE"])
def test_a_rank_makes_a_python_process_training(variable: str) -> None:
    """Launchers set it for their workers; other programs may have the variable, too."""
    assert classify(["python3", "job.py"], {variable, "HOME"}) == "training"
    assert classify(["/usr/bin/blender"], {variable}) == "other"
    assert classify((), {variable}, "python3") == "training"


def test_a_notebook_or_server_with_a_rank_stays_one() -> None:
    """Some clusters set RANK for every process of a pod."""
    assert classify(["python", "-m", "ipykernel_launcher"], {"RANK"}) == "notebook"
    assert classify(["python", "/usr/bin/vllm", "serve"], {"RANK"}) == "serving"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("Xorg", "display"),
        ("nvidia-persiste", "system"),
        ("nvidia-cuda-mps", "system"),
        ("VLLM::EngineCor", "serving"),
        ("python3", "other"),
        ("", "other"),
        (None, "other"),
    ],
)
def test_the_name_alone_where_nothing_else_can_be_read(command: str | None, expected: str) -> None:
    """Names are compared as the kernel cuts them."""
    assert classify((), (), command) == expected


WORDS = st.text() | st.sampled_from(
    ["python3", "-m", "-c", "-u", "-X", "-W", "--", "-", "", "vllm", "train.py", "/", "__main__.py"]
)


@given(st.lists(WORDS), st.frozensets(WORDS), WORDS | st.none())
def test_anything_has_a_class(
    arguments: list[str], variables: frozenset[str], command: str | None
) -> None:
    """Whatever a process calls itself, the class is one of the listed."""
    assert classify(arguments, variables, command) in WORK_CLASSES


def test_the_classes_are_those_of_the_contract() -> None:
    """The rules and the list say the same."""
    assert {rule.work_class for rule in RULES} | {"other"} == set(WORK_CLASSES)


def test_patterns_are_lower_case() -> None:
    """Names are compared in lower case, so another pattern would never match."""
    for rule in RULES:
        for program in rule.programs.split():
            assert program == program.lower()
            assert classify([program.replace("*", "")]) == rule.work_class


def test_the_documentation_shows_the_table() -> None:
    """docs/idle.md has the rules in their order, with each program and variable."""
    section = DOCUMENT.read_text(encoding="utf-8").partition("## Classes")[2]
    rows = re.findall(r"^\| ([a-z]+) \| (`.+?) \| (.*?) \|$", section, re.MULTILINE)
    shown = [
        (name, tuple(re.findall("`(.+?)`", programs)), tuple(re.findall("`(.+?)`", variables)))
        for name, programs, variables in rows
    ]
    assert shown == [
        (rule.work_class, tuple(rule.programs.split()), rule.python_variables) for rule in RULES
    ]

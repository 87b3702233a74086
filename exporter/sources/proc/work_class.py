# SPDX-License-Identifier: Apache-2.0
"""What kind of work a process does, by the name of its program and its environment variables."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import translate

from exporter.model.reading import COMMAND_LENGTH

OTHER = "other"


@dataclass(frozen=True, slots=True)
class Rule:
    """One class of work, and how its processes are recognised."""

    work_class: str
    programs: str
    """Names of programs, Python scripts (without .py) and Python modules, in lower case and with
    blanks between."""
    python_variables: tuple[str, ...] = ()
    """A Python process with one of these environment variables is of this class, too."""


RULES: tuple[Rule, ...] = (
    Rule(
        "display",
        "xorg xwayland xvnc gnome-shell gnome-remote-desktop-daemon kwin_* plasmashell mutter "
        "cinnamon xfwm4 picom compiz cosmic-comp hyprland sway weston sddm-greeter*",
    ),
    Rule(
        "system",
        "nv-hostengine nv-fabricmanager nvidia-cuda-mps-server nvidia-cuda-mps-control "
        "nvidia-persistenced nvidia-powerd nvidia-device-plugin nvidia-smi "
        "nvidia_gpu_exporter dcgm-exporter dcgmi roofline-exporter nvitop* nvtop gpustat "
        "telegraf",
    ),
    Rule(
        "notebook",
        "ipykernel* ipython* jupyter* colab_kernel_launcher marimo",
    ),
    Rule(
        "serving",
        "vllm vllm.* vllm::* sglang sglang.* sglang::* tritonserver "
        "triton_python_backend_stub text-generation-launcher text-generation-router "
        "text-generation-server text-embeddings-router trtllm-serve trtllm-llmapi-launch "
        "tensorrt_llm.* ollama* llama-server llamafile koboldcpp local-ai lmdeploy "
        "lmdeploy.serve* mlc_llm fastchat.serve* whisper-server tensorflow_model_server "
        "torchserve model_service_worker bentoml ray::serve* api_server launch_server uvicorn "
        "uvicorn.* gunicorn gunicorn.* hypercorn",
    ),
    Rule(
        "training",
        "torchrun torch.distributed.run torch.distributed.launch accelerate accelerate.* "
        "deepspeed deepspeed.* horovodrun lightning lightning.* pytorch_lightning.* litgpt "
        "composer axolotl* llamafactory-cli colossalai tune ray::raytrainworker* train* "
        "*.train* pretrain* *.pretrain* finetune* fine_tune* *.finetune*",
        ("RANK", "LOCAL_RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", "HOROVOD_RANK"),
    ),
)
"""The first rule that matches decides: a notebook that was started with a RANK is a notebook."""

_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*t?")
_SHORT_OPTION = re.compile(r"-[bBdEhiIOPqRsStuvVx?]*(?:([mcXW])(.*))?", re.DOTALL)
_PROGRAMS = tuple(re.compile("|".join(map(translate, rule.programs.split()))) for rule in RULES)
_CUT_PROGRAMS = tuple(
    frozenset(program[:COMMAND_LENGTH] for program in rule.programs.split() if "*" not in program)
    for rule in RULES
)


def classify(
    arguments: Sequence[str], variables: Collection[str] = (), command: str | None = None
) -> str:
    """Return the class of a process.

    The name of its program decides, or for an interpreted program that of the script or module.
    The rest of the command line is not used.

    Args:
        arguments: its command line; empty if it cannot be read.
        variables: the names of its environment variables; empty if they cannot be read.
        command: the kernel's name for it, cut at 15 bytes.
    """
    words = _words(arguments)
    names = [name.lower() for name in _program_names(words)]
    cut = "" if command is None else command.lower()
    is_python = any(map(_PYTHON.fullmatch, [*names[:1], cut]))
    for rule, programs, cut_programs in zip(RULES, _PROGRAMS, _CUT_PROGRAMS, strict=True):
        if (
            any(map(programs.match, [*names, cut]))
            or cut in cut_programs
            or (is_python and not set(rule.python_variables).isdisjoint(variables))
        ):
            return rule.work_class
    return OTHER


def _words(arguments: Sequence[str]) -> Sequence[str]:
    """Return the words of the command line, also if the process has put a title in its place."""
    return arguments[0].split() if len(arguments) == 1 else arguments


def _program_names(words: Sequence[str]) -> Iterator[str]:
    """Yield the name of the program and, for Python's interpreter, of its script or module."""
    if not words:
        return
    name = words[0].rpartition("/")[2].rstrip(":")
    yield name
    if _PYTHON.fullmatch(name.lower()):
        yield from _python_names(iter(words[1:]))


def _python_names(words: Iterator[str]) -> Iterator[str]:
    """Yield the module or script of a Python command line; nothing for ``-c``."""
    for word in words:
        if not word.startswith("-"):
            yield _script_name(word)
            return
        found = _SHORT_OPTION.fullmatch(word)
        option = found[1] if found else None
        if option is not None and found is not None:
            value = found[2] or next(words, "")
            if option == "m":
                yield value
            if option in "mc":
                return


def _script_name(path: str) -> str:
    folder, _, name = path.rpartition("/")
    if name == "__main__.py":
        return folder.rpartition("/")[2]
    return name.removesuffix(".py")

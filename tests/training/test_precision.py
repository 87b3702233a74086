# SPDX-License-Identifier: Apache-2.0
"""The precision of counted work, by what a real PyTorch is set to."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from roofline_job import precision, switches, watch
from roofline_job.precision import computed_in, prevailing
from roofline_job.process import PROCESS
from tests.conftest import unmet
from tests.training.listener import ROOT

if importlib.util.find_spec("torch") is None:
    unmet("PyTorch is not installed")

import torch

MATMUL, CONVOLUTION = "aten.addmm", "aten.convolution_backward"
ATTENTION = "aten._scaled_dot_product_efficient_attention"


def on_gpu(dtype: torch.dtype = torch.float32) -> SimpleNamespace:
    return SimpleNamespace(dtype=dtype, is_cuda=True, device="cuda:0")


@pytest.fixture(autouse=True)
def _ampere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    monkeypatch.delenv(precision.NO_TF32, raising=False)


SETTINGS = {
    "pass": ("fp32", "tf32"),
    "torch.set_float32_matmul_precision('high')": ("tf32", "tf32"),
    "torch.backends.cuda.matmul.allow_tf32 = True": ("tf32", "tf32"),
    "torch.backends.cudnn.allow_tf32 = False": ("fp32", "fp32"),
    "torch.backends.cuda.matmul.fp32_precision = 'tf32'": ("tf32", "tf32"),
    "torch.backends.cudnn.conv.fp32_precision = 'ieee'": ("fp32", "fp32"),
    "torch.backends.fp32_precision = 'tf32'": ("tf32", "tf32"),
    "torch.backends.fp32_precision = 'ieee'": ("fp32", "fp32"),
    "os.environ['NVIDIA_TF32_OVERRIDE'] = '0'": ("fp32", "fp32"),
}
"""What a script sets, and the precision of its matrix products and convolutions."""
SETS = """
import os, sys
from types import SimpleNamespace
import torch
from roofline_job.precision import computed_in

torch.cuda.get_device_capability = lambda device: (8, 0)
tensor = SimpleNamespace(dtype=torch.float32, is_cuda=True, device="cuda:0")
for line in sys.argv[1:]:
    if not os.fork():  # what is set cannot be taken back
        exec(line)
        print(*(computed_in(torch, name, tensor) for name in ("aten.mm", "aten.convolution")))
        sys.stdout.flush()
        os._exit(0)
    os.wait()
"""


def test_fp32_is_tf32_where_pytorch_lets_it_be() -> None:
    """By whichever of its switches, and without a warning; by default in convolutions alone."""
    done = subprocess.run(
        [sys.executable, "-c", SETS, *SETTINGS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stderr == ""
    found = dict(zip(SETTINGS, map(str.split, done.stdout.splitlines()), strict=True))
    assert {line: tuple(words) for line, words in found.items()} == SETTINGS


@pytest.mark.parametrize(("lets", "found"), [(True, "tf32"), (False, "fp32")])
def test_older_versions_have_one_switch_for_each(lets: bool, found: str) -> None:
    """Before PyTorch 2.9."""
    switch = SimpleNamespace(allow_tf32=lets)
    backends = SimpleNamespace(cudnn=switch, cuda=SimpleNamespace(matmul=switch))
    older = SimpleNamespace(backends=backends, cuda=torch.cuda)
    assert {computed_in(older, name, on_gpu()) for name in (MATMUL, CONVOLUTION)} == {found}


TURING, AMPERE = (7, 5), (8, 0)


@pytest.mark.parametrize(
    ("operator", "tensor", "capability", "found"),
    [
        (ATTENTION, on_gpu(), AMPERE, None),
        (ATTENTION, on_gpu(), TURING, "fp32"),
        (CONVOLUTION, on_gpu(), TURING, "fp32"),
        (ATTENTION, on_gpu(torch.bfloat16), AMPERE, "bf16"),
        (MATMUL, on_gpu(torch.float16), AMPERE, "fp16"),
        ("aten._scaled_mm", on_gpu(torch.float8_e4m3fn), AMPERE, "fp8"),
        (MATMUL, on_gpu(torch.int8), AMPERE, None),
        (CONVOLUTION, torch.zeros(1), AMPERE, "fp32"),
    ],
)
def test_others_are_what_they_are(
    operator: str,
    tensor: Any,
    capability: tuple[int, int],
    found: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Attention in FP32 does three products in TF32 for each; before Ampere all FP32 is FP32, as
    on a CPU. Scaled dot products are not those of FP8."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert computed_in(torch, operator, tensor) == found


@pytest.mark.parametrize(
    ("flops", "found"),
    [
        ({"tf32": 99.0, "fp32": 1.0}, "tf32"),
        ({"tf32": 90.0, "fp32": 10.0}, None),
        ({"fp32": 90.0, None: 10.0}, None),
        ({"bf16": 90.0, "fp8": 10.0}, "fp8"),
        ({}, None),
    ],
)
def test_a_job_has_a_precision_where_nearly_all_its_work_has(
    flops: dict[str | None, float], found: str | None
) -> None:
    """A last layer in FP32 behind convolutions in TF32 is not work of both kinds."""
    assert prevailing(flops) == found


@pytest.mark.usefixtures("client", "unheard")
@pytest.mark.parametrize(("stated", "reported"), [(None, "fp32"), ("bf16", "bf16")])
def test_a_job_that_is_counted_reports_what_it_computed_in(
    stated: str | None, reported: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless it says so itself."""
    monkeypatch.setattr(switches, "COUNT_FLOPS", True)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = [torch.randn(4, 8) for _ in range(4)]
    for batch in watch(batches, precision=stated):
        model(batch).sum().backward()
        optimizer.step()
    assert PROCESS.accounts[0].precision == reported

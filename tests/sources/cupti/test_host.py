# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's Profiler Host API, which needs neither GPU nor driver, through our declarations."""

from __future__ import annotations

import pytest

from exporter.sources.cupti.release import KNOWN
from tests.sources.cupti.real import RELEASES, chip_facts, release

CU12, CU13 = RELEASES


@pytest.mark.parametrize("package", RELEASES)
def test_a_release_says_which_one_it_is(package: str) -> None:
    """As the table of those that are known has it."""
    assert chip_facts(package)["version"] in KNOWN[release(package).cuda]


@pytest.mark.parametrize(("package", "before_turing", "unknown"), [(CU12, 27, 1), (CU13, 46, 46)])
def test_chips_that_cannot_be_sampled_are_refused(
    package: str, before_turing: int, unknown: int
) -> None:
    """Those before Turing, and those that do not exist."""
    refused = chip_facts(package)["refused"]
    assert (refused["GV100"], refused["XX999"]) == (before_turing, unknown)


@pytest.mark.parametrize("package", RELEASES)
def test_a_metric_that_the_chip_does_not_have_is_refused(package: str) -> None:
    """Also beside one that it has; of its description there is none."""
    assert chip_facts(package)["refused"]["metric"] == 1
    assert chip_facts(package)["shared"]["GA102"] is None


@pytest.mark.parametrize("package", RELEASES)
def test_passes_are_counted(package: str) -> None:
    """A metric that is made of many takes many."""
    passes = chip_facts(package)["passes"]
    assert passes["one"] == 1
    assert passes["many"] > 5


@pytest.mark.parametrize("package", RELEASES)
def test_one_name_is_another_pipe_on_another_chip(package: str) -> None:
    """And its description says so, in every release."""
    shared = chip_facts(package)["shared"]
    assert "(fp16+tensor)" in shared["TU102"]
    assert "(fp16)" in shared["TU116"]
    assert "(fp64+tensor)" in shared["GA100"]

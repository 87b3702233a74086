# SPDX-License-Identifier: Apache-2.0
"""Which release of CUPTI is used with which driver."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.sources.cupti.release import DISTRIBUTIONS, KNOWN, Release, Unfit, fitting, installed

CU12, CU13 = "nvidia-cuda-cupti-cu12", "nvidia-cuda-cupti"
VERSIONS = {
    CU12: ("12.0.90", "12.5.82", "12.6.80", "12.8.90", "12.9.79"),
    CU13: ("13.0.85", "13.1.115", "13.2.75", "13.3.75", "13.5.25", "14.0.1"),
}
RELEASES = [
    Release(package, version, Path(f"/{package}/{version}"))
    for package, versions in VERSIONS.items()
    for version in versions
]


def of(*versions: str) -> list[Release]:
    return [each for each in RELEASES if each.version in versions]


def install(folder: Path, package: str, version: str, *, library: bool = True) -> None:
    """Write the files of an installed package."""
    name = package.replace("-", "_")
    information = folder / f"{name}-{version}.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(f"Name: {package}\nVersion: {version}\n")
    if library:
        path = folder / DISTRIBUTIONS[package]
        path.parent.mkdir(parents=True)
        path.touch()


@pytest.mark.parametrize(
    ("driver", "versions"),
    [
        (None, ["13.1.115", "13.0.85", "12.9.79", "12.8.90", "12.6.80"]),
        ((13, 0), ["13.1.115", "13.0.85", "12.9.79", "12.8.90", "12.6.80"]),
        ((12, 9), ["12.9.79", "12.8.90", "12.6.80"]),
        ((12, 7), ["12.6.80"]),
        ((12, 6), ["12.6.80"]),
    ],
)
def test_the_newest_that_the_driver_runs_comes_first(
    driver: tuple[int, int] | None, versions: list[str]
) -> None:
    """13.2 and unknown releases are never used."""
    assert [each.version for each in fitting(RELEASES, driver)] == versions


@pytest.mark.usefixtures("installed_by_pip")
@pytest.mark.parametrize(
    ("versions", "driver", "state", "message"),
    [
        ([], None, "missing", "CUPTI is not installed: pip install 'roofline-exporter[cupti]'"),
        (
            ["13.1.115"],
            (12, 2),
            "old_driver",
            "the driver has CUDA 12.2, and CUPTI can sample from 12.6 on: "
            "install driver 560 or newer",
        ),
        (
            ["13.2.75"],
            (13, 2),
            "missing",
            "nvidia-cuda-cupti 13.2.75 does not fit a driver of CUDA 13.2: "
            "pip install 'nvidia-cuda-cupti==13.1.*'",
        ),
        (
            ["13.5.25"],
            None,
            "missing",
            "nvidia-cuda-cupti 13.5.25 does not fit this exporter: "
            "pip install 'nvidia-cuda-cupti==13.1.*'",
        ),
        (
            ["12.9.79", "13.1.115"],
            (12, 7),
            "missing",
            "nvidia-cuda-cupti-cu12 12.9.79 and nvidia-cuda-cupti 13.1.115 do not fit a driver of "
            "CUDA 12.7: pip install 'nvidia-cuda-cupti-cu12==12.6.*'",
        ),
    ],
)
def test_what_does_not_fit_is_told_with_what_does(
    versions: list[str], driver: tuple[int, int] | None, state: str, message: str
) -> None:
    """The message is one line; the state is that of the missing readings."""
    with pytest.raises(Unfit) as caught:
        fitting(of(*versions), driver)

    assert (caught.value.state, str(caught.value)) == (state, message)


@given(
    st.lists(st.sampled_from(RELEASES), unique=True),
    st.none() | st.tuples(st.integers(9, 15), st.integers(0, 9)),
)
def test_what_fits_is_known_and_not_of_a_later_major(
    releases: list[Release], driver: tuple[int, int] | None
) -> None:
    """Whatever is installed; if no release fits there is a message."""
    try:
        fit = fitting(releases, driver)
    except Unfit as unfit:
        fit, said = (), str(unfit)
    else:
        said = ""
    assert bool(fit) != (len(said.splitlines()) == 1)
    assert set(fit) <= set(releases)
    assert [each.cuda for each in fit] == sorted((each.cuda for each in fit), reverse=True)
    for each in fit:
        assert each.cuda in KNOWN
        assert driver is None or each.cuda[0] <= driver[0]


@given(st.text(max_size=20) | st.from_regex(r"[0-9.]{0,12}(rc1|\.post1|\+x)?", fullmatch=True))
def test_any_text_may_be_a_version(version: str) -> None:
    """The version of a package is any text that its builder wrote."""
    release = Release(CU13, version, Path("/"))

    assert release.cuda >= (0, 0)
    assert str(release) == f"{CU13} {version}"


def test_both_packages_are_found_where_they_are_installed(tmp_path: Path) -> None:
    """They are found by pip's metadata, whatever the order of the paths."""
    install(tmp_path / "one", CU13, "13.1.115")
    install(tmp_path / "two", CU12, "12.9.79")

    found = installed([str(tmp_path / "two"), str(tmp_path / "one")])

    assert {str(each): each.library for each in found} == {
        "nvidia-cuda-cupti 13.1.115": tmp_path / "one/nvidia/cu13/lib/libcupti.so.13",
        "nvidia-cuda-cupti-cu12 12.9.79": tmp_path / "two/nvidia/cuda_cupti/lib/libcupti.so.12",
    }
    assert installed([str(tmp_path)]) == ()


def test_a_package_without_its_library_is_not_installed(tmp_path: Path) -> None:
    """Such as a package of another platform, or one that was removed in part."""
    install(tmp_path, CU13, "13.1.115", library=False)
    assert installed([str(tmp_path)]) == ()

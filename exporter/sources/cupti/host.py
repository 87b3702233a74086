# SPDX-License-Identifier: Apache-2.0
"""CUPTI's Profiler Host API: the metrics of a chip. It needs neither GPU nor driver."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TypeAlias

from exporter.sources.cupti import structures
from exporter.sources.cupti.library import CuptiError, CuptiLibrary

Image: TypeAlias = "ctypes.Array[ctypes.c_uint8]"
"""Opaque bytes of CUPTI's."""

INVALID_PARAMETER, INVALID_METRIC_NAME = 1, 17
"""The codes for an unknown metric."""


def supported_chips(library: CuptiLibrary) -> tuple[str, ...]:
    """Return the names of the chips that this release knows, such as GA102, in its order."""
    found = library.call(structures.ProfilerHostGetSupportedChips)
    return tuple(found.pp_chip_names[number].decode() for number in range(found.num_chips))


class Host:
    """A sampling configuration of one chip; `add` its metrics once.

    CuptiError has the code 27 for a chip before Turing, 1 or 46, by release, for one that is not
    known, and 1 for a metric that the chip does not have.
    """

    def __init__(self, library: CuptiLibrary, chip: str, availability: Image | None = None) -> None:
        """Begin a configuration.

        Args:
            library: CUPTI.
            chip: a name of `supported_chips`, or as a GPU's own.
            availability: the image of what can be counted on that GPU now; None: all of the chip's.

        Raises:
            CuptiError: 27 for a chip before Turing; 1 or 46, by release, for one that is not known.
        """
        self.library = library
        self.chip = chip
        self._availability = availability
        # Kept with the chip's name: CUPTI reads it again when it schedules groups of metrics.
        self._parameters = library.call(
            structures.ProfilerHostInitialize,
            profiler_type=structures.PM_SAMPLING,
            p_chip_name=chip.encode(),
            p_counter_availability_image=address(availability),
        )
        self.object = self._parameters.p_host_object
        """CUPTI's, until `close`."""

    def close(self) -> None:
        """Free it."""
        self.library.call(structures.ProfilerHostDeinitialize, p_host_object=self.object)

    def description(self, metric: str) -> str | None:
        """Return CUPTI's description of a metric; None if the chip does not have it."""
        try:
            found = self.library.call(
                structures.ProfilerHostGetMetricProperties,
                p_host_object=self.object,
                p_metric_name=metric.encode(),
            )
        except CuptiError as error:
            if error.code in (INVALID_PARAMETER, INVALID_METRIC_NAME):
                return None
            raise
        return str(found.p_description.decode())

    def add(self, metrics: Sequence[str]) -> None:
        """Add metrics to the configuration.

        Raises:
            CuptiError: 1 where the chip does not have one of them.
        """
        self.library.call(
            structures.ProfilerHostConfigAddMetrics,
            p_host_object=self.object,
            pp_metric_names=names(metrics),
            num_metrics=len(metrics),
        )

    def image(self) -> Image:
        """Return the configuration as the GPU takes it, 4 to 7 kB."""
        size = self.library.call(
            structures.ProfilerHostGetConfigImageSize, p_host_object=self.object
        ).config_image_size
        image: Image = (ctypes.c_uint8 * size)()
        self.library.call(
            structures.ProfilerHostGetConfigImage,
            p_host_object=self.object,
            config_image_size=size,
            p_config_image=address(image),
        )
        return image

    def passes(self, image: Image) -> int:
        """Return how many passes the metrics take; those of one pass are counted together."""
        return int(
            self.library.call(
                structures.ProfilerHostGetNumOfPasses,
                config_image_size=len(image),
                p_config_image=address(image),
            ).num_of_passes
        )


def names(metrics: Sequence[str]) -> ctypes.Array[ctypes.c_char_p]:
    """Return names as CUPTI takes them."""
    return (ctypes.c_char_p * len(metrics))(*(metric.encode() for metric in metrics))


def address(image: Image | None) -> int | None:
    """Return the address of an image; None for none."""
    return None if image is None else ctypes.addressof(image)

# SPDX-License-Identifier: Apache-2.0
"""Recordings: everything that the sources handed over, as JSON lines in one file."""

from exporter.recording.encode import TickEncoder
from exporter.recording.files import Damage, LineFile
from exporter.recording.header import Header, RecordedDevice, iso_time
from exporter.recording.play import Recording
from exporter.recording.ticks import Tick

__all__ = [
    "Damage",
    "Header",
    "LineFile",
    "RecordedDevice",
    "Recording",
    "Tick",
    "TickEncoder",
    "iso_time",
]

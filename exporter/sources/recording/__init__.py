# SPDX-License-Identifier: Apache-2.0
"""Recordings: all readings of the sources, as JSON lines in one file."""

from exporter.sources.recording.files import Damage, LineFile
from exporter.sources.recording.record import Recorder, WorkloadRecorder, header_of
from exporter.sources.recording.recording import Recording, Tick

__all__ = [
    "Damage",
    "LineFile",
    "Recorder",
    "Recording",
    "Tick",
    "WorkloadRecorder",
    "header_of",
]

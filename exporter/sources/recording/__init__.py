# SPDX-License-Identifier: Apache-2.0
"""Recordings: everything that the sources handed over, as JSON lines in one file."""

from exporter.sources.recording.files import Damage, LineFile
from exporter.sources.recording.record import Recorder, header_of
from exporter.sources.recording.recording import Recording, Tick
from exporter.sources.recording.work import WorkRecorder

__all__ = [
    "Damage",
    "LineFile",
    "Recorder",
    "Recording",
    "Tick",
    "WorkRecorder",
    "header_of",
]

# SPDX-License-Identifier: Apache-2.0
"""The files of a prolog, one per allocated GPU, named by its number or UUID.

A number is the driver's index or that of the device file, as `--slurm.numbering` says. Slurm's own
numbers need be neither (slurm-job-exporter#63, #64), so a UUID takes precedence for the same job.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from exporter.files import open_regular
from exporter.model.workload import DeviceName
from exporter.sources.poller import Unreadable
from exporter.sources.proc.procfs import user_name

MOST_BYTES = 64 * 1024
"""Of one file."""
MOST_FILES = 4096
"""Of one folder."""

Numbering = Literal["index", "minor"]
"""What a number in a file name is: the driver's index, or the N of /dev/nvidiaN."""

NOBODY = "0"
"""What some prologs write, instead of nothing, where a GPU is free."""

_NUMBER = re.compile(r"(?P<gpu>[0-9]{1,4})(?:\.(?P<instance>[0-9]{1,4}))?")
_UUID = re.compile(r"(?P<kind>GPU|MIG)-[0-9A-Za-z-]{1,64}")
_JOB = re.compile(r"[1-9][0-9]{0,9}")
_USER = re.compile(r"[A-Za-z0-9_.@\\+-]{1,64}\$?")
_UID = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class Entry:
    """One GPU or MIG instance that a file says was given to a job."""

    device: DeviceName
    job: str
    user: str
    """Its name; empty where the file has none."""
    path: str
    written_unix_seconds: float


@dataclass(frozen=True, slots=True)
class Folder:
    """The entries in the files of one folder."""

    entries: tuple[Entry, ...]
    problems: tuple[str, ...]
    """Why some of it is not known, a line each."""
    in_doubt: tuple[DeviceName, ...]
    """Whose files are not known, or not all of them: they may be given away."""


def read_folder(path: str, numbering: Numbering = "index") -> Folder | None:
    """Return the entries in a folder of a prolog; None if there is no such folder.

    dcgm-exporter's mapping folder has files N, or N.INSTANCE, with one job id a line; one that is
    empty or has 0 is of a free GPU. Slinky's prolog names that of a MIG instance by its UUID.
    jobstats names files by a UUID, or beside that by a number, and has job and user on a line.

    Raises:
        Unreadable: the folder is there, but cannot be listed, or has too much in it.
    """
    try:
        with os.scandir(path) as listing:
            names = [entry.name for entry in islice(listing, MOST_FILES + 1)]
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise Unreadable(f"{path}: {_why(error)}") from error
    if len(names) > MOST_FILES:
        raise Unreadable(f"{path}: has more than {MOST_FILES} files")
    entries: list[Entry] = []
    problems: list[str] = []
    in_doubt: list[DeviceName] = []
    for name in sorted(names):
        device = _device(name, numbering)
        if device is None:  # a note, or a file that a script is about to rename
            continue
        before = len(problems)
        entries += _entries(f"{path}/{name}", device, problems)
        if len(problems) > before:
            in_doubt.append(device)
    return Folder(tuple(entries), tuple(problems), tuple(in_doubt))


def certain_first(folders: Iterable[Folder]) -> tuple[Entry, ...]:
    """Return the entries of all folders: those by number only of jobs that no UUID is known of."""
    entries = [entry for folder in folders for entry in folder.entries]
    named = {entry for entry in entries if entry.device.uuid or entry.device.mig_uuid}
    certain = {entry.job for entry in named}
    return tuple(entry for entry in entries if entry in named or entry.job not in certain)


def _device(name: str, numbering: Numbering) -> DeviceName | None:
    """Return the device that a file's name means; None if it means none."""
    uuid = _UUID.fullmatch(name)
    if uuid is not None:
        return DeviceName(mig_uuid=name) if uuid["kind"] == "MIG" else DeviceName(uuid=name)
    number = _NUMBER.fullmatch(name)
    if number is None:
        return None
    gpu, instance = int(number["gpu"]), number["instance"]
    gpu_instance = None if instance is None else int(instance)
    if numbering == "minor":
        return DeviceName(minor=gpu, gpu_instance=gpu_instance)
    return DeviceName(index=gpu, gpu_instance=gpu_instance)


def _entries(file: str, device: DeviceName, problems: list[str]) -> list[Entry]:
    """Return the jobs that a file names, each once; note lines that cannot be read."""
    try:
        with open_regular(file) as opened:
            written = os.fstat(opened.fileno()).st_mtime
            data = opened.read(MOST_BYTES + 1)
    except FileNotFoundError:  # an epilog was faster
        return []
    except OSError as error:
        problems.append(f"{file}: {_why(error)}")
        return []
    if len(data) > MOST_BYTES:
        problems.append(f"{file}: has more than {MOST_BYTES} bytes")
        return []
    found: dict[str, Entry] = {}
    readable = True
    for line in data.decode("utf-8", "replace").splitlines():
        words = line.split()
        if not words or words[0] == NOBODY:
            continue
        if _JOB.fullmatch(words[0]):
            user = _user(words[1]) if len(words) > 1 else ""
            found.setdefault(words[0], Entry(device, words[0], user, file, written))
        else:
            readable = False
    if not readable:
        problems.append(f"{file}: a line does not begin with the number of a job")
    return list(found.values())


def _user(word: str) -> str:
    """Return the user's name: jobstats writes it, or the UID."""
    if _UID.fullmatch(word):
        return user_name(int(word))
    return word if _USER.fullmatch(word) else ""


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)

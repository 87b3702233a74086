# SPDX-License-Identifier: Apache-2.0
"""Compile the fake NVML library, once per source state and set of missing symbols."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

SOURCES = Path(__file__).parent / "src"
SONAME = "libnvidia-ml.so.1"
COMPILE = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-fPIC", "-fvisibility=hidden")
LINK = ("-shared", f"-Wl,-soname,{SONAME}", "-lpthread", "-lm")


def wanted_symbols() -> list[str]:
    """Every C function that the installed pynvml asks the library for."""
    spec = importlib.util.find_spec("pynvml")
    if spec is None or spec.origin is None:
        return []
    text = Path(spec.origin).read_text(encoding="utf-8")
    return sorted(set(re.findall(r'_nvmlGetFunctionPointer\("(nvml\w+)"\)', text)))


def written_symbols() -> set[str]:
    """The functions written by hand in src/."""
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(SOURCES.glob("*.c")))
    found = re.findall(r"EXPORT (?:int|const char \*)\s?(nvml\w+)\(", text)
    found += re.findall(r"^[A-Z]+\((nvml\w+)[,)]", text, re.MULTILINE)
    return set(found)


def stub_source() -> str:
    """C for all other names: a real library exports them and answers NOT_SUPPORTED."""
    lines = [
        "/* SPDX-License-Identifier: Apache-2.0 */",
        '#include "nvml_abi.h"',
        "int stub_call(const char *function, const void *first);",
        "#define STUB(name) EXPORT int name(const void *first); \\",
        "    EXPORT int name(const void *first) { return stub_call(#name, first); }",
    ]
    stubs = sorted(set(wanted_symbols()) - written_symbols())
    return "\n".join([*lines, *(f"STUB({name})" for name in stubs), ""])


def build(missing: Sequence[str] = (), *, extra_flags: Sequence[str] = ()) -> Path:
    """The path of a library that lacks the `missing` symbols, compiled if need be."""
    stubs = stub_source()
    objects_key = _digest([stubs, *COMPILE, *extra_flags, *_source_texts()])
    cache = Path(os.environ.get("FAKE_NVML_CACHE", SOURCES.parents[1] / ".cache/fake_nvml"))
    cache.mkdir(parents=True, exist_ok=True)
    library = cache / _digest([objects_key, *LINK, *sorted(missing)]) / SONAME
    objects = cache / f"objects-{objects_key}"
    with _lock(cache / "lock"):
        if not library.exists() and not objects.exists():
            with _replacing(objects) as directory:
                _compile(directory, stubs, extra_flags)
        if not library.exists():
            with _replacing(library.parent) as directory:
                _link(objects, directory, missing, extra_flags)
    return library


def _source_texts() -> Iterator[str]:
    for path in sorted(SOURCES.iterdir()):
        yield path.name
        yield path.read_text(encoding="utf-8")


def _digest(parts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:16]


def _compile(directory: Path, stubs: str, extra_flags: Sequence[str]) -> None:
    generated = directory / "stubs.c"
    generated.write_text(stubs, encoding="utf-8")

    def compile_one(source: Path) -> None:
        target = directory / f"{source.stem}.o"
        include = f"-I{SOURCES}"
        _run("cc", *COMPILE, *extra_flags, include, "-c", str(source), "-o", str(target))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_one, [*sorted(SOURCES.glob("*.c")), generated]))


def _link(objects: Path, directory: Path, missing: Sequence[str], flags: Sequence[str]) -> None:
    script = directory / "exports.map"
    hidden = "".join(f" {name};" for name in sorted(set(missing)))
    # An exact name wins over a pattern, so this hides the missing ones from dlsym.
    script.write_text(f"{{ global: nvml*; fake_nvml_reset; local:{hidden} *; }};\n")
    inputs = [str(path) for path in sorted(objects.glob("*.o"))]
    target = str(directory / SONAME)
    _run("cc", *flags, *inputs, *LINK, f"-Wl,--version-script={script}", "-o", target)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0 or done.stderr:
        message = f"{' '.join(command)}\n{done.stdout}{done.stderr}"
        raise RuntimeError(message)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """A scratch directory that takes the name `target` only when all of it is there."""
    scratch = Path(tempfile.mkdtemp(dir=target.parent, prefix="building-"))
    try:
        yield scratch
        scratch.chmod(0o755)  # processes of other users load it
        scratch.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)

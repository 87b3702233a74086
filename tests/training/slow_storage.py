# SPDX-License-Identifier: Apache-2.0
"""A filesystem in user space whose one file takes a while to read, like distant storage.

``python -m tests.training.slow_storage FOLDER SECONDS`` serves it until it is unmounted. The file
``data`` holds a terabyte of zeros, so that every read can be of a part that no cache has.
"""

from __future__ import annotations

import errno
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.conftest import require_tool, unmet
from tests.waiting import PATIENCE_SECONDS, wait_until

SIZE_BYTES = 1 << 40


@contextmanager
def slow_storage(folder: Path, seconds: float) -> Iterator[Path]:
    """Mount it on a new folder; return the path of its file, each read of which takes `seconds`."""
    unmount = require_tool("fusermount3")
    if find_spec("mfusepy") is None:
        unmet("mfusepy is not installed")
    if not Path("/dev/fuse").exists():
        unmet("this machine has no /dev/fuse")
    folder.mkdir()
    command = [sys.executable, "-m", "tests.training.slow_storage", str(folder), str(seconds)]
    with subprocess.Popen(command, cwd=Path(__file__).resolve().parents[2]) as server:
        try:
            wait_until(lambda: folder.is_mount() or server.poll() is not None, what="the mount")
            assert server.poll() is None
            yield folder / "data"
        finally:
            subprocess.run([unmount, "-u", "-z", str(folder)], check=False)
            server.wait(PATIENCE_SECONDS)


def main(folder: str, seconds: float) -> None:
    """Serve the filesystem in this process."""
    import mfusepy

    class SlowStorage(mfusepy.Operations):  # type: ignore[misc]
        """One file."""

        use_ns = True

        def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
            """Return what stat() says."""
            if path == "/":
                return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2}
            if path == "/data":
                return {"st_mode": stat.S_IFREG | 0o444, "st_nlink": 1, "st_size": SIZE_BYTES}
            raise mfusepy.FuseOSError(errno.ENOENT)

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            """Return zeros, after a while."""
            time.sleep(seconds)
            return bytes(size)

    mfusepy.FUSE(SlowStorage(), folder, foreground=True, ro=True, max_threads=10)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))

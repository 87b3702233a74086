# SPDX-License-Identifier: Apache-2.0
"""Makes the pictures of the documentation: the pages of the bundled demo in a real Chromium.

``python -m tests.e2e.screenshots docs/images`` takes seven minutes: the demo's failing GPU is lost
after six, and the trails of the last minutes want to be seen.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal, NamedTuple

from tests.e2e.browser import View, chromium, started
from tests.e2e.daemons import Daemon

SETTLE_SECONDS = 400.0
TRAIL_SECONDS = 150.0
MOST_BYTES = 300_000


class Picture(NamedTuple):
    """One page, as it is to be shown."""

    name: str
    path: str
    size: tuple[int, int]
    scheme: Literal["light", "dark"]
    select: str | None = None


PICTURES = (
    Picture("live-page", "/", (1440, 940), "light", "GPU 6"),
    Picture("live-page-dark", "/", (1440, 940), "dark", "GPU 1"),
    Picture("gpu-view", "/gpu/2", (1440, 1080), "light"),
    Picture("live-page-phone", "/", (390, 844), "dark"),
)


def main() -> int:
    """Write all pictures into a folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--settle", type=float, default=SETTLE_SECONDS, help="seconds")
    options = parser.parse_args()
    browser_path = chromium()
    if browser_path is None:
        print("chromium is not on the PATH", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as scratch, started(browser_path) as browser:
        daemon = Daemon(Path(scratch), {}, ("--demo", "--demo.seed=1"))
        try:
            time.sleep(max(0.0, options.settle - TRAIL_SECONDS))
            shown = []
            for picture in PICTURES:
                width, height = picture.size
                page = browser.new_page(
                    viewport={"width": width, "height": height},
                    color_scheme=picture.scheme,
                    timezone_id="UTC",
                )
                shown.append(View(page).open(daemon.url + picture.path))
            time.sleep(min(TRAIL_SECONDS, options.settle))
            for picture, view in zip(PICTURES, shown, strict=True):
                if picture.select is not None:
                    view.row(picture.select).locator(".state").click()
                    view.page.mouse.move(1, 1)
                    view.page.wait_for_timeout(300)
                path = options.folder / f"{picture.name}.png"
                view.page.screenshot(path=path)
                size = path.stat().st_size
                print(f"{path}: {size / 1000:.0f} kB")
                assert size < MOST_BYTES, "too large for the repository"
        finally:
            daemon.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())

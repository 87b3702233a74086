# SPDX-License-Identifier: Apache-2.0
"""A real Chromium for tests of the pages, with what it complains about."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Error, Locator, Page, Request, expect, sync_playwright

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
SIZES = {"phone": (360, 740), "laptop": (1440, 900), "wall": (3840, 2160)}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
PATIENCE_MILLISECONDS = 30_000
"""A page renews its parts every 10 s, and this machine may be busy."""
NETWORK_CHANGED = "ERR_NETWORK_CHANGED"
"""What Chromium ends every load with when the machine gets or loses a network, as tests with
containers beside this one make it do."""
SCREENSHOTS = Path(__file__).parents[1] / ".cache" / "screenshots"
SERIOUS = ("serious", "critical")

expect.set_options(timeout=PATIENCE_MILLISECONDS)

# Violations of the Content-Security-Policy are reported to the page before any of it is parsed.
_WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.violations.push(`${event.violatedDirective}: ${event.blockedURI} ${event.sample}`));
"""

_DRAWN = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def chromium() -> str | None:
    """Return the path of the browser, or None without one."""
    return next(filter(None, map(shutil.which, CHROMIUM)), None)


@contextmanager
def started(path: str) -> Iterator[Browser]:
    """Run a browser that needs no rights and no screen."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class View:
    """One page in the browser, with everything that went wrong on it."""

    page: Page
    errors: list[str] = field(default_factory=list)
    disturbed: bool = False
    """A load was ended by a change of the machine's networks."""

    def __post_init__(self) -> None:
        self.page.set_default_timeout(PATIENCE_MILLISECONDS)
        self.page.add_init_script(_WATCH)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("requestfailed", self._note_disturbed)
        self.page.on(
            "console",
            lambda message: (
                self.errors.append(message.text)
                if "Content Security Policy" in message.text
                else None
            ),
        )

    def _note_disturbed(self, request: Request) -> None:
        self.disturbed |= NETWORK_CHANGED in (request.failure or "")

    def load(self, address: str) -> View:
        """Load a page with all its scripts, again while the machine's networks change."""
        kept = len(self.errors)
        while not self._is_loaded(address):
            self.page.goto("about:blank")  # scripts that miss one another complain until then
            del self.errors[kept:]
        return self

    def _is_loaded(self, address: str) -> bool:
        self.disturbed = False
        try:
            self.page.goto(address)
        except Error as error:
            if NETWORK_CHANGED not in error.message:
                raise
            return False
        return not self.disturbed

    def open(self, address: str) -> View:
        """Load a page and wait until its stream runs."""
        self.load(address).wait_live()
        return self

    def close(self) -> None:
        """Close it; what it complained about is kept."""
        with contextlib.suppress(Error):  # without scripts it cannot be asked
            self.errors[:] = self.violations()
        self.page.context.close()

    def resize(self, size: str) -> None:
        """Give the window another of `SIZES`, and let the page draw itself anew."""
        width, height = SIZES[size]
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.evaluate(_DRAWN)

    def wait_live(self) -> None:
        """Wait until data comes."""
        expect(self.page.locator("#connection.live")).to_be_visible()

    def wait_stale(self) -> None:
        """Wait until the page says that no data comes."""
        stale = self.page.locator("#connection.stale")
        expect(stale).to_contain_text(re.compile(r"stale since \d\d:\d\d:\d\d"))

    def row(self, name: str) -> Locator:
        """The row of a GPU or instance by its title."""
        link = self.page.get_by_role("link", name=name, exact=True)
        return self.page.locator("#gpus tbody tr").filter(has=link)

    def violations(self) -> list[str]:
        """What the policy refused, and the scripts' errors."""
        closed = self.page.is_closed()
        refused: list[str] = [] if closed else self.page.evaluate("window.violations || []")
        return [*refused, *self.errors]

    def findings(self, *, fingers: bool = False) -> list[str]:
        """Serious findings of axe-core, and text outside of landmarks, one line each; with
        `fingers` also what is pressed and too small for one."""
        options = {"rules": {"target-size": {"enabled": fingers}}}
        found: list[dict[str, Any]] = Axe().run(self.page, options=options).response["violations"]
        return [
            f"{each['id']}: {each['help']}: {node['html'][:160]} {node['failureSummary']}"
            for each in found
            if each["impact"] in SERIOUS or each["id"] == "region"
            for node in each["nodes"]
        ]

    def screenshot(self, name: str, *, whole: bool = False) -> None:
        """Keep a picture, to be looked at."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=whole)

    def main_thread_seconds(self, milliseconds: float) -> float:
        """Share of the main thread's time that the page takes, over so many milliseconds."""
        session = self.page.context.new_cdp_session(self.page)
        session.send("Performance.enable")

        def now() -> tuple[float, float]:
            metrics = session.send("Performance.getMetrics")["metrics"]
            values = {each["name"]: float(each["value"]) for each in metrics}
            return values["TaskDuration"], values["Timestamp"]

        busy, began = now()
        self.page.wait_for_timeout(milliseconds)
        busy_then, ended = now()
        session.detach()
        return (busy_then - busy) / (ended - began)

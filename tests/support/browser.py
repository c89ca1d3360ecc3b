"""A real headless Chromium on one page, with what it asked for and complained about."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Browser", "browser", "missing"]

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage",
)  # fmt: skip
# Chromium's own start page; nothing of it comes from the page under test.
OWN = ("chrome:", "chrome-", "data:", "blob:", "about:")

SPOT = """
const [name, source, row] = arguments, doc = Bokeh.documents[0];
const plot = doc.roots().find((each) => each.name === name);
const view = Bokeh.index.find_one_by_id(plot.id);
const marks = plot.renderers.find((each) => each.data_source.name === source);
const box = view.el.getBoundingClientRect(), data = marks.data_source.data;
return [
  box.left + view.frame.x_scale.compute(data.x[row]),
  box.top + view.frame.y_scale.compute(data.y[row]),
];
"""
SHADOWS = """
const found = [];
(function walk(root) {
  for (const each of root.querySelectorAll("*")) {
    if (each.shadowRoot) { found.push(each.shadowRoot); walk(each.shadowRoot); }
  }
})(document);
"""


def missing() -> str:
    """Returns what is not installed that a browser needs; empty when all is there."""
    for command in ("chromium", "chromedriver"):
        if shutil.which(command) is None:
            return f"{command} is not installed (apt-get install chromium chromium-driver)"
    return ""


@dataclass
class Browser:
    """Chromium showing one page."""

    driver: Any

    def js(self, script: str, *given: Any) -> Any:
        """Returns what a script returns."""
        return self.driver.execute_script(script, *given)

    def open(self, path: Path) -> None:
        """Shows a page and waits until its pictures are there."""
        self.driver.get(path.as_uri())
        self.until("return document.documentElement.dataset.ready === 'yes'")

    def until(self, script: str) -> None:
        """Waits until a script returns something true."""
        end = time.monotonic() + 30
        while not self.js(script):
            assert time.monotonic() < end, f"never true: {script}; {self.complaints()}"
            time.sleep(0.05)

    def point(self, plot: str, source: str, row: int, *, click: bool = False) -> None:
        """Moves the mouse to one mark of a picture, and presses it."""
        self.js("document.getElementById(arguments[0]).scrollIntoView({block: 'center'})", plot)
        self.driver.execute_async_script(  # what was changed before is drawn first
            "const done = arguments[0];"
            "requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50)))"
        )
        x, y = self.js(SPOT, plot, source, row)
        for kind in ("mouseMoved", "mouseMoved", *(["mousePressed", "mouseReleased"] * click)):
            more = {"button": "left", "clickCount": 1} if kind != "mouseMoved" else {}
            told = {"type": kind, "x": x, "y": y, **more}
            self.driver.execute_cdp_cmd("Input.dispatchMouseEvent", told)

    def shadow_text(self) -> str:
        """Returns the text inside the pictures, where tooltips are shown."""
        text = self.js(SHADOWS + "return found.map((each) => each.textContent).join(' ')")
        return str(text)

    def look(self, *, dark: bool = False, width: int = 1100, height: int = 900) -> None:
        """Chooses light or dark and the size of the window."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def complaints(self) -> list[str]:
        """Returns warnings and errors of the console since the last call."""
        return [
            line["message"]
            for line in self.driver.get_log("browser")
            if line["level"] not in ("INFO", "DEBUG")
        ]

    def requests(self) -> set[str]:
        """Returns what was asked for since the last call, Chromium's own pages left out."""
        asked = set()
        for line in self.driver.get_log("performance"):
            event = json.loads(line["message"])["message"]
            if event["method"] in ("Network.requestWillBeSent", "Network.webSocketCreated"):
                told = event["params"]
                asked.add(str(told.get("url") or told["request"]["url"]))
        return {url for url in asked if not url.startswith(OWN)}


@contextmanager
def browser() -> Iterator[Browser]:
    """Starts a Chromium with an empty profile, and ends it."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        logs = {"browser": "ALL", "performance": "ALL"}
        options.set_capability("goog:loggingPrefs", logs)
        driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        try:
            yield Browser(driver)
        finally:
            driver.quit()

"""A real browser: headless Chromium, driven by Playwright, that notes what a page complains of and where it looks."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NEEDS_CHROMIUM = pytest.mark.skipif(
    PROGRAM is None or importlib.util.find_spec("playwright") is None,
    reason="no Chromium on this machine (apt-get install chromium), or no Playwright",
)
SERIOUS = ("serious", "critical")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The program that is installed: Playwright's own can't be fetched everywhere."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PROGRAM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Visitor:
    """One person's browser. `complaints`: what its console says in red; `elsewhere`: what it fetched from others."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.context, self.url = context, url
        self.complaints: list[str] = []
        self.elsewhere: list[str] = []
        self.page: Page = context.new_page()
        origin = "/".join(url.split("/")[:3])
        self.page.on("console", lambda said: said.type == "error" and self.complaints.append(said.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda asked: asked.url.startswith(origin) or self.elsewhere.append(asked.url))

    def go(self, path: str) -> Page:
        self.page.goto(self.url + path)
        return self.page


@contextlib.contextmanager
def open_visitor(browser: Browser, url: str, **options: Any) -> Iterator[Visitor]:
    """A new person, without a cookie."""
    context = browser.new_context(**options)
    try:
        yield Visitor(context, url)
    finally:
        context.close()


def find_faults(page: Page) -> list[str]:
    """What axe finds of serious faults in the page: the rule, and where."""
    found = importlib.util.find_spec("axe_playwright_python")
    assert found is not None
    assert found.origin is not None
    # By the debugger and not as a script of the page, which its policy wouldn't let in.
    page.evaluate((Path(found.origin).parent / "axe.min.js").read_text(encoding="utf-8"))
    violations = page.evaluate("async () => (await axe.run()).violations")
    return [
        f"{one['id']}: {json.dumps([node['target'] for node in one['nodes']])}"
        for one in violations
        if one["impact"] in SERIOUS
    ]

"""A real headless Chromium, and pages opened in it under watch."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
Scheme = Literal["light", "dark"]


@dataclass(kw_only=True)
class Visit:
    """An opened page with everything it said, asked for and did."""

    page: Page
    path: Path
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def check_quiet(self) -> None:
        """The page logged nothing, opened no dialog, and asked for nothing but itself."""
        assert self.said == []
        assert self.asked == [self.path.as_uri()]

    def count_violations(self) -> list[str]:
        """What axe finds wrong, one line per rule and place."""
        from axe_playwright_python.sync_playwright import Axe  # noqa: PLC0415

        found: list[dict[str, Any]] = Axe().run(self.page).response["violations"]
        return [f"{one['id']}: {node['html'][:200]}" for one in found for node in one["nodes"]]


Open = Callable[..., Visit]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The system's Chromium. Playwright's own build is not needed."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.fail("no Chromium found: install the Debian package 'chromium' (apt-get install)")
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Opens HTML as a file in a context of its own, watched from before it loads."""
    contexts: list[BrowserContext] = []

    def opens(
        html: str | Path, width: int = 1280, scheme: Scheme = "light", *, script: bool = True
    ) -> Visit:
        path = html if isinstance(html, Path) else tmp_path / f"page{len(contexts)}.html"
        if isinstance(html, str):
            path.write_text(html, encoding="utf-8")
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            java_script_enabled=script,
        )
        contexts.append(context)
        visit = Visit(page=context.new_page(), path=path)
        watch(visit)
        visit.page.goto(path.as_uri())
        return visit

    yield opens
    for context in contexts:
        context.close()


def watch(visit: Visit) -> None:
    """Write down what the page says, asks for and opens."""
    page = visit.page
    page.on("console", lambda message: visit.said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: visit.said.append(f"error: {error}"))
    page.on("request", lambda request: visit.asked.append(request.url))

    def refuse(dialog: Any) -> None:
        visit.said.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    page.on("dialog", refuse)

"""A headless Chromium for the tests that look at pages as a reader does."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

NAMES = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
)


@contextmanager
def chromium() -> Iterator:
    """A browser of playwright's, from a Chromium that the machine has (or CHROME names).

    Without one the test is skipped.
    """
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed"
    )
    path = os.environ.get("CHROME") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"no browser here: none of {', '.join(NAMES)} is on the PATH")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


def page_without_network(
    browser, allowed: str, width: int = 1280, height: int = 900
) -> tuple:
    """A page that reaches only addresses that start with `allowed`.

    With it come the other addresses it asked for, and the errors it met.
    """
    page = browser.new_page(viewport={"width": width, "height": height})
    page.set_default_timeout(180_000)  # milliseconds: a machine may be busy
    refused, errors = [], []

    def gate(route) -> None:
        if route.request.url.startswith((allowed, "data:", "blob:")):
            route.continue_()
        else:
            refused.append(route.request.url)
            route.abort()

    page.route("**/*", gate)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("requestfailed", lambda request: errors.append(f"failed: {request.url}"))
    return page, refused, errors

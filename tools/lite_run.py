"""Open a JupyterLite site in Chromium and run its notebooks, as a reader would.

`python tools/lite_run.py build/lite notebooks/00_start_here.ipynb …` serves the folder on
this machine, runs every cell, and says how long each notebook took and what failed. The
page reaches nothing but that server. --limit is the number of seconds allowed for each.
"""

import argparse
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 900_000  # milliseconds until the page gives up
IS_READY = """() => {
  const panel = window.jupyterapp?.shell?.currentWidget;
  return panel?.sessionContext?.session?.kernel && panel.content?.model;
}"""
RUN_ALL = "() => window.jupyterapp.commands.execute('notebook:run-all-cells')"
CELLS = """() => window.jupyterapp.shell.currentWidget.content.model.toJSON().cells
  .filter(cell => cell.cell_type === "code")"""


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, and does not print every one of them."""

    def log_message(self, format, *args) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a folder on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()


def browser_path() -> str | None:
    """A Chromium that the machine has, or that CHROME names."""
    found = [shutil.which(name) for name in BROWSERS]
    return os.environ.get("CHROME") or next(filter(None, found), None)


def run_notebook(browser, address: str, notebook: str) -> tuple[list[dict], list[str]]:
    """Run a notebook of the site from top to bottom in a page of its own.

    Parameters
    ----------
    browser : playwright's browser
    address : str
        Of the site, with a / at its end. Other addresses are refused.
    notebook : str
        Its path in the site.

    Returns
    -------
    cells : list of dict
        The code cells with their outputs.
    refused : list of str
        Other addresses that the page asked for.
    """
    context = browser.new_context()
    refused = []

    def gate(route) -> None:
        if route.request.url.startswith((address, "data:", "blob:")):
            route.continue_()
        else:
            refused.append(route.request.url)
            route.abort()

    context.route("**/*", gate)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(f"{address}lab/index.html?path={notebook}")
    page.wait_for_function(IS_READY)
    page.evaluate(RUN_ALL)
    cells = page.evaluate(CELLS)
    context.close()
    return cells, refused


def printed(cells: list[dict]) -> str:
    """What the cells printed."""
    parts = []
    for cell in cells:
        for output in cell["outputs"]:
            text = output.get("text", "")
            parts.append(text if isinstance(text, str) else "".join(text))
    return "".join(parts)


def faults(cells: list[dict], refused: list[str]) -> list[str]:
    """What went wrong: errors, cells that did not run, addresses elsewhere."""
    found = [f"asked for {address}" for address in refused]
    for number, cell in enumerate(cells, start=1):
        if cell["execution_count"] is None and "".join(cell["source"]).strip():
            found.append(f"code cell {number} did not run")
        for output in cell["outputs"]:
            if output["output_type"] == "error":
                found.append(f"code cell {number}: {output['ename']}: {output['evalue']}")
    if not cells:
        found.append("the notebook has no code cell")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run notebooks of a site; 1 if one of them fails or takes too long."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("site", type=Path)
    parser.add_argument("notebooks", nargs="+", help="their paths in the site")
    parser.add_argument("--limit", type=float, default=float("inf"), help="in seconds")
    options = parser.parse_args(arguments)
    from playwright.sync_api import sync_playwright

    is_well = True
    with served(options.site) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=browser_path(),
            args=["--no-sandbox", "--disable-dev-shm-usage"],
        )
        for notebook in options.notebooks:
            start = time.monotonic()
            cells, refused = run_notebook(browser, address, notebook)
            seconds = time.monotonic() - start
            found = faults(cells, refused)
            if seconds > options.limit:
                found.append(f"wanted at most {options.limit:.0f} s")
            print(
                f"{notebook}: {seconds:.0f} s: {'; '.join(found) or 'well'}", flush=True
            )
            is_well = is_well and not found
        browser.close()
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())

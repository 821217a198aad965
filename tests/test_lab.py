"""The notebooks in a real JupyterLab: they open, run, link to others; a slider moves."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request

import browser
import nbformat
import pytest

SECONDS = 240  # a machine may be busy
QUIET = {
    "@jupyterlab/apputils-extension": (
        "notification",
        {"fetchNews": "false", "checkForUpdates": False},
    )
}


@pytest.fixture(scope="module")
def lab(root, tmp_path_factory):
    """The address of a JupyterLab, as `make lab` starts it, on a copy; and the copy."""
    pytest.importorskip("jupyterlab")
    folder = tmp_path_factory.mktemp("lab")
    for name in ("notebooks", "results", "docs"):
        shutil.copytree(
            root / name,
            folder / "copy" / name,
            ignore=shutil.ignore_patterns(".*", "__pycache__"),
        )
    for name, (part, setting) in QUIET.items():
        target = folder / "settings" / name / f"{part}.jupyterlab-settings"
        target.parent.mkdir(parents=True)
        target.write_text(json.dumps(setting))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {
        "CFHELPERS_HOME": str(folder / "copy"),
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
    }
    environment |= {
        f"JUPYTER_{kind}_DIR": str(folder / kind.lower())
        for kind in ("CONFIG", "DATA", "RUNTIME")
    }
    command = [
        sys.executable,
        "-m",
        "jupyter",
        "lab",
        "--no-browser",
        "--allow-root",
        "--ip=127.0.0.1",
        f"--port={port}",
    ]
    command += [
        "--IdentityProvider.token=lab",
        "--ServerApp.port_retries=0",
        "--LabApp.expose_app_in_browser=True",
    ]
    with (folder / "log.txt").open("w") as log:
        server = subprocess.Popen(
            command, cwd=folder / "copy", env=environment, stdout=log, stderr=log
        )
    try:
        address = f"http://127.0.0.1:{port}"
        wait_for(f"{address}/api?token=lab", server, folder / "log.txt")
        yield address, folder / "copy"
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()


def wait_for(address, server, log):
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and server.poll() is None:
        try:
            return urllib.request.urlopen(address).read()
        except OSError:
            time.sleep(0.3)
    raise RuntimeError(f"JupyterLab did not start: {log.read_text()[-2000:]}")


def open_notebook(chromium, address, name):
    """A page with the notebook open and its kernel ready."""
    page, refused, errors = browser.page_without_network(chromium, address, 1400)
    page.goto(f"{address}/lab/workspaces/{name[:2]}/tree/notebooks/{name}?token=lab")
    page.wait_for_selector(".jp-Notebook .jp-RenderedMarkdown h1")
    page.wait_for_function(
        "() => jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status"
        " === 'idle'"
    )
    return page, refused, errors


def run_all(page):
    """Clear all outputs, choose Run All Cells in the menu, and wait for the end."""
    page.evaluate("() => jupyterapp.commands.execute('notebook:clear-all-cell-outputs')")
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    page.wait_for_function(
        """() => {
            const {content, sessionContext} = jupyterapp.shell.currentWidget;
            const cells = [...content.model.cells].filter(cell => cell.type === 'code');
            const kinds = outputs =>
                [...Array(outputs.length).keys()].map(i => outputs.get(i).type);
            if (cells.some(cell => kinds(cell.outputs).includes('error'))) return true;
            return cells.every(cell => cell.executionCount)
                && sessionContext.session.kernel.status === 'idle';
        }""",
        polling=500,
    )


def check_run(page, folder, stored):
    """The saved run has no error, no warning, and as many pictures as the repository."""
    page.evaluate("() => jupyterapp.commands.execute('docmanager:save')")
    notebook = nbformat.read(folder, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert [
        output
        for output in outputs
        if output.output_type == "error" or output.get("name") == "stderr"
    ] == []
    assert pictures(notebook) == pictures(nbformat.read(stored, as_version=4))
    return notebook


def pictures(notebook):
    cells = enumerate(cell for cell in notebook.cells if cell.cell_type == "code")
    return [
        number
        for number, cell in cells
        for output in cell.outputs
        if "image/png" in output.get("data", {})
    ]


@pytest.mark.slow
def test_the_first_notebook_runs_has_a_table_of_contents_and_leads_to_the_next(lab, root):
    address, folder = lab
    name = "00_start_here.ipynb"
    with browser.chromium() as chromium:
        page, _, errors = open_notebook(chromium, address, name)
        run_all(page)
        check_run(page, folder / "notebooks" / name, root / "notebooks" / name)
        page.locator("[data-id=table-of-contents]").click()
        contents = page.locator(".jp-TableOfContents-tree")
        contents.get_by_text("Before and after").wait_for()
        contents.get_by_text("The notebooks", exact=True).click()
        page.locator(".jp-RenderedImage img").first.wait_for(state="attached")
        assert page.evaluate(
            "[...document.querySelectorAll('.jp-RenderedImage img')]"
            ".every(i => i.naturalWidth > 300)"
        )
        page.locator(
            ".jp-RenderedMarkdown a", has_text="01 · Conformal prediction"
        ).first.click()
        page.locator(
            ".lm-TabBar-tabLabel", has_text="01_conformal_prediction.ipynb"
        ).wait_for()
        assert errors == []


@pytest.mark.slow
def test_the_slider_of_04_moves_and_draws_another_picture(lab, root):
    address, folder = lab
    name = "04_conformal_fairness.ipynb"
    with browser.chromium() as chromium:
        page, _, errors = open_notebook(chromium, address, name)
        run_all(page)
        notebook = check_run(page, folder / "notebooks" / name, root / "notebooks" / name)
        (place,) = (
            number
            for number, cell in enumerate(notebook.cells)
            if "FloatSlider(" in cell.source
        )
        page.evaluate(
            "place => jupyterapp.shell.currentWidget.content"
            ".scrollToItem(place, 'center')",
            place,
        )
        handle = page.locator(".widget-slider .noUi-handle").first
        handle.wait_for()
        readout, picture = (
            page.locator(".widget-slider .widget-readout").first,
            page.locator(".widget-interact img").first,
        )
        picture.wait_for()
        before = readout.inner_text(), picture.get_attribute("src")
        handle.focus()
        for _ in range(8):
            page.keyboard.press("ArrowRight")
        page.wait_for_function(
            "src => document.querySelector('.widget-interact img')?.src !== src",
            arg=before[1],
        )
        assert float(readout.inner_text()) > float(before[0])
        assert (
            page.locator(
                ".widget-interact .jp-OutputArea-output[data-mime-type*=error]"
            ).count()
            == 0
        )
        assert (
            page.evaluate("document.querySelector('.widget-interact img').naturalWidth")
            > 300
        )
        assert errors == []

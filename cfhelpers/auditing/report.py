"""The report of an audit: notebook 13, run on a file of predictions, as one page."""

import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cfhelpers import paths

NOTEBOOK = "13_audit_your_own_model.ipynb"
TEMPLATE = Path(__file__).with_name("report.html.j2")
PACKAGES = ("papermill", "nbconvert", "ipykernel")


def check_output(output: Path) -> None:
    """A ValueError if the report could not be written.

    Examples
    --------
    >>> check_output(Path("report.pdf"))
    Traceback (most recent call last):
        ...
    ValueError: output: found report.pdf; wanted a name that ends in .html
    """
    if output.suffix != ".html":
        raise ValueError(f"output: found {output}; wanted a name that ends in .html")
    absent = [name for name in PACKAGES if find_spec(name) is None]
    if absent:
        raise ValueError(
            f"output: a report needs {', '.join(absent)}: pip install 'cfhelpers[report]'"
        )
    if not (paths.NOTEBOOKS / NOTEBOOK).is_file():
        raise ValueError(
            f"output: a report needs {NOTEBOOK}, which is not in {paths.NOTEBOOKS}; "
            "install from the repository (pip install --editable), "
            "or set CFHELPERS_HOME to its folder"
        )


def write_report(output: Path, parameters: Mapping[str, Any]) -> None:
    """Run the notebook and write it as one HTML file that needs no network.

    Parameters
    ----------
    output : path
        Where the page is written.
    parameters : dict
        Those of the notebook: `predictions` is the file, the others are the options of
        `audit_file`.
    """
    import papermill

    with tempfile.TemporaryDirectory() as folder:
        executed = Path(folder) / "report.ipynb"
        papermill.execute_notebook(
            paths.NOTEBOOKS / NOTEBOOK,
            executed,
            dict(parameters),
            kernel_name="python3",
            progress_bar=False,
            extra_arguments=["--IPKernelApp.log_level=40"],
        )
        page = page_of(executed)
    with paths.atomic_write(output) as partial:
        partial.write_text(page, encoding="utf-8")


def page_of(notebook: Path) -> str:
    """An executed notebook as the report's page, without code."""
    from nbconvert import HTMLExporter

    page, _ = HTMLExporter(template_file=str(TEMPLATE)).from_filename(str(notebook))
    return page

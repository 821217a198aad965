"""`python -m cfhelpers audit my.csv --label y --groups sex,age --output report.html`: verdicts, and a report."""

import argparse
import inspect
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from cfhelpers import paths

NOTEBOOK = "13_audit_your_own_model.ipynb"
HELP = {
    "label": "column of the true labels",
    "groups": "column or columns of groups, with commas",
    "columns": "columns of probabilities, scores or sets, one per label; by default those with p_, score_ or set_",
    "kind": "what these columns hold: probabilities, scores or sets",
    "part": "column that says calibration or test for every row; by default half of the rows are drawn for each",
    "threshold": "of the scores, one or one per label; by default found on the calibration rows",
    "metrics": "with commas; by default equal_opportunity, disparate_impact, overall_accuracy_equality",
    "positive_labels": "labels to compare, or all; by default all but the first",
    "closeness": "what is allowed: a number, or metric=number with commas; by default 0.1, for ratios 0.8",
    "alpha": "miscoverage of conformal sets",
    "score": "for conformal sets from probabilities: tps, aps or raps",
    "delta": "chance that a guarantee may fail",
    "confidence": "of every interval and verdict",
    "seed": "of the random half",
}


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 0 if it worked, 2 if the file or an option is wrong."""
    from cfhelpers.auditing import audit_file

    parser = argparse.ArgumentParser(
        prog="python -m cfhelpers", description="Conformal fairness."
    )
    command = parser.add_subparsers(required=True, metavar="command").add_parser(
        "audit",
        help="audit a file of predictions",
        description="Audit a CSV or parquet file with a row per point.",
    )
    command.add_argument("predictions", type=Path, help="CSV or parquet file")
    command.add_argument(
        "--output",
        type=Path,
        help="HTML file for the report; without it, verdicts are printed only",
    )
    for name, text in HELP.items():
        default = inspect.signature(audit_file).parameters[name].default
        text += f" (default {default})" if default != "" else ""
        command.add_argument(
            f"--{name.replace('_', '-')}", type=type(default), default=default, help=text
        )
    options = vars(parser.parse_args(arguments))
    predictions, output = options.pop("predictions"), options.pop("output")
    try:
        if output:
            check_output(output)
        print(audit_file(predictions, **options))
    except ValueError as error:
        print(f"cfhelpers audit: {error}", file=sys.stderr)
        return 2
    if output:
        write_report(output, {"predictions": str(predictions.resolve()), **options})
        print(f"report: {output}")
    return 0


def check_output(output: Path) -> None:
    """A ValueError if the report could not be written."""
    if output.suffix != ".html":
        raise ValueError(f"output: found {output}; wanted a name that ends in .html")
    if absent := [
        name
        for name in ("papermill", "nbconvert", "ipykernel")
        if find_spec(name) is None
    ]:
        raise ValueError(
            f"output: a report needs {', '.join(absent)}: pip install 'cfhelpers[notebooks]'"
        )
    if not (paths.NOTEBOOKS / NOTEBOOK).is_file():
        advice = "install from the repository (pip install --editable), or set CFHELPERS_HOME to its folder"
        raise ValueError(
            f"output: a report needs {NOTEBOOK}, which is not in {paths.NOTEBOOKS}; {advice}"
        )


def write_report(output: Path, parameters: dict) -> None:
    """Run the notebook with these parameters, and write it as one HTML file that needs no network."""
    import papermill
    from nbconvert import HTMLExporter

    with tempfile.TemporaryDirectory() as folder:
        executed = Path(folder) / "report.ipynb"
        papermill.execute_notebook(
            paths.NOTEBOOKS / NOTEBOOK, executed, parameters, kernel_name="python3", progress_bar=False,
            extra_arguments=["--IPKernelApp.log_level=40"],
        )  # fmt: skip
        template = paths.ROOT / "tools" / "report.html.j2"
        page, _ = HTMLExporter(template_file=str(template)).from_filename(str(executed))
    with paths.atomic_write(output) as partial:
        partial.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())

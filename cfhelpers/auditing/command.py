"""The command line: `cfhelpers audit my.csv --label y --output report.html`."""

import argparse
import inspect
import sys
from collections.abc import Sequence
from pathlib import Path

from cfhelpers import installation, monitoring_command, planning_command
from cfhelpers.auditing.files import audit_file
from cfhelpers.auditing.report import check_output, write_report

HELP = {
    "label": "column of the true labels",
    "groups": "column or columns of groups, with commas",
    "columns": (
        "columns of probabilities, scores or sets, one per label; "
        "by default those with p_, score_ or set_"
    ),
    "kind": "what these columns hold: probabilities, scores or sets",
    "part": (
        "column that says calibration or test for every row; "
        "by default half of the rows are drawn for each"
    ),
    "id": (
        "column that says who each row is, for randomised scores; "
        "by default the row's probabilities say so"
    ),
    "threshold": (
        "of the scores, one or one per label; by default found on the calibration rows"
    ),
    "metrics": (
        "with commas; by default equal_opportunity, disparate_impact, "
        "overall_accuracy_equality"
    ),
    "positive_labels": (
        "labels to compare, or all; by default all but 0 where labels are 0, 1, 2 and "
        "so on, and all of them where they have names"
    ),
    "closeness": (
        "what is allowed: a number, or metric=number with commas; "
        "by default 0.1, for ratios 0.8"
    ),
    "alpha": "miscoverage of conformal sets",
    "score": "for conformal sets from probabilities: tps, aps or raps",
    "delta": "chance that a guarantee may fail",
    "confidence": "of every interval and verdict",
    "seed": "of the random half, and of randomised scores",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Parameters
    ----------
    arguments : list of str, optional
        By default those of the shell.

    Returns
    -------
    int
        0 if it worked, 2 if the file or an option is wrong.

    Examples
    --------
    >>> import contextlib
    >>> with contextlib.redirect_stderr(sys.stdout):
    ...     status = main(["audit", "gone.csv"])
    cfhelpers audit: gone.csv: there is no such file
    >>> status
    2
    """
    parsed = _parser().parse_args(arguments)
    if hasattr(parsed, "run"):  # another command than audit
        return int(parsed.run(parsed))
    options = vars(parsed)
    predictions = options.pop("predictions")
    output = options.pop("output")
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


def _parser() -> argparse.ArgumentParser:
    """The options of the command: those of `audit_file`, with its defaults."""
    parser = argparse.ArgumentParser(prog="cfhelpers", description="Conformal fairness.")
    commands = parser.add_subparsers(required=True, metavar="command")
    command = commands.add_parser(
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
    parameters = inspect.signature(audit_file).parameters
    for name, text in HELP.items():
        default = parameters[name].default
        if default != "":
            text = f"{text} (default {default})"
        option = f"--{name.replace('_', '-')}"
        command.add_argument(option, type=type(default), default=default, help=text)
    installation.add_parser(commands)
    planning_command.add_parser(commands)
    monitoring_command.add_parser(commands)
    return parser

"""The command line: `cfhelpers audit my.csv --label y --output report.html`."""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import json
import os
import shlex
import sys
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cfhelpers import (
    __version__,
    control,
    installation,
    monitoring_command,
    paths,
    planning_command,
)
from cfhelpers.auditing import report
from cfhelpers.auditing.files import (
    ONE_FOR_ALL_LABELS,
    ONE_PER_LABEL,
    FileAudit,
    audit_file,
)
from cfhelpers.auditing.reading import list_items
from cfhelpers.auditing.verdicts import BEYOND, WITHIN
from cfhelpers.auditing.words import harmless

DONE = 0
GATE_SAYS_NO = 1
WRONG = 2
INTERRUPTED = 130
TABLES = ("verdicts.csv", "cells.csv", "groups.csv", "fixes.csv")  # in the CSV folder
STDOUT = "-"  # in the place of a file's name

HELP = {
    "label": "column of the true labels",
    "groups": "column or columns of groups, with commas",
    "columns": (
        "columns of probabilities, scores or sets, one per label, or one column of "
        "probabilities or decisions; by default those with p_, score_ or set_"
    ),
    "kind": "what these columns hold: probabilities, scores, sets or decisions",
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
    "cutoff": (
        "the same as a probability, one or one per label: 0.3 puts a label into the set "
        "if its probability is at least 0.3"
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
    "joint": "all verdicts together hold with this confidence, rather than each",
    "weights": (
        "column that says whom each row stands for; columns of that name with a number "
        "behind are replicate weights"
    ),
    "replicates": "rule of replicate weights: sdr, brr, jackknife; none: unused",
    "missing": "rows without a group: separate, as a group, or exclude",
    "min_group": "groups with fewer rows become one",
    "group_order": "groups in this order, with commas",
    "seed": "of the random half, and of randomised scores",
}
OUTPUTS = {
    "output": "HTML file for the report, with its JSON and tables beside it",
    "json": "file for the audit as JSON, or - for the terminal",
    "csv": "folder for the tables as CSV",
    "card": "file for a summary in Markdown, for a model card",
    "serve": "file for a fix as JSON, which FairConformalClassifier.from_dict serves",
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
        0 if it worked, 1 if `--fail-on` says no, 2 if the file or an option is wrong.

    Examples
    --------
    >>> import contextlib
    >>> with contextlib.redirect_stderr(sys.stdout):
    ...     status = main(["audit", "gone.csv"])
    cfhelpers audit: gone.csv: there is no such file
    >>> status
    2
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    parsed = _parser().parse_args(given)
    options = vars(parsed)
    name = options.pop("command")
    try:
        if parsed.run is not run_audit:  # plan, monitor, check
            return _run_and_say(name, parsed)
        del options["run"]
        return run_audit(options, _as_utf8(shlex.join(["cfhelpers", *given])))
    except (ValueError, ImportError) as error:
        _complain(str(error), name)
    except OSError as error:
        named = f"{error.filename}: " if error.filename else ""
        _complain(f"{named}{error.strerror or error}", name)
    except MemoryError:
        _complain("the file is too large for the memory of this machine", name)
    except KeyboardInterrupt:
        _complain("interrupted", name)
        return INTERRUPTED
    return WRONG


def _run_and_say(name: str, options: argparse.Namespace) -> int:
    """Another command than the audit; what it prints is said when its work is done.

    So its exit status is that of the work, whatever becomes of the reader.
    """
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = int(options.run(options))
    _say(printed.getvalue().rstrip("\n"), name)
    return status


def run_audit(options: dict[str, Any], command: str) -> int:
    """`cfhelpers audit`: checks, work, output, and the gate's answer."""
    predictions = options.pop("predictions")
    compare = options.pop("compare")
    fail_on = options.pop("fail_on")
    chosen_fix = options.pop("fix")
    outputs = Outputs(**{name: options.pop(name) for name in OUTPUTS})
    outputs.check(predictions)
    if chosen_fix and not outputs.serve:
        raise ValueError(f"fix: found {chosen_fix!r}; it goes with --serve FILE")
    earlier = report.read_document(compare) if compare else None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        found = audit_file(predictions, **options)
    for warning in caught:
        if issubclass(warning.category, UserWarning):
            _complain(f"note: {warning.message}")
    found = replace(found, source=replace(found.source, command=command))
    lines = []
    if outputs.json != STDOUT:
        lines.append(str(found))
    if outputs.any or earlier is not None:
        document = report.document(found, earlier)
        if earlier is not None and outputs.json != STDOUT:
            lines += report.compared(document, earlier)
        lines += outputs.write(found, document, chosen_fix)
    status = DONE
    if fail_on:
        status, sentence = gate(found, fail_on)
        if outputs.json != STDOUT:
            lines.append(sentence)
    _say("\n".join(lines))
    return status


def gate(found: FileAudit, fail_on: str) -> tuple[int, str]:
    """The exit status that a gate asks for, and a sentence that says why.

    Parameters
    ----------
    found : FileAudit
    fail_on : "beyond" or "undecided"
        What lets the gate say no: a verdict beyond what is allowed, or one that is not
        within it.

    Returns
    -------
    status : int
        1 if it says no, else 0.
    sentence : str
    """
    failed = []
    for record in found.verdicts:
        is_wrong = record.verdict == BEYOND
        if fail_on == "undecided":
            is_wrong = record.verdict != WITHIN
        if is_wrong:
            failed.append(f"{record.metric} by {record.grouping}: {record.verdict}")
    if failed:
        return GATE_SAYS_NO, f"gate ({fail_on}): no; {'; '.join(failed)}"
    return DONE, f"gate ({fail_on}): yes"


@dataclass(frozen=True)
class Outputs:
    """What is written, and where; empty text: nothing."""

    output: str
    json: str
    csv: str
    card: str
    serve: str

    @property
    def any(self) -> bool:
        """Whether anything is written."""
        return any([self.output, self.json, self.csv, self.card, self.serve])

    def check(self, predictions: Path) -> None:
        """A ValueError if something could not be written, before any work."""
        if self.output and Path(self.output).suffix.lower() not in (".html", ".htm"):
            raise ValueError(
                f"output: found {self.output}; wanted a name that ends in .html"
            )
        absent = report.absent_packages()
        if self.output and absent:
            raise ValueError(
                f"output: a report needs {', '.join(absent)}: "
                "pip install 'cfhelpers[report]'; without it there are --json and --csv"
            )
        names = {option: getattr(self, option) for option in OUTPUTS}
        names |= {"json": self.json_file, "csv": self.csv_folder}
        places: dict[Path, str] = {}
        for option, name in names.items():
            if not name or (option == "json" and name == STDOUT):
                continue
            is_folder = option == "csv"
            if name.endswith("/") and not is_folder:
                raise ValueError(f"{option}: {name} is a folder; wanted a file")
            check_writable(option, Path(name), predictions, is_folder)
            files = [Path(name)]
            if is_folder:
                files += [Path(name) / table for table in TABLES]
                for table in files[1:]:
                    check_writable(option, table, predictions)
            for file in files:
                other = places.setdefault(file.resolve(), option)
                if other != option:
                    raise ValueError(f"{option}: found {file}, which is that of {other}")

    @property
    def json_file(self) -> str:
        """Where the audit is written as JSON: by default beside the report."""
        if self.json or not self.output:
            return self.json
        return str(Path(self.output).with_suffix(".json"))

    @property
    def csv_folder(self) -> str:
        """Where the tables are written: by default beside the report."""
        if self.csv or not self.output:
            return self.csv
        page = Path(self.output)
        return str(page.with_name(f"{page.stem}_tables"))

    def write(
        self, found: FileAudit, document: dict[str, Any], chosen_fix: str
    ) -> list[str]:
        """Write everything; gives a line for each file."""
        lines = []
        text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        json_file = self.json_file
        csv_folder = self.csv_folder
        if json_file == STDOUT:
            lines.append(text.rstrip("\n"))
        elif json_file:
            lines.append(_written("json", json_file, text))
        names = []
        if csv_folder:
            for name, table in report.tables(document).items():
                _written("csv", str(Path(csv_folder) / name), table)
                names.append(name)
            lines.append(f"csv: {csv_folder}")
        if self.output:
            beside = _beside(Path(self.output), json_file, csv_folder, names)
            lines.append(_written("report", self.output, report.page(document, beside)))
        if self.card:
            lines.append(_written("card", self.card, report.card(document)))
        if self.serve:
            served = json.dumps(
                fix_to_serve(found, chosen_fix), indent=1, allow_nan=False
            )
            lines.append(_written("serve", self.serve, served + "\n"))
        if json_file == STDOUT:
            return lines[:1]
        return lines


def _beside(page: Path, json_file: str, csv_folder: str, names: list[str]) -> list[str]:
    """The files that a page can link, as seen from its folder."""
    folder = page.resolve().parent
    files = [Path(csv_folder) / name for name in names]
    if json_file != STDOUT:
        files.insert(0, Path(json_file))
    beside = []
    for file in files:
        if file.resolve().is_relative_to(folder):
            beside.append(file.resolve().relative_to(folder).as_posix())
    return beside


def fix_to_serve(found: FileAudit, chosen: str) -> dict[str, Any]:
    """The fix that was chosen, as JSON; by default for the first verdict beyond.

    Parameters
    ----------
    found : FileAudit
    chosen : str
        A metric, a grouping, "one per label" or "one for all labels", "fixed-sequence" or
        "none": any of these, with commas.

    Returns
    -------
    dict
    """
    known = {
        "metric": tuple(next(iter(found.audits.values())).shares),
        "by": tuple(found.audits),
        "thresholds": (ONE_PER_LABEL, ONE_FOR_ALL_LABELS),
        "guarantee": tuple(str(each) for each in control.GUARANTEES),
    }
    options: dict[str, str] = {}
    for item in list_items(chosen):
        places = [option for option, names in known.items() if item in names]
        if not places:
            listed = "; ".join(", ".join(names) for names in known.values())
            raise ValueError(f"fix: found {item!r}; wanted some of {listed}")
        options[places[0]] = item
    order = [BEYOND, "cannot tell", WITHIN]
    worst = sorted(found.verdicts, key=lambda record: order.index(record.verdict))
    for record in worst:
        is_metric = options.get("metric", record.metric) == record.metric
        if is_metric and options.get("by", record.grouping) == record.grouping:
            options.setdefault("metric", record.metric)
            options.setdefault("by", record.grouping)
            break
    return found.served(**options)


def check_writable(
    option: str, path: Path, predictions: Path, is_folder: bool = False
) -> None:
    """A ValueError if a file could not be written there.

    Examples
    --------
    >>> check_writable("json", Path("/"), Path("my.csv"))
    Traceback (most recent call last):
        ...
    ValueError: json: / is a folder; wanted a file
    """
    if is_folder and path.exists() and not path.is_dir():
        raise ValueError(f"{option}: {path} is a file; wanted a folder")
    if not is_folder:
        try:
            paths.check_replaceable(path)
        except ValueError as error:
            raise ValueError(f"{option}: {error}") from None
    # The folders of a path may not be there yet, and are made when it is written.
    is_same = path.resolve() == predictions.resolve()
    if path.exists() and predictions.exists():
        is_same = is_same or path.samefile(predictions)
    if is_same:
        raise ValueError(f"{option}: {path} is the file of predictions itself")
    folder = path if is_folder else path.parent
    while not folder.exists():
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        raise ValueError(f"{option}: {path} cannot be written: {reason}") from None


def _written(what: str, name: str, text: str) -> str:
    """Write a file whole or not at all; gives a line that says so."""
    with paths.atomic_write(Path(name)) as partial:
        partial.write_text(text, encoding="utf-8")
    return f"{what}: {name}"


def _as_utf8(text: str) -> str:
    """Bytes of a name that are no UTF-8 become escapes.

    Examples
    --------
    >>> print(_as_utf8("caf\\udce9.csv"))
    caf\\udce9.csv
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _complain(text: str, command: str = "audit") -> None:
    """One line on the error stream, in which nothing acts on a terminal."""
    _tolerate(sys.stderr)
    print(f"cfhelpers {command}: {harmless(' '.join(text.split()))}", file=sys.stderr)


def _say(text: str, command: str = "audit") -> None:
    """Print, also where the reader has closed the pipe or knows few characters."""
    if not text:
        return
    _tolerate(sys.stdout)
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # Python flushes once more at the end, which must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _complain("the output was closed before its end", command)


def _tolerate(stream: Any) -> None:
    """Characters that a terminal does not know become escapes."""
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")


def _parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    parser = argparse.ArgumentParser(
        prog="cfhelpers", description="Conformal fairness.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(required=True, dest="command", metavar="command")
    _add_audit(commands)
    planning_command.add_parser(commands)
    monitoring_command.add_parser(commands)
    installation.add_parser(commands)
    return parser


def _add_audit(commands: Any) -> None:
    """The options of the audit: those of `audit_file`, with its defaults."""
    command = commands.add_parser(
        "audit",
        help="audit a file of predictions",
        description="Audit a file with a row per person: CSV, parquet, feather, Excel.",
        epilog="Exit status: 0 done, 1 the gate says no, 2 a file or an option is wrong.",
        allow_abbrev=False,
    )
    command.set_defaults(run=run_audit)
    command.add_argument("predictions", type=Path, help="the file")
    for name, text in OUTPUTS.items():
        command.add_argument(f"--{name}", default="", help=text)
    command.add_argument(
        "--fix",
        default="",
        help=(
            "which fix --serve writes, with commas: metric, grouping, one per label or "
            "one for all labels, fixed-sequence or none"
        ),
    )
    command.add_argument("--compare", default="", help="the JSON of an earlier audit")
    command.add_argument(
        "--fail-on",
        default="",
        choices=["beyond", "undecided"],
        help="exit status 1 if a verdict is beyond, or if one is not within",
    )
    parameters = inspect.signature(audit_file).parameters
    for name, text in HELP.items():
        default = parameters[name].default
        option = f"--{name.replace('_', '-')}"
        if isinstance(default, bool):
            command.add_argument(option, action="store_true", help=text)
            continue
        if default != "":
            text = f"{text} (default {default})"
        command.add_argument(option, type=type(default), default=default, help=text)

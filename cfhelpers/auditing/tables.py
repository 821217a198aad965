"""The tables of an audit as CSV, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# A spreadsheet takes a cell that begins with one of these for a formula.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")
VERDICT_COLUMNS = (
    "grouping",
    "metric",
    "verdict",
    "kind",
    "joint_verdict",
    "estimate",
    "lower",
    "upper",
    "compare",
    "closeness",
    "label",
    "condition",
    "people",
    "people_needed",
    "vacuous",
    "sentence",
)
FIX_COLUMNS = (
    "thresholds",
    "rule",
    "delta",
    "rows",
    "mean_set_size",
    "coverage",
    "estimate",
    "lower",
    "upper",
    "closeness",
    "verdict",
    "vacuous",
    "note",
)
CELL_COLUMNS = (
    "grouping",
    "metric",
    "label",
    "condition",
    "group",
    "n",
    "covered",
    "share",
    "lower",
    "upper",
    "effective",
)
GROUP_COLUMNS = ("group", "n", "mean_set_size", "coverage", "lower", "upper")


def csv_tables(document: Mapping[str, Any]) -> dict[str, str]:
    """All tables of the document, as CSV by the name of their file.

    Text that a spreadsheet would take for a formula has an apostrophe before it; the
    JSON document has it as it is.

    Parameters
    ----------
    document : dict
        What `audit_document` gives.

    Returns
    -------
    dict of str
        verdicts.csv, groups.csv, cells.csv and fixes.csv.
    """
    verdicts = document["verdicts"]
    return {
        "verdicts.csv": csv_text(VERDICT_COLUMNS, _rows(verdicts, VERDICT_COLUMNS)),
        "groups.csv": csv_text(
            ("grouping", *GROUP_COLUMNS), _group_rows(document["groupings"])
        ),
        "cells.csv": csv_text(CELL_COLUMNS, _rows(document["cells"], CELL_COLUMNS)),
        "fixes.csv": _fixes_csv(verdicts, document["labels"]),
    }


def harmless_cell(value: Any) -> Any:
    """Text that no spreadsheet takes for a formula; numbers as they are.

    Examples
    --------
    >>> harmless_cell("=HYPERLINK(1)"), harmless_cell("-5 to 0"), harmless_cell(-0.5)
    ("'=HYPERLINK(1)", "'-5 to 0", -0.5)
    """
    if value is None:
        return ""
    if isinstance(value, str) and value.lstrip(" ").startswith(FORMULA_STARTS):
        return f"'{value}"
    return value


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table as CSV, with its header; None is empty.

    Examples
    --------
    >>> csv_text(["group", "n"], [["=1+1", 3], ["a, b", None]])
    'group,n\\n\\'=1+1,3\\n"a, b",\\n'
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([harmless_cell(column) for column in columns])
    for row in rows:
        writer.writerow([harmless_cell(value) for value in row])
    return text.getvalue()


def _rows(
    records: Iterable[Mapping[str, Any]], columns: Sequence[str]
) -> Iterable[list[Any]]:
    """The values of some columns, record by record."""
    for record in records:
        yield [record[column] for column in columns]


def _group_rows(groupings: Iterable[Mapping[str, Any]]) -> Iterable[list[Any]]:
    """Every group of every grouping."""
    for grouping in groupings:
        for row in _rows(grouping["groups"], GROUP_COLUMNS):
            yield [grouping["by"], *row]


def _fixes_csv(verdicts: Iterable[Mapping[str, Any]], labels: Sequence[str]) -> str:
    """The thresholds that were searched, a row each, with two columns per label."""
    columns = ["grouping", "metric", *FIX_COLUMNS]
    for label in labels:
        columns += [f"score at most, {label}", f"probability at least, {label}"]
    rows = []
    for verdict in verdicts:
        for fix in verdict["fixes"]:
            row = [verdict["grouping"], verdict["metric"]]
            row += [fix[column] for column in FIX_COLUMNS]
            for threshold in fix["by_label"]:
                score = threshold["score"]
                if threshold["is_always_in_set"]:
                    score = "always in the set"
                row += [score, threshold["probability"]]
            rows.append(row)
    return csv_text(columns, rows)

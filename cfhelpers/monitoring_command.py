"""The command `cfhelpers monitor`: count a file of new people, and say how it stands."""

import argparse
import hashlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cfhelpers.auditing.reading import (
    PREFIXES,
    SCORES,
    SETS,
    USUAL_NAMES,
    list_items,
    load_predictions,
    read_table,
)
from cfhelpers.auditing.verdicts import BEYOND, WITHIN
from cfhelpers.conformal import prediction_sets
from cfhelpers.metrics import get_metric
from cfhelpers.monitoring import Monitor

GATES = ("beyond", "undecided")


def add_parser(commands: Any) -> None:
    """Add the command to those of the command line."""
    command = commands.add_parser(
        "monitor",
        help="watch a deployed predictor",
        description=(
            "Count the people of a file into a state, and say whether groups are within "
            "what is allowed. Options of the first call are kept in the state."
        ),
    )
    command.add_argument("state", type=Path, help="JSON file, made if there is none")
    command.add_argument(
        "new", type=Path, nargs="?", help="CSV or parquet file of people"
    )
    command.add_argument("--metric", help="at the first call; default equal_opportunity")
    command.add_argument("--closeness", type=float, help="at the first call")
    command.add_argument("--confidence", type=float, help="at the first call")
    command.add_argument(
        "--declared",
        help="at the first call: the groups that are watched, with commas; others are "
        "then refused",
    )
    command.add_argument("--positive-labels", help="at the first call, with commas")
    command.add_argument(
        "--windows", help="at the first call: dates where windows begin, with commas"
    )
    command.add_argument("--label", default="", help="column of the true labels")
    command.add_argument("--groups", default="", help="column or columns of groups")
    command.add_argument("--columns", default="", help="columns of the sets")
    command.add_argument("--date", help="column of dates, or a date for the whole file")
    command.add_argument("--threshold", help="of scores, one or one per label")
    command.add_argument("--merge", type=Path, help="add the counts of another state")
    command.add_argument("--picture", type=Path, help="PNG or PDF file for the sequence")
    command.add_argument(
        "--fail-on", choices=GATES, help="exit with status 1 if this is the verdict"
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0: done, 1: the gate says no, 2: a file or an option is wrong."""
    try:
        monitor = _monitor(options)
        if options.new is not None:
            _count(monitor, options)
        if options.merge is not None:
            monitor = monitor.merge(Monitor.load(options.merge, monitor.metric))
        if options.picture is not None:
            monitor.plot().savefig(options.picture)
        monitor.save(options.state)
    except (ValueError, ImportError, OSError) as error:
        print(f"cfhelpers monitor: {error}", file=sys.stderr)
        return 2
    print(f"{monitor.metric.name}, {monitor.people:,} people: {monitor.verdict}")
    return int(_is_stopped(monitor, options.fail_on))


def _is_stopped(monitor: Monitor, gate: str | None) -> bool:
    """Whether the gate says no, to all people or to those of the last window."""
    words = [monitor.word]
    if monitor.windows is not None and monitor.people:
        words.append(monitor.window_table["verdict"].iloc[-1])
    if gate == "beyond":
        return BEYOND in words
    if gate == "undecided":
        return any(word != WITHIN for word in words)
    return False


def _monitor(options: argparse.Namespace) -> Monitor:
    """The monitor of the state, or a new one; options must agree with the state."""
    if not options.state.exists():
        if options.new is None:
            raise ValueError(
                f"{options.state}: there is no such state; wanted a file too"
            )
        return _new_monitor(options)
    monitor = Monitor.load(options.state)
    asked = {
        "metric": options.metric,
        "closeness": options.closeness,
        "confidence": options.confidence,
        "declared": None if options.declared is None else list_items(options.declared),
        "windows": None if options.windows is None else list_items(options.windows),
        "positive_labels": options.positive_labels
        and list_items(options.positive_labels),
    }
    state = monitor.to_dict()
    for name, value in asked.items():
        if value is not None and value != state[name]:
            raise ValueError(
                f"{name}: found {value!r}; the state was made with {state[name]!r}, and "
                "a promise needs one choice from the start"
            )
    return monitor


def _new_monitor(options: argparse.Namespace) -> Monitor:
    """A monitor by the options of the first call."""
    chosen: dict[str, Any] = {}
    if options.confidence is not None:
        chosen["confidence"] = options.confidence
    if options.declared is not None:
        chosen["groups"] = list_items(options.declared)
    if options.positive_labels is not None:
        chosen["positive_labels"] = list_items(options.positive_labels)
    if options.windows is not None:
        chosen["windows"] = list_items(options.windows)
    metric = options.metric or "equal_opportunity"
    return Monitor(get_metric(metric), options.closeness, **chosen)


def _count(monitor: Monitor, options: argparse.Namespace) -> None:
    """Count the people of the file, which may not be counted twice."""
    frame = read_table(options.new)
    batch = hashlib.sha256(options.new.read_bytes()).hexdigest()[:16]
    if batch in monitor.batches:
        raise ValueError(f"{options.new.name} was counted before; nobody may count twice")
    date = options.date
    if date is not None and date in frame.columns:
        date = frame[date]
    has_label = bool(options.label) or _usual(frame, "label") is not None
    if monitor.metric.needs_labels or has_label:
        sets, y, groups = _with_labels(options)
    else:
        sets, y, groups = _without_labels(frame, options)
    monitor.update(sets, y, groups, date=date, batch=batch)


def _with_labels(options: argparse.Namespace) -> tuple[pd.DataFrame, Any, Any]:
    """Sets, labels and groups of a file that the audit could read."""
    found = load_predictions(options.new, options.label, options.groups, options.columns)
    sets = found.values
    if found.kind == SCORES and options.threshold is not None:
        limits = [float(item) for item in list_items(options.threshold)]
        sets = prediction_sets(sets, limits[0] if len(limits) == 1 else limits)
    elif found.kind != SETS:
        raise ValueError(
            f"columns: found {found.kind}; wanted the sets as they were served "
            f"({' '.join(PREFIXES[SETS])}), or scores with a threshold"
        )
    table = pd.DataFrame(sets.astype(bool), columns=_as_numbers(found.label_names))
    y = np.array(table.columns, object)[found.y]
    *_, groups = found.groups.values()  # by all columns together
    return table, y, np.array(groups.names, object)[groups.codes]


def _without_labels(
    frame: pd.DataFrame, options: argparse.Namespace
) -> tuple[pd.DataFrame, None, Any]:
    """Sets and groups of a file without a column of labels."""
    columns = list_items(options.columns)
    if not columns:
        columns = [
            name for name in frame.columns if name.lower().startswith(PREFIXES[SETS])
        ]
    group_columns = list_items(options.groups) or [_usual(frame, "groups") or "group"]
    listed = ", ".join(frame.columns)
    for name in [*columns, *group_columns]:
        if name not in frame.columns:
            raise ValueError(f"there is no column {name!r}; the file has {listed}")
    if len(columns) < 2:
        raise ValueError(f"columns: found {columns}; wanted sets, set_… per label")
    names = []
    for column in columns:
        prefix = next((p for p in PREFIXES[SETS] if column.lower().startswith(p)), "")
        names.append(column[len(prefix) :])
    table = frame[columns].set_axis(_as_numbers(names), axis=1)
    people = frame[group_columns].astype(object)
    for name in group_columns:
        is_missing = people[name].isna().to_numpy()
        if is_missing.any():
            row = int(is_missing.argmax()) + 1
            raise ValueError(f"column {name!r}, row {row}: found nothing; wanted a group")
    return table, None, people.astype(str).agg(" · ".join, axis=1).to_numpy(object)


def _usual(frame: pd.DataFrame, option: str) -> str | None:
    """A column with a usual name, if there is one."""
    for column in frame.columns:
        if column.lower() in USUAL_NAMES[option]:
            return column
    return None


def _as_numbers(names: list[str]) -> list[Any]:
    """Labels 0 to K - 1 as integers, so that label 0 is the one that is not compared."""
    if names == [str(place) for place in range(len(names))]:
        return list(range(len(names)))
    return names

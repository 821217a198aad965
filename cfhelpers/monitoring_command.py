"""The command `cfhelpers monitor`: count a file of new people, and say how it stands."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cfhelpers._checks import plain
from cfhelpers._locking import one_at_a_time
from cfhelpers.auditing.grouping import BETWEEN_COLUMNS, as_text
from cfhelpers.auditing.reading import (
    IS_TRUE,
    PREFIXES,
    SCORES,
    SETS,
    USUAL_NAMES,
    list_items,
    named_columns,
    read_table,
)
from cfhelpers.auditing.verdicts import BEYOND, WITHIN
from cfhelpers.conformal import prediction_sets
from cfhelpers.metrics import get_metric
from cfhelpers.monitoring import Monitor
from cfhelpers.paths import atomic_write

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
        allow_abbrev=False,
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
    command.add_argument(
        "--threshold",
        help="of scores, one, or one per label in the order of their columns",
    )
    command.add_argument("--merge", type=Path, help="add the counts of another state")
    command.add_argument("--picture", type=Path, help="PNG or PDF file for the sequence")
    command.add_argument(
        "--fail-on", choices=GATES, help="exit with status 1 if this is the verdict"
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0: done, 1: the gate says no; else an error that the command line tells."""
    new = None
    if options.new is not None:
        new = _People.of(options)
    elif not options.state.exists():
        raise ValueError(f"{options.state}: there is no such state; wanted a file too")
    with one_at_a_time(options.state):
        monitor = _renewed(options, new)
    print(f"{monitor.metric.name}, {monitor.people:,} people: {monitor.verdict}")
    return int(_is_stopped(monitor, options.fail_on))


def _renewed(options: argparse.Namespace, new: _People | None) -> Monitor:
    """The monitor of the state with all that is asked for, which is saved."""
    before = _bytes_of(options.state)
    monitor = _monitor(options, new)
    if new is not None:
        _count(monitor, new, options)
    if options.merge is not None:
        monitor = monitor.merge(Monitor.load(options.merge, monitor.metric))
    if options.picture is not None:
        with atomic_write(options.picture) as partial:
            monitor.plot().savefig(partial)
    # Where a file system has no locks, another run may have come between.
    if _bytes_of(options.state) != before:
        raise ValueError(
            f"{options.state}: another run changed it meanwhile, and nobody was counted "
            "here; run this again"
        )
    monitor.save(options.state)
    return monitor


def _bytes_of(state: Path) -> bytes | None:
    """What a state holds now; None where there is none."""
    return state.read_bytes() if state.is_file() else None


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


@dataclass(frozen=True)
class _People:
    """A file of new people, and what it holds by the options."""

    frame: pd.DataFrame
    sets: pd.DataFrame  # columns are the labels
    groups: np.ndarray
    batch: str

    @classmethod
    def of(cls, options: argparse.Namespace) -> _People:
        """The people of the file that the options name."""
        as_written = [*list_items(options.groups), options.groups, options.label]
        table = read_table(options.new, as_written)
        frame = table.frame
        batch = table.sha256[:16]
        return cls(frame, _sets(frame, options), _groups(frame, options), batch)

    @property
    def label_names(self) -> list[Any]:
        return self.sets.columns.tolist()

    def labels(self, option: str) -> np.ndarray:
        """True labels by their names; a row without one is refused."""
        [column] = _columns(self.frame, option, "label")[:1] or [""]
        if not column:
            listed = ", ".join(map(str, self.frame.columns))
            raise ValueError(f"label: name the column of true labels, one of {listed}")
        texts = as_text(self.frame[column], "label").astype(object)
        by_text = {str(name): name for name in self.label_names}
        if set(by_text) == {"0", "1"}:
            texts = texts.map(lambda text: IS_TRUE.get(str(text).lower(), text))
        wanted = f"one of {', '.join(by_text)}"
        _refuse_first(~texts.isin(list(by_text)), self.frame[column], wanted)
        return np.array([by_text[text] for text in texts], object)


def _monitor(options: argparse.Namespace, new: _People | None) -> Monitor:
    """The monitor of the state, or a new one; options must agree with the state."""
    if new is not None and not options.state.exists():
        return _new_monitor(options, new)
    monitor = Monitor.load(options.state)
    asked = {
        "metric": options.metric,
        "closeness": options.closeness,
        "confidence": options.confidence,
        "declared": _items(options.declared),
        "windows": _items(options.windows),
        "positive_labels": _items(options.positive_labels),
    }
    state = monitor.to_dict()
    for name, value in asked.items():
        known = state[name]
        if isinstance(known, list):
            known = [str(each) for each in known]
        if value is not None and value != known:
            raise ValueError(
                f"{name}: found {value!r}; the state was made with {known!r}, and "
                "a promise needs one choice from the start"
            )
    return monitor


def _items(text: str | None) -> list[str] | None:
    """The items of an option; None where it was not given."""
    return None if text is None else list_items(text)


def _new_monitor(options: argparse.Namespace, new: _People) -> Monitor:
    """A monitor by the options of the first call."""
    chosen: dict[str, Any] = {}
    if options.confidence is not None:
        chosen["confidence"] = options.confidence
    if options.declared is not None:
        chosen["groups"] = list_items(options.declared)
    if options.positive_labels is not None:
        by_text = {str(name): name for name in new.label_names}
        items = list_items(options.positive_labels)
        chosen["positive_labels"] = [by_text.get(item, item) for item in items]
    if options.windows is not None:
        chosen["windows"] = list_items(options.windows)
    metric = options.metric or "equal_opportunity"
    return Monitor(get_metric(metric), options.closeness, **chosen)


def _count(monitor: Monitor, new: _People, options: argparse.Namespace) -> None:
    """Count the people of the file, which may not be counted twice."""
    if new.batch in monitor.batches:
        raise ValueError(f"{options.new.name} was counted before; nobody may count twice")
    date = options.date
    if date is not None and date in new.frame.columns:
        date = new.frame[date]
    y = None
    if monitor.metric.needs_labels:
        y = new.labels(options.label)
    monitor.update(new.sets, y, new.groups, date=date, batch=new.batch)


def _sets(frame: pd.DataFrame, options: argparse.Namespace) -> pd.DataFrame:
    """The sets as they were served, or from scores and a threshold."""
    columns = _columns(frame, options.columns, "columns")
    kind = SETS if options.threshold is None else SCORES
    if not columns:
        roles = _columns(frame, options.groups, "groups")
        roles += _columns(frame, options.label, "label")
        for name in frame.columns.astype(str):
            if name.lower().startswith(PREFIXES[kind]) and name not in roles:
                columns.append(name)
    _refuse_twice(columns, columns)
    if len(columns) < 2:
        raise ValueError(
            f"columns: found {columns}; wanted the sets as they were served, a column "
            "set_… per label, or scores, score_…, with a threshold"
        )
    if kind == SCORES:
        scores = frame[columns].apply(pd.to_numeric, errors="coerce")
        for name in columns:
            _refuse_first(scores[name].isna(), frame[name], "a number")
        limits = _thresholds(options.threshold)
        values = prediction_sets(scores, limits[0] if len(limits) == 1 else limits)
    else:
        texts = frame[columns].apply(as_text, what="label").astype(object)
        marks = texts.map(lambda text: IS_TRUE.get(str(text).lower(), text))
        for name in columns:
            _refuse_first(~marks[name].isin(["0", "1"]), frame[name], "0 or 1")
        values = (marks == "1").to_numpy()
    names = [_without_prefix(str(name), kind) for name in columns]
    return pd.DataFrame(values, columns=_as_numbers(names))


def _thresholds(text: str) -> list[float]:
    """The thresholds that an option holds."""
    try:
        return [float(item) for item in list_items(text)]
    except ValueError:
        raise ValueError(
            f"threshold: found {text!r}; wanted a number, or one per label with commas"
        ) from None


def _groups(frame: pd.DataFrame, options: argparse.Namespace) -> np.ndarray:
    """Everyone's group, by all columns together; a row without one is refused."""
    columns = _columns(frame, options.groups, "groups")
    if not columns:
        listed = ", ".join(map(str, frame.columns))
        raise ValueError(f"groups: name the column of groups, one of {listed}")
    texts = [as_text(frame[name], "group").astype(object) for name in columns]
    for name, own in zip(columns, texts, strict=True):
        _refuse_first(own.isna(), frame[name], "a group")
    people = texts[0]
    for own in texts[1:]:
        people = people + BETWEEN_COLUMNS + own
    return people.to_numpy(object)


def _columns(frame: pd.DataFrame, given: str, option: str) -> list[str]:
    """The columns that an option names, or else those with a usual name."""
    every = [str(name) for name in frame.columns]
    columns = named_columns(given, every)
    for name in columns:
        if name not in every:
            listed = ", ".join(every)
            raise ValueError(
                f"{option}: there is no column {name!r}; the file has {listed}"
            )
    usual = [name for name in every if name.lower() in USUAL_NAMES.get(option, ())]
    _refuse_twice(columns or usual, every)
    return columns or usual


def _refuse_twice(names: list[str], every: list[str]) -> None:
    """A ValueError if one of the columns occurs twice."""
    for name in names:
        if every.count(name) > 1:
            raise ValueError(
                f"found the column {name!r} twice; wanted another name for each column"
            )


def _without_prefix(column: str, kind: str) -> str:
    """The name of the label whose column it is."""
    for prefix in PREFIXES[kind]:
        if column.lower().startswith(prefix):
            return column[len(prefix) :]
    return column


def _refuse_first(is_wrong: pd.Series, column: pd.Series, wanted: str) -> None:
    """A ValueError that names the first row that is wrong, if there is one."""
    if not is_wrong.any():
        return
    row = int(is_wrong.to_numpy().argmax())
    entry = column.iloc[row]
    found = "nothing" if pd.isna(entry) or entry == "" else repr(plain(entry))
    raise ValueError(
        f"column {str(column.name)!r}, row {row + 1}: found {found}; wanted {wanted}"
    )


def _as_numbers(names: list[str]) -> list[Any]:
    """Labels 0 to K - 1 as integers, so that label 0 is the one that is not compared."""
    if sorted(names) == sorted(str(place) for place in range(len(names))):
        return [int(name) for name in names]
    return names

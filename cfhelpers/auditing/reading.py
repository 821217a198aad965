"""Files of predictions: what they may hold, what is taken for what, what is refused.

Bad files end here, in a `ValueError` that names the column and the row. Rows are counted
from 1, after the header. What was taken for what is kept as sentences.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from cfhelpers._checks import SUM_TOLERANCE, one_of, plain
from cfhelpers.auditing.grouping import (
    BETWEEN_COLUMNS,
    as_text,
    groups_by,
    is_missing,
    missing_notes,
)
from cfhelpers.auditing.opening import Table, open_table
from cfhelpers.auditing.weighting import RULES, Weights
from cfhelpers.auditing.words import composed, counted, harmless
from cfhelpers.groups import Groups

PROBABILITIES = "probabilities"
SCORES = "scores"
SETS = "sets"
DECISIONS = "decisions"
# How the columns of each kind begin; the rest of the column's name is the label.
PREFIXES = {
    PROBABILITIES: ("p_", "prob_", "proba_"),
    SCORES: ("score_",),
    SETS: ("set_", "in_set_"),
    DECISIONS: (),
}
# Columns that are taken where none is named.
USUAL_NAMES = {
    "label": ("label", "y", "y_true", "true_label", "target"),
    "groups": ("group",),
    "part": ("part", "split"),
}
# One column that holds the probability of one label, or what was decided.
ONE_PROBABILITY = (
    *("p", "prob", "proba", "probability", "p_hat", "y_prob", "y_proba"),
    *("pred_prob", "pred_proba", "predicted_probability"),
)
ONE_DECISION = (
    *("decision", "prediction", "predicted", "pred", "y_pred", "y_hat", "yhat"),
    *("predicted_label", "predicted_class"),
)
# Where a file holds several kinds, the first of these is used.
PREFERRED = (SETS, PROBABILITIES, SCORES, DECISIONS)
IS_CALIBRATION = {"calibration": True, "cal": True, "test": False, "audit": False}
IS_TRUE = {"true": "1", "false": "0"}
MISSING_RULES = ("separate", "exclude")
# By how much a sum of rounded probabilities may be off: per label, and at most.
ROUNDING_PER_LABEL = 0.005
MOST_ROUNDING = 0.05
MOST_LABELS = 200  # in a column of decisions; more are no labels


@dataclass(frozen=True)
class Predictions:
    """A file of predictions, with its columns found and checked.

    Attributes
    ----------
    name : str
        The name of the file.
    kind : str
        What it holds: probabilities, scores, sets or decisions.
    label_names : list of str
    values : float (n, K)
        Probabilities, scores, or 0 and 1 for sets.
    y : integers (n,)
        The true label of every row, as a place in `label_names`.
    groups : dict of Groups
        By each group column, and by their combinations.
    calibration : bool (n,) or None
        Which rows are for calibration; None where the file does not say.
    ids : Series (n,) or None
        Who each row is; None where no column was named.
    weights : Weights or None
    weights_column : str
    columns : list of str
        Of the values, one per label, or the only one.
    positive : str
        The label whose probability the only column holds, else empty.
    missing : dict
        Which rows have no group, bool (n,), by the keys of `groups`.
    notes : list of str
        How the file was read, in sentences.
    sha256 : str
        Of the file.
    n_rows : int
        Rows of the file, those left out among them.
    """

    name: str
    kind: str
    label_names: list[str]
    values: np.ndarray
    y: np.ndarray
    groups: dict[str, Groups]
    calibration: np.ndarray | None
    ids: pd.Series | None = None
    weights: Weights | None = None
    weights_column: str = ""
    columns: list[str] = field(default_factory=list)
    positive: str = ""
    missing: dict[str, np.ndarray] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    sha256: str = ""
    n_rows: int = 0


def load_predictions(
    path: str | os.PathLike[str],
    label: str = "",
    groups: str | Sequence[str] = "",
    columns: str | Sequence[str] = "",
    kind: str = "",
    part: str = "",
    id: str = "",
    *,
    positive_labels: str | Sequence[Any] = "",
    weights: str = "",
    replicates: str = "",
    missing: str = "separate",
    min_group: int = 0,
    group_order: str | Sequence[str] = "",
) -> Predictions:
    """Read a file of predictions, find its columns, and check every entry.

    Parameters are those of `audit_file`.

    Returns
    -------
    Predictions

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "predictions.csv"
    ...     _ = file.write_text("set_no;set_yes;y;group\\n1;0;no;a\\n1;1;yes;b\\n")
    ...     found = load_predictions(file)
    >>> found.kind, found.label_names, found.y.tolist()
    ('sets', ['no', 'yes'], [0, 1])
    """
    one_of(missing, "missing", MISSING_RULES)
    as_written = [*list_items(groups), *list_items(label), *list_items(part)]
    is_number = _holds_numbers(columns, weights, [*as_written, *list_items(id), groups])
    table = open_table(Path(path), is_number)
    frame = table.frame
    notes = list(table.notes)
    n_rows = len(frame)
    roles = _Roles.of(frame, label, groups, part, id, weights)
    kind, value_columns = _value_columns(roles.others, columns, kind, notes)
    _refuse_twice(frame, [*roles.used, *value_columns])
    group_frame = _group_frame(frame, roles, notes)
    if missing == "exclude":
        has_groups = ~is_missing(group_frame)
        frame, group_frame = _without_missing(frame, group_frame, has_groups, notes)
    labels = as_text(frame[roles.label], "label")
    _refuse_copies(group_frame, labels, roles.label)
    label_names, values, positive = _label_values(
        frame, value_columns, kind, labels, positive_labels, notes
    )
    y = _label_codes(labels, frame[roles.label], label_names)
    order = [composed(str(name)) for name in list_items(group_order)]
    groupings = _groupings(group_frame, min_group, order, notes)
    calibration = None
    if roles.part:
        calibration = _calibration_rows(frame[roles.part])
    return Predictions(
        name=harmless(Path(path).name),
        kind=kind,
        label_names=label_names,
        values=values,
        y=y,
        groups=groupings,
        calibration=calibration,
        ids=_ids(frame, roles.id, notes),
        weights=_weights(frame, roles, replicates, notes),
        weights_column=roles.weights,
        columns=value_columns,
        positive=positive,
        missing=_missing_rows(group_frame, list(groupings)),
        notes=notes,
        sha256=table.sha256,
        n_rows=n_rows,
    )


def read_table(path: Path, as_written: Sequence[str] = ()) -> Table:
    """A file as it is, with at least one row; text stays text.

    Columns that are named in `as_written` are text whatever their names begin with.
    """
    return open_table(path, _holds_numbers("", "", as_written))


def _holds_numbers(
    columns: Any, weights: str, as_written: Sequence[Any]
) -> Callable[[str], bool]:
    """Says of a column's name whether numbers are expected in it.

    Groups, labels and ids are text: 007 and 7 are two groups, also in a column p_code.
    """
    every: list[str] = []
    for prefixes in PREFIXES.values():
        every += prefixes
    named = {composed(str(name)) for name in list_items(columns)}
    named |= set(ONE_PROBABILITY)
    texts = {composed(str(name)) for name in as_written}
    weight = _weight_names(weights) if weights else None

    def is_number(name: str) -> bool:
        if name in texts:
            return False
        if weight and weight.fullmatch(name):
            return True
        is_value = name.lower().startswith(tuple(every)) or name in named
        return is_value and name.lower() not in ONE_DECISION

    return is_number


def _weight_names(weights: str) -> re.Pattern[str]:
    """What a column of weights and those of its replicates are called."""
    return re.compile(re.escape(composed(weights)) + r"(_?\d+)?", re.IGNORECASE)


@dataclass(frozen=True)
class _Roles:
    """Which column is what; empty where there is none."""

    label: str
    groups: list[str]
    part: str
    id: str
    weights: str
    others: list[str]

    @classmethod
    def of(
        cls,
        frame: pd.DataFrame,
        label: Any,
        groups: Any,
        part: Any,
        id: Any,
        weights: Any,
    ) -> _Roles:
        """The columns that were named, or have usual names."""
        names = [str(column) for column in frame.columns]
        [label_column] = _column_names(names, label, "label", least=1, most=1)
        group_columns = _column_names(names, groups, "groups", 1, len(names))
        for name in group_columns:
            if group_columns.count(name) > 1 and groups:
                raise ValueError(f"groups: found {name!r} twice; wanted each column once")
        if label_column in group_columns:
            raise ValueError(
                f"groups: found {label_column!r}, the column of the labels; "
                "wanted a column of groups"
            )
        [part_column] = _column_names(names, part, "part", 0, 1) or [""]
        [id_column] = _column_names(names, id, "id", 0, 1) or [""]
        [weights_column] = _column_names(names, weights, "weights", 0, 1) or [""]
        group_columns = list(dict.fromkeys(group_columns))
        used = {label_column, *group_columns, part_column, id_column, weights_column}
        others = [name for name in names if name not in used]
        return cls(
            label_column, group_columns, part_column, id_column, weights_column, others
        )

    @property
    def used(self) -> list[str]:
        """Every column that has a role."""
        single = [self.label, self.part, self.id, self.weights]
        return [*self.groups, *[name for name in single if name]]


def _refuse_twice(frame: pd.DataFrame, used: list[str]) -> None:
    """A ValueError if a column that is used occurs twice."""
    for name in used:
        if (frame.columns == name).sum() > 1:
            raise ValueError(
                f"found the column {name!r} twice; wanted another name for each column"
            )


def _group_frame(frame: pd.DataFrame, roles: _Roles, notes: list[str]) -> pd.DataFrame:
    """The group columns as text."""
    texts = {name: as_text(frame[name], "group") for name in roles.groups}
    group_frame = pd.DataFrame(texts, index=frame.index)
    notes += missing_notes(frame[roles.groups], group_frame)
    return group_frame


def _without_missing(
    frame: pd.DataFrame,
    group_frame: pd.DataFrame,
    has_groups: np.ndarray,
    notes: list[str],
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows that have all groups."""
    n_missing = int((~has_groups).sum())
    listed = " or ".join(group_frame.columns)
    if n_missing == len(frame):
        raise ValueError(f"missing: found no row that has {listed}; wanted some")
    if n_missing:
        notes.append(f"{counted(n_missing, 'row')} without {listed} left out.")
    kept = frame[has_groups].reset_index(drop=True)
    return kept, group_frame[has_groups].reset_index(drop=True)


def _refuse_copies(group_frame: pd.DataFrame, labels: pd.Series, label: str) -> None:
    """A ValueError if groups are the labels under another name."""
    for name in group_frame.columns:
        if group_frame[name].astype(object).equals(labels.astype(object)):
            raise ValueError(
                f"groups: column {name!r} has the same entries as the labels in "
                f"{label!r}; wanted a column of groups"
            )


def _groupings(
    group_frame: pd.DataFrame, min_group: int, order: list[str], notes: list[str]
) -> dict[str, Groups]:
    """Groups by each column, and by their combinations."""
    columns = list(group_frame.columns)
    every = [[name] for name in columns]
    if len(columns) > 1:
        every.append(columns)
    if order:
        known = set(pd.unique(group_frame.astype(object).to_numpy().ravel()))
        for name in order:
            if name not in known and name != "missing":
                raise ValueError(f"group_order: found {name!r}, which is no group")
    groupings = {}
    for chosen in every:
        groups = groups_by(group_frame[chosen], min_group, order, notes)
        groupings[BETWEEN_COLUMNS.join(chosen)] = groups
    return groupings


def _missing_rows(group_frame: pd.DataFrame, names: list[str]) -> dict[str, np.ndarray]:
    """Which rows have no group, by grouping."""
    found = {}
    for name in names:
        chosen = [name] if name in group_frame.columns else list(group_frame.columns)
        found[name] = is_missing(group_frame[chosen])
    return found


def _ids(frame: pd.DataFrame, column: str, notes: list[str]) -> pd.Series | None:
    """Who each row is."""
    if not column:
        return None
    ids = frame[column]
    _refuse_first(ids.isna(), ids, "an id")
    n_repeated = int(ids.duplicated().sum())
    if n_repeated:
        notes.append(
            f"Column {column!r}: {counted(n_repeated, 'row')} with an id that occurred "
            "before. Every row counts as a person, so intervals are too narrow."
        )
    return ids


def _weights(
    frame: pd.DataFrame, roles: _Roles, replicates: str, notes: list[str]
) -> Weights | None:
    """The weights, with replicates where the file has them beside."""
    if replicates:
        one_of(replicates, "replicates", (*RULES, "none"))
    if not roles.weights:
        if replicates:
            raise ValueError("replicates: wanted a column of weights too")
        return None
    values = _numbers(frame[roles.weights], notes)
    _refuse_first(values.isna(), frame[roles.weights], "a number")
    weights = values.to_numpy(np.float64)
    is_wrong = (weights < 0) | ~np.isfinite(weights)
    _refuse_first(is_wrong, frame[roles.weights], "a weight from 0 on")
    if not weights.any():
        raise ValueError(f"column {roles.weights!r}: every weight is 0")
    pattern = _weight_names(roles.weights)
    found = [name for name in roles.others if pattern.fullmatch(name)]
    if len(found) < 2 or replicates == "none":
        return Weights(weights)
    rule = replicates or "sdr"
    columns = []
    for name in found:
        own = _numbers(frame[name], [])
        _refuse_first(own.isna(), frame[name], "a number")
        columns.append(own.to_numpy(np.float64))
    notes.append(
        f"{len(found)} columns of replicate weights, {found[0]} to {found[-1]}, by the "
        f"rule {rule!r}."
    )
    return Weights(weights, np.column_stack(columns), rule)


def _column_names(
    all_columns: list[str], given: Any, option: str, least: int, most: int
) -> list[str]:
    """The columns that were named, or those with a usual name."""
    names = named_columns(given, all_columns)
    if not names:
        usual = USUAL_NAMES.get(option, ())
        names = [column for column in all_columns if column.lower() in usual]
        names = list(dict.fromkeys(names))
    listed = ", ".join(harmless(name) for name in all_columns)
    for name in names:
        if name not in all_columns:
            raise ValueError(
                f"{option}: there is no column {name!r}; the file has {listed}"
            )
    if not least <= len(names) <= most:
        wanted = "at least one column"
        if most == 1:
            wanted = "one column"
        raise ValueError(
            f"{option}: found {', '.join(names) or 'none'}; name {wanted} of {listed}"
        )
    return names


def named_columns(given: Any, all_columns: list[str]) -> list[str]:
    """The columns that an option names; one whose name has commas stays whole.

    Examples
    --------
    >>> named_columns("income, net", ["income, net", "sex"])
    ['income, net']
    >>> named_columns('sex,"income, net"', ["income, net", "sex"])
    ['sex', 'income, net']
    """
    if isinstance(given, str) and given.strip() and composed(given) in all_columns:
        return [composed(given)]
    return [composed(str(item)) for item in list_items(given)]


def _value_columns(
    others: list[str], given: Any, kind: str, notes: list[str]
) -> tuple[str, list[str]]:
    """What the file holds, and in which columns."""
    kinds = list(PREFIXES)
    if kind:
        kinds = [one_of(kind, "kind", tuple(PREFIXES))]
    found = {}
    for each in kinds:
        columns = _columns_of_kind(others, each)
        if columns:
            found[each] = columns
    if given:
        named = _column_names(others, given, "columns", 1, len(others))
        found = {kind or _kind_of(named, found): named}
    if found:
        used = next(each for each in PREFERRED if each in found)
        columns = found.pop(used)
        if len(columns) > 1 or used in (PROBABILITIES, DECISIONS):
            if used == DECISIONS and len(columns) > 1:
                raise ValueError(
                    f"columns: found {', '.join(columns)} for decisions; "
                    "wanted one, name it"
                )
            for each, unused in found.items():
                notes.append(
                    f"The file holds {used} ({', '.join(columns)}) and {each} "
                    f"({', '.join(unused)}). The {used} are used."
                )
            return used, columns
        found[used] = columns
    seen = [f"{each} ({', '.join(columns)})" for each, columns in found.items()]
    wanted = []
    for each in kinds:
        begins = " ".join(PREFIXES[each]) or ", ".join(ONE_DECISION[:2])
        wanted.append(f"{each} ({begins})")
    raise ValueError(
        f"columns: found {' and '.join(seen) or 'neither'}; "
        f"wanted one of {', '.join(wanted)}, a column per label, or name the columns"
    )


def _columns_of_kind(others: list[str], kind: str) -> list[str]:
    """The columns that look like this kind."""
    if kind == DECISIONS:
        return [name for name in others if name.lower() in ONE_DECISION]
    one = ONE_PROBABILITY if kind == PROBABILITIES else ()
    whole = [name for name in others if name.lower() in one]
    prefixes = PREFIXES[kind]
    columns = []
    for name in others:
        is_decision = name.lower() in ONE_DECISION
        if name.lower().startswith(prefixes) and name not in whole and not is_decision:
            columns.append(name)
    return columns or whole[:1]


def _kind_of(named: list[str], found: dict[str, list[str]]) -> str:
    """The kind whose prefix all named columns have; else they are probabilities."""
    for kind, columns in found.items():
        if set(named) <= set(columns):
            return kind
    return PROBABILITIES


def _label_name(column: str, kind: str) -> str:
    """The name of a column without its prefix."""
    for prefix in PREFIXES[kind]:
        if column.lower().startswith(prefix):
            return harmless(composed(column[len(prefix) :]))
    return harmless(column)


def _label_values(
    frame: pd.DataFrame,
    columns: list[str],
    kind: str,
    labels: pd.Series,
    positive_labels: Any,
    notes: list[str],
) -> tuple[list[str], np.ndarray, str]:
    """The names of the labels, a value for each, and which label one column is of."""
    if kind == DECISIONS:
        names, values = _decided_sets(frame[columns[0]], labels, notes)
        return names, values, ""
    if len(columns) == 1:
        return _both_probabilities(
            frame[columns[0]], labels, list_items(positive_labels), notes
        )
    names = [_label_name(column, kind) for column in columns]
    for place, name in enumerate(names):
        if name in names[:place]:
            raise ValueError(f"columns: found the label {name!r} twice in {columns}")
    return names, _checked_values(frame, columns, kind, notes), ""


def _both_probabilities(
    column: pd.Series, labels: pd.Series, positive_labels: list[Any], notes: list[str]
) -> tuple[list[str], np.ndarray, str]:
    """Probabilities of two labels from a column that holds those of one."""
    names = sorted(set(labels.dropna()))
    in_lower_case = {name.lower(): name for name in names}
    if set(in_lower_case) <= {"0", "1"}:
        names = ["0", "1"]
    elif set(in_lower_case) <= {"false", "true"}:
        names = [in_lower_case.get(name, name.title()) for name in ("false", "true")]
    own = _label_name(str(column.name), PROBABILITIES)
    given = [name for name in map(composed, map(str, positive_labels)) if name in names]
    is_plain = {name.lower() for name in names} in ({"0", "1"}, {"false", "true"})
    positive = ""
    if len(names) == 2 and is_plain:
        positive = own if own in names else names[1]
    elif len(names) == 2 and len(given) == 1:
        positive = given[0]
    if not positive:
        listed = ", ".join(names[:5])
        raise ValueError(
            f"columns: found {PROBABILITIES} ({column.name}); for two labels, name the "
            f"one they are of with --positive-labels ({listed}); "
            "else wanted a column per label"
        )
    numbers = _checked_values(column.to_frame(), [str(column.name)], PROBABILITIES, notes)
    other = next(name for name in names if name != positive)
    names = [other, positive]
    notes.append(
        f"Column {column.name!r} was taken for the probability of {positive!r}; that of "
        f"{other!r} is the rest to 1."
    )
    return names, np.column_stack([1 - numbers[:, 0], numbers[:, 0]]), positive


def _decided_sets(
    column: pd.Series, labels: pd.Series, notes: list[str]
) -> tuple[list[str], np.ndarray]:
    """Sets of one label each, and the names of the labels."""
    decided = as_text(column, "label").astype(object)
    _refuse_first(decided.isna(), column, "a label")
    true = set(labels.dropna())
    found = set(decided)
    if true <= {"0", "1"} and {name.lower() for name in found} <= set(IS_TRUE):
        decided = decided.str.lower().map(IS_TRUE)
        found = set(decided)
    names = sorted(true | found)
    if not found & true and true:
        raise ValueError(
            f"column {column.name!r}: found {', '.join(sorted(found)[:5])}; the labels "
            f"are {', '.join(sorted(true)[:5])}; wanted decisions by these names"
        )
    if len(names) > MOST_LABELS:
        raise ValueError(
            f"column {column.name!r}: found {len(names):,} different decisions and "
            f"labels; wanted at most {MOST_LABELS}"
        )
    if len(names) == 1:
        names = ["0", "1"] if names[0] in ("0", "1") else names
    if len(names) < 2:
        raise ValueError(
            f"column {column.name!r}: found {names[0]!r} only, as label and as decision; "
            "wanted at least two labels"
        )
    codes = pd.Index(names, dtype=object).get_indexer(pd.Index(decided, dtype=object))
    notes.append(
        f"Column {column.name!r} was taken for hard decisions: every set holds one label."
    )
    return names, np.eye(len(names))[codes]


def _numbers(column: pd.Series, notes: list[str]) -> pd.Series:
    """A column as numbers, NaN where an entry is none; decimal commas are read too."""
    if column.dtype.kind in "fiu":
        return column
    if column.dtype == bool:
        return column.astype(float)
    numbers = pd.to_numeric(column, errors="coerce")
    is_text = (numbers.isna() & column.notna()).to_numpy()
    if not is_text.any():
        return numbers
    text = column.astype(str).str.strip()
    is_comma = text.str.fullmatch(r"[-+]?\d*,\d+(?:[eE][-+]?\d+)?").to_numpy(bool)
    thousands = text.str.fullmatch(r"[1-9]\d{0,2},\d{3}").to_numpy(bool)  # not 0,125
    if (is_comma & is_text).any() and not thousands[is_text].all():
        notes.append(f"Column {column.name!r} has decimal commas.")
        return pd.to_numeric(text.str.replace(",", "."), errors="coerce")
    lowered = text.str.lower()
    if lowered[is_text].isin(["true", "false"]).all():
        as_number = lowered.map({"true": 1.0, "false": 0.0})
        return as_number.where(is_text, numbers).astype(float)
    return numbers


def _checked_values(
    frame: pd.DataFrame, columns: list[str], kind: str, notes: list[str]
) -> np.ndarray:
    """The numbers of the columns (n, K); rounded probabilities sum to 1 again."""
    arrays = []
    own_notes: list[str] = []
    for column in columns:
        numbers = _numbers(frame[column], own_notes)
        _refuse_first(numbers.isna(), frame[column], "a number")
        arrays.append(numbers.to_numpy(np.float64))
    if own_notes:
        notes.append("Decimal commas are read as points.")
    values = np.column_stack(arrays)
    if kind == SCORES:
        return values
    if kind == SETS:
        is_wrong = ~np.isin(values, (0, 1))
        wanted = "0 or 1"
    else:
        is_wrong = (values < 0) | (values > 1)
        wanted = "a probability from 0 to 1, not a percentage"
    for place in np.flatnonzero(is_wrong.any(axis=0)):
        _refuse_first(is_wrong[:, place], frame[columns[place]], wanted)
    if kind == SETS or len(columns) == 1:
        return values
    return _summing_to_one(values, columns)


def _summing_to_one(values: np.ndarray, columns: list[str]) -> np.ndarray:
    """Probabilities, rescaled where they were rounded."""
    sums = values.sum(axis=1, keepdims=True)
    off = np.abs(sums - 1)
    if off.max() > min(ROUNDING_PER_LABEL * len(columns), MOST_ROUNDING):
        row = int(off.argmax())
        raise ValueError(
            f"columns {', '.join(columns)}, row {row + 1}: "
            f"sum to {values[row].sum():.4g}; wanted 1"
        )
    if off.max() > SUM_TOLERANCE:
        return values / sums
    return values


def _refuse_first(is_wrong: ArrayLike, column: pd.Series, wanted: str) -> None:
    """A ValueError that names the first row that is wrong, if there is one."""
    is_wrong = np.asarray(is_wrong)
    if not is_wrong.any():
        return
    row = int(is_wrong.argmax())
    entry = column.iloc[row]
    found = "nothing"
    if isinstance(entry, str) and entry.strip().endswith("%"):
        wanted = f"{wanted}, without a per cent sign"
    if isinstance(entry, list | tuple | dict | np.ndarray):
        found = f"a {type(entry).__name__}"
        wanted = f"{wanted}, in a column of its own"
    elif not pd.isna(entry):
        found = repr(plain(entry))
        if isinstance(entry, str) and re.fullmatch(r"-?\d+(\.\d+)?", entry):
            found = entry
    raise ValueError(
        f"column {column.name!r}, row {row + 1}: found {found}; wanted {wanted}"
    )


def _label_codes(labels: pd.Series, column: pd.Series, names: list[str]) -> np.ndarray:
    """The label of every row, as a place in the names.

    A label 1.0 is the name 1, and True is 1 where names are 0 and 1.
    """
    codes, found = pd.factorize(labels.astype(object))
    known = pd.Index(names, dtype=object)
    texts = []
    for text in found:
        if text not in known and re.fullmatch(r"-?\d+\.0+", text):
            text = text.partition(".")[0]
        if text not in known and set(names) == {"0", "1"}:
            text = IS_TRUE.get(text.lower(), text)
        texts.append(text)
    places = known.get_indexer(pd.Index(texts, dtype=object))
    places = np.append(places, -1)  # the last entry is for rows without a label
    y = places[codes]
    _refuse_first(y < 0, column, f"one of {', '.join(names)}")
    return y


def _calibration_rows(column: pd.Series) -> np.ndarray:
    """Which rows are for calibration, bool (n,)."""
    marks = column.astype(str).str.strip().str.lower().map(IS_CALIBRATION)
    _refuse_first(marks.isna(), column, "calibration or test")
    if marks.nunique() < 2:
        raise ValueError(
            f"column {column.name!r}: every row is {column.iloc[0]!r}; "
            "wanted calibration and test rows"
        )
    return marks.to_numpy(bool)


def list_items(value: Any) -> list[Any]:
    """The items of a list, or of text with commas; none for empty text.

    An item with commas of its own stands in quotation marks.

    Examples
    --------
    >>> list_items('a, "b, c"')
    ['a', 'b, c']
    """
    if isinstance(value, list | tuple):
        return list(value)
    if value is None:
        return []
    text = composed(str(value))
    if not text:
        return []
    row = next(csv.reader([text], skipinitialspace=True))
    return [item.strip() for item in row if item.strip()]

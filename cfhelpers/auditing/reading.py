"""Files of predictions: how they are read, what they may hold, and what is refused.

Bad files end here, in a `ValueError` that names the column and the row. Rows are counted
from 1, after the header.
"""

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from cfhelpers._checks import SUM_TOLERANCE, one_of, plain
from cfhelpers.auditing.missing import groups_with_missing
from cfhelpers.groups import Groups

PROBABILITIES = "probabilities"
SCORES = "scores"
SETS = "sets"
# How the columns of each kind begin; the rest of the column's name is the label.
PREFIXES = {
    PROBABILITIES: ("p_", "prob_", "proba_"),
    SCORES: ("score_",),
    SETS: ("set_", "in_set_"),
}
# Columns that are taken where none is named.
USUAL_NAMES = {
    "label": ("label", "y", "y_true", "true_label", "target"),
    "groups": ("group",),
    "part": ("part", "split"),
}
IS_CALIBRATION = {"calibration": True, "cal": True, "test": False, "audit": False}
# By how much a sum of rounded probabilities may be off: per label, and at most.
ROUNDING_PER_LABEL = 0.005
MOST_ROUNDING = 0.05
FEW_GROUPS = 20  # so many groups are taken for groups even in a small file


@dataclass(frozen=True)
class Predictions:
    """A file of predictions, with its columns found and checked.

    Attributes
    ----------
    name : str
        The name of the file.
    kind : str
        What it holds: probabilities, scores or sets.
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
    """

    name: str
    kind: str
    label_names: list[str]
    values: np.ndarray
    y: np.ndarray
    groups: dict[str, Groups]
    calibration: np.ndarray | None
    ids: pd.Series | None = None


def load_predictions(
    path: str | os.PathLike[str],
    label: str = "",
    groups: str | Sequence[str] = "",
    columns: str | Sequence[str] = "",
    kind: str = "",
    part: str = "",
    id: str = "",
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
    frame = read_table(Path(path))
    all_columns = [str(column) for column in frame.columns]
    [label_column] = _column_names(all_columns, label, "label", least=1, most=1)
    group_columns = _column_names(all_columns, groups, "groups", 1, len(all_columns))
    part_columns = _column_names(all_columns, part, "part", least=0, most=1)
    id_columns = _column_names(all_columns, id, "id", least=0, most=1)
    used = {label_column, *group_columns, *part_columns, *id_columns}
    others = [column for column in all_columns if column not in used]
    kind, value_columns = _value_columns(others, columns, kind)
    label_names = [_label_name(column, kind) for column in value_columns]
    values = _checked_values(frame, value_columns, kind)
    y = _label_codes(frame[label_column], label_names)
    groupings = {name: _groups_by(frame[[name]]) for name in group_columns}
    if len(groupings) > 1:
        groupings[" × ".join(groupings)] = _groups_by(frame[group_columns])
    calibration = None
    if part_columns:
        calibration = _calibration_rows(frame[part_columns[0]])
    ids = None
    if id_columns:
        ids = frame[id_columns[0]]
        _refuse_first(ids.isna(), ids, "an id")
    return Predictions(
        Path(path).name, kind, label_names, values, y, groupings, calibration, ids
    )


def read_table(path: Path) -> pd.DataFrame:
    """A CSV or parquet file as it is, with at least one row."""
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file")
    if path.stat().st_size == 0:
        raise ValueError(f"{path.name} is empty")
    is_parquet = path.suffix in (".parquet", ".pq")
    try:
        if is_parquet:
            frame = pd.read_parquet(path)
        else:
            frame = _read_text(path)
    except ImportError:
        raise ValueError(
            f"{path.name} needs pyarrow: pip install 'cfhelpers[data]'"
        ) from None
    except (ValueError, OSError, pd.errors.ParserWarning) as error:
        if isinstance(error, UnicodeDecodeError) and not is_parquet:
            raise ValueError(_place_that_is_not_utf8(path)) from None
        reason = " ".join(str(error).split())
        raise ValueError(f"{path.name} cannot be read: {reason}") from None
    if frame.empty:
        raise ValueError(f"{path.name} holds no rows")
    return frame.rename(columns=str)


def _separator(path: Path) -> str:
    """What stands between the columns of a text file: comma, semicolon or tab."""
    with path.open("rb") as file:
        header = file.readline().decode("latin-1")
    return max(",;\t", key=header.count)


def _read_text(path: Path) -> pd.DataFrame:
    """A CSV file, in which only an empty entry is missing."""
    # A row that is too long is a warning to pandas, and an error here.
    with warnings.catch_warnings(action="error", category=pd.errors.ParserWarning):
        return pd.read_csv(
            path,
            sep=_separator(path),
            keep_default_na=False,
            na_values=[""],
            low_memory=False,
            index_col=False,
        )


def _place_that_is_not_utf8(path: Path) -> str:
    """A sentence on where the first byte is that is not UTF-8."""
    data = path.read_bytes()
    place = 0
    try:
        data.decode()
    except UnicodeDecodeError as error:
        place = error.start
    lines_before = data[:place].decode("latin-1").split("\n")
    where = "the header"
    row = len(lines_before) - 1
    if row > 0:
        separator = _separator(path)
        header = data.decode("latin-1").split("\n", 1)[0].strip().split(separator)
        column = header[lines_before[-1].count(separator)]
        where = f"column {column!r}, row {row}"
    return (
        f"{where}: found the byte 0x{data[place]:02x}, which is not UTF-8; "
        "save the file as UTF-8"
    )


def _column_names(
    all_columns: list[str], given: Any, option: str, least: int, most: int
) -> list[str]:
    """The columns that were named, or those with a usual name."""
    names = list_items(given)
    if not names:
        usual = USUAL_NAMES.get(option, ())
        names = [column for column in all_columns if column.lower() in usual]
    listed = ", ".join(all_columns)
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


def _value_columns(
    all_columns: list[str], given: Any, kind: str
) -> tuple[str, list[str]]:
    """What the file holds, and in which columns."""
    kinds = list(PREFIXES)
    if kind:
        kinds = [one_of(kind, "kind", tuple(PREFIXES))]
    found = {}
    for each in kinds:
        prefixes = PREFIXES[each]
        columns = [name for name in all_columns if name.lower().startswith(prefixes)]
        if columns:
            found[each] = columns
    if given:
        named = _column_names(all_columns, given, "columns", 2, len(all_columns))
        found = {kind or _kind_of(named, found): named}
    if len(found) == 1:
        [(only_kind, columns)] = found.items()
        if len(columns) > 1:
            return only_kind, columns
    seen = []
    for each, columns in found.items():
        seen.append(f"{each} ({', '.join(columns)})")
    wanted = []
    for each in kinds:
        wanted.append(f"{each} ({' '.join(PREFIXES[each])})")
    raise ValueError(
        f"columns: found {' and '.join(seen) or 'neither'}; "
        f"wanted one of {', '.join(wanted)}, a column per label, or name the columns"
    )


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
            return column[len(prefix) :]
    return column


def _checked_values(frame: pd.DataFrame, columns: list[str], kind: str) -> np.ndarray:
    """The numbers of the columns (n, K); rounded probabilities sum to 1 again."""
    for column in columns:
        numbers = pd.to_numeric(frame[column], errors="coerce")
        _refuse_first(numbers.isna(), frame[column], "a number")
    values = frame[columns].to_numpy(np.float64)
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
    if kind == SETS:
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
    if not pd.isna(entry):
        found = repr(plain(entry))
    raise ValueError(
        f"column {column.name!r}, row {row + 1}: found {found}; wanted {wanted}"
    )


def _label_codes(column: pd.Series, names: list[str]) -> np.ndarray:
    """The label of every row, as a place in the names."""
    codes, found = pd.factorize(column.convert_dtypes())
    text = pd.Index([str(value) for value in found], dtype=object)
    places = pd.Index(names, dtype=object).get_indexer(text)
    places = np.append(places, -1)  # the last entry is for rows without a label
    y = places[codes]
    _refuse_first(y < 0, column, f"one of {', '.join(names)}")
    return y


def _calibration_rows(column: pd.Series) -> np.ndarray:
    """Which rows are for calibration, bool (n,)."""
    marks = column.astype(str).str.lower().map(IS_CALIBRATION)
    _refuse_first(marks.isna(), column, "calibration or test")
    if marks.nunique() < 2:
        raise ValueError(
            f"column {column.name!r}: every row is {column.iloc[0]!r}; "
            "wanted calibration and test rows"
        )
    return marks.to_numpy(bool)


def _groups_by(frame: pd.DataFrame) -> Groups:
    """Groups by one or more columns, with names as text."""
    columns = " × ".join(str(column) for column in frame.columns)
    try:
        groups = groups_with_missing(frame.convert_dtypes(), len(frame))
    except ValueError as error:
        raise ValueError(f"column {columns!r}: {error}") from None
    if len(groups) > max(FEW_GROUPS, len(frame) // 2):
        raise ValueError(
            f"column {columns!r}: found {len(groups):,} different values in "
            f"{len(frame):,} rows; wanted groups, each of many points"
        )
    names = []
    for name in groups.names:
        if isinstance(name, tuple):
            names.append(" · ".join(str(part) for part in name))
        else:
            names.append(str(name))
    return Groups(groups.codes, names)


def list_items(value: Any) -> list[Any]:
    """The items of a list, or of text with commas; none for empty text."""
    if isinstance(value, list | tuple):
        return list(value)
    if value is None:
        return []
    items = []
    for item in str(value).split(","):
        if item.strip():
            items.append(item.strip())
    return items

"""One Parquet file of predictions in, counts out: batch by batch, in little memory."""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cfhelpers import _binning
from cfhelpers import scores as score_functions
from cfhelpers._binned import ScoreCounts, joined_kinds
from cfhelpers._checks import as_probabilities, plain

ROWS_AT_ONCE = 1 << 16
MOST_ROWS_AT_ONCE = 1 << 18  # where they hold no more numbers than these
NUMBERS_AT_ONCE = 1 << 20
PREFIXES = {"probabilities": ("p_", "prob_"), "scores": ("score_",)}
DIGITS = 6  # of probabilities, where they tell people apart; as in the classifier
MANY_INTEGERS = 1 << 10  # a wider range of labels or groups is looked up by a hash
WRITTEN_INTEGER = re.compile("0|-?[1-9][0-9]*")
TAIL = 1 << 16  # bytes at the end of a file that tell it from what it was before


@dataclass(frozen=True)
class Layout:
    """Which columns hold what, and how probabilities become scores."""

    columns: tuple[str, ...]
    label_names: tuple[Any, ...]
    label: str | None  # None: points without labels
    groups: tuple[str, ...]
    id: str | None
    score: str  # "tps", "aps", "raps", or "scores": as they are
    seed: int | None
    penalty: float
    k_reg: int
    dtype: str

    @property
    def needed(self) -> list[str]:
        names = [*self.columns, *self.groups]
        for name in (self.label, self.id):
            if name is not None:
                names.append(name)
        return list(dict.fromkeys(names))


def arrow() -> tuple[Any, Any]:
    """pyarrow and its Parquet reader, or what to install."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ImportError(
            "files: Parquet files need pyarrow: pip install 'cfhelpers[data]'"
        ) from None
    return pa, pq


def open_parquet(file: str | os.PathLike[str], texts: Sequence[str] = ()) -> Any:
    """An open file, or a ValueError that names it; the columns `texts` come as codes."""
    pa, pq = arrow()
    path = Path(file)
    if path.is_dir():
        raise ValueError(
            f"files: {str(path)!r} is a folder; wanted files, or one folder by itself"
        )
    if not path.is_file():
        raise ValueError(f"files: there is no file {str(path)!r}")
    try:
        # Not mapped: a mapped file that somebody cuts off kills the process.
        return pq.ParquetFile(path, memory_map=False, read_dictionary=list(texts))
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(damaged(path, error)) from None


def damaged(path: str | os.PathLike[str], error: Exception) -> str:
    """What is wrong with a file, in a sentence."""
    reason = str(error).strip().splitlines()[0]
    return (
        f"files: {str(path)!r} is damaged or is no Parquet file ({reason}); "
        "write it again: the counts of the other files are kept"
    )


def columns_of(schema: Any) -> dict[str, Any]:
    """Types of the columns by name."""
    return {field.name: field.type for field in schema}


def value_columns(names: Sequence[str], given: Sequence[str] | None) -> tuple[str, ...]:
    """The columns of probabilities or scores, one per label."""
    if given is not None:
        if isinstance(given, str) or len(given) < 2:
            raise ValueError(
                f"columns: found {given!r}; wanted the names of several columns, one "
                "per label"
            )
        _check_each_label_once(given)
        return tuple(given)
    found = {}
    for kind, prefixes in PREFIXES.items():
        own = tuple(name for name in names if name.startswith(prefixes))
        if len(own) > 1:
            found[kind] = own
    if len(found) != 1:
        raise ValueError(
            f"columns: found {', '.join(names)}; wanted columns that begin with p_, or "
            "with score_, one per label, or name them"
        )
    columns = next(iter(found.values()))
    _check_each_label_once(columns)
    if all(isinstance(label_name(column), int) for column in columns):
        return tuple(sorted(columns, key=label_name))
    return columns


def _check_each_label_once(columns: Sequence[str]) -> None:
    """A ValueError where two columns are of one label."""
    names = [label_name(column) for column in columns]
    for place, name in enumerate(names):
        if name in names[:place]:
            raise ValueError(
                f"columns: found the label {name!r} twice in {', '.join(columns)}; "
                "wanted one column per label"
            )


def label_name(column: str) -> Any:
    """What a column's label is called: an integer where it is one."""
    name = column
    for prefixes in PREFIXES.values():
        for prefix in prefixes:
            if name == column and column.startswith(prefix):
                name = column[len(prefix) :]
    return _integer_or_text(name)


def _integer_or_text(text: str) -> Any:
    """The integer that a text writes as Python does, or the text."""
    if WRITTEN_INTEGER.fullmatch(text):
        return int(text)
    return text


def float_type(types: Sequence[Any]) -> np.dtype:
    """The type in which columns of these Arrow types are counted: as in memory."""
    found = []
    for arrow_type in types:
        try:
            numpy_type = np.dtype(arrow_type.to_pandas_dtype())
        except (NotImplementedError, TypeError):
            numpy_type = np.dtype(np.float64)
        if numpy_type == np.float16:
            numpy_type = np.dtype(np.float32)
        if numpy_type.kind != "f":
            numpy_type = np.dtype(np.float64)
        found.append(numpy_type)
    return np.result_type(*found)


def identity(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What tells a file from another, and from itself after a change."""
    status = os.stat(path)
    with open(path, "rb") as stream:
        stream.seek(max(0, status.st_size - TAIL))
        tail = hashlib.blake2b(stream.read(), digest_size=16).hexdigest()
    return {
        "path": str(Path(path).resolve()),
        "size": status.st_size,
        "changed": status.st_mtime_ns,
        "tail": tail,
    }


def count_file(
    path: str | os.PathLike[str],
    layout: Layout,
    edges: np.ndarray,
    is_noted: np.ndarray,
    rows: int | None = None,
) -> ScoreCounts:
    """The counts of one file, or of its first `rows` rows."""
    pa, _ = arrow()
    texts = text_columns(path, layout)
    counter = Counter(layout, edges, is_noted, texts)
    first_row = 0
    with open_parquet(path, texts) as parquet:
        try:
            for batch in _batches(parquet, layout, rows):
                if rows is not None:
                    batch = batch.slice(0, rows - first_row)
                counter.add(batch, first_row)
                first_row += batch.num_rows
                if rows is not None and first_row >= rows:
                    break
        except (pa.ArrowException, OSError) as error:
            raise ValueError(damaged(path, error)) from None
        except ValueError as error:
            raise ValueError(f"{str(path)!r}: {error}") from None
    return counter.counts()


def check_has_columns(
    path: str | os.PathLike[str], layout: Layout, names: Sequence[str]
) -> None:
    """A ValueError unless a file with columns of these names has what is needed, once."""
    missing = [name for name in layout.needed if name not in names]
    if missing:
        raise ValueError(
            f"files: {str(path)!r} has no column {', '.join(map(repr, missing))}; "
            f"it has {', '.join(dict.fromkeys(names))}"
        )
    twice = [name for name in layout.needed if names.count(name) > 1]
    if twice:
        raise ValueError(
            f"files: {str(path)!r} has several columns {', '.join(map(repr, twice))}; "
            "wanted one of each name"
        )


def text_columns(path: str | os.PathLike[str], layout: Layout) -> list[str]:
    """Labels and groups that are texts: they are read as codes, which is much faster."""
    pa, _ = arrow()
    with open_parquet(path) as parquet:
        types = columns_of(parquet.schema_arrow)
        check_has_columns(path, layout, parquet.schema_arrow.names)
    is_text = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    texts = []
    for name in (*layout.groups, layout.label):
        if name is not None and any(test(types[name]) for test in is_text):
            texts.append(name)
    return texts


def _batches(parquet: Any, layout: Layout, rows: int | None) -> Iterator[Any]:
    """Some rows at a time; `rows` of them are wanted, or all."""
    size = _rows_at_once(layout)
    if rows is not None:
        size = min(size, rows)
    return parquet.iter_batches(batch_size=size, columns=layout.needed, use_threads=False)


def _rows_at_once(layout: Layout) -> int:
    """How many rows are counted together: more of them where labels are few.

    The tables that a column is counted by are then fetched less often. APS and RAPS make
    tables of their own of all labels, which stay in a near cache only if rows are few.
    """
    if layout.score in ("aps", "raps"):
        return ROWS_AT_ONCE
    of_few_labels = min(NUMBERS_AT_ONCE // len(layout.columns), MOST_ROWS_AT_ONCE)
    return max(of_few_labels, ROWS_AT_ONCE)


class Counter:
    """Counts that grow by batches of one file."""

    def __init__(
        self,
        layout: Layout,
        edges: np.ndarray,
        is_noted: np.ndarray,
        texts: Sequence[str],
    ) -> None:
        self.layout = layout
        self.texts = texts
        ends = edges.astype(np.float64).tobytes()
        self.bins = _binning.bins_ending_at(ends)
        self.edges = np.append(edges, np.inf)
        self.is_noted = is_noted
        self.nearest = _binning.first_bins_of(ends, is_noted.tobytes())
        self.names: dict[Any, int] = {}
        self.label_places = {name: i for i, name in enumerate(layout.label_names)}
        n_labels = len(layout.columns)
        self.table = np.zeros((n_labels, 2, 0, self.bins.n_bins), np.int64)
        self.values: list[np.ndarray] = []
        self.kinds: list[tuple[int, np.ndarray]] = []  # with the groups known so far
        self.spare = np.empty(_rows_at_once(layout))
        self.spare_rows = np.empty(len(self.spare), np.int32)

    def add(self, batch: Any, first_row: int) -> None:
        """Count some rows."""
        if batch.num_rows == 0:
            return
        group_codes, groups = self._groups(batch)
        label_codes, labels = self._labels(batch, first_row)
        cells = np.multiply(group_codes, len(labels), dtype=np.int32)
        cells += label_codes
        n_groups = len(self.names)
        if n_groups > self.table.shape[2]:
            more = n_groups - self.table.shape[2]
            self.table = np.pad(self.table, ((0, 0), (0, 0), (0, more), (0, 0)))
        count = _binning.compiled()
        is_probability = self.layout.score == "tps"
        for label, column in enumerate(self._columns(batch, first_row)):
            rows = groups[:, None] + n_groups * (labels != label)
            noted = count(
                column,
                is_probability,
                cells,
                rows.ravel().astype(np.int32),
                self.bins.low,
                self.bins.slots_per_unit,
                self.nearest[label],
                self.bins.first,
                self.bins.last,
                self.edges,
                self.is_noted[label],
                self.table[label].reshape(2 * n_groups, -1),
                self.spare,
                self.spare_rows,
            )
            if noted:
                self.values.append(self.spare[:noted].copy())
                kinds = self.spare_rows[:noted] + np.int32(2 * n_groups * label)
                self.kinds.append((n_groups, kinds))

    def counts(self) -> ScoreCounts:
        """What was counted."""
        return ScoreCounts(
            counts=self.table,
            edges=self.bins.edges,
            label_names=list(self.layout.label_names),
            group_names=list(self.names),
            is_noted=self.is_noted,
            values=np.concatenate([np.empty(0), *self.values]),
            kinds=joined_kinds(self.kinds, len(self.names)),
        )

    def _columns(self, batch: Any, first_row: int) -> Iterable[np.ndarray]:
        """The scores, or for TPS the probabilities, of one label after the other."""
        columns = []
        for name in self.layout.columns:
            columns.append(_numbers(batch, name, self.layout.dtype, first_row))
        if self.layout.score == "scores":
            return columns
        _check_probabilities(columns, first_row)
        if self.layout.score == "tps":
            return columns
        probs = np.stack(columns, axis=1)
        u = None
        if self.layout.seed is not None:
            people: Any = np.round(probs.astype(np.float64), DIGITS)
            if self.layout.id is not None:
                people = _ids(batch, self.layout.id)
            u = score_functions.person_u(people, self.layout.seed)
        penalty = self.layout.penalty if self.layout.score == "raps" else 0.0
        table = score_functions.raps(probs, u, penalty, self.layout.k_reg)
        return np.ascontiguousarray(table.T)

    def _labels(self, batch: Any, first_row: int) -> tuple[np.ndarray, np.ndarray]:
        """Codes of the true labels, and the place of each code among the labels.

        The place is -1 where rows have no label.
        """
        if self.layout.label is None:
            return np.zeros(batch.num_rows, np.int32), np.array([-1])
        codes, names = _distinct(batch, self.layout.label)
        places = np.array([self._place_of(name) for name in names])
        if (places < 0).any() and (places[codes] < 0).any():
            row = int((places[codes] < 0).argmax())
            found = names[codes[row]]
            raise ValueError(
                f"{self.layout.label}: found {found!r} in row {first_row + row}; wanted "
                f"one of {', '.join(map(str, self.layout.label_names))}"
            )
        return codes, places

    def _place_of(self, name: Any) -> int:
        """The place of a label, by its value or as it is written; -1: unknown."""
        for value in (_plain_label(name), str(name)):
            if value in self.label_places:
                return self.label_places[value]
        return -1

    def _groups(self, batch: Any) -> tuple[np.ndarray, np.ndarray]:
        """Codes of the groups, and the place of each code in the order of turning up."""
        pa, _ = arrow()
        names: list[Any]
        if len(self.layout.groups) > 1:
            codes, names = _combinations(batch, self.layout.groups)
        else:
            codes, names = _distinct(batch, self.layout.groups[0])
        column = batch.column(self.layout.groups[0])
        is_text = self.layout.groups[0] in self.texts
        is_declared = pa.types.is_dictionary(column.type) and not is_text
        occurs = np.ones(len(names), bool)
        if not is_declared and any(name not in self.names for name in names):
            occurs = np.bincount(codes, minlength=len(names)) > 0
        places = np.zeros(len(names), np.int64)
        for i in np.flatnonzero(occurs):
            places[i] = self.names.setdefault(names[i], len(self.names))
        return codes, places


def _numbers(batch: Any, name: str, dtype: str, first_row: int) -> np.ndarray:
    """A column of numbers, all of them present."""
    column = batch.column(name)
    try:
        values = column.to_numpy(zero_copy_only=False)
        values = np.asarray(values).astype(dtype, copy=False)
    except (TypeError, ValueError):
        raise ValueError(f"{name}: found {column.type}; wanted numbers") from None
    if np.isnan(values.min()):
        row = first_row + int(np.isnan(values).argmax())
        raise ValueError(f"{name}: row {row} is missing or NaN; wanted a number")
    return values


def _check_probabilities(columns: list[np.ndarray], first_row: int) -> None:
    """None below 0, every row summing to 1."""
    total = columns[0].copy()
    lowest = columns[0].min()
    for column in columns[1:]:
        total += column
        lowest = min(lowest, column.min())
    total -= 1
    if lowest >= 0 and max(-total.min(), total.max()) <= 0.9e-3:
        return
    try:
        as_probabilities(np.stack(columns, axis=1))
    except ValueError as error:
        text = str(error)
        row = int(text.partition("row ")[2].split()[0].rstrip(","))
        raise ValueError(
            text.replace(f"row {row}", f"row {first_row + row}", 1)
        ) from None


def _ids(batch: Any, name: str) -> pd.Series:
    """Who each row is."""
    column = batch.column(name)
    if column.null_count:
        raise ValueError(f"{name}: found rows without an id; wanted one for each person")
    return pd.Series(column.to_pandas())


def _combinations(
    batch: Any, columns: Sequence[str]
) -> tuple[np.ndarray, list[tuple[Any, ...]]]:
    """Several columns as codes of the combinations that occur."""
    codes = np.zeros(batch.num_rows, np.int64)
    names: list[tuple[Any, ...]] = [()]
    for column in columns:
        own, own_names = _distinct(batch, column)
        codes = codes * len(own_names) + own
        present, codes = np.unique(codes, return_inverse=True)
        pairs = [divmod(int(code), len(own_names)) for code in present]
        names = [(*names[i], own_names[j]) for i, j in pairs]
    return codes, names


def _distinct(batch: Any, name: str) -> tuple[np.ndarray, list[Any]]:
    """A column as codes of values, of which some may have no rows.

    None stands for what is missing.
    """
    pa, _ = arrow()
    column = batch.column(name)
    if pa.types.is_integer(column.type) and not column.null_count:
        found = _small_integers(column.to_numpy())
        if found is not None:
            return found
    if not pa.types.is_dictionary(column.type):
        try:
            column = column.dictionary_encode(null_encoding="encode")
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            raise ValueError(
                f"{name}: found {column.type}; wanted one name or number per row"
            ) from None
    names = []
    for value in column.dictionary.to_pylist():
        is_missing = isinstance(value, float) and np.isnan(value)
        names.append(None if is_missing else value)
    indices = column.indices
    if indices.null_count:
        names.append(None)
        indices = indices.cast(pa.int64()).fill_null(len(names) - 1)
    return indices.to_numpy(zero_copy_only=False), names


def _small_integers(values: np.ndarray) -> tuple[np.ndarray, list[Any]] | None:
    """Integers that lie close together, as codes of all between the ends."""
    low = int(values.min())
    high = int(values.max())
    limits = np.iinfo(np.int32)
    if high - low >= MANY_INTEGERS or low < limits.min or high > limits.max:
        return None
    codes = values.astype(np.int32)
    codes -= np.int32(low)
    return codes, list(range(low, high + 1))


def _plain_label(value: Any) -> Any:
    """Labels that are numbers as integers, texts of integers too."""
    value = plain(value)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str):
        return _integer_or_text(value)
    return value

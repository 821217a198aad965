"""Groups of people: a name for every point, kept as integer codes."""

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from cfhelpers._checks import as_array

_PANDAS = (pd.DataFrame, pd.Series, pd.Categorical, pd.Index)


@dataclass(frozen=True)
class Groups:
    """A group per point: integer codes (n,) and the names they stand for.

    Examples
    --------
    >>> people = as_groups(["b", "a", "b"], 3)
    >>> people.names
    ['a', 'b']
    >>> people.counts.tolist()
    [1, 2]
    """

    codes: np.ndarray
    names: list[Any]

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def counts(self) -> np.ndarray:
        """Points per group."""
        return np.bincount(self.codes, minlength=len(self))

    @property
    def values(self) -> Any:
        """The group of every point by name, such that `values == name` works."""
        if any(isinstance(name, tuple) for name in self.names):
            categories = pd.Index(self.names, tupleize_cols=False)
            return pd.Categorical.from_codes(self.codes, categories=categories)
        kinds = {type(name) for name in self.names}
        dtype = object if len(kinds) > 1 else None
        return np.array(self.names, dtype=dtype)[self.codes]

    def take(self, rows: np.ndarray) -> "Groups":
        """The groups of some of the points; names that none of them has are kept."""
        return Groups(self.codes[rows], self.names)


def as_groups(values: Any, n: int) -> Groups:
    """Groups from one column of hashable values, or from several columns.

    Several columns give one group per combination that occurs, named by a tuple.
    Names are sorted where they can be, and keep the order in which they occur where not.
    """
    if isinstance(values, Groups):
        return values
    if values is None:
        raise ValueError(
            f"groups: found None; wanted one group for each of the {n} points"
        )
    columns = _columns(values)
    if not columns or len(columns[0]) != n:
        found = len(columns[0]) if columns else 0
        raise ValueError(
            f"groups: found {found} rows for {n} points; wanted one group for each point"
        )
    if len(columns) == 1:
        codes, names = _factorize(columns[0], "groups")
        return Groups(codes, names)
    return _combinations(columns)


def _columns(values: Any) -> list[Any]:
    """The columns of whatever holds groups; one for a plain list."""
    if isinstance(values, list | tuple):
        is_several = len(values) > 0 and all(
            isinstance(row, tuple | list) for row in values
        )
        if is_several:
            values = pd.DataFrame(values)
        else:
            values = pd.Series(list(values), dtype=None if len(values) else object)
    elif not isinstance(values, _PANDAS):
        values = as_array(values)
        if values.ndim == 2:
            values = pd.DataFrame(values)
    if isinstance(values, pd.DataFrame):
        return [values[name] for name in values]
    return [values]


def _combinations(columns: list[pd.Series]) -> Groups:
    """One group per combination of the columns' values that occurs."""
    codes = np.zeros(len(columns[0]), np.intp)
    names: list[tuple[Hashable, ...]] = [()]
    for column in columns:
        own_codes, own_names = _factorize(column, f"groups: column {column.name!r}")
        codes, present = pd.factorize(codes * len(own_names) + own_codes, sort=True)
        before = np.asarray(present) // len(own_names)
        own = np.asarray(present) % len(own_names)
        names = [(*names[i], own_names[j]) for i, j in zip(before, own, strict=True)]
    return Groups(codes, names)


def _factorize(column: Any, name: str) -> tuple[np.ndarray, list[Any]]:
    """Codes and names of a column, in the order of the names where they have one."""
    is_small_integer = (
        isinstance(column, np.ndarray)
        and column.dtype != bool
        and np.can_cast(column.dtype, np.int64)
    )
    if is_small_integer:
        lowest = int(column.min())
        if int(column.max()) - lowest < len(column):
            # Small integers are their own codes, up to gaps: no hashing.
            codes = column.astype(np.int64) - lowest
            is_present = np.bincount(codes) > 0
            present = np.flatnonzero(is_present)
            return (np.cumsum(is_present) - 1)[codes], (present + lowest).tolist()
    codes, found = pd.factorize(column)
    if codes.min() < 0:
        raise ValueError(
            f"{name}: row {codes.argmin()} is missing; every point needs a group"
        )
    names = found.tolist()
    try:
        order = sorted(range(len(names)), key=names.__getitem__)
    except TypeError:  # names that cannot be ordered
        return codes, names
    rank = np.empty(len(order), np.intp)
    rank[order] = np.arange(len(order))
    return rank[codes], [names[i] for i in order]

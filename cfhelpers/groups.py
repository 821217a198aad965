"""Groups of people: a name for every point, kept as integer codes.

A boolean table (n, G) says of every point to which groups it belongs: to one, to several,
or to none. The codes are then those of the combinations that occur.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

from cfhelpers._checks import as_array, as_pandas, plain

_PANDAS = (pd.DataFrame, pd.Series, pd.Categorical, pd.Index)


@dataclass(frozen=True, eq=False)
class Members:
    """The groups of every point where they overlap: `members == name` is a mask."""

    codes: np.ndarray
    names: list[Any]
    memberships: np.ndarray

    def __len__(self) -> int:
        return len(self.codes)

    def __eq__(self, name: Any) -> Any:
        if name not in self.names:
            return np.zeros(len(self), bool)
        return self.memberships[self.codes, self.names.index(name)] > 0

    def __ne__(self, name: Any) -> Any:
        return ~(self == name)


@dataclass(frozen=True)
class Groups:
    """A group per point: integer codes (n,) and the names they stand for.

    A name that no point has is a declared group: it is compared like any other, and
    nothing is known about it.

    Where groups overlap, a code stands for a combination of groups, and `memberships`,
    0 or 1 (codes, groups), says of which. A combination of none is allowed.

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
    memberships: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.names)

    @property
    def n_codes(self) -> int:
        """How many codes there are: one per group, or one per combination of groups."""
        if self.memberships is None:
            return len(self.names)
        return len(self.memberships)

    @property
    def is_overlapping(self) -> bool:
        """Whether some point is in two groups."""
        if self.memberships is None:
            return False
        return bool((self.memberships.sum(axis=1) > 1)[self.codes].any())

    def per_group(self, counts: np.ndarray) -> np.ndarray:
        """Counts by code (…, codes) as counts by group (…, groups)."""
        return counts_per_group(counts, self.memberships)

    @cached_property
    def counts(self) -> np.ndarray:
        """Points per group."""
        return self.per_group(np.bincount(self.codes, minlength=self.n_codes))

    @property
    def values(self) -> Any:
        """The group of every point by name, such that `values == name` works."""
        if self.memberships is not None:
            return Members(self.codes, self.names, self.memberships)
        if any(isinstance(name, tuple) for name in self.names):
            categories = pd.Index(self.names, tupleize_cols=False)
            return pd.Categorical.from_codes(self.codes, categories=categories)
        kinds = {type(name) for name in self.names}
        dtype = object if len(kinds) > 1 else None
        return np.array(self.names, dtype=dtype)[self.codes]

    def take(self, rows: np.ndarray) -> Groups:
        """The groups of some of the points; names that none of them has are kept."""
        return Groups(self.codes[rows], self.names, self.memberships)

    def pool(self, names: Iterable[Any]) -> Groups:
        """One group made of several, after all others; it is named after them.

        Examples
        --------
        >>> as_groups(["a", "b", "c", "b"], 4).pool(["a", "c"]).names
        ['b', 'pooled: a, c']
        """
        is_pooled = self._is_among(names)
        listed = ", ".join(map(str, self._names_where(is_pooled)))
        new_names = [*self._names_where(~is_pooled), f"pooled: {listed}"]
        if self.memberships is not None:
            in_pool = self.memberships[:, is_pooled].max(axis=1, keepdims=True)
            memberships = np.hstack([self.memberships[:, ~is_pooled], in_pool])
            return Groups(self.codes, new_names, memberships)
        new_codes = np.cumsum(~is_pooled) - 1
        new_codes[is_pooled] = np.count_nonzero(~is_pooled)
        return Groups(new_codes[self.codes], new_names)

    def leave_out(self, names: Iterable[Any]) -> Groups:
        """Without some groups: their points are then in no group.

        Examples
        --------
        >>> others = as_groups(["a", "b", "c", "b"], 4).leave_out(["a", "c"])
        >>> others.names, others.counts.tolist()
        (['b'], [2])
        >>> len(others.codes)
        4
        """
        stays = ~self._is_among(names)
        memberships = self.memberships
        if memberships is None:
            memberships = np.eye(len(self), dtype=np.int64)
        return Groups(self.codes, self._names_where(stays), memberships[:, stays])

    def _is_among(self, names: Iterable[Any]) -> np.ndarray:
        """Which groups have one of these names."""
        is_among = np.zeros(len(self), bool)
        for name in names:
            is_among[self.names.index(name)] = True
        return is_among

    def _names_where(self, is_chosen: np.ndarray) -> list[Any]:
        """The names of some groups."""
        return [self.names[place] for place in np.flatnonzero(is_chosen)]

    def declare(self, names: Iterable[Any]) -> Groups:
        """With these names too; those that are new come last, without points."""
        every = list(dict.fromkeys([*self.names, *names]))
        if self.memberships is None:
            return Groups(self.codes, every)
        n_new = len(every) - len(self.names)
        none = np.zeros((self.n_codes, n_new), np.int64)
        return Groups(self.codes, every, np.hstack([self.memberships, none]))

    def joined(self, others: Groups) -> Groups:
        """These points followed by others."""
        groups = self.declare(others.names)
        place = {name: code for code, name in enumerate(groups.names)}
        new_places = np.array([place[name] for name in others.names], np.intp)
        if groups.memberships is None and others.memberships is None:
            codes = np.concatenate([self.codes, new_places[others.codes]])
            return Groups(codes, groups.names)
        own = groups.members_of_codes()
        theirs = np.zeros((others.n_codes, len(groups)), np.int64)
        theirs[:, new_places] = others.members_of_codes()
        codes = np.concatenate([self.codes, len(own) + others.codes])
        return Groups(codes, groups.names, np.vstack([own, theirs]))

    def members_of_codes(self) -> np.ndarray:
        """Of which groups every code is (codes, groups), also where it is one each."""
        if self.memberships is None:
            return np.eye(len(self), dtype=np.int64)
        return self.memberships


def counts_per_group(counts: np.ndarray, memberships: np.ndarray | None) -> np.ndarray:
    """Counts by code (…, codes) as counts by group (…, groups).

    Examples
    --------
    >>> both = np.array([[1, 0], [1, 1], [0, 0]])
    >>> counts_per_group(np.array([5, 2, 9]), both).tolist()
    [7, 2]
    """
    if memberships is None:
        return counts
    return counts @ memberships


def as_groups(values: Any, n: int) -> Groups:
    """Groups from one column of hashable values, or from several columns.

    Parameters
    ----------
    values : (n,), or several columns
        Lists, arrays, pandas, polars and Arrow objects. Several columns give one group
        per combination that occurs, named by a tuple. Unused categories of a single
        categorical column are declared groups, without points; of several columns only
        combinations that occur are groups. Several columns that are all boolean are
        groups that may overlap, one per column: who belongs to each. A column without
        True is a declared group.
    n : int
        The number of points.

    Returns
    -------
    Groups
        Names are sorted where they can be, and keep the order in which they occur where
        not.

    Examples
    --------
    >>> seen = pd.Categorical(["a", "b", "a"], categories=["a", "b", "c"])
    >>> as_groups(seen, 3).counts.tolist()
    [2, 1, 0]
    >>> people = pd.DataFrame({
    ...     "woman": [True, True, False], "Black": [False, True, False]
    ... })
    >>> as_groups(people, 3).counts.tolist()
    [2, 1]
    """
    if isinstance(values, Groups):
        _check_length(len(values.codes), n)
        return values
    if values is None:
        raise ValueError(
            f"groups: found None; wanted one group for each of the {n} points"
        )
    columns = _columns(values)
    found = 0
    if columns:
        found = len(columns[0])
    _check_length(found, n)
    if len(columns) == 1:
        codes, names = _factorize(columns[0], "groups")
        return Groups(codes, names)
    if all(types.is_bool_dtype(column.dtype) for column in columns):
        return _overlapping(columns)
    return _combinations(columns)


def _check_length(found: int, n: int) -> None:
    """One group for each of n points."""
    if found != n:
        raise ValueError(
            f"groups: found {found} rows for {n} points; wanted one group for each point"
        )


def _columns(values: Any) -> list[Any]:
    """The columns of whatever holds groups; one for a plain list."""
    if isinstance(values, Mapping | Set | str | bytes):
        raise ValueError(
            f"groups: found a {type(values).__name__}; wanted one group for each point, "
            "in the order of the points: a list, an array, a column, or a data frame"
        )
    values = as_pandas(values)
    if isinstance(values, Iterator):
        values = list(values)
    if isinstance(values, list | tuple):
        is_several = len(values) > 0 and all(
            isinstance(row, tuple | list) for row in values
        )
        dtype = object if len(values) == 0 else None
        if is_several:
            values = pd.DataFrame(values)
        else:
            values = pd.Series(list(values), dtype=dtype)
    elif not isinstance(values, _PANDAS):
        values = _array_of_columns(values)
    if isinstance(values, pd.DataFrame):
        return [values.iloc[:, place] for place in range(values.shape[1])]
    return [values]


def _array_of_columns(values: Any) -> Any:
    """An array (n,), or a frame from an array (n, columns)."""
    array = as_array(values)
    if array.ndim == 0 and isinstance(values, Iterable):
        return pd.Series(list(values))  # such as a dictionary's values
    if array.ndim == 1:
        return array
    if array.ndim == 2:
        return pd.DataFrame(array)
    raise ValueError(
        f"groups: found shape {array.shape}; wanted (n,), or (n, columns) for several"
    )


def _overlapping(columns: list[pd.Series]) -> Groups:
    """A group per boolean column; a point may be in several, or in none."""
    names = [plain(column.name) for column in columns]
    table = np.empty((len(columns[0]), len(columns)), bool)
    for place, column in enumerate(columns):
        if names.index(names[place]) < place:
            raise ValueError(
                f"groups: found the column {names[place]!r} twice; wanted a name for "
                "each group"
            )
        is_missing = column.isna().to_numpy()
        if is_missing.any():
            raise ValueError(
                f"groups: row {is_missing.argmax()} of column {names[place]!r} is "
                "missing; wanted True or False"
            )
        table[:, place] = column.to_numpy(bool)
    combinations, codes = np.unique(table, axis=0, return_inverse=True)
    return Groups(codes.ravel(), names, combinations.astype(np.int64))


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
    codes, names = _codes_and_names(column, name)
    if codes.min() < 0:
        raise ValueError(
            f"{name}: row {codes.argmin()} is missing; every point needs a group"
        )
    try:
        order = sorted(range(len(names)), key=names.__getitem__)
    except TypeError:  # names that cannot be ordered
        return codes, names
    rank = np.empty(len(order), np.intp)
    rank[order] = np.arange(len(order))
    return rank[codes], [names[i] for i in order]


def _codes_and_names(column: Any, name: str) -> tuple[np.ndarray, list[Any]]:
    """Codes and names in any order, declared categories among them; -1 is missing."""
    if isinstance(getattr(column, "dtype", None), pd.CategoricalDtype):
        column = pd.Categorical(column)
        return column.codes.astype(np.intp), column.categories.tolist()
    try:
        codes, found = pd.factorize(column)
    except TypeError as error:
        raise ValueError(f"{name}: {error}; wanted values that can be hashed") from None
    return codes, found.tolist()


def as_pools(sizes: Mapping[Any, int], groups: Groups) -> np.ndarray:
    """Points of every group in the pool that the points were drawn from."""
    pools = []
    for name, n in zip(groups.names, groups.counts, strict=True):
        if name not in sizes:
            raise ValueError(
                f"pool_sizes: found none for group {name!r}; wanted every group's"
            )
        size = sizes[name]
        is_number = isinstance(size, int | float | np.number) and np.isfinite(size)
        if isinstance(size, bool) or not is_number or size != int(size) or size < n:
            raise ValueError(
                f"pool_sizes: found {size} for group {name!r}; wanted a whole number of "
                f"points, at least the {n} that were drawn"
            )
        pools.append(int(size))
    return np.array(pools)

"""Groups of an audit: points that have none form a group too."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionArray

from cfhelpers._checks import as_array, as_pandas
from cfhelpers.groups import Groups, as_groups

MISSING = "missing"  # the group of the points that have none
BESIDE = " (no value)"  # is added where another group is called so


class _NoValue:
    """What stands for a missing value, unlike any name that a group may have."""


_NO_VALUE = _NoValue()


def groups_with_missing(values: Any, n: int) -> Groups:
    """Groups in the order of their names, numbers as numbers.

    Parameters
    ----------
    values : (n,), or several columns
        Points without a value are in the group "missing", which is the last one. It is
        "missing (no value)" where another group is called "missing".
    n : int
        The number of points.

    Returns
    -------
    Groups
        As they are if they are `Groups` already.

    Examples
    --------
    >>> groups_with_missing(["b", None, "10", "9"], 4).names
    ['9', '10', 'b', 'missing']
    >>> groups_with_missing(["missing", None, "a"], 3).names
    ['a', 'missing', 'missing (no value)']
    """
    groups = groups_or_none(values, n)
    if not isinstance(values, Groups):
        groups = in_order(groups)
    return _at_least_two(groups)


def groups_of_both(values: Any, n: int, more: Any, n_more: int) -> tuple[Groups, Groups]:
    """The groups of labelled and of unlabelled points, with the same names."""
    groups = groups_or_none(values, n)
    try:
        others = groups_or_none(more, n_more)
    except ValueError as error:
        raise ValueError(f"unlabelled {error}") from None
    everyone = _at_least_two(in_order(groups.joined(others)))
    return everyone.take(np.arange(n)), everyone.take(np.arange(n, n + n_more))


def groups_or_none(values: Any, n: int) -> Groups:
    """Groups, among them one whose points have no value; `in_order` names it."""
    values = as_pandas(values)
    if values is None or isinstance(values, Groups | Mapping | Set | str | bytes):
        return as_groups(values, n)
    if not hasattr(values, "__iter__"):
        raise ValueError(f"groups: found {values!r}; wanted one group for each point")
    rows = None
    if not hasattr(values, "shape"):
        rows = list(values)
        values = pd.DataFrame(rows)
    elif isinstance(values, ExtensionArray | pd.Index):
        values = pd.Series(values)
    elif not isinstance(values, pd.DataFrame | pd.Series):
        values = as_array(values)
    is_missing = np.asarray(pd.isna(values))
    if not is_missing.any():
        return as_groups(values, n)
    table = pd.DataFrame(values)
    if table.shape[1] == 1 and isinstance(table.dtypes.iloc[0], pd.CategoricalDtype):
        column = pd.Categorical(table.iloc[:, 0])
        names = [*column.categories.tolist(), _NO_VALUE]
        codes = np.where(column.codes < 0, len(names) - 1, column.codes)
        return as_groups(Groups(codes.astype(np.intp), names), n)
    if rows is not None:  # as they are given: integers stay integers
        is_several = table.shape[1] > 1
        table = pd.DataFrame(rows if is_several else {0: rows}, dtype=object)
    entries = table.astype(object).to_numpy(object, copy=True)
    entries[is_missing.reshape(entries.shape)] = _NO_VALUE
    return as_groups(pd.DataFrame(entries), n)


def in_order(groups: Groups) -> Groups:
    """The same in the order of their names, with a name for points without a value.

    Groups that may overlap stay in the order of their columns.
    """
    if groups.memberships is not None:
        return groups
    order = sorted(range(len(groups)), key=lambda code: _sort_key(groups.names[code]))
    rank = np.argsort(order)
    ordered = [groups.names[code] for code in order]
    called = MISSING
    while any(called in _parts(name) for name in ordered):
        called += BESIDE
    names = []
    for name in ordered:
        parts = [called if part is _NO_VALUE else part for part in _parts(name)]
        names.append(tuple(parts) if isinstance(name, tuple) else parts[0])
    return Groups(rank[groups.codes], names)


def _at_least_two(groups: Groups) -> Groups:
    """Groups, if there are two to compare."""
    if len(groups) < 2:
        raise ValueError(
            f"groups: every point is in {groups.names[0]!r}; "
            "wanted at least two groups to compare"
        )
    return groups


def _parts(name: Any) -> tuple[Any, ...]:
    """The values that a group's name is made of, one per column."""
    if isinstance(name, tuple):
        return name
    return (name,)


def _sort_key(name: Any) -> list[tuple[bool, float, str]]:
    """Numbers first, then words, then points without a value; column by column."""
    keys = []
    for part in _parts(name):
        try:
            keys.append((False, float(part), ""))
        except (TypeError, ValueError):
            keys.append((part is _NO_VALUE, np.inf, str(part)))
    return keys

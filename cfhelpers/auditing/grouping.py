"""Group columns of a file: names as text, missing values, small groups, their order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from cfhelpers.auditing.missing import groups_with_missing
from cfhelpers.auditing.words import composed, counted, harmless
from cfhelpers.groups import Groups

# How files say that there is no value; compared in lower case, without spaces around.
NO_VALUE = frozenset(
    ["", "na", "n/a", "#n/a", "nan", "<na>", "null", "none", "nat", "missing value"]
)
FEW_GROUPS = 20  # so many groups are taken for groups even in a small file
SHOWN_NAMES = 3  # a pooled group is named after so many
BETWEEN = " · "  # the parts of a combination
BETWEEN_COLUMNS = " × "


def as_text(column: pd.Series, what: str) -> pd.Series:
    """A column as text, None where there is no value; whole numbers without ".0".

    Parameters
    ----------
    column : Series
    what : str
        What its entries are: "group" or "label". Words such as NA are missing groups; a
        label may be called so.
    """
    name = column.name
    if isinstance(column.dtype, pd.CategoricalDtype):
        names = as_text(pd.Series(column.cat.categories, name=name, dtype=object), what)
        if names.notna().all() and names.is_unique:
            return column.cat.rename_categories(names.tolist())
        column = column.astype(object)
    codes, values = _factorized(column, what)
    words = NO_VALUE if what == "group" else frozenset([""])
    texts = [_text_of(value, words) for value in values]
    known = [text for text in texts if text is not None]
    if known and all(re.fullmatch(r"-?\d+\.0", text) for text in known):
        texts = [None if text is None else text[:-2] for text in texts]
    entries = np.array([*texts, None], dtype=object)[codes]
    return pd.Series(entries, index=column.index, name=name, dtype=object)


def _factorized(column: pd.Series, what: str) -> tuple[np.ndarray, list[Any]]:
    """Codes and different values; -1 where there is none. Lists are refused."""
    try:
        codes, values = pd.factorize(column)
    except TypeError:
        for row, entry in enumerate(column):
            if isinstance(entry, list | tuple | dict | set | np.ndarray):
                kind = type(entry).__name__
                raise ValueError(
                    f"column {column.name!r}, row {row + 1}: found a {kind}; "
                    f"wanted one {what}"
                ) from None
        raise
    found = list(values)
    for code, value in enumerate(found):
        text = str(value).strip()
        if re.fullmatch(r"\[.*[,'\"].*\]", text):
            row = int((codes == code).argmax())
            raise ValueError(
                f"column {column.name!r}, row {row + 1}: found the list {text}; "
                f"wanted one {what}; make a column for each"
            )
    return codes, found


def _text_of(value: Any, words: frozenset[str]) -> str | None:
    """One value as text, None where it says that there is none."""
    if isinstance(value, float) and value.is_integer():
        text = str(int(value))
    elif isinstance(value, bytes):  # some programs write text into Parquet so
        text = composed(value.decode("utf-8", "backslashreplace"))
    else:
        text = composed(str(value))
    if text.lower() in words:
        return None
    return harmless(text)


def is_missing(frame: pd.DataFrame) -> np.ndarray:
    """Rows that have no value in one of the columns."""
    return frame.isna().any(axis=1).to_numpy()


def missing_notes(before: pd.DataFrame, after: pd.DataFrame) -> list[str]:
    """Which words were taken for missing values, a sentence per column."""
    notes = []
    for name in after.columns:
        is_word = (after[name].isna() & before[name].notna()).to_numpy()
        if is_word.any():
            found = pd.unique(before.loc[is_word, name].astype(str))
            words = ", ".join(repr(harmless(str(word))) for word in found)
            notes.append(
                f"Column {name!r}: {counted(int(is_word.sum()), 'row')} with {words} "
                f"{'counts' if is_word.sum() == 1 else 'count'} as missing."
            )
    return notes


def groups_by(
    frame: pd.DataFrame, min_group: int, order: Sequence[str], notes: list[str]
) -> Groups:
    """Groups by one or more columns of text, small ones pooled, in the wanted order."""
    columns = BETWEEN_COLUMNS.join(str(column) for column in frame.columns)
    try:
        groups = groups_with_missing(frame, len(frame))
    except ValueError as error:
        raise ValueError(f"column {columns!r}: {error}") from None
    if len(groups) > max(FEW_GROUPS, len(frame) // 2):
        raise ValueError(
            f"column {columns!r}: found {len(groups):,} different values in "
            f"{len(frame):,} rows; wanted groups, each of many points"
        )
    parts = []
    for name in groups.names:
        parts.append(name if isinstance(name, tuple) else (name,))
    names = [BETWEEN.join(str(part) for part in each) for each in parts]
    if order:
        rank = {name: place for place, name in enumerate(order)}
        keys = [[rank.get(part, len(rank)) for part in each] for each in parts]
        ordered = sorted(range(len(names)), key=keys.__getitem__)
        codes = np.argsort(ordered)[groups.codes]
        groups = Groups(codes, [names[place] for place in ordered])
    else:
        groups = Groups(groups.codes, names)
    if min_group > 0:
        groups = _with_small_ones_pooled(groups, min_group, columns, notes)
    return groups


def _with_small_ones_pooled(
    groups: Groups, min_group: int, columns: str, notes: list[str]
) -> Groups:
    """One group of all that have fewer rows than wanted."""
    small = []
    for name, n in zip(groups.names, groups.counts, strict=True):
        if n < min_group:
            small.append(name)
    if len(small) < 2:
        if small:
            notes.append(
                f"Groups by {columns}: {small[0]!r} alone has fewer than "
                f"{min_group:,} rows, so nothing was pooled."
            )
        return groups
    if len(small) == len(groups):
        raise ValueError(
            f"min_group: found no group by {columns} with {min_group:,} rows; "
            f"the largest has {groups.counts.max():,}"
        )
    pooled = groups.pool(small)
    listed = ", ".join(small)
    name = f"pooled: {listed}"
    if len(small) > SHOWN_NAMES:
        name = f"pooled: {counted(len(small), 'group')}"
    notes.append(
        f"Groups by {columns} with fewer than {min_group:,} rows are one group: {listed}."
    )
    return Groups(pooled.codes, [*pooled.names[:-1], name])

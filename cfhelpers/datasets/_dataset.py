"""What a loaded dataset is, how it prints, and how it is split."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import pandas as pd

PARTS = ("train", "valid", "calibration", "test")
FRACTIONS = (0.30, 0.20, 0.25, 0.25)
HELD_OUT = ("calibration", "test")
# Splits draw from a stream of their own: default_rng(seed).random(n), which users draw
# for other ends, must not tell the part of a row.
STREAM = 0x5911
CROSSED = " × "  # between the attributes that make up groups
CARD_WIDTH = 110


class Source(StrEnum):
    """Where the records of a dataset come from."""

    BUNDLED = "bundled"  # real, shipped with the package
    DOWNLOAD = "download"  # real, from whoever publishes them
    OPENML = "openml"  # real, from OpenML, which keeps a copy in one file
    LOCAL = "local"  # the same raw files, in a folder of the user's
    SIMULATED = "simulated"  # made up, in the raw file format

    def __repr__(self) -> str:
        """The plain text in quotes, as messages and keys of caches show it."""
        return repr(self.value)


def choose_source(name: str, source: str | None, offered: Sequence[Source]) -> Source:
    """One of the sources that a dataset offers; the first of them where none is named."""
    if not source:
        return offered[0]
    if source not in offered:
        *first, last = map(repr, offered)
        raise ValueError(
            f"source: found {source!r}; {name} has {', '.join(first)} and {last}"
        )
    return Source(source)


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A table to learn from, a group for every row and, for graphs, the edges.

    Printing it shows its card.

    Attributes
    ----------
    name : str
    source : str
        One of `Source`.
    X : DataFrame (n, features)
    y : integers (n,)
        Labels 0..K-1, and -1 for unlabelled rows.
    groups : (n,)
        The name of every row's group.
    group_names : tuple of str
        Largest group first.
    label_names : tuple of str
    attribute : str
        What the groups are by, such as "race × sex".
    edge_index : integers (2, E), optional
        Every undirected edge in both directions.
    dropped : dict
        Rows that were left out, by the reason.
    missing : tuple of str
        Columns that the source lacks.
    notes : tuple of str
    cuts : DataFrame, optional
        Where the classes of income begin, by state.
    licence, citation : str
    year : int, optional
        Of the survey, where the records come from one.

    Examples
    --------
    >>> X = pd.DataFrame({"age": [20, 30, 40]})
    >>> y = np.array([0, 1, 1])
    >>> groups = np.array(["a", "b", "b"])
    >>> Dataset("toy", "local", X, y, groups, ("b", "a"), ("no", "yes"), "team")
    toy
      source    local
      rows      3
      features  1: age
      groups    by team: b 2; a 1
      classes   no 1; yes 2
    """

    name: str
    source: str
    X: pd.DataFrame
    y: np.ndarray
    groups: np.ndarray
    group_names: tuple[str, ...]
    label_names: tuple[str, ...]
    attribute: str
    edge_index: np.ndarray | None = None
    dropped: dict[str, int] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    cuts: pd.DataFrame | None = None
    licence: str = ""
    citation: str = ""
    year: int | None = None

    def __len__(self) -> int:
        return len(self.y)

    @property
    def n_classes(self) -> int:
        return len(self.label_names)

    @property
    def attributes(self) -> tuple[str, ...]:
        """What the groups are by, one name or several."""
        return tuple(self.attribute.split(CROSSED))

    def counts(self) -> pd.DataFrame:
        """Labelled rows per group (rows) and label (columns); empty cells are 0."""
        groups = pd.Series(self.groups, name="group")
        labels = pd.Series(self.y, name="label")
        table = pd.crosstab(groups, labels)
        table = table.reindex(
            index=self.group_names, columns=range(self.n_classes), fill_value=0
        )
        return table.set_axis(list(self.label_names), axis=1)

    def __repr__(self) -> str:
        wrapper = textwrap.TextWrapper(CARD_WIDTH, subsequent_indent=" " * 12)
        lines = [self.name]
        for what, text in self._facts().items():
            if text:
                lines.append(wrapper.fill(f"  {what:<10}{text}"))
        return "\n".join(lines)

    def _facts(self) -> dict[str, str]:
        """What the card says, line by line; nothing where there is nothing to say."""
        counts = self.counts()
        rows = f"{len(self):,}"
        n_labelled = int((self.y >= 0).sum())
        if n_labelled < len(self):
            rows += f", {n_labelled:,} labelled"
        edges = ""
        if self.edge_index is not None:
            edges = f"{self.edge_index.shape[1] // 2:,} undirected"
        dropped = [f"{n:,} {reason}" for reason, n in self.dropped.items()]
        return {
            "source": str(self.source),
            "rows": rows,
            "features": _column_summary(list(self.X.columns)),
            "groups": f"by {self.attribute}: {_named_counts(counts.sum(axis=1))}",
            "classes": _named_counts(counts.sum(axis=0)),
            "edges": edges,
            "dropped": "; ".join(dropped),
            "missing": ", ".join(self.missing),
            "notes": "; ".join(self.notes),
            "licence": self.licence,
            "cite": self.citation,
        }


def _column_summary(columns: list[str]) -> str:
    """How many columns there are, and their names, or the first of many."""
    shown = columns
    if len(columns) > 20:
        shown = [*columns[:12], f"… and {len(columns) - 12} more"]
    return f"{len(columns)}: {', '.join(shown)}"


def _named_counts(counts: pd.Series) -> str:
    """Names, each with its count."""
    return "; ".join(f"{name} {n:,}" for name, n in counts.items())


@dataclass(frozen=True, eq=False)
class Grouping:
    """The group of every row, the names (largest group first), and what they are by."""

    groups: np.ndarray
    names: tuple[str, ...]
    attributes: tuple[str, ...]

    @property
    def attribute(self) -> str:
        """What the groups are by, in one text."""
        return CROSSED.join(self.attributes)


def group_by(
    columns: Mapping[str, np.ndarray], attribute: str | Sequence[str] | None
) -> Grouping:
    """Groups by one of the columns or by several, crossed; by default by the first.

    Examples
    --------
    >>> age = np.array(["old", "young", "old"])
    >>> sex = np.array(["men", "women", "women"])
    >>> group_by({"age": age, "sex": sex}, ("age", "sex")).groups.tolist()
    ['old, men', 'young, women', 'old, women']
    """
    if attribute is None:
        chosen = tuple(columns)[:1]
    elif isinstance(attribute, str):
        chosen = (attribute,)
    else:
        chosen = tuple(attribute)
    if not chosen or not set(chosen) <= set(columns):
        known = ", ".join(map(repr, columns))
        raise ValueError(
            f"attribute: found {attribute!r}; wanted one or several of {known}"
        )
    groups = pd.Series(columns[chosen[0]], dtype=object)
    for other in chosen[1:]:
        groups = groups + ", " + columns[other].astype(object)
    names = tuple(groups.value_counts().index)
    return Grouping(groups.to_numpy(), names, chosen)


def undirected(pairs: np.ndarray, n: int) -> np.ndarray:
    """The distinct edges among pairs of n nodes, each once, without loops.

    Parameters
    ----------
    pairs : integers (2, any number)
    n : int
        How many nodes there are.

    Returns
    -------
    int64 (2, E)
        The smaller node first; in ascending order.

    Examples
    --------
    >>> undirected(np.array([[2, 1, 0, 1], [1, 2, 1, 1]]), 3).tolist()
    [[0, 1], [1, 2]]
    """
    low, high = np.sort(pairs, axis=0).astype(np.int64)
    is_loop = low == high
    edges = np.unique((low * n + high)[~is_loop])
    return np.stack([edges // n, edges % n])


def symmetric(edges: np.ndarray) -> np.ndarray:
    """Every edge of (2, E) in both directions, int64 (2, 2E)."""
    return np.concatenate([edges, edges[::-1]], axis=1).astype(np.int64)


def split(dataset: Dataset, seed: int) -> np.ndarray:
    """The part of every row.

    Each cell (group, label) gives 30% to train, 20% to valid, 25% to calibration and 25%
    to test. A cell too small for all four parts is split at random; a warning names it.

    Parameters
    ----------
    dataset : Dataset
    seed : int

    Returns
    -------
    str (n,)
        One of `PARTS`, or "unlabelled" for rows without a label.

    Examples
    --------
    >>> y = np.tile([0, 1], 50)
    >>> groups = np.repeat(["a", "b"], 50)
    >>> table = pd.DataFrame({"x": y})
    >>> toy = Dataset("toy", "local", table, y, groups, ("a", "b"), ("no", "yes"), "team")
    >>> int((split(toy, 0) == "train").sum()) in range(28, 33)
    True
    """
    parts = np.where(dataset.y >= 0, "labelled", "unlabelled").astype("<U11")
    return _divide(dataset, parts, ("labelled",), PARTS, FRACTIONS, [seed, STREAM])


def resplit(dataset: Dataset, parts: np.ndarray, seed: int) -> np.ndarray:
    """Calibration and test rows divided anew, half and half in each cell (group, label).

    Parameters
    ----------
    dataset : Dataset
    parts : str (n,)
        As `split` gives them. All other rows keep their part.
    seed : int

    Returns
    -------
    str (n,)

    Examples
    --------
    >>> y = np.tile([0, 1], 50)
    >>> groups = np.repeat(["a", "b"], 50)
    >>> table = pd.DataFrame({"x": y})
    >>> toy = Dataset("toy", "local", table, y, groups, ("a", "b"), ("no", "yes"), "team")
    >>> parts = split(toy, 0)
    >>> again = resplit(toy, parts, 1)
    >>> sorted(set(parts[parts != again].tolist()))
    ['calibration', 'test']
    """
    halves = (0.5, 0.5)
    return _divide(dataset, parts, HELD_OUT, HELD_OUT, halves, [seed, STREAM])


def tune_halves(dataset: Dataset, parts: np.ndarray, seed: int) -> np.ndarray:
    """Half of the calibration rows of each cell (group, label) set aside to tune on.

    Parameters
    ----------
    dataset : Dataset
    parts : str (n,)
        As `split` or `resplit` gives them.
    seed : int

    Returns
    -------
    str (n,)
        `parts` with "tune" for half of "calibration".

    Examples
    --------
    >>> y = np.tile([0, 1], 50)
    >>> groups = np.repeat(["a", "b"], 50)
    >>> table = pd.DataFrame({"x": y})
    >>> toy = Dataset("toy", "local", table, y, groups, ("a", "b"), ("no", "yes"), "team")
    >>> parts = split(toy, 0)
    >>> set(parts[tune_halves(toy, parts, 0) == "tune"].tolist())
    {'calibration'}
    """
    old = ("calibration",)
    new = ("tune", "calibration")
    halves = (0.5, 0.5)
    return _divide(dataset, parts, old, new, halves, [seed, STREAM, 1])


def _divide(
    dataset: Dataset,
    parts: np.ndarray,
    old: Sequence[str],
    new: Sequence[str],
    fractions: Sequence[float],
    seed: list[int],
) -> np.ndarray:
    """`parts` with `new` for `old`; each new part has its fraction of every cell."""
    rng = np.random.default_rng(seed)
    divided = np.array(parts)
    rows = np.flatnonzero(np.isin(parts, old))
    group_codes, _ = pd.factorize(dataset.groups[rows])
    cell = group_codes * dataset.n_classes + dataset.y[rows]
    order = np.lexsort((rng.random(len(rows)), cell))
    _, start, size = np.unique(cell[order], return_index=True, return_counts=True)
    _warn_of_small_cells(dataset, rows[order[start]], size, min(fractions))
    # Within its cell a row has a place; a shift per cell rounds at random, up or down.
    place = np.arange(len(rows)) - np.repeat(start, size)
    shift = np.repeat(rng.random(len(size)), size)
    share_below = (place + shift) / np.repeat(size, size)
    limits = np.cumsum(fractions)[:-1]
    part = np.searchsorted(limits, share_below, side="right")
    divided[rows[order]] = np.array(new)[part]
    return divided


def _warn_of_small_cells(
    dataset: Dataset, first_rows: np.ndarray, sizes: np.ndarray, fraction: float
) -> None:
    """Warn of cells, one row of each given, that are too small for the least part."""
    small = []
    for row, n in zip(first_rows, sizes, strict=True):
        if n * fraction < 1:
            label = dataset.label_names[dataset.y[row]]
            small.append(f"{dataset.groups[row]} / {label} ({n})")
    if small:
        warnings.warn(
            "too few rows to reach every part: " + ", ".join(small), stacklevel=4
        )

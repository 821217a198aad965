"""What a loaded dataset is, how it prints, and how it is split."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

PARTS = ("train", "valid", "calibration", "test")
FRACTIONS = (0.30, 0.20, 0.25, 0.25)
STREAM = 0x5911  # splits draw from a stream of their own: default_rng(seed).random(n) must not tell the part of a row


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A table to learn from, a group for every row and, for graphs, the edges; printing it shows its card.

    `y` holds 0..K-1, and -1 for unlabelled rows; `groups` holds names; `edge_index` is int (2, E) with every undirected
    edge in both directions; `dropped` maps a reason to a number of rows; `missing` names columns the source lacks.
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
    licence: str = ""
    citation: str = ""

    def __len__(self) -> int:
        return len(self.y)

    @property
    def n_classes(self) -> int:
        return len(self.label_names)

    def counts(self) -> pd.DataFrame:
        """Labelled rows per group (rows) and label (columns), named; zero where a cell is empty."""
        table = pd.crosstab(pd.Series(self.groups), self.y).reindex(
            index=self.group_names, columns=range(self.n_classes), fill_value=0
        )
        return table.rename_axis(index="group", columns="label").set_axis(list(self.label_names), axis=1)

    def __repr__(self) -> str:
        labelled = int((self.y >= 0).sum())
        counts, width = self.counts(), 12
        lines = {
            "source": self.source,
            "rows": f"{len(self):,}" + (f", {labelled:,} labelled" if labelled < len(self) else ""),
            "features": f"{self.X.shape[1]}: {', '.join(map(str, self.X.columns))}",
            "groups": f"{self.attribute}: " + ", ".join(f"{g} {n:,}" for g, n in counts.sum(axis=1).items()),
            "classes": ", ".join(f"{label} {n:,}" for label, n in counts.sum(axis=0).items()),
            "edges": "" if self.edge_index is None else f"{self.edge_index.shape[1] // 2:,} undirected",
            "dropped": ", ".join(f"{n:,} {reason}" for reason, n in self.dropped.items()),
            "missing": ", ".join(self.missing),
            "notes": "; ".join(self.notes),
            "licence": self.licence,
            "cite": self.citation,
        }
        return "\n".join([self.name, *(f"  {k:<{width}}{v}" for k, v in lines.items() if v)])


def intersect(*columns: np.ndarray) -> np.ndarray:
    """One name per row for a combination of attributes: "under 25, woman"."""
    names, codes = np.full(len(columns[0]), "", dtype=object), np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        code, values = pd.factorize(column)
        codes = codes * len(values) + code
    first = pd.Series(codes).drop_duplicates()
    label = {code: ", ".join(str(c[i]) for c in columns) for i, code in first.items()}
    for code, text in label.items():
        names[codes == code] = text
    return names


def split(dataset: Dataset, seed: int) -> np.ndarray:
    """Part of every row, array of str: 30% train, 20% valid, 25% calibration, 25% test of each (group, label) cell.

    Unlabelled rows are "unlabelled". A cell too small for all four parts is split at random and a warning names it.
    """
    parts = np.full(len(dataset), "unlabelled", dtype="<U11")
    rows = np.flatnonzero(dataset.y >= 0)
    parts[rows] = np.array(PARTS)[_stratified(dataset, rows, FRACTIONS, seed)]
    return parts


def resplit(dataset: Dataset, parts: np.ndarray, seed: int) -> np.ndarray:
    """`parts` with its calibration and test rows divided anew, half and half within each (group, label) cell."""
    return _halves(dataset, parts, ("calibration", "test"), ("calibration", "test"), seed)


def tune_halves(dataset: Dataset, parts: np.ndarray, seed: int) -> np.ndarray:
    """`parts` with half of each (group, label) cell of the calibration rows called "tune"."""
    return _halves(dataset, parts, ("calibration",), ("tune", "calibration"), seed)


def _halves(dataset: Dataset, parts: np.ndarray, old: tuple[str, ...], new: tuple[str, str], seed: int) -> np.ndarray:
    parts, rows = np.array(parts), np.flatnonzero(np.isin(parts, old))
    parts[rows] = np.array(new)[_stratified(dataset, rows, (0.5, 0.5), seed)]
    return parts


def _stratified(dataset: Dataset, rows: np.ndarray, fractions: tuple[float, ...], seed: int) -> np.ndarray:
    """Index of the part of each of `rows`; within a cell every part gets its share rounded up or down, at random."""
    rng = np.random.default_rng([seed, STREAM])
    codes, _ = pd.factorize(np.asarray(dataset.groups)[rows])
    cell = codes * dataset.n_classes + dataset.y[rows]
    order = np.lexsort((rng.random(len(rows)), cell))
    _, start, size = np.unique(cell[order], return_index=True, return_counts=True)
    small = size < np.ceil(1 / min(fractions))
    if small.any():
        first = rows[order[start[small]]]
        named = (
            f"{g} / {dataset.label_names[k]} ({n})"
            for g, k, n in zip(dataset.groups[first], dataset.y[first], size[small], strict=True)
        )
        warnings.warn("too few rows to reach every part: " + ", ".join(named), stacklevel=3)
    rank = np.arange(len(rows)) - np.repeat(start, size) + np.repeat(rng.random(len(size)), size)
    part = np.empty(len(rows), dtype=np.int64)
    part[order] = np.searchsorted(np.cumsum(fractions)[:-1], rank / np.repeat(size, size), side="right")
    return part

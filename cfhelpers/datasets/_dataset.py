"""What a loaded dataset is, how it prints, and how it is split."""

import textwrap
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
    cuts: pd.DataFrame | None = None  # of incomes, by state
    licence: str = ""
    citation: str = ""

    def __len__(self) -> int:
        return len(self.y)

    @property
    def n_classes(self) -> int:
        return len(self.label_names)

    def counts(self) -> pd.DataFrame:
        """Labelled rows per group (rows) and label (columns), named; zero where a cell is empty."""
        table = pd.crosstab(
            pd.Series(self.groups, name="group"), pd.Series(self.y, name="label")
        )
        table = table.reindex(
            index=self.group_names, columns=range(self.n_classes), fill_value=0
        )
        return table.set_axis(list(self.label_names), axis=1)

    def __repr__(self) -> str:
        labelled, counts, columns = (
            int((self.y >= 0).sum()),
            self.counts(),
            list(self.X.columns),
        )
        features = ", ".join(
            columns
            if len(columns) <= 20
            else [*columns[:12], f"… and {len(columns) - 12} more"]
        )
        lines = {
            "source": self.source,
            "rows": f"{len(self):,}"
            + (f", {labelled:,} labelled" if labelled < len(self) else ""),
            "features": f"{len(columns)}: {features}",
            "groups": f"by {self.attribute}: "
            + "; ".join(f"{g} {n:,}" for g, n in counts.sum(axis=1).items()),
            "classes": "; ".join(
                f"{label} {n:,}" for label, n in counts.sum(axis=0).items()
            ),
            "edges": ""
            if self.edge_index is None
            else f"{self.edge_index.shape[1] // 2:,} undirected",
            "dropped": "; ".join(f"{n:,} {reason}" for reason, n in self.dropped.items()),
            "missing": ", ".join(self.missing),
            "notes": "; ".join(self.notes),
            "licence": self.licence,
            "cite": self.citation,
        }
        wrap = textwrap.TextWrapper(110, subsequent_indent=" " * 12)
        return "\n".join(
            [
                self.name,
                *(wrap.fill(f"  {key:<10}{text}") for key, text in lines.items() if text),
            ]
        )


def group_by(columns: dict[str, np.ndarray], attribute) -> dict:
    """`groups`, `group_names` (largest first) and `attribute` of a Dataset by one of `columns` or several, crossed."""
    chosen = (attribute,) if isinstance(attribute, str) else tuple(attribute)
    if not chosen or not set(chosen) <= set(columns):
        raise ValueError(
            f"attribute: found {attribute!r}; wanted one or several of {', '.join(map(repr, columns))}"
        )
    groups = pd.Series(columns[chosen[0]], dtype=object)
    for other in chosen[1:]:
        groups = groups + ", " + columns[other].astype(object)
    names = tuple(groups.value_counts().index)
    return {
        "groups": groups.to_numpy(),
        "group_names": names,
        "attribute": " × ".join(chosen),
    }


def undirected(pairs: np.ndarray, n: int) -> np.ndarray:
    """int64 (2, E): the distinct edges among pairs (2, …) of n nodes, each once, without loops."""
    low, high = np.sort(pairs, axis=0).astype(np.int64)
    return np.stack(np.divmod(np.unique((low * n + high)[low != high]), n))


def symmetric(edges: np.ndarray) -> np.ndarray:
    """int64 (2, 2E): every edge of (2, E) in both directions."""
    return np.concatenate([edges, edges[::-1]], axis=1).astype(np.int64)


def split(dataset: Dataset, seed: int) -> np.ndarray:
    """Part of every row, array of str: 30% train, 20% valid, 25% calibration, 25% test of each (group, label) cell.

    Unlabelled rows are "unlabelled". A cell too small for all four parts is split at random and a warning names it.
    """
    parts = np.where(dataset.y >= 0, "labelled", "unlabelled").astype("<U11")
    return _divide(dataset, parts, ["labelled"], PARTS, FRACTIONS, [seed, STREAM])


def resplit(dataset: Dataset, parts: np.ndarray, seed: int) -> np.ndarray:
    """`parts` with its calibration and test rows divided anew, half and half within each (group, label) cell."""
    return _divide(dataset, parts, PARTS[2:], PARTS[2:], (0.5, 0.5), [seed, STREAM])


def tune_halves(dataset: Dataset, parts: np.ndarray, seed: int) -> np.ndarray:
    """`parts` with half of each (group, label) cell of the calibration rows called "tune"."""
    return _divide(
        dataset,
        parts,
        ["calibration"],
        ("tune", "calibration"),
        (0.5, 0.5),
        [seed, STREAM, 1],
    )


def _divide(
    dataset: Dataset, parts: np.ndarray, old, new, fractions, seed: list[int]
) -> np.ndarray:
    """`parts` with `new` for `old`; within a cell each new part has its fraction, rounded up or down at random."""
    rng, parts, rows = (
        np.random.default_rng(seed),
        np.array(parts),
        np.flatnonzero(np.isin(parts, old)),
    )
    cell = pd.factorize(dataset.groups[rows])[0] * dataset.n_classes + dataset.y[rows]
    order = np.lexsort((rng.random(len(rows)), cell))
    _, start, size = np.unique(cell[order], return_index=True, return_counts=True)
    first = rows[order[start]]
    names = zip(
        dataset.groups[first],
        np.array(dataset.label_names)[dataset.y[first]],
        size,
        strict=True,
    )
    if small := [
        f"{group} / {label} ({n})" for group, label, n in names if n * min(fractions) < 1
    ]:
        warnings.warn(
            "too few rows to reach every part: " + ", ".join(small), stacklevel=3
        )
    place = (
        np.arange(len(rows))
        - np.repeat(start, size)
        + np.repeat(rng.random(len(size)), size)
    )
    part = np.searchsorted(
        np.cumsum(fractions)[:-1], place / np.repeat(size, size), side="right"
    )
    parts[rows[order]] = np.array(new)[part]
    return parts

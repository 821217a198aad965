"""Scores into bins: one plain loop over a column of scores.

A bin ends at an edge, which belongs to it: bin j holds the scores above edge j - 1 and
up to edge j, the bin after the last edge the finite scores above it, and one more bin the
infinite ones. Numba compiles the loop at its first use and keeps the result on disk;
where Numba is absent the same function runs as it stands here. This file imports nothing
of the package: Numba's cache, which watches this file alone, is then never out of date.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

N_SLOTS = 1 << 16


@dataclass(frozen=True)
class Bins:
    """Edges, and a table that says where to look for the bin of a score.

    A score's slot is found by one multiplication. `first` and `last` limit the bins that
    scores of a slot can lie in, with half a slot to spare for rounding. For most slots
    the two are one bin, and no edge needs to be looked at.
    """

    edges: np.ndarray
    low: float
    slots_per_unit: float
    first: np.ndarray
    last: np.ndarray

    @classmethod
    def ending_at(cls, edges: np.ndarray) -> "Bins":
        """Bins that end at these numbers, finite and ascending."""
        n_edges = len(edges)
        low = float(edges[0])
        width = float(edges[-1]) - low
        n_slots = N_SLOTS
        slots_per_unit = 0.0
        if width > 0:
            slots_per_unit = n_slots / width
        if not np.isfinite(slots_per_unit) or slots_per_unit == 0:
            slots_per_unit = 0.0
            n_slots = 1
        first = np.zeros(n_slots, np.int32)
        last = np.full(n_slots, n_edges, np.int32)
        if n_slots > 1:
            slot = np.arange(n_slots)
            starts = low + (slot[1:] - 0.5) / slots_per_unit
            ends = low + (slot[:-1] + 1.5) / slots_per_unit
            first[1:] = np.searchsorted(edges, starts, side="left")
            last[:-1] = np.searchsorted(edges, ends, side="left")
        return cls(edges, low, slots_per_unit, first, last)

    @property
    def n_bins(self) -> int:
        """With the one above all edges and the one for infinite scores."""
        return len(self.edges) + 2

    def plain_slots(self, is_wanted: np.ndarray) -> np.ndarray:
        """The bin of all scores of a slot; -1 where scores need a closer look."""
        is_plain = (self.first == self.last) & ~is_wanted[self.first]
        return np.where(is_plain, self.first, -1).astype(np.int32)


def count_column(
    scores: np.ndarray,
    rows: np.ndarray,
    low: float,
    slots_per_unit: float,
    plain: np.ndarray,
    first: np.ndarray,
    last: np.ndarray,
    edges: np.ndarray,
    is_wanted: np.ndarray,
    counts: np.ndarray,
    values: np.ndarray,
    value_rows: np.ndarray,
) -> int:
    """Count every score of a column into its bin; note those in the wanted bins.

    Parameters
    ----------
    scores : numbers (n,)
        Without NaN.
    rows : integers (n,)
        The row of `counts` that each score belongs to.
    low, slots_per_unit, plain, first, last
        Of `Bins`; `plain` is what `plain_slots` gives for `is_wanted`.
    edges : numbers
        Those of `Bins`, and infinity after them.
    is_wanted : bool (bins,)
        The bins whose scores are noted one by one.
    counts : integers (rows, bins)
        Raised by one for every score.
    values, value_rows : (n,)
        Filled with the scores in wanted bins and their rows.

    Returns
    -------
    int
        How many scores were noted.
    """
    n_edges = len(edges) - 1
    top = float(len(first) - 1)
    noted = 0
    for i in range(len(scores)):
        value = float(scores[i])
        row = np.uint64(rows[i])
        slot = np.uint64(min(max((value - low) * slots_per_unit, 0.0), top))
        if plain[slot] >= 0:
            counts[row, np.uint64(plain[slot])] += 1
            continue
        a = np.uint64(first[slot])
        b = np.uint64(last[slot])
        while a < b:  # until edge a is the first that is not below the score
            middle = (a + b) >> np.uint64(1)
            if edges[middle] < value:
                a = middle + np.uint64(1)
            else:
                b = middle
        if a == n_edges and value == np.inf:
            a += np.uint64(1)
        counts[row, a] += 1
        if is_wanted[a]:
            values[noted] = value
            value_rows[noted] = rows[i]
            noted += 1
    return noted


@functools.cache
def compiled() -> Callable[..., int]:
    """`count_column`, compiled where Numba is installed."""
    try:
        from numba import njit, types
    except ImportError:
        return count_column

    def read(kind: Any) -> Any:
        """An array that is only read: writable ones are accepted too."""
        return types.Array(kind, 1, "C", readonly=True)

    signatures = []
    number = types.float64
    for score in (types.float32, types.float64):
        signatures.append(
            types.int64(
                read(score),
                read(types.int32),
                number,
                number,
                read(types.int32),
                read(types.int32),
                read(types.int32),
                read(number),
                read(types.boolean),
                types.int64[:, ::1],
                number[::1],
                types.int32[::1],
            )
        )
    return njit(signatures, cache=True, nogil=True)(count_column)

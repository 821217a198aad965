"""Scores into bins: one plain loop over a column of scores or probabilities.

A bin ends at an edge, which belongs to it: bin j holds the scores above edge j - 1 and
up to edge j, the bin after the last edge the finite scores above it, and one more bin the
infinite ones. Numba compiles the loop at its first use and keeps the result on disk;
where Numba is absent the same function runs as it stands here. The loop calls nothing of
another file: Numba's cache, which watches this file alone, is then never out of date.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfhelpers._compiling import compile_loop

N_SLOTS = 1 << 15
AT_ONCE = 1 << 13  # numbers whose slots are found in one go: they stay in a near cache


@dataclass(frozen=True)
class Bins:
    """Edges, and a table that says where to look for the bin of a score.

    A score's slot is found by one multiplication. `first` and `last` limit the bins that
    scores of a slot can lie in, with half a slot to spare for rounding. For most slots
    the two are one bin, or neighbours with one edge between them.
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

    def first_bins(self, is_wanted: np.ndarray) -> np.ndarray:
        """The first bin of each slot that has at most two; -1: look closer at its scores.

        A closer look is taken at scores in wanted bins and at those beyond all edges.
        """
        has_two = self.last <= self.first + 1
        is_near = has_two & ~is_wanted[self.first] & ~is_wanted[self.last]
        is_near[-1] = False
        return np.where(is_near, self.first, -1).astype(np.int32)


@functools.lru_cache(maxsize=8)
def bins_ending_at(edges: bytes) -> Bins:
    """Bins for the bytes of float64 edges: the same for one file after the other."""
    return Bins.ending_at(np.frombuffer(edges))


@functools.lru_cache(maxsize=2)
def first_bins_of(edges: bytes, is_wanted: bytes) -> list[np.ndarray]:
    """`Bins.first_bins` for every label of the bytes of bool (labels, bins).

    The same for one file after the other, and for labels that want the same bins: one
    table stays in a near cache where one for each label would not.
    """
    bins = bins_ending_at(edges)
    found: dict[bytes, np.ndarray] = {}
    tables = []
    for wanted in np.frombuffer(is_wanted, bool).reshape(-1, bins.n_bins):
        key = wanted.tobytes()
        if key not in found:
            found[key] = bins.first_bins(wanted)
        tables.append(found[key])
    return tables


def count_column(
    column: np.ndarray,
    is_probability: bool,
    cells: np.ndarray,
    rows: np.ndarray,
    low: float,
    slots_per_unit: float,
    nearest: np.ndarray,
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
    column : numbers (n,)
        Without NaN.
    is_probability : bool
        Whether the score is 1 minus the number, in the column's precision, or the number.
    cells : integers (n,)
        Who each score belongs to: places in `rows`.
    rows : integers
        The row of `counts` for each of them.
    low, slots_per_unit, nearest, first, last
        Of `Bins`; `nearest` is what `first_bins` gives for `is_wanted`.
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
    # Both exact, in the column's precision; 0.0 + -0.0 is 0.0.
    start = np.float32(1.0) if is_probability else np.float32(0.0)
    sign = np.float32(-1.0) if is_probability else np.float32(1.0)
    slots = np.empty(AT_ONCE, np.int32)
    noted = 0
    for begin in range(0, len(column), AT_ONCE):
        block = column[begin : begin + AT_ONCE]
        block_cells = cells[begin : begin + AT_ONCE]
        for i in range(len(block)):  # by itself, so that many are found at a time
            value = float(start + sign * block[i])
            place = (value - low) * slots_per_unit
            place = place if place > 0.0 else 0.0
            slots[i] = np.int32(place if place < top else top)
        for i in range(len(block)):
            value = float(start + sign * block[i])
            row = np.uint64(rows[np.uint64(block_cells[i])])
            slot = np.uint64(slots[i])
            near = nearest[slot]
            if near >= 0:
                near += edges[np.uint64(near)] < value
                counts[row, np.uint64(near)] += 1
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
                value_rows[noted] = row
                noted += 1
    return noted


@functools.cache
def compiled() -> Callable[..., int]:
    """`count_column`, compiled where Numba is installed."""
    try:
        from numba import types
    except ImportError:
        return count_column

    def read(kind: Any) -> Any:
        """An array that is only read: writable ones are accepted too."""
        return types.Array(kind, 1, "C", readonly=True)

    signatures = []
    number = types.float64
    for kind in (types.float32, types.float64):
        signatures.append(
            types.int64(
                read(kind),
                types.boolean,
                read(types.int32),
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
    return compile_loop(count_column, signatures, nogil=True)

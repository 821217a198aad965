"""A search over files: passes over the data, and then a walk over counts.

Bins end at the grid's points, so a guarantee needs one pass. The paper's rule and q̂ need
the scores in a few bins one by one: q̂'s are noted in the first pass where a look at some
rows says it lies, the others in a second one.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfhelpers._binned import (
    BinLosses,
    CountedScores,
    ScoreCounts,
    add_counts,
    counted_curve,
    exact_curve,
)
from cfhelpers._counting import Run
from cfhelpers._kept_counts import keep_look, look_key, read_look
from cfhelpers._ordering import CellMap
from cfhelpers._parquet import count_file
from cfhelpers._questions import (
    Question,
    cell_maps,
    finished_search,
    with_known_groups,
)
from cfhelpers.conformal import conformal_quantile, quantile_rank
from cfhelpers.control import (
    ROUNDING,
    Curve,
    Search,
    check_default_grid,
    default_grid,
    fixed_sequence,
)
from cfhelpers.groups import Groups, as_pools

LOOK_AT = 64  # files, at most, whose first rows say roughly where q̂ lies
LOOK_ROWS = 1 << 14
SLACK = 1e-9  # beyond a limit, where a bin is kept for a loss that rounding moved


@dataclass(frozen=True)
class AtScale:
    """Files, their layout and a question: passes over the data, and a search."""

    run: Run
    more: Run | None  # points without labels
    question: Question
    declared: tuple[Any, ...]
    grid: np.ndarray | None
    needs_range: bool  # scores above 1 need a grid
    pool_sizes: Mapping[Any, int] | None
    base_scores: np.ndarray | None

    def search(self, limits: Sequence[float] | None) -> Search:
        """The answers for some losses; None: for every one."""
        edges, is_noted = self._first_bins()
        labelled, everyone = self._count(edges, is_noted)
        self._check_range(labelled, everyone)
        base_bin, base = self._base(labelled)
        wanted = is_noted.copy()
        if base_bin is not None:
            wanted[:, base_bin] = True
        if self.question.level is None and base_bin is not None:
            wanted |= self._candidates(everyone, base_bin, limits)
        if (wanted & ~is_noted).any():
            labelled, everyone = self._count(edges, wanted)
            base_bin, base = self._base(labelled)
        if self.needs_range:
            check_default_grid(base)
        pools = self._pools(everyone)
        curves = []
        for cells in cell_maps(self.question, everyone, pools):
            curves.append(self._curve(everyone, cells, base, base_bin, limits))
        return finished_search(everyone, labelled.n_labelled, self.question, base, curves)

    def _count(
        self, edges: np.ndarray, is_noted: np.ndarray
    ) -> tuple[ScoreCounts, ScoreCounts]:
        """The points with labels, and all points, by the same groups."""
        labelled = self.run.count(edges, is_noted)
        if labelled.n_points == 0:
            raise ValueError("files: found no rows; wanted at least one point")
        declared = list(self.declared)
        if self.pool_sizes is not None:
            declared += [name for name, size in self.pool_sizes.items() if size != 0]
        column = " × ".join(self.run.layout.groups)
        if self.more is None:
            everyone = with_known_groups(labelled, declared, column)
            return everyone, everyone
        others = self.more.count(edges, is_noted)
        everyone = with_known_groups(add_counts([labelled, others]), declared, column)
        return with_known_groups(labelled, everyone.group_names, column), everyone

    def _pools(self, everyone: ScoreCounts) -> np.ndarray | None:
        if self.pool_sizes is None:
            return None
        codes = np.repeat(np.arange(len(everyone.group_names)), everyone.group_sizes)
        return as_pools(self.pool_sizes, Groups(codes, everyone.group_names))

    def _first_bins(self) -> tuple[np.ndarray, np.ndarray]:
        """Edges, and the bins in which q̂ is likely to lie: their scores are noted."""
        edges = default_grid() if self.grid is None else self.grid
        edges = np.append(edges, 1 + ROUNDING)
        if self.base_scores is not None:
            base = conformal_quantile(self.base_scores, self.question.alpha)
            if math.isfinite(base):
                edges = np.append(edges, base)
            edges = np.unique(edges)
            return self._bins_around(np.empty(0), edges)
        folder = self.run.folder
        alpha = self.question.alpha
        key = look_key(self.run.files[0], self.run.layout, alpha, edges)
        around = read_look(folder, key)
        if around is not None:
            bins = self._bins_around(around, edges)
            if self.run.has_counts(*bins):
                return bins
        around = self._likely_base()
        keep_look(folder, key, around)
        return self._bins_around(around, edges)

    def _bins_around(
        self, around: np.ndarray, edges: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Edges, and the bins between two numbers."""
        edges = np.unique(np.concatenate([edges, around]))
        is_noted = np.zeros((len(self.run.layout.columns), len(edges) + 2), bool)
        if len(around):
            first, last = np.searchsorted(edges, around)
            is_noted[:, first + 1 : last + 1] = True
        return edges, is_noted

    def _likely_base(self) -> np.ndarray:
        """Two numbers with q̂ between them, as the first rows of some files have it.

        If it lies elsewhere a second pass finds it: only time depends on this.
        """
        files = self.run.files[:: math.ceil(len(self.run.files) / LOOK_AT)]
        layout = self.run.layout
        all_bins = np.ones((len(layout.columns), 3), bool)
        values = []
        for file in files:
            try:
                own = count_file(file, layout, np.zeros(1), all_bins, rows=LOOK_ROWS)
            except ValueError:  # the count of all rows says what is wrong, of all files
                continue
            is_true = own.kinds // max(len(own.group_names), 1) % 2 == 0
            values.append(own.values[is_true])
        seen = np.sort(np.concatenate([np.empty(0), *values]))
        seen = seen[np.isfinite(seen)]
        n = len(seen)
        alpha = self.question.alpha
        margin = 5 * math.sqrt(n * alpha * (1 - alpha)) + 2
        low = math.floor(n * (1 - alpha) - margin)
        high = math.ceil(n * (1 - alpha) + margin)
        if low < 0 or high >= n or seen[low] == seen[high]:
            return np.empty(0)
        return seen[[low, high]]

    def _check_range(self, labelled: ScoreCounts, everyone: ScoreCounts) -> None:
        """Scores above 1 with a guarantee need a grid of their own."""
        if not self.needs_range:
            return
        above = everyone.counts[..., np.searchsorted(everyone.edges, 1 + ROUNDING) + 1 :]
        if above.any():
            raise ValueError(
                "grid: found None while scores reach beyond 1; scores above 1 with a "
                "guarantee need a grid of thresholds that is fixed without the "
                "calibration data"
            )

    def _base(self, labelled: ScoreCounts) -> tuple[int | None, float]:
        """q̂'s bin, and q̂: infinite, and no bin, if there are too few points.

        Where the bin's scores were not noted, its end stands for q̂.
        """
        if self.base_scores is not None:
            base = conformal_quantile(self.base_scores, self.question.alpha)
            if math.isinf(base):
                return None, base
            return int(np.searchsorted(labelled.edges, base)), base
        rank = quantile_rank(labelled.n_labelled, self.question.alpha)
        if rank > labelled.n_labelled:
            return None, math.inf
        place = labelled.rank_bin(rank)
        if place > len(labelled.edges):
            return None, math.inf
        if not labelled.is_noted[:, place].all():
            return place, math.nan
        per_bin = labelled.counts[:, 0].sum(axis=(0, 1))
        n_groups = len(labelled.group_names)
        ends = np.concatenate([[-np.inf], labelled.edges, [np.inf]])
        values = labelled.values
        is_inside = (values > ends[place]) & (values <= ends[place + 1])
        is_inside &= values < np.inf
        is_true = labelled.kinds[is_inside] // n_groups % 2 == 0
        inside = np.sort(values[is_inside][is_true])
        return place, float(inside[rank - 1 - per_bin[:place].sum()])

    def _candidates(
        self, everyone: ScoreCounts, base_bin: int, limits: Sequence[float] | None
    ) -> np.ndarray:
        """The bins whose scores decide, bool (K, bins)."""
        wanted = np.zeros((len(everyone.label_names), len(everyone.edges) + 2), bool)
        for cells in cell_maps(self.question, everyone, None):
            if cells.shape[0] == 0:
                continue
            places = self._places(everyone, cells, base_bin, limits)
            wanted[np.asarray(cells.columns)[:, None], places] = True
        return wanted

    def _places(
        self,
        everyone: ScoreCounts,
        cells: CellMap,
        base_bin: int,
        limits: Sequence[float] | None,
    ) -> np.ndarray:
        """The bins that can hold an answer, q̂'s first."""
        counts = everyone.without_notes()
        scores = CountedScores.build(counts, cells.columns, math.inf)
        losses = BinLosses.build(scores, cells, base_bin)
        if limits is None:
            places = losses.that_can_be_lows()
        else:
            places = losses.that_can_pass([limit + SLACK for limit in limits])
        return np.unique(np.append(places, base_bin))

    def _curve(
        self,
        everyone: ScoreCounts,
        cells: CellMap,
        base: float,
        base_bin: int | None,
        limits: Sequence[float] | None,
    ) -> Curve:
        """The answers of one threshold."""
        scores = CountedScores.build(everyone, cells.columns, base)
        level = self.question.level
        if level is None:
            if base_bin is None or cells.shape[0] == 0:
                return counted_curve(scores, cells)
            places = self._places(everyone, cells, base_bin, limits)
            return exact_curve(scores, cells, places)
        grid = default_grid() if self.grid is None else self.grid
        points = grid[grid >= base]
        start = self.question.start
        return fixed_sequence(
            scores, cells, points, level, from_infinity=start is None, limits=limits
        )

"""The smallest threshold that keeps the gap between groups within c: exact, for every c at once, and with a guarantee.

Two ideas carry the exact search. Coverage bounds move only at calibration scores, so those above q̂, q̂ itself and ∞
are the only candidates. And as the threshold grows every bound only rises: the largest upper bound is a running
maximum, and the smallest lower bound, read from the other end, a running minimum. One sort gives the gap everywhere.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from cfhelpers._checks import (
    as_float_column,
    as_fraction,
    as_labels,
    as_positive_labels,
    as_scores,
    one_of,
)
from cfhelpers.conformal import conformal_quantile
from cfhelpers.fairness import FairnessMetric, assign_cells, clopper_pearson, get_metric
from cfhelpers.groups import Groups, as_groups

TOLERANCE = 1e-12  # a gap that is exactly c in the mathematics may lie this far above it in floating point
GUARANTEES = ("none", "fixed-sequence")
MANY = 10**9  # more points than anyone has
BATCH = 1_000_000  # cells · grid points that the guarantee looks at in one go
BLOCK = 256  # scores per block, at least, when looking for the places where the loss can reach a new low
TABLE = 4_000_000  # blocks · cells, at most


@dataclass(frozen=True)
class FairThreshold:
    """What a search found. `str()` says it in words."""

    threshold: (
        np.ndarray
    )  # float64 (K,); infinite for each label that no finite threshold serves
    base_threshold: float  # q̂
    feasible: bool  # every threshold that was needed is finite
    satisfied: bool  # False only when even the full set fails (plain predictive parity)
    bound: np.ndarray  # gap or ratio at the threshold per label (K,); NaN for labels that need not be fair
    smallest_closeness: float  # the least c (ratio: the largest) that a finite threshold reaches; NaN if q̂ is infinite
    blocking_cells: list[
        tuple
    ]  # (group, label, n) of the cells that are too small for any finite threshold
    metric: str
    closeness: float
    guarantee: str
    points_needed: int  # in every cell, for a finite threshold

    def __str__(self) -> str:
        within = f"{self.metric} within {self.closeness:g} (guarantee: {self.guarantee})"
        if self.feasible:
            return f"{within}: thresholds {np.array2string(self.threshold, precision=4)}"
        text = f"{within}: no finite threshold" + (
            "" if self.satisfied else ", and the full set does not do either"
        )
        if math.isinf(self.base_threshold):
            return f"{text}; too few calibration points: q̂ is infinite"
        if not math.isnan(self.smallest_closeness):
            text += f"; the closest that a finite threshold comes is {self.smallest_closeness:.4g}"
        if self.blocking_cells:
            cells = ", ".join(
                f"({group!r}, {label}): {n}" for group, label, n in self.blocking_cells
            )
            enough = (
                f"{self.points_needed:,} points needed"
                if self.points_needed < MANY
                else "infinitely many points needed"
            )
            text += f"; cells (group, label) with fewer than the {enough}: {cells}"
        return text


def find_threshold(
    scores: Any,
    y: Any,
    groups: Any,
    metric: str | FairnessMetric,
    closeness: float | None = None,
    *,
    alpha: float = 0.1,
    classwise: bool = False,
    positive_labels: Any = None,
    guarantee: str = "none",
    delta: float = 0.1,
    grid: Any = None,
) -> FairThreshold:
    """The smallest threshold in [q̂, ∞] at which the metric is within `closeness` on the calibration data, exactly.

    scores (n, K), true labels y (n,), groups (n,) or several columns. `classwise` finds one threshold per positive
    label; by default one serves all. guarantee="fixed-sequence" returns the smallest threshold of a grid, fixed
    beforehand, down to which every one passes an exact test, so that the true gap exceeds `closeness` with probability
    at most `delta`.
    """
    return search(
        scores, y, groups, metric, alpha=alpha, classwise=classwise, positive_labels=positive_labels,
        guarantee=guarantee, delta=delta, grid=grid,
    ).find(closeness)  # fmt: skip


def frontier(
    scores: Any, y: Any, groups: Any, metric: str | FairnessMetric, **options: Any
) -> pd.DataFrame:
    """The price of fairness: the answer of `find_threshold` for every closeness at once, in one pass.

    A row's threshold is the answer for every c from its closeness up to that of the row before. Mean set size and
    coverage of the true label are those of the whole predictor at that closeness on the calibration data. With
    `classwise` there is a row wherever the threshold of one label, in the column `label`, moves. Options: alpha,
    classwise, positive_labels, guarantee, delta and grid, as in `find_threshold`. The fixed-sequence promise holds for
    a closeness chosen beforehand, not for one picked from this table.
    """
    return search(scores, y, groups, metric, **options).frontier()


def search(
    scores: Any,
    y: Any,
    groups: Any,
    metric: str | FairnessMetric,
    *,
    alpha: float = 0.1,
    classwise: bool = False,
    positive_labels: Any = None,
    guarantee: str = "none",
    delta: float = 0.1,
    grid: Any = None,
) -> "Search":
    """The pass behind `find_threshold` and `frontier`: do it once, then ask for as many values of c as you like."""
    calibration = Calibration(
        scores, y, groups, alpha=alpha, positive_labels=positive_labels, share=False
    )
    return calibration.search(
        metric, classwise=classwise, guarantee=guarantee, delta=delta, grid=grid
    )


class Calibration:
    """Calibration data, checked once: `search` it by as many metrics as you like, and they share what they can.

    `share` keeps the sorted scores from one search to the next; a search alone is quicker without.
    """

    def __init__(
        self,
        scores: Any,
        y: Any,
        groups: Any,
        *,
        alpha: float = 0.1,
        positive_labels: Any = None,
        share: bool = True,
    ):
        self.scores = as_scores(scores)
        n, n_classes = self.scores.shape
        self.y, self.groups = as_labels(y, n, n_classes), as_groups(groups, n)
        self.labels = as_positive_labels(positive_labels, n_classes)
        true = self.scores.ravel()[np.arange(n) * n_classes + self.y]
        self.base = conformal_quantile(true, as_fraction(alpha, "alpha"))
        self._kept = {} if share else None

    def search(
        self,
        metric: str | FairnessMetric,
        *,
        classwise: bool = False,
        guarantee: str = "none",
        delta: float = 0.1,
        grid: Any = None,
    ) -> "Search":
        """Everything about one metric: ask the result for a closeness, or for the whole frontier."""
        scores, labels, base, metric = (
            self.scores,
            self.labels,
            self.base,
            get_metric(metric),
        )
        delta, n_classes = as_fraction(delta, "delta"), scores.shape[1]
        guaranteed = one_of(guarantee, "guarantee", GUARANTEES) != "none"
        grid = _grid_from(base, scores, grid) if guaranteed else None
        classwise = bool(classwise) and metric.per_label
        level = delta / max(len(labels), 1) if classwise else delta
        staircases = []
        for columns in (
            [[label] for label in labels] if classwise else [list(range(n_classes))]
        ):
            events = self._events(metric, columns if classwise else labels, columns)
            staircases.append(
                _fixed_sequence(events, grid, level)
                if guaranteed
                else _first_passing(events)
            )
        others = [
            label for label in range(n_classes) if classwise and label not in labels
        ]
        sets = scores[:, others] <= base
        hits = sets & (self.y[:, None] == np.asarray(others, np.int64))
        return Search(
            staircases=staircases,
            metric=metric,
            guarantee=guarantee,
            group_names=self.groups.names,
            base=base,
            shape=scores.shape,
            classwise=classwise,
            others_in_sets=np.count_nonzero(sets),
            others_hits=np.count_nonzero(hits),
        )

    def _events(
        self, metric: FairnessMetric, labels: list[int], columns: list[int]
    ) -> "Events":
        """The events of a metric, and the order of the scores, each found once."""
        if self._kept is None:
            return _collect(
                self.scores, self.y, self.groups, metric, self.base, labels, columns
            )
        order, key = (*columns,), (metric, *columns)
        if order not in self._kept:
            decided = _decided(self.scores, columns).ravel()
            above = np.flatnonzero(decided > self.base).astype(
                np.min_scalar_type(decided.size)
            )
            self._kept[order] = _sort_together(decided.take(above), above, decided.size)[
                1
            ]
        if key not in self._kept:
            self._kept[key] = _collect(
                self.scores,
                self.y,
                self.groups,
                metric,
                self.base,
                labels,
                columns,
                self._kept[order],
            )
        return self._kept[key]


def _grid_from(base: float, scores: np.ndarray, grid: Any) -> np.ndarray:
    """The finite grid points that are at least q̂, ascending. The grid itself never looks at the calibration data."""
    if grid is None:
        if scores.max() > 1:
            raise ValueError(
                f"grid: found None while scores reach {scores.max():.4g}; scores above 1 with a guarantee need a grid "
                "of thresholds that is fixed without the calibration data"
            )
        grid = np.linspace(0, 1, 10_001)
    grid = np.unique(as_float_column(grid, "grid").astype(np.float64))
    return grid[(grid >= base) & (grid < np.inf)]


@dataclass(frozen=True)
class Events:
    """The scores above q̂ that one threshold decides on, ascending, with the cell that each of them moves.

    code = 4 · cell + 2 if it only moves a cell (a point that lies in several) + 1 if it is a true label's score.
    """

    labels: list[int]  # whose gap counts
    columns: list[int]  # whose threshold it is
    metric: FairnessMetric
    base: float
    values: np.ndarray  # (m,)
    codes: np.ndarray  # (m,)
    sizes: np.ndarray  # points per cell (labels, filters, groups)
    start: np.ndarray  # how many of them q̂ covers
    slots: np.ndarray  # (m,) block · (cells + 1) + cell
    block: int  # events per block
    blocks: np.ndarray  # events per block and cell (blocks, cells)
    overlap: bool  # whether a point lies in several cells of a label
    n_pairs: int  # pairs (point, label) in the columns that the threshold decides on
    n_true: int  # points whose true label is one of these columns

    def counts(self, threshold: float) -> np.ndarray:
        """Points per cell that a threshold of at least q̂ covers."""
        end = np.searchsorted(self.values, threshold, side="right")
        moved = np.bincount(self.codes[:end] >> 2, minlength=self.sizes.size + 1)[:-1]
        return self.start + moved.reshape(self.sizes.shape)


def _collect(
    scores: np.ndarray,
    y: np.ndarray,
    groups: Groups,
    metric: FairnessMetric,
    base: float,
    labels: list[int],
    columns: list[int],
    order: np.ndarray | None = None,
) -> Events:
    """`order`: where the scores above q̂ stand among those of the columns, ascending, if that is known."""
    cells = assign_cells(metric, y, groups, labels, columns)
    n_classes, n_cells = scores.shape[1], cells.sizes.size
    code_type = np.min_scalar_type(4 * n_cells + 3)
    decided = _decided(scores, columns)
    above = np.flatnonzero(decided.ravel() > base) if order is None else order
    small = np.min_scalar_type(n_classes)
    labels_small = y.astype(small)
    is_true = np.empty(decided.shape, bool)
    for at, column in enumerate(columns):
        np.equal(labels_small, column, out=is_true[:, at])
    values, codes = [], []
    for depth, layer in enumerate(cells.layers):
        code = layer.astype(code_type) * code_type.type(4)
        if depth:
            code += code_type.type(2)
        else:
            code += is_true
        where = above if depth == 0 else above[layer.ravel()[above] < n_cells]
        values.append(decided.ravel().take(where))
        codes.append(code.ravel().take(where))
    values, codes = (
        part[0] if len(part) == 1 else np.concatenate(part) for part in (values, codes)
    )
    if order is None or len(cells.layers) > 1:
        values, codes = _sort_together(values, codes, 4 * n_cells + 4)
    block = max(BLOCK, -(-len(codes) * n_cells // TABLE))
    n_blocks = -(-len(codes) // block)
    slot_type = np.int32 if n_blocks * (n_cells + 1) < 2**31 else np.int64
    slots = np.repeat(
        np.arange(n_blocks, dtype=slot_type) * slot_type(n_cells + 1), block
    )[: len(codes)]
    slots += codes >> 2
    blocks = np.bincount(slots, minlength=n_blocks * (n_cells + 1)).reshape(
        -1, n_cells + 1
    )[:, :n_cells]
    return Events(
        labels=labels,
        columns=columns,
        metric=metric,
        base=base,
        values=values,
        codes=codes,
        sizes=cells.sizes,
        start=cells.sizes - blocks.sum(axis=0).reshape(cells.sizes.shape),
        slots=slots,
        block=block,
        blocks=blocks,
        overlap=len(cells.layers) > 1,
        n_pairs=decided.size,
        n_true=int(np.count_nonzero(is_true)),
    )


def _decided(scores: np.ndarray, columns: list[int]) -> np.ndarray:
    """The scores that one threshold decides on: of all labels, or of one."""
    return (
        scores
        if len(columns) == scores.shape[1]
        else np.ascontiguousarray(scores[:, columns[0]])[:, None]
    )


def _sort_together(
    values: np.ndarray, codes: np.ndarray, n_codes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Values ascending with their codes, by sorting one integer that holds both wherever they fit into 64 bits.

    The bit patterns of positive floats are ordered like the floats, and sorting integers is far quicker than argsort.
    """
    shift = (n_codes - 1).bit_length()
    if len(values) and values.min() > 0:
        keys = values.view(np.uint32 if values.dtype == np.float32 else np.uint64)
        lowest = keys.min()
        width = int(keys.max() - lowest).bit_length() + shift
        if width <= 64:
            packed_type = np.uint32 if width <= 32 else np.uint64
            packed = (keys - lowest).astype(packed_type, copy=False)
            packed <<= packed_type(shift)
            packed |= codes
            packed.sort()
            codes = (packed & packed_type((1 << shift) - 1)).astype(codes.dtype)
            packed >>= packed_type(shift)
            keys = packed.astype(keys.dtype, copy=False)
            keys += lowest
            return keys.view(values.dtype), codes
    order = np.argsort(values, kind="stable")
    return values[order], codes[order]


@dataclass(frozen=True)
class Staircase:
    """The answer for every c: thresholds ascend while losses fall, and the first loss within c names the threshold.

    A loss is a gap, or a ratio with its sign turned, so that smaller is always better.
    """

    events: Events
    level: float | None  # of the test that each threshold passed; None: no guarantee
    thresholds: np.ndarray
    losses: np.ndarray
    in_sets: np.ndarray  # pairs (point, label) in the sets at each threshold
    hits: np.ndarray  # true labels covered

    @classmethod
    def build(
        cls,
        events: Events,
        level: float | None,
        thresholds: np.ndarray,
        losses: np.ndarray,
        ends: np.ndarray,
    ) -> "Staircase":
        """From the thresholds at which the loss reaches a new low, each after `ends` events; ∞ is added if it helps."""
        at_infinity = _losses_at_infinity(events, level).max(
            initial=_no_gap(events.metric)
        )
        extra = (
            np.flatnonzero(events.codes & 2) if events.overlap else np.empty(0, np.intp)
        )
        true = np.flatnonzero((events.codes & 1).astype(bool))
        in_sets = (
            events.n_pairs
            - (len(events.codes) - len(extra))
            + ends
            - np.searchsorted(extra, ends)
        )
        hits = events.n_true - len(true) + np.searchsorted(true, ends)
        if len(losses) == 0 or at_infinity < losses[-1]:
            thresholds, losses = (
                np.append(thresholds, np.inf),
                np.append(losses, at_infinity),
            )
            in_sets, hits = (
                np.append(in_sets, events.n_pairs),
                np.append(hits, events.n_true),
            )
        return cls(events, level, thresholds, losses, in_sets, hits)

    def step(self, limit: float | np.ndarray) -> np.ndarray:
        """Which step serves a loss of at most `limit`; the number of steps if none does."""
        return np.searchsorted(
            -self.losses, -(np.asarray(limit) + TOLERANCE), side="left"
        )

    def bounds(self, threshold: float) -> np.ndarray:
        """Loss per label at one threshold."""
        if np.isinf(threshold):
            return _losses_at_infinity(self.events, self.level)
        return _losses(self.events.counts(threshold)[None], self.events, self.level)[0]

    @property
    def best_finite(self) -> float:
        """The smallest loss at a finite threshold; infinite if there is none."""
        return self.losses[np.isfinite(self.thresholds)].min(initial=np.inf)

    def blocking_cells(self, closeness: float, group_names: list) -> list[tuple]:
        """(group, label, n) of the cells with too few points for this closeness, however they are covered."""
        events = self.events
        sizes = (
            events.sizes.sum(axis=1, keepdims=True)
            if events.metric.is_predictive
            else events.sizes
        )
        labels = events.labels if events.metric.per_label else [None]
        return [
            (group_names[group], labels[label], int(sizes[label, part, group]))
            for label, part, group in np.argwhere(sizes < self.points_needed(closeness))
        ]

    def points_needed(self, closeness: float) -> int:
        """How many points a cell needs before its own interval is narrow enough for a finite threshold."""
        metric, n_groups = self.events.metric, self.events.sizes.shape[2]
        allowed = (1 - closeness if metric.is_ratio else closeness) + TOLERANCE

        def narrowest(n: int) -> float:
            if self.level is None and metric.is_predictive:
                return 1 / max(n, 1e-9) + (
                    1 / (n + 1) if metric.quantity == "ppv_minus_prior" else 0
                )
            if self.level is None:
                return 1 / (n + 1)
            if n_groups == 1:
                return 0.0
            return 1 - (self.level / _bounds_per_pair(metric)) ** (
                1 / max(n, 1e-9)
            )  # all covered, as near ∞

        return bisect_left(range(MANY), True, key=lambda n: narrowest(n) <= allowed)


def _first_passing(events: Events) -> Staircase:
    """The paper's rule: the smallest threshold whose loss on the calibration data is within c."""
    if np.isinf(events.base):
        return Staircase.build(
            events, None, np.empty(0), np.empty(0), np.empty(0, np.intp)
        )
    if events.metric.is_predictive:
        ends, losses = _predictive_losses(events)
    else:
        ends, losses = _coverage_losses(events)
    lows = np.minimum.accumulate(losses)
    new = np.flatnonzero(lows < np.append(np.inf, lows[:-1]))
    ends = ends[new]
    thresholds = np.full(len(ends), events.base)
    thresholds[ends > 0] = events.values[ends[ends > 0] - 1]
    return Staircase.build(events, None, thresholds, lows[new], ends)


def _coverage_losses(events: Events) -> tuple[np.ndarray, np.ndarray]:
    """Losses at q̂ and after the events that may bring a new low: (events passed, loss), in order.

    The scores are looked at in blocks. Inside a block no loss falls below that of the largest upper bound at its start
    with the smallest lower bound at its end, so blocks that cannot beat what was reached before them are skipped. In
    those that remain only cells that can move one of these two bounds matter; few do.
    """
    n_families, n_groups = math.prod(events.sizes.shape[:2]), events.sizes.shape[2]
    if n_families == 0:
        return np.zeros(1, np.intp), np.full(1, _no_gap(events.metric))
    worse = _ratio_loss if events.metric.is_ratio else np.subtract
    sizes = events.sizes.ravel()
    covered = np.cumsum(
        np.vstack([events.start.ravel(), events.blocks]), axis=0
    )  # at the edges of the blocks
    cell_lower, cell_upper = covered / (sizes + 1), (covered + 1) / (sizes + 1)
    lower = cell_lower.reshape(-1, n_families, n_groups).min(axis=2)
    upper = cell_upper.reshape(-1, n_families, n_groups).max(axis=2)

    reached = worse(upper, lower).max(axis=1)
    loss_at_base = reached[0]
    inner = np.arange(1, len(events.blocks)) * events.block
    reached[1:-1][events.values[inner - 1] == events.values[inner]] = (
        np.inf
    )  # in the middle of a tie
    floors = worse(upper[:-1], lower[1:]).max(axis=1)
    is_open = floors < np.minimum.accumulate(reached[:-1])

    family = np.arange(sizes.size) // n_groups
    moves_lower = (cell_lower[:-1] < lower[1:, family]) & is_open[:, None]
    matters = moves_lower | ((cell_upper[1:] > upper[:-1, family]) & is_open[:, None])
    kept = np.flatnonzero(np.pad(matters, ((0, 0), (0, 1))).ravel().take(events.slots))
    block, cell = np.divmod(events.slots[kept], sizes.size + 1)
    seen = events.blocks * matters
    count = (covered[:-1] - np.cumsum(seen, axis=0) + seen)[block, cell] + _rank_within(
        cell, sizes.size
    )
    own_lower, own_upper = (
        (count - 1) / (sizes[cell] + 1),
        (count + 1) / (sizes[cell] + 1),
    )  # before it; after it

    ends = _after_ties(
        events.values,
        kept[moves_lower[block, cell]],
        np.flatnonzero(is_open) * events.block,
    )
    ends = ends[is_open[(ends - 1) // events.block] & (events.values[ends - 1] < np.inf)]
    block = (ends - 1) // events.block
    losses = np.full(len(ends), -np.inf)
    for f in range(n_families):
        mine = np.flatnonzero(cell // n_groups == f)
        passed = np.searchsorted(kept[mine], ends)
        highest = np.maximum.accumulate(np.append(0, own_upper[mine]))[passed]
        lowest = np.minimum.accumulate(np.append(np.inf, own_lower[mine][::-1]))[::-1][
            passed
        ]
        loss = worse(
            np.maximum(highest, upper[block, f]), np.minimum(lowest, lower[block + 1, f])
        )
        np.maximum(losses, loss, out=losses)
    return np.append(0, ends), np.append(loss_at_base, losses)


def _after_ties(values: np.ndarray, places: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """How many events have passed when the tie at each place is over, and so for ties that run into a block's start."""
    split = starts[(starts > 0) & (values[starts] == values[starts - 1])]
    if len(split):
        places = np.sort(np.concatenate([places, split]))
    ends = places + 1
    tied = np.flatnonzero(values[places] == values[np.minimum(ends, len(values) - 1)])
    if len(tied):
        ends[tied] = np.searchsorted(values, values[places[tied]], side="right")
    return ends[np.diff(ends, prepend=0) > 0]  # they ascend: quicker than np.unique


def _rank_within(cell: np.ndarray, n_cells: int) -> np.ndarray:
    """For each entry, which one of its cell it is, counted from 1 in the order given."""
    order = np.argsort(
        cell.astype(np.min_scalar_type(n_cells)), kind="stable"
    )  # a radix sort for small integers
    counts = np.bincount(cell, minlength=n_cells)
    rank = np.empty(len(cell), np.intp)
    rank[order] = np.arange(1, len(cell) + 1) - np.repeat(
        np.cumsum(counts) - counts, counts
    )
    return rank


def _predictive_losses(events: Events) -> tuple[np.ndarray, np.ndarray]:
    """Losses at q̂ and after every event. Predictive values rise and fall, so each group's is followed on its own."""
    n_labels, _, n_groups = events.sizes.shape
    cell = events.codes >> 2
    losses = np.full(len(cell) + 1, _no_gap(events.metric))
    for label in range(n_labels):
        highest, lowest = np.full(len(losses), -np.inf), np.full(len(losses), np.inf)
        for group in range(n_groups):
            equal, different = (
                2 * label * n_groups + group,
                (2 * label + 1) * n_groups + group,
            )
            own = np.flatnonzero((cell == equal) | (cell == different))
            covered_equal = events.start[label, 0, group] + np.append(
                0, np.cumsum(cell[own] == equal)
            )
            covered = events.start[label, :, group].sum() + np.arange(len(own) + 1)
            n_equal, n = (
                events.sizes[label, 0, group],
                events.sizes[label, :, group].sum(),
            )
            lower, upper = _predictive_interval(
                covered_equal, covered, n_equal, n, events.metric
            )
            lasts = np.diff(np.concatenate([[0], own + 1, [len(losses)]]))
            np.maximum(highest, np.repeat(upper, lasts), out=highest)
            np.minimum(lowest, np.repeat(lower, lasts), out=lowest)
        np.maximum(losses, highest - lowest, out=losses)
    values = np.append(events.values, np.inf)
    attained = values[:-1] < values[1:]  # not in the middle of a tie, nor at ∞
    return np.arange(len(losses)), np.append(
        losses[0], np.where(attained, losses[1:], np.inf)
    )


def _fixed_sequence(events: Events, grid: np.ndarray, level: float) -> Staircase:
    """The test that keeps its promise: walk down from ∞ and stop at the first rejection.

    A grid point is reached for c only if it and all above it have a loss within c, that is, if the running maximum of
    the losses from the top is; that maximum takes the place of the loss.
    """
    ends = np.searchsorted(events.values, grid, side="right")
    no_gap = _no_gap(events.metric)
    losses = [
        _losses(counts, events, level).max(axis=1, initial=no_gap)
        for counts in _counts_at(events, ends)
    ]
    losses = np.concatenate(
        [*losses, [_losses_at_infinity(events, level).max(initial=no_gap)]]
    )
    worst_above = np.maximum.accumulate(losses[::-1])[:0:-1]
    new = np.flatnonzero(np.diff(worst_above, prepend=np.inf) < 0)
    return Staircase.build(events, level, grid[new], worst_above[new], ends[new])


def _counts_at(events: Events, ends: np.ndarray) -> Iterator[np.ndarray]:
    """Points per cell after so many events (ascending), in batches (steps, labels, filters, groups) of limited size."""
    covered, done = events.start, 0
    batch = max(1, BATCH // max(events.sizes.size, 1))
    for first in range(0, len(ends), batch):
        some = ends[first : first + batch]
        step = np.repeat(np.arange(len(some)), np.diff(some, prepend=done))
        moved = np.zeros((len(some), events.sizes.size + 1), np.int64)
        np.add.at(moved, (step, events.codes[done : some[-1]] >> 2), 1)
        counts = covered + moved[:, :-1].cumsum(axis=0).reshape(-1, *events.sizes.shape)
        yield counts
        covered, done = counts[-1], some[-1]


def _losses(counts: np.ndarray, events: Events, level: float | None) -> np.ndarray:
    """Loss of every label from the points covered per cell, (steps, labels, filters, groups) -> (steps, labels)."""
    metric, sizes = events.metric, events.sizes
    if metric.is_predictive:
        n, n_equal = sizes.sum(axis=1), sizes[:, 0]
        lower, upper = _predictive_interval(
            counts[:, :, 0], counts.sum(axis=2), n_equal, n, metric, level
        )
        lower, upper = lower[:, :, None], upper[:, :, None]
    elif level is None:
        lower, upper = counts / (sizes + 1), (counts + 1) / (sizes + 1)
    else:
        lower, upper = clopper_pearson(counts, sizes, level / _bounds_per_pair(metric))
    worse = _ratio_loss if metric.is_ratio else np.subtract
    if level is None:
        losses = worse(upper.max(axis=-1), lower.min(axis=-1))
    elif lower.shape[-1] == 1:
        losses = np.full(lower.shape[:-1], _no_gap(metric))
    else:  # two different groups: against each group, the largest upper bound among the others
        largest = np.repeat(upper.max(axis=-1, keepdims=True), upper.shape[-1], axis=-1)
        at = upper.argmax(axis=-1)[..., None]
        np.put_along_axis(
            largest, at, np.partition(upper, -2, axis=-1)[..., -2:-1], axis=-1
        )
        losses = worse(largest, lower).max(axis=-1)
    return losses.max(axis=-1)


def _predictive_interval(
    equal: np.ndarray,
    covered: np.ndarray,
    n_equal: Any,
    n: Any,
    metric: FairnessMetric,
    level: float | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds for Pr[Y = ỹ | ỹ in the set], less the prior for the proxy.

    Of n points, n_equal have Y = ỹ; of the `covered` ones that have ỹ in their set, `equal` have Y = ỹ. Without a
    guarantee this is the paper's product of three intervals: equal opportunity · prior / demographic parity.
    """
    if level is not None:
        lower, upper = clopper_pearson(equal, covered, level / _bounds_per_pair(metric))
        prior_lower, prior_upper = clopper_pearson(
            n_equal, n, level / _bounds_per_pair(metric)
        )
    else:
        prior_lower, prior_upper = n_equal / (n + 1), (n_equal + 1) / (n + 1)
        with np.errstate(
            divide="ignore"
        ):  # no label covered: an infinite upper end, which no c accepts
            lower = equal / (n_equal + 1) * prior_lower / ((covered + 1) / (n + 1))
            upper = (equal + 1) / (n_equal + 1) * prior_upper / (covered / (n + 1))
    if metric.quantity == "ppv_minus_prior":
        return lower - prior_upper, upper - prior_lower
    return lower, upper


def _losses_at_infinity(events: Events, level: float | None) -> np.ndarray:
    """Loss of every label at ∞, where every set is full: coverages are 1, and predictive values are the priors."""
    if events.metric.quantity != "ppv":
        return np.full(len(events.sizes), _no_gap(events.metric))
    if level is not None:
        return _losses(events.sizes[None], events, level)[0]
    n, n_equal = events.sizes.sum(axis=1), events.sizes[:, 0]
    return ((n_equal + 1) / (n + 1)).max(axis=1) - (n_equal / (n + 1)).min(axis=1)


def _ratio_loss(upper: np.ndarray, lower: np.ndarray) -> np.ndarray:
    return -lower / upper


def _bounds_per_pair(metric: FairnessMetric) -> int:
    """How many one-sided bounds enter the comparison of two groups; they share the level."""
    return 4 if metric.quantity == "ppv_minus_prior" else 2


def _no_gap(metric: FairnessMetric) -> float:
    return -1.0 if metric.is_ratio else 0.0


@dataclass(frozen=True)
class Search:
    """A finished pass over the calibration data: ask it for a closeness, or for the whole frontier."""

    staircases: list[Staircase]
    metric: FairnessMetric
    guarantee: str
    group_names: list
    base: float
    shape: tuple[int, int]  # points, labels
    classwise: bool
    others_in_sets: int  # for the labels that keep q̂: pairs (point, label) in the sets,
    others_hits: int  # and true labels covered

    def find(self, closeness: float | None = None) -> FairThreshold:
        """The answer of `find_threshold` for one closeness."""
        if closeness is None:
            closeness = self.metric.default_closeness
        closeness = as_fraction(closeness, "closeness", include_one=True)
        threshold = np.full(self.shape[1], self.base)
        bound = np.full(self.shape[1], np.nan)
        found = []
        for stairs in self.staircases:
            step = stairs.step(self._turn(closeness))
            found.append(stairs.thresholds[step] if step < len(stairs.losses) else np.inf)
            threshold[stairs.events.columns] = found[-1]
            bound[stairs.events.labels if self.metric.per_label else slice(None)] = (
                self._turn(stairs.bounds(found[-1]))
            )
        reached = max(
            (stairs.best_finite for stairs in self.staircases),
            default=_no_gap(self.metric),
        )
        return FairThreshold(
            threshold=threshold,
            base_threshold=self.base,
            feasible=bool(np.isfinite(found).all()),
            satisfied=all(
                stairs.step(self._turn(closeness)) < len(stairs.losses)
                for stairs in self.staircases
            ),
            bound=bound,
            smallest_closeness=math.nan
            if np.isinf([self.base, reached]).any()
            else float(self._turn(reached)),
            blocking_cells=[
                cell
                for stairs, threshold in zip(self.staircases, found, strict=True)
                if np.isinf(threshold)
                for cell in stairs.blocking_cells(closeness, self.group_names)
            ],
            metric=self.metric.name,
            closeness=closeness,
            guarantee=self.guarantee,
            points_needed=max(
                (stairs.points_needed(closeness) for stairs in self.staircases), default=0
            ),
        )

    def frontier(self) -> pd.DataFrame:
        """The answers for every closeness, as a table."""
        labels, losses, thresholds = [], [], []
        for stairs in self.staircases:
            own = stairs.step(stairs.losses) == np.arange(
                len(stairs.losses)
            )  # not where rounding alone made the step
            labels.append(np.full(own.sum(), stairs.events.columns[0]))
            losses.append(stairs.losses[own])
            thresholds.append(stairs.thresholds[own])
        losses = np.concatenate(losses or [[]])
        in_sets = np.full(len(losses), self.others_in_sets)
        hits = np.full(len(losses), self.others_hits)
        for stairs in (
            self.staircases
        ):  # where each threshold stands when the row's closeness is asked of all labels
            step = stairs.step(losses)
            in_sets += np.append(stairs.in_sets, stairs.events.n_pairs)[step]
            hits += np.append(stairs.hits, stairs.events.n_true)[step]
        columns = {"label": np.concatenate(labels or [[]])} if self.classwise else {}
        columns |= {
            "closeness": self._turn(losses),
            "threshold": np.concatenate(thresholds or [[]]),
        }
        return pd.DataFrame(
            columns
            | {"mean_set_size": in_sets / self.shape[0], "coverage": hits / self.shape[0]}
        )

    def _turn(self, closeness: Any) -> Any:
        """A closeness as a loss, or a loss as a closeness."""
        return -closeness if self.metric.is_ratio else closeness

"""Scores in ascending order, and the cells that each of them moves.

A score is known by its *kind*: its label, whether that is the true label, and its group.
Scores of one kind move the same cells (`CellMap`). `SortedScores` holds the scores
above q̂ that one threshold decides on, each packed into one integer with its kind.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pandas as pd

from cfhelpers import _sweep
from cfhelpers.bounds import (
    LARGEST_LEVEL,
    clopper_pearson,
    equal_full_loss,
    full_losses,
    hypergeometric_bounds,
    maurer_pontil,
)
from cfhelpers.cells import EQUAL_DIFFERENT, CellCounts, Shares, group_masks
from cfhelpers.conformal import round_down
from cfhelpers.groups import Groups, counts_per_group
from cfhelpers.metrics import Condition, FairnessMetric, Quantity
from cfhelpers.weights import weighted_prior_losses, weighted_rank_losses

BATCH = 1_000_000  # kinds · thresholds that are counted in one go


@dataclass(frozen=True)
class Places:
    """Scores as unsigned integers (n, K) in the same order.

    The bits of positive floats are ordered like the floats, and integers have room for a
    score's kind beside it: sorting such integers is far quicker than an argsort.
    """

    numbers: np.ndarray
    dtype: np.dtype
    levels: np.ndarray | None  # the score of every integer; None: the score's own bits

    @classmethod
    def of(cls, scores: np.ndarray) -> "Places":
        signed = np.int32 if scores.dtype == np.float32 else np.int64
        unsigned = np.uint32 if scores.dtype == np.float32 else np.uint64
        has_sign_bit = scores.view(signed).min() < 0  # negative scores, and -0.0
        if not has_sign_bit:
            return cls(scores.view(unsigned), scores.dtype, None)
        return cls.ranked(scores)

    @classmethod
    def ranked(cls, scores: np.ndarray) -> "Places":
        """By rank among the distinct scores: for any scores, and slower."""
        levels, rank = np.unique(scores, return_inverse=True)
        numbers = rank.reshape(scores.shape).astype(np.uint32) + np.uint32(1)
        return cls(numbers, scores.dtype, levels)

    def of_value(self, value: float) -> int:
        """The integer of the largest score that is at most `value`."""
        if self.levels is not None:
            return int(np.searchsorted(self.levels, value, side="right"))
        return int(round_down(np.asarray(value), self.dtype).view(self.numbers.dtype))

    @property
    def infinity(self) -> int:
        """The integer of infinity; those of finite scores are smaller."""
        if self.levels is not None:
            return int(np.searchsorted(self.levels, np.inf, side="left")) + 1
        return self.of_value(np.inf)

    def values(self, numbers: np.ndarray) -> np.ndarray:
        """The scores of some integers, float64."""
        if self.levels is not None:
            return self.levels[numbers - 1].astype(np.float64)
        return numbers.astype(self.numbers.dtype).view(self.dtype).astype(np.float64)


@dataclass(frozen=True)
class Kinds:
    """What a score is: its label, whether that is the true label, and its cells.

    Scores of one kind move the same cells. The kind of point i at the c-th column is
    first_kind[c, rows[i]] + codes[i].
    """

    rows: np.ndarray
    codes: np.ndarray
    points: np.ndarray  # (rows, codes): how many points there are of each
    first_kind: np.ndarray
    is_true: np.ndarray  # integers (kinds,): 1 for the scores of true labels

    @classmethod
    def by_group(cls, y: np.ndarray, groups: Groups, columns: list[int]) -> "Kinds":
        """A kind per (column, true label equal or not, group): for built-in metrics.

        Where groups overlap, a combination of groups stands in a group's place. Row 0 is
        of points without a label, y = -1, which are different from every label.
        """
        n_codes = groups.n_codes
        n_rows = int(y.max()) + 2
        rows = y + 1
        codes = np.ascontiguousarray(groups.codes, np.int64)
        points = np.bincount(rows * n_codes + codes, minlength=n_rows * n_codes)
        none_yet = np.empty(0, np.int64)
        found = cls(rows, codes, points.reshape(n_rows, n_codes), none_yet, none_yet)
        return found.at(columns)

    def at(self, columns: list[int]) -> "Kinds":
        """The kinds of the same points, by group, at other columns."""
        n_rows, n_codes = self.points.shape
        is_different = np.arange(-1, n_rows - 1) != np.asarray(columns)[:, None]
        first_kind = (2 * np.arange(len(columns))[:, None] + is_different) * n_codes
        is_true = np.tile(np.repeat([1, 0], n_codes), len(columns))
        return replace(self, first_kind=first_kind, is_true=is_true)

    @property
    def totals(self) -> np.ndarray:
        """Scores of each kind (kinds,)."""
        n_codes = self.points.shape[1]
        totals = np.zeros(len(self.is_true), np.int64)
        of_all = self.points.sum(axis=0)
        for first_of_row in self.first_kind:
            # a column's rows go where its first one goes, but for a few
            usual = first_of_row[0]
            totals[usual : usual + n_codes] += of_all
            for row in np.flatnonzero(first_of_row != usual):
                first = first_of_row[row]
                totals[first : first + n_codes] += self.points[row]
                totals[usual : usual + n_codes] -= self.points[row]
        return totals


@dataclass(frozen=True)
class CellMap:
    """The cells that a metric compares for one threshold, and which kinds move which.

    A cell is a family (a label and a filter), a part and a group. Predictive values have
    two parts, Y = ỹ and Y ≠ ỹ, that are counted apart; coverages have one.
    """

    metric: FairnessMetric
    labels: list[int]  # whose gap counts
    columns: list[int]  # whose threshold it is
    group_names: list[Any]
    kinds: Kinds
    kind_of_move: np.ndarray  # ascending
    moves: np.ndarray  # (moves, 3): family, part, group
    shape: tuple[int, int, int]  # families, parts, groups
    pools: np.ndarray | None  # points per group in the pool that they were drawn from
    is_dependent: bool  # whether the counts of two groups may depend on each other
    memberships: np.ndarray | None = None  # (codes, groups), where groups overlap
    squares: np.ndarray | None = None  # of the weights, summed by kind; None: no weights

    @classmethod
    def build(
        cls,
        metric: FairnessMetric,
        labels: list[int],
        columns: list[int],
        y: np.ndarray,
        groups: Groups,
        pools: np.ndarray | None = None,
        is_dependent: bool = False,
        other_kinds: Kinds | None = None,
    ) -> "CellMap":
        """`other_kinds`: those of the same points at other columns, if they are there."""
        if metric.is_built_in:
            if other_kinds is None:
                kinds = Kinds.by_group(y, groups, columns)
            else:
                kinds = other_kinds.at(columns)
            kind_of_move, moves = _moves_by_group(metric, labels, columns, groups.n_codes)
            kind_of_move, moves = _moves_of_members(
                kind_of_move, moves, groups.memberships
            )
        else:
            kinds, kind_of_move, moves = _own_kinds(metric, labels, columns, y, groups)
        n_families = len(labels) * len(metric.filters)
        n_parts = 1
        if metric.is_predictive:
            n_families = len(labels)
            n_parts = 2
        elif not metric.per_label:
            n_families = 1
        return cls(
            metric=metric,
            labels=labels,
            columns=columns,
            group_names=groups.names,
            kinds=kinds,
            kind_of_move=kind_of_move,
            moves=moves,
            shape=(n_families, n_parts, len(groups)),
            pools=pools,
            is_dependent=(
                is_dependent
                or groups.is_overlapping
                or _is_overlapping(metric, kind_of_move, moves)
            ),
            memberships=groups.memberships,
        )

    @property
    def has_pairs(self) -> bool:
        """Whether there is a label that must be fair, and two groups to compare."""
        return self.shape[0] > 0 and len(self.group_names) > 1

    @property
    def first_move(self) -> np.ndarray:
        """Where the moves of every kind begin, and where the last ones end."""
        return np.searchsorted(self.kind_of_move, np.arange(len(self.kinds.is_true) + 1))

    def counts(self, of_kinds: np.ndarray) -> np.ndarray:
        """Points per cell (families, parts, groups), from scores per kind."""
        cells = np.zeros(self.shape, of_kinds.dtype)
        np.add.at(cells, tuple(self.moves.T), of_kinds[self.kind_of_move])
        return cells

    def sizes(self, totals: np.ndarray) -> np.ndarray:
        """Points of every family and group; with weights their effective number."""
        sizes = self.counts(totals).sum(axis=1)
        if self.squares is None:
            return sizes
        squares = self.counts(self.squares).sum(axis=1)
        return np.square(sizes) / np.where(squares > 0, squares, 1.0)

    def cell_counts(self, covered: np.ndarray, totals: np.ndarray) -> CellCounts:
        """From scores per kind, covered (…, kinds) and in all (kinds,)."""
        n_groups = len(self.group_names)
        if self.metric.is_built_in:
            n_codes = n_groups
            if self.memberships is not None:
                n_codes = len(self.memberships)
            shape = (len(self.columns), 2, n_codes)
            by_code = covered.reshape(*covered.shape[:-1], *shape)
            by_group = counts_per_group(by_code, self.memberships)
            at_least = None
            if self.metric.is_size:  # columns are the smallest score, the second, …
                at_least = by_group.sum(axis=-2)
            return CellCounts(
                by_group,
                counts_per_group(totals.reshape(shape), self.memberships),
                EQUAL_DIFFERENT,
                self.group_names,
                at_least=at_least,
            )
        shape = (len(self.labels), len(self.metric.filters), n_groups)
        in_cell = np.zeros((len(totals), math.prod(shape)), np.int64)
        in_cell[self.kind_of_move, np.ravel_multi_index(self.moves.T, self.shape)] = 1
        return CellCounts(
            (covered @ in_cell).reshape(*covered.shape[:-1], *shape),
            (totals @ in_cell).reshape(shape),
            self.metric.filters,
            self.group_names,
        )

    def shares(self, covered: np.ndarray, totals: np.ndarray) -> Shares:
        """What the metric compares, from scores per kind."""
        counts = self.cell_counts(covered, totals)
        if not self.metric.is_built_in:
            return counts.shares(self.metric)
        places = [self.columns.index(label) for label in self.labels]
        return counts.shares(self.metric, places)

    def losses(
        self,
        covered: np.ndarray,
        totals: np.ndarray,
        level: float | None,
        at_least: float = -math.inf,
    ) -> np.ndarray:
        """Loss of every label (…, labels) below ∞; level None: the paper's.

        At a level, losses below `at_least` come as `at_least`.
        """
        if level is not None and not self.has_pairs:
            n_labels = len(self.labels) if self.metric.per_label else 1
            return np.full((*covered.shape[:-1], n_labels), self.metric.no_loss)
        shares = self.shares(covered, totals)
        if level is None and self.squares is not None:
            squares = self.shares(self.squares, self.squares)
            return weighted_rank_losses(shares, squares).max(axis=-1)
        if level is None:
            return shares.rank_losses().max(axis=-1)
        shares = replace(shares, pools=self.pools)
        return shares.test_losses(level, self.is_dependent, at_least).max(axis=-1)

    def full_losses(
        self, sizes: np.ndarray, level: float, pools: np.ndarray | None = None
    ) -> np.ndarray:
        """The loss of every group (groups,) against another when all are covered."""
        metric = self.metric
        if len(sizes) == 1:
            return np.array([metric.no_loss])
        if self._has_staircase(level):
            return full_losses(sizes, level, metric.is_ratio, pools)
        if metric.is_mean:
            lower, _ = maurer_pontil(1.0, 0.0, sizes, level / 2)
            return metric.loss(1.0, lower)
        bounds_per_pair = 4 if metric.is_proxy else 2
        if pools is None:
            lower, _ = clopper_pearson(sizes, sizes, level / bounds_per_pair)
        else:
            lower, _ = hypergeometric_bounds(sizes, sizes, pools, level / 2)
        return metric.loss(1.0, lower)

    def least_loss(self, n: int, level: float | None) -> float:
        """The smallest loss that two cells of n points can have at a finite threshold."""
        metric = self.metric
        if level is not None:
            if self._has_staircase(level):
                return equal_full_loss(n, level, metric.is_ratio)
            return float(self.full_losses(np.array([n, n]), level).max())
        width = 1 / (n + 1)
        if metric.is_predictive:
            width = 1 / max(n, 1e-9)
        if metric.is_proxy:
            width += 1 / (n + 1)
        if metric.is_ratio:
            return width - 1
        return width

    def _has_staircase(self, level: float) -> bool:
        """Whether groups are compared by a staircase, not by two bounds."""
        has_none = self.metric.is_proxy or self.metric.is_mean
        return not (has_none or self.is_dependent or level > LARGEST_LEVEL)

    def losses_at_infinity(self, totals: np.ndarray, level: float | None) -> np.ndarray:
        """Loss of every label at ∞: coverages are 1, predictive values the priors."""
        is_alone = level is not None and not self.has_pairs
        if self.metric.quantity != Quantity.PPV or is_alone:
            n_labels = len(self.labels) if self.metric.per_label else 1
            return np.full(n_labels, self.metric.no_loss)
        if level is not None:
            return self.losses(totals, totals, level)
        if self.squares is not None:
            shares = self.shares(totals, totals)
            squares = self.shares(self.squares, self.squares)
            return weighted_prior_losses(shares, squares).max(axis=-1)
        sizes = self.counts(totals)
        lower, upper = _sweep.rank_interval(sizes[:, 0], sizes.sum(axis=1))
        return upper.max(axis=1) - lower.min(axis=1)


def _is_overlapping(
    metric: FairnessMetric, kind_of_move: np.ndarray, moves: np.ndarray
) -> bool:
    """Whether a point lies in the cells of two groups, as filters of one's own allow."""
    if metric.is_built_in:
        return False
    in_family = np.stack([kind_of_move, moves[:, 0]])
    return np.unique(in_family, axis=1).shape[1] < in_family.shape[1]


def _moves_by_group(
    metric: FairnessMetric, labels: list[int], columns: list[int], n_groups: int
) -> tuple[np.ndarray, np.ndarray]:
    """Which cells the kinds of `Kinds.by_group` move: kinds, and cells (moves, 3)."""
    kind = np.arange(2 * len(columns) * n_groups)
    label_at = np.full(len(columns), -1)
    for at, label in enumerate(labels):
        label_at[columns.index(label)] = at
    label_of_kind = label_at[kind // (2 * n_groups)]
    is_equal = kind // n_groups % 2 == 0
    group = kind % n_groups
    if not metric.per_label:
        counts = is_equal
        if metric.is_size:
            counts = kind < 2 * n_groups  # every point has a smallest score
        zeros = np.zeros(counts.sum(), np.int64)
        return kind[counts], np.stack([zeros, zeros, group[counts]], axis=1)
    kinds = []
    moves = []
    for filter_at, condition in enumerate(metric.conditions):
        keeps = label_of_kind >= 0
        if condition == Condition.EQUAL:
            keeps &= is_equal
        elif condition == Condition.DIFFERENT:
            keeps &= ~is_equal
        if metric.is_predictive:
            family = label_of_kind[keeps]
            part = np.full(len(family), filter_at)
        else:
            family = label_of_kind[keeps] * len(metric.filters) + filter_at
            part = np.zeros(len(family), np.int64)
        kinds.append(kind[keeps])
        moves.append(np.stack([family, part, group[keeps]], axis=1))
    kind_of_move = np.concatenate(kinds)
    order = np.argsort(kind_of_move, kind="stable")
    return kind_of_move[order], np.concatenate(moves)[order]


def _moves_of_members(
    kind_of_move: np.ndarray, moves: np.ndarray, memberships: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Moves of combinations as moves of the groups in each: several, one, or none."""
    if memberships is None:
        return kind_of_move, moves
    at, group = np.nonzero(memberships[moves[:, 2]])
    family, part, _ = moves[at].T
    return kind_of_move[at], np.stack([family, part, group], axis=1)


def _own_kinds(
    metric: FairnessMetric,
    labels: list[int],
    columns: list[int],
    y: np.ndarray,
    groups: Groups,
) -> tuple[Kinds, np.ndarray, np.ndarray]:
    """Kinds and moves for filters of the user's own, whose cells may share points.

    Points that lie in the same cells for every label, and have the same true label, are
    of one type; a kind is a column and a type.
    """
    n_filters = len(metric.filters)
    masks = []
    cell_of_mask = []
    types = y
    for at, label in enumerate(labels):
        for part, filter_ in enumerate(metric.filters):
            for group, mask in enumerate(group_masks(filter_, y, groups, label)):
                masks.append(mask)
                cell_of_mask.append((columns.index(label), at * n_filters + part, group))
                types = pd.factorize(2 * types + mask)[0]
    n_types = int(types.max()) + 1
    of_type = np.empty(n_types, np.int64)  # some point of every type
    of_type[types] = np.arange(len(y))
    first_kind = (np.arange(len(columns)) * n_types)[:, None]
    is_true = (y[of_type] == np.asarray(columns)[:, None]).astype(np.int64).ravel()
    points = np.bincount(types, minlength=n_types)[None]
    kinds = Kinds(np.zeros(len(y), np.int64), types, points, first_kind, is_true)
    kind_of_move = []
    moves = []
    for mask, (column, family, group) in zip(masks, cell_of_mask, strict=True):
        for type_ in np.flatnonzero(mask[of_type]):
            kind_of_move.append(column * n_types + type_)
            moves.append((family, 0, group))
    order = np.argsort(kind_of_move, kind="stable")
    return (
        kinds,
        np.asarray(kind_of_move, np.int64)[order],
        np.asarray(moves, np.int64).reshape(-1, 3)[order],
    )


class OrderedScores(Protocol):
    """Scores that one threshold decides on, however they are held: sorted, or counted."""

    @property
    def base(self) -> float:
        """q̂."""

    @property
    def totals(self) -> np.ndarray:
        """Scores of each kind."""

    @property
    def below(self) -> np.ndarray:
        """Those of them up to q̂."""

    def passed(self, thresholds: np.ndarray) -> np.ndarray:
        """How many scores above q̂ are at most each threshold."""

    def covered(self, passed: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
        """Scores of each kind after so many: which entries, and (entries, kinds)."""

    def hits(self, is_true: np.ndarray, passed: np.ndarray) -> np.ndarray:
        """How many of the first scores are those of true labels, for so many each."""


@dataclass(frozen=True)
class SortedScores:
    """The scores above q̂ that one threshold decides on, ascending, each with its kind."""

    order: np.ndarray  # (m,): (place - place of q̂) · 2^shift + kind
    shift: int
    places: Places
    base: float
    totals: np.ndarray  # scores of each kind
    below: np.ndarray  # those of them up to q̂

    def thresholds(self, passed: np.ndarray) -> np.ndarray:
        """The threshold after so many scores: the last one of them, or q̂ after none."""
        thresholds = np.full(len(passed), self.base)
        last = self.order[passed[passed > 0] - 1]
        thresholds[passed > 0] = self.places.values(self._numbers(last))
        return thresholds

    def passed(self, thresholds: np.ndarray) -> np.ndarray:
        """How many scores are at most each threshold."""
        values = self.places.values(self._numbers(self.order))
        return np.searchsorted(values, thresholds, side="right")

    def covered(self, passed: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
        """Scores of each kind after so many: which entries, and (entries, kinds)."""
        n_kinds = len(self.totals)
        kinds = (self.order & self.order.dtype.type(2**self.shift - 1)).astype(np.int64)
        covered = self.below
        done = 0
        batch = max(1, BATCH // n_kinds)
        for first in range(0, len(passed), batch):
            some = passed[first : first + batch]
            step = np.repeat(np.arange(len(some)), np.diff(some, prepend=done))
            moved = np.bincount(
                step * n_kinds + kinds[done : some[-1]], minlength=len(some) * n_kinds
            )
            counts = covered + moved.reshape(-1, n_kinds).cumsum(axis=0)
            yield slice(first, first + len(some)), counts
            covered = counts[-1]
            done = some[-1]

    def hits(self, is_true: np.ndarray, passed: np.ndarray) -> np.ndarray:
        """How many of the first scores are those of true labels, for so many each."""
        kinds = (self.order & self.order.dtype.type(2**self.shift - 1)).astype(np.int64)
        return np.concatenate([[0], np.cumsum(is_true[kinds])])[passed]

    def _numbers(self, order: np.ndarray) -> np.ndarray:
        return (order >> self.order.dtype.type(self.shift)) + self.order.dtype.type(
            self.places.of_value(self.base)
        )


def sort_scores(
    places: Places, base: float, columns: list[int], kinds: Kinds
) -> SortedScores:
    """The finite scores above q̂, ascending, each packed with its kind."""
    if base < 0 and places.levels is None:  # bits are for scores that are not negative
        places = Places.ranked(places.numbers.view(places.dtype))
    n_kinds = len(kinds.is_true)
    below = np.zeros(n_kinds, np.int64)
    shift = (n_kinds - 1).bit_length()
    base_place = places.of_value(base)
    top = places.infinity
    largest = min(max(int(places.numbers.max()), base_place), top)
    width = (largest - base_place).bit_length() + shift
    if width > 64:
        scores = places.numbers.view(places.dtype)
        return sort_scores(Places.ranked(scores), base, columns, kinds)
    whole = places.numbers.dtype.type
    is_narrow = width <= 32 and whole is np.uint32
    # Room for every score: memory that is not written to costs nothing.
    order = np.empty(
        len(places.numbers) * len(columns), np.uint32 if is_narrow else np.uint64
    )
    collect, _, _ = _sweep.compiled()
    n_above = collect(
        places.numbers,
        np.asarray(columns),
        kinds.rows,
        kinds.codes,
        kinds.first_kind,
        whole(base_place),
        whole(top),
        order.dtype.type(shift),
        order,
        below,
    )
    order = _sweep.sorted_numbers(order[:n_above], shift, width)
    return SortedScores(order, shift, places, base, kinds.totals, below)


@dataclass(frozen=True)
class WeightedScores:
    """The same as `SortedScores` where points have weights: sums in place of counts."""

    values: np.ndarray  # (m,): the finite scores above q̂, ascending
    kinds: np.ndarray  # (m,)
    weights: np.ndarray  # (m,)
    base: float
    totals: np.ndarray  # weights of each kind, summed
    below: np.ndarray  # those of them up to q̂
    squares: np.ndarray  # squared weights of each kind, summed

    @classmethod
    def build(
        cls,
        scores: np.ndarray,
        weights: np.ndarray,
        base: float,
        columns: list[int],
        kinds: Kinds,
    ) -> "WeightedScores":
        n_kinds = len(kinds.is_true)
        kind = (kinds.first_kind[:, kinds.rows] + kinds.codes).T.ravel()
        value = scores[:, columns].astype(np.float64).ravel()
        weight = np.repeat(weights, len(columns))
        is_below = value <= base
        above = np.flatnonzero(~is_below & np.isfinite(value))
        order = above[np.argsort(value[above], kind="stable")]
        return cls(
            values=value[order],
            kinds=kind[order],
            weights=weight[order],
            base=base,
            totals=np.bincount(kind, weight, n_kinds),
            below=np.bincount(kind[is_below], weight[is_below], n_kinds),
            squares=np.bincount(kind, np.square(weight), n_kinds),
        )

    @property
    def ends(self) -> np.ndarray:
        """How many scores q̂, and every distinct score above it, have passed."""
        is_last = np.diff(self.values, append=np.inf) > 0
        return np.append(0, np.flatnonzero(is_last) + 1)

    def thresholds(self, passed: np.ndarray) -> np.ndarray:
        """The threshold after so many scores: the last one of them, or q̂ after none."""
        return np.append(self.base, self.values)[passed]

    def passed(self, thresholds: np.ndarray) -> np.ndarray:
        """How many scores are at most each threshold."""
        return np.searchsorted(self.values, thresholds, side="right")

    def covered(self, passed: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
        """Weights of each kind after so many: which entries, and (entries, kinds)."""
        n_kinds = len(self.totals)
        covered = self.below
        done = 0
        batch = max(1, BATCH // n_kinds)
        for first in range(0, len(passed), batch):
            some = passed[first : first + batch]
            step = np.repeat(np.arange(len(some)), np.diff(some, prepend=done))
            moved = np.bincount(
                step * n_kinds + self.kinds[done : some[-1]],
                self.weights[done : some[-1]],
                len(some) * n_kinds,
            )
            sums = covered + moved.reshape(-1, n_kinds).cumsum(axis=0)
            yield slice(first, first + len(some)), sums
            covered = sums[-1]
            done = some[-1]

    def in_sets(self, passed: np.ndarray) -> np.ndarray:
        """The weight of the first scores, for so many each."""
        return np.append(0.0, np.cumsum(self.weights))[passed]

    def hits(self, is_true: np.ndarray, passed: np.ndarray) -> np.ndarray:
        """The weight of those of the first scores that are true labels'."""
        return np.append(0.0, np.cumsum(is_true[self.kinds] * self.weights))[passed]

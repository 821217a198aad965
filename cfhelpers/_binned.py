"""Scores as counts: points per (label, true label or not, group, bin of the score).

Such counts are added up over files, machines and sites. `ScoreCounts` holds them, and
where it matters the scores of a few bins one by one; `CountedScores` puts them in order
for the searches of `cfhelpers.control`.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from cfhelpers._ordering import BATCH, CellMap
from cfhelpers.cells import EQUAL_DIFFERENT, CellCounts
from cfhelpers.control import Curve, new_lows, nothing_to_compare
from cfhelpers.groups import Groups


@dataclass(frozen=True)
class ScoreCounts:
    """Points per label, condition, group and bin of the score; add two with +.

    Attributes
    ----------
    counts : integers (K, 2, groups, bins)
        Points whose true label is the label, and the others. Bin j holds the scores up to
        edge j and above the edge before. After the last edge come two bins: finite
        scores above it, and infinite ones.
    edges : float64 (edges,)
        Where the bins end, ascending.
    label_names, group_names : lists
        None among the groups stands for points that have none.
    is_noted : bool (K, bins)
        The bins of each label whose scores were noted one by one.
    values, kinds : (m,)
        These scores, and label · 2 · groups + condition · groups + group of each.
    """

    counts: np.ndarray
    edges: np.ndarray
    label_names: list[Any]
    group_names: list[Any]
    is_noted: np.ndarray
    values: np.ndarray
    kinds: np.ndarray

    def __add__(self, other: "ScoreCounts") -> "ScoreCounts":
        """Counts of both, whose groups need not be the same."""
        has_same_bins = np.array_equal(self.edges, other.edges)
        has_same_notes = np.array_equal(self.is_noted, other.is_noted)
        if not (has_same_bins and has_same_notes):
            raise ValueError("counts: found other bins; wanted the same on both sides")
        if self.label_names != other.label_names:
            raise ValueError(
                f"counts: found the labels {other.label_names}; "
                f"wanted {self.label_names} on both sides"
            )
        names = list(dict.fromkeys([*self.group_names, *other.group_names]))
        return add_counts([self.with_groups(names), other.with_groups(names)])

    @property
    def n_points(self) -> int:
        return int(self.counts[0].sum())

    @property
    def n_labelled(self) -> int:
        return int(self.counts[:, 0].sum())

    @property
    def group_sizes(self) -> np.ndarray:
        """Points per group."""
        return self.counts[0].sum(axis=(0, 2))

    def with_groups(self, names: Sequence[Any]) -> "ScoreCounts":
        """The same with the groups in this order, all of ours among them."""
        if list(names) == self.group_names:
            return self
        place = {name: code for code, name in enumerate(names)}
        codes = np.array([place[name] for name in self.group_names], np.int64)
        n_labels, _, _, n_bins = self.counts.shape
        counts = np.zeros((n_labels, 2, len(names), n_bins), np.int64)
        counts[:, :, codes] = self.counts
        kinds = self.kinds
        if len(kinds):
            kinds = _kinds_of_groups(codes, len(names), 2 * n_labels)[kinds]
        return replace(self, counts=counts, group_names=list(names), kinds=kinds)

    def renamed(self, groups: Groups) -> "ScoreCounts":
        """Our i-th group as the one that groups.codes[i] stands for."""
        ours = [groups.names[code] for code in groups.codes]
        return replace(self, group_names=ours).with_groups(groups.names)

    def without_notes(self) -> "ScoreCounts":
        """The same for those who ask at ends of bins alone."""
        return replace(self, values=self.values[:0], kinds=self.kinds[:0])

    def at_thresholds(self, thresholds: np.ndarray) -> CellCounts:
        """Covered points per cell; each label's threshold is an edge, or infinite."""
        covered = np.zeros(self.counts.shape[:3], np.int64)
        for label, threshold in enumerate(thresholds):
            n_bins = self.counts.shape[3]
            if threshold == -math.inf:
                n_bins = 0
            elif math.isfinite(threshold):
                n_bins = int(np.searchsorted(self.edges, threshold)) + 1
            covered[label] = self.counts[label, :, :, :n_bins].sum(axis=-1)
        return CellCounts(
            covered, self.counts.sum(axis=-1), EQUAL_DIFFERENT, self.group_names
        )

    def table(self) -> pd.DataFrame:
        """As a plain table: label, true_label, group, score (the bin's end), n."""
        label, part, group, place = np.nonzero(self.counts)
        ends = np.append(self.edges, [np.inf, np.inf])
        return pd.DataFrame(
            {
                "label": [self.label_names[i] for i in label],
                "true_label": part == 0,
                "group": pd.Series([self.group_names[i] for i in group], dtype=object),
                "score": ends[place],
                "n": self.counts[label, part, group, place],
            }
        )

    def rank_bin(self, rank: int) -> int:
        """The bin of the rank-th smallest score of a true label."""
        per_bin = self.counts[:, 0].sum(axis=(0, 1))
        return int(np.searchsorted(np.cumsum(per_bin), rank))


def add_counts(parts: Sequence[ScoreCounts]) -> ScoreCounts:
    """The sum of counts with the same bins; groups that only one has are kept."""
    total = GrowingCounts()
    for part in parts:
        total.add(part)
    return total.counts()


class GrowingCounts:
    """A sum of counts with the same bins, of which the parts need not be kept."""

    def __init__(self) -> None:
        self.first: ScoreCounts | None = None
        self.places: dict[Any, int] = {}  # of the groups that any part has
        self.table: np.ndarray = np.zeros(0, np.int64)
        self.values: list[np.ndarray] = []
        self.kinds: list[tuple[int, np.ndarray]] = []  # with the groups known so far

    def add(self, part: ScoreCounts) -> None:
        """Add the counts of one more part."""
        if self.first is None:
            self.first = part
            n_labels, n_parts, _, n_bins = part.counts.shape
            self.table = np.zeros((n_labels, n_parts, 0, n_bins), np.int64)
        for name in part.group_names:
            self.places.setdefault(name, len(self.places))
        more = len(self.places) - self.table.shape[2]
        if more:
            self.table = np.pad(self.table, ((0, 0), (0, 0), (0, more), (0, 0)))
        own = part.with_groups(list(self.places))
        self.table += own.counts
        self.values.append(own.values)
        self.kinds.append((len(self.places), own.kinds))

    def counts(self) -> ScoreCounts:
        """The sum."""
        assert self.first is not None
        return replace(
            self.first,
            counts=self.table,
            group_names=list(self.places),
            values=np.concatenate(self.values),
            kinds=joined_kinds(self.kinds, len(self.places)),
        )


def joined_kinds(parts: list[tuple[int, np.ndarray]], n_groups: int) -> np.ndarray:
    """Kinds of noted scores for `n_groups`, of parts that knew only so many groups."""
    joined = [np.empty(0, np.int32)]
    for known, kinds in parts:
        if known < n_groups and len(kinds):
            n_parts = int(kinds.max()) // known + 1
            kinds = _kinds_of_groups(np.arange(known), n_groups, n_parts)[kinds]
        joined.append(kinds)
    return np.concatenate(joined)


def _kinds_of_groups(codes: np.ndarray, n_groups: int, n_parts: int) -> np.ndarray:
    """For every kind, the kind that it is where group i is the one with codes[i].

    A kind is part · groups + group. A place in a table is found much faster than a number
    is divided, and noted scores may be many millions.
    """
    return (np.arange(n_parts)[:, None] * n_groups + codes).astype(np.int32).ravel()


@dataclass(frozen=True)
class CountedScores:
    """The scores that one threshold decides on, as counts at edges and noted scores.

    It answers what `SortedScores` answers: exactly, for thresholds that are edges or lie
    in a bin whose scores were noted.
    """

    base: float
    totals: np.ndarray  # (kinds,)
    below: np.ndarray
    edges: np.ndarray  # where bins begin and end: -∞ first, the largest number last
    at_edges: np.ndarray  # (edges, kinds): scores up to each
    order: np.ndarray  # noted scores, ascending
    kinds: np.ndarray  # of the noted scores

    @classmethod
    def build(
        cls, counts: ScoreCounts, columns: list[int], base: float
    ) -> "CountedScores":
        n_groups = len(counts.group_names)
        n_kinds = 2 * n_groups
        chosen = counts.counts[columns].reshape(len(columns) * n_kinds, -1)
        totals = chosen.sum(axis=1)
        at_edges = np.zeros((len(counts.edges) + 2, len(totals)), np.int64)
        np.cumsum(chosen[:, :-1].T, axis=0, out=at_edges[1:])
        # Noted scores may be many millions: their kinds stay small integers.
        kind_of = np.full((len(counts.label_names), n_kinds), -1, np.int32)
        kind_of[columns] = np.arange(len(totals)).reshape(len(columns), n_kinds)
        kinds = kind_of.ravel()[counts.kinds]
        keeps = (kinds >= 0) & (counts.values < np.inf)
        values = counts.values[keeps]
        kinds = kinds[keeps]
        order = np.argsort(values)  # equal scores in any order: a threshold takes all
        largest = np.finfo(np.float64).max
        edges = np.concatenate([[-np.inf], counts.edges, [largest]])
        found = cls(base, totals, totals, edges, at_edges, values[order], kinds[order])
        if math.isinf(base):
            return found
        return replace(found, below=found.counts_at(base))

    def counts_at(self, threshold: float) -> np.ndarray:
        """Scores of each kind up to a threshold."""
        edge = int(np.searchsorted(self.edges, threshold, side="right")) - 1
        first = np.searchsorted(self.order, self.edges[edge], side="right")
        last = np.searchsorted(self.order, threshold, side="right")
        more = np.bincount(self.kinds[first:last], minlength=len(self.totals))
        return self.at_edges[edge] + more

    def _passed_edges(self) -> np.ndarray:
        """How many scores above q̂ are at most each edge; negative below q̂."""
        return self.at_edges.sum(axis=1) - self.below.sum()

    def passed(self, thresholds: np.ndarray) -> np.ndarray:
        """How many scores above q̂ are at most each threshold."""
        edge = np.searchsorted(self.edges, thresholds, side="right") - 1
        first = np.searchsorted(self.order, self.edges[edge], side="right")
        last = np.searchsorted(self.order, thresholds, side="right")
        return self._passed_edges()[edge] + last - first

    def covered(self, passed: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
        """Scores of each kind after so many: which entries, and (entries, kinds)."""
        passed_edges = self._passed_edges()
        batch = max(1, BATCH // max(len(self.totals), 1))
        for start in range(0, len(passed), batch):
            some = passed[start : start + batch]
            edge = np.searchsorted(passed_edges, some, side="right") - 1
            counts = self.at_edges[edge]
            first = np.searchsorted(self.order, self.edges[edge], side="right")
            for place in np.flatnonzero(some > passed_edges[edge]):
                n_more = some[place] - passed_edges[edge[place]]
                own = self.kinds[first[place] : first[place] + n_more]
                counts[place] += np.bincount(own, minlength=len(self.totals))
            yield slice(start, start + len(some)), counts

    def hits(self, is_true: np.ndarray, passed: np.ndarray) -> np.ndarray:
        """How many of the first scores are those of true labels, for so many each."""
        found = np.zeros(len(passed), np.int64)
        before = self.below @ is_true
        for some, counts in self.covered(passed):
            found[some] = counts @ is_true - before
        return found


@dataclass(frozen=True)
class BinLosses:
    """What the counts at both ends say of the paper's loss inside each bin above q̂."""

    places: np.ndarray  # the bins
    least: np.ndarray  # no threshold in the bin has a smaller loss
    at_end: np.ndarray  # the loss after all scores of the bin

    @classmethod
    def build(cls, scores: CountedScores, cells: CellMap, first_bin: int) -> "BinLosses":
        """For the bins from `first_bin` to the one above all edges."""
        places = np.arange(first_bin, len(scores.edges) - 1)
        least = np.empty(len(places))
        at_end = np.empty(len(places))
        batch = max(1, BATCH // max(len(scores.totals), 1))
        for begin in range(0, len(places), batch):
            some = places[begin : begin + batch]
            left = cells.shares(scores.at_edges[some], scores.totals)
            right = cells.shares(scores.at_edges[some + 1], scores.totals)
            lower, _ = replace(right, trials=left.trials).rank_bounds()
            _, upper = replace(left, trials=right.trials).rank_bounds()
            loss = cells.metric.loss(upper.max(axis=-1), lower.min(axis=-1))
            own = slice(begin, begin + len(some))
            least[own] = loss.reshape(len(some), -1).max(axis=1)
            at_end[own] = right.rank_losses().reshape(len(some), -1).max(axis=1)
        return cls(places, least - 1e-9, at_end)

    def that_can_be_lows(self) -> np.ndarray:
        """The bins that can hold a new low of the loss: for the whole frontier."""
        best_before = np.append(np.inf, np.minimum.accumulate(self.at_end)[:-1])
        return self.places[self.least <= best_before]

    def that_can_pass(self, limits: Sequence[float]) -> np.ndarray:
        """The bins that can hold the first loss within a limit, or the least of all."""
        is_candidate = self.least <= self.at_end.min(initial=np.inf)
        for limit in limits:
            passes = np.flatnonzero(self.at_end <= limit)
            last = passes[0] if len(passes) else len(self.places) - 1
            is_before = np.arange(len(self.places)) <= last
            is_candidate |= is_before & (self.least <= limit)
        return self.places[is_candidate]


def exact_curve(scores: CountedScores, cells: CellMap, places: np.ndarray) -> Curve:
    """The paper's rule over the bins in `places`, whose scores were all noted.

    q̂'s own bin is the first of them. What lies in the other bins is passed over: they
    hold no low that is asked for.
    """
    if cells.shape[0] == 0:
        return nothing_to_compare(scores, cells, None)
    sizes = cells.counts(scores.totals)
    is_true = cells.kinds.is_true
    shift = (len(is_true) - 1).bit_length()
    best = math.inf
    found: list[tuple[np.ndarray, ...]] = []
    for run in np.split(places, np.flatnonzero(np.diff(places) > 1) + 1):
        start = max(float(scores.edges[run[0]]), scores.base)
        at_start = scores.counts_at(start)
        if len(found):
            best = min(best, _loss_at(cells, at_start, scores.totals))
        first = np.searchsorted(scores.order, start, side="right")
        last = np.searchsorted(scores.order, scores.edges[run[-1] + 1], side="right")
        values = scores.order[first:last]
        rank = np.cumsum(np.diff(values, prepend=-np.inf) > 0).astype(np.uint64)
        packed = (rank << np.uint64(shift)) | scores.kinds[first:last].astype(np.uint64)
        packed.sort()
        passed, lows, hits = new_lows(
            packed, shift, cells, cells.counts(at_start), sizes, best
        )
        best = float(lows.min(initial=best))
        before = at_start - scores.below
        thresholds = np.append(start, values)[passed]
        found.append((thresholds, lows, before.sum() + passed, before @ is_true + hits))
    thresholds, lows, passed, hits = map(np.concatenate, zip(*found, strict=True))
    return Curve.build(cells, scores, None, thresholds, lows, passed, hits)


def _loss_at(cells: CellMap, covered: np.ndarray, totals: np.ndarray) -> float:
    """The paper's loss where so many scores of each kind are covered."""
    return float(cells.losses(covered, totals, None).max())


def counted_curve(scores: CountedScores, cells: CellMap) -> Curve:
    """The paper's rule where every score counts as the end of its bin."""
    if math.isinf(scores.base):
        nothing = np.empty(0, np.int64)
        return Curve.build(
            cells, scores, None, np.empty(0), np.empty(0), nothing, nothing
        )
    if cells.shape[0] == 0:
        return nothing_to_compare(scores, cells, None)
    first = int(np.searchsorted(scores.edges, scores.base))
    edges = scores.edges[first:-1]
    passed = scores.passed(edges)
    losses = np.empty(len(edges))
    for some, covered in scores.covered(passed):
        losses[some] = cells.losses(covered, scores.totals, None).max(axis=-1)
    new = losses < np.append(np.inf, np.minimum.accumulate(losses)[:-1])
    hits = scores.hits(cells.kinds.is_true, passed[new])
    return Curve.build(cells, scores, None, edges[new], losses[new], passed[new], hits)

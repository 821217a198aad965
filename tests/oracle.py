"""Brute force: every cell counted afresh at every candidate threshold.

Slow on purpose and written from the definitions alone; the tests compare `cfhelpers` with
it. Groups are 0..G-1 here.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np
import oracle_staircase
from scipy.special import betaincinv

TOLERANCE = 1e-12

PARITY = [lambda y, g, a, label: g == a]
OPPORTUNITY = [lambda y, g, a, label: (g == a) & (y == label)]
EQUALITY = [lambda y, g, a, label: (g == a) & (y != label)]
FILTERS = {
    "demographic_parity": PARITY,
    "equal_opportunity": OPPORTUNITY,
    "predictive_equality": EQUALITY,
    "equalized_odds": OPPORTUNITY + EQUALITY,
    "disparate_impact": PARITY,
    "predictive_parity": PARITY,
    "predictive_parity_proxy": PARITY,
    "overall_accuracy_equality": PARITY,
    "set_size": PARITY,
    "singletons": PARITY,
}
PREDICTIVE = ("predictive_parity", "predictive_parity_proxy")
OVERALL = "overall_accuracy_equality"
SIZES = ("set_size", "singletons")
WHOLE = (OVERALL, *SIZES)  # they look at no label in particular


@dataclass(frozen=True)
class Metric:
    """A built-in metric by name, or the user's own filter."""

    name: str
    filter: Callable | None = None
    ratio: bool = False

    @property
    def filters(self):
        return FILTERS[self.name] if self.filter is None else [self.filter]

    @property
    def sign(self):
        """Ratios are negated, so that smaller is fairer for every metric."""
        return -1 if self.ratio else 1


class Overlapping:
    """Groups 0..G-1 as a boolean table (n, G); `g == a` is the a-th column."""

    def __init__(self, table):
        self.table = np.asarray(table)

    def __eq__(self, a):
        return self.table[:, a]

    def tolist(self):
        return list(range(self.table.shape[1]))


def metric(name):
    return Metric(name, ratio=name == "disparate_impact")


@dataclass(frozen=True)
class Answer:
    threshold: np.ndarray
    base_threshold: float
    feasible: bool
    satisfied: bool
    bound: np.ndarray
    smallest_closeness: float


def quantile(true_scores, alpha):
    """The k-th smallest, k = ceil((n + 1)(1 - alpha)).

    In rational arithmetic on the decimal alpha.
    """
    n = len(true_scores)
    k = math.ceil((n + 1) * (1 - Fraction(str(alpha))))
    return math.inf if k > n else sorted(float(s) for s in true_scores)[k - 1]


@cache
def clopper_pearson(n, level):
    """One-sided lower and upper bounds for every count 0..n."""
    k = np.arange(n + 1)
    low, high = np.zeros(n + 1), np.ones(n + 1)
    low[1:] = betaincinv(k[1:], n - k[1:] + 1, level)
    high[:-1] = betaincinv(k[:-1] + 1, n - k[:-1], 1 - level)
    return low, high


def covered(scores, cell, thresholds):
    """Number of points of the cell at or below each threshold."""
    return (scores[cell, None] <= thresholds).sum(0)


def coverage_interval(scores, cell, thresholds, level):
    """Interval for the cell's coverage at each threshold.

    Rank-based when level is None, else Clopper-Pearson.
    """
    n, k = int(cell.sum()), covered(scores, cell, thresholds)
    if level is None:
        low, high = k / (n + 1), (k + 1) / (n + 1)
    else:
        low, high = (bounds[k] for bounds in clopper_pearson(n, level / 2))
    infinite = np.isinf(thresholds)
    return np.where(infinite, 1.0, low), np.where(infinite, 1.0, high)


def ppv_interval(scores, y, members, label, thresholds, level, proxy):
    """Interval for PPV, or for PPV minus the prior, of one group at each threshold."""
    infinite, positive = np.isinf(thresholds), members & (y == label)
    n, r = int(members.sum()), int(positive.sum())
    if level is None:
        prior_low, prior_high = r / (n + 1), (r + 1) / (n + 1)
        low_e, high_e = coverage_interval(scores, positive, thresholds, None)
        low_d, high_d = coverage_interval(scores, members, thresholds, None)
        with np.errstate(divide="ignore"):
            low, high = low_e * prior_low / high_d, high_e * prior_high / low_d
        low, high = (
            np.where(infinite, prior_low, low),
            np.where(infinite, prior_high, high),
        )
    else:
        share = level / 4 if proxy else level / 2
        prior_low, prior_high = (bounds[r] for bounds in clopper_pearson(n, share))
        pairs = zip(
            covered(scores, members, thresholds),
            covered(scores, positive, thresholds),
            strict=True,
        )
        low, high = np.transpose(
            [
                [bounds[hits] for bounds in clopper_pearson(int(m), share)]
                for m, hits in pairs
            ]
        )
    if proxy:
        low, high = (
            np.where(infinite, 0.0, low - prior_high),
            np.where(infinite, 0.0, high - prior_low),
        )
    return low, high


def unfairness(metric, scores, y, g, label, thresholds, level=None):
    """Gap (ratio: its negative) between groups at each threshold for one label.

    The worst of the metric's filters. level None: the paper's rule; else the level of the
    sharpest test that is valid.
    """
    thresholds = np.asarray(thresholds, dtype=np.float64)
    if metric.name in SIZES:
        return size_losses(metric, scores, g, thresholds, level)
    column = scores[np.arange(len(y)), y] if metric.name == OVERALL else scores[:, label]
    names = sorted(set(g.tolist()))
    if level is not None and len(names) == 1:  # there is no pair to compare
        return np.full(len(thresholds), -1.0 if metric.ratio else 0.0)
    worst = np.full(len(thresholds), -np.inf)
    for keep in metric.filters:
        cells = [keep(y, g, a, label) for a in names]
        if level is None or needs_bounds(metric, cells, level):
            values = loss_of_intervals(metric, column, y, label, cells, thresholds, level)
        else:
            values = loss_of_staircase(metric, column, y, label, cells, thresholds, level)
        worst = np.maximum(worst, values)
    return worst


def size_losses(metric, scores, g, thresholds, level):
    """The gap in mean size, as a share of all labels, or in sets of just one label."""
    names = sorted(set(g.tolist()))
    losses = []
    for threshold in thresholds:
        if math.isinf(threshold) or (level is not None and len(names) == 1):
            losses.append(0.0)
            continue
        cells = [g == a for a in names]
        values = [set_values(metric, scores[cell], threshold) for cell in cells]
        is_share = metric.name == "singletons"
        if level is not None and is_share and not needs_bounds(metric, cells, level):
            hits = [sum(own) for own in values]
            sizes = [len(own) for own in values]
            losses.append(oracle_staircase.loss(hits, sizes, level, False))
            continue
        ends = [mean_interval(metric, own, level) for own in values]
        pairs = [
            high - low
            for a, (_, high) in enumerate(ends)
            for b, (low, _) in enumerate(ends)
            if level is None or a != b
        ]
        losses.append(max(pairs))
    return np.array(losses)


def set_values(metric, scores, threshold):
    """What is averaged over the people of a group, one number each."""
    sizes = [sum(1 for score in row if score <= threshold) for row in scores]
    if metric.name == "singletons":
        return [int(size == 1) for size in sizes]
    return [size / scores.shape[1] for size in sizes]


def mean_interval(metric, values, level):
    """Rank-based when level is None, else Maurer-Pontil; Clopper-Pearson for shares."""
    n = len(values)
    if level is None:
        return sum(values) / (n + 1), (sum(values) + 1) / (n + 1)
    if metric.name == "singletons":
        low, high = clopper_pearson(n, level / 2)
        return low[sum(values)], high[sum(values)]
    if n < 2:
        return 0.0, 1.0
    mean = sum(values) / n
    variance = sum((value - mean) ** 2 for value in values) / (n - 1)
    log = math.log(2 / (level / 2))
    width = math.sqrt(2 * variance * log / n) + 7 * log / (3 * (n - 1))
    return max(mean - width, 0.0), min(mean + width, 1.0)


def needs_bounds(metric, cells, level):
    """Whether the counts of two groups are dependent, or the level is too large."""
    overlap = np.sum(cells, axis=0).max() > 1
    return metric.name == "predictive_parity_proxy" or overlap or level > 0.5


def loss_of_intervals(metric, column, y, label, cells, thresholds, level):
    """By an interval for each group, the worst of all pairs."""
    if metric.name in PREDICTIVE:
        proxy = metric.name.endswith("proxy")
        ends = [
            ppv_interval(column, y, cell, label, thresholds, level, proxy)
            for cell in cells
        ]
    else:
        ends = [coverage_interval(column, cell, thresholds, level) for cell in cells]
    worst = np.full(len(thresholds), -np.inf)
    for a, (_, high) in enumerate(ends):
        for b, (low, _) in enumerate(ends):
            if level is None or a != b:
                worst = np.maximum(worst, -low / high if metric.ratio else high - low)
    if level is not None and metric.name in PREDICTIVE:
        for cell in cells:
            is_empty = covered(column, cell, thresholds) == 0
            no_sets = is_empty & (np.isfinite(thresholds) | ~cell.any())
            worst = np.where(no_sets & ~_is_exact(metric, thresholds), math.inf, worst)
    return worst


def _is_exact(metric, thresholds):
    """The proxy is 0 at infinity, whoever is there."""
    return np.isinf(thresholds) & metric.name.endswith("proxy")


def loss_of_staircase(metric, column, y, label, cells, thresholds, level):
    """By the staircase test, one threshold after the other."""
    losses = []
    for threshold in thresholds:
        in_set = column <= threshold
        if metric.name == "predictive_parity":
            sizes = [int((cell & in_set).sum()) for cell in cells]
            hits = [int((cell & in_set & (y == label)).sum()) for cell in cells]
            if min(sizes) == 0:  # there is no predictive value to compare
                losses.append(math.inf)
                continue
        elif math.isinf(threshold):
            losses.append(-1.0 if metric.ratio else 0.0)
            continue
        else:
            sizes = [int(cell.sum()) for cell in cells]
            hits = [int((cell & in_set).sum()) for cell in cells]
        losses.append(oracle_staircase.loss(hits, sizes, level, metric.ratio))
    return np.array(losses)


def first_passing(thresholds, values, limit):
    """The first candidate, from below, that passes."""
    for j in range(len(thresholds)):
        if math.isfinite(values[j]) and values[j] <= limit:
            return j, True
    return len(thresholds) - 1, False


def last_accepted(thresholds, values, limit, base):
    """Walk down from infinity and stop at the first rejection.

    The answer is the smallest accepted threshold that is >= base.
    """
    best, satisfied = len(thresholds) - 1, False
    for j in reversed(range(len(thresholds))):
        if not values[j] <= limit:
            break
        satisfied = True
        if thresholds[j] >= base:
            best = j
    return best, satisfied


def default_grid():
    """601 even points, and 401 that crowd towards 1."""
    even = np.arange(601) / 600
    crowded = 1 - 10 ** (-5 + 4.5 * np.arange(401) / 400)
    return [*even, *crowded]


def search(
    scores,
    y,
    g,
    metric,
    closeness,
    *,
    alpha,
    classwise,
    positive_labels,
    guarantee,
    delta=None,
    grid=None,
):
    """The answer that `find_threshold` must give."""
    scores, y = np.asarray(scores, np.float64), np.asarray(y)
    g = g if isinstance(g, Overlapping) else np.asarray(g)
    n, n_classes = scores.shape
    true_scores = scores[np.arange(n), y]
    base = quantile(true_scores, alpha)
    overall = metric.name in WHOLE
    labels = [0] if overall else sorted(positive_labels)
    parts = [[label] for label in labels] if classwise else [labels]
    level = delta / len(parts) if guarantee else None
    threshold = np.full(n_classes, base)
    bound = np.full(n_classes, np.nan)
    satisfied, feasible, reach = True, True, -math.inf
    for part in parts:
        if guarantee and len(set(g.tolist())) == 1:
            candidates = np.array(sorted({base, math.inf}))
        elif guarantee:
            candidates = np.array(
                sorted({*map(float, default_grid() if grid is None else grid), math.inf})
            )
        else:
            column = true_scores if overall else scores[:, part].ravel()
            if metric.name in SIZES:
                column = scores.ravel()
            candidates = np.array(
                sorted({base, *column[column > base].tolist(), math.inf})
            )
        values = {
            label: unfairness(metric, scores, y, g, label, candidates, level)
            for label in part
        }
        worst = np.max(list(values.values()), axis=0)
        limit = metric.sign * closeness + TOLERANCE
        if guarantee:
            chosen, passed = last_accepted(candidates, worst, limit, base)
            walked = np.maximum.accumulate(worst[::-1])[::-1]
        else:
            chosen, passed = first_passing(candidates, worst, limit)
            walked = worst
        usable = np.isfinite(candidates) & (candidates >= base)
        reach = max(reach, walked[usable].min()) if usable.any() else math.nan
        satisfied &= passed
        feasible &= math.isfinite(candidates[chosen])
        for label in range(n_classes) if overall else part:
            bound[label] = metric.sign * values[part[0] if overall else label][chosen]
        if classwise and not overall:
            threshold[part[0]] = candidates[chosen]
        else:
            threshold[:] = candidates[chosen]
    if math.isinf(reach):  # a cell of predictive values is empty at every finite λ
        reach = math.nan
    return Answer(threshold, base, feasible, satisfied, bound, metric.sign * reach)


def blocking_cells(metric, y, g, positive_labels, closeness, delta=None):
    """Cells (group, label, n) that even full coverage of all leaves too uncertain.

    delta is the level of one label's test.
    """
    names = sorted(set(g.tolist()))
    if delta is not None and len(names) == 1:
        return []
    limit = metric.sign * closeness + TOLERANCE
    found = []
    for label in [None] if metric.name in WHOLE else sorted(positive_labels):
        for keep in metric.filters:
            cells = [keep(y, g, a, label) for a in names]
            sizes = [int(cell.sum()) for cell in cells]
            for b, n in enumerate(sizes):
                others = [size for a, size in enumerate(sizes) if a != b and size > 0]
                if delta is None:
                    loss = full_loss_of_interval(metric, n / (n + 1))
                elif metric.name == "set_size":
                    loss = 1 - mean_interval(metric, [1.0] * n, delta)[0]
                elif needs_bounds(metric, cells, delta):
                    loss = full_loss_of_interval(
                        metric, clopper_pearson(n, delta / 2)[0][n]
                    )
                elif n == 0:
                    loss = 0.0 if metric.ratio else 1.0
                else:
                    loss = full_loss_of_staircase(metric, others, n, delta)
                if loss > limit:
                    found.append((names[b], label, n))
    return found


def full_loss_of_interval(metric, low):
    return -low if metric.ratio else 1 - low


def full_loss_of_staircase(metric, others, n, delta):
    """The worst loss against another group, with every point of both covered."""
    losses = [
        oracle_staircase.pair_loss(size, size, n, n, delta, metric.ratio)
        for size in others
    ]
    return max(losses, default=-math.inf)


def group_coverages(sets, y, g, metric, label):
    """Plain share of each cell whose set holds the label, per filter.

    (n, coverage) by group, NaN where empty.
    """
    tables = []
    for keep in metric.filters:
        table = {}
        for a in sorted(set(g.tolist())):
            cell = np.flatnonzero(keep(y, g, a, label)).tolist()
            if metric.name == "set_size":
                hits = [sum(sets[i]) / len(sets[i]) for i in cell]
            elif metric.name == "singletons":
                hits = [sum(sets[i]) == 1 for i in cell]
            elif metric.name == OVERALL:
                hits = [bool(sets[i][y[i]]) for i in cell]
            elif metric.name in PREDICTIVE:
                hits = [y[i] == label for i in cell if sets[i][label]]
            else:
                hits = [bool(sets[i][label]) for i in cell]
            value = sum(hits) / len(hits) if hits else math.nan
            if metric.name.endswith("proxy") and cell:
                value -= sum(y[i] == label for i in cell) / len(cell)
            table[a] = (len(hits), value)
        tables.append(table)
    return tables


def disparity(sets, y, g, metric, positive_labels):
    """The worst gap or ratio of plain coverages over labels.

    Empty cells are left out; NaN when nothing is left.
    """
    values = []
    for label in [0] if metric.name in WHOLE else positive_labels:
        for table in group_coverages(sets, y, g, metric, label):
            kept = [
                coverage for _, coverage in table.values() if not math.isnan(coverage)
            ]
            if not kept:
                continue
            if metric.ratio:
                values.append(min(kept) / max(kept) if max(kept) > 0 else 1.0)
            else:
                values.append(max(kept) - min(kept))
    return (min(values) if metric.ratio else max(values)) if values else math.nan


def tps_row(probs, u=None):
    return [1 - p for p in probs]


def aps_row(probs, u=None):
    """APS of one point: labels by decreasing probability.

    The lower label is first among equals.
    """
    order = sorted(range(len(probs)), key=lambda label: (-probs[label], label))
    total, scores = 0.0, [0.0] * len(probs)
    for label in order:
        total += probs[label]
        scores[label] = total - (0.0 if u is None else u * probs[label])
    return scores


def raps_row(probs, u=None, *, penalty, k_reg):
    order = sorted(range(len(probs)), key=lambda label: (-probs[label], label))
    rank = {label: position + 1 for position, label in enumerate(order)}
    return [
        s + penalty * max(rank[label] - k_reg, 0)
        for label, s in enumerate(aps_row(probs, u))
    ]


def weighted_quantile(true_scores, weights, alpha):
    """The first score up to which n times the share of the weights is (n + 1)(1 - α).

    n is the effective size (Σw)²/Σw².
    """
    size = weights.sum() ** 2 / (weights**2).sum()
    for score in sorted(set(true_scores.tolist())):
        share = weights[true_scores <= score].sum() / weights.sum()
        if size * share >= (size + 1) * (1 - alpha) - 1e-9:
            return score
    return math.inf


def weighted_interval(column, cell, threshold, weights):
    """[k/(n + 1), (k + 1)/(n + 1)], n the cell's effective size and k/n its share."""
    own = weights[cell]
    if len(own) == 0:
        return 0.0, 1.0
    size = own.sum() ** 2 / (own**2).sum()
    hits = size * own[column[cell] <= threshold].sum() / own.sum()
    return hits / (size + 1), (hits + 1) / (size + 1)


def weighted_loss(metric, scores, y, g, label, threshold, weights):
    """The gap, or minus the ratio, of one label at one threshold below infinity."""
    column = scores[np.arange(len(y)), y] if metric.name == OVERALL else scores[:, label]
    worst = -math.inf
    for keep in metric.filters:
        ends = []
        for a in sorted(set(g.tolist())):
            cell = keep(y, g, a, label)
            low, high = weighted_interval(column, cell, threshold, weights)
            if metric.name in PREDICTIVE:
                positive = cell & (y == label)
                low_e, high_e = weighted_interval(column, positive, threshold, weights)
                where = np.where(y == label, 0.0, math.inf)
                low_p, high_p = weighted_interval(where, cell, 1.0, weights)
                upper = high_e * high_p / low if low > 0 else math.inf
                low, high = low_e * low_p / high, upper
                if metric.name.endswith("proxy"):
                    low, high = low - high_p, high - low_p
            ends.append((low, high))
        highest = max(high for _, high in ends)
        lowest = min(low for low, _ in ends)
        value = -lowest / highest if metric.ratio else highest - lowest
        worst = max(worst, value)
    return worst


def weighted_threshold(metric, scores, y, g, label, closeness, alpha, weights):
    """The paper's rule with weighted counts, for one label's own threshold."""
    base = weighted_quantile(scores[np.arange(len(y)), y], weights, alpha)
    column = scores[np.arange(len(y)), y] if metric.name == OVERALL else scores[:, label]
    for threshold in sorted({base, *column[column > base].tolist()}):
        if math.isinf(threshold):
            break
        loss = weighted_loss(metric, scores, y, g, label, threshold, weights)
        if loss <= metric.sign * closeness + TOLERANCE:
            return threshold
    return math.inf

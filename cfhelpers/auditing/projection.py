"""How many people would settle a verdict: draws from the people of the file itself.

A larger file is drawn as often as needed from the people who were audited, each with a
group, a true label and a set. A person counts once, for all labels. How often the verdict
is decided at each size says how many people it takes to decide it in 80% of cases.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import ndtri

from cfhelpers.auditing.verdicts import (
    Judge,
    sure_bounds,
    with_all_counts,
    worst_pairs,
)
from cfhelpers.cells import Shares
from cfhelpers.groups import Groups
from cfhelpers.metrics import Condition, FairnessMetric

POWER = 0.8  # how probable a verdict shall be
TIMES = (2.0, 5.0, 10.0)  # larger files than the last one are not thought of
DRAWS = 400  # of a larger file, for each size
STEPS = 4  # sizes in between that are tried
MANY_KINDS = 20_000  # with more kinds of people, labels are drawn independently
SURE = 1e-4  # labels that pass at this part of the level are taken to pass
SEED = 20_261


@dataclass(frozen=True)
class People:
    """The people of an audit, of whom larger files are drawn.

    Attributes
    ----------
    sets : bool (n, K)
    y : integers (n,)
    groups : Groups
    weights : float (n,) or None
        Whom each person stands for.
    """

    sets: np.ndarray
    y: np.ndarray
    groups: Groups
    weights: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.y)

    @property
    def effective(self) -> float:
        """As how many people without weights they count."""
        if self.weights is None:
            return float(len(self))
        return float(self.weights.sum() ** 2 / (self.weights**2).sum())

    def joined(self, sets: np.ndarray, groups: Groups) -> People:
        """With people whose true label is not known, and taken to be the first."""
        return People(
            np.concatenate([self.sets, sets]),
            np.concatenate([self.y, np.zeros(len(sets), self.y.dtype)]),
            Groups(
                np.concatenate([self.groups.codes, groups.codes]),
                groups.names,
                groups.memberships,
            ),
        )

    @cached_property
    def kinds(self) -> tuple[People, np.ndarray]:
        """One person of every kind (group, true label, set), and the kinds' shares."""
        n_groups = len(self.groups)
        key = self.y.astype(np.int64) * n_groups + self.groups.codes
        for column in self.sets.T:
            key = _small_codes(2 * key + column)
        _, first, place = np.unique(key, return_index=True, return_inverse=True)
        counts = np.bincount(place, weights=self.weights)
        kept = People(self.sets[first], self.y[first], self.groups.take(first))
        return kept, counts / counts.sum()


def _small_codes(key: np.ndarray) -> np.ndarray:
    """The same distinctions in codes that are small enough to go on with."""
    if key.max() < 2**40:
        return key
    _, codes = np.unique(key, return_inverse=True)
    return codes.astype(np.int64)


def people_needed(
    shares: Shares,
    judge: Judge,
    people: People | None,
    n_people: int,
    seed: int = SEED,
) -> int | None:
    """How many people give a verdict with 80% probability, if all stays as observed.

    Parameters
    ----------
    shares : Shares
        What a metric compares, as observed.
    judge : Judge
        Who decides.
    people : People, optional
        Whom larger files are drawn from. Without them every cell is drawn on its own.
    n_people : int
        How many there are now.
    seed : int
        Of the draws.

    Returns
    -------
    int or None
        People in all, those of now among them. None: not even ten times as many as now
        would probably do.
    """
    if judge.is_vacuous:
        return None
    first = _first_decided(shares, judge)
    if first is None:
        return None
    draws = _Draws(shares, judge, people, np.random.default_rng(seed), 1.5 * first)
    times = _times_with_power(draws, first)
    if times is None:
        return None
    return int(np.ceil(times * n_people))


def _first_decided(shares: Shares, judge: Judge) -> float | None:
    """From how many times the file on the observed shares themselves are decided.

    Somewhere near, every second draw is. Sizes are tried in steps of a tenth.
    """
    if not _is_decided(shares, judge, TIMES[-1]):
        return None
    low = 0.0
    high = np.log(TIMES[-1])
    while high - low > 0.05:
        middle = (low + high) / 2
        if _is_decided(shares, judge, np.exp(middle)):
            high = middle
        else:
            low = middle
    return float(np.exp(high))


def _is_decided(shares: Shares, judge: Judge, times: float) -> bool:
    """Whether so many times the file, at the shares that were observed, is decided."""

    grown = _grown(shares, times)
    if judge.is_beyond(grown):
        return True
    if (grown.trials == 0).any():
        return False
    return judge.may_be_within(grown)


def _grown(shares: Shares, times: float) -> Shares:
    """So many times the counts."""
    return with_all_counts(
        shares, lambda counts: np.rint(counts * times).astype(int), is_growth=True
    )


def _times_with_power(draws: _Draws, first: float) -> float | None:
    """How many times the file is decided with the wanted probability.

    Sizes are tried one after the other, each where the law through those before puts the
    wanted probability: the quantile of a verdict's frequency grows like √n.
    """
    tried: list[float] = []
    decided: list[float] = []
    times = min(2 * first, TIMES[-1])
    for _ in range(STEPS):
        tried.append(times)
        decided.append(draws.share_decided(times))
        guess = _where_law_has_power(tried, decided, first)
        times = float(np.clip(guess, 1.0, TIMES[-1]))
        if guess > TIMES[-1] and TIMES[-1] in tried:
            return None
    if guess > TIMES[-1] * 1.02:
        return None
    return times


def _where_law_has_power(tried: list[float], decided: list[float], first: float) -> float:
    """Where Φ(a + b√t) is the wanted probability, by the sizes tried, nearest most."""
    frequency = np.clip(decided, 0.5 / DRAWS, 1 - 0.5 / DRAWS)
    root = np.sqrt(tried)
    z = ndtri(frequency)
    weight = np.exp(-2 * (z - ndtri(POWER)) ** 2) + 1e-3
    # Where the observed shares are decided, about every second draw is.
    root = np.append(root, np.sqrt(first))
    z = np.append(z, 0.0)
    weight = np.append(weight, 0.05 / len(tried) ** 2)
    mean_root = np.average(root, weights=weight)
    mean_z = np.average(z, weights=weight)
    spread = np.average((root - mean_root) ** 2, weights=weight)
    slope = np.average((root - mean_root) * (z - mean_z), weights=weight)
    slope = max(slope / max(spread, 1e-12), 0.2)
    wanted = mean_root + (ndtri(POWER) - mean_z) / slope
    return float(max(wanted, 1.0) ** 2)


class _Draws:
    """Larger files, drawn, and how often they are decided.

    Labels and filters that are sure to pass at a typical size are left out of the draws.
    """

    def __init__(
        self,
        shares: Shares,
        judge: Judge,
        people: People | None,
        rng: np.random.Generator,
        typical: float,
    ) -> None:
        self.judge = judge
        self.rng = rng
        self.n_cells = shares.trials.size
        is_open = _open_rows(shares, judge, typical)
        self.shares = with_all_counts(shares, lambda counts: counts[is_open])
        self.kinds: _Kinds | None = None
        if people is not None and _has_kinds(people, shares.metric):
            _, frequencies = people.kinds
            if len(frequencies) <= MANY_KINDS:
                self.kinds = _Kinds.of(people, shares, is_open)

    def share_decided(self, times: float) -> float:
        """Of the draws of a file so many times as large, how many are decided."""
        if self.kinds is None:
            drawn = self._drawn_by_cell(times)
        else:
            drawn = self.kinds.drawn(self.shares, times, self.rng)
        is_decided = _are_beyond(drawn, self.judge, self.n_cells)
        is_decided |= _are_within(drawn, self.judge)
        return float(is_decided.mean())

    def _drawn_by_cell(self, times: float) -> Shares:
        """Counts of every draw (draws, rows, groups), every cell on its own."""

        def drawn(hits: np.ndarray, trials: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            n = self.rng.poisson(times * trials, (DRAWS, *trials.shape))
            share = np.clip(hits / np.maximum(trials, 1), 0, 1)
            return self.rng.binomial(n, share), n

        shares = self.shares
        hits, trials = drawn(shares.hits, shares.trials)
        found = replace(shares, hits=hits, trials=trials, spread=None)
        if not shares.metric.is_predictive:
            return found
        prior_hits, prior_trials = drawn(shares.prior_hits, shares.prior_trials)
        return replace(found, prior_hits=prior_hits, prior_trials=prior_trials)


def _has_kinds(people: People, metric: FairnessMetric) -> bool:
    """Whether kinds of people say all that a metric counts, each in one group."""
    is_of_labels = metric.is_built_in and not metric.is_size
    return is_of_labels and people.groups.memberships is None


@dataclass(frozen=True)
class _Kinds:
    """Kinds of people: how frequent each is, and which cells it counts in.

    The arrays (kinds, rows) say whether a person of the kind is a trial, a hit, and a hit
    of the prior, for each label and filter that is compared.
    """

    frequencies: np.ndarray
    codes: np.ndarray
    n: float
    trials: np.ndarray
    hits: np.ndarray
    prior_hits: np.ndarray

    @classmethod
    def of(cls, people: People, shares: Shares, is_open: np.ndarray) -> _Kinds:
        """The kinds that occur, with the labels and filters that are still open."""
        kinds, frequencies = people.kinds
        metric = shares.metric
        trials = []
        hits = []
        prior_hits = []
        for label in shares.labels:
            is_label = kinds.y == label
            if not metric.per_label:
                is_held = kinds.sets[np.arange(len(kinds)), kinds.y]
            else:
                is_held = kinds.sets[:, label]
            for trial in _trials_of_filters(metric, is_held, is_label):
                trials.append(trial)
                hits.append(trial & (is_label if metric.is_predictive else is_held))
                prior_hits.append(is_label & metric.is_predictive)
        rows = np.flatnonzero(is_open.ravel())
        found = cls(
            frequencies,
            kinds.groups.codes,
            people.effective,
            np.stack(trials, axis=1)[:, rows],
            np.stack(hits, axis=1)[:, rows],
            np.stack(prior_hits, axis=1)[:, rows],
        )
        return found.merged()

    def merged(self) -> _Kinds:
        """Kinds that count in the same cells as one: draws take less time."""
        columns = [self.codes[:, None], self.trials, self.hits, self.prior_hits]
        signature = np.concatenate(columns, axis=1)
        _, first, place = np.unique(
            signature, axis=0, return_index=True, return_inverse=True
        )
        return _Kinds(
            np.bincount(place.ravel(), weights=self.frequencies),
            self.codes[first],
            self.n,
            self.trials[first],
            self.hits[first],
            self.prior_hits[first],
        )

    def drawn(self, shares: Shares, times: float, rng: np.random.Generator) -> Shares:
        """Counts of every draw (draws, rows, groups)."""
        counts = rng.multinomial(round(times * self.n), self.frequencies, size=DRAWS)
        n_groups = shares.trials.shape[-1]

        def in_groups(counts_in: np.ndarray) -> np.ndarray:
            totals = np.zeros((DRAWS, counts_in.shape[1], n_groups), np.int64)
            for group in range(n_groups):
                own = self.codes == group
                totals[..., group] = counts[:, own] @ counts_in[own].astype(np.int64)
            return totals

        found = replace(shares, hits=in_groups(self.hits), trials=in_groups(self.trials))
        if not shares.metric.is_predictive:
            return found
        return replace(
            found,
            prior_hits=in_groups(self.prior_hits),
            prior_trials=in_groups(np.ones_like(self.trials)),
        )


def _trials_of_filters(
    metric: FairnessMetric, is_held: np.ndarray, is_label: np.ndarray
) -> list[np.ndarray]:
    """Who is a trial, for each filter that is compared on its own."""
    if metric.is_predictive:
        return [is_held]
    by_condition = {
        Condition.ANY: np.ones_like(is_label),
        Condition.EQUAL: is_label,
        Condition.DIFFERENT: ~is_label,
    }
    return [by_condition[Condition(str(each))] for each in metric.conditions]


def _open_rows(shares: Shares, judge: Judge, times: float) -> np.ndarray:
    """Labels and filters that are not sure to pass in a file so many times as large."""
    strict = replace(judge, gamma=judge.gamma * SURE)
    grown = _grown(shares, times)
    is_open = ~strict.passes(worst_pairs(grown, strict.gamma))
    is_open |= (shares.trials == 0).any(axis=-1)
    if not is_open.any():
        is_open[np.unravel_index(shares.losses.argmax(), is_open.shape)] = True
    return is_open


def _are_beyond(drawn: Shares, judge: Judge, n_cells: int) -> np.ndarray:
    """Which draws are beyond what is allowed; the error is shared by all cells."""
    metric = drawn.metric
    level = judge.gamma / 2 * drawn.trials[0].size / n_cells
    lower, upper = sure_bounds(drawn, level, cells=drawn.trials[0].size)
    losses = metric.loss(lower.max(axis=-1), upper.min(axis=-1))
    return losses.max(axis=-1) > judge.limit(metric)


def _are_within(drawn: Shares, judge: Judge) -> np.ndarray:
    """Which draws are within, by the two groups that look worst for every label."""
    has_all: np.ndarray = np.asarray((drawn.trials > 0).all(axis=(1, 2)))
    is_within: np.ndarray = np.zeros(has_all.shape, bool)
    if has_all.any():
        full = with_all_counts(drawn, lambda counts: counts[has_all])
        is_within[has_all] = judge.passes(worst_pairs(full, judge.gamma)).all(axis=-1)
    return is_within

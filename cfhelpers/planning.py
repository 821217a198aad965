"""Plan a calibration set: how many people, before there are any data.

The very test that the guarantee uses is asked how often it would accept one threshold, if
the best group is covered as stated and the others less by an expected gap. The answer is
the number of people from which on it accepts with the power asked for.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.stats import binom

from cfhelpers._checks import as_flag, as_fraction
from cfhelpers.cells import Shares
from cfhelpers.control import TOLERANCE
from cfhelpers.metrics import Condition, FairnessMetric, Quantity, get_metric

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SAMPLES = 3_000  # simulated samples, where sizes of cells are random too
DRAWS = 6_000  # simulated calibration sets, where there are too many counts to sum over
SEED = 0
MOST_PEOPLE = 10_000_000
STEP = 1.04  # sizes are tried in steps of four per cent, then one by one
NEXT_STAIRCASE = 2**0.25  # by this factor another staircase is chosen
MARGIN = 0.05  # with so much more than the power asked for, the search begins
MOST_PAIRS = 30_000  # of counts that are summed over; beyond them it is simulated
TAIL = 1e-5  # of the counts that are left out of a sum
FEW = 40  # points; smaller cells differ much from one random sample to the next
ONE_LABEL = "the label"  # where no labels are given


@dataclass(frozen=True)
class Plan:
    """How many people a calibration set needs. `str()` says it in words.

    Attributes
    ----------
    people : int
        From this number on the chance of passing is at least `power`.
    cells : DataFrame
        label, condition, group, coverage (assumed) and points of every cell.
    curve : DataFrame
        people, smallest_cell and power, from few people to many.
    closeness, gap, coverage, delta, power, metric
        What was asked for and assumed.
    """

    people: int
    cells: pd.DataFrame
    curve: pd.DataFrame
    metric: str
    closeness: float
    gap: float
    coverage: float
    delta: float
    power: float

    def __str__(self) -> str:
        smallest = self.cells.iloc[int(self.cells["points"].to_numpy().argmin())]
        where = str(smallest["group"])
        if smallest["label"] is not None:
            where += f", {smallest['label']}"
        return (
            f"{self.people:,} people: from there on a threshold with a true disparity of "
            f"{self.gap:g} passes {self.metric} within {self.closeness:g} with "
            f"probability at least {self.power:g} (delta {self.delta:g}). "
            f"The smallest cell, {where}, then has about {smallest['points']:,} points."
        )

    def plot(self) -> Figure:
        """The chance of passing by the number of people."""
        from cfhelpers import plots

        return plots.power_curve(self.curve, self.people, self.power)


def plan(
    closeness: float | None = None,
    groups: Mapping[Any, float] | Iterable[Any] | None = None,
    metric: str | FairnessMetric = "equal_opportunity",
    labels: Mapping[Any, float] | Iterable[Any] | None = None,
    delta: float = 0.1,
    gap: float | None = None,
    power: float = 0.8,
    *,
    coverage: float = 0.9,
    classwise: bool = False,
) -> Plan:
    """How many people a calibration set needs for a promise about closeness.

    Parameters
    ----------
    closeness : float, optional
        What will be promised: the largest difference, or the smallest ratio; by default
        .1, for ratios .8.
    groups : dict of name -> share of the people
        Shares sum to 1. A list of names: groups of the same size.
    metric : str
        One that compares coverages, or singletons.
    labels : dict of name -> share of the people, optional
        The labels whose coverage must be fair, and how many people have each. A list of
        names: labels of the same share. Without them one label is planned for, and only
        people who have it are counted.
    delta : float
        Of the promise.
    gap : float, optional
        The true disparity that is expected at the threshold; by default half of
        `closeness`, for ratios halfway between `closeness` and 1.
    power : float
        The chance that the test accepts the threshold.
    coverage : float
        Of the label in the largest group, whose coverage is taken to be the best; that of
        all other groups is less by `gap`. That is 1 - alpha by default.
    classwise : bool
        One threshold per label, which share `delta`.

    Returns
    -------
    Plan
        With people in all, points per cell, a curve, a plot and a sentence.

    Notes
    -----
    Exact for two groups of moderate size, and simulated with a fixed seed otherwise.
    Cells have as many points as their shares say; where one would have fewer than 40,
    its size is drawn at random, as in a random sample of people.
    Labels are taken to pass independently of each other. More people do not always help:
    where the test changes its staircase it may accept a little less often. So the answer
    is the number from which on the chance stays above `power`. It is about one threshold;
    the walk must also pass at every larger one, where coverages are higher.

    Examples
    --------
    >>> found = plan(0.1, {"men": 0.6, "women": 0.4}, "demographic_parity")
    >>> found.people
    1193
    >>> found.cells[["group", "points"]].to_numpy().tolist()
    [['men', 715], ['women', 477]]
    """
    chosen = _as_plannable(get_metric(metric))
    allowed = chosen.allowed(closeness)
    delta = as_fraction(delta, "delta")
    power = as_fraction(power, "power")
    coverage = as_fraction(coverage, "coverage", include_one=True)
    classwise = as_flag(classwise, "classwise") and chosen.per_label
    gap = _expected_gap(gap, allowed, coverage, chosen)
    group_shares = _as_shares(groups, "groups", least=2, is_whole=True)
    label_shares = None
    if labels is not None and chosen.per_label:
        label_shares = _as_shares(labels, "labels", least=1, is_whole=False)
    question = _Question(
        metric=chosen,
        limit=float(chosen.closeness(allowed)) + TOLERANCE,
        level=delta / len(label_shares or [None]) if classwise else delta,
        coverages=_coverages(group_shares, coverage, gap, chosen),
        families=_families(chosen, group_shares, label_shares),
    )
    people = _people_needed(question, power)
    return Plan(
        people=people,
        cells=_cell_table(question, group_shares, label_shares, people),
        curve=_curve(question, people),
        metric=chosen.name,
        closeness=allowed,
        gap=gap,
        coverage=coverage,
        delta=delta,
        power=power,
    )


@dataclass(frozen=True)
class _Question:
    """What is asked of the test: at these coverages and shares, does it accept?"""

    metric: FairnessMetric
    limit: float
    level: float
    coverages: tuple[float, ...]  # per group
    families: tuple[tuple[float, ...], ...]  # shares of the people, per cell

    def power(self, people: int) -> float:
        """The chance that all labels and conditions pass, with so many people."""
        chance = 1.0
        for shares in self.families:
            sizes = tuple(math.floor(share * people + 1e-9) for share in shares)
            test = (self.metric, self.coverages, self.level, self.limit)
            if min(sizes) < FEW:
                chance *= _chance_of_samples(people, shares, *test)
            else:
                chance *= _chance(sizes, *test)
        return chance

    def least_people(self) -> float:
        """With fewer the noise of one cell alone exceeds what gap and closeness leave."""
        room = self.limit - self.metric.loss(max(self.coverages), min(self.coverages))
        smallest = min(min(shares) for shares in self.families)
        variances = [p * (1 - p) for p in self.coverages]
        return min(variances) / float(room) ** 2 / smallest


@functools.lru_cache(maxsize=50_000)
def _chance_of_samples(
    people: int,
    shares: tuple[float, ...],
    metric: FairnessMetric,
    coverages: tuple[float, ...],
    level: float,
    limit: float,
) -> float:
    """The chance that the test accepts, where sizes of cells are as random as people."""
    rng = np.random.default_rng(SEED)
    others = max(1 - math.fsum(shares), 0.0)
    sizes = rng.multinomial(people, [*shares, others], SAMPLES)[:, :-1]
    hits = rng.binomial(sizes, coverages)
    is_whole = (sizes > 0).all(axis=1)
    return float((is_whole & _accepts(metric, hits, sizes, level, limit)).mean())


@functools.lru_cache(maxsize=50_000)
def _chance(
    sizes: tuple[int, ...],
    metric: FairnessMetric,
    coverages: tuple[float, ...],
    level: float,
    limit: float,
) -> float:
    """The chance that the test accepts cells of these sizes."""
    if len(sizes) == 2:
        ranges = [_likely_counts(n, p) for n, p in zip(sizes, coverages, strict=True)]
        if len(ranges[0]) * len(ranges[1]) <= MOST_PAIRS:
            return _exact_chance(metric, sizes, coverages, ranges, level, limit)
    rng = np.random.default_rng(SEED)
    hits = rng.binomial(sizes, coverages, (DRAWS, len(sizes)))
    return float(_accepts(metric, hits, sizes, level, limit).mean())


def _accepts(
    metric: FairnessMetric,
    hits: np.ndarray,
    sizes: ArrayLike,
    level: float,
    limit: float,
) -> np.ndarray:
    """Whether the guarantee's test accepts hits (rows, groups) of so many points."""
    trials = np.broadcast_to(sizes, hits.shape)
    names = list(range(hits.shape[1]))
    shares = Shares(metric, hits[:, None, None], trials[:, None, None], [1], names)
    return shares.test_losses(level)[:, 0, 0] <= limit


def _likely_counts(n: int, p: float) -> np.ndarray:
    """The counts of n points that are covered with probability p, but for the tails."""
    return np.arange(int(binom.ppf(TAIL, n, p)), int(binom.isf(TAIL, n, p)) + 1)


def _exact_chance(
    metric: FairnessMetric,
    sizes: tuple[int, ...],
    coverages: tuple[float, ...],
    ranges: list[np.ndarray],
    level: float,
    limit: float,
) -> float:
    """Summed over all pairs of likely counts of two groups."""
    first, second = np.meshgrid(*ranges, indexing="ij")
    hits = np.stack([first.ravel(), second.ravel()], axis=1)
    weights = np.prod(binom.pmf(hits, sizes, coverages), axis=1)
    return float(weights[_accepts(metric, hits, sizes, level, limit)].sum())


def _people_needed(question: _Question, power: float) -> int:
    """The number from which on the chance is at least the power asked for."""
    enough = 1
    hopeless = question.least_people() > MOST_PEOPLE
    while hopeless or question.power(enough) < power:
        enough *= 2
        if hopeless or enough > MOST_PEOPLE:
            raise ValueError(
                f"gap: so near to closeness, or a group or label so rare, that "
                f"{MOST_PEOPLE:,} people are not enough; wanted a smaller gap, a wider "
                "closeness, or larger shares"
            )
    # The chance may fall again where the test changes its staircase: begin well above.
    while question.power(enough) < min(power + MARGIN, (1 + power) / 2):
        enough = math.ceil(enough * NEXT_STAIRCASE)
    sizes = [enough]
    while sizes[-1] > 1 and question.power(sizes[-1]) >= power:
        sizes.append(min(math.floor(sizes[-1] / STEP), sizes[-1] - 1))
    fails = sizes[-1]
    passes = sizes[-2]  # the first of them passes
    while passes - fails > 1:
        middle = (passes + fails) // 2
        if question.power(middle) >= power:
            passes = middle
        else:
            fails = middle
    return passes


def _curve(question: _Question, people: int) -> pd.DataFrame:
    """The chance at sizes from a tenth of the answer to three times it."""
    sizes = np.unique(np.geomspace(max(people / 10, 2), 3 * people, 16).astype(int))
    smallest = min(min(shares) for shares in question.families)
    rows = []
    for size in np.unique([*sizes, people]).tolist():
        rows.append([size, math.floor(smallest * size + 1e-9), question.power(size)])
    return pd.DataFrame(rows, columns=["people", "smallest_cell", "power"])


def _cell_table(
    question: _Question,
    group_shares: dict[Any, float],
    label_shares: dict[Any, float] | None,
    people: int,
) -> pd.DataFrame:
    """Points of every cell when there are so many people."""
    labels: list[Any] = list(label_shares or [None])
    if label_shares is None and Condition.ANY not in question.metric.conditions:
        labels = [ONE_LABEL]
    conditions = [str(condition) for condition in question.metric.conditions]
    places = [(label, condition) for label in labels for condition in conditions]
    rows = []
    for (label, condition), shares in zip(places, question.families, strict=True):
        for place, name in enumerate(group_shares):
            points = math.floor(shares[place] * people + 1e-9)
            rows.append([label, condition, name, question.coverages[place], points])
    columns = ["label", "condition", "group", "coverage", "points"]
    return pd.DataFrame(rows, columns=columns)


def _families(
    metric: FairnessMetric,
    group_shares: dict[Any, float],
    label_shares: dict[Any, float] | None,
) -> tuple[tuple[float, ...], ...]:
    """Shares of the people in every cell, for each label and condition."""
    families = []
    for label_share in (label_shares or {None: 1.0}).values():
        for condition in metric.conditions:
            part = 1.0
            if condition == Condition.EQUAL:
                part = label_share
            elif condition == Condition.DIFFERENT and label_shares is not None:
                part = 1 - label_share
            if part <= 0:
                raise ValueError(
                    f"labels: found a share of {label_share:g}; {metric.name} needs "
                    "people without the label too"
                )
            families.append(tuple(part * share for share in group_shares.values()))
    return tuple(families)


def _coverages(
    group_shares: dict[Any, float], coverage: float, gap: float, metric: FairnessMetric
) -> tuple[float, ...]:
    """The largest group is covered best; the others less, by the gap or ratio."""
    other = coverage * gap if metric.is_ratio else coverage - gap
    best = max(group_shares, key=group_shares.__getitem__)
    return tuple(coverage if name == best else other for name in group_shares)


def _as_plannable(metric: FairnessMetric) -> FairnessMetric:
    """Metrics whose cells have a size that can be planned."""
    counted = (Quantity.COVERAGE, Quantity.TRUE_LABEL_COVERAGE)
    is_counted = metric.quantity in counted or metric.name == "singletons"
    if not metric.is_built_in or not is_counted:
        raise ValueError(
            f"metric: found {metric.name!r}; wanted one that compares coverages, such as "
            "'equal_opportunity'"
        )
    return metric


def _expected_gap(
    gap: float | None, closeness: float, coverage: float, metric: FairnessMetric
) -> float:
    """The true disparity that is expected, checked."""
    if metric.is_ratio:
        wanted = f"wanted a ratio above closeness, {closeness:g}, and up to 1"
        value = (closeness + 1) / 2 if gap is None else gap
        is_right = _is_number(value) and closeness < value <= 1
    else:
        wanted = f"wanted a difference from 0 to below closeness, {closeness:g}"
        value = closeness / 2 if gap is None else gap
        is_right = _is_number(value) and 0 <= value < closeness
    if not is_right:
        raise ValueError(f"gap: found {gap!r}; {wanted}")
    if not metric.is_ratio and value > coverage:
        raise ValueError(
            f"gap: found {value:g} with a coverage of {coverage:g}; the other groups "
            "would be covered less than never"
        )
    return float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _as_shares(values: Any, name: str, least: int, is_whole: bool) -> dict[Any, float]:
    """Shares of the people by name; a list of names stands for equal shares."""
    wanted = "wanted a dict of name -> share of the people"
    if values is None or isinstance(values, str | bytes):
        raise ValueError(f"{name}: found {values!r}; {wanted}")
    if not isinstance(values, Mapping | Iterable):
        raise ValueError(f"{name}: found {values!r}; {wanted}")
    if not isinstance(values, Mapping):
        names = list(values)
        if any(isinstance(each, list | dict | set) for each in names):
            raise ValueError(f"{name}: found {names!r}; {wanted}")
        shares = {each: 1 / len(names) for each in names}
        if len(shares) < len(names):
            raise ValueError(f"{name}: found {names}; wanted each name once")
    else:
        shares = dict(values)
    if len(shares) < least:
        raise ValueError(f"{name}: found {list(shares)}; wanted at least {least}")
    for each, share in shares.items():
        if not _is_number(share) or not 0 < share <= 1:
            raise ValueError(
                f"{name}: found {share!r} for {each!r}; wanted a share in (0, 1]"
            )
    total = math.fsum(shares.values())
    if is_whole and abs(total - 1) > 1e-6:
        raise ValueError(f"{name}: found shares that sum to {total:.4g}; wanted 1")
    if total > 1 + 1e-6:
        raise ValueError(
            f"{name}: found shares that sum to {total:.4g}; wanted at most 1"
        )
    return {each: float(share) for each, share in shares.items()}

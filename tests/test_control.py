"""`find_threshold` and `frontier` against brute force, on awkward calibration sets."""

import json
import math
import os
import re
import subprocess
import sys
import warnings
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np
import oracle
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from scipy.stats import binom

from cfhelpers import _sweep
from cfhelpers.conformal import coverage, efficiency, prediction_sets
from cfhelpers.control import (
    FairThreshold,
    default_grid,
    find_threshold,
    frontier,
    search,
)
from cfhelpers.fairness import METRICS, FairnessMetric

NAMES = sorted(set(oracle.FILTERS) - set(oracle.SIZES))  # sizes: test_sizes.py
# Cases per metric. The whole count, 2,000, was run once: CFHELPERS_CASES=2000 pytest …
CASES = int(os.environ.get("CFHELPERS_CASES", "200"))
# Generated values of c are below four fifths too, which a ratio warns of.
pytestmark = pytest.mark.filterwarnings("ignore:closeness:UserWarning")
GROUP_NAMES = {
    "str": ["north", "east", "south", "west"],
    "int": [7, -2, 40, 11],
    "bool": [True, False],
    "tuple": [("f", 1), ("m", 1), ("f", 2), ("m", 2)],
    "frame": [("f", 1), ("m", 1), ("f", 2), ("m", 2)],
    "mixed": [3, "three", (3, 3), 2.5],
}
MANY = {"many": [f"place {number}" for number in range(60)]}
OWN = {
    "everyone else": lambda y, g, a, label: g != a,
    "odd labels": lambda y, g, a, label: (g == a) & (y % 2 == 1),
    "a group and all of label 0": lambda y, g, a, label: (g == a) | (y == 0),
    "nobody": lambda y, g, a, label: (g == a) & (y < 0),
}


@pytest.fixture(autouse=True)
def own_page(monkeypatch):
    """Puts the search's page, and which sort it takes, back when a test is over."""
    monkeypatch.setattr(_sweep, "PAGE", _sweep.PAGE)
    monkeypatch.setattr(_sweep, "FEW_NUMBERS", _sweep.FEW_NUMBERS)


@dataclass(frozen=True)
class Case:
    scores: np.ndarray
    y: np.ndarray
    g: np.ndarray
    kind: str
    alpha: float
    closeness: float
    positive_labels: list | None
    delta: float
    grid: list | None
    page: int  # records that the search notes at a time
    names: list = field(repr=False)

    @property
    def positive(self):
        return (
            list(range(1, self.scores.shape[1]))
            if self.positive_labels is None
            else self.positive_labels
        )

    @cached_property
    def groups(self):
        names = [self.names[a] for a in self.g]
        if self.kind == "frame":
            return pd.DataFrame(names, columns=["sex", "region"])
        return np.array(names) if self.kind in ("str", "int", "bool") else names


@st.composite
def cases(
    draw,
    metric,
    sizes=(1, 25),
    classes=(1, 4),
    max_groups=4,
    grid_points=(1, 12),
    deltas=(0.1, 0.3, 0.5, 0.9),
    kinds=tuple(GROUP_NAMES),
    extremes=("none",),
):
    """A calibration set: sizes are drawn so that they shrink, NumPy fills the arrays."""
    n = draw(st.integers(*sizes))
    n_classes = draw(st.integers(*classes))
    kind = draw(st.sampled_from(kinds))
    names = (GROUP_NAMES | MANY)[kind]
    n_groups = draw(st.integers(1, min(max_groups, len(names))))
    extreme = draw(st.sampled_from(extremes))
    lattice = draw(st.sampled_from([0, 1, 2, 8]))
    above_one = draw(st.booleans())
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    alpha = draw(st.sampled_from([0.1, 0.2, 0.3, 0.5, 0.75, 0.05, 0.333]))
    exact = draw(st.integers(0, 3)) > 0
    occurring = draw(st.integers(1, n_classes))
    chosen = n_classes == 1 or draw(st.booleans())
    page = draw(st.sampled_from([1, 2, 3, 7, 4096]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    y = rng.choice(rng.permutation(n_classes)[:occurring], n)
    g = rng.choice(n_groups, n, p=rng.dirichlet(np.full(n_groups, rng.choice([1, 20]))))
    _, g = np.unique(g, return_inverse=True)
    # Groups differ in level and the true label scores lower, as with a model that has
    # learnt something.
    scores = (
        rng.random((n, n_classes))
        + 0.4 * rng.random((n_groups, n_classes))[g]
        - 0.4 * np.eye(n_classes)[y]
    )
    scores = np.clip(scores, 0, None) if above_one else np.clip(scores, 0, 1)
    if lattice:
        scores = np.round(scores * lattice) / lattice
    scores = at_an_extreme(scores.astype(dtype), extreme, rng)
    positive = (
        sorted(
            rng.choice(n_classes, rng.integers(1, n_classes + 1), replace=False).tolist()
        )
        if chosen
        else None
    )
    delta = float(rng.choice(deltas))
    if scores.min() >= 0 and scores.max() <= 1 and rng.random() < 0.06:
        grid = None
    else:
        points = int(rng.integers(*grid_points, endpoint=True))
        grid = [
            *rng.choice(scores.ravel(), points // 2).astype(float),
            *rng.random(points - points // 2) * 1.6,
        ]
        grid += [float(scores.max())] * int(rng.integers(0, 3)) + [math.inf] * int(
            rng.integers(0, 2)
        )
    closeness = float(rng.choice([0.05, 0.1, 0.2, 0.5, 0.8, 1.0]))
    if exact:  # a gap that this very case attains, rounded once from the exact quotient
        label = int(
            rng.choice(list(range(1, n_classes)) if positive is None else positive)
        )
        level = delta if rng.random() < 0.3 else None
        gaps = oracle.unfairness(
            metric, scores.astype(float), y, g, label, np.unique(scores[:, label]), level
        )
        gap = abs(float(gaps.min() if rng.random() < 0.5 else rng.choice(gaps)))
        if level is None and math.isfinite(gap):
            gap = float(Fraction(gap).limit_denominator((n + 1) ** 2))
        closeness = gap if 0 < gap <= 1 else closeness
    return Case(
        scores,
        y,
        g,
        kind,
        alpha,
        closeness,
        positive,
        delta,
        grid,
        page,
        names,
    )


EXTREMES = ("subnormal", "huge", "signed zeros", "far apart", "integers")


def at_an_extreme(scores, extreme, rng):
    """The scores moved to where floating point is awkward, ties included."""
    limits = np.finfo(scores.dtype)
    if extreme == "subnormal":
        return np.round(scores * 16) * limits.smallest_subnormal
    if extreme == "huge":
        return scores * (limits.max / 2)
    if extreme == "signed zeros":
        few = np.round(scores * 2) / 2
        return np.where(rng.random(scores.shape) < 0.5, -few, few).astype(scores.dtype)
    if extreme == "far apart":
        powers = rng.integers(limits.minexp, limits.maxexp - 1, scores.shape[1])
        return np.ldexp(scores, powers).astype(scores.dtype)
    if extreme == "integers":
        return np.round(scores * 4).astype(np.int64)
    return scores


def arguments(case, classwise, guarantee):
    """Arguments of search and oracle; sets what must not matter: the page, the sort."""
    _sweep.PAGE = case.page
    _sweep.FEW_NUMBERS = 1000 * (case.page % 2)
    keywords = {
        "alpha": case.alpha,
        "classwise": classwise,
        "positive_labels": case.positive_labels,
    }
    if guarantee:
        keywords |= {
            "guarantee": "fixed-sequence",
            "delta": case.delta,
            "grid": case.grid,
        }
    return keywords


def answers(case, theirs, metric, classwise, guarantee):
    found = find_threshold(
        case.scores,
        case.y,
        case.groups,
        theirs,
        case.closeness,
        **arguments(case, classwise, guarantee),
    )
    wanted = brute_force(case, metric, case.closeness, classwise, guarantee)
    return found, wanted


def test_no_closeness_is_told_where_no_finite_threshold_reaches_any():
    """In one group the label is in no set at any finite point of the grid."""
    scores = np.array([[0.6, 0.3], [0.4, 1.0], [0.0, 0.1]])
    groups = np.array(["a", "b", "a"])
    found = find_threshold(
        scores,
        np.zeros(3, int),
        groups,
        "predictive_parity",
        0.8,
        alpha=0.3,
        guarantee="fixed-sequence",
        grid=[0.1, 0.9],
    )
    assert math.isfinite(found.base_threshold)
    assert math.isnan(found.smallest_closeness)
    assert "closest" not in str(found)


def brute_force(case, metric, closeness, classwise, guarantee):
    return oracle.search(
        case.scores,
        case.y,
        case.g,
        metric,
        closeness,
        alpha=case.alpha,
        classwise=classwise,
        positive_labels=case.positive,
        guarantee=guarantee,
        delta=case.delta,
        grid=case.grid,
    )


def assert_equal(found, wanted):
    assert found.threshold.dtype == np.float64
    assert found.threshold.tolist() == wanted.threshold.tolist()
    assert found.base_threshold == wanted.base_threshold
    assert (bool(found.feasible), bool(found.satisfied)) == (
        wanted.feasible,
        wanted.satisfied,
    )
    np.testing.assert_allclose(found.bound, wanted.bound, rtol=0, atol=1e-9)
    np.testing.assert_allclose(
        found.smallest_closeness, wanted.smallest_closeness, rtol=0, atol=1e-9
    )


def tally_of(case, metric, wanted, tally, name):
    """Count what the answer shows: every sort of case must occur."""
    chosen = [wanted.threshold[label] for label in case.positive]
    tally[name] += 1
    tally[f"{name} base"] += any(t == wanted.base_threshold < math.inf for t in chosen)
    tally[f"{name} between"] += any(wanted.base_threshold < t < math.inf for t in chosen)
    tally[f"{name} infinite"] += any(t == math.inf for t in chosen)
    tally[f"{name} equal"] += bool((np.abs(wanted.bound - case.closeness) < 1e-9).any())
    tally[f"{name} unsatisfied"] += not wanted.satisfied
    tally[f"{name} no quantile"] += math.isinf(wanted.base_threshold)


def compare(strategy, metric, theirs, examples, combinations):
    """Run the search and the oracle on every drawn case and return the tally."""
    tally = Counter()

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy)
    def run(case):
        for classwise, guarantee in combinations:
            note(f"classwise={classwise}, guarantee={guarantee}")
            found, wanted = answers(case, theirs, metric, classwise, guarantee)
            assert_equal(found, wanted)
            tally_of(case, metric, wanted, tally, "guarantee" if guarantee else "plain")
        tally["cases"] += 1
        tally["one point"] += len(case.y) == 1
        tally["one group"] += case.g.max() == 0
        tally["one class"] += case.scores.shape[1] == 1
        tally["label never occurs"] += any(label not in case.y for label in case.positive)
        tally["above one"] += case.scores.max() > 1
        tally["float32"] += case.scores.dtype == np.float32
        tally["default grid"] += case.grid is None
        tally["many pages"] += case.page <= 3
        tally["ties"] += len(np.unique(case.scores)) < case.scores.size

    run()
    return tally


EVERY = [
    (classwise, guarantee) for classwise in (False, True) for guarantee in (False, True)
]


@pytest.mark.parametrize("name", NAMES)
def test_search_finds_the_smallest_passing_threshold(name):
    metric = oracle.metric(name)
    tally = compare(cases(metric), metric, name, CASES, EVERY)
    assert tally["cases"] >= CASES
    for sort in (
        "one point",
        "one group",
        "one class",
        "label never occurs",
        "above one",
        "float32",
        "ties",
        "many pages",
    ):
        assert tally[sort] >= CASES / 50, (sort, tally)
    for sort in ("base", "infinite", "equal", "no quantile"):
        assert tally[f"plain {sort}"] >= CASES / 20, (sort, tally)
    assert tally["plain between"] >= CASES / 200, tally
    assert tally["guarantee infinite"] >= CASES / 20, tally
    assert tally["default grid"] >= CASES / 100, tally
    if name == "predictive_parity":
        unsatisfied = min(tally["plain unsatisfied"], tally["guarantee unsatisfied"])
        assert unsatisfied >= CASES / 20, tally
    else:
        assert tally["plain unsatisfied"] == tally["guarantee unsatisfied"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_guarantee_stops_at_the_first_rejection_on_larger_sets(name):
    metric = oracle.metric(name)
    strategy = cases(metric, (40, 200), (2, 3), 3, (12, 40), (0.1, 0.2, 0.3, 0.5))
    tally = compare(strategy, metric, name, 120, [(False, True), (True, True)])
    finite = tally["guarantee base"] + tally["guarantee between"]
    assert (
        finite >= 24
        and tally["guarantee between"] >= 16
        and tally["guarantee infinite"] >= 16
    ), tally


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [False, True], ids=["difference", "ratio"])
@pytest.mark.parametrize("name", sorted(OWN))
def test_search_serves_the_users_own_metric(name, ratio):
    metric = oracle.Metric(name, OWN[name], ratio)
    theirs = FairnessMetric(name, OWN[name], compare="ratio" if ratio else "difference")
    kinds = tuple(kind for kind in GROUP_NAMES if kind != "mixed")
    tally = compare(cases(metric, kinds=kinds), metric, theirs, 100, EVERY)
    if name != "nobody":
        assert tally["plain base"] + tally["plain between"] >= 7, tally


def look_up(curve, closeness, sign):
    """The threshold that a frontier gives for one closeness."""
    reached, thresholds = curve
    passing = sign * reached <= sign * closeness + oracle.TOLERANCE
    return thresholds[passing.argmax()] if passing.any() else math.inf


def curves_of(table):
    """Closeness and threshold as arrays, for every label that a frontier tells apart."""
    parts = dict(tuple(table.groupby("label"))) if "label" in table else {None: table}
    return {
        label: (rows["closeness"].to_numpy(), rows["threshold"].to_numpy())
        for label, rows in parts.items()
    }


def thresholds_at(curves, closeness, sign, base, n_classes):
    """All K thresholds that the curves of a frontier give for one closeness."""
    thresholds = np.full(n_classes, base)
    for label, curve in curves.items():
        places = slice(None) if label is None else label
        thresholds[places] = look_up(curve, closeness, sign)
    return thresholds


def frontier_rows_that_hold(case, metric, theirs, classwise, guarantee):
    """How many rows a frontier has, each of which is the answer for its closeness."""
    keywords = arguments(case, classwise, guarantee)
    data = (case.scores, case.y, case.groups, theirs)
    table = frontier(*data, **keywords)
    base = oracle.quantile(case.scores[np.arange(len(case.y)), case.y], case.alpha)
    n_classes = case.scores.shape[1]
    split = classwise and metric.name not in oracle.WHOLE
    wanted_columns = ["closeness", "threshold", "mean_set_size", "coverage"]
    assert table.columns.tolist() == ["label"] * split + wanted_columns
    curves = curves_of(table)
    assert not split or sorted(curves) == case.positive
    for reached, thresholds in curves.values():
        assert (np.diff(thresholds) > 0).all()
        assert (np.diff(metric.sign * reached) < 0).all()
        assert thresholds[0] >= base
    finished = search(*data, **keywords)
    own = find_threshold(*data, case.closeness, **keywords)
    assert own.threshold.tolist() == finished.find(case.closeness).threshold.tolist()
    several = table["closeness"].sample(min(4, len(table)), random_state=0).tolist()
    for closeness in {0.03, 0.1, 0.25, 0.5, 0.8, 1.0, case.closeness, *several}:
        if 0 < closeness <= 1:
            found = finished.find(closeness)
            looked_up = thresholds_at(curves, closeness, metric.sign, base, n_classes)
            assert looked_up.tolist() == found.threshold.tolist(), closeness
    for row in table.itertuples():
        thresholds = thresholds_at(curves, row.closeness, metric.sign, base, n_classes)
        sets = prediction_sets(case.scores, thresholds)
        assert row.mean_set_size == pytest.approx(efficiency(sets), abs=1e-9)
        assert row.coverage == pytest.approx(coverage(sets, case.y), abs=1e-9)
    return max(len(reached) for reached, _ in curves.values())


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", [False, True], ids=["plain", "guarantee"])
@pytest.mark.parametrize("name", [*NAMES, *sorted(OWN)])
def test_frontier_holds_the_answer_for_every_closeness(name, guarantee):
    metric = (
        oracle.Metric(name, OWN[name], name == "odd labels")
        if name in OWN
        else oracle.metric(name)
    )
    theirs = (
        FairnessMetric(name, OWN[name], compare="ratio" if metric.ratio else "difference")
        if name in OWN
        else name
    )
    sizes = {"sizes": (1, 60), "deltas": (0.3, 0.5, 0.9)} if guarantee else {}
    tally = Counter()

    @settings(
        max_examples=40,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases(metric, **sizes))
    def run(case):
        for classwise in (False, True):
            n_rows = frontier_rows_that_hold(case, metric, theirs, classwise, guarantee)
            tally["rows"] = max(tally["rows"], n_rows)

    run()
    assert tally["rows"] >= (1 if name == "nobody" else 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(NAMES) - set(oracle.PREDICTIVE)))
def test_blocking_cells_are_those_too_small_at_full_coverage(name):
    metric, tally = oracle.metric(name), Counter()

    @settings(
        max_examples=300,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases(metric))
    def run(case):
        for classwise, guarantee in EVERY:
            found, _ = answers(case, name, metric, classwise, guarantee)
            share = len(case.positive) if classwise and name != oracle.OVERALL else 1
            delta = case.delta / share if guarantee else None
            cells = oracle.blocking_cells(
                metric, case.y, case.g, case.positive, case.closeness, delta
            )
            wanted = [(case.names[a], label, n) for a, label, n in cells]
            assert Counter(found.blocking_cells) == Counter(wanted)
            tally[guarantee, bool(wanted)] += 1

    run()
    assert (
        min(
            tally[guarantee, blocked]
            for guarantee in (False, True)
            for blocked in (False, True)
        )
        >= 20
    ), tally


@settings(max_examples=100, deadline=None, derandomize=True)
@given(n=st.integers(1, 200), share=st.floats(0, 1), level=st.floats(0.001, 0.4))
def test_clopper_pearson_bounds_invert_the_binomial_tails(n, share, level):
    k = round(share * n)
    low, high = (bounds[k] for bounds in oracle.clopper_pearson(n, level))
    if k > 0:
        assert binom.sf(k - 1, n, low) == pytest.approx(level, rel=1e-6)
    if k < n:
        assert binom.cdf(k, n, high) == pytest.approx(level, rel=1e-6)


def two_groups(n, score=0.3):
    """n points in each of two groups, all labels scored alike."""
    return np.full((2 * n, 2), score), np.tile([0, 1], n), np.repeat(["a", "b"], n)


@pytest.mark.parametrize(
    "closeness, needed", [(0.05, 50), (0.10, 24), (0.15, 16), (0.20, 12)]
)
def test_guarantee_needs_the_stated_number_of_points_in_every_cell(closeness, needed):
    search = {"alpha": 0.1, "guarantee": "fixed-sequence", "delta": 0.1}
    enough = find_threshold(
        *two_groups(needed), "demographic_parity", closeness, **search
    )
    assert enough.feasible and len(enough.blocking_cells) == 0
    assert 0.3 <= enough.threshold[0] < 0.3002
    few = find_threshold(
        *two_groups(needed - 1), "demographic_parity", closeness, **search
    )
    assert not few.feasible and few.satisfied
    assert sorted(few.blocking_cells) == [("a", 1, needed - 1), ("b", 1, needed - 1)]
    assert few.points_needed == needed
    assert closeness < few.smallest_closeness < closeness * 1.1
    assert find_threshold(
        *two_groups(needed - 1), "demographic_parity", few.smallest_closeness, **search
    ).feasible


def test_guarantee_for_a_ratio_needs_its_own_number_of_points():
    for n, feasible in ((12, True), (11, False)):
        result = find_threshold(
            *two_groups(n), "disparate_impact", 0.8, guarantee="fixed-sequence", delta=0.1
        )
        assert result.feasible == feasible


def test_guarantee_splits_delta_over_labels_when_classwise():
    for n, feasible in ((31, True), (28, False)):
        scores, y, groups = two_groups(n)
        search = {
            "classwise": True,
            "positive_labels": [0, 1],
            "guarantee": "fixed-sequence",
            "delta": 0.1,
        }
        assert (
            find_threshold(
                scores, y, groups, "demographic_parity", 0.1, **search
            ).feasible
            == feasible
        )
        assert find_threshold(
            scores, y, groups, "demographic_parity", 0.1, **search | {"classwise": False}
        ).feasible


def test_guarantee_never_returns_a_threshold_it_did_not_test():
    scores, y, groups = two_groups(200)
    result = find_threshold(
        scores,
        y,
        groups,
        "demographic_parity",
        0.2,
        guarantee="fixed-sequence",
        grid=[0.9, 0.1, 0.35, 0.9],
    )
    assert (result.base_threshold, result.threshold.tolist()) == (0.3, [0.35, 0.35])


def test_guarantee_without_a_grid_walks_even_and_crowding_steps():
    """Even steps of 1/600 below, and ever smaller ones where scores crowd towards 1."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 4000)
    groups = rng.integers(0, 2, 4000)
    for scores, step in (
        (rng.random((4000, 2)), 1 / 600),
        (1 - rng.random((4000, 2)) / 1e3, 2e-6),
    ):
        result = find_threshold(
            scores, y, groups, "demographic_parity", 0.1, guarantee="fixed-sequence"
        )
        assert result.threshold[0] in default_grid()
        assert 0 <= result.threshold[0] - result.base_threshold < step


def test_one_by_hand():
    """Group a has 3 points with scores .1 .2 .6, group b 4 with .1 .3 .4 .5."""
    scores = np.array([[0, s] for s in (0.1, 0.2, 0.6, 0.1, 0.3, 0.4, 0.5)])
    y, groups = [1, 0, 0, 1, 0, 0, 0], list("aaabbbb")
    # True-label scores: .1 0 0 .1 0 0 0; k = ceil(8 * .5) = 4, so the base threshold is
    # 0.
    gaps = {
        0.0: 1 / 4 - 0,
        0.1: 2 / 4 - 1 / 5,
        0.2: 3 / 4 - 1 / 5,
        0.3: 3 / 4 - 2 / 5,
        0.4: 4 / 5 - 2 / 4,
        0.5: 1 - 2 / 4,
    }
    gaps |= {0.6: 1 - 3 / 4}
    for closeness, threshold in ((0.25, 0.0), (0.3, 0.0), (0.24, math.inf)):
        result = find_threshold(
            scores, y, groups, "demographic_parity", closeness, alpha=0.5
        )
        assert result.base_threshold == 0
        assert result.threshold.tolist() == [threshold] * 2
        assert result.smallest_closeness == pytest.approx(min(gaps.values()))
    result = find_threshold(scores, y, groups, "demographic_parity", 0.3, alpha=0.25)
    # k = ceil(8 * .75) = 6: the base threshold is .1, where the gap is exactly .3.
    assert (result.base_threshold, result.threshold[1]) == (0.1, 0.1)
    assert result.bound[1] == pytest.approx(gaps[0.1]) and math.isnan(result.bound[0])
    result = find_threshold(
        scores, y, groups, "demographic_parity", 0.29, alpha=0.25, classwise=True
    )
    assert result.threshold.tolist() == [0.1, 0.6]


def test_plain_predictive_parity_can_fail_at_infinity_and_its_proxy_cannot():
    y = np.repeat([1, 0, 1, 0], [90, 10, 10, 90])
    groups = np.repeat(["a", "b"], 100)
    scores = np.random.default_rng(0).random((200, 2))
    for guarantee in ("none", "fixed-sequence"):
        plain = find_threshold(
            scores, y, groups, "predictive_parity", 0.2, guarantee=guarantee
        )
        assert not plain.satisfied and not plain.feasible
        assert plain.threshold.tolist() == [math.inf] * 2
        assert plain.bound[1] > 0.75
        proxy = find_threshold(
            scores, y, groups, "predictive_parity_proxy", 0.2, guarantee=guarantee
        )
        assert proxy.satisfied
        if not proxy.feasible:
            assert proxy.bound[1] == 0


def test_closeness_defaults_to_a_tenth_and_four_fifths():
    rng = np.random.default_rng(1)
    scores, y, groups = (
        rng.random((300, 3)),
        rng.integers(0, 3, 300),
        rng.integers(0, 3, 300),
    )
    for name in NAMES:
        closeness = 0.8 if name == "disparate_impact" else 0.1
        given_none = find_threshold(scores, y, groups, name, None)
        assert (
            given_none.threshold.tolist()
            == find_threshold(scores, y, groups, name, closeness).threshold.tolist()
        )


@pytest.mark.parametrize("guarantee", ["none", "fixed-sequence"])
@pytest.mark.parametrize("name", NAMES)
def test_answer_does_not_depend_on_the_order_of_points_or_the_names_of_groups(
    name, guarantee
):
    rng = np.random.default_rng(2)
    scores, y, g = (
        rng.random((400, 3)).astype(np.float32),
        rng.integers(0, 3, 400),
        rng.integers(0, 4, 400),
    )
    search = {"classwise": True, "guarantee": guarantee, "delta": 0.5}
    wanted = find_threshold(scores, y, g, name, 0.3, **search)
    order = rng.permutation(400)
    names = [("x", 1), ("y", 1), ("x", 2), ("y", 2)]
    frame = pd.DataFrame([names[a] for a in g], columns=["first", "second"])
    for groups in (
        [names[a] for a in g],
        frame,
        frame.astype("category"),
        np.array(list("dbca"))[g],
        pd.Series(-g),
    ):
        found = find_threshold(scores, y, groups, name, 0.3, **search)
        assert found.threshold.tolist() == wanted.threshold.tolist()
        np.testing.assert_allclose(found.bound, wanted.bound, atol=1e-12)
    found = find_threshold(
        scores[order], y[order], g[order], METRICS[name], 0.3, **search
    )
    assert found.threshold.tolist() == wanted.threshold.tolist()


def test_blocking_cells_name_intersections_by_their_values():
    frame = pd.DataFrame(
        {"sex": ["f"] * 40 + ["m"] * 41, "region": ["north"] * 80 + ["south"]}
    )
    y = np.arange(81) % 2
    result = find_threshold(np.full((81, 2), 0.5), y, frame, "equal_opportunity", 0.1)
    assert not result.feasible
    assert list(result.blocking_cells) == [(("m", "south"), 1, 0)]


def test_own_filter_sees_the_names_of_groups():
    rng = np.random.default_rng(3)
    scores, y, groups = (
        rng.random((60, 2)),
        rng.integers(0, 2, 60),
        np.array(["old", "young"])[rng.integers(0, 2, 60)],
    )
    seen = []

    def older_or_all(y, g, a, label):
        seen.append(a)
        return np.asarray(g == "old") if a == "old" else np.ones(len(y), bool)

    result = find_threshold(
        scores, y, groups, FairnessMetric("older against all", older_or_all), 0.3
    )
    metric = oracle.Metric("own", lambda y, g, a, label: (g == 0) | (a == 1))
    wanted = oracle.search(
        scores,
        y,
        groups == "young",
        metric,
        0.3,
        alpha=0.1,
        classwise=False,
        positive_labels=[1],
        guarantee=False,
    )
    assert set(seen) == {"old", "young"}
    assert result.threshold.tolist() == wanted.threshold.tolist()


def test_own_filter_tells_names_of_mixed_type_apart():
    rng = np.random.default_rng(5)
    scores, y, g = rng.random((60, 2)), rng.integers(0, 2, 60), rng.integers(0, 2, 60)
    own = FairnessMetric("parity", lambda y, g, a, label: g == a)
    wanted = find_threshold(scores, y, g, "demographic_parity", 0.3)
    assert wanted.feasible
    found = find_threshold(scores, y, [[3, "three"][a] for a in g], own, 0.3)
    assert found.threshold.tolist() == wanted.threshold.tolist()


@pytest.mark.parametrize("name", oracle.PREDICTIVE)
def test_thresholds_that_cover_nobody_do_not_warn(name):
    scores = [[0.3, 0.9], [0.6, 1.0], [0.0, 1.0], [0.0, 1.0]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        find_threshold(scores, [0, 0, 0, 0], list("aaaa"), name, 0.2, alpha=0.2)


def test_lists_frames_and_tensors_give_the_same_threshold():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(4)
    scores, y, g = rng.random((80, 3)), rng.integers(0, 3, 80), rng.integers(0, 2, 80)
    wanted = find_threshold(scores, y, g, "demographic_parity", 0.2).threshold
    for convert in (np.ndarray.tolist, torch.tensor):
        assert np.array_equal(
            find_threshold(
                convert(scores), convert(y), convert(g), "demographic_parity", 0.2
            ).threshold,
            wanted,
        )
    found = find_threshold(
        pd.DataFrame(scores), pd.Series(y), pd.Series(g), "demographic_parity", 0.2
    )
    assert np.array_equal(found.threshold, wanted)


LOOPS = (_sweep.collect, _sweep.sort_by_digits, _sweep.sweep)  # as they stand


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_loop_as_it_stands_gives_what_the_compiled_one_gives(name, monkeypatch):
    """Where Numba is absent the very same functions run uncompiled."""
    monkeypatch.setattr(_sweep, "compiled", lambda: LOOPS)
    metric = oracle.metric(name)
    few = max(10, CASES // 10)
    tally = compare(cases(metric), metric, name, few, [(False, False), (True, False)])
    assert tally["cases"] >= few and tally["plain"] >= 2 * few


@pytest.mark.slow
def test_without_numba_the_search_runs_uncompiled_and_gives_the_same():
    code = """
import sys
if sys.argv[1] == "without":
    sys.modules["numba"] = None
import numpy as np
from cfhelpers import _sweep
from cfhelpers.control import default_grid, find_threshold, frontier
rng = np.random.default_rng(0)
scores = rng.random((300, 3)).astype(np.float32)
y = rng.integers(0, 3, 300)
groups = rng.integers(0, 3, 300)
for metric in ("demographic_parity", "equalized_odds", "predictive_parity_proxy"):
    table = frontier(scores, y, groups, metric, classwise=True)
    print(table.to_numpy().tolist())
print(_sweep.compiled()[2] is _sweep.sweep, file=sys.stderr)
"""
    printed = {}
    for how in ("with", "without"):
        done = subprocess.run(
            [sys.executable, "-c", code, how], capture_output=True, text=True, check=True
        )
        assert done.stderr.strip() == str(how == "without")
        printed[how] = done.stdout
    assert printed["with"] == printed["without"] and len(printed["with"]) > 1000


FOUND = {
    "plain": {},
    "no finite threshold": {"classwise": True, "guarantee": "fixed-sequence"},
    "two metrics": {"metric": ("equal_opportunity", "set_size"), "closeness": 0.3},
    "weights": {"sample_weight": np.linspace(0.5, 1.5, 60)},
}


@pytest.mark.parametrize("options", FOUND.values(), ids=FOUND)
def test_what_was_found_is_the_same_after_json(options):
    rng = np.random.default_rng(5)
    groups = pd.MultiIndex.from_product([["a", "b"], [1, 2]]).repeat(15)
    options = {"metric": "equal_opportunity", "closeness": 0.2} | options
    labels = rng.integers(0, 3, 60)
    found = find_threshold(rng.random((60, 3)), labels, groups.to_frame(), **options)
    written = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    restored = FairThreshold.from_dict(written)
    assert str(restored) == str(found)
    for name, value in vars(found).items():
        if name == "bounds":
            np.testing.assert_equal(restored.bounds, value)
        else:
            np.testing.assert_equal(getattr(restored, name), value)
    assert restored.threshold.dtype == np.float64
    assert json.loads(json.dumps(restored.to_dict())) == written


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"threshold": [0.5, None, 0.5]}, "a threshold that is no number"),
        ({"threshold": "0.5"}, "'0.5' for 'threshold'; wanted a list of numbers"),
        ({"bound": [0.1]}, "wanted a number, or null, for each threshold"),
        ({"blocking_cells": [["a", 1]]}, "it is not whole"),
        ({"class": "Monitor"}, "wanted what FairThreshold.to_dict gives"),
        ({"points_needed": -1}, "-1 for 'points_needed'"),
    ],
)
def test_a_spoilt_result_is_refused_in_words(change, message):
    scores = np.random.default_rng(0).random((60, 3))
    found = find_threshold(scores, [0, 1, 2] * 20, ["a", "b"] * 30, "equal_opportunity")
    with pytest.raises(ValueError, match=re.escape(message)):
        FairThreshold.from_dict(found.to_dict() | change)
    with pytest.raises(ValueError, match="found no 'metric'"):
        cut = found.to_dict()
        del cut["metric"]
        FairThreshold.from_dict(cut)


def test_scores_below_the_default_grid_ask_for_one():
    scores = np.random.default_rng(0).random((400, 2)) - 5
    asked = (scores, [0, 1] * 200, ["a"] * 200 + ["b"] * 200, "demographic_parity")
    with pytest.raises(ValueError, match=r"q̂ is -4\.\d+; the default grid begins at 0"):
        find_threshold(*asked, guarantee="fixed-sequence")
    grid = np.linspace(-5, -4, 101)
    found = find_threshold(*asked, closeness=0.3, guarantee="fixed-sequence", grid=grid)
    assert np.all(found.threshold < -4)

"""The search: brute force on many awkward calibration sets, and what must always hold."""

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import oracle
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stress_counts import cases as count
from test_control import (
    EXTREMES,
    Case,
    arguments,
    cases,
    compare,
    frontier_rows_that_hold,
    own_page,
)

from cfhelpers.conformal import coverage, prediction_sets
from cfhelpers.control import find_threshold, search

pytestmark = pytest.mark.filterwarnings("ignore:closeness:UserWarning")

__all__ = ["own_page"]  # a fixture that every test here uses

NAMES = sorted(oracle.FILTERS)
RULES = {"the paper's rule": False, "the guarantee": True}
SHARE = 0.1  # of the count, for what needs no brute force
CLOSENESS = (0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 0.8, 0.95, 1.0)
GAP = 1e-9


def sets_of_all_kinds(metric):
    """Small and awkward, with extreme scores; few with many groups or classes."""
    extremes = {"sizes": (1, 40), "extremes": EXTREMES}
    groups = {"sizes": (100, 240), "max_groups": 60, "kinds": ("many",)}
    classes = {"sizes": (1, 20), "classes": (2, 200), "max_groups": 3}
    kinds = [
        cases(metric),
        cases(metric, **extremes),
        cases(metric, **groups, classes=(2, 3), grid_points=(1, 4)),
        cases(metric, **classes, grid_points=(1, 4)),
    ]
    # A case with many classes takes as long as twenty small ones.
    every_thirty = [0] * 17 + [1] * 11 + [2, 3]
    return st.sampled_from(every_thirty).flatmap(kinds.__getitem__)


def ways_of(name):
    """(classwise, guarantee) that can be asked for."""
    classwise = (False,) if name in oracle.SIZES else (False, True)
    return [(split, rule) for split in classwise for rule in (False, True)]


def for_every_case(metric, n, check):
    """Call `check` with n cases, always the same ones."""

    @settings(
        max_examples=n,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=sets_of_all_kinds(metric))
    def run(case):
        check(case)

    run()


def found_by(case, name, way, **changes):
    """The finished search of a case, with some of its arguments changed."""
    given_ = {"scores": case.scores, "y": case.y, "groups": case.groups}
    given_ |= arguments(case, *way) | changes
    return search(
        given_.pop("scores"), given_.pop("y"), given_.pop("groups"), name, **given_
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_search_is_brute_force(name, ran):
    n = count(8)
    metric = oracle.metric(name)
    tally = compare(sets_of_all_kinds(metric), metric, name, n, ways_of(name))
    ran(tally["cases"], "calibration sets")
    assert tally["cases"] >= n
    if n >= 500:
        wanted = ["one point", "one group", "one class", "label never occurs", "ties"]
        wanted += ["float32", "many pages", "default grid", "above one"]
        wanted += ["plain base", "plain between", "plain infinite", "guarantee infinite"]
        for sort in wanted:
            assert tally[sort] >= n / 500, (sort, tally)


@pytest.mark.parametrize("name", NAMES)
def test_a_looser_c_never_gives_a_larger_threshold(name, ran):
    metric = oracle.metric(name)
    seen = Counter()

    def check(case):
        for way in ways_of(name):
            finished = found_by(case, name, way)
            loose_to_tight = sorted(CLOSENESS, reverse=not metric.ratio)
            limits = [metric.sign * c for c in loose_to_tight]
            thresholds = []
            for limit in limits:
                own = [curve.threshold_at(limit) for curve in finished.curves]
                thresholds.append(np.array(own))
            for looser, tighter in pairwise(thresholds):
                assert (looser <= tighter).all()
                seen["moved"] += bool((looser < tighter).any())
            seen["cases"] += 1

    n = count(8, SHARE)
    for_every_case(metric, n, check)
    ran(n, "calibration sets")
    assert seen["moved"] > 0


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_rows_groups_and_labels_changes_nothing(name, ran):
    def check(case):
        rng = np.random.default_rng(len(case.y))
        rows = rng.permutation(len(case.y))
        groups = rng.permutation(case.g.max() + 1)
        n_classes = case.scores.shape[1]
        columns = rng.permutation(n_classes)
        place = np.argsort(columns)  # where each label has gone
        for way in ways_of(name):
            wanted = found_by(case, name, way).find(case.closeness)
            same = found_by(
                case,
                name,
                way,
                scores=case.scores[rows],
                y=case.y[rows],
                groups=groups[case.g[rows]],
            ).find(case.closeness)
            assert same.threshold.tolist() == wanted.threshold.tolist()
            np.testing.assert_allclose(same.bound, wanted.bound, rtol=0, atol=GAP)
            moved = found_by(
                case,
                name,
                way,
                scores=case.scores[:, columns],
                y=place[case.y],
                positive_labels=sorted(place[case.positive].tolist()),
            ).find(case.closeness)
            assert moved.threshold.tolist() == wanted.threshold[columns].tolist()

    n = count(8, SHARE)
    for_every_case(oracle.metric(name), n, check)
    ran(n, "calibration sets")


@pytest.mark.parametrize("name", NAMES)
def test_the_frontier_is_the_answer_at_every_c(name, ran):
    metric = oracle.metric(name)
    seen = Counter()

    def check(case):
        for classwise, guarantee in ways_of(name):
            rows = frontier_rows_that_hold(case, metric, name, classwise, guarantee)
            seen["several rows"] += rows > 1

    n = count(4, SHARE / 2)
    for_every_case(metric, n, check)
    ran(n, "calibration sets")
    assert seen["several rows"] > 0


@pytest.mark.parametrize("name", NAMES)
def test_coverage_is_never_below_that_of_the_base(name, ran):
    def check(case: Case):
        n = len(case.y)
        for way in ways_of(name):
            found = found_by(case, name, way).find(case.closeness)
            assert (found.threshold >= found.base_threshold).all()
            base = prediction_sets(case.scores, found.base_threshold)
            fair = prediction_sets(case.scores, found.threshold)
            assert not (base & ~fair).any()
            least = math.ceil((1 - case.alpha) * (n + 1) - GAP)
            hits = coverage(fair, case.y) * n
            assert hits >= min(least, n) - GAP

    n = count(8, SHARE)
    for_every_case(oracle.metric(name), n, check)
    ran(n, "calibration sets")


def test_one_case_of_every_kind_is_drawn():
    """Among them are many groups, many classes, ±0, subnormal and huge scores."""
    seen = Counter()

    def check(case):
        scores = case.scores
        limits = np.finfo(scores.dtype) if scores.dtype.kind == "f" else None
        seen["integers"] += limits is None
        if limits is not None:
            small = (scores > 0) & (scores < limits.smallest_normal)
            seen["subnormal"] += bool(small.any())
            seen["huge"] += bool(scores.max() > limits.max / 1e6)
            seen["negative zero"] += bool(np.signbit(scores[scores == 0]).any())
        seen["30 groups or more"] += bool(case.g.max() >= 29)
        seen["50 classes or more"] += scores.shape[1] >= 50
        sizes = np.bincount(case.g * scores.shape[1] + case.y)
        seen["a cell of one point"] += 1 in sizes

    for_every_case(oracle.metric("demographic_parity"), 300, check)
    assert min(seen.values()) >= 1 and len(seen) == 7, seen
    answer = find_threshold([[-0.0], [0.0]], [0, 0], ["a", "b"], "set_size", 0.5)
    assert answer.base_threshold == math.inf

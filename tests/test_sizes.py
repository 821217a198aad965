"""Sizes of sets: a threshold that keeps them close, alone or with coverages."""

import math

import numpy as np
import oracle
import pandas as pd
import pytest

from cfhelpers import FairConformalClassifier, audit
from cfhelpers.bounds import maurer_pontil
from cfhelpers.conformal import coverage, efficiency, prediction_sets
from cfhelpers.control import find_threshold, frontier
from cfhelpers.fairness import METRICS, disparity

SIZES = ("set_size", "singletons")
GUARANTEES = ("none", "fixed-sequence")


def drawn(rng, largest=40):
    """An awkward calibration set: few points, ties, one class, one group."""
    n = int(rng.integers(1, largest))
    n_classes = int(rng.integers(1, 5))
    y = rng.integers(0, n_classes, n)
    groups = np.unique(rng.integers(0, rng.integers(1, 4), n), return_inverse=True)[1]
    scores = rng.random((n, n_classes)) - 0.3 * rng.integers(0, 2) * np.eye(n_classes)[y]
    scores = np.clip(scores + 0.1 * groups[:, None], 0, 1)
    if rng.integers(2):
        scores = np.round(scores * 8) / 8
    if rng.integers(2):
        scores = scores.astype(np.float32)
    return scores, y, groups


def groups_that_differ(rng, n=4000):
    groups = rng.choice(["a", "b"], n)
    y = rng.integers(0, 3, n)
    scores = rng.random((n, 3)) * np.where(groups == "a", 0.7, 1.0)[:, None]
    return np.clip(scores - 0.2 * np.eye(3)[y], 0, 1), y, groups


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("name", SIZES)
def test_search_finds_the_smallest_passing_threshold(name, guarantee):
    rng = np.random.default_rng(0)
    finite = 0
    for _ in range(60):
        scores, y, groups = drawn(rng)
        closeness = float(rng.choice([0.1, 0.3, 0.5, 0.9]))
        options = {"alpha": float(rng.choice([0.1, 0.3, 0.5]))}
        options["delta"] = float(rng.choice([0.1, 0.5, 0.9]))
        options["grid"] = sorted(rng.random(8)) if rng.integers(2) else None
        is_walk = guarantee != "none"
        found = find_threshold(
            scores, y, groups, name, closeness, guarantee=guarantee, **options
        )
        wanted = oracle.search(
            scores,
            y,
            groups,
            oracle.metric(name),
            closeness,
            classwise=False,
            positive_labels=[0],
            guarantee=is_walk,
            **options,
        )
        assert found.threshold.tolist() == wanted.threshold.tolist()
        assert found.feasible == wanted.feasible and found.satisfied
        np.testing.assert_allclose(found.bound, wanted.bound, atol=1e-9)
        np.testing.assert_allclose(
            found.smallest_closeness, wanted.smallest_closeness, atol=1e-9
        )
        if not found.feasible:
            level = options["delta"] if is_walk else None
            blocking = oracle.blocking_cells(
                oracle.metric(name), y, groups, [0], closeness, level
            )
            assert sorted(found.blocking_cells) == sorted(blocking)
        finite += found.feasible
    assert 5 <= finite <= 55


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_metrics_together_all_hold_at_the_smallest_such_threshold(guarantee):
    rng = np.random.default_rng(1)
    names = ("demographic_parity", "set_size", "disparate_impact")
    allowed = {"demographic_parity": 0.5, "set_size": 0.4, "disparate_impact": 0.5}
    finite = 0
    for _ in range(25):
        scores, y, groups = drawn(rng, 60)
        n_classes = scores.shape[1]
        labels = list(range(n_classes))
        options = {"alpha": 0.4, "guarantee": guarantee, "delta": 0.5}
        found = find_threshold(
            scores, y, groups, names, allowed, positive_labels=labels, **options
        )
        base = oracle.quantile(scores[np.arange(len(y)), y], 0.4)
        candidates = {base, *scores[scores > base].tolist(), math.inf}
        if guarantee != "none" and len(set(groups)) > 1:
            candidates = {*oracle.default_grid(), math.inf}
        candidates = np.array(sorted(candidates))
        passes = np.ones(len(candidates), bool)
        for name in names:
            metric = oracle.metric(name)
            level = 0.5 if guarantee != "none" else None
            for label in labels:
                losses = oracle.unfairness(
                    metric, scores, y, groups, label, candidates, level
                )
                passes &= losses <= metric.sign * allowed[name] + 1e-12
        if guarantee != "none":
            passes = np.logical_and.accumulate(passes[::-1])[::-1]
        wanted = candidates[passes & (candidates >= base)].min(initial=math.inf)
        if guarantee == "none" or len(set(groups)) > 1:
            assert found.threshold[0] == wanted
            assert set(found.bounds) == set(names)
        finite += math.isfinite(wanted)
    assert finite >= 3


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("name", [*SIZES, ("equal_opportunity", "set_size")])
def test_the_frontier_has_the_answer_for_every_closeness(name, guarantee):
    scores, y, groups = groups_that_differ(np.random.default_rng(2), 600)
    table = frontier(scores, y, groups, name, guarantee=guarantee)
    assert (np.diff(table["closeness"]) < 0).all()
    assert (np.diff(table["threshold"]) > 0).all()
    for row in table.iloc[:: max(1, len(table) // 5)].itertuples():
        sets = prediction_sets(scores, row.threshold)
        assert row.mean_set_size == pytest.approx(efficiency(sets))
        assert row.coverage == pytest.approx(coverage(sets, y))
        if row.closeness > 0:
            found = find_threshold(
                scores, y, groups, name, row.closeness, guarantee=guarantee
            )
            assert found.threshold[0] == row.threshold


def test_size_is_kept_close_as_often_as_promised():
    rng = np.random.default_rng(3)
    everyone, _, groups = groups_that_differ(rng, 200_000)
    beyond = 0
    for _ in range(60):
        found = find_threshold(
            *groups_that_differ(rng, 1500), "set_size", 0.15, guarantee="fixed-sequence"
        )
        sizes = (everyone <= found.threshold[0]).mean(axis=1)
        gap = sizes[groups == "a"].mean() - sizes[groups == "b"].mean()
        assert found.feasible
        beyond += abs(gap) > 0.15
    assert beyond <= 21  # Pr[Bin(60, .1) > 21] < 1e-6


def test_bounds_of_a_mean_hold():
    rng = np.random.default_rng(4)
    values = rng.integers(0, 5, (4000, 60)) / 4
    lower, upper = maurer_pontil(values.mean(axis=1), values.var(axis=1, ddof=1), 60, 0.2)
    # Pr[Bin(4000, .2) > 925] < 1e-6
    assert (lower > 0.5).sum() <= 925 and (upper < 0.5).sum() <= 925
    assert maurer_pontil(0.5, 0.0, 1, 0.1) == (0.0, 1.0)


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("n_classes", [1, 2, 5, 11])
def test_disparity_of_sizes_is_plain(name, n_classes):
    rng = np.random.default_rng(5)
    sets = rng.random((500, n_classes)) < rng.random((500, 1))
    groups = rng.integers(0, 3, 500)
    y = rng.integers(0, n_classes, 500)
    size = sets.sum(axis=1)
    values = size / n_classes if name == "set_size" else size == 1
    by_group = [values[groups == group].mean() for group in range(3)]
    assert disparity(sets, y, groups, name, [0]) == pytest.approx(np.ptp(by_group))


def test_the_audit_judges_sizes():
    scores, y, groups = groups_that_differ(np.random.default_rng(6))
    unfair = audit(scores <= 0.6, y, groups, SIZES)
    assert set(unfair.verdicts.values()) == {"beyond"}
    fair = audit(scores <= 0.6, y, np.random.default_rng(7).permutation(groups), SIZES)
    assert set(fair.verdicts.values()) == {"within"}
    three = np.random.default_rng(8).choice(["a", "b", "c"], len(y))
    assert audit(scores <= 0.6, y, three, "set_size").verdicts["set_size"] == "within"


def test_the_audit_looks_at_labels_unless_sizes_are_asked_for():
    scores, y, groups = groups_that_differ(np.random.default_rng(9), 300)
    assert set(audit(scores <= 0.6, y, groups).verdicts) == set(METRICS) - set(SIZES)


def test_unlabelled_people_count_for_sizes():
    rng = np.random.default_rng(10)
    scores, y, groups = groups_that_differ(rng, 300)
    more, _, more_groups = groups_that_differ(rng, 20_000)
    question = {"closeness": 0.1, "guarantee": "fixed-sequence"}
    alone = find_threshold(scores, y, groups, "set_size", **question)
    found = find_threshold(
        scores, y, groups, "set_size", **question, unlabelled=(more, more_groups)
    )
    assert found.threshold[0] < alone.threshold[0]


def test_the_classifier_keeps_sizes_close():
    rng = np.random.default_rng(11)
    probabilities = rng.dirichlet([1, 1, 1], 3000)
    fair = FairConformalClassifier(metric="set_size", random_state=0)
    fair.fit(probabilities, rng.integers(0, 3, 3000), rng.choice(["a", "b"], 3000))
    assert len(set(fair.threshold_.tolist())) == 1  # one for all labels
    again = FairConformalClassifier.from_dict(fair.to_dict())
    assert np.array_equal(
        again.predict_set(probabilities), fair.predict_set(probabilities)
    )


def test_at_infinity_everyone_is_alike():
    table = pd.DataFrame({"closeness": [0.001]})
    scores, y, groups = groups_that_differ(np.random.default_rng(12), 50)
    for name in SIZES:
        found = find_threshold(
            scores, y, groups, name, table["closeness"][0], guarantee="fixed-sequence"
        )
        assert math.isinf(found.threshold[0]) and found.satisfied
        assert found.bound.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "options, word",
    [
        ({"metric": ("set_size",)}, "metric"),
        ({"metric": ("set_size", "set_size")}, "metric"),
        ({"metric": ("set_size", "predictive_parity")}, "predictive_parity"),
        ({"metric": ("set_size", "equal_opportunity"), "closeness": [0.1]}, "closeness"),
        ({"metric": ("set_size", "singletons"), "closeness": {"size": 0.1}}, "size"),
        ({"metric": ("set_size", "singletons"), "classwise": True}, "classwise"),
        ({"metric": "set_size", "sample_weight": np.arange(1, 101)}, "sample_weight"),
        ({"metric": SIZES, "sample_weight": np.arange(1, 101)}, "sample_weight"),
        ({"metric": "set_size", "pool_sizes": {"a": 900, "b": 900}}, "pool_sizes"),
    ],
)
def test_what_cannot_be_is_refused_by_name(options, word):
    scores, y, groups = groups_that_differ(np.random.default_rng(13), 100)
    with pytest.raises(ValueError, match=word):
        find_threshold(scores, y, groups, **options)


def test_a_frontier_of_differences_and_ratios_is_refused():
    scores, y, groups = groups_that_differ(np.random.default_rng(14), 100)
    with pytest.raises(ValueError, match="metric"):
        frontier(scores, y, groups, ("set_size", "disparate_impact"))

"""Weights: a sample that stands for another population."""

import json

import numpy as np
import oracle
import pandas as pd
import pytest
from scipy.stats import binom

from cfhelpers import FairConformalClassifier, weights
from cfhelpers.conformal import conformal_quantile
from cfhelpers.control import Calibration, find_threshold, frontier
from cfhelpers.datasets.populations import two_groups
from cfhelpers.metrics import METRICS
from cfhelpers.scores import person_u

# The metrics of the paper: their cells are counts of labels.
NAMES = tuple(name for name in oracle.FILTERS if not METRICS[name].is_size)


@pytest.fixture(scope="module")
def drawn():
    return two_groups().draw(3000, np.random.default_rng(0))


def random_case(seed, n=60, n_groups=3, n_classes=3, levels=12):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, levels, (n, n_classes)) / levels
    y = rng.integers(0, n_classes, n)
    g = rng.integers(0, n_groups, n)
    return scores, y, g, rng.exponential(size=n)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(6))
def test_weighted_rule_is_the_brute_force(name, seed):
    scores, y, g, own = random_case(seed)
    closeness = 0.5 if METRICS[name].is_ratio else 0.35
    found = find_threshold(
        scores, y, g, name, closeness, alpha=0.4, classwise=True, sample_weight=own
    )
    wanted = np.full(3, found.base_threshold)
    for label in (1, 2):
        wanted[label] = oracle.weighted_threshold(
            oracle.metric(name), scores, y, g, label, closeness, 0.4, own
        )
    true_scores = scores[np.arange(len(y)), y]
    assert found.base_threshold == oracle.weighted_quantile(true_scores, own, 0.4)
    if name == oracle.OVERALL:
        wanted[:] = wanted[1]
    assert found.threshold.tolist() == wanted.tolist()


@pytest.mark.parametrize("guarantee", ["none", "fixed-sequence"])
@pytest.mark.parametrize("classwise", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_unit_weights_change_nothing(drawn, name, guarantee, classwise):
    probabilities, y, groups = drawn
    options = {"classwise": classwise, "guarantee": guarantee}
    args = (1 - probabilities, y, groups, name)
    plain = find_threshold(*args, **options)
    unit = find_threshold(*args, sample_weight=np.ones(len(y)), **options)
    assert plain.threshold.tobytes() == unit.threshold.tobytes()
    assert plain.bound.tobytes() == unit.bound.tobytes()
    assert plain.base_threshold == unit.base_threshold
    assert plain.smallest_closeness == unit.smallest_closeness


def test_unit_weights_leave_the_frontier_as_it_is(drawn):
    probabilities, y, groups = drawn
    args = (1 - probabilities, y, groups, "equal_opportunity")
    plain = frontier(*args)
    unit = frontier(*args, sample_weight=np.ones(len(y)))
    pd.testing.assert_frame_equal(plain, unit, check_exact=True)


def test_nearly_equal_weights_have_nearly_the_plain_frontier(drawn):
    probabilities, y, groups = drawn
    args = (1 - probabilities, y, groups, "demographic_parity")
    own = np.ones(len(y))
    own[0] += 1e-13
    plain = frontier(*args)
    weighted = frontier(*args, sample_weight=own)
    np.testing.assert_allclose(plain.to_numpy(float), weighted.to_numpy(float))


def test_the_factor_of_all_weights_does_not_matter(drawn):
    probabilities, y, groups = drawn
    own = np.random.default_rng(1).exponential(size=len(y))
    args = (1 - probabilities, y, groups, "equal_opportunity")
    one = find_threshold(*args, sample_weight=own)
    seven = find_threshold(*args, sample_weight=7 * own)
    np.testing.assert_allclose(one.threshold, seven.threshold)
    np.testing.assert_allclose(one.bound, seven.bound)


def test_points_of_weight_zero_are_not_there(drawn):
    probabilities, y, groups = drawn
    rng = np.random.default_rng(2)
    own = rng.exponential(size=len(y))
    own[rng.random(len(y)) < 0.3] = 0
    kept = own > 0
    args = (1 - probabilities, y, groups, "equal_opportunity")
    found = find_threshold(*args, sample_weight=own)
    alone = find_threshold(
        1 - probabilities[kept],
        y[kept],
        groups[kept],
        "equal_opportunity",
        sample_weight=own[kept],
    )
    assert found.threshold.tolist() == alone.threshold.tolist()


def test_thinning_keeps_points_in_proportion_to_their_weights():
    own = np.repeat([0.2, 0.5, 1.0], 20_000)
    is_kept = weights.thin(own, 1.0, seed=3)
    for weight in (0.2, 0.5):
        n_kept = int(is_kept[own == weight].sum())
        # Each side is passed by chance in 5e-8 of all seeds.
        assert binom.ppf(5e-8, 20_000, weight) <= n_kept
        assert n_kept <= binom.ppf(1 - 5e-8, 20_000, weight)
    assert is_kept[own == 1.0].all()


def test_thinning_draws_by_place_or_id_and_never_from_the_scores_numbers():
    own = np.full(50, 0.5)
    by_place = weights.thin(own, 1.0, seed=1)
    ids = [f"person {place}" for place in range(50)]
    by_id = weights.thin(own, 1.0, seed=1, ids=ids)
    order = np.random.default_rng(0).permutation(50)
    again = weights.thin(own, 1.0, seed=1, ids=[ids[place] for place in order])
    assert (again == by_id[order]).all()
    assert (by_place != by_id).any()
    u = person_u(ids, 1)
    assert (by_id != (u < 0.5)).any()
    assert (weights.thin(own, 1.0, seed=2) != by_place).any()


def test_thinning_wants_an_id_for_each_point():
    with pytest.raises(ValueError, match="ids: found 1 for 2 points"):
        weights.thin([0.5, 0.5], 1.0, ids=["a"])


def test_with_a_guarantee_the_search_runs_on_the_points_kept(drawn):
    probabilities, y, groups = drawn
    own = np.random.default_rng(3).random(len(y))
    is_kept = weights.thin(own, 2.0, seed=5)
    asked = {"guarantee": "fixed-sequence"}
    found = find_threshold(
        1 - probabilities,
        y,
        groups,
        "equal_opportunity",
        sample_weight=own,
        weight_bound=2.0,
        random_state=5,
        **asked,
    )
    alone = find_threshold(
        1 - probabilities[is_kept], y[is_kept], groups[is_kept], "equal_opportunity",
        **asked,
    )  # fmt: skip
    assert found.threshold.tolist() == alone.threshold.tolist()
    assert found.weighting.n_kept == is_kept.sum()
    assert found.weighting.cost == pytest.approx(2 / own.mean())
    assert f"{is_kept.sum():,} of 3,000 points kept" in str(found)


def test_quantile_with_equal_weights_is_the_conformal_one():
    rng = np.random.default_rng(0)
    for n in range(1, 60):
        scores = rng.integers(0, 20, n) / 20
        for alpha in (0.1, 0.18, 0.44, 0.5):
            wanted = conformal_quantile(scores, alpha)
            assert weights.weighted_quantile(scores, np.full(n, 3.0), alpha) == wanted


@pytest.mark.parametrize(
    ("own", "options", "message"),
    [
        ([1.0] * 9, {}, "sample_weight: found 9 weights for 10 points"),
        ([1.0] * 9 + [-1.0], {}, "entry 9 is -1"),
        ([1.0] * 9 + [np.nan], {}, "entry 9 is NaN"),
        ([1.0] * 9 + [np.inf], {}, "entry 9 is inf"),
        ([0.0] * 10, {}, "only zeros"),
        ([2.0] * 10, {"guarantee": "fixed-sequence"}, "weight_bound: found None"),
        ([2.0] * 10, {"weight_bound": 1.0}, "above the declared weight_bound of 1"),
        ([2.0] * 10, {"weight_bound": -1.0}, "weight_bound: found -1.0"),
        (None, {"weight_bound": 1.0}, "without sample_weight"),
        ([2.0] * 10, {"pool_sizes": {0: 10, 1: 10}}, "pool_sizes: found some together"),
        ([2.0] * 10, {"base_scores": [0.5]}, "base_scores: found 1 for 10"),
    ],
)
def test_bad_weights_are_refused_by_name(own, options, message):
    scores = np.linspace(0, 1, 20).reshape(10, 2)
    with pytest.raises(ValueError, match=message):
        find_threshold(
            scores,
            [0, 1] * 5,
            [0, 1] * 5,
            "demographic_parity",
            sample_weight=own,
            **options,
        )


def test_sorted_points_with_weights_ask_to_be_thinned_for_a_guarantee():
    calibration = Calibration(
        np.linspace(0, 1, 20).reshape(10, 2), [0, 1] * 5, [0, 1] * 5,
        sample_weight=np.arange(1, 11),
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"weights\.thin"):
        calibration.search("demographic_parity", guarantee="fixed-sequence")


def test_classifier_says_what_thinning_costs(drawn):
    probabilities, y, groups = drawn
    own = np.where(y == 2, 1.0, 0.25)
    fair = FairConformalClassifier(random_state=0)
    fair.fit(probabilities, y, groups, sample_weight=own, weight_bound=1)
    n_kept = int(fair.summary_["calibration points"].sum())
    assert n_kept == weights.thin(own, 1, fair.seed_).sum()
    assert (fair.summary_["of all points"] == 3000).all()
    assert fair.summary_["cost of thinning"].iloc[0] == pytest.approx(1 / own.mean())
    assert f"{n_kept:,} of 3,000 points kept" in str(fair.promise_)
    served = FairConformalClassifier.from_dict(json.loads(json.dumps(fair.to_dict())))
    assert (served.predict_set(probabilities) == fair.predict_set(probabilities)).all()
    assert str(served.promise_) == str(fair.promise_)


def test_classifier_with_unit_weights_is_the_one_without(drawn):
    probabilities, y, groups = drawn
    for guarantee in ("none", "fixed-sequence"):
        options = {"guarantee": guarantee, "random_state": 0, "conformity_score": "aps"}
        plain = FairConformalClassifier(**options).fit(probabilities, y, groups)
        unit = FairConformalClassifier(**options).fit(
            probabilities, y, groups, sample_weight=np.ones(3000)
        )
        assert plain.threshold_.tobytes() == unit.threshold_.tobytes()


def shifted_labels(rng, n):
    """Two groups in two cities; the sample has few of the city where B is covered worse.

    Scores of label 1 are uniform, but for group B in the second city, where they are
    √uniform. The target has as many people of both cities.
    """
    is_second = rng.random(n) < 0.1
    groups = np.where(rng.random(n) < 0.5, "A", "B")
    scores = rng.random((n, 2))
    is_worse = is_second & (groups == "B")
    scores[is_worse, 1] = np.sqrt(scores[is_worse, 1])
    own = np.where(is_second, 0.5 / 0.1, 0.5 / 0.9)
    return scores, groups, own


def target_gap(threshold):
    """In the target: A is covered with λ, B with (λ + λ²)/2."""
    return (threshold - threshold**2) / 2


def test_a_known_shift_breaks_the_promise_without_weights_and_not_with_them():
    rng = np.random.default_rng(0)
    n_draws = 60
    grid = np.linspace(0, 1, 51)
    beyond = {"without": 0, "with": 0}
    for draw in range(n_draws):
        scores, groups, own = shifted_labels(rng, 10_000)
        args = (scores, np.ones(10_000, int), groups, "equal_opportunity", 0.08)
        options = {"alpha": 0.5, "guarantee": "fixed-sequence", "grid": grid}
        plain = find_threshold(*args, **options)
        thinned = find_threshold(
            *args, sample_weight=own, weight_bound=5.0, random_state=draw, **options
        )
        beyond["without"] += target_gap(plain.threshold[1]) > 0.08
        beyond["with"] += target_gap(thinned.threshold[1]) > 0.08
        assert np.isfinite(thinned.threshold[1])
    # A test that errs in a tenth of draws gives more than this in 1 of 10⁶ runs.
    assert beyond["with"] <= binom.ppf(1 - 1e-6, n_draws, 0.1)
    assert beyond["without"] == n_draws


@pytest.mark.parametrize("name", ["set_size", "singletons"])
def test_sizes_of_sets_with_weights_need_the_guarantee_that_thins(name):
    scores, y, g, own = random_case(0)
    with pytest.raises(ValueError, match="sample_weight: found some for"):
        find_threshold(scores, y, g, name, 0.3, sample_weight=own)

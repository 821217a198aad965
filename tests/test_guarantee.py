"""What the walk with a guarantee may be asked for beside one closeness and one start."""

import math

import numpy as np
import pandas as pd
import pytest

from cfhelpers.control import default_grid, find_threshold, frontier
from cfhelpers.metrics import LABEL_METRICS, METRICS, FairnessMetric
from cfhelpers.predictor import FairConformalClassifier

PROMISED = {"guarantee": "fixed-sequence"}


def people(n, seed, shift=0.15):
    """Scores of two labels; the second is found more seldom in group b."""
    rng = np.random.default_rng(seed)
    groups = rng.choice(["a", "b"], n)
    y = rng.integers(0, 2, n)
    scores = rng.random((n, 2))
    scores[:, 1] = scores[:, 1] ** 2
    scores[groups == "b", 1] = scores[groups == "b", 1] * (1 - shift) + shift
    return scores, y, groups


def test_several_values_of_closeness_share_delta():
    scores, y, groups = people(2000, 0)
    several = find_threshold(
        scores, y, groups, "demographic_parity", [0.05, 0.1], **PROMISED
    )
    for found, closeness in zip(several, (0.05, 0.1), strict=True):
        alone = find_threshold(
            scores, y, groups, "demographic_parity", closeness, delta=0.05, **PROMISED
        )
        assert found.closeness == closeness
        assert found.threshold.tolist() == alone.threshold.tolist()
        assert found.bound[1] == alone.bound[1]


@pytest.mark.parametrize("values", [(0.05, 0.1), np.array([0.05, 0.1]), [0.2]])
def test_several_values_give_a_list_of_results(values):
    found = find_threshold(*people(500, 0), "demographic_parity", values, **PROMISED)
    assert [one.closeness for one in found] == list(values)


def test_no_value_of_closeness_is_refused():
    with pytest.raises(ValueError, match="closeness: found none"):
        find_threshold(*people(50, 0), "demographic_parity", [])


@pytest.mark.parametrize("wrong", ["0.1", [0.1, "0.2"], True, 0, -1, 1.5, math.nan])
def test_a_closeness_that_is_no_fraction_is_refused(wrong):
    with pytest.raises(ValueError, match="closeness: found"):
        find_threshold(*people(50, 0), "demographic_parity", wrong)


def test_a_ratio_far_below_four_fifths_is_warned_about():
    with pytest.warns(UserWarning, match="found 0.1 for disparate_impact, a ratio"):
        find_threshold(*people(500, 0), "disparate_impact", 0.1)


def priors_differ(n, seed):
    """Of group a 60% have label 1, of group b 30%; low scores tell them well."""
    rng = np.random.default_rng(seed)
    groups = rng.choice(["a", "b"], n)
    y = (rng.random(n) < np.where(groups == "a", 0.6, 0.3)).astype(int)
    scores = np.where(y == 1, 0.5 * rng.random(n), 0.4 + 0.6 * rng.random(n))
    return np.column_stack([1 - scores, scores]), y, groups


def test_predictive_parity_walks_from_a_start_where_priors_differ():
    scores, y, groups = priors_differ(4000, 0)
    asked = {"classwise": True, "alpha": 0.3, **PROMISED}
    from_infinity = find_threshold(scores, y, groups, "predictive_parity", 0.1, **asked)
    assert not from_infinity.satisfied and not from_infinity.feasible
    found = find_threshold(
        scores, y, groups, "predictive_parity", 0.1, start=0.42, **asked
    )
    assert found.satisfied and found.base_threshold <= found.threshold[1] <= 0.42
    assert found.bound[1] <= 0.1
    # Nothing above the start is looked at: another grid there changes nothing.
    grid = [*default_grid()[default_grid() < 0.42], 0.42]
    same = find_threshold(
        scores, y, groups, "predictive_parity", 0.1, start=0.42, grid=grid, **asked
    )
    assert same.threshold.tolist() == found.threshold.tolist()


def test_a_start_that_is_rejected_leaves_predictive_parity_unsatisfied():
    scores, y, groups = priors_differ(4000, 0)
    asked = {"classwise": True, "alpha": 0.3, **PROMISED}
    found = find_threshold(
        scores, y, groups, "predictive_parity", 0.1, start=0.95, **asked
    )
    assert not found.satisfied and found.threshold[1] == math.inf


def test_a_start_below_the_quantile_leaves_the_full_set_which_is_fair_in_coverage():
    scores, y, groups = people(500, 0)
    found = find_threshold(
        scores, y, groups, "demographic_parity", 0.3, start=0.01, **PROMISED
    )
    assert found.threshold.tolist() == [math.inf, math.inf]
    assert found.satisfied and not found.feasible


def test_an_infinite_start_is_the_default():
    arguments = (*people(1000, 0), "demographic_parity", 0.2)
    wanted = find_threshold(*arguments, **PROMISED)
    found = find_threshold(*arguments, start=math.inf, **PROMISED)
    assert found.threshold.tolist() == wanted.threshold.tolist()


@pytest.mark.parametrize("wrong", ["0.5", math.nan, [0.5], True])
def test_a_start_that_is_no_threshold_is_refused(wrong):
    with pytest.raises(ValueError, match="start: found"):
        find_threshold(*people(50, 0), "demographic_parity", start=wrong, **PROMISED)


@pytest.mark.parametrize("metric", ["demographic_parity", "disparate_impact"])
@pytest.mark.parametrize("guarantee", ["none", "fixed-sequence"])
def test_unlabelled_points_count_like_labelled_ones(metric, guarantee):
    """All labels but those of q̂ are without effect on these metrics."""
    scores, y, groups = people(3000, 1)
    known = slice(None, 1000)
    found = find_threshold(
        scores[known],
        y[known],
        groups[known],
        metric,
        unlabelled=(scores[1000:], groups[1000:]),
        guarantee=guarantee,
    )
    wanted = find_threshold(
        scores,
        y,
        groups,
        metric,
        base_scores=scores[np.arange(1000), y[known]],
        guarantee=guarantee,
    )
    assert found.base_threshold == wanted.base_threshold
    assert found.threshold.tolist() == wanted.threshold.tolist()
    assert found.bound[1] == wanted.bound[1]


def test_unlabelled_points_sharpen_the_test():
    scores, y, groups = people(20_000, 2, shift=0.05)
    few = slice(None, 400)
    asked = (scores[few], y[few], groups[few], "demographic_parity", 0.08)
    alone = find_threshold(*asked, **PROMISED)
    more = (scores[400:], groups[400:])
    helped = find_threshold(*asked, unlabelled=more, **PROMISED)
    assert helped.threshold[1] < alone.threshold[1]


def test_a_group_that_only_unlabelled_points_have_counts():
    scores, y, groups = people(600, 3)
    more = scores[:5], ["rare"] * 5
    found = find_threshold(
        scores, y, groups, "demographic_parity", unlabelled=more, **PROMISED
    )
    assert ("rare", 1, 5) in found.blocking_cells


def test_frontier_counts_coverage_among_the_labelled():
    scores, y, groups = people(1000, 4)
    more = people(1000, 5)[0], groups
    table = frontier(scores, y, groups, "demographic_parity", unlabelled=more)
    last = table.iloc[-1]
    assert last["threshold"] == math.inf
    assert last["mean_set_size"] == 2 and last["coverage"] == 1


@pytest.mark.parametrize("name", sorted(set(LABEL_METRICS) - {"disparate_impact"}))
def test_metrics_that_need_labels_refuse_points_without(name):
    if name == "demographic_parity":
        return
    scores, y, groups = people(100, 0)
    with pytest.raises(ValueError, match=f"unlabelled: found some for {name}"):
        find_threshold(scores, y, groups, name, unlabelled=(scores, groups))
    with pytest.raises(ValueError, match=f"pool_sizes: found some for {name}"):
        find_threshold(scores, y, groups, name, pool_sizes={"a": 200, "b": 200})


def test_a_filter_of_ones_own_refuses_unlabelled_points():
    own = FairnessMetric("own", lambda y, g, a, label: g == a)
    scores, y, groups = people(100, 0)
    with pytest.raises(ValueError, match="unlabelled: found some for own"):
        find_threshold(scores, y, groups, own, unlabelled=(scores, groups))


@pytest.mark.parametrize(
    "wrong, message",
    [
        (np.ones((3, 2)), "unlabelled: found ndarray; wanted a pair"),
        ((np.ones((3, 5)), list("aba")), "unlabelled scores: found 5 columns"),
        ((np.ones((3, 2)), list("ab")), "unlabelled groups: found"),
        ((np.ones((3, 2)), ["a", None, "b"]), "unlabelled groups: "),
        ((np.full((3, 2), np.nan), list("aba")), "unlabelled scores: row 0"),
    ],
)
def test_unlabelled_points_are_checked(wrong, message):
    with pytest.raises(ValueError, match=message):
        find_threshold(*people(50, 0), "demographic_parity", unlabelled=wrong)


def test_the_whole_pool_as_calibration_is_known_exactly():
    """Nothing is left to chance: the bound is the observed gap at the threshold."""
    scores, y, groups = people(400, 6)
    sizes = pd.Series(groups).value_counts()
    found = find_threshold(
        scores, y, groups, "demographic_parity", 0.1, pool_sizes=sizes, **PROMISED
    )
    in_sets = scores[:, 1] <= found.threshold[1]
    gap = abs(in_sets[groups == "a"].mean() - in_sets[groups == "b"].mean())
    assert found.bound[1] == pytest.approx(gap)
    assert gap <= 0.1


def test_a_known_pool_is_never_worse_than_an_unknown_one():
    scores, y, groups = people(500, 7)
    asked = (scores, y, groups, "demographic_parity", 0.15)
    unknown = find_threshold(*asked, **PROMISED)
    known = find_threshold(*asked, pool_sizes={"a": 500, "b": 500}, **PROMISED)
    assert known.threshold[1] <= unknown.threshold[1]


def test_a_group_of_the_pool_that_was_not_drawn_blocks():
    scores, y, groups = people(400, 8)
    sizes = {"a": 500, "b": 500, "c": 3}
    found = find_threshold(
        scores, y, groups, "demographic_parity", pool_sizes=sizes, **PROMISED
    )
    assert found.blocking_cells == [("c", 1, 0)]


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"a": 500}, "pool_sizes: found none for group 'b'"),
        ({"a": 500, "b": 3}, "pool_sizes: found 3 for group 'b'"),
        ({"a": 500, "b": 500.5}, "pool_sizes: found 500.5 for group 'b'"),
        (1000, "pool_sizes: found int"),
    ],
)
def test_pool_sizes_are_checked(wrong, message):
    with pytest.raises(ValueError, match=message):
        find_threshold(
            *people(100, 0), "demographic_parity", pool_sizes=wrong, **PROMISED
        )


def test_scores_a_hair_above_one_need_no_grid():
    """Sums of probabilities reach 1.0000000000000002 in floating point."""
    scores = np.full((200, 2), 0.3)
    scores[1::2] = 1.0000000000000002
    y = np.tile([0, 1, 1, 0], 50)
    groups = np.repeat(["a", "b"], 100)
    find_threshold(scores, y, groups, "demographic_parity", **PROMISED)
    scores[1, 1] = 1.001
    with pytest.raises(ValueError, match=r"grid: found None .* scores reach 1\.001"):
        find_threshold(scores, y, groups, "demographic_parity", **PROMISED)


@pytest.mark.parametrize("metric", sorted(METRICS))
def test_one_group_leaves_nothing_to_compare(metric):
    scores, y, _ = people(200, 9)
    found = find_threshold(scores, y, np.repeat("a", 200), metric, **PROMISED)
    assert found.feasible and set(found.threshold) == {found.base_threshold}


def test_no_positive_label_leaves_nothing_to_compare():
    scores, _, groups = people(200, 9)
    y = np.zeros(200, int)
    found = find_threshold(scores[:, :1], y, groups, "demographic_parity", **PROMISED)
    assert found.feasible and set(found.threshold) == {found.base_threshold}


def test_thresholds_are_found_for_a_hundred_groups():
    rng = np.random.default_rng(0)
    scores = rng.random((40_000, 2))
    groups = rng.integers(0, 100, 40_000)
    found = find_threshold(
        scores, rng.integers(0, 2, 40_000), groups, "demographic_parity", 0.3, **PROMISED
    )
    assert found.feasible and found.bound[1] <= 0.3


def probabilities(n, seed):
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet([2, 2, 1], n)
    y = (rng.random((n, 1)) > probs.cumsum(axis=1)).sum(axis=1)
    groups = rng.choice(["a", "b", "c"], n)
    return probs, y, groups


@pytest.mark.parametrize("score", ["tps", "aps"])
def test_the_classifier_takes_unlabelled_people(score):
    probs, y, groups = probabilities(4000, 0)
    asked = {
        "conformity_score": score,
        "metric": "demographic_parity",
        "closeness": 0.15,
        "random_state": 1,
    }
    known = slice(None, 500)
    fair = FairConformalClassifier(**asked)
    fair.fit(
        probs[known], y[known], groups[known], unlabelled=(probs[500:], groups[500:])
    )
    everyone = FairConformalClassifier(**asked).fit(probs, y, groups)
    assert fair.result_.feasible
    assert fair.summary_["calibration points"].sum() == 500
    # Both count the same people, and differ in q̂ alone.
    np.testing.assert_allclose(fair.threshold_[1:], everyone.threshold_[1:], atol=0.05)


@pytest.mark.filterwarnings("ignore:groups. found only")  # one group is left
def test_the_classifier_pools_groups_by_all_people_it_has():
    probs, y, _ = probabilities(2000, 1)
    groups = np.where(np.arange(2000) % 50 == 0, "few", "many")
    known = slice(None, 200)
    fair = FairConformalClassifier(metric="demographic_parity", small_groups="leave out")
    with pytest.warns(UserWarning, match="left out: 'few'"):
        fair.fit(probs[known], y[known], groups[known])
    fair.fit(
        probs[known], y[known], groups[known], unlabelled=(probs[200:], groups[200:])
    )
    assert fair.promise_.groups == ["few", "many"] and not fair.promise_.left_out


def test_unlabelled_people_have_ids_where_the_others_do():
    probs, y, groups = probabilities(600, 2)
    fair = FairConformalClassifier(
        conformity_score="aps", metric="demographic_parity", closeness=0.5
    )
    ids = np.arange(600)
    known = slice(None, 300)
    few = probs[known], y[known], groups[known], ids[known]
    fair.fit(*few, unlabelled=(probs[300:], groups[300:], ids[300:]))
    with pytest.raises(ValueError, match="unlabelled: row 0 has the id of a calibration"):
        fair.fit(*few, unlabelled=(probs[300:], groups[300:], ids[known]))
    with pytest.raises(ValueError, match=r"unlabelled: .* wanted \(X, groups, ids\)"):
        fair.fit(*few, unlabelled=(probs[300:], groups[300:]))


def test_the_classifier_refuses_unlabelled_people_where_labels_count():
    probs, y, groups = probabilities(600, 3)
    fair = FairConformalClassifier(metric="equal_opportunity")
    with pytest.raises(ValueError, match="unlabelled: found some for equal_opportunity"):
        fair.fit(probs, y, groups, unlabelled=(probs, groups))


def test_two_bounds_are_for_points_that_are_not_independent():
    """A wider bound, as one that gives half of delta to each of two bounds."""
    asked = (*people(2000, 10), "demographic_parity", 0.3)
    sharp = find_threshold(*asked, **PROMISED)
    wide = find_threshold(*asked, test="bounds", **PROMISED)
    assert wide.points_needed > sharp.points_needed
    assert wide.bound[1] > sharp.bound[1]
    with pytest.raises(ValueError, match="test: found 'exact'"):
        find_threshold(*asked, test="exact", **PROMISED)

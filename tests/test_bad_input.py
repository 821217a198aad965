"""Bad input is a ValueError that names the argument, what was found and where."""

import functools
import math

import numpy as np
import pandas as pd
import pytest

from cfhelpers import FairConformalClassifier
from cfhelpers.conformal import conformal_quantile, coverage, efficiency, prediction_sets
from cfhelpers.control import find_threshold, frontier
from cfhelpers.fairness import FairnessMetric, disparity, group_coverages
from cfhelpers.scores import aps, raps, tps

RNG = np.random.default_rng(0)
N, K = 12, 3
PROBS = RNG.dirichlet(np.ones(K), N)
SCORES, Y, GROUPS = 1 - PROBS, np.arange(N) % K, np.array(["a", "b"] * 6)
SETS = SCORES < 0.7


def changed(array, index, value):
    array = np.array(
        array, dtype=object if value is None or isinstance(value, str) else None
    )
    array[index] = value
    return array


@functools.wraps(find_threshold)
def search(
    scores=SCORES,
    y=Y,
    groups=GROUPS,
    metric="demographic_parity",
    closeness=0.2,
    **keywords,
):
    return find_threshold(scores, y, groups, metric, closeness, **keywords)


def trace(scores=SCORES, y=Y, groups=GROUPS, metric="demographic_parity", **keywords):
    return frontier(scores, y, groups, metric, **keywords)


def measure(sets=SETS, y=Y, groups=GROUPS, metric="demographic_parity", **keywords):
    return disparity(sets, y, groups, metric, **keywords)


def tabulate(sets=SETS, y=Y, groups=GROUPS, metric="demographic_parity", **keywords):
    return group_coverages(sets, y, groups, metric, **keywords)


def train(probs=PROBS, y=Y, groups=GROUPS, **keywords):
    return FairConformalClassifier(
        guarantee=keywords.pop("guarantee", "none"), **keywords
    ).fit(probs, y, groups)


def rejects(message, function, *arguments, **keywords):
    with pytest.raises(ValueError, match=message):
        function(*arguments, **keywords)


def test_the_input_is_fine_before_it_is_spoilt():
    for function in (search, trace, measure, tabulate):
        function()
    assert search().threshold.shape == (K,)


@pytest.mark.parametrize("score", [tps, aps, raps, train])
def test_probabilities_must_be_probabilities(score):
    rejects(
        r"probabilities: row 7 sums to 1\.4", score, changed(PROBS, 7, [0.4, 0.5, 0.5])
    )
    rejects(
        r"probabilities: row 2, column 1 is NaN", score, changed(PROBS, (2, 1), math.nan)
    )
    rejects(
        r"probabilities: row 4, column 0 is -0\.1",
        score,
        changed(PROBS, 4, [-0.1, 0.6, 0.5]),
    )
    rejects(r"probabilities: row 3 sums to inf", score, changed(PROBS, (3, 0), math.inf))
    rejects(r"probabilities: .*shape \(12,\)", score, PROBS[:, 0])
    rejects(r"probabilities: .*shape \(12, 0\)", score, PROBS[:, :0])
    rejects(r"probabilities: found no rows", score, PROBS[:0])
    rejects(r"probabilities: .*wanted numbers", score, [["a", "b"]])


@pytest.mark.parametrize("score", [aps, raps])
def test_u_must_be_one_number_in_the_unit_interval_per_point(score):
    rejects(r"u: found 11 entries for 12 points", score, PROBS, np.zeros(11))
    rejects(r"u: entry 5 is 1\.5", score, PROBS, changed(np.zeros(N), 5, 1.5))
    rejects(r"u: entry 5 is NaN", score, PROBS, changed(np.zeros(N), 5, math.nan))
    rejects(r"u: .*shape", score, PROBS, np.zeros((N, K)))


def test_raps_must_have_a_penalty_and_a_rank_that_are_not_negative():
    rejects("penalty: found -1", raps, PROBS, penalty=-1)
    rejects("penalty: found nan", raps, PROBS, penalty=math.nan)
    rejects("k_reg: found -1", raps, PROBS, k_reg=-1)


@pytest.mark.parametrize("function", [search, trace])
def test_scores_must_be_a_table_of_numbers(function):
    rejects(
        r"scores: row 5, column 2 is NaN", function, changed(SCORES, (5, 2), math.nan)
    )
    rejects(r"scores: .*shape \(12,\)", function, SCORES[:, 0])
    rejects(r"scores: found no rows", function, SCORES[:0], Y[:0], GROUPS[:0])
    rejects(r"scores: .*wanted numbers", function, changed(SCORES, (0, 0), "high"))


def test_quantile_needs_numbers_and_a_level():
    rejects("scores: found no entries", conformal_quantile, [], 0.1)
    rejects("scores: entry 1 is NaN", conformal_quantile, [0.0, math.nan], 0.1)
    rejects(r"scores: .*shape \(12, 3\)", conformal_quantile, SCORES, 0.1)


ALPHA = [functools.partial(conformal_quantile, SCORES[:, 0]), search, trace, train]


@pytest.mark.parametrize("alpha", [0, 1, -0.1, 1.5, math.nan, "small", None])
@pytest.mark.parametrize("function", ALPHA)
def test_alpha_must_lie_between_zero_and_one(function, alpha):
    rejects(r"alpha: found .*\(0, 1\)", function, alpha=alpha)


@pytest.mark.parametrize("delta", [0, 1, -0.1, math.nan, "small"])
@pytest.mark.parametrize("function", [search, trace, train])
def test_delta_must_lie_between_zero_and_one(function, delta):
    rejects(r"delta: found .*\(0, 1\)", function, delta=delta, guarantee="fixed-sequence")


@pytest.mark.filterwarnings("ignore:disparate_impact within 1")
@pytest.mark.parametrize("closeness", [0, -0.1, 1.01, math.nan, math.inf, "close"])
@pytest.mark.parametrize("metric", ["demographic_parity", "disparate_impact"])
@pytest.mark.parametrize("function", [search, train])
def test_closeness_must_be_above_zero_and_at_most_one(function, metric, closeness):
    rejects(r"closeness: found .*\(0, 1\]", function, metric=metric, closeness=closeness)
    assert function(metric=metric, closeness=1) is not None


@pytest.mark.parametrize("function", [search, trace, measure, tabulate])
def test_labels_must_be_classes(function):
    rejects(r"y: found 3 in row 6; .*0 to 2", function, y=changed(Y, 6, 3))
    rejects(r"y: found -1 in row 6", function, y=changed(Y, 6, -1))
    rejects(r"y: found 0\.5 in row 6", function, y=changed(Y.astype(float), 6, 0.5))
    rejects(r"y: found nan in row 6", function, y=changed(Y.astype(float), 6, math.nan))
    rejects(r"y: .*None", function, y=None)


@pytest.mark.parametrize("function", [search, trace, measure, tabulate])
def test_labels_that_are_words_are_found_where_they_are(function):
    rejects(r"y: found 'yes' in row 6", function, y=changed(Y, 6, "yes"))


def test_classifier_labels_must_be_known():
    rejects(r"y: found 3 in row 6; .*\[0, 1, 2\]", train, y=changed(Y, 6, 3))
    rejects(r"positive_labels: found 9", train, positive_labels=[1, 9])


@pytest.mark.parametrize("function", [search, trace, measure, tabulate])
def test_lengths_must_agree(function):
    rejects(r"y: .*11.* 12 points", function, y=Y[:11])
    rejects(r"groups: found 11 rows for 12 points", function, groups=GROUPS[:11])
    rejects(r"groups: found 13 rows for 12 points", function, groups=[*GROUPS, "a"])
    rejects(
        r"groups: found 11 rows",
        function,
        groups=pd.DataFrame({"one": GROUPS, "two": GROUPS})[:11],
    )


def test_classifier_lengths_must_agree():
    rejects(r"y: .*11.* 12 points", train, y=Y[:11])
    rejects(r"groups: found 11 rows for 12 points", train, groups=GROUPS[:11])


@pytest.mark.parametrize("function", [search, trace, measure, tabulate, train])
@pytest.mark.parametrize("missing", [None, math.nan, pd.NA, pd.NaT])
def test_groups_must_not_be_missing(function, missing):
    groups = [*GROUPS[:5], missing, *GROUPS[6:]]
    rejects("groups: row 5 is missing", function, groups=groups)
    rejects("groups: row 5 is missing", function, groups=pd.Series(groups, dtype=object))
    frame = pd.DataFrame({"sex": GROUPS, "region": pd.Series(groups, dtype=object)})
    rejects("groups: column 'region': row 5 is missing", function, groups=frame)
    rejects(
        "groups: .*row 5 is missing", function, groups=[*zip(GROUPS, groups, strict=True)]
    )
    rejects("groups: found None", function, groups=None)


@pytest.mark.parametrize("function", [search, trace, measure, tabulate, train])
def test_metric_must_be_known(function):
    rejects("metric: found 'parity'; .*'demographic_parity'", function, metric="parity")
    rejects("metric: found None", function, metric=None)
    rejects("metric: found 3", function, metric=3)


def test_own_metric_must_have_a_filter_and_a_known_comparison():
    rejects(
        "compare: found 'quotient'; .*'ratio'",
        FairnessMetric,
        "own",
        lambda y, g, a, label: g == a,
        "quotient",
    )
    rejects("filter: found 'sex'; .*callable", FairnessMetric, "own", "sex")


@pytest.mark.parametrize("function", [search, trace, measure])
def test_own_filter_must_return_a_mask(function):
    rejects(
        "filter: .*'a'.*label 1.*shape",
        function,
        metric=FairnessMetric("own", lambda y, g, a, label: y[:3] == 1),
    )
    rejects(
        "filter: .*int64",
        function,
        metric=FairnessMetric("own", lambda y, g, a, label: np.arange(len(y))),
    )


@pytest.mark.parametrize("function", [search, trace, train])
def test_guarantee_must_be_known(function):
    rejects(
        "guarantee: found 'some'; .*'none'.*'fixed-sequence'", function, guarantee="some"
    )
    rejects("guarantee: found None", function, guarantee=None)


@pytest.mark.parametrize("function", [search, trace, measure, tabulate])
def test_positive_labels_must_be_classes(function):
    rejects("positive_labels: found 3; .*0 to 2", function, positive_labels=[1, 3])
    rejects("positive_labels: found -1", function, positive_labels=[-1])
    rejects("positive_labels: found none", function, positive_labels=[])


def test_a_single_class_has_nothing_to_be_unfair_about():
    scores = np.linspace(0, 1, N)[:, None]
    result = find_threshold(scores, 0 * Y, GROUPS, "demographic_parity", 0.1)
    assert result.feasible and result.threshold.tolist() == [result.base_threshold]


@pytest.mark.parametrize("function", [search, trace])
def test_scores_above_one_with_a_guarantee_ask_for_a_grid(function):
    scores = changed(SCORES, (3, 1), 1.25)
    rejects(r"grid: .*1\.25", function, scores, guarantee="fixed-sequence")
    function(scores, guarantee="fixed-sequence", grid=np.linspace(0, 2, 50))
    function(scores)


@pytest.mark.parametrize("function", [search, trace, train])
def test_grid_must_be_numbers(function):
    rejects(
        "grid: entry 1 is NaN", function, guarantee="fixed-sequence", grid=[0.5, math.nan]
    )
    rejects("grid: found no entries", function, guarantee="fixed-sequence", grid=[])
    rejects("grid: .*shape", function, guarantee="fixed-sequence", grid=[[0.5]])
    rejects("grid: .*numbers", function, guarantee="fixed-sequence", grid=["low"])


def test_thresholds_must_fit_the_scores():
    rejects(r"threshold: .*shape \(2,\).*3", prediction_sets, SCORES, [0.5, 0.5])
    rejects("threshold: found NaN", prediction_sets, SCORES, math.nan)
    rejects(
        "scores: row 0, column 0 is NaN",
        prediction_sets,
        changed(SCORES, (0, 0), math.nan),
        0.5,
    )


def test_sets_must_be_true_or_false():
    for function in (coverage, measure, tabulate):
        rejects(
            "sets: found .*0.3.* in row 2, column 1",
            function,
            changed(SETS * 1.0, (2, 1), 0.3),
            Y,
            *[GROUPS][: function is not coverage],
        )
    rejects(r"sets: found shape \(12,\)", efficiency, SETS[:, 0])
    rejects(r"sets: found shape \(0, 3\)", efficiency, SETS[:0])
    rejects(r"y: found 3 in row 6", coverage, SETS, changed(Y, 6, 3))


def test_classifier_options_must_be_known():
    rejects("conformity_score: found 'lac'; .*'aps'", train, conformity_score="lac")
    rejects("random_state: found 'x'", train, random_state="x")
    rejects("groups: found None", FairConformalClassifier().fit, PROBS, Y)


def test_new_points_must_have_the_classes_of_the_calibration():
    fair = train(alpha=0.3, closeness=1)
    rejects(r"probabilities: found 2 columns; wanted 3", fair.predict_set, [[0.5, 0.5]])
    rejects(
        r"probabilities: row 1 sums to 1\.4",
        fair.predict_set,
        [[0.5, 0.5, 0], [0.4, 0.5, 0.5]],
    )

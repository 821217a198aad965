"""Intervals: regions of outcomes stand for labels."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom
from sklearn.base import clone
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression, QuantileRegressor

from cfhelpers import FairConformalRegressor
from cfhelpers.conformal import conformal_quantile
from cfhelpers.control import find_threshold
from cfhelpers.fairness import disparity
from cfhelpers.regression import (
    interval_scores,
    region_names,
    region_of,
    region_scores,
    residual_grid,
)

NUMBERS = st.integers(-20, 20).map(lambda value: value / 2)


@pytest.fixture(scope="module")
def drawn():
    """Predictions, outcomes and groups; B's outcomes are harder to predict."""
    rng = np.random.default_rng(0)
    groups = rng.choice(["A", "B"], 6000, p=[0.7, 0.3])
    prediction = rng.normal(60, 20, 6000)
    noise = rng.normal(size=6000) * np.where(groups == "A", 8, 14)
    return prediction, prediction + noise, groups


@pytest.fixture
def parts(drawn):
    prediction, y, groups = drawn
    calibration = slice(0, 3000)
    training = slice(3000, 6000)
    data = (prediction[calibration], y[calibration], groups[calibration])
    return data, (prediction[training], y[training])


def interval_meets(lower, upper, threshold, begin, end):
    """Whether [lower - λ, upper + λ] is not empty and meets the closed region."""
    low = lower - threshold
    high = upper + threshold
    return low <= high and low <= end and high >= begin


@settings(max_examples=300, deadline=None)
@given(NUMBERS, NUMBERS, st.lists(NUMBERS, min_size=1, max_size=4, unique=True), NUMBERS)
def test_a_region_is_met_exactly_from_its_score_on(lower, upper, edges, threshold):
    edges = sorted(edges)
    scores = region_scores([lower], [upper], edges)[0]
    ends = [-np.inf, *edges, np.inf]
    for region, score in enumerate(scores):
        meets = interval_meets(lower, upper, threshold, ends[region], ends[region + 1])
        assert (score <= threshold) == meets


@settings(max_examples=300, deadline=None)
@given(NUMBERS, NUMBERS, st.lists(NUMBERS, min_size=1, max_size=4, unique=True), NUMBERS)
def test_an_outcome_in_the_interval_has_its_region_met(lower, upper, edges, y):
    edges = sorted(edges)
    own = interval_scores([lower], [upper], [y])[0]
    scores = region_scores([lower], [upper], edges)[0]
    region = region_of([y], edges)[0]
    assert scores[region] <= own
    assert scores.min() == (lower - upper) / 2


def test_regions_are_half_open_and_cover_the_line():
    edges = [0.0, 50.0]
    assert region_of([-0.1, 0.0, 49.9, 50.0, 1e9], edges).tolist() == [0, 1, 1, 2, 2]
    assert region_names(edges) == ["below 0", "0 to 50", "50 and above"]


def test_equal_coverage_of_intervals_is_the_search_over_the_outcomes_scores(parts):
    (prediction, y, groups), training = parts
    scores = interval_scores(prediction, prediction, y)
    for guarantee in ("none", "fixed-sequence"):
        fair = FairConformalRegressor(guarantee=guarantee)
        fair.fit(prediction, y, groups, training=training)
        grid = residual_grid(interval_scores(training[0], training[0], training[1]))
        wanted = find_threshold(
            scores[:, None],
            np.zeros(len(y), int),
            groups,
            "overall_accuracy_equality",
            guarantee=guarantee,
            grid=grid,
        )
        assert fair.threshold_ == pytest.approx(wanted.threshold[0])
        assert fair.base_threshold_ == pytest.approx(conformal_quantile(scores, 0.1))
        assert fair.threshold_ >= fair.base_threshold_


def test_regions_stand_for_labels(parts):
    (prediction, y, groups), _ = parts
    ends = np.stack([prediction - 5, prediction + 5], axis=1)
    fair = FairConformalRegressor(
        regions=[50], metric="equal_opportunity", closeness=0.03, guarantee="none"
    ).fit(ends, y, groups)
    wanted = find_threshold(
        region_scores(*ends.T, [50]),
        region_of(y, [50]),
        groups,
        "equal_opportunity",
        0.03,
        positive_labels=[0, 1],
        base_scores=interval_scores(*ends.T, y),
    )
    assert fair.threshold_ == pytest.approx(wanted.threshold[0])
    sets = fair.predict_regions(ends)
    intervals = fair.predict_interval(ends)
    assert (sets[:, 0] == (intervals[:, 0] <= 50)).all()
    assert (sets[:, 1] == (intervals[:, 1] >= 50)).all()


def test_intervals_need_no_groups_and_survive_json(parts):
    (prediction, y, groups), training = parts
    fair = FairConformalRegressor().fit(prediction, y, groups, training=training)
    intervals = fair.predict_interval(prediction)
    assert ((intervals[:, 0] <= y) & (y <= intervals[:, 1])).mean() >= 0.9
    width = np.diff(intervals, axis=1)
    np.testing.assert_allclose(width, 2 * fair.threshold_, rtol=1e-6)
    served = FairConformalRegressor.from_dict(json.loads(json.dumps(fair.to_dict())))
    assert (served.predict_interval(prediction) == intervals).all()
    for row in range(5):
        alone = fair.predict_interval(prediction[row : row + 1])
        assert (alone[0] == intervals[row]).all()
    with pytest.raises(ValueError, match="groups: found some"):
        fair.predict_interval(prediction, groups=groups)


def test_one_quantile_per_group_asks_for_the_group(parts):
    (prediction, y, groups), training = parts
    fair = FairConformalRegressor(per_group=True)
    fair.fit(prediction, y, groups, training=training)
    scores = np.abs(y - prediction)
    for place, name in enumerate(["A", "B"]):
        wanted = conformal_quantile(scores[groups == name], 0.1)
        assert fair.threshold_[place] == pytest.approx(wanted)
    widths = np.diff(fair.predict_interval([0.0, 0.0], groups=["A", "B"]), axis=1)
    assert widths[0] < widths[1]
    with pytest.raises(ValueError, match="groups: found None"):
        fair.predict_interval([0.0])
    with pytest.raises(ValueError, match="found 'C'"):
        fair.predict_interval([0.0], groups=["C"])
    assert fair.summary_["asks for the group"].sum() == 1
    assert fair.summary_.loc["fair without groups", "gap"] <= 0.1
    served = FairConformalRegressor.from_dict(json.loads(json.dumps(fair.to_dict())))
    again = np.diff(served.predict_interval([0.0, 0.0], groups=["A", "B"]), axis=1)
    assert (again == widths).all()


def test_any_model_with_predict_or_two_for_quantiles(parts):
    (prediction, y, groups), training = parts
    X = prediction[:300, None]
    line = LinearRegression().fit(training[0][:, None], training[1])
    lower = QuantileRegressor(quantile=0.05, alpha=0).fit(X, y[:300])
    upper = QuantileRegressor(quantile=0.95, alpha=0).fit(X, y[:300])
    for model in (line, (lower, upper)):
        fair = FairConformalRegressor(model, closeness=0.2)
        fair.fit(
            prediction[:, None], y, groups, training=(training[0][:, None], training[1])
        )
        intervals = fair.predict_interval(prediction[:, None])
        assert ((intervals[:, 0] <= y) & (y <= intervals[:, 1])).mean() >= 0.9
        assert fair.predict(prediction[:, None]).shape == y.shape
        copy = clone(fair)
        assert copy.estimator is fair.estimator
        assert not hasattr(copy, "threshold_")
    assert fair.score(prediction[:, None], y) > 0.5


class Forest:
    """A model whose predict takes quantiles, as quantile forests do."""

    def predict(self, X, quantiles=None):
        half = np.array([-10.0, 10.0]) if quantiles == [0.05, 0.95] else np.zeros(1)
        return np.asarray(X)[:, :1] + half


def test_a_model_that_takes_quantiles_is_asked_for_them(parts):
    (prediction, y, groups), _ = parts
    fair = FairConformalRegressor(Forest(), guarantee="none")
    fair.fit(prediction[:, None], y, groups)
    assert fair.has_quantiles_
    scores = interval_scores(prediction - 10, prediction + 10, y)
    assert fair.base_threshold_ == pytest.approx(conformal_quantile(scores, 0.1))


def test_intervals_that_nothing_is_left_of_are_missing():
    lower = np.array([0.0, 0.0, 10.0])
    upper = np.array([100.0, 2.0, 0.0])
    fair = FairConformalRegressor(guarantee="none", alpha=0.5, closeness=1.0)
    rng = np.random.default_rng(0)
    ends = np.tile([0.0, 100.0], (100, 1))
    fair.fit(ends, rng.normal(50, 1, 100), np.arange(100) % 2)
    assert fair.threshold_ < 0
    intervals = fair.predict_interval(np.stack([lower, upper], axis=1))
    assert np.isfinite(intervals[0]).all()
    assert np.isnan(intervals[1:]).all()


def test_a_guarantee_wants_a_grid_that_no_calibration_point_chose(parts):
    (prediction, y, groups), _ = parts
    with pytest.raises(ValueError, match=r"grid: found None.*training=\(X, y\)"):
        FairConformalRegressor().fit(prediction, y, groups)
    own = FairConformalRegressor(grid=np.arange(0, 200, 0.5))
    assert own.fit(prediction, y, groups).result_.feasible


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "equal_opportunity"}, "regions: found None for equal_opportunity"),
        ({"regions": []}, "regions: found"),
        ({"regions": [2, 1]}, "ascending"),
        ({"regions": [np.inf]}, "finite"),
        ({"regions": ["high"]}, "wanted numbers"),
        ({"regions": [50], "metric": "demographic_parity", "positive_regions": [2]},
         "positive_regions: found 2"),
        ({"alpha": 2}, "alpha: found 2"),
        ({"guarantee": "yes"}, "guarantee: found 'yes'"),
        ({"per_group": "yes"}, "per_group: found 'yes'"),
        ({"estimator": DummyRegressor}, "wanted a fitted model"),
        ({"estimator": (1, 2, 3)}, "found 3 models"),
    ],
)  # fmt: skip
def test_bad_options_are_refused_by_name(parts, options, message):
    (prediction, y, groups), training = parts
    with pytest.raises(ValueError, match=message):
        FairConformalRegressor(**options).fit(
            prediction[:, None], y, groups, training=(training[0][:, None], training[1])
        )


def test_bad_numbers_are_refused_by_name(parts):
    (prediction, y, groups), training = parts
    fair = FairConformalRegressor()
    with pytest.raises(ValueError, match="y: entry 0 is NaN"):
        fair.fit(prediction, np.full(3000, np.nan), groups, training=training)
    with pytest.raises(ValueError, match="predictions: entry 0 is infinite"):
        fair.fit(np.full(3000, np.inf), y, groups, training=training)
    with pytest.raises(ValueError, match="y: found 10 entries for 3000 points"):
        fair.fit(prediction, y[:10], groups, training=training)
    with pytest.raises(ValueError, match="groups: found None"):
        fair.fit(prediction, y)
    fair.fit(prediction, y, groups, training=training)
    with pytest.raises(ValueError, match="predictions: found 2 columns"):
        fair.predict_interval(np.zeros((3, 2)))


def test_two_columns_are_matched_by_their_names(parts):
    prediction, y, groups = (each[:400] for each in parts[0])
    frame = pd.DataFrame({"low": prediction - 1, "high": prediction + 1})
    fair = FairConformalRegressor(guarantee="none").fit(frame, y, groups)
    served = FairConformalRegressor.from_dict(json.loads(json.dumps(fair.to_dict())))
    for each in (fair, served):
        there = each.predict_interval(frame)
        assert np.array_equal(each.predict_interval(frame[["high", "low"]]), there)
        assert np.array_equal(each.predict_interval(frame.to_numpy()), there)
        with pytest.raises(ValueError, match="predictions: found the columns"):
            each.predict_interval(frame.rename(columns={"low": "lower"}))


def test_frames_lists_and_overlapping_groups_are_taken(parts):
    (prediction, y, groups), _ = parts
    table = pd.DataFrame({"A": groups == "A", "tall": np.arange(3000) % 3 == 0})
    fair = FairConformalRegressor(guarantee="none")
    fair.fit(pd.Series(prediction), y.tolist(), table)
    assert fair.promise_.groups == ["A", "tall"]
    assert "one threshold per group (Mondrian)" not in fair.summary_.index


def test_weights_thin_the_calibration_points(parts):
    (prediction, y, groups), training = parts
    own = np.where(prediction > 60, 1.0, 0.5)
    fair = FairConformalRegressor(random_state=0)
    fair.fit(prediction, y, groups, training=training, sample_weight=own, weight_bound=1)
    assert fair.weighting_.n_kept < 3000
    unit = FairConformalRegressor(random_state=0).fit(
        prediction, y, groups, training=training, sample_weight=np.ones(3000)
    )
    plain = FairConformalRegressor(random_state=0).fit(
        prediction, y, groups, training=training
    )
    assert unit.threshold_ == plain.threshold_


def test_unlabelled_people_count_for_demographic_parity_of_regions(parts):
    (prediction, y, groups), training = parts
    fair = FairConformalRegressor(regions=[50], metric="demographic_parity", delta=0.2)
    alone = fair.fit(prediction, y, groups, training=training).result_.bound
    more = (training[0], np.where(np.arange(3000) % 2, "A", "B"))
    both = fair.fit(prediction, y, groups, training, more).result_.bound
    assert (both < alone).all()


def test_the_promise_about_a_region_holds_where_the_gap_is_just_beyond_c():
    rng = np.random.default_rng(0)
    n_draws = 60
    failed = 0
    for _ in range(n_draws):
        groups = rng.integers(0, 2, 500)
        y = np.where(rng.random(500) < 0.5, 60.0, 40.0)
        share = np.where(groups == 0, 0.95, 0.8499)
        prediction = np.where(rng.random(500) < share, 45.0, 20.0)
        fair = FairConformalRegressor(
            regions=[50.0],
            metric="equal_opportunity",
            alpha=0.9,
            positive_regions=[1],
            grid=np.arange(0.0, 50.0, 2.5),
        ).fit(prediction, y, groups)
        failed += fair.threshold_ < 30
    # A test that errs in a tenth of draws gives more than this in 1 of 10⁶ runs.
    assert failed <= binom.ppf(1 - 1e-6, n_draws, 0.1)


@pytest.mark.parametrize("metric", ["set_size", "singletons"])
def test_sizes_are_how_many_regions_an_interval_meets(parts, metric):
    (prediction, y, groups), _ = parts
    options = {"metric": metric, "guarantee": "none", "closeness": 0.4}
    with pytest.raises(ValueError, match=f"regions: found None for {metric}"):
        FairConformalRegressor(**options).fit(prediction, y, groups)
    spread = prediction + np.where(groups == "A", 0, 40)  # B's reach higher regions
    fair = FairConformalRegressor(regions=[60, 120], **options).fit(spread, y, groups)
    met = fair.predict_regions(spread)
    gap = disparity(met, region_of(y, [60, 120]), groups, metric)
    assert fair.summary_["gap"].iloc[0] == pytest.approx(gap)
    assert fair.result_.bound[0] == pytest.approx(gap, abs=0.01)
    assert gap > 0.01

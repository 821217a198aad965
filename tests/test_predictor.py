"""`FairConformalClassifier`: scikit-learn conventions, and what it promises its users."""

import functools
import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from cfhelpers import FairConformalClassifier
from cfhelpers.conformal import conformal_quantile, coverage, prediction_sets
from cfhelpers.control import find_threshold
from cfhelpers.datasets.populations import two_groups
from cfhelpers.fairness import FairnessMetric
from cfhelpers.predictor import InfeasibleWarning, SmallGroupsWarning
from cfhelpers.scores import aps, person_u, raps, tps

LOOSE = {"closeness": 0.3, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    """Three classes that two features tell apart, less well in group b.

    Three parts: train, calibration and test.
    """
    rng = np.random.default_rng(0)
    n = 6000
    y = rng.integers(0, 3, n)
    groups = np.where(rng.random(n) < 0.7, "a", "b")
    centres = np.array([[0, 0], [2, 0], [0, 2]])
    X = centres[y] + rng.normal(0, 1, (n, 2)) * np.where(groups == "a", 1, 1.4)[:, None]
    frame = pd.DataFrame(X, columns=["height", "weight"])
    parts = {}
    for name, rows in (
        ("train", slice(0, 2000)),
        ("calibration", slice(2000, 4000)),
        ("test", slice(4000, n)),
    ):
        parts[name] = (frame[rows], y[rows], groups[rows])
    return parts


@pytest.fixture(scope="module")
def model(data):
    X, y, _ = data["train"]
    return LogisticRegression().fit(X, y)


@pytest.fixture(scope="module")
def fair(data, model):
    return FairConformalClassifier(model, **LOOSE).fit(*data["calibration"])


def test_defaults_are_those_that_keep_the_promise():
    params = FairConformalClassifier().get_params()
    wanted = {
        "estimator": None,
        "conformity_score": "tps",
        "metric": "equal_opportunity",
        "closeness": None,
        "alpha": 0.1,
        "classwise": True,
        "guarantee": "fixed-sequence",
        "delta": 0.1,
        "positive_labels": None,
        "small_groups": "keep",
        "randomized": True,
        "random_state": None,
    }
    assert {name: params[name] for name in wanted} == wanted


def test_parameters_can_be_read_and_set(model):
    fair = FairConformalClassifier(model, conformity_score="aps", alpha=0.2)
    assert fair.get_params(deep=False)["conformity_score"] == "aps"
    assert fair.set_params(alpha=0.3, metric="demographic_parity") is fair
    assert (fair.alpha, fair.metric) == (0.3, "demographic_parity")
    fair.set_params(estimator=None)
    assert fair.estimator is None
    with pytest.raises(ValueError, match="closenes"):
        fair.set_params(closenes=0.1)


def test_clone_keeps_the_fitted_estimator_and_forgets_the_calibration(data, model, fair):
    copy = clone(fair)
    assert not hasattr(copy, "threshold_")
    X = data["test"][0]
    np.testing.assert_array_equal(copy.estimator.predict_proba(X), model.predict_proba(X))
    copy.fit(*data["calibration"])
    np.testing.assert_array_equal(copy.threshold_, fair.threshold_)
    assert clone(FairConformalClassifier()).estimator is None


def test_fit_leaves_the_estimator_as_it_was(data, model):
    before = model.coef_.copy()
    FairConformalClassifier(model, **LOOSE).fit(*data["calibration"])
    np.testing.assert_array_equal(model.coef_, before)


def test_a_frozen_estimator_is_taken_as_it_is(data, model, fair):
    frozen = FairConformalClassifier(FrozenEstimator(model), **LOOSE).fit(
        *data["calibration"]
    )
    np.testing.assert_array_equal(frozen.threshold_, fair.threshold_)


def test_repr_names_the_class_and_what_was_changed(model):
    text = repr(FairConformalClassifier(model, alpha=0.2))
    assert text.startswith("FairConformalClassifier(")
    assert "LogisticRegression" in text and "alpha=0.2" in text and "delta" not in text
    assert "FairConformalClassifier" in FairConformalClassifier(model)._repr_html_()


def test_fit_returns_itself_and_records_what_it_found(data, model):
    fair = FairConformalClassifier(model, **LOOSE)
    assert fair.fit(*data["calibration"]) is fair
    assert fair.threshold_.shape == (3,) and fair.threshold_.dtype == np.float64
    assert fair.classes_.tolist() == [0, 1, 2]
    assert len(fair.summary_) == 3 and fair.summary_.index.tolist() == [0, 1, 2]


@pytest.mark.parametrize("kind", ["logistic", "forest", "pipeline"])
def test_wraps_any_estimator_with_predict_proba(data, kind):
    X, y, _ = data["train"]
    estimator = {
        "logistic": LogisticRegression(),
        "forest": RandomForestClassifier(50, min_samples_leaf=10, random_state=0),
        "pipeline": make_pipeline(StandardScaler(), LogisticRegression()),
    }[kind].fit(X, y)
    fair = FairConformalClassifier(estimator, **LOOSE).fit(*data["calibration"])
    X, y, _ = data["test"]
    sets = fair.predict_set(X)
    assert sets.shape == (2000, 3) and sets.dtype == bool
    assert coverage(sets, y) >= 0.87 and sets.sum() < sets.size


def test_it_is_the_search_on_the_scores_of_the_estimator(data, model):
    X, y, groups = data["calibration"]
    search = {
        "alpha": 0.2,
        "classwise": True,
        "guarantee": "fixed-sequence",
        "delta": 0.3,
        "positive_labels": [0, 2],
    }
    fair = FairConformalClassifier(
        model, "tps", "demographic_parity", 0.25, **search
    ).fit(X, y, groups)
    result = find_threshold(
        tps(model.predict_proba(X)), y, groups, "demographic_parity", 0.25, **search
    )
    np.testing.assert_array_equal(fair.threshold_, result.threshold)
    new = data["test"][0]
    np.testing.assert_array_equal(
        fair.predict_set(new),
        prediction_sets(tps(model.predict_proba(new)), result.threshold),
    )


def test_probabilities_may_stand_in_for_the_estimator(data, model, fair):
    X, y, groups = data["calibration"]
    direct = FairConformalClassifier(**LOOSE).fit(model.predict_proba(X), y, groups)
    np.testing.assert_array_equal(direct.threshold_, fair.threshold_)
    new = data["test"][0]
    np.testing.assert_array_equal(
        direct.predict_set(model.predict_proba(new)), fair.predict_set(new)
    )


def test_probabilities_may_be_a_frame_with_label_names(data, model):
    X, y, groups = data["calibration"]
    names = np.array(["low", "middle", "high"])
    probs = pd.DataFrame(model.predict_proba(X), columns=names)
    fair = FairConformalClassifier(positive_labels=["middle", "high"], **LOOSE)
    fair.fit(probs, names[y], groups)
    assert fair.classes_.tolist() == names.tolist()
    numbers = FairConformalClassifier(**LOOSE).fit(probs.to_numpy(), y, groups)
    np.testing.assert_array_equal(fair.threshold_, numbers.threshold_)


def test_string_labels_follow_the_classes_of_the_estimator(data):
    names = np.array(["low", "middle", "high"])
    X, y, _ = data["train"]
    estimator = LogisticRegression().fit(X, names[y])
    X, y, groups = data["calibration"]
    fair = FairConformalClassifier(
        estimator, "tps", positive_labels=["low", "middle"], **LOOSE
    )
    fair.fit(X, names[y], groups)
    assert fair.classes_.tolist() == ["high", "low", "middle"]
    codes = np.searchsorted(fair.classes_, names[y])
    search = {"classwise": True, "positive_labels": [1, 2], "guarantee": "fixed-sequence"}
    result = find_threshold(
        tps(estimator.predict_proba(X)), codes, groups, "equal_opportunity", 0.3, **search
    )
    np.testing.assert_array_equal(fair.threshold_, result.threshold)
    assert set(fair.predict(X)) <= set(names)
    X, y, _ = data["test"]
    assert coverage(fair.predict_set(X), np.searchsorted(fair.classes_, names[y])) > 0.87


def test_pandas_in_is_the_same_as_arrays_in(data):
    X, y, _ = data["train"]
    estimator = LogisticRegression().fit(X.to_numpy(), y)
    X, y, groups = data["calibration"]
    arrays = FairConformalClassifier(estimator, **LOOSE).fit(X.to_numpy(), y, groups)
    frames = FairConformalClassifier(estimator, **LOOSE)
    shuffled = pd.RangeIndex(5000, 5000 + len(y))
    frames.fit(
        X.to_numpy(), pd.Series(y, index=shuffled), pd.Series(groups, index=shuffled)
    )
    np.testing.assert_array_equal(frames.threshold_, arrays.threshold_)


def test_groups_may_have_several_columns(data, model):
    X, y, groups = data["calibration"]
    frame = pd.DataFrame({"first": groups, "second": np.arange(len(y)) % 2})
    several = FairConformalClassifier(model, **LOOSE).fit(X, y, frame)
    joined = FairConformalClassifier(model, **LOOSE).fit(
        X, y, frame["first"] + frame["second"].astype(str)
    )
    np.testing.assert_array_equal(several.threshold_, joined.threshold_)


def test_is_the_last_step_of_a_pipeline(data):
    X, y, _ = data["train"]
    scale = StandardScaler().fit(X)
    estimator = LogisticRegression().fit(scale.transform(X), y)
    fair = FairConformalClassifier(estimator, **LOOSE)
    pipe = Pipeline([("scale", FrozenEstimator(scale)), ("fair", fair)])
    X, y, groups = data["calibration"]
    pipe.fit(X, y, fair__groups=groups)
    new, truth, _ = data["test"]
    sets = pipe[-1].predict_set(pipe[:-1].transform(new))
    assert coverage(sets, truth) > 0.87
    assert (pipe.predict(new) == truth).mean() > 0.6
    np.testing.assert_array_equal(
        clone(pipe).fit(X, y, fair__groups=groups)[-1].threshold_, pipe[-1].threshold_
    )


def test_groups_reach_it_by_metadata_routing(data):
    X, y, _ = data["train"]
    scale = StandardScaler().fit(X)
    estimator = LogisticRegression().fit(scale.transform(X), y)
    X, y, groups = data["calibration"]
    wanted = FairConformalClassifier(estimator, **LOOSE).fit(
        scale.transform(X), y, groups
    )
    with sklearn.config_context(enable_metadata_routing=True):
        fair = FairConformalClassifier(estimator, **LOOSE).set_fit_request(groups=True)
        pipe = Pipeline([("scale", FrozenEstimator(scale)), ("fair", fair)]).fit(
            X, y, groups=groups
        )
    np.testing.assert_array_equal(pipe[-1].threshold_, wanted.threshold_)


def test_parameters_can_be_searched_over(data, model):
    X, y, groups = data["calibration"]

    def negative_size(fair, X, y):
        return -fair.predict_set(X).sum(axis=1).mean()

    search = GridSearchCV(
        FairConformalClassifier(model, **LOOSE),
        {"conformity_score": ["tps", "aps"]},
        scoring=negative_size,
        cv=2,
    )
    with sklearn.config_context(enable_metadata_routing=True):
        search.set_params(estimator=search.estimator.set_fit_request(groups=True))
        search.fit(X, y, groups=groups)
    assert search.best_params_["conformity_score"] in ("tps", "aps")
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_a_seed_gives_the_same_sets_twice(data, model, fair):
    new = data["test"][0]
    again = FairConformalClassifier(model, **LOOSE).fit(*data["calibration"])
    np.testing.assert_array_equal(again.threshold_, fair.threshold_)
    np.testing.assert_array_equal(again.predict_set(new), fair.predict_set(new))
    np.testing.assert_array_equal(fair.predict_set(new), fair.predict_set(new))


def test_another_seed_draws_other_random_numbers(data, model):
    one = FairConformalClassifier(model, "aps", **LOOSE).fit(*data["calibration"])
    other = FairConformalClassifier(model, "aps", closeness=0.3, random_state=1)
    other.fit(*data["calibration"])
    new = data["test"][0]
    assert other.result_.base_threshold != one.result_.base_threshold
    assert (other.predict_set(new) != one.predict_set(new)).any()


def test_fit_and_predict_give_a_person_the_same_random_number(data, model):
    X, y, groups = data["calibration"]
    drawn = []

    def watched(probs, u):
        drawn.append(u)
        return aps(probs, u)

    fair = FairConformalClassifier(model, watched, **LOOSE).fit(X, y, groups)
    fair.predict_set(X)
    fair.predict_set(data["test"][0])
    fitted, same, new = drawn
    np.testing.assert_array_equal(fitted, same)
    np.testing.assert_array_equal(fitted, person_u(X, fair.seed_))
    assert abs(np.corrcoef(fitted, new)[0, 1]) < 0.08


@pytest.mark.parametrize(
    "metric", ["equal_opportunity", "disparate_impact", "overall_accuracy_equality"]
)
@pytest.mark.parametrize("score", ["tps", "aps", "raps"])
def test_every_score_keeps_coverage_on_new_points(data, model, score, metric):
    closeness = 0.7 if metric == "disparate_impact" else 0.3
    fair = FairConformalClassifier(model, score, metric, closeness, random_state=0).fit(
        *data["calibration"]
    )
    assert (fair.threshold_ >= fair.result_.base_threshold).all()
    new, truth, _ = data["test"]
    assert coverage(fair.predict_set(new), truth) > 0.87


def test_raps_has_a_grid_over_its_whole_range(data, model):
    X, y, groups = data["calibration"]
    fair = FairConformalClassifier(
        model,
        functools.partial(raps, penalty=2.0, k_reg=1),
        "demographic_parity",
        0.2,
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fair.fit(X, y, groups)
    assert fair.result_.feasible
    assert 1 < fair.threshold_[1:].max() <= 1 + 2.0 * 2


def test_users_own_score_and_metric_are_taken(data, model):
    X, y, groups = data["calibration"]
    metric = FairnessMetric("old labels", lambda y, g, a, label: (g == a) & (y == label))
    own = FairConformalClassifier(model, lambda probs, u: 1 - probs, metric, 0.3).fit(
        X, y, groups
    )
    named = FairConformalClassifier(model, "tps", "equal_opportunity", 0.3).fit(
        X, y, groups
    )
    np.testing.assert_array_equal(own.threshold_, named.threshold_)


def test_groups_are_not_needed_to_predict(data, fair):
    X = data["test"][0]
    assert fair.predict_set(X.iloc[:1]).shape == (1, 3)
    with pytest.raises(ValueError, match="ids: found some; fit was given none"):
        fair.predict_set(X, data["test"][2])


def test_predict_before_fit_says_so(data, model):
    with pytest.raises(NotFittedError, match="FairConformalClassifier"):
        FairConformalClassifier(model).predict_set(data["test"][0])


def test_fit_without_groups_says_so(data, model):
    X, y, _ = data["calibration"]
    with pytest.raises(ValueError, match="groups: found None"):
        FairConformalClassifier(model).fit(X, y)


def test_a_small_calibration_set_is_told_what_blocks_and_what_would_do(data, model):
    X, y, groups = (part[:60] for part in data["calibration"])
    fair = FairConformalClassifier(model, random_state=0)
    with pytest.warns(UserWarning) as caught:
        fair.fit(X, y, groups)
    (message,) = [str(warning.message) for warning in caught]
    result = fair.result_
    assert not result.feasible and len(result.blocking_cells) > 0
    for group, label, n in result.blocking_cells:
        assert f"{group!r}, {label}" in message and str(n) in message
    assert f"{result.smallest_closeness:.4g}" in message
    assert "guarantee='none'" in message or 'guarantee="none"' in message
    assert fair.predict_set(X)[:, 1:].all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FairConformalClassifier(
            model, guarantee="none", closeness=0.5, random_state=0
        ).fit(X, y, groups)


def test_enough_calibration_points_do_not_warn(data, model):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FairConformalClassifier(model, **LOOSE).fit(*data["calibration"])


@pytest.mark.slow
def test_default_guarantee_holds_over_calibrations():
    """True gap of equal opportunity over 60 calibrations, and coverage on average."""
    population, rng = two_groups(), np.random.default_rng(9)
    probs, y, groups = population.draw(200_000, rng)
    exceeds, covered = 0, []
    for seed in range(60):
        fair = FairConformalClassifier(alpha=0.3, random_state=seed, closeness=0.15)
        fair.fit(*population.draw(6000, rng))
        sets = fair.predict_set(probs)
        held = sets[np.arange(len(y)), y]
        gaps = [
            abs(np.subtract(*[held[(groups == a) & (y == label)].mean() for a in "AB"]))
            for label in (1, 2)
        ]
        exceeds += max(gaps) > 0.15
        covered.append(held.mean())
        assert fair.result_.feasible
    assert exceeds <= 6
    assert np.mean(covered) >= 0.7


def test_base_threshold_is_the_conformal_quantile(data, model):
    X, y, groups = data["calibration"]
    fair = FairConformalClassifier(model, "tps", **LOOSE).fit(X, y, groups)
    true_scores = tps(model.predict_proba(X))[np.arange(len(y)), y]
    assert fair.result_.base_threshold == conformal_quantile(true_scores, 0.1)


def test_the_summary_has_the_threshold_of_every_label_beside_its_name(data):
    names = np.array(["c", "a", "b"])  # sorted, the labels have another order
    X, y, _ = data["train"]
    estimator = LogisticRegression().fit(X, names[y])
    X, y, groups = data["calibration"]
    fair = FairConformalClassifier(
        estimator, "tps", closeness=0.03, positive_labels=["a", "c"], guarantee="none"
    ).fit(X, names[y], groups)
    summary = fair.summary_
    assert summary.index.tolist() == ["a", "b", "c"]
    assert summary["threshold"].nunique() == 3
    assert summary["threshold"].to_dict() == dict(
        zip(fair.classes_, fair.threshold_, strict=True)
    )
    counts = pd.Series(names[y]).value_counts()
    assert summary["calibration points"].to_dict() == counts.to_dict()
    assert summary["threshold"]["b"] == fair.result_.base_threshold
    assert summary["gap"].isna().to_dict() == {"a": False, "b": True, "c": False}
    # A label is in a set exactly if its score is at most the threshold beside its name.
    new = data["test"][0]
    scores = pd.DataFrame(1 - estimator.predict_proba(new), columns=estimator.classes_)
    wanted = scores.le(summary["threshold"])[fair.classes_]
    np.testing.assert_array_equal(fair.predict_set(new), wanted)


@pytest.mark.parametrize(
    "closeness, needed", [(0.05, 59), (0.1, 31)]
)  # delta = .1 is shared by two labels
def test_the_number_of_points_that_the_warning_names_is_enough_and_one_less_is_not(
    closeness, needed
):
    def fit(n):
        probs = np.full((4 * n, 2), 0.5)
        y = np.tile([0, 1], 2 * n)
        groups = np.repeat(["a", "b"], 2 * n)
        fair = FairConformalClassifier(closeness=closeness, positive_labels=[0, 1])
        return fair.fit(probs, y, groups)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fit(needed).result_.feasible
    with pytest.warns(UserWarning, match=rf"fewer than the {needed} points needed"):
        few = fit(needed - 1)
    assert few.result_.points_needed == needed
    assert few.result_.blocking_cells == [
        (group, label, needed - 1) for label in (0, 1) for group in ("a", "b")
    ]


def named_probabilities(data, model):
    """Probabilities of the calibration and of new points, with the labels' names."""
    names = ["low", "middle", "high"]
    X, y, groups = data["calibration"]
    probs = pd.DataFrame(model.predict_proba(X), columns=names)
    new = pd.DataFrame(model.predict_proba(data["test"][0]), columns=names)
    return probs, np.array(names)[y], groups, new


@pytest.mark.parametrize("score", ["tps", "aps"])
def test_columns_of_probabilities_are_matched_by_name_in_any_order(data, model, score):
    probs, y, groups, new = named_probabilities(data, model)
    fair = FairConformalClassifier(conformity_score=score, **LOOSE).fit(probs, y, groups)
    turned = new[["high", "low", "middle"]]
    np.testing.assert_array_equal(fair.predict_set(turned), fair.predict_set(new))
    np.testing.assert_array_equal(fair.predict(turned), fair.predict(new))
    np.testing.assert_array_equal(fair.predict_proba(turned), fair.predict_proba(new))


def test_other_names_of_columns_are_refused(data, model):
    probs, y, groups, new = named_probabilities(data, model)
    fair = FairConformalClassifier(**LOOSE).fit(probs, y, groups)
    renamed = new.rename(columns={"low": "poor"})
    for method in (fair.predict_set, fair.predict, fair.predict_proba):
        with pytest.raises(ValueError, match=r"\['poor'\].* no \['low'\]"):
            method(renamed)
        with pytest.raises(ValueError, match=r"without names; wanted .*'low', 'middle'"):
            method(new.to_numpy())
    with pytest.raises(ValueError, match="found the column 'low' twice"):
        fair.predict_set(new[["low", "low", "high"]])
    with pytest.raises(ValueError, match=r"no \['high'\]"):
        fair.predict_set(new[["low", "middle"]])
    unnamed = FairConformalClassifier(**LOOSE).fit(
        probs.to_numpy(), data["calibration"][1], groups
    )
    with pytest.raises(ValueError, match=r"'low'.*which fit did not have"):
        unnamed.predict_set(new)
    plain_frame = pd.DataFrame(new.to_numpy())
    np.testing.assert_array_equal(
        unnamed.predict_set(plain_frame[[2, 0, 1]]), unnamed.predict_set(new.to_numpy())
    )


def test_numbered_columns_are_the_labels_of_their_numbers(data, model):
    X, y, groups = data["calibration"]
    probs = pd.DataFrame(model.predict_proba(X), columns=["p_0", "p_1", "p_2"])
    wanted = FairConformalClassifier(**LOOSE).fit(probs.to_numpy(), y, groups)
    turned = FairConformalClassifier(**LOOSE).fit(probs[["p_2", "p_0", "p_1"]], y, groups)
    assert turned.classes_.tolist() == [2, 0, 1]
    assert turned.promise_.labels == [2, 1]
    np.testing.assert_array_equal(turned.threshold_, wanted.threshold_[[2, 0, 1]])
    assert (turned.predict(probs) == wanted.predict(probs.to_numpy())).all()


def test_features_are_checked_as_scikit_learn_does(data, model, fair):
    X = data["test"][0]
    assert fair.n_features_in_ == 2
    assert fair.feature_names_in_.tolist() == ["height", "weight"]
    with pytest.raises(ValueError, match="feature names"):
        fair.predict_set(X[["weight", "height"]])
    with pytest.raises(ValueError, match="feature names"):
        fair.predict_set(X.rename(columns={"weight": "mass"}))
    arrays = FairConformalClassifier(LogisticRegression().fit(X.to_numpy(), X.index % 3))
    arrays.set_params(**LOOSE)
    arrays.fit(X.to_numpy(), X.index % 3, X.index % 2)
    with pytest.raises(ValueError, match="3 features"):
        arrays.predict_set(np.ones((2, 3)))


def test_labels_with_names_are_all_fair_and_numbered_ones_all_but_the_first(data, model):
    probs, y, groups, _ = named_probabilities(data, model)
    named = FairConformalClassifier(**LOOSE).fit(probs, y, groups)
    assert named.promise_.labels == ["low", "middle", "high"]
    assert not named.summary_["gap"].isna().any()
    X, y, groups = data["calibration"]
    numbered = FairConformalClassifier(model, **LOOSE).fit(X, y, groups)
    assert numbered.promise_.labels == [1, 2]
    approve = LogisticRegression().fit(X, np.where(y == 0, "approve", "deny"))
    two = FairConformalClassifier(approve, **LOOSE)
    two.fit(X, np.where(y == 0, "approve", "deny"), groups)
    assert two.promise_.labels == ["approve", "deny"]


def test_messages_name_labels_as_the_user_does(data):
    names = np.array(["low", "middle", "high"])
    X, y, _ = data["train"]
    estimator = LogisticRegression().fit(X, names[y])
    X, y, groups = (part[:60] for part in data["calibration"])
    fair = FairConformalClassifier(estimator, random_state=0)
    with pytest.warns(InfeasibleWarning) as caught:
        fair.fit(X, names[y], groups)
    message = str(caught[0].message)
    assert "('b', low)" in message and "('b', 1)" not in message
    assert {label for _, label, _ in fair.result_.blocking_cells} <= set(names)


@pytest.mark.parametrize(
    "positive", [[False, True, True], np.array([True, False, False]), [True]]
)
def test_positive_labels_are_labels_and_no_mask(data, model, positive):
    with pytest.raises(ValueError, match="positive_labels: found the mask"):
        FairConformalClassifier(model, positive_labels=positive, **LOOSE).fit(
            *data["calibration"]
        )
    with pytest.raises(ValueError, match="positive_labels: found the mask"):
        find_threshold(
            np.eye(3), [0, 1, 2], [0, 0, 1], "equal_opportunity", positive_labels=positive
        )


def test_true_and_false_may_be_labels(data):
    X, y, _ = data["train"]
    estimator = LogisticRegression().fit(X, y > 0)
    X, y, groups = data["calibration"]
    fair = FairConformalClassifier(estimator, positive_labels=[True], **LOOSE)
    fair.fit(X, y > 0, groups)
    assert fair.classes_.tolist() == [False, True] and fair.promise_.labels == [True]
    numbers = LogisticRegression().fit(X, (y > 0).astype(int))
    direct = FairConformalClassifier(numbers, **LOOSE).fit(X, y > 0, groups)
    assert direct.promise_.labels == [1]
    three = FairConformalClassifier(LogisticRegression().fit(X, y), **LOOSE)
    with pytest.raises(ValueError, match="y: found"):
        three.fit(X, y > 0, groups)
    with pytest.raises(ValueError, match="y: found False in row 0"):
        find_threshold(np.eye(3), [False, True, True], [0, 0, 1], "equal_opportunity")


def test_masked_labels_and_scores_are_missing():
    y = np.ma.array([0, 1, 1], mask=[0, 1, 0])
    with pytest.raises(ValueError, match="y: found None in row 1"):
        find_threshold(np.ones((3, 2)), y, [0, 0, 1], "equal_opportunity")
    scores = np.ma.array(np.ones((3, 2)), mask=[[0, 0], [0, 1], [0, 0]])
    with pytest.raises(ValueError, match="scores: row 1, column 1 is NaN"):
        find_threshold(scores, [0, 1, 1], [0, 0, 1], "equal_opportunity")


def test_score_is_the_accuracy_of_the_most_likely_label(data, model, fair):
    X, y, _ = data["test"]
    assert fair.score(X, y) == model.score(X, y)


def test_a_search_without_scoring_uses_it(data, model):
    X, y, groups = data["calibration"]
    search = GridSearchCV(
        FairConformalClassifier(model, **LOOSE), {"alpha": [0.1, 0.2]}, cv=2
    )
    with sklearn.config_context(enable_metadata_routing=True):
        search.set_params(estimator=search.estimator.set_fit_request(groups=True))
        search.fit(X, y, groups=groups)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.filterwarnings("ignore:The groups parameter is ignored")  # scikit-learn's
def test_a_search_without_metadata_routing_is_told_what_to_set(data, model):
    X, y, groups = data["calibration"]
    search = GridSearchCV(FairConformalClassifier(model), {"alpha": [0.1]}, cv=2)
    with pytest.raises(
        ValueError, match=r"enable_metadata_routing=True.*set_fit_request"
    ):
        search.fit(X, y, groups=groups)


def test_the_estimator_is_the_object_that_was_given(model):
    fair = FairConformalClassifier(model)
    assert fair.get_params()["estimator"] is model
    assert clone(fair).estimator is model


def test_clone_keeps_what_metadata_routing_was_asked_for(model):
    with sklearn.config_context(enable_metadata_routing=True):
        fair = FairConformalClassifier(model).set_fit_request(groups=True, ids=True)
        assert clone(fair).get_metadata_routing().fit.requests["groups"] is True


def test_probabilities_before_fit_are_refused(data, model):
    for method in ("predict_proba", "predict", "predict_labels", "to_dict"):
        arguments = [] if method == "to_dict" else [data["test"][0]]
        with pytest.raises(NotFittedError):
            getattr(FairConformalClassifier(model), method)(*arguments)


def test_predict_labels_lists_names(data, model):
    probs, y, groups, new = named_probabilities(data, model)
    fair = FairConformalClassifier(**LOOSE).fit(probs, y, groups)
    sets = fair.predict_set(new)
    listed = fair.predict_labels(new)
    assert listed[7] == [name for name, held in zip(new, sets[7], strict=True) if held]


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"closeness": "0.1"}, "closeness: found '0.1'"),
        ({"closeness": True}, "closeness: found True"),
        ({"classwise": "yes"}, "classwise: found 'yes'; wanted True or False"),
        ({"randomized": 1}, "randomized: found 1; wanted True or False"),
        ({"small_groups": "drop"}, "small_groups: found 'drop'; .*'leave out'"),
        ({"alpha": "0.1"}, "alpha: found '0.1'"),
        ({"random_state": True}, "random_state: found True"),
    ],
)
def test_options_of_the_wrong_kind_are_refused_by_name(data, model, wrong, message):
    with pytest.raises(ValueError, match=message):
        FairConformalClassifier(model, **wrong).fit(*data["calibration"])


def test_a_ratio_with_the_closeness_of_a_difference_is_warned_about(data, model):
    with pytest.warns(UserWarning, match="disparate_impact, a ratio"):
        FairConformalClassifier(model, metric="disparate_impact", closeness=0.1).fit(
            *data["calibration"]
        )


def test_an_estimator_must_have_probabilities(data):
    X, y, groups = data["calibration"]
    with pytest.raises(ValueError, match=r"estimator: .*without predict_proba"):
        FairConformalClassifier(LinearSVC()).fit(X, y, groups)


def test_a_score_of_ones_own_must_have_a_column_per_label(data, model):
    with pytest.raises(ValueError, match="conformity_score: it returned shape"):
        FairConformalClassifier(model, lambda probs, u: probs[:, :2]).fit(
            *data["calibration"]
        )


def test_one_group_has_no_gap_and_is_told_so(data, model):
    X, y, _ = data["calibration"]
    with pytest.warns(UserWarning, match="found only 'all'; there is no gap"):
        fair = FairConformalClassifier(model, **LOOSE).fit(X, y, ["all"] * len(y))
    assert np.isfinite(fair.threshold_).all()


@pytest.fixture(scope="module")
def with_small_groups(data):
    """The calibration set, with two groups of a dozen people each."""
    X, y, groups = data["calibration"]
    groups = groups.astype("<U9")
    groups[:12] = "few"
    groups[12:24] = "fewer"
    return X, y, groups


def test_a_small_group_makes_sets_vacuous_and_the_warning_says_what_helps(
    model, with_small_groups
):
    with pytest.warns(InfeasibleWarning) as caught:
        fair = FairConformalClassifier(model, **LOOSE).fit(*with_small_groups)
    message = str(caught[0].message)
    assert np.isinf(fair.threshold_[1:]).all()
    assert "small_groups='pool': 'few', 'fewer' as one group" in message
    assert "small_groups='leave out'" in message
    assert f"{fair.result_.smallest_closeness:.4g}" in message
    assert "points needed" in message and "guarantee='none'" in message


def test_small_groups_may_be_left_out(model, with_small_groups):
    X, y, groups = with_small_groups
    fair = FairConformalClassifier(model, small_groups="leave out", **LOOSE)
    with pytest.warns(SmallGroupsWarning, match="left out: 'few', 'fewer'"):
        fair.fit(X, y, groups)
    assert fair.promise_.groups == ["a", "b"]
    assert fair.promise_.left_out == ["few", "fewer"]
    assert fair.result_.feasible
    # Everyone counts for coverage, and the groups that remain for the gap.
    scores = tps(model.predict_proba(X))
    everyone = conformal_quantile(scores[np.arange(len(y)), y], 0.1)
    assert fair.result_.base_threshold == everyone
    assert fair.summary_["calibration points"].sum() == len(y)
    kept = np.isin(groups, ["a", "b"])
    own = FairConformalClassifier(model, **LOOSE).fit(X[kept], y[kept], groups[kept])
    np.testing.assert_allclose(fair.threshold_, own.threshold_, atol=0.02)


def test_small_groups_may_be_pooled(model, with_small_groups):
    X, y, groups = with_small_groups
    fair = FairConformalClassifier(model, small_groups="pool", closeness=0.4)
    with pytest.warns(SmallGroupsWarning, match="pooled: 'few', 'fewer'"):
        fair.fit(X, y, groups)
    assert fair.promise_.groups == ["a", "b", "pooled: few, fewer"]
    together = np.where(np.isin(groups, ["few", "fewer"]), "z", groups)
    own = FairConformalClassifier(model, closeness=0.4).fit(X, y, together)
    np.testing.assert_array_equal(fair.threshold_, own.threshold_)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("rule", ["pool", "leave out"])
def test_sizes_alone_decide_which_groups_are_small(model, with_small_groups, rule):
    _, y, groups = with_small_groups
    found = []
    for seed in range(3):
        probs = np.random.default_rng(seed).dirichlet(np.ones(3), len(y))
        fair = FairConformalClassifier(small_groups=rule, **LOOSE).fit(probs, y, groups)
        found.append(fair.promise_)
    assert found[0] == found[1] == found[2]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("rule", ["pool", "leave out"])
def test_where_all_groups_are_small_they_stay(data, model, rule):
    X, y, groups = (part[:30] for part in data["calibration"])
    fair = FairConformalClassifier(model, small_groups=rule).fit(X, y, groups)
    assert fair.promise_.groups == ["a", "b"] and not fair.result_.feasible


def test_a_declared_group_without_points_blocks_by_name(data, model):
    X, y, groups = data["calibration"]
    declared = pd.Series(groups, dtype=pd.CategoricalDtype(["a", "b", "rare"]))
    fair = FairConformalClassifier(model, **LOOSE)
    with pytest.warns(InfeasibleWarning, match="'rare', 1.: 0"):
        fair.fit(X, y, declared)
    assert fair.promise_.groups == ["a", "b", "rare"]
    assert ("rare", 1, 0) in fair.result_.blocking_cells
    fair.set_params(small_groups="leave out")
    with pytest.warns(SmallGroupsWarning, match="left out: 'rare'"):
        fair.fit(X, y, declared)
    assert fair.result_.feasible

"""What broke, or misled, when the predictor was tried as an engineer would deploy it."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest

from cfhelpers import FairConformalClassifier, audit
from cfhelpers.bounds import staircase
from cfhelpers.control import find_threshold, frontier, told_closeness
from cfhelpers.fairness import disparity

ITEMS = 15


class Checklist:
    """The share of yes-or-no items that are ticked; its last bit depends on the batch."""

    classes_ = np.array([0, 1])

    def predict_proba(self, X):
        p = X @ np.full(ITEMS, 1 / ITEMS)
        return np.column_stack([1 - p, p])


def checklists(n, rng):
    groups = rng.integers(0, 2, n)
    ticks = np.where(rng.random(n) < 0.5, ITEMS - 2, 7 + groups)
    X = (rng.random((n, ITEMS)).argsort(axis=1) < ticks[:, None]).astype(float)
    return X, (rng.random(n) < ticks / ITEMS).astype(int), groups


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("score", ["tps", "aps"])
def test_the_last_bit_of_a_model_with_round_outputs_does_not_matter(score):
    rng = np.random.default_rng(0)
    for _ in range(3):
        fair = FairConformalClassifier(
            Checklist(), score, "demographic_parity", closeness=0.1, alpha=0.2
        )
        fair.fit(*checklists(3000, rng))
        X, _, _ = checklists(600, rng)
        together = fair.predict_set(X)
        alone = np.vstack([fair.predict_set(row[None]) for row in X])
        np.testing.assert_array_equal(together, alone)


@pytest.mark.filterwarnings("ignore")
def test_round_outputs_on_a_grid_of_ones_own_do_not_matter_either():
    rng = np.random.default_rng(1)
    grid = np.arange(31) / 30
    fair = FairConformalClassifier(
        Checklist(), metric="demographic_parity", closeness=0.1, alpha=0.2, grid=grid
    )
    fair.fit(*checklists(3000, rng))
    X, _, _ = checklists(600, rng)
    alone = np.vstack([fair.predict_set(row[None]) for row in X])
    np.testing.assert_array_equal(fair.predict_set(X), alone)


def two_columns(n=2000):
    rng = np.random.default_rng(0)
    p = rng.beta(3, 3, n)
    is_yes = rng.random(n) < p
    return p, is_yes, rng.choice(["a", "b"], n)


@pytest.mark.parametrize("names", [("p_False", "p_True"), ("p_True", "p_False")])
def test_columns_are_matched_to_booleans_by_their_text(names):
    p, y, groups = two_columns()
    X = pd.DataFrame({"p_False": 1 - p, "p_True": p})[list(names)]
    fair = FairConformalClassifier(closeness=0.2).fit(X, y, groups)
    assert fair.score(X, y) > 0.6
    assert fair.classes_.tolist() == [name == "p_True" for name in names]


def test_booleans_and_columns_with_other_names_are_refused():
    p, y, groups = two_columns()
    X = pd.DataFrame({"yes": p, "no": 1 - p})
    with pytest.raises(ValueError, match="found no column for the label 'False'"):
        FairConformalClassifier().fit(X, y, groups)


@pytest.mark.filterwarnings("ignore::cfhelpers.predictor.InfeasibleWarning")
def test_columns_numbered_from_one_are_those_labels():
    rng = np.random.default_rng(0)
    probs = rng.dirichlet([4, 4, 1], 2000)
    y = (rng.random((2000, 1)) > probs.cumsum(axis=1)).sum(axis=1) + 1
    groups = rng.choice(["a", "b"], 2000)
    X = pd.DataFrame(probs, columns=["p_1", "p_2", "p_3"])
    kept = y < 3
    fair = FairConformalClassifier(closeness=0.3).fit(X[kept], y[kept], groups[kept])
    assert fair.classes_.tolist() == [1, 2, 3] and fair.score(X, y) > 0.4
    with pytest.raises(ValueError, match="found no column for the label '0'"):
        FairConformalClassifier().fit(X, y - 1, groups)


def test_numbers_find_columns_that_are_numbers_as_text_in_any_order():
    p, is_yes, groups = two_columns()
    sets = pd.DataFrame({"1": p > 0.4, "0": p < 0.6})
    y = is_yes.astype(int)
    found = [
        audit(frame, y, groups, positive_labels=["1"]).sizes["coverage"].tolist()
        for frame in (sets, sets[["0", "1"]])
    ]
    assert found[0] == found[1]
    gaps = [disparity(frame, y, groups, "equal_opportunity", ["1"]) for frame in
            (sets, sets[["0", "1"]])]  # fmt: skip
    assert gaps[0] == gaps[1]


def test_one_column_is_one_id_however_it_is_wrapped():
    rng = np.random.default_rng(0)
    probs = rng.dirichlet([3, 3, 3], 600)
    ids = np.arange(600)
    fair = FairConformalClassifier(
        conformity_score="aps", random_state=0, closeness=0.5, guarantee="none"
    )
    fair.fit(probs, rng.integers(0, 3, 600), rng.choice(["a", "b"], 600), ids=ids)
    wanted = fair.predict_set(probs, ids)
    frame = pd.DataFrame({"id": ids})
    for wrapped in (frame, frame["id"], ids[:, None], [(i,) for i in ids.tolist()]):
        np.testing.assert_array_equal(fair.predict_set(probs, wrapped), wanted)


def test_a_quantile_of_minus_zero_is_zero():
    scores = np.where(np.arange(300)[:, None] < 150, 0.1, 0.9) * np.ones((300, 2))
    groups = ["a"] * 150 + ["b"] * 150
    for zero in (0.0, -0.0):
        found = find_threshold(
            scores,
            np.tile([0, 1], 150),
            groups,
            "demographic_parity",
            0.1,
            base_scores=np.full(300, zero),
            guarantee="fixed-sequence",
            grid=[0.5, 1.0],
        )
        assert found.threshold.tolist() == [1.0, 1.0]


def test_the_closeness_that_a_warning_advises_works():
    for seed in range(15):
        rng = np.random.default_rng(seed)
        probs = rng.dirichlet([1, 1], 300)
        y = (rng.random(300) < probs[:, 1]).astype(int)
        groups = np.where(rng.random(300) < 0.1, "b", "a")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            FairConformalClassifier(closeness=0.05).fit(probs, y, groups)
        said = " ".join(str(warning.message) for warning in caught)
        advised = re.search(r"a closeness of at least ([0-9.e-]+)", said)
        assert advised is not None
        fair = FairConformalClassifier(closeness=float(advised[1]))
        assert fair.fit(probs, y, groups).result_.feasible


@pytest.mark.parametrize("value, is_ratio", [(-0.0, True), (2.0, False), (np.nan, True)])
def test_no_closeness_is_advised_that_cannot_be_asked_for(value, is_ratio):
    assert told_closeness(value, is_ratio) == ""


def test_points_needed_are_enough_between_groups_of_different_sizes():
    def found(n_a, n_b):
        return find_threshold(
            np.zeros((n_a + n_b, 2)),
            np.ones(n_a + n_b, int),
            ["a"] * n_a + ["b"] * n_b,
            "demographic_parity",
            0.2,
            delta=0.05,
            guarantee="fixed-sequence",
        )

    few = found(14, 31)
    assert not few.feasible
    assert few.points_needed > max(n for _, _, n in few.blocking_cells)
    assert found(few.points_needed, 31).feasible


@pytest.mark.parametrize("test, delta", [("staircase", 0.6), ("bounds", 0.1)])
def test_bounds_know_the_pool_too(test, delta):
    found = find_threshold(
        np.zeros((20, 2)),
        np.ones(20, int),
        [0] * 10 + [1] * 10,
        "demographic_parity",
        0.05,
        guarantee="fixed-sequence",
        delta=delta,
        test=test,
        pool_sizes={0: 10, 1: 10},
    )
    assert found.feasible


def test_unlabelled_people_may_all_be_in_groups_that_are_left_out():
    rng = np.random.default_rng(0)
    probs = rng.dirichlet([1, 1], 2000)
    y = (rng.random(2000) < probs[:, 1]).astype(int)
    groups = rng.choice(["a", "b"], 2000).astype(object)
    groups[:5] = "c"
    fair = FairConformalClassifier(metric="demographic_parity", small_groups="leave out")
    with pytest.warns(UserWarning, match="left out: 'c'"):
        fair.fit(probs, y, groups, unlabelled=(probs[:6], ["c"] * 6))


@pytest.mark.parametrize(
    "change, message",
    [
        ({"y": np.zeros(70, int)}, "y: found 70 labels for 60 points"),
        ({"ids": [1, 2]}, "ids: found 2 for 60 points"),
        ({"ids": [None] * 60}, "ids: row 0 is missing"),
    ],
)
def test_what_does_not_fit_the_rows_is_named(change, message):
    rng = np.random.default_rng(0)
    arguments = {
        "X": rng.dirichlet([1, 1], 60),
        "y": rng.integers(0, 2, 60),
        "groups": ["a", "b"] * 30,
    }
    with pytest.raises(ValueError, match=message):
        FairConformalClassifier().fit(**arguments | change)


@pytest.mark.parametrize("wrong", [None, "400", np.inf, np.nan])
def test_a_pool_that_is_no_number_is_named(wrong):
    with pytest.raises(ValueError, match="pool_sizes: found"):
        find_threshold(
            np.zeros((20, 2)),
            np.ones(20, int),
            [0] * 10 + [1] * 10,
            "demographic_parity",
            pool_sizes={0: wrong, 1: 400},
        )


@pytest.mark.parametrize("delta", [1e-8, 1e-9, 1e-12])
def test_a_tiny_delta_has_a_staircase(delta):
    assert all(steps.mass <= delta for steps in staircase(100, 100, delta))


def test_predictive_parity_is_rejected_where_a_group_has_no_set_with_the_label():
    scores = np.array([[0.1, 0.9]] * 50 + [[0.1, 0.2]] * 50)
    found = find_threshold(
        scores,
        np.tile([0, 1], 50),
        ["a"] * 50 + ["b"] * 50,
        "predictive_parity",
        1.0,
        alpha=0.6,
        guarantee="fixed-sequence",
        start=0.5,
        grid=[0.5],
    )
    assert not found.satisfied


def call_of(kind):
    """A call with one wrong argument."""
    rng = np.random.default_rng(0)
    probs = rng.dirichlet([1, 1, 1], 60)
    y = rng.integers(0, 3, 60)
    groups = ["a", "b"] * 30
    written = {"class": "FairConformalClassifier"}
    return {
        "groups": lambda: audit(probs > 0.2, y, 3),
        "metrics": lambda: audit(probs > 0.2, y, groups, metrics=None),
        "closeness": lambda: frontier(
            probs, y, groups, "demographic_parity", closeness=0.1
        ),
        "fitted": lambda: FairConformalClassifier.from_dict(written),
        "estimator": lambda: FairConformalClassifier(Checklist).fit(probs, y, groups),
        "base_scores": lambda: find_threshold(
            probs, y, groups, "demographic_parity", base_scores=probs
        ),
    }[kind]


@pytest.mark.parametrize(
    "kind", ["groups", "metrics", "closeness", "fitted", "estimator", "base_scores"]
)
def test_a_wrong_argument_is_named(kind):
    with pytest.raises(ValueError, match=f"^{kind}: found"):
        call_of(kind)()


@pytest.mark.filterwarnings("ignore")
def test_positive_labels_may_be_a_set():
    rng = np.random.default_rng(0)
    probs = rng.dirichlet([1, 1, 1], 60)
    fair = FairConformalClassifier(positive_labels={1, 2}, guarantee="none")
    fair.fit(probs, rng.integers(0, 3, 60), ["a", "b"] * 30)
    assert sorted(fair.promise_.labels) == [1, 2]

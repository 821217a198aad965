"""One threshold per group and label, which asks for the group."""

import json
from datetime import date

import numpy as np
import pandas as pd
import pytest

from cfhelpers import FairConformalClassifier
from cfhelpers.conformal import conformal_quantile, efficiency
from cfhelpers.datasets.populations import two_groups
from cfhelpers.fairness import disparity
from cfhelpers.mondrian import FAIR, PER_GROUP


@pytest.fixture(scope="module")
def drawn():
    return two_groups().draw(3000, np.random.default_rng(0))


@pytest.fixture(scope="module")
def fitted(drawn):
    return FairConformalClassifier(per_group=True, random_state=0).fit(*drawn)


def test_every_cell_has_the_quantile_of_its_own_scores(drawn, fitted):
    probabilities, y, groups = drawn
    for place, name in enumerate(["A", "B"]):
        for label in range(3):
            own = 1 - probabilities[(groups == name) & (y == label), label]
            wanted = conformal_quantile(own, 0.1)
            assert fitted.threshold_[place, label] == pytest.approx(wanted, abs=1e-6)


def test_every_cell_is_covered_on_its_own(fitted):
    probabilities, y, groups = two_groups().draw(100_000, np.random.default_rng(1))
    sets = fitted.predict_set(probabilities, groups=groups)
    for name in ("A", "B"):
        for label in range(3):
            in_cell = (groups == name) & (y == label)
            # Coverage given the calibration set is Beta with a deviation of about .025.
            assert 0.78 < sets[in_cell, label].mean() < 0.99


def test_summary_has_the_fair_predictor_beside_it(drawn, fitted):
    probabilities, y, groups = drawn
    fair = FairConformalClassifier(random_state=0).fit(probabilities, y, groups)
    sets = fair.predict_set(probabilities)
    row = fitted.summary_.loc[FAIR]
    assert row["mean set size"] == pytest.approx(efficiency(sets))
    assert row["gap"] == pytest.approx(disparity(sets, y, groups, "equal_opportunity"))
    own = fitted.predict_set(probabilities, groups=groups)
    assert fitted.summary_.loc[PER_GROUP, "mean set size"] == efficiency(own)
    assert fitted.summary_["asks for the group"].tolist() == [True, False, False]
    assert fitted.result_.threshold.tolist() == fair.threshold_.tolist()
    assert "Mondrian" in str(fitted.promise_)


def test_prediction_asks_for_known_groups_by_name(drawn, fitted):
    probabilities = drawn[0][:3]
    with pytest.raises(ValueError, match="groups: found None"):
        fitted.predict_set(probabilities)
    with pytest.raises(ValueError, match="found 'C', which fit did not have"):
        fitted.predict_set(probabilities, groups=["A", "C", "B"])
    with pytest.raises(ValueError, match="found 2 rows for 3 points"):
        fitted.predict_set(probabilities, groups=["A", "B"])
    without = FairConformalClassifier(random_state=0).fit(*drawn)
    with pytest.raises(ValueError, match="groups: found some"):
        without.predict_set(probabilities, groups=["A", "B", "A"])


def test_sets_are_the_same_row_by_row_and_after_json(drawn, fitted):
    probabilities, _, groups = drawn
    served = FairConformalClassifier.from_dict(json.loads(json.dumps(fitted.to_dict())))
    sets = fitted.predict_set(probabilities[:50], groups=groups[:50])
    assert (served.predict_set(probabilities[:50], groups=groups[:50]) == sets).all()
    for row in range(10):
        one = slice(row, row + 1)
        assert (
            fitted.predict_set(probabilities[one], groups=groups[one]) == sets[row]
        ).all()
    lists = fitted.predict_labels(probabilities[:2], groups=groups[:2])
    assert lists == [np.flatnonzero(row).tolist() for row in sets[:2]]


def test_small_cells_are_named_and_served_in_full(drawn):
    probabilities, y, groups = drawn
    rare = np.where(np.arange(3000) < 6, "rare", groups)
    with pytest.warns(UserWarning, match=r"\('rare', 0\)"):
        found = FairConformalClassifier(per_group=True, random_state=0).fit(
            probabilities, y, rare
        )
    sets = found.predict_set(probabilities[:4], groups=["rare"] * 4)
    assert sets.all()


def test_one_group_for_each_person_is_wanted(drawn):
    probabilities, y, groups = drawn
    table = np.stack([groups == "A", groups == "B"], axis=1)
    with pytest.raises(ValueError, match="boolean table"):
        FairConformalClassifier(per_group=True).fit(probabilities, y, table)


def test_weights_are_thinned_for_thresholds_per_group(drawn):
    probabilities, y, groups = drawn
    own = np.where(y == 0, 1.0, 0.5)
    found = FairConformalClassifier(per_group=True, random_state=0, guarantee="none")
    with pytest.raises(ValueError, match="weight_bound: found None"):
        found.fit(probabilities, y, groups, sample_weight=own)
    found.fit(probabilities, y, groups, sample_weight=own, weight_bound=1.0)
    assert found.weighting_.n_kept < 3000
    assert "points kept" in str(found.promise_)


@pytest.mark.parametrize(
    "names",
    [
        pd.IntervalIndex.from_breaks([0, 40, 120]).tolist(),
        [date(2025, 1, 1), date(2026, 1, 1)],
        [("north", ("a", 1)), ("south", ("a", 1))],
    ],
    ids=["age bands", "dates", "names within names"],
)
def test_groups_of_any_names_are_known_after_json(drawn, names):
    """JSON has no age bands: their text stands for them."""
    probabilities, y, groups = drawn
    people = [names[place] for place in (groups == "B").astype(int)]
    fair = FairConformalClassifier(per_group=True, random_state=0)
    fair.fit(probabilities, y, people)
    served = FairConformalClassifier.from_dict(json.loads(json.dumps(fair.to_dict())))
    wanted = fair.predict_set(probabilities, groups=people)
    np.testing.assert_array_equal(
        served.predict_set(probabilities, groups=people), wanted
    )
    with pytest.raises(ValueError, match="which fit did not have"):
        served.predict_set(probabilities[:1], groups=[date(2030, 1, 1)])

"""The answers that lessons give to their open questions are what a run shows."""

import re
import warnings
from functools import cache

import nbformat
import numpy as np
import pytest
from scipy import stats

from cfhelpers import FairConformalClassifier, conformal, control, fairness, scores
from cfhelpers.datasets import credit_probabilities, load_dataset
from cfhelpers.datasets.populations import nine_groups
from cfhelpers.metrics import LABEL_METRICS

LESSONS = ("00", "01", "02", "03", "04", "05")
CREDIT = load_dataset("credit")
PROBABILITIES, PARTS = credit_probabilities()
CALIBRATION = PARTS == "calibration"
TEST = PARTS == "test"
Y = CREDIT.y[TEST]
GROUPS = CREDIT.groups[TEST]
TPS = scores.tps(PROBABILITIES)


@cache
def answers(root, number):
    """The folded answers of a lesson, one text for each question."""
    (path,) = (root / "notebooks").glob(f"{number}_*.ipynb")
    (cell,) = [
        cell
        for cell in nbformat.read(path, as_version=4).cells
        if "<summary>Answers</summary>" in cell.source
    ]
    questions, _, rest = cell.source.partition("<details><summary>Answers")
    asked = re.findall(r"^\d\. \*\*(?:Predict|Change|Extend)\.", questions, re.MULTILINE)
    given = re.findall(r"^\d\. (.+)$", rest.partition("</details>")[0], re.MULTILINE)
    assert len(asked) == len(given) == 3
    return given


@pytest.mark.parametrize("number", LESSONS)
def test_every_lesson_answers_its_three_questions_folded(root, number):
    assert all(len(answer.split()) >= 8 for answer in answers(root, number))


def fitted(groups=CREDIT.groups, **changes):
    """Sets of the test rows by the estimator of 00."""
    settings = {"conformity_score": "tps", "closeness": 0.1, "random_state": 0} | changes
    model = FairConformalClassifier(alpha=0.1, delta=0.1, **settings)
    model.fit(PROBABILITIES[CALIBRATION], CREDIT.y[CALIBRATION], groups[CALIBRATION])
    return model.predict_set(PROBABILITIES[TEST])


def gap(sets, metric="equal_opportunity", labels=None):
    return fairness.disparity(sets, Y, GROUPS, metric, labels)


def test_a_looser_gap_has_smaller_sets_and_a_larger_gap():
    strict, loose = fitted(), fitted(closeness=0.2)
    assert conformal.efficiency(loose) < conformal.efficiency(strict)
    assert gap(loose) > gap(strict)


def test_with_aps_the_base_gap_is_two_thirds_as_large(root):
    base = {"closeness": 1.0, "guarantee": "none"}
    aps = fitted(conformity_score="aps", **base)
    tps = fitted(**base)
    assert gap(aps) / gap(tps) == pytest.approx(2 / 3, abs=0.05)
    assert conformal.efficiency(aps) > conformal.efficiency(tps)
    assert "two thirds" in answers(root, "00")[1]


def test_young_men_are_too_few(root):
    groups = load_dataset("credit", attribute=("age", "sex")).groups
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        sets = fitted(groups)
    (message,) = [str(warning.message) for warning in said]
    assert "fewer than the 36 points needed: ('under 25, men', 1): 24." in message
    assert sets[:, 1].all()
    answer = answers(root, "00")[2]
    assert "24" in answer and "36 are needed" in answer


def by_score(values, alpha):
    quantile = conformal.conformal_quantile(
        values[CALIBRATION, CREDIT.y[CALIBRATION]], alpha
    )
    return conformal.prediction_sets(values[TEST], quantile)


def easy_minus_hard(sets):
    """Coverage of the easy third of the test rows minus that of the hard third."""
    top = PROBABILITIES[TEST].max(axis=1)
    low, high = np.quantile(top, [1 / 3, 2 / 3])
    easy, hard = top >= high, top <= low
    return conformal.coverage(sets[easy], Y[easy]) - conformal.coverage(
        sets[hard], Y[hard]
    )


def test_at_one_half_tps_covers_the_easy_and_aps_covers_alike():
    aps = scores.aps(PROBABILITIES, np.random.default_rng(0).random(len(CREDIT)))
    sets = by_score(TPS, 0.5)
    assert conformal.efficiency(sets) == pytest.approx(1, abs=0.1)
    assert (sets.sum(axis=1) == 0).mean() > 0.05
    assert easy_minus_hard(sets) > 0.2
    assert abs(easy_minus_hard(by_score(aps, 0.5))) < 0.05
    without_u = by_score(scores.aps(PROBABILITIES), 0.1)
    with_u = by_score(aps, 0.1)
    assert conformal.efficiency(without_u) > conformal.efficiency(with_u) + 0.05


def test_the_margin_covers_with_larger_sets_and_the_hard_more_often():
    margin = PROBABILITIES.max(axis=1, keepdims=True) - PROBABILITIES
    sets = by_score(margin, 0.1)
    assert conformal.coverage(sets, Y) == pytest.approx(0.9, abs=0.01)
    assert conformal.efficiency(sets) > conformal.efficiency(by_score(TPS, 0.1)) + 0.1
    assert easy_minus_hard(sets) < -0.1


def test_by_sex_no_metric_shows_a_large_gap():
    sex = load_dataset("credit", attribute="sex").groups[TEST]
    sets = by_score(TPS, 0.1)
    for name in LABEL_METRICS:
        found = fairness.disparity(sets, Y, sex, name)
        assert found > 0.9 if name == "disparate_impact" else found < 0.05, name


def test_large_sets_are_fair_but_for_predictive_parity():
    usual, large = by_score(TPS, 0.1), by_score(TPS, 0.02)
    assert conformal.efficiency(large) > 2.9
    for name in set(LABEL_METRICS) - {"predictive_parity", "disparate_impact"}:
        assert gap(large, name) < 0.6 * gap(usual, name), name
    assert gap(large, "disparate_impact") > 2 * gap(usual, "disparate_impact")
    shares = [
        [(Y[a == GROUPS] == k).mean() for k in (1, 2, 3)] for a in CREDIT.group_names
    ]
    assert gap(large, "predictive_parity") == pytest.approx(
        np.ptp(shares, axis=0).max(), abs=0.01
    )


def test_among_people_with_a_degree_the_wrong_label_has_the_largest_gap():
    own = fairness.FairnessMetric("degree", lambda y, g, a, label: (g == a) & (y >= 2))
    gaps = [gap(by_score(TPS, 0.1), own, [label]) for label in range(4)]
    assert np.argmax(gaps) == 1
    table = fairness.group_coverages(
        by_score(TPS, 0.1), Y, GROUPS, own, positive_labels=[1]
    )
    assert table.set_index("group")["coverage"].idxmax() == "25 or older"


def searched(values=TPS, metric="equal_opportunity", closeness=0.1, **settings):
    rows = values[CALIBRATION], CREDIT.y[CALIBRATION], CREDIT.groups[CALIBRATION]
    return control.find_threshold(
        *rows, metric, closeness, alpha=0.1, classwise=True, **settings
    )


def test_thresholds_that_04_names(root):
    assert f"about {searched(closeness=0.02).threshold[1]:.3f}." in answers(root, "04")[0]
    aps = searched(scores.aps(PROBABILITIES))
    assert (aps.threshold > aps.base_threshold).tolist() == [False, True, False, False]


def test_more_points_protect_a_single_coin_less():
    """Nine groups: the share of calibration sets that are beyond c, as 05 counts it."""
    population = nine_groups()
    truth = population.truth(scores.tps, n=300_000, rng=np.random.default_rng(0))
    shares = []
    for n in (25_000, 100_000):
        beyond = 0
        for run in range(20):
            probabilities, y, groups = population.draw(n, np.random.default_rng([0, run]))
            found = control.find_threshold(
                scores.tps(probabilities),
                y,
                groups,
                "demographic_parity",
                0.1,
                classwise=True,
            )
            beyond += truth.disparity(found.threshold, "demographic_parity") > 0.1
        shares.append(beyond / 20)
    assert shares[0] + 0.1 < shares[1]


def test_a_small_cell_has_smaller_gaps_than_were_asked_for():
    gaps, sizes = [], []
    for metric in ("demographic_parity", "equal_opportunity"):
        found = searched(metric=metric, closeness=0.05, guarantee="fixed-sequence")
        sets = conformal.prediction_sets(TPS[TEST], found.threshold)
        gaps.append(gap(sets, metric))
        sizes.append(conformal.efficiency(sets))
    assert sizes[0] == pytest.approx(sizes[1], abs=0.1)
    assert gaps[1] < gaps[0]


def test_a_rare_label_costs_both_groups_nearly_one_label():
    sizes = []
    for labels in ([1, 2, 3], [0, 1, 2, 3]):
        settings = {"guarantee": "fixed-sequence", "positive_labels": labels}
        found = searched(metric="demographic_parity", **settings)
        sets = conformal.prediction_sets(TPS[TEST], found.threshold)
        sizes.append([sets[a == GROUPS].sum(axis=1).mean() for a in CREDIT.group_names])
    assert found.threshold[0] > 0.99
    assert np.diff(sizes, axis=0) == pytest.approx(0.9, abs=0.1)


def test_the_interval_of_lemma_32_holds_rare_misses_most_often(root):
    chances = [stats.binom.pmf(np.floor(1001 * p), 1000, p) for p in (0.5, 0.9, 0.999)]
    assert np.argmax(chances) == 2
    formula = 1 / np.sqrt(2 * np.pi * 1000 * 0.999 * 0.001)
    answer = answers(root, "03")[0]
    assert f"{formula:.2f}" in answer and f"{chances[2]:.2f}" in answer

"""What is true, and what is not, about one calibration.

The method against its distribution, with fixed seeds.
"""

import math

import numpy as np
import pytest
from scipy import stats

from cfhelpers.conformal import conformal_quantile
from cfhelpers.control import find_threshold, frontier
from cfhelpers.datasets.populations import nine_groups, two_groups
from cfhelpers.scores import tps

TOLERANCE = 1e-12


@pytest.mark.parametrize("n, alpha", [(50, 0.1), (99, 0.2), (500, 0.05)])
def test_coverage_of_a_calibration_follows_the_beta_law(n, alpha):
    rng = np.random.default_rng(n)
    true_coverage = stats.expon.cdf(
        [conformal_quantile(rng.exponential(size=n), alpha) for _ in range(4000)]
    )
    k = math.ceil((n + 1) * (1 - alpha) - 1e-9)
    assert stats.kstest(true_coverage, stats.beta(k, n + 1 - k).cdf).pvalue > 0.01
    for wrong in (k - 1, k + 1):  # the test can tell one rank from the next
        assert (
            stats.kstest(true_coverage, stats.beta(wrong, n + 1 - wrong).cdf).pvalue
            < 1e-6
        )
    assert true_coverage.mean() == pytest.approx(k / (n + 1), abs=0.002)


def test_marginal_coverage_holds_with_ties():
    rng = np.random.default_rng(1)
    covered = []
    for _ in range(4000):
        scores = rng.integers(0, 5, 31) / 5
        covered.append(scores[-1] <= conformal_quantile(scores[:-1], 0.2))
    assert np.mean(covered) >= 0.8 - 3 * math.sqrt(0.16 / 4000)


def test_interval_of_lemma_3_2_rarely_contains_the_coverage():
    rng = np.random.default_rng(2)
    n, p, draws = 1000, 0.5, 20_000
    k = np.array([np.count_nonzero(rng.random(n) <= p) for _ in range(draws)])
    contains = (k / (n + 1) <= p) & (p <= (k + 1) / (n + 1))
    assert contains.mean() == pytest.approx(stats.binom.pmf(500, n, p), abs=0.004)
    assert contains.mean() == pytest.approx(0.025, abs=0.005)
    assert (
        k.mean() / (n + 1) <= p <= (k.mean() + 1) / (n + 1)
    )  # what does hold: the same in expectation


def test_lemma_3_2_holds_given_the_bag_of_scores():
    """Any of n + 1 exchangeable scores may be the new one.

    Its chance to be covered lies in the others' interval.
    """
    rng = np.random.default_rng(3)
    for _ in range(200):
        bag = rng.integers(0, 8, rng.integers(2, 20)) / 8
        n, threshold = len(bag) - 1, rng.choice(bag)
        chance = np.mean(bag <= threshold)
        for new in range(n + 1):
            k = np.count_nonzero(np.delete(bag, new) <= threshold)
            assert k / (n + 1) <= chance <= (k + 1) / (n + 1)


@pytest.mark.parametrize("n, delta", [(100, 0.1), (1000, 0.3)])
def test_dkw_band_holds_for_all_thresholds_at_once(n, delta):
    rng = np.random.default_rng(4)
    band, ranks, draws = (
        math.sqrt(math.log(2 / delta) / (2 * n)),
        np.arange(1, n + 1) / n,
        4000,
    )
    ordered = np.sort(rng.random((draws, n)), axis=1)
    distance = np.maximum(np.abs(ranks - ordered), np.abs(ordered - ranks + 1 / n)).max(
        axis=1
    )
    exceeds = np.mean(distance > band)
    assert exceeds <= delta + 2 * math.sqrt(delta / draws)
    assert exceeds >= delta / 2  # and the band is not wide for nothing


def thresholds_at(table, closeness, base, n_classes):
    thresholds = np.full(n_classes, base)
    for label, rows in table.groupby("label"):
        thresholds[label] = rows["threshold"][
            rows["closeness"] <= closeness + TOLERANCE
        ].iloc[0]
    return thresholds


@pytest.mark.slow
def test_fixed_sequence_keeps_its_promise_where_the_first_passing_threshold_does_not():
    """Nine groups, the smallest 0.3% of 50,000 points, and 200 calibrations.

    Classwise demographic parity at delta = .1.
    """
    population, rng = nine_groups(), np.random.default_rng(5)
    truth = population.truth(tps, 3_000_000, np.random.default_rng(6))
    goals = {
        0.05: 0.023,
        0.10: 0.071,
        0.20: 0.155,
    }  # mean true gaps of a plain version of the guarantee
    gaps = {(guarantee, c): [] for guarantee in ("none", "fixed-sequence") for c in goals}
    for _ in range(200):
        probs, y, groups = population.draw(50_000, rng)
        scores = tps(probs)
        base = conformal_quantile(scores[np.arange(len(y)), y], 0.1)
        for guarantee in ("none", "fixed-sequence"):
            table = frontier(
                scores,
                y,
                groups,
                "demographic_parity",
                classwise=True,
                guarantee=guarantee,
                delta=0.1,
            )
            for c in goals:
                thresholds = thresholds_at(table, c, base, population.n_classes)
                gaps[guarantee, c].append(
                    truth.disparity(thresholds, "demographic_parity")
                )
    report = {key: (np.mean(np.array(v) > key[1]), np.mean(v)) for key, v in gaps.items()}
    for c, goal in goals.items():
        assert report["fixed-sequence", c][0] <= 0.1, report
        assert report["none", c][0] > 0.5, report
        assert 0.6 * goal <= report["fixed-sequence", c][1] <= c, report


METRICS = {
    "demographic_parity": 0.15,
    "equal_opportunity": 0.15,
    "predictive_equality": 0.15,
    "equalized_odds": 0.2,
    "disparate_impact": 0.75,
    "predictive_parity": 0.45,
    "predictive_parity_proxy": 0.2,
    "overall_accuracy_equality": 0.05,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("classwise", [False, True], ids=["single", "classwise"])
def test_fixed_sequence_exceeds_c_no_more_often_than_delta(name, classwise):
    population, rng, c, delta, draws = (
        two_groups(),
        np.random.default_rng(7),
        METRICS[name],
        0.3,
        150,
    )
    truth = population.truth(tps, 600_000, np.random.default_rng(8))
    grid = np.linspace(0, 1, 201)
    exceeds, finite = 0, 0
    for _ in range(draws):
        probs, y, groups = population.draw(3000, rng)
        result = find_threshold(
            tps(probs),
            y,
            groups,
            name,
            c,
            alpha=0.4,
            classwise=classwise,
            guarantee="fixed-sequence",
            delta=delta,
            grid=grid,
        )
        assert (result.threshold >= result.base_threshold).all()
        gap = truth.disparity(result.threshold, name)
        exceeds += gap < c if name == "disparate_impact" else gap > c
        finite += result.feasible
    assert exceeds / draws <= delta + 2 * math.sqrt(delta * (1 - delta) / draws)
    assert finite >= draws / 2


@pytest.mark.slow
def test_at_a_gap_of_exactly_c_a_threshold_is_accepted_no_more_often_than_delta():
    """Two groups, one label, one grid point, where the groups differ by exactly c.

    Two bounds enter the comparison and share delta. With delta = .9 for each of them the
    threshold would be accepted in 96% of the calibrations; with .45 it is in 42%.
    """
    rng = np.random.default_rng(10)
    n = 1000
    closeness = 0.2
    groups = np.repeat(["a", "b"], n)
    share_covered = np.repeat([0.6, 0.4], n)
    draws = 600
    accepted = 0
    for _ in range(draws):
        is_covered = rng.random(2 * n) < share_covered
        scores = np.where(is_covered, 0.25, 0.75)[:, None]
        result = find_threshold(
            scores,
            np.zeros(2 * n, int),
            groups,
            "demographic_parity",
            closeness,
            alpha=0.9,
            positive_labels=[0],
            guarantee="fixed-sequence",
            delta=0.9,
            grid=[0.5],
        )
        assert result.base_threshold == 0.25
        accepted += result.feasible
    assert 0 < accepted / draws <= 0.9

"""The staircase test and the bounds for pools, against the theorem and enumeration."""

from fractions import Fraction
from math import comb

import check_staircase
import numpy as np
import oracle_staircase as oracle
import pytest
from scipy.stats import hypergeom

from cfhelpers.bounds import (
    clopper_pearson,
    hypergeometric_bounds,
    staircase,
    staircase_losses,
)

LEVELS = (0.5, 0.1, 0.05, 0.0333, 0.01)
TRUE_COVERAGES = ((0.97, 0.94), (0.9, 0.87), (0.7, 0.67), (0.995, 0.945))


def random_sizes(rng, n_groups, largest=300):
    """Sizes of groups, small ones as likely as large ones, and now and then none."""
    return (np.exp(rng.uniform(0, np.log(largest + 1), n_groups)) - 0.5).astype(int)


@pytest.mark.slow
@pytest.mark.parametrize("delta", LEVELS)
def test_the_losses_are_the_theorems(delta):
    rng = np.random.default_rng(round(1e4 * delta))
    for case in range(80):
        is_ratio = case % 2 == 1
        sizes = random_sizes(rng, n_groups=2 + case % 3)
        hits = rng.binomial(sizes, rng.beta(6, 1, len(sizes)))
        found = staircase_losses(hits, sizes, delta, is_ratio)
        wanted = oracle.loss(hits.tolist(), sizes.tolist(), delta, is_ratio)
        # A gap is never below 0, and a ratio never above 1.
        wanted = max(wanted, -1.0 if is_ratio else 0.0)
        assert found == pytest.approx(wanted, abs=1e-9), (hits, sizes, is_ratio)


@pytest.mark.parametrize("is_ratio", [False, True])
@pytest.mark.parametrize("n_groups", [1, 3])
def test_losses_below_the_least_that_is_asked_for_come_as_it(n_groups, is_ratio):
    rng = np.random.default_rng(n_groups)
    sizes = np.array([random_sizes(rng, n_groups) for _ in range(60)])
    hits = rng.binomial(sizes, 0.9)
    for pools in (None, sizes + 5):
        every = staircase_losses(hits, sizes, 0.1, is_ratio, pools)
        for at_least in (every.min() - 1, np.median(every), every.max() + 1):
            found = staircase_losses(hits, sizes, 0.1, is_ratio, pools, at_least)
            np.testing.assert_array_equal(found, np.maximum(every, at_least))


@pytest.mark.parametrize("delta", LEVELS)
def test_the_staircases_are_the_theorems(delta):
    rng = np.random.default_rng(1)
    for _ in range(30):
        n_a, n_b = np.maximum(random_sizes(rng, 2, largest=20_000), 1).tolist()
        found = staircase(oracle.quarter_octave(n_a), oracle.quarter_octave(n_b), delta)
        wanted = oracle.staircases(n_a, n_b, delta)
        assert len(found) == len(wanted)
        for steps, (low, high, wanted_steps) in zip(found, wanted, strict=True):
            assert (steps.low, steps.high) == pytest.approx((low, high))
            pairs = np.column_stack([steps.alphas, steps.betas])
            assert pairs.shape == (len(wanted_steps), 2)
            np.testing.assert_allclose(pairs, wanted_steps, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("delta", LEVELS)
def test_the_mass_of_every_staircase_is_within_the_level(delta):
    rng = np.random.default_rng(2)
    for _ in range(100):
        n_a, n_b = np.exp(rng.uniform(0, np.log(1e6), 2))
        edge = 0.0
        for steps in staircase(n_a, n_b, delta):
            assert steps.low == edge
            edge = steps.high
            assert np.all(np.diff(steps.alphas) > 0)
            assert np.all(np.diff(steps.betas) < 0)
            assert oracle.mass(zip(steps.alphas, steps.betas, strict=True)) <= delta
        assert edge == 1


def test_the_loss_of_all_pairs_is_the_larger_of_both_directions():
    hits = np.stack(np.indices((31, 13)), axis=-1)
    for is_ratio, least in ((False, 0.0), (True, -1.0)):
        found = staircase_losses(hits, np.array([30, 12]), 0.1, is_ratio)
        a_above_b = check_staircase.one_way_losses(30, 12, 0.1, is_ratio)
        b_above_a = check_staircase.one_way_losses(12, 30, 0.1, is_ratio)
        wanted = np.maximum(np.maximum(a_above_b, b_above_a.T), least)
        np.testing.assert_array_equal(found, wanted)


def test_the_exact_size_is_within_the_level():
    rng = np.random.default_rng(3)
    for case in range(10):
        n_a, n_b = np.exp(rng.uniform(np.log(5), np.log(150), 2)).astype(int).tolist()
        delta = float(rng.choice(LEVELS))
        is_ratio = case % 2 == 1
        c = float(rng.uniform(0.5, 0.95) if is_ratio else rng.uniform(0.02, 0.4))
        on_grid, everywhere = check_staircase.size_bound(n_a, n_b, c, delta, is_ratio)
        assert on_grid <= everywhere + 1e-12
        assert everywhere <= delta, (n_a, n_b, c, delta, is_ratio)


@pytest.mark.parametrize(
    ("sizes", "published"),
    [
        ((150, 150), (0.81, 0.55, 0.33, 0.75)),
        ((1000, 40), (0.37, 0.32, 0.26, 0.35)),
        ((40, 1000), (1, 0.29, 0.28, 1)),
    ],
)
def test_the_power_is_the_published_one(sizes, published):
    outcomes = check_staircase.accepted(*sizes, 0.1, 0.1, is_ratio=False)
    p_a, p_b = np.transpose(TRUE_COVERAGES)
    power = check_staircase.chance(outcomes, p_a, p_b)
    np.testing.assert_allclose(power, published, atol=0.01)


def test_the_points_that_two_fully_covered_groups_need():
    sizes = np.arange(1, 60)
    pairs = np.column_stack([sizes, sizes])
    losses = staircase_losses(pairs, pairs, 0.1)
    needed = [int(sizes[losses <= c].min()) for c in (0.05, 0.10, 0.15, 0.20)]
    assert needed == [50, 24, 16, 12]


def chance_of_hits(k, pool, covered, drawn):
    """The probability of k hits, exactly."""
    ways = comb(covered, k) * comb(pool - covered, drawn - k)
    return Fraction(ways, comb(pool, drawn))


@pytest.mark.parametrize("level", [0.01, 0.05, 0.1, 0.3])
def test_bounds_for_a_pool_are_wrong_at_most_as_often_as_the_level_says(level):
    for pool in range(1, 15):
        for drawn in range(pool + 1):
            hits = np.arange(drawn + 1)
            lower, upper = hypergeometric_bounds(hits, drawn, pool, level)
            for covered in range(pool + 1):
                too_high = Fraction(0)
                too_low = Fraction(0)
                for k in range(max(0, drawn + covered - pool), min(drawn, covered) + 1):
                    if round(lower[k] * pool) > covered:
                        too_high += chance_of_hits(k, pool, covered, drawn)
                    if round(upper[k] * pool) < covered:
                        too_low += chance_of_hits(k, pool, covered, drawn)
                assert too_high <= Fraction(str(level))
                assert too_low <= Fraction(str(level))


@pytest.mark.parametrize("level", [0.0123, 0.0517, 0.3003])
def test_bounds_for_a_pool_are_the_sharpest(level):
    """They leave out exactly the pools under which so few or so many hits are rarer."""
    for pool in range(1, 13):
        for drawn in range(pool + 1):
            for k in range(drawn + 1):
                possible_below = []
                possible_above = []
                for covered in range(k, pool - (drawn - k) + 1):
                    at_most = sum(
                        chance_of_hits(j, pool, covered, drawn)
                        for j in range(max(0, drawn + covered - pool), k + 1)
                    )
                    at_least = 1 - at_most + chance_of_hits(k, pool, covered, drawn)
                    if at_most > level:
                        possible_above.append(covered)
                    if at_least > level:
                        possible_below.append(covered)
                lower, upper = hypergeometric_bounds(k, drawn, pool, level)
                assert round(float(lower) * pool) == min(possible_below)
                assert round(float(upper) * pool) == max(possible_above)


def test_binomial_bounds_can_fail_for_a_pool_where_its_own_do_not():
    """A pool of 98 with 1 covered point, of which 5 are drawn, at level .05."""
    hits = np.arange(2)
    chances = hypergeom.pmf(hits, 98, 1, 5)
    binomial = clopper_pearson(hits, 5, 0.05)[0]
    own = hypergeometric_bounds(hits, 5, 98, 0.05)[0]
    assert chances[binomial > 1 / 98].sum() == pytest.approx(0.0510, abs=5e-5)
    assert chances[own > 1 / 98 + 1e-12].sum() <= 0.05


@pytest.mark.parametrize("is_ratio", [False, True])
def test_the_staircase_for_pools_keeps_its_level(is_ratio):
    pools = np.array([24, 16])
    drawn = np.array([12, 9])
    delta = 0.1
    hits = np.stack(np.indices(drawn + 1), axis=-1)
    losses = staircase_losses(hits, drawn, delta, is_ratio, pools)
    # With c just below the true gap, to accept is wrong.
    for covered_a in range(pools[0] + 1):
        law_a = hypergeom.pmf(np.arange(drawn[0] + 1), pools[0], covered_a, drawn[0])
        for covered_b in range(pools[1] + 1):
            law_b = hypergeom.pmf(np.arange(drawn[1] + 1), pools[1], covered_b, drawn[1])
            p_a = covered_a / pools[0]
            p_b = covered_b / pools[1]
            if p_b >= p_a:
                continue
            gap = -p_b / p_a if is_ratio else p_a - p_b
            assert law_a @ (losses < gap - 1e-9) @ law_b <= delta


def test_a_ratio_is_never_unknown_where_a_whole_pool_was_counted():
    hits = np.array([[0, 0], [0, 5], [5, 0]])
    sizes = np.array([10, 8])
    losses = staircase_losses(hits, sizes, 0.1, True, sizes)
    assert losses.tolist() == [-1, 0, 0]

"""Quantile, sets, coverage and efficiency against their definitions."""

import math
from fractions import Fraction

import numpy as np
import oracle
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfhelpers.conformal import (
    MANY_NUMBERS,
    conformal_quantile,
    coverage,
    efficiency,
    kth_smallest,
    prediction_sets,
)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@settings(max_examples=500, deadline=None, derandomize=True)
@given(
    n=st.integers(1, 60),
    percent=st.integers(1, 999),
    levels=st.sampled_from([1, 2, 5, 1000]),
    seed=st.integers(0, 999),
)
def test_quantile_is_the_kth_smallest_with_the_rank_in_exact_arithmetic(
    dtype, n, percent, levels, seed
):
    alpha = percent / 1000
    scores = (np.random.default_rng(seed).integers(0, levels, n) / levels).astype(dtype)
    assert conformal_quantile(scores, alpha) == oracle.quantile(scores, alpha)


@pytest.mark.parametrize("hundredths", range(1, 100))
def test_rank_is_exact_at_every_percent_for_every_size(hundredths):
    alpha = hundredths / 100
    for n in range(1, 400):
        rank = math.ceil((n + 1) * (1 - Fraction(hundredths, 100)))
        wanted = math.inf if rank > n else rank
        assert conformal_quantile(np.arange(1.0, n + 1), alpha) == wanted, (n, alpha)


@pytest.mark.slow
@pytest.mark.parametrize(
    "n, alpha", [(10**7 - 1, 0.18), (10**7 - 1, 0.1), (19_029_000 - 1, 0.938)]
)
def test_rank_is_exact_for_many_points(n, alpha):
    scores = np.arange(1, n + 1, dtype=np.float32 if n < 2**24 else np.float64)
    assert conformal_quantile(scores, alpha) == math.ceil(
        (n + 1) * (1 - Fraction(str(alpha)))
    )


def test_rank_150_times_82_percent_is_123():
    scores = np.random.default_rng(0).permutation(149) + 1.0
    assert conformal_quantile(scores, 0.18) == 123


def test_quantile_is_infinite_when_the_rank_exceeds_n():
    assert conformal_quantile(np.zeros(8), 0.1) == math.inf  # ceil(9 * .9) = 9 > 8
    assert conformal_quantile(np.zeros(9), 0.1) == 0.0
    assert conformal_quantile([3.0], 0.5) == 3.0
    assert conformal_quantile([3.0], 0.49) == math.inf


def columns_of(n, rng):
    """Numbers that are easy and hard to place by every 32nd of them."""
    periodic = np.tile(np.r_[0.9, np.linspace(0, 1, 31)], n // 32 + 1)[:n]
    return {
        "random": rng.random(n),
        "random float32": rng.random(n, np.float32),
        "crowded at 1": 1 - rng.random(n) ** 9,
        "few values": rng.integers(0, 5, n) / 4,
        "one value": np.full(n, 0.25),
        "ascending": np.arange(n) / n,
        "descending": np.arange(n)[::-1] / n,
        "infinite": np.where(rng.random(n) < 0.3, np.inf, -np.inf),
        "subnormal": rng.integers(0, 9, n) * 5e-324,
        "the sample sees one value": periodic,
        "every second entry": rng.random(2 * n)[::2],
    }


@pytest.mark.parametrize("n", [1, 2, 31, MANY_NUMBERS - 1, MANY_NUMBERS, 20_001])
def test_the_kth_smallest_is_that_of_the_sorted_numbers(n):
    rng = np.random.default_rng(n)
    for name, column in columns_of(n, rng).items():
        before = column.copy()
        in_order = np.sort(column)
        ranks = {1, 2, n // 2, math.ceil(0.9 * n), n - 1, n} - {0, -1}
        ranks |= set(rng.integers(1, n + 1, 5).tolist())
        for k in sorted(rank for rank in ranks if rank <= n):
            found = kth_smallest(column, k)
            assert found == in_order[k - 1], (name, k)
            assert found.dtype == column.dtype
        assert np.array_equal(column, before)


def test_quantile_does_not_interpolate_between_ties():
    assert conformal_quantile([0.0, 0.0, 0.0, 1.0, 1.0], 0.5) == 0.0
    assert conformal_quantile([0.0, 0.0, 1.0, 1.0, 1.0], 0.5) == 1.0


def test_quantile_of_float32_scores_is_one_of_them():
    scores = np.random.default_rng(1).random(500, dtype=np.float32)
    threshold = conformal_quantile(scores, 0.1)
    assert isinstance(threshold, float)
    assert threshold in scores.astype(np.float64)
    sets = prediction_sets(scores[:, None], threshold)
    assert sets.sum() == math.ceil(501 * Fraction(9, 10))


@pytest.mark.parametrize("value", [0.1, 0.7, 1 / 3, 0.999, 1e-30, -0.1])
def test_sets_compare_float32_scores_with_a_float64_threshold_exactly(value):
    score = np.float32(value)
    above, below = (np.nextafter(score, np.float32(way)) for way in (np.inf, -np.inf))
    scores = np.array([[below, score, above]])
    halfway = (float(score) + float(above)) / 2
    for threshold in (
        float(score),
        halfway,
        np.nextafter(float(score), -np.inf),
        np.nextafter(float(above), -np.inf),
    ):
        wanted = [[float(s) <= threshold for s in scores[0]]]
        assert prediction_sets(scores, threshold).tolist() == wanted
        assert prediction_sets(scores, [threshold] * 3).tolist() == wanted


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    n=st.integers(1, 20),
    n_classes=st.integers(1, 6),
    seed=st.integers(0, 999),
    single=st.booleans(),
)
def test_sets_hold_the_labels_at_or_below_their_threshold(n, n_classes, seed, single):
    rng = np.random.default_rng(seed)
    scores = (rng.integers(0, 9, (n, n_classes)) / 8).astype(
        rng.choice(["float32", "float64"])
    )
    threshold = rng.choice(
        [0, 0.25, 0.5, 0.3, 1, np.inf, -np.inf], () if single else n_classes
    )
    sets = prediction_sets(scores, threshold)
    limits = np.broadcast_to(threshold, n_classes)
    assert sets.dtype == bool
    assert sets.tolist() == [
        [float(s) <= limit for s, limit in zip(row, limits, strict=True)]
        for row in scores
    ]


def test_sets_are_full_at_infinity():
    assert prediction_sets(np.random.default_rng(0).random((5, 3)), np.inf).all()


def test_coverage_and_efficiency_count_by_hand():
    sets = [
        [True, False, False],
        [True, True, False],
        [False, False, False],
        [True, True, True],
    ]
    assert coverage(sets, [0, 2, 1, 2]) == 0.5
    assert efficiency(sets) == 1.5


def test_lists_frames_and_tensors_are_arrays():
    scores, y = np.random.default_rng(3).random((30, 4)), np.arange(30) % 4
    sets = prediction_sets(scores, 0.5)
    wanted = (coverage(sets, y), efficiency(sets))
    for convert in (np.ndarray.tolist, pd.DataFrame):
        assert np.array_equal(prediction_sets(convert(scores), 0.5), sets)
        assert (coverage(convert(sets), y.tolist()), efficiency(convert(sets))) == wanted
    tensor = pytest.importorskip("torch").tensor
    assert np.array_equal(prediction_sets(tensor(scores), tensor(0.5)), sets)
    assert (coverage(tensor(sets), tensor(y)), efficiency(tensor(sets))) == wanted


def test_series_and_tensors_of_scores_have_the_same_quantile():
    scores = np.random.default_rng(4).random(50)
    assert conformal_quantile(pd.Series(scores), 0.2) == conformal_quantile(
        scores.tolist(), 0.2
    )
    torch = pytest.importorskip("torch")
    assert conformal_quantile(torch.tensor(scores), 0.2) == conformal_quantile(
        scores, 0.2
    )

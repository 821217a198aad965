"""TPS, APS and RAPS against their definition row by row."""

import numpy as np
import oracle
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfhelpers.scores import aps, raps, tps

TOLERANCE = {np.float32: 1e-6, np.float64: 1e-12}


def probabilities(rng, n, n_classes, tied, dtype):
    """Rows that sum to 1.

    Tied rows have weights 0, 1 or 2, so that many labels share a probability.
    """
    weights = (
        rng.integers(0, 3, (n, n_classes)).astype(float)
        if tied
        else rng.exponential(size=(n, n_classes)) ** 3
    )
    weights[weights.sum(1) == 0] = 1
    return (weights / weights.sum(1, keepdims=True)).astype(dtype)


cases = st.tuples(
    st.integers(1, 8),
    st.integers(1, 30),
    st.booleans(),
    st.sampled_from([np.float32, np.float64]),
    st.integers(0, 9999),
)


def draw(case):
    n, n_classes, tied, dtype, seed = case
    rng = np.random.default_rng(seed)
    probs = probabilities(rng, n, n_classes, tied, dtype)
    return rng, probs, TOLERANCE[dtype]


@settings(max_examples=400, deadline=None, derandomize=True)
@given(case=cases)
def test_tps_is_one_minus_the_probability(case):
    _, probs, tolerance = draw(case)
    np.testing.assert_allclose(
        tps(probs),
        [oracle.tps_row(row.tolist()) for row in probs],
        rtol=0,
        atol=tolerance,
    )


@settings(max_examples=800, deadline=None, derandomize=True)
@given(case=cases, randomised=st.booleans())
def test_aps_sums_the_labels_ranked_no_lower_less_u_times_its_own(case, randomised):
    rng, probs, tolerance = draw(case)
    u = rng.random(len(probs)) if randomised else None
    rows = [
        oracle.aps_row(row.tolist(), u[i] if randomised else None)
        for i, row in enumerate(probs)
    ]
    np.testing.assert_allclose(aps(probs, u), rows, rtol=0, atol=tolerance)


@settings(max_examples=800, deadline=None, derandomize=True)
@given(
    case=cases,
    randomised=st.booleans(),
    penalty=st.sampled_from([0.0, 0.01, 0.3, 2.0]),
    k_reg=st.sampled_from([0, 1, 2, 5, 40]),
)
def test_raps_adds_the_penalty_beyond_rank_k_reg(case, randomised, penalty, k_reg):
    rng, probs, tolerance = draw(case)
    u = rng.random(len(probs)) if randomised else None
    rows = [
        oracle.raps_row(
            row.tolist(), u[i] if randomised else None, penalty=penalty, k_reg=k_reg
        )
        for i, row in enumerate(probs)
    ]
    np.testing.assert_allclose(
        raps(probs, u, penalty=penalty, k_reg=k_reg), rows, rtol=1e-6, atol=tolerance
    )


@pytest.mark.parametrize("n_classes", [2, 5, 12, 13, 14, 30])
@pytest.mark.parametrize("score", [tps, aps, raps])
def test_scores_follow_their_labels_when_columns_are_permuted(score, n_classes):
    rng = np.random.default_rng(n_classes)
    probs = probabilities(rng, 50, n_classes, False, np.float64)
    order = rng.permutation(n_classes)
    np.testing.assert_allclose(score(probs[:, order]), score(probs)[:, order], atol=1e-12)


@pytest.mark.parametrize("n_classes", [3, 20])
@pytest.mark.parametrize("score", [aps, raps])
def test_scores_of_a_point_do_not_depend_on_the_others(score, n_classes):
    rng = np.random.default_rng(n_classes)
    probs, u = probabilities(rng, 40, n_classes, True, np.float32), rng.random(40)
    rows = rng.permutation(40)
    assert np.array_equal(score(probs[rows], u[rows]), score(probs, u)[rows])
    assert np.array_equal(
        np.concatenate([score(probs[[i]], u[[i]]) for i in range(40)]), score(probs, u)
    )


@pytest.mark.parametrize("n_classes", [4, 20])
def test_aps_ranks_the_lower_label_first_among_equals(n_classes):
    probs = np.full((1, n_classes), 1 / n_classes)
    np.testing.assert_allclose(aps(probs)[0], np.arange(1, n_classes + 1) / n_classes)
    np.testing.assert_allclose(
        aps(probs, [1.0])[0], np.arange(n_classes) / n_classes, atol=1e-12
    )


@pytest.mark.parametrize("n_classes", [1, 2, 7, 12, 13, 30])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_aps_stays_within_zero_and_one(n_classes, dtype):
    rng = np.random.default_rng(0)
    for tied in (False, True):
        probs = probabilities(rng, 2000, n_classes, tied, dtype)
        for u in (None, np.zeros(2000), np.ones(2000), rng.random(2000)):
            scores = aps(probs, u)
            assert scores.dtype == dtype
            assert scores.min() >= 0 and scores.max() <= 1


def test_aps_at_the_true_label_is_uniform_when_the_probabilities_are_right():
    rng = np.random.default_rng(7)
    probs = rng.dirichlet(np.ones(5), 20_000)
    y = (probs.cumsum(1) < rng.random((20_000, 1))).sum(1)
    scores = aps(probs, rng.random(20_000))[np.arange(20_000), y]
    ranks = np.sort(scores) - np.arange(1, 20_001) / 20_000
    assert np.abs(ranks).max() < 1.63 / np.sqrt(20_000)  # Kolmogorov's 1% point


def test_raps_without_a_penalty_is_aps():
    rng = np.random.default_rng(2)
    for n_classes in (3, 20):
        probs, u = probabilities(rng, 30, n_classes, True, np.float64), rng.random(30)
        assert np.array_equal(raps(probs, u, penalty=0, k_reg=1), aps(probs, u))


def test_raps_exceeds_one_for_unlikely_labels():
    assert raps([[0.7, 0.2, 0.1]], penalty=0.5, k_reg=1).max() == pytest.approx(2.0)


@pytest.mark.parametrize("score", [tps, aps, raps])
def test_lists_frames_and_tensors_are_probabilities(score):
    probs = probabilities(np.random.default_rng(5), 20, 4, False, np.float64)
    wanted = score(probs)
    assert np.array_equal(score(probs.tolist()), wanted)
    assert np.array_equal(score(pd.DataFrame(probs, columns=list("abcd"))), wanted)
    torch = pytest.importorskip("torch")
    assert np.array_equal(score(torch.tensor(probs)), wanted)
    tracked = torch.tensor(probs, dtype=torch.float32, requires_grad=True)
    np.testing.assert_allclose(score(tracked), wanted, atol=1e-6)


@pytest.mark.parametrize("score", [tps, aps, raps])
def test_scoring_leaves_the_probabilities_untouched(score):
    probs = probabilities(np.random.default_rng(6), 20, 4, False, np.float64)
    before = probs.copy()
    score(probs)
    assert np.array_equal(probs, before)

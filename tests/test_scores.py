"""TPS, APS and RAPS against their definition row by row."""

from datetime import date
from decimal import Decimal
from uuid import UUID

import numpy as np
import oracle
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse, stats

from cfhelpers import _ranking
from cfhelpers.scores import aps, person_u, raps, tps

NUMBERS_OF_IDS = [
    0.8185951590007136,
    0.5977835360838739,
    0.5274468911490775,
    0.3306651459861598,
]
NUMBERS_OF_ROWS = [0.4959340050944083, 0.3196817767240474]
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


@pytest.mark.slow
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


def test_a_persons_number_is_the_same_in_any_batch():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 4)).round(1)
    u = person_u(rows, seed=3)
    order = rng.permutation(300)
    assert np.array_equal(person_u(rows[order], seed=3), u[order])
    alone = np.concatenate([person_u(rows[[i]], seed=3) for i in range(20)])
    assert np.array_equal(alone, u[:20])


def test_a_persons_number_never_changes():
    """Thresholds that were fitted years ago must serve the same sets."""
    assert person_u([7, "7", "Łódź", None], 0).tolist() == NUMBERS_OF_IDS
    assert person_u([[0.25, -1.5], [np.nan, 0.0]], 2**60).tolist() == NUMBERS_OF_ROWS


def test_rows_are_the_same_however_they_are_stored():
    rng = np.random.default_rng(0)
    rows = rng.integers(-3, 4, (50, 3)).astype(float)
    wanted = person_u(rows, 0)
    frame = pd.DataFrame(rows, columns=["one", "two", "three"])
    same = {
        "list": rows.tolist(),
        "integers": rows.astype(int),
        "column order": np.asfortranarray(rows),
        "single": rows.astype(np.float32),
        "objects": rows.astype(object),
        "frame": frame,
        "mixed frame": frame.astype({"one": int, "two": object, "three": "Int64"}),
        "categories": frame.astype({"one": "category"}),
        "index": frame.set_index(np.arange(50)[::-1]),
        "sparse": sparse.csr_array(rows),
        "negative zero": np.where(rows == 0, -0.0, rows),
    }
    for name, values in same.items():
        assert np.array_equal(person_u(values, 0), wanted), name


def test_texts_and_times_are_the_same_however_they_are_stored():
    words = ["a", "Łódź", None, "a"]
    wanted = person_u(words, 0)
    assert wanted[0] == wanted[3]
    assert np.array_equal(person_u(pd.Series(words), 0), wanted)
    assert np.array_equal(person_u(pd.Categorical(words), 0), wanted)
    assert np.array_equal(person_u(np.array(words, object), 0), wanted)
    days = pd.to_datetime(["2020-02-03", None])
    wanted = person_u(days, 0)
    assert np.array_equal(person_u(days.as_unit("s"), 0), wanted)
    assert np.array_equal(person_u([date(2020, 2, 3), None], 0), wanted)
    assert np.array_equal(person_u(list(days), 0), wanted)


def test_ids_of_different_people_are_different():
    ids = [
        7,
        "7",
        2**53,
        2**53 + 1,
        10**400,
        10**400 + 1,
        "",
        "\x00",
        0,
        None,
        UUID(int=7),
    ]
    assert len(set(person_u(ids, 0).tolist())) == len(ids)
    assert len(set(person_u(np.arange(2**60, 2**60 + 50), 0).tolist())) == 50
    one, other = person_u([7, 7.0], 0)
    assert one == other
    assert person_u([2**53 + 1], 0) == person_u([2**53 + 1, "x"], 0)[0]


def test_a_long_id_is_one_person_however_it_is_kept():
    ids = [2**53, 2**53 + 1, -(2**60) - 7, 5]
    wanted = person_u(ids, 0)
    assert len(set(wanted.tolist())) == len(ids)
    decimals = [Decimal(value) for value in ids]
    for kept in (pd.Categorical(ids), decimals, pd.Categorical(decimals)):
        assert np.array_equal(person_u(kept, 0), wanted)
    some = pd.Categorical([ids[1], None], categories=ids)
    assert person_u(some, 0)[0] == wanted[1]
    arrow = pytest.importorskip("pyarrow")
    of_arrow = pd.Series(decimals, dtype=pd.ArrowDtype(arrow.decimal128(20)))
    assert np.array_equal(person_u(of_arrow, 0), wanted)


def test_what_is_missing_is_one_thing():
    assert len(set(person_u([None, np.nan, pd.NA, pd.NaT], 0).tolist())) == 1
    rows = pd.DataFrame({"a": [None, np.nan], "b": [1, 1]})
    assert len(set(person_u(rows, 0).tolist())) == 1


@pytest.mark.parametrize("kind", ["counted", "rows", "texts"])
def test_numbers_are_uniform_and_independent_between_seeds_and_purposes(kind):
    n = 20_000
    people = {
        "counted": np.arange(n),
        "rows": np.stack([np.arange(n) % 150, np.arange(n) // 150], axis=1) / 7,
        "texts": [f"person {i}" for i in range(n)],
    }[kind]
    numbers = [person_u(people, 0), person_u(people, 1), person_u(people, 0, "thinning")]
    for u in numbers:
        assert u.min() >= 0 and u.max() < 1
        assert stats.kstest(u, "uniform").pvalue > 0.001
        neighbours = np.corrcoef(u[1:], u[:-1])[0, 1]
        assert abs(neighbours) < 4 / np.sqrt(n)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        table, _, _ = np.histogram2d(numbers[one], numbers[other], bins=10)
        assert stats.chisquare(table.ravel()).pvalue > 0.001


def test_numbers_need_a_seed_and_rows_with_content():
    for seed in (-1, 1.5, None, True, "x"):
        with pytest.raises(ValueError, match="seed: found"):
            person_u([1], seed)
    with pytest.raises(ValueError, match="rows: found no columns"):
        person_u(np.empty((3, 0)), 0)
    with pytest.raises(ValueError, match=r"rows: found \{\} of type dict"):
        person_u([{}, 1], 0)
    with pytest.raises(ValueError, match="rows: found 3; wanted a table"):
        person_u(3, 0)
    assert person_u([], 0).shape == (0,)


@pytest.mark.parametrize("n_classes", [1, 5, _ranking.FEW_LABELS, 13, 40, 1025])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_loops_as_they_stand_give_what_the_compiled_ones_give(
    n_classes, dtype, monkeypatch
):
    """Where Numba is absent the very same functions run uncompiled."""
    rng = np.random.default_rng(n_classes)
    alike = np.full((10, n_classes), 1 / n_classes)
    alike *= 1 + 1e-7 * rng.random(alike.shape)  # equal up to the last bits
    tables = [probabilities(rng, 10, n_classes, tied, dtype) for tied in (False, True)]
    tables.append(alike.astype(dtype))
    tables.append(np.where(tables[1] == 0, dtype(-0.0), tables[1]))
    u = rng.random(10)
    wanted = [raps(table, u, penalty=0.1, k_reg=2) for table in tables]
    loops = (_ranking.compare_labels, _ranking.add_up)
    monkeypatch.setattr(_ranking, "compiled", lambda: loops)
    for table, compiled in zip(tables, wanted, strict=True):
        assert np.array_equal(raps(table, u, penalty=0.1, k_reg=2), compiled)
        pairs = zip(table, u, strict=True)
        rows = [oracle.raps_row(row, own, penalty=0.1, k_reg=2) for row, own in pairs]
        np.testing.assert_allclose(compiled, rows, rtol=1e-5, atol=TOLERANCE[dtype] * 10)

"""Large tables a block at a time: the same bits as the whole table at once."""

import threading
import time
import warnings

import numpy as np
import pytest

from cfhelpers import _blocks, scores
from cfhelpers._checks import as_probabilities
from cfhelpers.conformal import prediction_sets, true_label_scores

FORMS = {
    "as it is": lambda table: table,
    "Fortran order": np.asfortranarray,
    "every second row": lambda table: np.repeat(table, 2, axis=0)[::2],
    "some columns of more": lambda table: np.hstack([table, table])[:, : table.shape[1]],
    "rows backwards": lambda table: table[::-1].copy()[::-1],
    "columns backwards": lambda table: table[:, ::-1].copy()[:, ::-1],
}


@pytest.fixture(params=["one thread", "three threads"])
def small_blocks(request, monkeypatch):
    """Blocks of few values, so that small tables have many of them."""
    monkeypatch.setattr(_blocks.in_blocks, "__defaults__", (7, _blocks.MANY_VALUES))
    if request.param == "three threads":
        monkeypatch.setattr(_blocks.in_blocks, "__defaults__", (7, 0))
        monkeypatch.setattr(scores, "MANY_RANKED_VALUES", 0)
        monkeypatch.setattr(_blocks, "allowed_threads", lambda: 3)


def random_table(rng, n, n_classes, dtype):
    """Probabilities with many ties, zeros among them."""
    counts = (
        rng.integers(0, 4, (n, n_classes)) + np.eye(n_classes)[rng.integers(n_classes)]
    )
    return (counts / counts.sum(axis=1, keepdims=True)).astype(dtype)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (50, 1), (23, 3), (40, 13), (3, 300)])
def test_blocks_give_the_bits_of_the_whole_table(small_blocks, shape, dtype, form):
    rng = np.random.default_rng(shape)
    plain = random_table(rng, *shape, dtype)
    table = FORMS[form](plain)
    table.flags.writeable = False
    y = rng.integers(0, shape[1], shape[0])
    wide = plain.astype(np.float32) if dtype == np.float16 else plain
    values = scores.tps(table)
    assert values.dtype == wide.dtype and values.flags.c_contiguous
    assert np.array_equal(values, 1 - wide)
    assert np.array_equal(as_probabilities(table), wide)
    own_scores = true_label_scores(FORMS[form](values), y)
    assert own_scores.dtype == values.dtype
    assert np.array_equal(own_scores, values[np.arange(len(y)), y])
    limits = [float(own_scores[0]), 0.5, np.inf, -np.inf]
    for limit in [*limits, rng.random(shape[1])]:
        wanted = values.astype(np.float64) <= limit
        assert np.array_equal(prediction_sets(FORMS[form](values), limit), wanted)


@pytest.mark.parametrize("n_classes", [3, 40])
def test_ranks_are_added_up_the_same_by_several_threads(n_classes, monkeypatch):
    rng = np.random.default_rng(n_classes)
    table = random_table(rng, 500, n_classes, np.float32)
    u = rng.random(500)
    wanted = np.vstack([scores.raps(table[[i]], u[[i]]) for i in range(500)])
    monkeypatch.setattr(scores, "MANY_RANKED_VALUES", 0)
    monkeypatch.setattr(_blocks, "allowed_threads", lambda: 3)
    monkeypatch.setattr(scores, "SCORES_AT_ONCE", 20 * n_classes)
    assert np.array_equal(scores.raps(table, u), wanted)


def test_a_wrong_entry_is_found_in_any_block(small_blocks):
    good = np.full((30, 2), 0.5)
    for row in (0, 3, 17, 29):
        for entry, message in ((np.nan, "column 1 is NaN"), (-0.1, "column 1 is -0.1")):
            wrong = good.copy()
            wrong[row, 1] = entry
            with pytest.raises(ValueError, match=f"probabilities: row {row}, {message}"):
                scores.tps(wrong)
        wrong = good.copy()
        wrong[row, 1] = 0.6
        with pytest.raises(ValueError, match=f"row {row} sums to 1.1"):
            scores.tps(wrong)
        wrong[row, 1] = np.nan
        with pytest.raises(ValueError, match=f"scores: row {row}, column 1 is NaN"):
            prediction_sets(wrong, 0.5)
    with pytest.raises(ValueError, match="y: found 2 in row 29"):
        true_label_scores(good, np.r_[np.zeros(29, int), 2])


def test_of_several_wrong_entries_the_first_in_the_table_is_told(small_blocks):
    wrong = np.full((30, 2), 0.5)
    wrong[5, 0] = 0.7  # another kind, in an earlier block
    wrong[[20, 28], 1] = np.nan
    with pytest.raises(ValueError, match="row 20, column 1 is NaN"):
        scores.tps(wrong)


def test_every_row_is_in_one_block_and_an_error_is_passed_on(small_blocks):
    seen = np.zeros(100, int)

    def count(some):
        seen[some] += 1

    _blocks.in_blocks(count, (100, 3))
    assert (seen == 1).all()

    def fail(some):
        raise ValueError(f"rows from {some.start}")

    with pytest.raises(ValueError, match="rows from"):
        _blocks.in_blocks(fail, (100, 3))


def test_threads_are_as_many_as_are_allowed(monkeypatch):
    monkeypatch.setattr(
        _blocks.os, "sched_getaffinity", lambda _: range(4), raising=False
    )
    for named, wanted in (("1", 1), ("3", 3), ("99", 4), ("", 4), ("0", 4), ("x", 4)):
        monkeypatch.setenv("OMP_NUM_THREADS", named)
        assert _blocks.allowed_threads() == wanted
    found = []
    thread = threading.Thread(target=lambda: found.append(_blocks.allowed_threads()))
    thread.start()
    thread.join()
    assert found == [1]  # the caller shares out its own work
    monkeypatch.setattr(_blocks.sys, "platform", "emscripten")
    assert _blocks.allowed_threads() == 1


def test_after_an_error_no_block_is_begun(monkeypatch):
    monkeypatch.setattr(_blocks, "allowed_threads", lambda: 2)
    begun = []
    failed = threading.Event()

    def fail_in_the_second(some):
        begun.append(some.start)
        if some.start == 1:
            failed.set()
            raise ValueError("the second block")
        assert failed.wait(60)
        time.sleep(2)  # the other thread ends meanwhile

    with pytest.raises(ValueError, match="the second block"):
        _blocks.in_blocks(fail_in_the_second, (100, 1), 1, many_values=0)
    assert sorted(begun) == [0, 1]


def test_infinite_probabilities_are_refused_without_a_warning():
    wrong = np.full((30, 4), 0.25)
    wrong[5] = [np.inf, -np.inf, 0.5, 0.5]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="probabilities: row 5, column 1 is -inf"):
            scores.tps(wrong)
        wrong[5, 1] = 0
        with pytest.raises(ValueError, match="probabilities: row 5 sums to inf"):
            scores.aps(wrong)

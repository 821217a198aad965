"""Group coverages and disparities, as reported on a test split, against counting."""

import math
import warnings
from collections import Counter

import numpy as np
import oracle
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from cfhelpers.fairness import (
    METRICS,
    FairnessMetric,
    clopper_pearson,
    disparity,
    group_coverages,
)

NAMES = sorted(oracle.FILTERS)
GROUPS = [("f", 1), ("m", 1), ("f", 2)]


def quiet_disparity(*arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return disparity(*arguments)


def quiet_disparity_of(sets, y, groups, metric, positive_labels=None):
    return quiet_disparity(sets, y, groups, metric, positive_labels)


def draw(n, n_classes, n_groups, chosen, seed):
    rng = np.random.default_rng(seed)
    y, g = (
        rng.integers(0, rng.integers(1, n_classes + 1), n),
        rng.integers(0, n_groups, n),
    )
    _, g = np.unique(g, return_inverse=True)
    sets = rng.random((n, n_classes)) < rng.choice(
        [0, 0.3, 0.5, 0.8, 1], p=[0.05, 0.3, 0.3, 0.3, 0.05]
    )
    positive = (
        sorted(
            rng.choice(n_classes, rng.integers(1, n_classes + 1), replace=False).tolist()
        )
        if chosen
        else None
    )
    return sets, y, g, positive


shapes = st.tuples(
    st.integers(1, 25),
    st.integers(2, 4),
    st.integers(1, 3),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)


def test_the_eight_metrics_are_named():
    assert sorted(METRICS) == NAMES
    assert all(metric.name == name for name, metric in METRICS.items())
    assert [name for name in NAMES if METRICS[name].compare == "ratio"] == [
        "disparate_impact"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_disparity_is_the_worst_difference_of_plain_coverages(name):
    metric, tally = oracle.metric(name), Counter()

    @settings(max_examples=130, deadline=None, derandomize=True, database=None)
    @given(shape=shapes)
    def run(shape):
        sets, y, g, positive = draw(*shape)
        labels = list(range(1, sets.shape[1])) if positive is None else positive
        wanted = oracle.disparity(sets, y, g, metric, labels)
        found = quiet_disparity(sets, y, [GROUPS[a] for a in g], name, positive)
        assert found == pytest.approx(wanted, abs=1e-12, nan_ok=True)
        tally["undefined"] += math.isnan(wanted)
        tally["fair"] += wanted == (1 if metric.ratio else 0)
        tally["unfair"] += not math.isnan(wanted) and wanted != (1 if metric.ratio else 0)

    run()
    assert tally["unfair"] >= 13 and tally["fair"] >= 4, tally


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=70, deadline=None, derandomize=True)
@given(shape=shapes)
def test_group_coverages_count_every_cell(name, shape):
    sets, y, g, positive = draw(*shape)
    metric = oracle.metric(name)
    table = group_coverages(sets, y, [GROUPS[a] for a in g], name, positive)
    assert {"label", "group", "n"} < set(table.columns)
    labels = list(range(1, sets.shape[1])) if positive is None else positive
    wanted = {}
    for label in [None] if name in oracle.WHOLE else labels:
        for part, cells in enumerate(oracle.group_coverages(sets, y, g, metric, label)):
            wanted |= {(label, part, GROUPS[a]): cell for a, cell in cells.items()}
    part = (
        table["condition"].map({"equal": 0, "different": 1})
        if "condition" in table
        else [0] * len(table)
    )
    label = [None if pd.isna(value) else int(value) for value in table["label"]]
    found = dict(
        zip(
            zip(label, part, table["group"], strict=True),
            table.itertuples(index=False),
            strict=True,
        )
    )
    assert found.keys() == wanted.keys()
    for key, (n, value) in wanted.items():
        assert found[key].n == n
        assert found[key][-1] == pytest.approx(value, abs=1e-12, nan_ok=True)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(shape=shapes, ratio=st.booleans())
def test_disparity_serves_the_users_own_overlapping_cells(shape, ratio):
    sets, y, g, positive = draw(*shape)
    labels = list(range(1, sets.shape[1])) if positive is None else positive

    def others(y, g, a, label):
        return g != a

    theirs = FairnessMetric(
        "everyone else", others, compare="ratio" if ratio else "difference"
    )
    wanted = oracle.disparity(sets, y, g, oracle.Metric("own", others, ratio), labels)
    found = quiet_disparity(sets, y, g, theirs, positive)
    assert found == pytest.approx(wanted, abs=1e-12, nan_ok=True)


def test_disparities_by_hand():
    """Two groups of four.

    Group a has labels 1 1 0 0, and label 1 in the sets of the first three. Group b has
    labels 1 0 0 0, and label 1 in the first set only.
    """
    y, groups = [1, 1, 0, 0, 1, 0, 0, 0], list("aaaabbbb")
    sets = np.zeros((8, 2), bool)
    sets[[0, 1, 2, 4], 1] = True
    sets[[3, 5], 0] = True
    wanted = {
        "demographic_parity": 3 / 4 - 1 / 4,
        "disparate_impact": (1 / 4) / (3 / 4),
        "equal_opportunity": 0,
        "predictive_equality": 1 / 2 - 0,
        "equalized_odds": 1 / 2,
        "predictive_parity": 1 - 2 / 3,
        "predictive_parity_proxy": (1 - 1 / 4) - (2 / 3 - 2 / 4),
        "overall_accuracy_equality": 3 / 4 - 2 / 4,
    }
    for name, value in wanted.items():
        assert disparity(sets, y, groups, name) == pytest.approx(value, abs=1e-12), name
        assert disparity(
            sets.tolist(), pd.Series(y), pd.Series(groups), METRICS[name]
        ) == pytest.approx(value, abs=1e-12)


def test_proxy_keeps_the_sign_of_each_group():
    """PPV is a half above the prior in one group and a half below it in the other.

    That is a gap of 1, not of 0.
    """
    y, groups = [1, 0, 0, 1], list("aabb")
    sets = np.zeros((4, 2), bool)
    sets[[0, 2], 1] = True
    assert disparity(sets, y, groups, "predictive_parity_proxy") == pytest.approx(1.0)


def test_ratio_of_coverages_that_are_all_zero_is_one():
    sets = np.zeros((4, 2), bool)
    assert disparity(sets, [0, 1, 0, 1], list("aabb"), "disparate_impact") == 1
    sets[0, 1] = True
    assert disparity(sets, [0, 1, 0, 1], list("aabb"), "disparate_impact") == 0


def test_labels_go_by_the_names_of_the_columns():
    rng = np.random.default_rng(0)
    sets = rng.random((60, 3)) < 0.6
    y = rng.integers(0, 3, 60)
    groups = rng.choice(["f", "m"], 60)
    names = ["no", "maybe", "yes"]
    named = pd.DataFrame(sets, columns=names)
    by_name = np.array(names)[y]
    for name in NAMES:
        wanted = disparity(sets, y, groups, name, [0, 2])
        for given_as in (by_name, by_name.tolist(), pd.Series(by_name), y):
            assert disparity(named, given_as, groups, name, ["yes", "no"]) == wanted
        every = disparity(sets, y, groups, name, [0, 1, 2])
        assert disparity(named, by_name, groups, name) == every
    table = group_coverages(named, by_name, groups, "equal_opportunity", ["maybe"])
    assert table["label"].tolist() == ["maybe", "maybe"]
    one = group_coverages(named, by_name, groups, "equal_opportunity", "maybe")
    pd.testing.assert_frame_equal(one, table)


def test_columns_that_are_numbers_are_labels_in_any_order():
    sets = np.array([[True, False], [True, True], [False, True], [True, True]])
    y = [0, 1, 0, 1]
    groups = list("aabb")
    turned = pd.DataFrame(sets, columns=[0, 1])[[1, 0]]
    for name in NAMES:
        found = quiet_disparity(turned, y, groups, name)
        wanted = quiet_disparity(sets, y, groups, name)
        assert found == pytest.approx(wanted, nan_ok=True)


def test_empty_cells_go_by_the_names_of_labels():
    sets = pd.DataFrame({"deny": [True, True], "grant": [True, False]})
    with pytest.warns(UserWarning, match=r"\('north', deny\), \('south', grant\)"):
        disparity(sets, ["grant", "deny"], ["north", "south"], "equal_opportunity")


@pytest.mark.parametrize(
    "changes, message",
    [
        (dict(y=["no", "perhaps"]), r"y: found 'perhaps' in row 1; wanted one of"),
        (
            dict(positive_labels=["perhaps"]),
            r"positive_labels: found 'perhaps' in row 0; wanted one of \['no', 'yes'\]",
        ),
        (
            dict(positive_labels=[False, True]),
            r"positive_labels: found the mask \[False, True\]; wanted labels among",
        ),
        (dict(positive_labels=[]), "positive_labels: found none"),
    ],
)
def test_names_that_are_not_there_are_refused(changes, message):
    sets = pd.DataFrame({"no": [True, True], "yes": [True, False]})
    arguments = dict(sets=sets, y=["no", "yes"], groups=["a", "b"], metric=NAMES[0])
    for function in (quiet_disparity_of, group_coverages):
        with pytest.raises(ValueError, match=message):
            function(**arguments | changes)


def test_empty_cells_are_left_out_and_named():
    sets = np.array([[True, True], [True, False], [True, True], [True, False]])
    with pytest.warns(UserWarning, match="'north'.*1"):
        value = disparity(
            sets, [1, 1, 1, 0], ["south", "south", "west", "north"], "equal_opportunity"
        )
    assert value == 0.5


def test_undefined_predictive_values_are_left_out_and_named():
    sets = np.array([[True, True], [True, True], [True, True], [True, False]])
    with pytest.warns(UserWarning, match="'north'"):
        value = disparity(
            sets, [1, 0, 1, 1], ["south", "south", "west", "north"], "predictive_parity"
        )
    assert value == 0.5


def test_nothing_warns_when_no_cell_is_empty():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        disparity(np.ones((4, 2), bool), [0, 1, 0, 1], list("aabb"), "equalized_odds")


def test_several_columns_of_groups_are_their_combinations():
    rng = np.random.default_rng(0)
    sets, y = rng.random((200, 3)) < 0.6, rng.integers(0, 3, 200)
    frame = pd.DataFrame(
        {"sex": rng.choice(["f", "m"], 200), "age": rng.choice(["old", "young"], 200)}
    )
    joined = frame["sex"] + " " + frame["age"]
    for name in NAMES:
        assert disparity(sets, y, frame, name) == disparity(sets, y, joined, name)
        assert disparity(sets, y, frame.to_numpy(), name) == disparity(
            sets, y, joined, name
        )


@pytest.mark.parametrize("n", [1, 5, 30, 59])
@pytest.mark.parametrize("level", [0.05, 0.25])
def test_clopper_pearson_bounds_fail_no_more_often_than_their_level(n, level):
    """Exactly: the probability of every count, summed over those whose bound misses p."""
    counts = np.arange(n + 1)
    low, high = clopper_pearson(counts, n, level)
    p = np.linspace(0, 1, 2001)[:, None]
    weights = binom.pmf(counts, n, p)
    below, above = (weights * (low > p)).sum(1), (weights * (high < p)).sum(1)
    assert max(below.max(), above.max()) <= level + 1e-9
    assert min(below.max(), above.max()) >= 0.9 * level  # and not by being wide

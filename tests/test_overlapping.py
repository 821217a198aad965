"""Groups that overlap: a boolean table of who belongs to which."""

import numpy as np
import oracle
import pandas as pd
import pytest

from cfhelpers import FairConformalClassifier, audit
from cfhelpers.bounds import clopper_pearson
from cfhelpers.cells import SortedCells
from cfhelpers.control import find_threshold
from cfhelpers.datasets.populations import two_groups
from cfhelpers.fairness import disparity, group_coverages
from cfhelpers.groups import as_groups
from cfhelpers.metrics import METRICS, FairnessMetric

# The metrics of the paper: their cells are counts of labels.
NAMES = tuple(oracle.FILTERS)


def random_case(seed, n=90, n_classes=3, levels=15):
    rng = np.random.default_rng(seed)
    table = rng.random((n, 3)) < [0.6, 0.5, 0.3]
    scores = rng.integers(0, levels, (n, n_classes)) / levels
    return scores, rng.integers(0, n_classes, n), table


@pytest.fixture(scope="module")
def people():
    probabilities, y, groups = two_groups().draw(4000, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"woman": rng.random(4000) < 0.5, "Black": groups == "B"})
    table["both"] = table["woman"] & table["Black"]
    return probabilities, y, table


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("guarantee", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_search_over_cells_that_share_points_is_the_brute_force(name, guarantee, seed):
    scores, y, table = random_case(seed)
    closeness = 0.5 if METRICS[name].is_ratio else 0.45
    for classwise in (False, True):
        wanted = oracle.search(
            scores,
            y,
            oracle.Overlapping(table),
            oracle.metric(name),
            closeness,
            alpha=0.4,
            classwise=classwise and name != oracle.OVERALL,
            positive_labels=[1, 2],
            guarantee=guarantee,
            delta=0.2,
            grid=np.arange(16) / 15,
        )
        found = find_threshold(
            scores,
            y,
            table,
            name,
            closeness,
            alpha=0.4,
            classwise=classwise,
            guarantee="fixed-sequence" if guarantee else "none",
            delta=0.2,
            grid=np.arange(16) / 15 if guarantee else None,
        )
        np.testing.assert_allclose(found.threshold, wanted.threshold)
        np.testing.assert_allclose(found.bound, wanted.bound, atol=1e-12)
        assert found.satisfied == wanted.satisfied


@pytest.mark.parametrize("name", NAMES)
def test_disparity_over_cells_that_share_points_is_the_brute_force(name):
    scores, y, table = random_case(7)
    sets = scores <= 0.5
    wanted = oracle.disparity(
        sets, y, oracle.Overlapping(table), oracle.metric(name), [1, 2]
    )
    assert disparity(sets, y, table, name) == pytest.approx(wanted)


def test_groups_that_do_not_overlap_give_what_one_column_gives(people):
    probabilities, y, table = people
    scores = 1 - probabilities
    names = np.where(table["woman"], "woman", "man")
    both = pd.DataFrame({"man": ~table["woman"], "woman": table["woman"]})
    for guarantee in ("none", "fixed-sequence"):
        args = ("equal_opportunity", 0.1)
        one = find_threshold(scores, y, names, *args, guarantee=guarantee)
        two = find_threshold(scores, y, both, *args, guarantee=guarantee)
        assert one.threshold.tolist() == two.threshold.tolist()
        assert one.bound.tolist() == pytest.approx(two.bound.tolist(), nan_ok=True)


def test_guarantee_uses_two_bounds_where_a_point_is_in_two_groups(people):
    probabilities, y, table = people
    scores = 1 - probabilities
    args = (scores, y, table, "equal_opportunity", 0.15)
    sharp = find_threshold(*args, guarantee="fixed-sequence")
    bounds = find_threshold(*args, guarantee="fixed-sequence", test="bounds")
    assert sharp.threshold.tolist() == bounds.threshold.tolist()
    assert sharp.bound.tobytes() == bounds.bound.tobytes()


def test_people_in_no_group_count_for_the_quantile_alone(people):
    probabilities, y, table = people
    scores = 1 - probabilities
    in_one = table.any(axis=1).to_numpy()
    assert not in_one.all()
    everyone = find_threshold(scores, y, table, "equal_opportunity")
    members = find_threshold(
        scores[in_one],
        y[in_one],
        table[in_one],
        "equal_opportunity",
        base_scores=scores[np.arange(len(y)), y],
    )
    assert everyone.threshold.tolist() == members.threshold.tolist()


def test_table_may_be_an_array_a_frame_or_rows(people):
    _, _, table = people
    columns = as_groups(table, 4000)
    assert columns.names == ["woman", "Black", "both"]
    assert columns.counts.tolist() == table.sum().tolist()
    assert as_groups(table.to_numpy(), 4000).names == [0, 1, 2]
    assert as_groups(table.to_numpy().tolist(), 4000).counts.tolist() == (
        table.sum().tolist()
    )
    assert columns.is_overlapping
    taken = columns.take(np.flatnonzero(~table["both"]))
    assert not taken.is_overlapping


def test_a_missing_entry_and_a_name_given_twice_are_refused():
    holes = pd.DataFrame({"a": [True, False], "b": [True, None]}, dtype="boolean")
    with pytest.raises(ValueError, match="row 1 of column 'b' is missing"):
        as_groups(holes, 2)
    twice = pd.DataFrame([[True, False]] * 2, columns=["a", "a"])
    with pytest.raises(ValueError, match="column 'a' twice"):
        as_groups(twice, 2)


def test_own_filters_see_overlapping_groups_by_name(people):
    probabilities, y, table = people
    sets = 1 - probabilities <= 0.8

    def own(y, g, a, label):
        return (g == a) & (y == label)

    metric = FairnessMetric("own", own)
    assert disparity(sets, y, table, metric) == disparity(
        sets, y, table, "equal_opportunity"
    )
    found = find_threshold(1 - probabilities, y, table, metric, 0.1)
    built_in = find_threshold(1 - probabilities, y, table, "equal_opportunity", 0.1)
    assert found.threshold.tolist() == built_in.threshold.tolist()


def test_audit_of_overlapping_groups_needs_two_bounds_for_within(people):
    probabilities, y, table = people
    sets = 1 - probabilities <= 0.97
    found = audit(sets, y, table, "equal_opportunity", closeness=0.2, positive_labels=[1])
    cells = group_coverages(sets, y, table, "equal_opportunity", [1])
    hits = (cells["n"] * cells["coverage"]).round().to_numpy(int)
    lower, upper = clopper_pearson(hits, cells["n"], 0.025)
    worst = max(
        upper[a] - lower[b] for a in range(3) for b in range(3) if a != b
    )  # fmt: skip
    assert found.table["count"].tolist() == cells["n"].tolist()
    judge = found.judges["equal_opportunity"]
    shares = found.shares["equal_opportunity"]
    assert float(shares.test_losses(0.05).max()) == pytest.approx(worst)
    assert judge.is_within(shares) == (worst <= 0.2)


def test_sorted_cells_count_overlapping_groups(people):
    probabilities, y, table = people
    groups = as_groups(table, 4000)
    counts = SortedCells(1 - probabilities, y, groups).counts_at(0.8)
    sets = 1 - probabilities <= np.float32(0.8)
    for place, name in enumerate(table):
        own = table[name].to_numpy()
        assert counts.covered[1, 0, place] == (sets[:, 1] & own & (y == 1)).sum()
        assert counts.sizes[1, 1, place] == (own & (y != 1)).sum()


@pytest.mark.filterwarnings("ignore::cfhelpers.predictor.InfeasibleWarning")
def test_classifier_promises_to_every_column_and_leaves_out_small_ones(people):
    probabilities, y, table = people
    fair = FairConformalClassifier(random_state=0, closeness=0.2)
    fair.fit(probabilities, y, table)
    assert fair.promise_.groups == ["woman", "Black", "both"]
    rare = table.assign(rare=np.arange(4000) < 10)
    kept = FairConformalClassifier(
        random_state=0, closeness=0.2, small_groups="leave out"
    )
    with pytest.warns(UserWarning, match="left out: 'rare'"):
        kept.fit(probabilities, y, rare)
    assert kept.threshold_.tolist() == fair.threshold_.tolist()
    pooled = rare.assign(few=np.arange(4000) >= 3990)
    one = FairConformalClassifier(random_state=0, closeness=0.2, small_groups="pool")
    with pytest.warns(UserWarning, match="pooled: 'rare', 'few'"):
        one.fit(probabilities, y, pooled)
    assert one.promise_.groups == ["woman", "Black", "both", "pooled: rare, few"]


def test_thinning_goes_with_overlapping_groups(people):
    probabilities, y, table = people
    own = np.random.default_rng(0).random(4000)
    found = find_threshold(
        1 - probabilities,
        y,
        table,
        "equal_opportunity",
        0.2,
        guarantee="fixed-sequence",
        sample_weight=own,
        weight_bound=1,
    )
    assert found.feasible
    assert 0 < found.weighting.n_kept < 4000

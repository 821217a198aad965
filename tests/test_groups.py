"""Groups: declared ones without points, whatever holds them, pooled and left out."""

import numpy as np
import pandas as pd
import pytest

from cfhelpers.control import find_threshold
from cfhelpers.fairness import METRICS, FairnessMetric, disparity
from cfhelpers.groups import as_groups


@pytest.mark.parametrize("ordered", [False, True])
def test_unused_categories_are_declared_groups(ordered):
    dtype = pd.CategoricalDtype(["c", "b", "a"], ordered=ordered)
    column = pd.Series(["b", "a", "b"], dtype=dtype, index=[7, 8, 9])
    for values in (column, column.array, column.to_frame(), pd.CategoricalIndex(column)):
        groups = as_groups(values, 3)
        assert groups.names == ["a", "b", "c"]
        assert groups.codes.tolist() == [1, 0, 1]
        assert groups.counts.tolist() == [1, 2, 0]


def test_of_several_columns_combinations_that_occur_are_groups():
    frame = pd.DataFrame(
        {"sex": pd.Categorical(["f", "m"], ["f", "m", "x"]), "old": [0, 1]}
    )
    assert as_groups(frame, 2).names == [("f", 0), ("m", 1)]


def test_a_missing_category_is_missing():
    with pytest.raises(ValueError, match="groups: row 1 is missing"):
        as_groups(pd.Categorical(["a", None], ["a", "b"]), 2)


@pytest.mark.parametrize("guarantee", ["none", "fixed-sequence"])
@pytest.mark.parametrize("metric", [*METRICS, "own"])
def test_a_declared_group_blocks_every_finite_threshold(metric, guarantee):
    rng = np.random.default_rng(0)
    scores = rng.random((600, 3))
    y = rng.integers(0, 3, 600)
    groups = pd.Categorical(rng.choice(["a", "b"], 600), ["a", "b", "none of these"])
    name = metric
    if metric == "own":
        metric = FairnessMetric("own", lambda y, g, a, label: (g == a) & (y == label))
    closeness = 0.5 if name == "disparate_impact" else 0.4
    for classwise in (False, True):
        options = {"guarantee": guarantee, "classwise": classwise}
        found = find_threshold(scores, y, groups, metric, closeness, **options)
        assert not found.feasible
        assert {cell[0] for cell in found.blocking_cells} == {"none of these"}
        assert {cell[2] for cell in found.blocking_cells} == {0}
        assert "'none of these'" in str(found)
    seen = find_threshold(scores, y, np.asarray(groups), metric, closeness)
    assert seen.feasible or name.startswith("predictive_parity")


def test_a_declared_group_is_left_out_of_what_is_observed():
    sets = np.array([[True, False], [True, True], [False, True], [True, True]])
    groups = pd.Categorical(["a", "b", "a", "b"], ["a", "b", "c"])
    plain = np.asarray(groups)
    for metric in ("demographic_parity", "equal_opportunity", "disparate_impact"):
        y = [0, 1, 1, 1]
        with pytest.warns(UserWarning, match="without points: .'c', 1"):
            declared = disparity(sets, y, groups, metric)
        assert declared == disparity(sets, y, plain, metric)


def test_whatever_yields_one_group_per_point_is_taken():
    wanted = as_groups(["a", "b", "a"], 3)
    for values in (iter("aba"), {1: "a", 2: "b", 3: "a"}.values(), map(str, "aba")):
        found = as_groups(values, 3)
        assert found.names == wanted.names
        assert found.codes.tolist() == wanted.codes.tolist()
    assert as_groups(wanted, 3) is wanted


@pytest.mark.parametrize(
    "values, message",
    [
        ({"a": 1, "b": 2, "c": 3}, "groups: found a dict"),
        ({"a", "b", "c"}, "groups: found a set"),
        ("aba", "groups: found a str"),
        (5, r"groups: found shape \(\)"),
        (np.zeros((3, 1, 1)), r"groups: found shape \(3, 1, 1\)"),
        ([{}, {}, {}], "groups: unhashable type: 'dict'"),
        (np.ma.array(["a", "b", "c"], mask=[0, 1, 0]), "groups: row 1 is missing"),
        (np.ma.array([1, 2, 3], mask=[0, 0, 1]), "groups: row 2 is missing"),
    ],
)
def test_whatever_else_is_refused_by_name(values, message):
    with pytest.raises(ValueError, match=message):
        as_groups(values, 3)


def test_columns_of_one_name_both_count():
    frame = pd.DataFrame([["a", 1], ["a", 2], ["b", 1]], columns=["x", "x"])
    assert as_groups(frame, 3).names == [("a", 1), ("a", 2), ("b", 1)]


def test_a_masked_array_without_a_mask_is_an_array():
    assert as_groups(np.ma.array([3, 1, 3]), 3).names == [1, 3]


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_polars_and_arrow_columns_are_groups(library):
    module = pytest.importorskip(library)
    column = module.Series if library == "polars" else module.array
    table = module.DataFrame if library == "polars" else module.table
    assert as_groups(column(["b", "a", "b"]), 3).names == ["a", "b"]
    several = as_groups(table({"sex": ["f", "m", "f"], "old": [1, 0, 1]}), 3)
    assert several.names == [("f", 1), ("m", 0)]
    with pytest.raises(ValueError, match="groups: row 1 is missing"):
        as_groups(column(["b", None, "b"]), 3)


def test_polars_enum_declares_groups():
    polars = pytest.importorskip("polars")
    column = polars.Series(["a", "b"], dtype=polars.Enum(["a", "b", "c"]))
    assert as_groups(column, 2).names == ["a", "b", "c"]


def test_pooled_groups_are_one_and_the_others_stay():
    groups = as_groups(["d", "a", "c", "b", "a"], 5).pool(["d", "b"])
    assert groups.names == ["a", "c", "pooled: b, d"]
    assert groups.codes.tolist() == [2, 0, 1, 2, 0]


def test_points_of_groups_that_are_left_out_are_in_no_group():
    groups = as_groups(["d", "a", "c", "b", "a"], 5).leave_out(["d", "b"])
    assert groups.names == ["a", "c"]
    assert groups.counts.tolist() == [2, 1]
    assert (groups.values == "a").tolist() == [False, True, False, False, True]
    assert not groups.is_overlapping
    assert len(groups.codes) == 5

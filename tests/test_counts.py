"""Counts per group and label that are kept in results/ when the records are gone."""

import numpy as np
import pandas as pd
import pytest

from cfhelpers import load_dataset, paths
from cfhelpers.study import counts

# What the authors stored for full sets, by attribute, whichever Pokec the run names.
STORED_GAPS = {"region+gender": 0.0861, "gender": 0.0507}


@pytest.mark.parametrize("attribute, gap", STORED_GAPS.items())
def test_the_release_gap_of_full_sets_is_that_of_pokec_n(attribute, gap):
    kept = counts.pokec_counts()
    chosen = kept[(kept["attribute"] == attribute) & (kept["rule"] == "rounded cuts")]
    for seed, table in chosen.groupby("seed"):
        assert table["n"].sum() == 2_200
        assert round(counts.full_set_gap(table), 4) == gap, seed
    assert set(chosen["seed"]) == set(counts.SEEDS)


@pytest.mark.parametrize("attribute", counts.POKEC_ATTRIBUTES)
def test_our_own_division_gives_nearly_the_same_counts(attribute):
    kept = counts.pokec_counts()
    chosen = kept[kept["attribute"] == attribute]
    cells = chosen.pivot_table(
        index=["group", "label"], columns=["rule", "seed"], values="n"
    )
    theirs = cells["rounded cuts"]
    assert theirs.nunique(axis=1).eq(1).all()
    assert cells["ours"].sub(theirs[0], axis=0).abs().max(axis=None) <= 1


def test_the_gap_is_the_largest_difference_of_a_labels_share():
    table = pd.DataFrame(
        {"group": list("aaabbb"), "label": [0, 1, 2] * 2, "n": [6, 3, 1, 2, 4, 4]}
    )
    # Label 0 differs by .4, but it is no positive label.
    assert counts.full_set_gap(table) == pytest.approx(0.3)


def test_the_cuts_take_a_quarter_of_every_cell():
    credit = load_dataset("credit")
    table = counts.count_test_rows(credit, "rounded cuts", seed=3)
    found = table.pivot(index="group", columns="label", values="n")
    expected = credit.counts().loc[found.index] / 4
    assert np.abs(found.to_numpy() - expected.to_numpy()).max() < 1.5
    rows = counts.rounded_cuts_test(credit, seed=3)
    assert len(np.unique(rows)) == len(rows)


def test_an_unknown_rule_is_refused():
    with pytest.raises(ValueError, match="rule: found 'theirs'; wanted one of rounded"):
        counts.count_test_rows(load_dataset("credit"), "theirs", 0)


def test_the_kept_counts_are_those_of_the_records(shared, tmp_path, monkeypatch):
    kept = counts.pokec_counts()
    monkeypatch.setenv("CFHELPERS_DATA", str(shared / "data"))
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    counts.write_pokec_counts()
    pd.testing.assert_frame_equal(counts.pokec_counts(), kept)


def test_records_that_are_not_whole_are_not_counted(tmp_path, monkeypatch):
    few = load_dataset("pokec_n", n=500, attribute=("region", "gender"))
    monkeypatch.setattr(counts, "load_dataset", lambda *names, **options: few)
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    with pytest.raises(ValueError, match="labelled users; wanted all 8,797"):
        counts.write_pokec_counts()
    assert not list(tmp_path.iterdir())

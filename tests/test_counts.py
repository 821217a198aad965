"""Counts per group and label that are kept in results/ when the records are gone."""

import numpy as np
import pandas as pd
import pytest

from cfhelpers import load_dataset, paths
from cfhelpers.datasets import NAMES
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


def test_kept_records_are_real_and_whole():
    records = counts.real_records()
    assert list(records.index) == list(NAMES)
    assert "simulated" not in set(records["source"])
    cells = counts.real_counts()
    labelled = cells.groupby("dataset")["n"].sum()
    for name in ("credit", "acs_income", "acs_education", "pokec_n"):
        assert labelled[name] == records.loc[name, "labelled"]
    per_cell = cells.groupby(["dataset", "group"])["label"].nunique()
    assert (per_cell == records["classes"].reindex(per_cell.index, level=0)).all()


def test_kept_counts_of_credit_are_those_of_the_package():
    kept = counts.real_counts().query("dataset == 'credit'").reset_index(drop=True)
    pd.testing.assert_frame_equal(counts.count_cells(load_dataset("credit")), kept)


def test_the_first_rows_of_pokec_z_are_counted_as_the_file_has_them(shared):
    raw = pd.read_csv(shared / "data/pokec/region_job_first_rows.csv")
    raw = raw[raw["I_am_working_in_field"] >= 0]
    groups = np.where(raw["region"] == 0, "region 0, ", "region 1, ")
    groups = groups + np.where(raw["gender"] == 0, "women", "men")
    labels = "field " + raw["I_am_working_in_field"].astype(int).astype(str)
    found = pd.crosstab(groups, labels.to_numpy())
    _, cells = counts.pokec_z_first_rows()
    kept = cells.pivot(index="group", columns="label", values="n")
    np.testing.assert_array_equal(found.loc[kept.index], kept)
    assert kept.shape == (4, 5)


def test_what_is_not_at_hand_keeps_its_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    credit = load_dataset("credit")
    counts.keep_records({"credit": credit})
    assert list(counts.real_records().index) == ["credit", "pokec_z"]
    by_sex = load_dataset("credit", attribute="sex")
    counts.keep_records({})
    assert counts.real_records().loc["credit", "groups"] == "age (2)"
    counts.keep_records({"credit": by_sex})
    assert counts.real_records().loc["credit", "groups"] == "sex (2)"
    assert set(counts.real_counts().query("dataset == 'credit'")["group"]) == {
        "men",
        "women",
    }
    with pytest.raises(ValueError, match="found simulated records of acs_income"):
        counts.keep_records({"acs_income": load_dataset("acs_income", n=500)})


@pytest.mark.parametrize("lost", ["records_path", "counts_path"])
def test_one_file_that_is_lost_is_made_anew(tmp_path, monkeypatch, lost):
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    credit = load_dataset("credit")
    counts.keep_records({"credit": credit})
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    getattr(counts, lost)().unlink()
    counts.keep_records({"credit": credit})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files


def test_the_kept_counts_of_pokec_n_are_those_of_the_records(shared, monkeypatch):
    monkeypatch.setenv("CFHELPERS_DATA", str(shared / "data"))
    dataset = load_dataset("pokec_n", "local", attribute=("region", "gender"))
    kept = counts.real_counts().query("dataset == 'pokec_n'").reset_index(drop=True)
    pd.testing.assert_frame_equal(counts.count_cells(dataset), kept)
    facts = counts.describe_records(dataset)
    assert facts["edges"] == counts.real_records().loc["pokec_n", "edges"] == 517_047


@pytest.mark.slow
@pytest.mark.parametrize("name", ["acs_income", "acs_education"])
def test_the_kept_counts_of_acs_are_those_of_the_records(shared, monkeypatch, name):
    monkeypatch.setenv("CFHELPERS_DATA", str(shared / "data"))
    kept = counts.real_counts().query("dataset == @name").reset_index(drop=True)
    found = counts.count_cells(load_dataset(name, "local"))
    pd.testing.assert_frame_equal(found, kept)


def test_what_the_text_below_the_figure_says_holds():
    cells = counts.real_counts()
    people = cells.groupby(["dataset", "group"])["n"].sum()
    for name in ("acs_income", "acs_education"):
        assert people[name].max() / people[name].min() > 1_000
    graduates = cells.query("dataset == 'credit' and label == 'graduate school'")
    share = graduates.set_index("group")["n"] / people["credit"]
    assert share["under 25"] < share["25 or older"]

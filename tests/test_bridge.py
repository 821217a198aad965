"""The bridge between the workers of 2018 and those of 2024."""

import numpy as np
import pandas as pd
import pytest

from cfhelpers.datasets import acs, simulated
from cfhelpers.study import bridge


def person(**changes):
    """A made-up record in the words of the file of workers."""
    words = {
        "State": "Colorado/CO",
        "Income": 30_000.0,
        "Age": 40.0,
        "Workclass": "Federal government employee",
        "Education": "Regular high school diploma",
        "Marital Status": "Widowed",
        "Gender": "Male",
        "Race": "White alone",
        "Occupation": "MGR-Other Managers",
        "Place of birth": "Peru",
    }
    return words | changes


def test_words_become_the_codes_of_the_survey():
    last_race = "Two or More Races"
    people = [
        person(),
        person(State="Puerto Rico/PR", Race=last_race, Gender="Female"),
        person(Education="Doctorate degree", Workclass=bridge.CLASSES_OF_WORKERS[0]),
        person(Education="Grade 11", Race="Alaska Native alone"),
    ]
    coded = bridge.code_workers(pd.DataFrame(people).astype({"Race": "category"}))
    assert coded["ST"].tolist() == [8, 72, 8, 8]
    assert coded["COW"].tolist() == [5, 5, 1, 5]
    assert coded["SCHL"].tolist() == [16, 16, 24, 14]
    assert coded["MAR"].tolist() == [2, 2, 2, 2]
    assert coded["SEX"].tolist() == [1, 2, 1, 1]
    assert acs.RACES[coded["RAC1P"].astype(int) - 1].tolist() == [
        "White",
        "two or more",
        "White",
        "Alaska Native",
    ]
    assert len(bridge.SCHOOLING) == 24 and len(bridge.RACES) == 9
    assert len(bridge.CLASSES_OF_WORKERS) == 8 and len(bridge.MARITAL) == 5


def test_a_word_without_a_code_is_named():
    with pytest.raises(ValueError, match="Race: found 'Martian'; wanted one of"):
        bridge.code_workers(pd.DataFrame([person(Race="Martian")]))
    with pytest.raises(ValueError, match="State: found 'XX'"):
        bridge.code_workers(pd.DataFrame([person(State="Nowhere/XX")]))


def test_both_years_have_as_many_people_of_every_state():
    rng = np.random.default_rng(0)
    first = simulated.people(3_000, rng)
    second = simulated.people(9_000, rng)
    second = second[second["ST"] != 48]
    first.loc[:99, "AGEP"] = 16
    second.loc[:99, "PINCP"] = 100
    few, many = bridge.common_people(first, second, seed=1)
    pd.testing.assert_series_equal(
        few["ST"].value_counts().sort_index(), many["ST"].value_counts().sort_index()
    )
    assert 48 not in set(few["ST"])
    for people in (few, many):
        assert (people["AGEP"] > 16).all() and (people["PINCP"] > 100).all()
        assert people.index.is_unique
    again, _ = bridge.common_people(first, second, seed=1)
    pd.testing.assert_frame_equal(few, again)


@pytest.fixture(scope="module")
def crowd():
    return simulated.people(6_000, np.random.default_rng(3))


@pytest.mark.filterwarnings("ignore:too few rows")
@pytest.mark.parametrize("name", bridge.STATIONS)
def test_a_station_has_its_features_and_misses_the_others(crowd, name):
    station = bridge.STATIONS[name]
    dataset, parts = bridge.station_dataset(name, crowd, seed=0)
    assert set(dataset.X) == set(station.features)
    assert set(dataset.missing) == set(acs.FEATURES["acs_income"]) - set(dataset.X)
    assert dataset.year == station.year and len(parts) == len(dataset) == len(crowd)
    for feature in station.averaged:
        assert dataset.X[feature].between(0, 3).all()
    if "OCCP" not in station.averaged:
        assert dataset.X["OCCP"].max() > 1_000


@pytest.mark.filterwarnings("ignore:too few rows")
def test_means_of_categories_come_from_training_rows_alone(crowd):
    dataset, parts = bridge.station_dataset("2018", crowd, seed=0)
    is_train = parts == "train"
    codes = crowd["OCCP"].to_numpy()
    changed = crowd.copy()
    # Of the rows outside training, everyone's occupation becomes one that nobody has.
    changed.loc[~is_train, "OCCP"] = 99_999
    other, other_parts = bridge.station_dataset("2018", changed, seed=0)
    assert (other_parts == parts).all()
    np.testing.assert_array_equal(other.X["OCCP"][is_train], dataset.X["OCCP"][is_train])
    unknown = other.X["OCCP"][~is_train]
    assert unknown.nunique() == 1
    np.testing.assert_allclose(unknown.iloc[0], dataset.y[is_train].mean(), rtol=1e-5)
    assert len(np.unique(codes)) > 100


def test_the_kept_rows_hold_every_station_on_the_same_number_of_people():
    rows = bridge.bridge_rows()
    assert set(rows["station"]) == set(bridge.STATIONS)
    assert rows["people"].nunique() == 1
    per_station = rows.groupby(["station", "training_split"]).size()
    n_settings = len(bridge.SCORES) * len(bridge.METRICS) * 2
    assert (per_station == n_settings).all() and len(per_station) % 5 == 0
    for name, station in bridge.STATIONS.items():
        own = rows[rows["station"] == name]
        assert set(own["features"].iloc[0].split()) == set(station.features)
        assert (own["year"] == station.year).all()
    assert rows["base_efficiency"].between(1, 4).all()


def test_a_step_is_the_difference_of_its_stations():
    rows = bridge.bridge_rows()
    changes = bridge.step_changes(rows, "base_disparity")
    own = rows[(rows["score"] == "tps") & (rows["metric"] == "demographic_parity")]
    own = own[~own["classwise"]].set_index(["station", "training_split"])
    by_hand = own["base_disparity"].loc["2024"] - own["base_disparity"].loc["2018"]
    row = changes.loc[("the year", "tps", "demographic_parity", False)]
    assert row["change"] == pytest.approx(by_hand.mean())
    assert row["least"] == pytest.approx(by_hand.min())
    assert row["to"] - row["from"] == pytest.approx(row["change"])
    assert (changes["least"] <= changes["largest"]).all()


def test_the_lesson_states_the_numbers_of_the_rows():
    rows = bridge.bridge_rows()
    mean = rows[rows["score"] == "aps"].groupby("station")["base_efficiency"].mean()
    text = bridge.lesson(rows)
    assert f"{mean['2018']:.2f} labels in 2018 and {mean['2024']:.2f} in 2024" in text
    by_hours = mean["2024, with hours"] - mean["2024"]
    assert f"{by_hours:+.3f}, and place of birth" in text


def test_the_real_workers_have_only_known_words(shared, monkeypatch):
    path = shared / "data" / bridge.WORKERS
    if not path.exists():
        pytest.skip("the file of workers of 2018 is not here")
    monkeypatch.setenv("CFHELPERS_DATA", str(shared / "data"))
    coded = bridge.workers_of_2018()
    assert len(coded) == 295_243 and not coded.isna().any(axis=None)
    counts = coded["RAC1P"].value_counts()
    assert counts[1] == 231_135 and counts[4] == 122


def test_without_the_file_it_is_named(home):
    with pytest.raises(FileNotFoundError, match="the workers of 2018: not found"):
        bridge.workers_of_2018()

"""ACS: the rows, features, labels and groups of folktables and of the paper."""

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from cards import flat

from cfhelpers import paths
from cfhelpers.datasets import acs, load_dataset, simulated
from cfhelpers.datasets.truth import acs_truth

pytestmark = pytest.mark.usefixtures("home")


def measured(code, **environment):
    """What `code` prints in its own process, its seconds and its peak memory in GB."""
    report = "import resource, time; t = time.process_time(); exec({!r}); "
    report += "print(time.process_time() - t, "
    report += "resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)"
    command = [sys.executable, "-c", report.format(code)]
    done = subprocess.run(
        command,
        env=os.environ | environment,
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    *output, last = done.stdout.splitlines()
    return output, *map(float, last.split())


@pytest.mark.slow
def test_2024_parquet_files_give_the_known_rows_quickly_and_in_little_memory(
    shared, tmp_path
):
    code = "from cfhelpers import load_dataset; d = load_dataset('acs_income', 'local'); "
    code += "print(len(d)); print(d)"
    folders = {"CFHELPERS_DATA": str(shared / "data"), "CFHELPERS_HOME": str(tmp_path)}
    output, seconds, gigabytes = measured(code, **folders)
    assert output[0] == "1399926"
    assert seconds < 60 and gigabytes < 6
    card = flat("\n".join(output))
    assert (
        "missing POBP, RELP" in card
        and "PUMS 2024" in card
        and "468,610 aged 16 or younger" in card
    )


@pytest.mark.slow
def test_the_simulated_twin_has_the_papers_size_in_time(tmp_path):
    code = "from cfhelpers import load_dataset; "
    code += "d = load_dataset('acs_income', n=1_664_500); print(len(d)); print(d)"
    output, seconds, gigabytes = measured(code, CFHELPERS_HOME=str(tmp_path))
    assert output[0] == "1664500" and "simulated" in output[2]
    assert seconds < 90 and gigabytes < 6


def test_loading_gives_the_rows_and_features_that_folktables_gave(shared, home):
    features = pd.read_csv(shared / "data/acs/folktables_2018_co_features.csv")
    label = pd.read_csv(shared / "data/acs/folktables_2018_co_labels.csv")["PINCP"]
    raw = features.astype(int).assign(
        ST=8, PWGTP=1, PINCP=np.where(label, 50_010, 50_000)
    )
    out = raw.head(4).assign(
        AGEP=[16, 40, 40, 40],
        PINCP=[9e5, 100, 9e5, 9e5],
        WKHP=[9, 9, 0, 9],
        PWGTP=[1, 1, 1, 0],
    )
    (home / "2018/1-Year").mkdir(parents=True)
    pd.concat([out, raw]).to_csv(home / "2018/1-Year/psam_p08.csv", index=False)
    data = load_dataset("acs_income", "local")
    assert list(data.X) == list(features) and len(data) == 31_306
    np.testing.assert_array_equal(data.X, features)
    assert data.dropped == {
        "aged 16 or younger": 1,
        "with an income of 100 dollars or less": 1,
        "without usual working hours": 1,
        "with a weight below 1": 1,
    }
    counts = features["RAC1P"].value_counts()
    assert (
        data.counts().sum(axis=1)["Alaska Native"] == counts[4]
        and data.counts().sum(axis=1)["Asian"] == counts[6]
    )
    income = raw["PINCP"].to_numpy()
    cuts = pd.DataFrame([[50_001, 50_002, 50_003]], index=[8])
    np.testing.assert_array_equal(
        load_dataset("acs_income", "local", brackets=cuts).y == 3, income > 50_000
    )


@pytest.mark.parametrize(
    "name, problem", [("acs_income", "ACSIncome"), ("acs_education", None)]
)
def test_loading_agrees_with_folktables_on_raw_files(name, problem):
    import folktables

    files = simulated.acs_files(3_000, 1)
    source = folktables.ACSDataSource(
        "2018", "1-Year", "person", str(files["CO"].parents[2])
    )
    frame = source.get_data(states=["CO", "NY"])
    task = (
        folktables.ACSIncome
        if problem
        else folktables.BasicProblem(
            features=list(acs.FEATURES[name]),
            target="SCHL",
            target_transform=lambda x: x,
            group="RAC1P",
            preprocess=folktables.adult_filter,
            postprocess=lambda x: np.nan_to_num(x, -1),
        )
    )
    features, _, race = task.df_to_numpy(frame)
    data = load_dataset(name, n=3_000, seed=1, states=["CO", "NY"])
    np.testing.assert_array_equal(data.X.to_numpy(), features.astype(np.float32))
    np.testing.assert_array_equal(acs.RACES[race.astype(int) - 1], data.groups)


def test_education_classes_are_the_papers():
    data = load_dataset("acs_education", n=5_000)
    schooling = pd.concat(
        pd.read_csv(path) for path in simulated.acs_files(5_000, 0).values()
    )
    schooling = schooling[
        (schooling.AGEP > 16) & (schooling.PINCP > 100) & (schooling.WKHP > 0)
    ]["SCHL"]
    table = {
        **dict.fromkeys(range(1, 16), 0),
        16: 1,
        17: 2,
        18: 3,
        19: 3,
        20: 3,
        21: 4,
        22: 5,
        23: 5,
        24: 5,
    }
    np.testing.assert_array_equal(data.y, schooling.map(table))


def test_income_brackets_are_quarters_of_each_state_or_of_the_nation():
    by_state, national = (
        load_dataset("acs_income", n=20_000, brackets=b) for b in ("state", "national")
    )
    state = load_dataset("acs_education", n=20_000).X["ST"]
    shares = pd.crosstab(state, by_state.y, normalize="index")
    np.testing.assert_allclose(shares, 0.25, atol=0.01)
    poor = pd.crosstab(state, national.y, normalize="index").loc[72, 0]
    assert poor > 0.4 and np.bincount(national.y).max() / 20_000 < 0.26
    assert by_state.cuts.shape == (5, 3) and "income brackets: state" in by_state.notes


def test_an_income_at_a_cut_belongs_to_the_upper_bracket():
    y, _ = acs.income_classes(
        pd.Series([10, 20, 20, 30, 40.0]), pd.Series([1] * 5), "state"
    )
    assert y.tolist() == [0, 2, 2, 3, 3]  # quartiles 20, 20, 30


def test_states_are_chosen_and_kept_in_fips_order():
    data = load_dataset("acs_education", n=5_000, states=["TX", "CO"])
    assert data.X["ST"].drop_duplicates().tolist() == [8, 48]
    with pytest.raises(ValueError, match="states: found Texas; wanted two-letter codes"):
        load_dataset("acs_income", states=["Texas"])


def put(home, year, state="CO", parquet=False, **changes):
    """A small person file of a made-up year, with columns renamed or (None) left out."""
    frame = pd.read_csv(simulated.acs_files(1_000, 0)[state]).drop(columns="RT")
    frame = frame.drop(columns=[c for c, new in changes.items() if new is None])
    frame = frame.rename(columns={c: new for c, new in changes.items() if new})
    if parquet:
        (home / f"acs/pums{year}").mkdir(parents=True, exist_ok=True)
        frame.to_parquet(home / f"acs/pums{year}/p_{acs.STATES[state]}.parquet")
    else:
        (home / f"{year}/1-Year").mkdir(parents=True, exist_ok=True)
        frame.to_csv(home / f"{year}/1-Year" / acs.csv_name(state, year), index=False)
    return frame


@pytest.mark.parametrize("parquet", [False, True])
def test_renamed_columns_keep_their_name_and_missing_ones_are_named(home, parquet):
    put(
        home,
        2023,
        parquet=parquet,
        RELP="RELSHIPP",
        JWTR="JWTRNS",
        ST="STATE",
        ESP=None,
        POWPUMA=None,
    )
    data = load_dataset("acs_education", "local")
    assert {"RELSHIPP", "JWTRNS", "STATE"} <= set(data.X) and not {
        "RELP",
        "JWTR",
        "ST",
    } & set(data.X)
    assert data.missing == ("ESP", "POWPUMA")
    assert (
        "ESP, POWPUMA" in flat(data)
        and "RELSHIPP in place of RELP" in flat(data)
        and "PUMS 2023" in flat(data)
    )
    assert len(data) == len(load_dataset("acs_education", n=1_000, states=["CO"]))


def test_blanks_are_zero_and_counted():
    data = load_dataset("acs_education", n=2_000)
    assert not data.X.isna().any(axis=None)
    assert "2,000 blanks in ESP set to 0, as folktables does" in data.notes


def test_2018_is_preferred_and_any_year_can_be_asked_for(home):
    for year in (2016, 2018, 2022):
        put(home, year)
    assert "PUMS 2018" in load_dataset("acs_income", "local").citation
    assert (
        "PUMS 2016" in load_dataset("acs_income", "local", year=2016).citation
    )  # its files are named ss16pco.csv
    (home / "2018/1-Year/psam_p08.csv").unlink()
    assert "PUMS 2022" in load_dataset("acs_income", "local").citation


def test_what_is_not_there_is_named(home, monkeypatch):
    monkeypatch.setenv("CFHELPERS_DATA", str(home / "mine"))
    with pytest.raises(
        FileNotFoundError,
        match="acs person records of any state: not found; set CFHELPERS_DATA",
    ) as caught:
        load_dataset("acs_income", "local")
    assert str(home / "mine") in str(caught.value)
    put(home, 2018)
    with pytest.raises(FileNotFoundError, match="acs person records of CO, NY"):
        load_dataset("acs_income", "local", states=["CO", "NY"])
    put(home, 2018, SCHL=None)
    with pytest.raises(ValueError, match="no column SCHL in every person file"):
        load_dataset("acs_income", "local")
    offered = "acs_income has 'simulated', 'local', 'download' and 'openml'"
    with pytest.raises(ValueError, match=f"source: found 'bundled'; {offered}"):
        load_dataset("acs_income", "bundled")
    with pytest.raises(ValueError, match="brackets: found 'tax'"):
        load_dataset("acs_income", brackets="tax")
    cuts = load_dataset("acs_income", n=1_000, states=["CO"]).cuts
    with pytest.raises(ValueError, match=r"brackets: no cuts for state 6.0, 36.0"):
        load_dataset("acs_income", n=1_000, brackets=cuts)


def test_the_twin_has_the_published_shares():
    data = load_dataset("acs_education", n=200_000)
    race = data.counts().sum(axis=1) / len(data)
    np.testing.assert_allclose(
        race[acs.RACES], simulated.RACE_SHARES / simulated.RACE_SHARES.sum(), atol=0.003
    )
    np.testing.assert_allclose(
        np.bincount(data.y) / len(data), simulated.CLASS_SHARES, atol=0.004
    )
    assert len(data.group_names) == 9 and data.source == "simulated" and data.dropped


def test_the_twin_depends_on_its_seed_and_is_written_once():
    first, other = (
        load_dataset("acs_income", n=1_000),
        load_dataset("acs_income", n=1_000, seed=1),
    )
    assert not first.X.equals(other.X)
    before = [path.stat().st_mtime_ns for path in simulated.acs_files(1_000, 0).values()]
    pd.testing.assert_frame_equal(load_dataset("acs_income", n=1_000).X, first.X)
    assert [
        path.stat().st_mtime_ns for path in simulated.acs_files(1_000, 0).values()
    ] == before


def scores_of(X):
    """Some predictor: any function of the features has a true coverage."""
    base = np.stack(
        [
            X["OCCP"] / 1e4,
            np.abs(X["OCCP"] - 5e3) / 1e4,
            X["SEX"] / 5,
            1 - X["OCCP"] / 1e4,
        ],
        axis=1,
    )
    return base.astype(np.float64)


@pytest.mark.slow
@pytest.mark.parametrize("attribute", ["race", "sex", ("race", "sex")])
@pytest.mark.parametrize("states", [None, ["CO", "PR"]])
def test_true_coverage_is_that_of_a_large_draw_of_the_same_population(attribute, states):
    data = load_dataset("acs_income", n=100_000, attribute=attribute, states=states)
    truth = acs_truth(data, scores_of, n=300_000)
    assert list(truth.names) == list(data.group_names)
    sets = scores_of(data.X) <= 0.4
    for g, name in enumerate(data.group_names):
        for k in range(4):
            cell = (data.groups == name) & (data.y == k)
            p = truth.coverage(0.4)[g, :, k]
            margin = (
                5
                * np.sqrt(p * (1 - p) * (1 / max(cell.sum(), 1) + 1 / truth.counts[g, k]))
                + 1e-9
            )
            assert cell.sum() == 0 or (np.abs(sets[cell].mean(axis=0) - p) < margin).all()

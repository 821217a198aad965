"""The grid of the paper: rows are as found by hand, and a stopped run loses nothing."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from toy import toy

from cfhelpers import _cache, conformal, control, fairness, paths
from cfhelpers.cells import SortedCells
from cfhelpers.datasets import Dataset, load_dataset, split
from cfhelpers.groups import as_groups
from cfhelpers.metrics import LABEL_METRICS
from cfhelpers.study import experiments, models, scoring

ALL = LABEL_METRICS


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "ARTIFACTS", tmp_path / "artifacts")
    monkeypatch.setattr(paths, "RESULTS", tmp_path / "results")


def model_of(dataset: Dataset, seed: int = 0) -> models.BaseModel:
    """Probabilities that know a little of the truth, of rows that all have a label."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 1, (len(dataset), dataset.n_classes)).astype(np.float32)
    logits[np.arange(len(dataset)), dataset.y] += 1.5 * (
        dataset.groups == dataset.group_names[0]
    )
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    accuracy = {part: 0.5 for part in ("train", "valid", "calibration", "test")}
    return models.BaseModel(
        "made up", {}, 0, probs, split(dataset, seed), accuracy, 0.0, pd.DataFrame()
    )


@pytest.fixture(scope="module")
def data() -> Dataset:
    return toy(n=1600, n_classes=3, seed=1)


@pytest.fixture(scope="module")
def base(data) -> models.BaseModel:
    return model_of(data)


@pytest.mark.parametrize("score", ["tps", "aps", "raps", "daps"])
def test_each_row_is_what_a_search_and_a_measurement_by_hand_give(data, base, score):
    rows = experiments.run_split(data, base, score, 3, closeness=(0.1, 0.2))
    scored = scoring.score_split(data, base.probs, base.parts, score, 3)
    assert (
        len(rows) == (5 * 2 + 1) * 2 * 2
        and not rows.duplicated(["metric", "classwise", "guarantee", "c"]).any()
    )
    cal, test = scored.calibration, scored.test
    grid = control.default_grid()
    test_by = "bounds" if score == "daps" else "staircase"
    for row in rows[:: 1 if score == "aps" else 5].itertuples():
        guaranteed = row.guarantee != "none"
        if score == "raps":
            grid = control.default_grid(
                1 + scored.chosen["penalty"] * (3 - scored.chosen["k_reg"])
            )
        found = control.find_threshold(
            scored.scores[cal], data.y[cal], data.groups[cal], row.metric, row.c,
            classwise=row.classwise, guarantee=row.guarantee,
            grid=grid if guaranteed else None, test=test_by,
        )  # fmt: skip
        sets = conformal.prediction_sets(scored.scores[test], found.threshold)
        assert (
            row.threshold == found.threshold.tolist() and row.feasible == found.feasible
        )
        assert row.efficiency == conformal.efficiency(sets)
        assert row.coverage == pytest.approx(
            conformal.coverage(sets, data.y[test]), abs=1e-12
        )
        gap = fairness.disparity(sets, data.y[test], data.groups[test], row.metric)
        assert row.disparity == pytest.approx(gap, abs=1e-12)
        assert row.beyond == (
            gap < 0.8 if row.metric == "disparate_impact" else gap > row.c
        )
        base_sets = conformal.prediction_sets(scored.scores[test], found.base_threshold)
        assert row.base_efficiency == conformal.efficiency(base_sets)
        base_gap = fairness.disparity(
            base_sets, data.y[test], data.groups[test], row.metric
        )
        assert row.base_disparity == pytest.approx(base_gap, abs=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_searches_that_share_their_sorts_find_what_a_search_alone_finds(dtype):
    rng = np.random.default_rng(0)
    scores = (
        rng.random((900, 4)).astype(dtype).round(2 if dtype == np.float32 else 9)
    )  # with ties, and without
    y, groups = (
        rng.integers(0, 4, 900),
        rng.choice(["a", "b", "c"], 900, p=[0.7, 0.2, 0.1]),
    )
    own = fairness.FairnessMetric(
        "late or b", lambda y, g, a, label: (g == a) | (y == label)
    )  # cells that overlap
    shared = control.Calibration(scores, y, groups)
    for metric in (*ALL, own):
        for classwise in (False, True):
            for guarantee in control.GUARANTEES:
                options = {"classwise": classwise, "guarantee": guarantee}
                together = shared.search(metric, **options).frontier()
                pd.testing.assert_frame_equal(
                    together,
                    control.frontier(scores, y, groups, metric, **options),
                    check_exact=True,
                )


@pytest.mark.parametrize("metric", ALL)
def test_the_measure_agrees_with_sets_counted_one_by_one(metric):
    rng = np.random.default_rng(5)
    scores = rng.random((400, 4)).astype(np.float32)
    y, groups = (
        rng.integers(0, 4, 400),
        rng.choice(["a", "b", "rare"], 400, p=[0.6, 0.39, 0.01]),
    )
    test = SortedCells(scores, y, as_groups(groups, 400))
    for threshold in (
        0.4,
        float(scores[7, 2]),
        0.0,
        np.inf,
        np.array([0.1, 0.9, float(scores[3, 2]), np.inf]),
    ):
        sets = conformal.prediction_sets(scores, threshold)
        row = experiments.measured(test, metric, threshold)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = fairness.disparity(sets, y, groups, metric)
        assert row["disparity"] == pytest.approx(wanted, abs=1e-15, nan_ok=True)
        assert row["efficiency"] == conformal.efficiency(sets)
        assert row["coverage"] == pytest.approx(conformal.coverage(sets, y), abs=1e-15)


def test_cells_without_test_points_are_left_out_and_named():
    scores, y = np.tile([0.2, 0.4, 0.6], (6, 1)), np.array([0, 1, 2, 0, 1, 1])
    test = SortedCells(scores, y, as_groups(["a", "a", "a", "b", "b", "b"], 6))
    left_out = experiments.measured(test, "equal_opportunity", 0.5)["left_out"]
    assert left_out == "b / 2"
    left_out = experiments.measured(test, "demographic_parity", 0.5)["left_out"]
    assert left_out == ""


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on_and_ends_with_the_same_rows(
    data, base, monkeypatch
):
    options = {"splits": 2, "scores": ("tps", "aps"), "progress": False}
    whole = experiments.run(data, base, **options)
    assert len(list((paths.ARTIFACTS / "runs").iterdir())) == 4
    monkeypatch.setattr(paths, "ARTIFACTS", paths.ARTIFACTS.with_name("another"))
    real, done = experiments.run_split, []

    def until_killed(*arguments, **others):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(arguments[2:4])
        return real(*arguments, **others)

    monkeypatch.setattr(experiments, "run_split", until_killed)
    with pytest.raises(KeyboardInterrupt):
        experiments.run(data, base, **options)
    done.append("the rest")
    monkeypatch.setattr(
        experiments, "run_split", lambda *a, **o: done.append(a[2:4]) or real(*a, **o)
    )
    resumed = experiments.run(data, base, **options)
    assert done == [("tps", 0), ("aps", 0), ("tps", 1), "the rest", ("aps", 1)]
    pd.testing.assert_frame_equal(whole, resumed)


def test_rows_of_another_model_other_options_or_older_code_are_not_taken(
    data, base, monkeypatch
):
    options = {"splits": 1, "scores": ("tps",), "progress": False, "closeness": (0.1,)}
    first = experiments.run(data, base, **options)
    other = experiments.run(data, model_of(data, seed=4), **options)
    assert not np.allclose(first["base_efficiency"], other["base_efficiency"])
    assert not np.allclose(
        first["coverage"], experiments.run(data, base, **options, alpha=0.3)["coverage"]
    )
    before = len(list((paths.ARTIFACTS / "runs").iterdir()))
    monkeypatch.setattr(_cache, "source_digest", lambda module: "newer")
    experiments.run(data, base, **options)
    assert len(list((paths.ARTIFACTS / "runs").iterdir())) == before + 1


def test_rows_are_stored_whole_and_found_again(data, base):
    with pytest.raises(FileNotFoundError, match="`make paper` makes them"):
        experiments.load_rows("paper")
    rows = experiments.run(data, base, splits=2, scores=("tps",), progress=False)
    rows = rows.assign(dataset="credit", attribute="age")
    path = experiments.save_rows(rows)
    assert path == paths.RESULTS / "runs" / "quick" / "credit_age.parquet"
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    found = experiments.load_rows("quick", "credit")
    assert found["threshold"].map(list).tolist() == rows["threshold"].map(list).tolist()
    pd.testing.assert_frame_equal(
        found.drop(columns="threshold"), rows.drop(columns="threshold")
    )
    with pytest.raises(FileNotFoundError, match="no rows of pokec_z"):
        experiments.load_rows(dataset="pokec_z")
    with pytest.raises(ValueError, match="profile: found 'fast'"):
        experiments.load_rows("fast")


def test_the_summary_has_means_deviations_and_shares_over_splits(data, base):
    rows = experiments.run(data, base, splits=3, scores=("tps", "aps"), progress=False)
    table = experiments.summary(rows)
    assert len(table) == len(rows) / 3 and (table["splits"] == 3).all()
    row = table.iloc[17]
    own = rows[(rows[experiments.KEYS[:-1]] == row[experiments.KEYS[:-1]]).all(axis=1)]
    assert len(own) == 3
    assert row["efficiency"] == pytest.approx(own["efficiency"].mean())
    assert row["disparity_sd"] == pytest.approx(own["disparity"].std(ddof=1))
    assert row["beyond"] == pytest.approx(own["beyond"].mean())


def test_rows_say_whose_data_they_come_from(data):
    credit = load_dataset("credit")
    assert experiments.whose_data(credit) == "the paper's"
    assert experiments.whose_data(data) == "simulated"
    assert experiments.whose_data(replace(credit, missing=("Age",))) == "other"
    few = replace(credit, X=credit.X[:100], y=credit.y[:100], groups=credit.groups[:100])
    assert experiments.whose_data(few) == "other"


def test_records_of_another_year_are_called_other(shared, monkeypatch):
    monkeypatch.setenv("CFHELPERS_DATA", str(shared / "data"))
    alaska = load_dataset("acs_income", "local", states=["AK"])
    assert experiments.whose_data(alaska) == "other"
    assert experiments.records_words(alaska).startswith("real, ACS 2024, ")


def test_an_unknown_pair_of_dataset_and_attribute_is_refused():
    with pytest.raises(
        ValueError, match=r"dataset and attribute: found \('credit', 'gender'\)"
    ):
        experiments.load("credit", "gender")


@pytest.mark.slow
@pytest.mark.parametrize("score", ["aps", "tps"])
def test_on_credit_four_fifths_costs_what_the_paper_says(score):
    """Over 10 splits: efficiency within 5% of the paper's, the ratio within .05."""
    reported = pd.read_csv(paths.ROOT / "results" / "reported_values.csv")
    credit = load_dataset("credit")
    base = models.base_model(credit, split(credit, 0), progress=False)
    options = {
        "metrics": ("disparate_impact",),
        "guarantees": ("none",),
        "progress": False,
    }
    ours = experiments.summary(
        experiments.run(credit, base, scores=(score,), **options)
    ).set_index("classwise")
    paper = reported.query(
        "table == 'tab:credit_di_all' and arm == 'cf' and score == @score"
    )
    paper = paper.pivot(index="classwise", columns="quantity", values="value")
    for classwise in (False, True):
        theirs, row = paper.loc[classwise], ours.loc[classwise]
        assert row["efficiency"] == pytest.approx(theirs["efficiency"], rel=0.05), (
            score,
            classwise,
        )
        assert row["disparity"] == pytest.approx(theirs["disparity"], abs=0.05), (
            score,
            classwise,
        )


# training splits, and rows that are used again


def counted_training(monkeypatch):
    """Stand-in models, and the list of training splits for which one was fitted."""
    trained = []

    def fit(dataset, parts, model, *, parameters, seed, progress):
        trained.append(seed)
        return replace(model_of(dataset, seed), model=model, parts=parts, seed=seed)

    monkeypatch.setattr(models, "base_model", fit)
    return trained


@pytest.fixture
def two_scores(monkeypatch):
    monkeypatch.setattr(experiments, "scores_of", lambda dataset: ("tps", "aps"))


@pytest.mark.usefixtures("two_scores")
def test_every_training_split_has_a_model_of_its_own_and_leaves_its_rows(
    data, base, monkeypatch
):
    trained = counted_training(monkeypatch)
    options = {"splits": 2, "progress": False, "reported_as": "credit"}
    rows = experiments.run_training_splits(data, base, 4, **options)
    assert trained == [1, 2, 3]
    assert set(rows["guarantee"]) == {"none"} and set(rows["dataset"]) == {"credit"}
    means = rows.groupby("training_split")["base_efficiency"].mean()
    assert means.index.tolist() == [1, 2, 3] and means.nunique() == 3
    folder = paths.RESULTS / "runs" / "quick" / "training"
    attribute = rows["attribute"].iloc[0]
    names = [f"credit_{attribute}_{seed}.parquet" for seed in (1, 2, 3)]
    assert sorted(file.name for file in folder.iterdir()) == names


@pytest.mark.usefixtures("two_scores")
def test_training_splits_go_on_from_the_rows_that_are_there(data, base, monkeypatch):
    trained = counted_training(monkeypatch)
    options = {"splits": 2, "progress": False}
    whole = experiments.run_training_splits(data, base, 3, **options)
    folder = paths.RESULTS / "runs" / "quick" / "training"
    first, second = sorted(folder.iterdir())
    # Nothing but the repository's files: the cache of this machine is gone.
    monkeypatch.setattr(paths, "ARTIFACTS", paths.ARTIFACTS.with_name("another"))
    second.unlink()
    again = experiments.run_training_splits(data, base, 3, **options)
    assert trained == [1, 2, 2]
    pd.testing.assert_frame_equal(plain(again), plain(whole))
    first.write_bytes(first.read_bytes()[:1000])
    experiments.run_training_splits(data, base, 3, **options)
    assert trained == [1, 2, 2, 1]


def plain(rows):
    """Rows whose thresholds are lists, as those that were read are arrays."""
    return rows.assign(threshold=rows["threshold"].map(list))


def test_stored_rows_are_used_for_the_same_records_model_and_settings_alone(
    data, base, monkeypatch
):
    options = {"splits": 1, "scores": ("tps",), "progress": False, "closeness": (0.1,)}
    rows = experiments.run(data, base, **options)
    stored = experiments.save_rows(rows.assign(coverage=0.123))
    assert (experiments.run(data, base, **options)["coverage"] == 0.123).all()
    fresh = experiments.run(data, base, **options, fresh=True)
    pd.testing.assert_frame_equal(plain(fresh), plain(rows))
    others = {
        "labels": (replace(data, y=(data.y + 1) % 3), base, {}),
        "features": (replace(data, X=data.X + 1), base, {}),
        "settings of the model": (data, replace(base, parameters={"a": 1}), {}),
        "parts": (data, replace(base, parts=split(data, 8)), {}),
        "probabilities": (data, replace(base, probs=model_of(data, 5).probs), {}),
        "closeness": (data, base, {"closeness": (0.2,)}),
        "splits": (data, base, {"splits": 2}),
    }
    for why, (other_data, other_base, change) in others.items():
        found = experiments.run(other_data, other_base, **options | change)
        assert (found["coverage"] != 0.123).all(), why
    for damaged in (rows.iloc[:0], rows.iloc[1:].assign(coverage=0.123)):
        damaged.to_parquet(stored)
        found = experiments.run(data, base, **options)
        assert len(found) == len(rows) and (found["coverage"] != 0.123).all()
    experiments.save_rows(rows.assign(coverage=0.123))
    monkeypatch.setattr(experiments, "ROWS_VERSION", experiments.ROWS_VERSION + 1)
    assert (experiments.run(data, base, **options)["coverage"] != 0.123).all()
    assert stored.exists()


def test_training_rows_are_of_real_records_and_of_the_profile_with_the_most(data, base):
    rows = experiments.run(data, base, splits=1, scores=("tps",), progress=False)
    rows = rows.assign(dataset="credit", attribute="age", data="the paper's")
    assert experiments.load_training_rows().empty
    experiments.save_rows(rows)
    for profile, seeds in (("quick", (1, 10)), ("paper", (0, 1, 2))):
        for seed in seeds:
            own = rows.assign(profile=profile, training_split=seed)
            experiments.save_rows(own)
    simulated = rows.assign(dataset="pokec_n", attribute="region", data="simulated")
    experiments.save_rows(simulated)
    for attribute in ("region", "region+gender"):  # names that begin alike
        own = rows.assign(dataset="pokec_z", attribute=attribute, data="other")
        for seed in (0, 1):
            experiments.save_rows(own.assign(training_split=seed))
    by_region = experiments.load_training_rows("pokec_z", "region")
    assert set(by_region["attribute"]) == {"region"}
    found = experiments.load_training_rows("credit")
    assert set(found["dataset"]) == {"credit"} and set(found["guarantee"]) == {"none"}
    assert sorted(set(found["training_split"])) == [0, 1, 10]  # quick before paper
    assert experiments.load_training_rows("credit", "region").empty


def test_a_training_split_of_another_model_is_left_out_with_a_warning(data, base):
    rows = experiments.run(data, base, splits=1, scores=("tps",), progress=False)
    rows = rows.assign(dataset="credit", attribute="age", data="the paper's")
    for seed, model in ((0, "xgboost"), (1, "xgboost"), (2, "gcn")):
        experiments.save_rows(rows.assign(training_split=seed, model=model))
    with pytest.warns(UserWarning, match=r"credit_age_2\.parquet: left out"):
        found = experiments.load_training_rows("credit")
    assert sorted(set(found["training_split"])) == [0, 1]


def test_pokec_z_is_run_on_the_records_of_pokec_n():
    data = experiments.load("pokec_z", "gender", "simulated", rows=400)
    assert data.name == "pokec_n" and data.n_classes == 4
    facts = experiments.run_facts(data, model_of_labelled(data), "quick", "pokec_z")
    assert facts["dataset"] == "pokec_z"
    assert facts["records"] == "Pokec-n's: simulated, 400 rows"


def model_of_labelled(dataset):
    """A stand-in model of a dataset with unlabelled rows; only its name is looked at."""
    nothing = np.zeros((len(dataset), dataset.n_classes))
    return models.BaseModel("sage", {}, 0, nothing, nothing, {}, 0.0, pd.DataFrame())


# which cells a number is about


@pytest.mark.parametrize("metric", ALL)
def test_the_widest_gap_is_between_the_cells_that_it_names(data, base, metric):
    scored = scoring.score_split(data, base.probs, base.parts, "aps", 0)
    y = data.y[scored.test]
    groups = data.groups[scored.test]
    scores = scored.scores[scored.test]
    test = SortedCells(scores, y, as_groups(groups, len(y)))
    row = experiments.measured(test, metric, 0.6)
    cell, _, names = row["widest"].partition(": ")
    sets = conformal.prediction_sets(scores, 0.6)
    values = []
    for text in names.split(" < "):
        group, _, n = text.rstrip(")").rpartition(" (")
        mask = groups == group
        if cell == "the true label":
            values.append(sets[mask][np.arange(mask.sum()), y[mask]].mean())
            continue
        label = int(cell.split()[1].rstrip(","))
        if "y = " in cell:
            mask &= y == label
        elif "y ≠ " in cell:
            mask &= y != label
        if metric.startswith("predictive_parity"):
            prior = (y[mask] == label).mean() * (metric.endswith("proxy"))
            mask &= sets[:, label]
            values.append((y[mask] == label).mean() - prior)
        else:
            values.append(sets[mask, label].mean())
        assert int(n.replace(",", "")) == mask.sum() >= row["widest_n"]
    low, high = values
    gap = low / high if fairness.METRICS[metric].is_ratio else high - low
    assert gap == pytest.approx(row["disparity"])


def test_where_every_set_is_full_no_two_groups_differ(data, base):
    scored = scoring.score_split(data, base.probs, base.parts, "aps", 0)
    y = data.y[scored.test]
    groups = as_groups(data.groups[scored.test], len(y))
    test = SortedCells(scored.scores[scored.test], y, groups)
    row = experiments.measured(test, "equal_opportunity", np.inf)
    assert (row["disparity"], row["widest"], row["widest_n"]) == (0, "", 0)


def test_the_smallest_cell_is_counted_on_the_calibration_rows(data, base):
    rows = experiments.run_split(data, base, "tps", 0, closeness=(0.1,))
    scored = scoring.score_split(data, base.probs, base.parts, "tps", 0)
    y = data.y[scored.calibration]
    groups = data.groups[scored.calibration]
    sizes = pd.Series(1, [groups, y]).groupby(level=[0, 1]).sum()
    smallest = sizes[sizes.index.get_level_values(1) > 0]
    group, label = smallest.idxmin()
    own = rows[rows["metric"] == "equal_opportunity"].iloc[0]
    assert own["smallest_n"] == smallest.min()
    assert own["smallest_cell"] == f"{group} / {label}"
    of_groups = rows[rows["metric"] == "demographic_parity"].iloc[0]
    assert of_groups["smallest_n"] == pd.Series(groups).value_counts().min()


# what is committed


@pytest.mark.stress
@pytest.mark.parametrize("training_split", [0, 7])
def test_the_committed_rows_of_credit_are_what_the_code_gives(
    root, monkeypatch, training_split
):
    """A change of the code that changes rows must raise ROWS_VERSION and run them."""
    monkeypatch.setattr(paths, "RESULTS", root / "results")
    stored = experiments.load_training_rows("credit")
    stored = stored[stored["training_split"] == training_split]
    stored = stored[(stored["split"] == 3) & stored["score"].isin(["aps", "daps"])]
    credit = experiments.load("credit", "age")
    base = models.base_model(
        credit, split(credit, training_split), seed=training_split, progress=False
    )
    keys = ["score", "metric", "classwise", "c"]
    for score in ("aps", "daps"):
        rows = experiments.run_split(credit, base, score, 3, guarantees=["none"])
        own = stored[stored["score"] == score].set_index(keys).sort_index()
        again = rows.set_index(keys).sort_index()
        for name in (*experiments.MEASURED, "base_efficiency", "base_disparity"):
            np.testing.assert_allclose(again[name], own[name], atol=1e-5, err_msg=name)

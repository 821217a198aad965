"""Base models beside each other: numbers by other code, rows that are read again."""

from dataclasses import replace

import numpy as np
import oracle
import pandas as pd
import pytest
from toy import toy

from cfhelpers import graph_scores, paths
from cfhelpers.datasets import load_dataset, resplit, split
from cfhelpers.study import base_models, models

pytest.importorskip("xgboost")

TREES = {"learning_rate": 0.3, "n_estimators": 8, "max_depth": 3}
STUMP = {"learning_rate": 0.5, "n_estimators": 1, "max_depth": 1}
CANDIDATES = [("xgboost", TREES), ("xgboost", STUMP)]


@pytest.fixture(scope="module")
def data():
    return toy(400, noise=1.5)


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Results and artifacts of the test alone."""
    monkeypatch.setattr(paths, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(paths, "ARTIFACTS", tmp_path / "artifacts")


@pytest.fixture
def no_work(monkeypatch):
    """From here on nothing may be computed."""

    def fails(*_, **__):
        raise AssertionError("a row was computed")

    def forbid():
        monkeypatch.setattr(base_models, "measure", fails)
        monkeypatch.setattr(base_models, "largest_class", fails)
        monkeypatch.setattr(models, "base_model", fails)

    return forbid


def compare(data, candidates=CANDIDATES, training_splits=2, splits=2):
    return base_models.compare(data, candidates, training_splits, splits, progress=False)


def texts():
    return pd.read_csv(base_models.path(), dtype=str, keep_default_na=False)


# the numbers


def mean_size(data, base, score, n_splits):
    """The mean size of sets, one row and one label at a time."""
    sizes = []
    for seed in range(n_splits):
        parts = resplit(data, base.parts, seed)
        u = np.random.default_rng([seed, graph_scores.STREAM]).random(len(data))
        rows = {"calibration": [], "test": []}
        for i in np.flatnonzero(np.isin(parts, list(rows))):
            probs = base.probs[i].astype(float).tolist()
            own = oracle.tps_row(probs) if score == "tps" else oracle.aps_row(probs, u[i])
            rows[parts[i]].append((own, data.y[i]))
        true = [own[y] for own, y in rows["calibration"]]
        threshold = oracle.quantile(true, 0.1)
        counts = [sum(s <= threshold + 1e-7 for s in own) for own, _ in rows["test"]]
        sizes.append(sum(counts) / len(counts))
    return sum(sizes) / len(sizes)


def test_the_numbers_of_a_row_are_those_of_its_model(places, data):
    found = compare(data).query("model == 'xgboost'")
    assert len(found) == 4
    for row in found.to_dict("records"):
        seed = row["training_split"]
        parameters = STUMP if '"max_depth": 1' in row["settings"] else TREES
        base = models.base_model(
            data,
            split(data, seed),
            "xgboost",
            parameters=parameters,
            seed=seed,
            progress=False,
        )
        for part in ("valid", "test"):
            true = []
            right = []
            for i in np.flatnonzero(base.parts == part):
                true.append(float(base.probs[i, data.y[i]]))
                right.append(base.probs[i].argmax() == data.y[i])
            assert row[f"{part}_accuracy"] == pytest.approx(np.mean(right))
            assert row[f"{part}_log_loss"] == pytest.approx(-np.log(true).mean())
        for score in ("tps", "aps"):
            wanted = mean_size(data, base, score, 2)
            assert row[f"{score}_size"] == pytest.approx(wanted, abs=1e-9)
        assert row["splits"] == 2
    assert found["test_log_loss"].nunique() == 4  # a model of its own for each


def test_the_largest_class_is_that_of_the_training_rows(places):
    data = toy(400)
    y = np.where(np.arange(400) < 150, 2, data.y)
    data = replace(data, y=y)
    found = compare(data, []).set_index("training_split")
    assert set(found["model"]) == {base_models.LARGEST_CLASS}
    for seed in range(2):
        parts = split(data, seed)
        labels = y[parts == "train"].tolist()
        most = max(set(labels), key=labels.count)
        for part in ("valid", "test"):
            wanted = (y[parts == part] == most).mean()
            assert found.loc[seed, f"{part}_accuracy"] == pytest.approx(wanted)
    sizes = found[["tps_size", "aps_size", "valid_log_loss", "test_log_loss"]]
    assert sizes.isna().all(axis=None)


@pytest.mark.slow
def test_graph_models_stand_beside_xgboost(places, data):
    pytest.importorskip("torch_geometric")
    small = {"hidden_channels": 8, "layers": 1}
    candidates = [("gcn", small), ("gcn", small | {"scaled": False})]
    found = compare(data, candidates, training_splits=1, splits=1)
    assert found["model"].tolist() == ["gcn", "gcn", base_models.LARGEST_CLASS]
    assert found["test_accuracy"][:2].min() > found["test_accuracy"][2]
    assert found["valid_log_loss"][0] != found["valid_log_loss"][1]


# rows that are stored


def test_a_second_call_reads_and_computes_nothing(places, data, no_work):
    first = compare(data)
    before = base_models.path().read_bytes()
    no_work()
    second = compare(data)
    assert list(second) == base_models.COLUMNS
    pd.testing.assert_frame_equal(
        first.astype(object).fillna(""), second.astype(object).fillna("")
    )
    assert base_models.path().read_bytes() == before
    fewer = compare(data, CANDIDATES[:1], training_splits=1)
    assert fewer["model"].tolist() == ["xgboost", base_models.LARGEST_CLASS]
    stored = base_models.load()
    assert sorted(stored["key"]) == sorted(first["key"])


def test_a_call_that_was_stopped_goes_on(places, data, monkeypatch):
    measure = base_models.measure
    asked = []

    def stops(*arguments):
        asked.append(arguments)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return measure(*arguments)

    monkeypatch.setattr(base_models, "measure", stops)
    with pytest.raises(KeyboardInterrupt):
        compare(data)
    assert len(texts()) == 3  # two models, and the largest class of the first split
    found = compare(data)
    assert len(asked) == 3 + 2
    assert len(found) == len(texts()) == 6


def test_candidates_may_come_one_by_one(places, data):
    found = compare(data, iter(CANDIDATES))
    assert found.groupby("training_split")["model"].count().tolist() == [3, 3]


def test_rows_with_another_key_are_replaced_and_those_of_other_things_stay(places, data):
    compare(data)
    compare(replace(data, name="another"))
    compare(replace(data, attribute="age"))
    compare(replace(data, source="local"))
    before = texts()
    assert len(before) == 6  # the key is that of the records, whatever their name
    compare(data, splits=3)
    assert len(texts()) == 6 and not set(texts()["key"]) & set(before["key"])
    X = data.X.copy()
    X.iloc[0, 0] += 1
    other = replace(data, X=X, name="another")
    kept = texts()
    compare(other, splits=3)
    assert len(texts()) == 12
    assert texts()[:6].equals(kept)


def test_without_a_file_there_are_no_rows(places):
    found = base_models.load()
    assert found.empty and list(found) == base_models.COLUMNS


def test_on_credit_every_graph_model_is_tried_with_scaled_features_and_with_plain_ones():
    candidates = base_models.credit_candidates(load_dataset("credit"))
    assert candidates[0][0] == "xgboost" and candidates[0][1]["n_estimators"] == 392
    pairs = {(model, parameters["scaled"]) for model, parameters in candidates[1:]}
    assert len(candidates) == 7
    assert pairs == {
        (kind, on) for kind in ("gcn", "sage", "gat") for on in (True, False)
    }


def test_of_pokec_each_model_counts_with_its_last_settings(places):
    settings = ["{}", '{"lr": 0.1}', "{}", '{"lr": 0.2}']
    rows = pd.DataFrame({"settings": settings, "training_split": [0, 0, 0, 1]})
    rows = rows.assign(model=["xgboost", "gcn", "xgboost", "gcn"], source="local")
    rows = rows.assign(dataset=["pokec_n", "pokec_n", "credit", "pokec_n"])
    rows = rows.reindex(columns=base_models.COLUMNS)
    paths.RESULTS.mkdir(parents=True)
    rows.to_csv(base_models.path(), index=False)
    found = base_models.of_pokec()
    assert found["model"].tolist() == ["xgboost", "gcn"]
    assert found["settings"].tolist() == ["{}", '{"lr": 0.2}']

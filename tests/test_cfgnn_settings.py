"""CFGNN with many settings: numbers by other code, rows that are read again."""

from dataclasses import replace

import numpy as np
import oracle
import pandas as pd
import pytest
from toy import toy

from cfhelpers import graph_scores, paths
from cfhelpers.datasets import resplit, split
from cfhelpers.study import cfgnn_settings, models, spaces

pytest.importorskip("torch_geometric")

QUICK = {"n": 2, "splits": 2, "epochs": 6, "warm_up": 2, "progress": False}
METRIC = oracle.metric("disparate_impact")


def base_of(data):
    """A base model that knows a little of the first feature."""
    distance = (data.X["a"].to_numpy()[:, None] - np.arange(data.n_classes)) ** 2
    weights = np.exp(-distance / 3)
    probs = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    return models.BaseModel(
        model="xgboost",
        parameters={},
        seed=0,
        probs=probs,
        parts=split(data, 0),
        accuracy={},
        seconds=0.0,
        history=pd.DataFrame(),
    )


@pytest.fixture(scope="module")
def data():
    return toy(400, noise=1.5)


@pytest.fixture(scope="module")
def base(data):
    return base_of(data)


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Results and artifacts of the test alone."""
    monkeypatch.setattr(paths, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(paths, "ARTIFACTS", tmp_path / "artifacts")


@pytest.fixture(autouse=True)
def small_space(monkeypatch):
    """Networks that are trained in no time."""
    monkeypatch.setitem(spaces.SPACES["cfgnn"], "hidden_channels", ("choice", 8, 16))
    monkeypatch.setitem(spaces.SPACES["cfgnn"], "layers", ("choice", 1, 2))


def run(data, base, **options):
    return cfgnn_settings.run(data, base, **QUICK | options)


def texts():
    return pd.read_csv(cfgnn_settings.path(), dtype=str, keep_default_na=False)


# the numbers


def numbers_of(data, base, adjusted, seed):
    """Efficiency and ratio of the base and of both λ, and whether λ is the base's."""
    parts = resplit(data, base.parts, seed)
    u = np.random.default_rng([seed, graph_scores.STREAM]).random(len(data))
    rows = zip(adjusted.astype(float).tolist(), u, strict=True)
    scores = np.array([oracle.aps_row(row, each) for row, each in rows])
    calibration = parts == "calibration"
    test = parts == "test"
    found = {}
    for name, is_classwise in (("cf", False), ("classwise", True)):
        answer = oracle.search(
            scores[calibration],
            data.y[calibration],
            data.groups[calibration],
            METRIC,
            0.8,
            alpha=0.1,
            classwise=is_classwise,
            positive_labels=[1, 2],
            guarantee=False,
        )
        thresholds = {name: answer.threshold, "base": answer.base_threshold}
        for which, threshold in thresholds.items():
            sets = scores[test] <= threshold + 1e-7
            found[f"{which}_efficiency"] = sets.sum() / len(sets)
            found[f"{which}_ratio"] = oracle.disparity(
                sets, data.y[test], data.groups[test], METRIC, [1, 2]
            )
        if not is_classwise:
            is_same = (answer.threshold == answer.base_threshold).all()
            found["unchanged"] = float(is_same)
    return found


@pytest.mark.parametrize("by", ["chance", "a feature"], ids=["fair", "unfair"])
def test_the_numbers_of_a_row_are_means_over_re_splits(places, data, by):
    if by == "chance":
        groups = np.random.default_rng(5).choice(["few", "many"], len(data))
    else:
        groups = np.where(data.X["a"] > 1, "few", "many")
    data = replace(data, groups=groups)
    base = base_of(data)
    found = run(data, base, seed=4)
    settings = spaces.draw(spaces.space("cfgnn", data), 2, 0)
    for place, row in enumerate(found.to_dict("records")):
        adjusted, how = graph_scores.cfgnn(
            base.probs,
            data.y,
            data.edge_index,
            np.flatnonzero(base.parts == "valid"),
            parameters=settings[place],
            seed=4,
            epochs=6,
            warm_up=2,
            progress=False,
        )
        by_split = [numbers_of(data, base, adjusted, seed) for seed in range(2)]
        for name in cfgnn_settings.NUMBERS:
            wanted = np.mean([numbers[name] for numbers in by_split])
            assert row[name] == pytest.approx(wanted, abs=1e-6), name
        assert how.items() <= row.items()
        assert settings[place].items() <= row.items()
        assert (row["setting"], row["seed"], row["splits"]) == (place, 4, 2)
        assert (row["variant"], row["epochs"]) == ("published", 6)
    if by == "a feature":
        assert (found["unchanged"] < 1).any()
        assert (found["cf_efficiency"] > found["base_efficiency"]).any()
    else:
        assert (found["unchanged"] > 0).any()


def test_what_is_not_said_is_what_cfgnn_takes_by_itself(places, data, base, monkeypatch):
    seen = []

    def fake(probs, *_, **options):
        seen.append(options)
        return probs, {"epoch": 1, "held_out_size": 2.0, "reached": 3}

    monkeypatch.setattr(graph_scores, "cfgnn", fake)
    (row,) = cfgnn_settings.run(data, base, 1, splits=1, progress=False).to_dict(
        "records"
    )
    assert (row["variant"], row["epochs"]) == ("published", 300)
    assert {"variant", "epochs"}.isdisjoint(seen[0])
    found = cfgnn_settings.run(
        data, base, 1, splits=1, progress=False, variant="shortcut"
    )
    assert found["variant"].tolist() == ["shortcut"] and seen[1]["variant"] == "shortcut"
    assert len(texts()) == 2


# rows that are stored


def test_a_second_call_reads_and_computes_nothing(places, data, base, monkeypatch):
    first = run(data, base)
    before = cfgnn_settings.path().read_bytes()

    def fails(*_, **__):
        raise AssertionError("a row was computed")

    monkeypatch.setattr(cfgnn_settings, "measure", fails)
    monkeypatch.setattr(graph_scores, "cfgnn", fails)
    second = run(data, base)
    assert list(second) == cfgnn_settings.COLUMNS
    pd.testing.assert_frame_equal(
        first.astype(object).fillna(""), second.astype(object).fillna("")
    )
    assert cfgnn_settings.path().read_bytes() == before
    assert run(data, base, n=1)["setting"].tolist() == [0]
    assert cfgnn_settings.load("toy")["key"].tolist() == first["key"].tolist()
    assert cfgnn_settings.load("credit").empty


@pytest.fixture
def counted(monkeypatch):
    """How often a network is asked for; none is trained."""
    asked = []

    def fake(probs, *_, **options):
        asked.append(options)
        size = 3.0 - options["parameters"]["dropout"]
        return probs, {"epoch": 1, "held_out_size": size, "reached": 3}

    monkeypatch.setattr(graph_scores, "cfgnn", fake)
    return asked


def test_rows_with_another_key_are_replaced_and_those_of_other_things_stay(
    places, data, base, counted
):
    run(data, base)
    run(data, base)
    assert len(counted) == 2
    before = texts()
    X = data.X.copy()
    X.iloc[0, 0] += 1
    changes = {
        "other records": (replace(data, X=X), base, {}),
        "another base": (data, replace(base, seed=1), {}),
        "more re-splits": (data, base, {"splits": 3}),
        "a longer warm-up": (data, base, {"warm_up": 3}),
    }
    for what, (records, model, options) in changes.items():
        run(records, model, **options)
        assert len(texts()) == 2, what
        assert not set(texts()["key"]) & set(before["key"]), what
    added = [({"seed": 1}, 2), ({"epochs": 7}, 2), ({"variant": "shortcut"}, 2)]
    for options, n_rows in [*added, ({"n": 3}, 1)]:
        kept = texts()
        run(data, base, warm_up=3, **options)
        assert texts()[: len(kept)].equals(kept), options
        assert len(texts()) == len(kept) + n_rows, options


def test_some_of_the_settings_are_those_of_all(places, data, base, counted):
    whole = run(data, base, n=4)
    cfgnn_settings.path().unlink()
    some = run(data, base, n=4, only=[3, 1])
    assert some["setting"].tolist() == [3, 1]
    assert some["key"].tolist() == whole["key"][[3, 1]].tolist()
    more = run(data, base, n=9, only=[1])
    assert more["key"].tolist() == [whole["key"][1]]


@pytest.mark.parametrize("only", [[4], [-1], []], ids=str)
def test_settings_that_there_are_not_are_told(places, data, base, counted, only):
    with pytest.raises(ValueError, match=r"only: found .*; wanted some of 0 to 3"):
        run(data, base, n=4, only=only)
    assert not counted and not cfgnn_settings.path().exists()


def test_the_best_setting_has_the_smallest_sets_where_its_epoch_was_chosen(
    places, data, base, counted
):
    rows = run(data, base, n=6, settings_seed=2)
    settings = spaces.draw(spaces.space("cfgnn", data), 6, 2)
    dropouts = [setting["dropout"] for setting in settings]
    wanted = settings[int(np.argmax(dropouts))]
    shuffled = rows.sample(frac=1, random_state=0)
    assert cfgnn_settings.best(data, shuffled, settings_seed=2) == wanted


def test_a_dataset_without_a_graph_is_told(places, data, base):
    with pytest.raises(ValueError, match="model: found 'cfgnn' for toy without edges"):
        run(replace(data, edge_index=None), base)


def test_without_a_file_there_are_no_rows(places):
    found = cfgnn_settings.load()
    assert found.empty and list(found) == cfgnn_settings.COLUMNS

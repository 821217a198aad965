"""Tuning: an objective blind to calibration rows, searches in rungs, settings."""

import json
import re
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml

from cfhelpers import paths
from cfhelpers.datasets import Dataset, split
from cfhelpers.datasets._dataset import symmetric, undirected
from cfhelpers.study import presets, spaces, training, tuning

ROOT = Path(__file__).resolve().parents[1]


def small(n=300, edges=True, source="simulated") -> Dataset:
    """Three classes that follow the first feature, on a graph that joins like to like."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    X = pd.DataFrame({"a": y + rng.normal(0, 0.8, n), "b": rng.normal(0, 1, n)})
    order = np.argsort(y + rng.random(n))
    pairs = undirected(
        np.concatenate([[order[k:], order[: n - k]] for k in (1, 2)], axis=1), n
    )
    return Dataset(
        name="small",
        source=source,
        X=X,
        y=y,
        groups=np.where(rng.random(n) < 0.4, "few", "many"),
        group_names=("many", "few"),
        label_names=("0", "1", "2"),
        attribute="size",
        edge_index=symmetric(pairs) if edges else None,
    )


XGBOOST = {"learning_rate": 0.1, "n_estimators": 10, "max_depth": 3}
SAMPLES = {
    "xgboost": XGBOOST,
    "gcn": {"lr": 0.02, "hidden_channels": 16, "layers": 2, "dropout": 0.2},
    "cfgnn": {
        "kind": "gcn",
        "lr": 0.02,
        "hidden_channels": 16,
        "layers": 1,
        "dropout": 0.1,
        "temperature": 0.1,
    },
}


# one trial


def run_trial(model, data, parts, probs=None, seed=0, epochs=12):
    return tuning._run_trial(SAMPLES[model], seed, epochs, model, data, parts, probs)


def random_probs(n):
    return np.random.default_rng(1).dirichlet(np.ones(3), n).astype(np.float32)


def relabel(data, rows):
    """Other labels for some rows."""
    y = data.y.copy()
    other = y + 1 + np.random.default_rng(2).integers(0, 2, len(y))
    y[rows] = other[rows] % 3
    return replace(data, y=y)


@pytest.mark.slow
@pytest.mark.parametrize("model", list(SAMPLES))
def test_rows_that_calibrate_or_test_have_no_say_in_the_choice(
    model, tmp_path, monkeypatch
):
    pytest.importorskip("xgboost")
    pytest.importorskip("torch_geometric")
    data = small()
    parts = split(data, 0)
    outside = np.isin(parts, ["calibration", "test"])
    cases = {
        "as it is": data,
        "other labels outside": relabel(data, outside),
        "other labels inside": relabel(data, ~outside),
    }
    found = []
    for place, other in cases.items():
        monkeypatch.setattr(paths, "ARTIFACTS", tmp_path / place)
        measured = run_trial(model, other, parts, random_probs(300))
        measured.pop("seconds")
        found.append(measured)
    assert found[0] == found[1]
    assert found[0]["value"] != found[2]["value"]


@pytest.mark.parametrize("model", ["xgboost", "gcn"])
def test_a_trial_is_judged_by_the_cross_entropy_on_the_validation_rows(model):
    pytest.importorskip("xgboost")
    pytest.importorskip("torch_geometric")
    data = small()
    parts = split(data, 0)
    found = run_trial(model, data, parts, seed=3)
    probs, history = training.train(data, parts, model, SAMPLES[model], seed=3, epochs=12)
    valid = np.flatnonzero(parts == "valid")
    loss = -np.log(probs[valid, data.y[valid]].astype(float)).mean()
    assert found["value"] == pytest.approx(loss, rel=1e-4)
    is_right = probs[valid].argmax(axis=1) == data.y[valid]
    assert found["accuracy"] == pytest.approx(is_right.mean())
    assert found["accuracy"] == pytest.approx(history["held_out"][found["epoch"]])
    assert found["reached"] == len(history["epoch"]) <= 12
    assert list(found) == list(tuning.MEASURED)


def test_a_cfgnn_trial_is_judged_by_its_sets(tmp_path, monkeypatch):
    graph_scores = pytest.importorskip("cfhelpers.graph_scores")
    pytest.importorskip("torch_geometric")
    monkeypatch.setattr(paths, "ARTIFACTS", tmp_path)
    data = small()
    parts = split(data, 0)
    probs = random_probs(300)
    found = run_trial("cfgnn", data, parts, probs, seed=2, epochs=0)
    valid = np.flatnonzero(parts == "valid")
    adjusted, how = graph_scores.cfgnn(
        probs,
        data.y,
        data.edge_index,
        valid,
        parameters=SAMPLES["cfgnn"],
        seed=2,
        progress=False,
    )
    is_right = adjusted[valid].argmax(axis=1) == data.y[valid]
    assert found["value"] == how["held_out_size"]
    assert found["accuracy"] == pytest.approx(is_right.mean())
    assert (found["epoch"], found["reached"]) == (how["epoch"], how["reached"])


def test_epochs_without_a_number_are_passed_over_and_a_trial_of_them_fails(monkeypatch):
    data = small()
    parts = split(data, 0)

    def train_to(losses):
        history = {"epoch": np.arange(3.0), "valid_loss": np.array(losses)}
        monkeypatch.setattr(
            training, "train", lambda *_, **__: (random_probs(300), history)
        )
        return run_trial("gcn", data, parts)

    assert train_to([0.9, 0.7, np.nan])["epoch"] == 1
    with pytest.raises(ValueError, match="gcn: no epoch has a validation loss that is"):
        train_to([np.nan, np.nan, np.nan])


# a search, with workers that only pretend to train


class Killed(BaseException):
    """The end of a process, wherever it is."""


class PretendedWorkers:
    """Workers that look a trial's value up, and end when they have done enough."""

    def __init__(self, fails=lambda place, seed, epochs: False, last=None):
        self.fails = fails
        self.last = last
        self.asked = []

    def __call__(self, function, inputs, address):
        self.inputs = inputs
        return self

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def results(self, units):
        for place in reversed(range(len(units))):  # in any order
            parameters, seed, epochs = units[place].values()
            if len(self.asked) == self.last:
                raise Killed
            self.asked.append((parameters["lr"], seed, epochs))
            if self.fails(parameters["lr"], seed, epochs):
                yield place, ValueError("first line\nValueError: it does not fit")
            else:
                yield place, measured_for(parameters["lr"], seed, epochs)


def measured_for(lr, seed, epochs):
    value, accuracy = np.random.default_rng([int(lr * 1e6), seed, epochs]).random(2)
    return {
        "value": float(value),
        "accuracy": float(accuracy),
        "epoch": epochs // 2,
        "reached": epochs,
        "seconds": 0.1,
    }


LRS = [round(0.011 + 0.01 * place, 3) for place in range(10)]
SETTINGS = [{"lr": lr, "aggr": "pool", "layers": 2} for lr in LRS]
SEEDS = [3, 5]
RUNGS = [2, 10, 40]


def new_search(path, key="abc", n=10, seeds=SEEDS, rungs=RUNGS):
    return tuning._Search(path, key, SETTINGS[:n], seeds, rungs)


def finished_search(path, workers=None, **options):
    search = new_search(path, **options)
    search.run(workers or PretendedWorkers(), "", False)
    return search


def texts(path):
    return pd.read_csv(path, dtype=str, keep_default_na=False)


def best_by_hand(n, epochs, among):
    """The n settings among some whose mean over seeds is smallest."""
    values = {}
    for place in among:
        found = [measured_for(LRS[place], seed, epochs)["value"] for seed in SEEDS]
        values[place] = sum(found) / len(found)
    return sorted(sorted(values, key=values.get)[:n])


def test_the_best_third_by_the_mean_over_seeds_goes_on(tmp_path):
    workers = PretendedWorkers()
    search = finished_search(tmp_path / "trials.csv", workers)
    second = best_by_hand(4, 2, range(10))
    third = best_by_hand(2, 10, second)
    wanted = set()
    for epochs, places in ((2, range(10)), (10, second), (40, third)):
        wanted |= {(LRS[place], seed, epochs) for place in places for seed in SEEDS}
    assert len(workers.asked) == len(wanted)
    assert set(workers.asked) == wanted
    (best,) = best_by_hand(1, 40, third)
    assert search.best() == best
    table = search.table()
    for row in table.to_dict("records"):
        goes_on = second if row["epochs"] == 2 else third
        status = "went on" if row["setting"] in goes_on else "stopped"
        assert row["status"] == ("finished" if row["epochs"] == 40 else status)
        assert SETTINGS[row["setting"]].items() <= row.items()
        measured = measured_for(row["lr"], row["seed"], row["epochs"])
        assert measured.items() <= row.items()
    order = table[["epochs", "setting", "seed"]]
    pd.testing.assert_frame_equal(order, order.sort_values(list(order)))


@pytest.mark.parametrize(
    ("n", "counts"), [(1, [1, 1, 1]), (3, [3, 1, 1]), (4, [4, 2, 1])]
)
def test_of_few_settings_one_goes_on_at_least(tmp_path, n, counts):
    table = finished_search(tmp_path / "trials.csv", n=n).table()
    assert table.groupby("epochs")["setting"].nunique().tolist() == counts


def test_of_equals_the_first_goes_on_and_is_the_best(tmp_path, monkeypatch):
    same = measured_for(LRS[0], 0, 1)
    monkeypatch.setattr(sys.modules[__name__], "measured_for", lambda *_: same)
    search = finished_search(tmp_path / "trials.csv")
    went_on = search.table().query("epochs == 10")["setting"].unique()
    assert went_on.tolist() == [0, 1, 2, 3]
    assert search.best() == 0


def test_a_search_that_was_killed_anywhere_goes_on_in_another_place(tmp_path):
    whole = PretendedWorkers()
    unbroken = finished_search(tmp_path / "unbroken.csv", whole, n=4)
    assert len(whole.asked) == 8 + 4 + 2
    for last in (0, 1, 7, 8, 11, 13):
        there = tmp_path / f"there {last}" / "trials.csv"
        here = tmp_path / f"here {last}" / "trials.csv"
        here.parent.mkdir()
        killed = PretendedWorkers(last=last)
        with pytest.raises(Killed):
            finished_search(there, killed, n=4)
        if last:
            shutil.copy(there, here)
            assert len(texts(here)) == last
        resumed = PretendedWorkers()
        search = finished_search(here, resumed, n=4)
        assert sorted(killed.asked + resumed.asked) == sorted(whole.asked)
        pd.testing.assert_frame_equal(search.table(), unbroken.table())
        assert here.read_bytes() == (tmp_path / "unbroken.csv").read_bytes()


def test_a_trial_waits_until_its_rung_is_done(tmp_path):
    path = tmp_path / "trials.csv"
    with pytest.raises(Killed):
        finished_search(path, PretendedWorkers(last=23))
    by_rung = texts(path).groupby("epochs")["status"].unique()
    assert set(by_rung["2"]) == {"went on", "stopped"}
    assert list(by_rung["10"]) == ["waiting"]


def test_a_finished_search_runs_nothing(tmp_path):
    path = tmp_path / "trials.csv"
    first = finished_search(path)
    before = path.read_bytes()
    idle = PretendedWorkers(last=0)
    again = finished_search(path, idle)
    assert not idle.asked and path.read_bytes() == before
    pd.testing.assert_frame_equal(again.table(), first.table())


def assert_holds(path, rows):
    """The file has these rows, word by word."""
    columns = list(rows.columns)
    found = set(texts(path)[columns].itertuples(index=False, name=None))
    assert set(rows.itertuples(index=False, name=None)) <= found


@pytest.mark.parametrize(
    "other",
    [
        {"key": "123"},
        {"n": 9},
        {"seeds": [3, 6]},
        {"seeds": [3, 5, 6]},
        {"rungs": [2, 40]},
        {"rungs": [5]},
    ],
    ids=str,
)
def test_trials_of_other_searches_stay_in_the_file(tmp_path, other):
    path = tmp_path / "trials.csv"
    finished_search(path)
    stored = texts(path).drop(columns="status")  # may change with those it is among
    workers = PretendedWorkers()
    search = finished_search(path, workers, **other)
    assert_holds(path, stored)
    assert not texts(path).duplicated(["key", "setting", "seed", "epochs"]).any()
    alone = finished_search(tmp_path / "alone.csv", **other)
    on_top = search.table().merge(alone.table(), how="right", indicator=True)
    assert (on_top["_merge"] == "both").all()
    assert search.best() == alone.best()
    if "key" not in other:
        known = set(stored[["lr", "seed", "epochs"]].itertuples(index=False, name=None))
        assert not known & {tuple(map(str, trial)) for trial in workers.asked}


def test_what_another_search_writes_meanwhile_stays(tmp_path):
    path = tmp_path / "trials.csv"
    with pytest.raises(Killed):
        finished_search(path, PretendedWorkers(last=3))
    search = new_search(path)
    finished_search(path, key="other")
    stored = texts(path).query("key == 'other'")
    search.run(PretendedWorkers(), "", False)
    assert_holds(path, stored)
    assert (texts(path)["key"] == "abc").sum() == len(search.table())


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("setting", "x"),
        ("setting", ""),
        ("seed", "3.5"),
        ("value", "nothing"),
        ("value", ""),
        ("value", "nan"),
        ("accuracy", "?"),
        ("reached", "2.5"),
        ("lr", "0.5"),  # another setting in the place of this one
        ("aggr", "mean"),
    ],
)
def test_a_damaged_trial_is_told_and_run_again(tmp_path, column, text):
    path = tmp_path / "trials.csv"
    finished_search(path)
    before = path.read_bytes()
    rows = texts(path)
    rows.loc[4, column] = text
    rows.to_csv(path, index=False)
    workers = PretendedWorkers()
    with pytest.warns(UserWarning, match="trials.csv: 1 rows of this search cannot be"):
        finished_search(path, workers)
    assert workers.asked == [(LRS[2], 3, 2)]
    assert path.read_bytes() == before


def test_a_line_that_was_cut_off_is_run_again(tmp_path):
    path = tmp_path / "trials.csv"
    whole = finished_search(path)
    path.write_text(path.read_text()[:-30])
    workers = PretendedWorkers()
    search = finished_search(path, workers)
    assert len(workers.asked) == 1
    pd.testing.assert_frame_equal(search.table(), whole.table())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "found trials.csv, which is no table"),
        ("a,b\n1,2\n", "found trials.csv without the column 'key'"),
        ("key,setting,seed,epochs\nabc,1,2,3\n", "without the column 'value'"),
        ("key,a\n1,2\n1,2,3,4\n", "found trials.csv, which is no table"),
    ],
    ids=["empty", "of something else", "of less", "ragged"],
)
def test_a_file_of_other_things_is_refused_and_stays(tmp_path, text, message):
    path = tmp_path / "trials.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"trials: .*{message}.*; wanted a CSV file"):
        new_search(path)
    assert path.read_text() == text


def test_a_setting_that_fails_is_named_and_left_out(tmp_path):
    path = tmp_path / "trials.csv"
    second = best_by_hand(4, 2, range(10))
    worst = second[0]

    def fails(lr, seed, epochs):
        return lr == LRS[worst] and seed == 5

    message = f"1 of 20 trials failed, setting {worst} with seed 5; "
    message += "the first by ValueError: it does not fit"
    with pytest.warns(UserWarning, match=message):
        search = finished_search(path, PretendedWorkers(fails))
    others = [place for place in range(10) if place != worst]
    went_on = search.table().query("epochs == 10")["setting"].unique().tolist()
    assert went_on == best_by_hand(3, 2, others)
    statuses = search.table().query(f"setting == {worst}")["status"].tolist()
    assert statuses == ["stopped"]
    # it is tried once more, and is no reason to give up the others
    again = PretendedWorkers(fails)
    with pytest.warns(UserWarning, match=f"1 of 1 trials failed, setting {worst} with"):
        search = finished_search(path, again)
    assert again.asked == [(LRS[worst], 5, 2)]


def test_where_no_setting_has_all_its_seeds_the_reason_is_given(tmp_path):
    path = tmp_path / "trials.csv"
    with pytest.raises(RuntimeError, match="20 of 20 trials failed, setting 9 with seed"):
        finished_search(path, PretendedWorkers(lambda *_: True))
    assert not path.exists()
    one_seed = PretendedWorkers(lambda lr, seed, epochs: seed == 5)
    with pytest.raises(RuntimeError, match="10 of 20 trials failed, setting 9 with"):
        finished_search(path, one_seed)
    assert set(texts(path)["status"]) == {"waiting"}
    # and later ones: what is done stays
    late = PretendedWorkers(lambda lr, seed, epochs: epochs == 40)
    with pytest.raises(RuntimeError, match="4 of 4 trials failed"):
        finished_search(path, late)
    assert len(texts(path)) == 20 + 8
    assert len(finished_search(path).table()) == 20 + 8 + 4


def test_a_failure_without_words_is_told_by_its_name(tmp_path):
    class Silent(PretendedWorkers):
        def results(self, units):
            for place in range(len(units)):
                yield place, MemoryError()

    with pytest.raises(RuntimeError, match=r"the first by MemoryError\(\)"):
        finished_search(tmp_path / "trials.csv", Silent())


# what `tune` asks for and gives


@pytest.fixture
def workers(monkeypatch, tmp_path):
    """In the place of Ray's."""
    monkeypatch.setattr(paths, "ARTIFACTS", tmp_path / "artifacts")
    pretended = PretendedWorkers()
    monkeypatch.setattr(tuning, "Workers", pretended)
    return pretended


def quiet(data, model, **options):
    return tuning.tune(data, model, progress=False, **options)


def test_the_record_is_that_of_the_smallest_loss_and_can_be_stored(workers, tmp_path):
    data = small()
    record, trials = quiet(data, "gcn", n_samples=6, seeds=(0, 1), rungs=(1, 3))
    last = trials.query("epochs == 3").groupby("setting")["value"].mean()
    drawn = spaces.draw(spaces.space("gcn", data), 6, 0)
    assert record == {
        "parameters": drawn[last.idxmin()],
        "objective": "validation loss",
        "value": round(last.min(), 4),
        "samples": 6,
        "seeds": [0, 1],
        "rows": 300,
        "attribute": "size",
    }
    assert len(last) == 2
    path = presets.save_best("quick", data, "gcn", record, tmp_path / "settings.yaml")
    stored = presets.load_settings("quick", path)
    assert stored["small", "simulated", "gcn"] == record


def test_xgboost_and_cfgnn_have_one_rung(workers, monkeypatch):
    rows = {"lr": ("loguniform", 1e-3, 1e-1)}
    monkeypatch.setitem(tuning.SPACES, "xgboost", rows)  # has no lr of this name
    base = SimpleNamespace(parts=split(small(), 1), probs=random_probs(300))
    for model, options, aim in (
        ("xgboost", {}, "validation loss"),
        ("cfgnn", {"base": base}, "mean set size"),
    ):
        workers.asked.clear()
        record, trials = quiet(small(), model, n_samples=4, seeds=(0, 1), **options)
        assert len(workers.asked) == len(trials) == 8
        assert {epochs for _, _, epochs in workers.asked} == {0}
        assert set(trials["status"]) == {"finished"}
        assert record["objective"] == aim
        assert record["value"] == round(
            trials.groupby("setting")["value"].mean().min(), 4
        )
    assert workers.inputs["probs"] is base.probs
    assert workers.inputs["parts"] is base.parts


def test_there_are_as_many_settings_as_in_the_paper(workers, monkeypatch):
    rows = {"lr": ("loguniform", 1e-3, 1e-1)}
    monkeypatch.setitem(tuning.SPACES, "xgboost", rows)
    for model, n in (("xgboost", 25), ("gcn", 10)):
        _, trials = quiet(small(), model, seeds=[0])
        assert trials["setting"].nunique() == n
    _, trials = quiet(small(), "gcn", n_samples=1, rungs=[1])
    assert sorted(trials["seed"]) == [0, 1, 2, 3, 4]


def test_a_search_of_another_thing_takes_no_trials_of_this_one(workers, monkeypatch):
    usual = {"n_samples": 2, "seeds": [0], "seed": 0, "rungs": [4]}

    def n_asked(data, model="gcn", **change):
        workers.asked.clear()
        quiet(data, model, **usual | change)
        return len(workers.asked)

    assert n_asked(small()) == 2
    assert n_asked(small()) == 0
    assert n_asked(small(), n_samples=3) == 1
    assert n_asked(small(), seeds=[0, 1]) == 2
    assert n_asked(small(), seed=1) == 2
    assert n_asked(small(), fixed={"layers": 2}) == 2
    assert n_asked(small(301)) == 2
    assert n_asked(small(source="local")) == 2
    assert n_asked(small(), "gat") == 2
    assert n_asked(relabel(small(), np.arange(5))) == 2
    data = small()
    fewer = replace(data, edge_index=data.edge_index[:, 2:])
    assert n_asked(fewer) == 2
    base = SimpleNamespace(parts=split(data, 1), probs=random_probs(300))
    assert n_asked(data, base=base) == 2
    monkeypatch.setitem(tuning.SPACES["gnn"], "dropout", ("uniform", 0.1, 0.7))
    assert n_asked(small()) == 2


def test_trials_go_where_they_are_told_to(workers, tmp_path):
    path = tmp_path / "new" / "trials.csv"
    _, trials = quiet(small(), "gcn", n_samples=2, seeds=[0], rungs=[4], trials=path)
    assert len(texts(path)) == len(trials) == 2
    assert not paths.ARTIFACTS.exists()
    quiet(small(), "gcn", n_samples=2, seeds=[0], rungs=[4])
    (usual,) = (paths.ARTIFACTS / "tuning").iterdir()
    assert usual.read_bytes() == path.read_bytes()


def test_trials_of_real_records_have_a_place_in_the_results(monkeypatch, tmp_path):
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    found = tuning.trials_path(small(source="local"), "gat")
    assert found == tmp_path / "trials" / "small_local_gat.csv"


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (
            "forest",
            {},
            "model: found 'forest'; "
            "wanted one of 'xgboost', 'gcn', 'sage', 'gat', 'cfgnn'",
        ),
        (
            "gcn",
            {},
            "model: found 'gcn' for small without edges; load the dataset with its graph",
        ),
        ("xgboost", {"n_samples": 0}, "found 0 and"),
        ("xgboost", {"seeds": []}, r"found 25 and \[\]; wanted at least one of each"),
        (
            "xgboost",
            {"seeds": [1, 0, 1]},
            r"seeds: found \[1, 0, 1\]; wanted different numbers",
        ),
    ],
)
def test_bad_input_is_named(model, options, message):
    with pytest.raises(ValueError, match=message):
        tuning.tune(small(edges=False), model, **options)
    with pytest.raises(ValueError, match="base: found None"):
        tuning.tune(small(), "cfgnn")
    with pytest.raises(
        ValueError,
        match="fixed: found 'heads'; wanted some of lr, hidden_channels, dropout, layers",
    ):
        tuning.tune(small(), "gcn", fixed={"heads": 2})


@pytest.mark.parametrize("rungs", [[], [0, 3], [3, 3], [9, 3]], ids=str)
def test_rungs_that_do_not_rise_are_told(rungs):
    with pytest.raises(ValueError, match=r"rungs: found \[.*in ascending order"):
        tuning.tune(small(), "gcn", rungs=rungs)


RECORD = {
    "parameters": {"lr": 0.01, "aggr": "pool", "layers": 2},
    "value": 0.5,
    "seeds": [0, 1],
}


def test_settings_are_merged_and_stored_in_a_plain_sorted_file(tmp_path):
    path = tmp_path / "profiles" / "settings.yaml"
    data = small()
    presets.save_best("quick", data, "sage", RECORD, path)
    presets.save_best("quick", data, "gat", RECORD | {"value": 0.1}, path)
    presets.save_best("paper", data, "sage", RECORD | {"value": 0.9}, path)
    presets.save_best(
        "quick", small(source="local"), "sage", RECORD | {"value": 0.6}, path
    )
    before = path.read_text()
    presets.save_best("quick", data, "gat", RECORD | {"value": 0.7}, path)
    values = {
        place: record["value"]
        for place, record in presets.load_settings("quick", path).items()
    }
    small_at = {
        ("small", "simulated", "sage"): 0.5,
        ("small", "simulated", "gat"): 0.7,
        ("small", "local", "sage"): 0.6,
    }
    assert values == small_at
    assert presets.load_settings("quick", path)["small", "simulated", "sage"] == RECORD
    assert presets.load_settings("paper", path) == {
        ("small", "simulated", "sage"): RECORD | {"value": 0.9}
    }
    assert path.read_text() == before.replace("value: 0.1", "value: 0.7")
    places = re.findall(r"^  (\S+):$", path.read_text(), re.M)
    assert places == [
        "small/simulated/sage",
        "small/local/sage",
        "small/simulated/gat",
        "small/simulated/sage",
    ]


def test_a_failed_write_leaves_the_old_settings(tmp_path):
    path = presets.save_best("quick", small(), "gcn", RECORD, tmp_path / "settings.yaml")
    before = path.read_text()
    with pytest.raises(yaml.representer.RepresenterError):
        presets.save_best("quick", small(), "gcn", {"value": np.float64(0.5)}, path)
    assert path.read_text() == before and list(tmp_path.iterdir()) == [path]


def test_no_file_has_no_settings_and_unknown_names_are_errors(tmp_path):
    path = tmp_path / "settings.yaml"
    assert presets.load_settings("quick", path) == {}
    with pytest.raises(
        ValueError, match="profile: found 'fast'; wanted one of 'quick', 'paper'"
    ):
        presets.load_settings("fast", path)
    with pytest.raises(ValueError, match="profile: found 'fast'"):
        presets.save_best("fast", small(), "gcn", RECORD, path)
    with pytest.raises(ValueError, match="model: found 'forest'"):
        presets.save_best("quick", small(), "forest", RECORD, path)
    assert not path.exists()
    path.write_text("quick: {}\n")
    assert (
        presets.load_settings("quick", path) == presets.load_settings("paper", path) == {}
    )


def test_the_settings_of_the_repository_lie_in_the_spaces_that_were_searched():
    stored = presets.load_settings("quick")
    assert {("credit", "bundled", "xgboost"), ("credit", "bundled", "cfgnn")} <= set(
        stored
    )
    assert {("pokec_n", "simulated", kind) for kind in tuning.KINDS} <= set(stored)
    for (_, _, model), record in stored.items():
        rows = tuning.SPACES.get(model, tuning.SPACES["gnn"])
        kind = record["parameters"].get("kind", model)
        assert set(record["parameters"]) == {
            name for name in rows if spaces._applies(name, kind)
        }
        assert all(
            inside(rows[name], value) for name, value in record["parameters"].items()
        )


def inside(row, value) -> bool:
    law, *values = row
    return (
        value in values
        if law == "choice"
        else values[0] * 0.999 <= value <= values[-1] * 1.001
    )


# Real searches, each in a process of its own. Ray takes its time to start, so there are
# few, and never two at once.


@pytest.fixture
def ray(real_ray):
    """Ray, for the models that these searches train."""
    pytest.importorskip("xgboost")
    pytest.importorskip("torch_geometric")


def start(code: str, *arguments, **pipes) -> subprocess.Popen:
    code = "import json, os, sys; from test_tuning import *\n" + code
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], text=True, **pipes
    )


def answer(code: str, *arguments):
    """What a process prints last, as JSON."""
    with start(code, *arguments, stdout=subprocess.PIPE) as process:
        lines = process.stdout.read().splitlines()
    assert process.returncode == 0
    return json.loads(lines[-1])


@contextmanager
def cluster():
    """The address of a Ray cluster that belongs to another process."""
    code = "from cfhelpers._ray import connected\n"
    code += "ray = connected(None, 'address', 'study')\n"
    code += "address = ray.get_runtime_context().gcs_address\n"
    code += "print('address', address, flush=True); sys.stdin.read()"
    with start(code, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield next(
            line.split()[1] for line in process.stdout if line.startswith("address")
        )
        process.stdin.close()


SEARCH = """
def search(model, trials, address=None, **options):
    record, table = tuning.tune(
        small(), model, trials=trials, address=address, progress=False, **options
    )
    return [record, table.to_dict("list")]
"""


@pytest.mark.slow
def test_a_search_on_this_machine(tmp_path, ray):
    code = SEARCH + "few = {'n_samples': 3, 'seeds': (0,), 'rungs': (2, 5)}\n"
    code += "found = search('gcn', sys.argv[1], **few)\n"
    code += "import ray\nprint(json.dumps([*found, ray.is_initialized()]))"
    record, trials, is_running = answer(code, tmp_path / "trials.csv")
    assert not is_running
    statuses = sorted(trials["status"])
    assert statuses == ["finished", "stopped", "stopped", "went on"]
    best = trials["setting"][-1]
    assert record["parameters"] == spaces.draw(spaces.space("gcn", small()), 3)[best]
    again = tuning._run_trial(
        record["parameters"], 0, 5, "gcn", small(), split(small(), 0), None
    )
    assert again["value"] == pytest.approx(trials["value"][-1], rel=1e-5)
    assert record["value"] == pytest.approx(trials["value"][-1], abs=5e-5)


def n_rows(path) -> int:
    """How many trials a file has, while another process may be writing it."""
    if not path.exists():
        return 0
    return len(texts(path))


@pytest.mark.slow
def test_a_killed_search_goes_on_from_its_file_on_another_machine(tmp_path, ray):
    there = tmp_path / "there" / "trials.csv"
    here = tmp_path / "here" / "trials.csv"
    here.parent.mkdir()
    begin = SEARCH + "def find(path, address):\n"
    begin += "    return search('xgboost', path, address, n_samples=6, seeds=range(4))\n"
    go_on = begin + "found = [find(path, sys.argv[1]) for path in sys.argv[2:]]\n"
    go_on += "print(json.dumps(found))"
    begin += "find(sys.argv[1], sys.argv[2])"
    with cluster() as address:
        with start(begin, there, address) as process:
            while process.poll() is None and n_rows(there) < 2:
                time.sleep(0.02)
            process.kill()  # -9
        kept = texts(there)
        kept["seconds"] = [str(1000.5 + place) for place in range(len(kept))]
        kept.to_csv(here, index=False)
        resumed, unbroken = answer(go_on, address, here, tmp_path / "unbroken.csv")
    n_trials = len(unbroken[1]["value"])
    assert 2 <= len(kept) < n_trials == 24
    # trials that were done have the seconds that the file gave them
    seconds = resumed[1].pop("seconds")
    assert {float(each) for each in kept["seconds"]} <= set(seconds)
    assert sum(each < 1000 for each in seconds) == n_trials - len(kept)
    unbroken[1].pop("seconds")
    assert resumed == unbroken

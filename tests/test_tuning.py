"""Tuning: spaces, an objective blind to calibration rows, searches on Ray, settings."""

import json
import logging
import os
import re
import secrets
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml

from cfhelpers import paths
from cfhelpers.datasets import Dataset, split
from cfhelpers.datasets._dataset import symmetric, undirected
from cfhelpers.study import presets, training, tuning

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


@pytest.mark.parametrize(
    ("name", "label"), [("gnn", "base_gnn"), ("xgboost", "base_xgb"), ("cfgnn", "cf_gnn")]
)
def test_the_spaces_are_those_of_the_paper(shared, name, label):
    text = (shared / "paper" / "conformal_fairness_iclr2025.tex").read_text(
        encoding="utf-8"
    )
    body = text.split(rf"\label{{tab:{label}:hpt}}")[1].split(r"\end{tabular}")[0]
    names = {"aggr_fn": "aggr", r"$\tau$": "temperature"} | (
        {"lr": "learning_rate"} if name == "xgboost" else {}
    )
    printed = {}
    for row in body.replace(r"\_", "_").replace(r"\midrule", "").split(r"\\")[1:-1]:
        parameter, cell = (part.strip() for part in row.split("&"))
        numbers = [
            float(f"1e{a}") if a else float(b)
            for a, b in re.findall(r"10\^\{(-?\d+)\}|(\d+\.?\d*)", cell)
        ]
        words = [word for word in re.findall("[a-z]+", cell) if word != "dots"]
        printed[names.get(parameter, parameter)] = {*numbers, *words}
    printed.pop("batch_size", None)  # a batch is the whole graph
    searched = {
        key: set(row) - {"choice", "integers"} for key, row in tuning.SPACES[name].items()
    }
    searched.pop("kind", None)  # the paper tunes CFGNN for each kind of layer
    assert printed == searched
    assert list(tuning.table(name)["hyperparameter"]) == list(tuning.SPACES[name])


def test_a_row_of_one_kind_of_layer_is_searched_for_that_kind_alone():
    data = small()
    assert "heads" in tuning.space("gat", data) and "aggr" not in tuning.space(
        "gat", data
    )
    assert "aggr" in tuning.space("sage", data) and "heads" not in tuning.space(
        "sage", data
    )
    assert not {"heads", "aggr"} & set(tuning.space("gcn", data))
    assert {"kind", "heads", "aggr"} <= set(tuning.space("cfgnn", data))
    sample = {
        "kind": "sage",
        "heads": 4,
        "aggr": "pool",
        "lr": 0.00123456,
        "layers": np.int64(2),
    }
    assert tuning._parameters(sample) == {
        "kind": "sage",
        "aggr": "pool",
        "lr": 0.001235,
        "layers": 2,
    }


def test_lstm_is_left_out_where_the_graph_is_too_large(monkeypatch):
    gnn = pytest.importorskip("cfhelpers.gnn")
    data = small()
    limit = 300 * np.bincount(data.edge_index[0]).max() * 128
    monkeypatch.setattr(gnn, "LSTM_LIMIT", limit)
    assert "lstm" in tuning.space("sage", data)["aggr"]
    monkeypatch.setattr(gnn, "LSTM_LIMIT", limit - 1)
    assert tuning.space("sage", data)["aggr"] == ("choice", "mean", "gcn", "pool")
    assert "lstm" in tuning.SPACES["gnn"]["aggr"]


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


@pytest.mark.slow
@pytest.mark.parametrize("model", list(SAMPLES))
def test_rows_that_calibrate_or_test_have_no_say_in_the_choice(
    model, tmp_path, monkeypatch
):
    pytest.importorskip("xgboost"), pytest.importorskip("torch_geometric")
    data, values = small(), []
    parts = split(data, 0)
    probs = np.random.default_rng(1).dirichlet(np.ones(3), len(data)).astype(np.float32)
    outside = np.isin(parts, ["calibration", "test"])
    for place in ("as it is", "other labels outside", "other labels inside"):
        y = data.y.copy()
        changed = {
            "as it is": [],
            "other labels outside": outside,
            "other labels inside": ~outside,
        }[place]
        y[changed] = (
            y[changed] + 1 + np.random.default_rng(2).integers(0, 2, len(y))[changed]
        ) % 3
        monkeypatch.setattr(paths, "ARTIFACTS", tmp_path / place)
        other = Dataset(
            **{field: getattr(data, field) for field in data.__dataclass_fields__}
            | {"y": y}
        )
        values.append(
            tuning._objective(SAMPLES[model], model, other, parts, probs, [0, 1])["value"]
        )
    assert values[0] == values[1] != values[2]


def test_the_objective_is_the_mean_validation_accuracy_over_seeds():
    pytest.importorskip("xgboost")
    data, sample = small(), XGBOOST | {"subsample": 0.5}
    parts = split(data, 0)
    valid = parts == "valid"
    fitted = [
        training.train(data, parts, "xgboost", sample, seed=seed)[0] for seed in (3, 4, 5)
    ]
    values = [(probs.argmax(1) == data.y)[valid].mean() for probs in fitted]
    found = tuning._objective(sample, "xgboost", data, parts, None, [3, 4, 5])
    assert found == {
        "value": pytest.approx(np.mean(values)),
        "deviation": pytest.approx(np.std(values)),
    }


def result(trial, value=None, error=None, **config):
    metrics = (
        {}
        if error
        else {
            "trial_id": f"x_{trial:05}",
            "value": value,
            "deviation": 0.0,
            "time_total_s": 1.0,
        }
    )
    return SimpleNamespace(error=error, config=config, metrics=metrics)


def test_the_best_trial_is_the_largest_accuracy_or_smallest_set_and_the_first_of_equals(
    monkeypatch,
):
    results = [result(2, 0.7, lr=0.3), result(1, 0.7, lr=0.2), result(0, 0.6, lr=0.1)]
    monkeypatch.setattr(tuning, "_search", lambda *_: results)
    record, trials = tuning.tune(small(), "gcn", n_samples=3, seeds=[0])
    assert record["parameters"] == {"lr": 0.2} and list(trials["lr"]) == [0.2, 0.3, 0.1]
    base = SimpleNamespace(parts=split(small(), 0), probs=np.full((300, 3), 1 / 3))
    record, trials = tuning.tune(small(), "cfgnn", n_samples=3, seeds=[0], base=base)
    assert record["parameters"] == {"lr": 0.1} and list(trials["lr"]) == [0.1, 0.2, 0.3]
    assert record["objective"] == "mean set size" and record["value"] == 0.6


def test_a_failed_trial_is_left_out_with_a_warning_and_if_all_fail_the_reason_is_given(
    monkeypatch,
):
    error = ValueError("first line\nValueError: it does not fit")
    monkeypatch.setattr(
        tuning,
        "_search",
        lambda *_: [result(0, error=error, lr=0.1), result(1, 0.4, lr=0.2)],
    )
    with pytest.warns(
        UserWarning,
        match="1 of 2 trials failed, the first by ValueError: it does not fit",
    ):
        record, trials = tuning.tune(small(), "gcn", n_samples=2)
    assert record["parameters"] == {"lr": 0.2} and len(trials) == 1
    monkeypatch.setattr(
        tuning, "_search", lambda *_: [result(0, error=error), result(1, error=error)]
    )
    with pytest.raises(
        RuntimeError,
        match="2 of 2 trials failed, the first by ValueError: it does not fit",
    ):
        tuning.tune(small(), "gcn", n_samples=2)


def test_a_search_for_another_thing_has_another_folder(monkeypatch):
    folders = []

    def search(rows, inputs, n_samples, seed, address, folder, resume, progress):
        folders.append(folder)
        return [result(0, 0.5, lr=0.1)]

    monkeypatch.setattr(tuning, "_search", search)
    usual = {"n_samples": 2, "seeds": [0], "seed": 0}
    tuning.tune(small(), "gcn", **usual)
    tuning.tune(small(), "gcn", **usual)
    assert (
        folders[0] == folders[1] and Path(folders[0]).parent == paths.ARTIFACTS / "tuning"
    )
    for change in (
        {"n_samples": 3},
        {"seeds": [1]},
        {"seed": 1},
        {"fixed": {"layers": 2}},
    ):
        tuning.tune(small(), "gcn", **usual | change)
    tuning.tune(small(301), "gcn", **usual)
    tuning.tune(small(source="local"), "gcn", **usual)
    tuning.tune(small(), "gat", **usual)
    monkeypatch.setitem(tuning.SPACES["gnn"], "dropout", ("uniform", 0.1, 0.7))
    tuning.tune(small(), "gcn", **usual)
    tuning.tune(small(), "gcn", storage="s3://somewhere/tuning", **usual)
    assert len(set(folders)) == len(folders) - 1
    assert folders[-1].startswith("s3://somewhere/tuning/small-gcn-")


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
    with pytest.raises(
        ValueError, match="name: found 'gcn'; wanted one of 'gnn', 'xgboost', 'cfgnn'"
    ):
        tuning.table("gcn")


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
            name for name in rows if tuning._applies(name, kind)
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
def ray(tmp_path, monkeypatch):
    """What the processes need: the package, this module, a password of the tests' own.

    Ray's processes all import jsonschema, and start several times quicker if that does
    not find the library, one of Jupyter's, by which it would check the syntax of links.
    """
    (
        pytest.importorskip("ray"),
        pytest.importorskip("xgboost"),
        pytest.importorskip("torch_geometric"),
    )
    from filelock import FileLock

    (tmp_path / "quicker").mkdir()
    (tmp_path / "quicker" / "rfc3987_syntax.py").write_text("raise ImportError")
    folders = [
        tmp_path / "quicker",
        ROOT,
        ROOT / "tests",
        *os.environ.get("PYTHONPATH", "").split(os.pathsep),
    ]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, folders)))
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    with FileLock(Path(tempfile.gettempdir()) / "cfhelpers-ray.lock"):
        yield


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
    code = "import ray; os.environ.update(tuning.ENVIRONMENT); tuning._start(ray, None)\n"
    code += "address = ray.get_runtime_context().gcs_address\n"
    code += "print('address', address, flush=True); sys.stdin.read()"
    with start(code, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield next(
            line.split()[1] for line in process.stdout if line.startswith("address")
        )
        process.stdin.close()


def finished(storage: Path) -> dict[str, float]:
    """Seconds of every trial that is stored as finished."""
    from ray import tune

    logging.getLogger("ray.tune").setLevel(logging.ERROR)
    try:
        (folder,) = storage.iterdir()
        trials = tune.ExperimentAnalysis(str(folder)).trials
    except (OSError, ValueError):
        return {}
    return {
        trial.trial_id: trial.last_result["time_total_s"]
        for trial in trials
        if trial.status == "TERMINATED"
    }


def samples(trials: dict) -> list[tuple]:
    return sorted(zip(*(trials[name] for name in tuning.SPACES["xgboost"]), strict=True))


@pytest.mark.slow
def test_a_search_on_this_machine(tmp_path, ray):
    code = "options = {'n_samples': 3, 'seeds': [0], 'storage': sys.argv[1]}\n"
    code += "record, trials = tuning.tune(small(), 'xgboost', **options)\n"
    code += "import ray; running = ray.is_initialized()\n"
    code += "print(json.dumps([record, trials.to_dict('list'), running]))"
    record, trials, running = answer(code, tmp_path / "tuning")
    assert not running
    (stored,) = (tmp_path / "tuning").glob("*/tuner.pkl")
    assert (
        stored.stat().st_size < small().edge_index.nbytes / 2
    )  # the data is not stored with the search
    rows = tuning.SPACES["xgboost"]
    assert all(inside(row, value) for name, row in rows.items() for value in trials[name])
    assert len(set(samples(trials))) == 3 and trials["value"] == sorted(
        trials["value"], reverse=True
    )
    assert record["parameters"] == {name: trials[name][0] for name in rows}
    again = tuning._objective(
        record["parameters"], "xgboost", small(), split(small(), 0), None, [0]
    )
    assert (
        again["value"] == trials["value"][0] == pytest.approx(record["value"], abs=5e-5)
    )


@pytest.mark.slow
def test_a_killed_search_on_a_cluster_goes_on_with_its_finished_trials_kept(
    tmp_path, ray
):
    storage = tmp_path / "tuning"
    search = "options = {'n_samples': 6, 'seeds': range(10), 'seed': 1, "
    search += "'storage': sys.argv[1], 'address': sys.argv[2]}\n"
    search += "found = [tuning.tune(small(), 'xgboost', **options)]\n"
    more = "found += [tuning.tune(small(), 'xgboost', **options)]\n"
    more += "whole = options | {'storage': sys.argv[3], 'seeds': [0]}\n"
    more += "found += [tuning.tune(small(), 'xgboost', **whole)]\n"
    more += "few = {'n_samples': 2, 'seeds': [0], 'fixed': {'layers': 2}}\n"
    more += "found += [tuning.tune(small(), 'gcn', **options | few)]\n"
    more += "told = [[record, trials.to_dict('list')] for record, trials in found]\n"
    more += "print(json.dumps(told))"
    with cluster() as address:
        with start(search, storage, address) as process:
            while process.poll() is None and not finished(storage):
                time.sleep(0.1)
            process.kill()
        kept = finished(storage)
        assert 1 <= len(kept) < 6
        resumed, again, whole, gcn = answer(
            search + more, storage, address, tmp_path / "other"
        )
    assert (
        set(kept.values()) < set(resumed[1]["seconds"])
        and len(resumed[1]["seconds"]) == 6
    )
    assert again == resumed  # nothing was left to do: even the seconds are the same
    assert samples(whole[1]) == samples(
        resumed[1]
    )  # the same seed draws the same samples, interrupted or not
    assert set(gcn[0]["parameters"]) == {
        "lr",
        "hidden_channels",
        "layers",
        "dropout",
    } and gcn[1]["layers"] == [2, 2]
    assert gcn[0]["value"] > 0.4  # of three classes

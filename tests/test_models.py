"""Base models: settings, real Credit, seeds, early stopping, who has a say, the cache."""

import os
from dataclasses import replace

import numpy as np
import pytest
from toy import toy

from cfhelpers import paths
from cfhelpers.conformal import conformal_quantile, efficiency, prediction_sets
from cfhelpers.datasets import load_dataset, split
from cfhelpers.study import models, presets, training
from cfhelpers.study.scoring import score_split

xgboost = pytest.importorskip("xgboost")

FAST = {"learning_rate": 0.3, "n_estimators": 12, "max_depth": 3, "subsample": 0.7}


@pytest.fixture
def artifacts(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "ARTIFACTS", tmp_path / "artifacts")
    return paths.ARTIFACTS


@pytest.fixture(scope="module")
def credit():
    return load_dataset("credit")


@pytest.fixture(scope="module")
def fitted(credit, tmp_path_factory):
    """The quick base model of real Credit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "ARTIFACTS", tmp_path_factory.mktemp("artifacts"))
        return models.base_model(credit, split(credit, 0), progress=False)


@pytest.fixture(scope="module")
def data():
    return toy()


@pytest.fixture(scope="module")
def parts(data):
    return split(data, 0)


def train(data, parts, model="xgboost", parameters=FAST, **options):
    return training.train(data, parts, model, parameters, **options)


# settings


def test_the_papers_presets_are_those_of_the_reference_text(shared, credit):
    text = (shared / "REPRODUCTION.md").read_text(encoding="utf-8")
    table = text.split("Tuned XGBoost parameters stored by the authors")[1].split("\n\n")[
        1
    ]
    printed = {}
    for line in table.splitlines()[2:]:
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        printed[name] = [float(number) for cell in cells for number in cell.split("/")]
    assert list(printed) == ["Credit", "ACSIncome", "ACSEducation"]
    # the table's columns in the order of training.XGBOOST_PARAMETERS
    assert training.XGBOOST_PARAMETERS[:4] == (
        "learning_rate",
        "n_estimators",
        "max_depth",
        "gamma",
    )
    assert training.XGBOOST_PARAMETERS[4:] == (
        "colsample_bytree",
        "colsample_bylevel",
        "colsample_bynode",
        "subsample",
    )
    found = presets.XGBOOST["paper"]
    assert {name: list(values) for name, values in found.items()} == {
        ours: printed[theirs]
        for ours, theirs in {
            "credit": "Credit",
            "acs_income": "ACSIncome",
            "acs_education": "ACSEducation",
        }.items()
    }
    assert presets.preset(credit, "xgboost", "paper")["n_estimators"] == 392


def test_both_profiles_have_a_preset_for_every_table():
    assert (
        set(presets.XGBOOST["quick"])
        == set(presets.XGBOOST["paper"])
        == {"credit", "acs_income", "acs_education"}
    )


def test_a_graph_models_preset_is_what_tuning_stored_for_this_dataset_and_source(
    data, tmp_path, monkeypatch
):
    monkeypatch.setattr(presets, "SETTINGS", tmp_path / "settings.yaml")
    assert presets.preset(data, "gcn") == {}
    presets.save_best("quick", data, "gcn", {"parameters": {"lr": 0.03, "layers": 1}})
    assert presets.preset(data, "gcn") == {"lr": 0.03, "layers": 1}
    others = [
        (replace(data, source="local"), "gcn", "quick"),
        (data, "sage", "quick"),
        (data, "gcn", "paper"),
    ]
    assert [presets.preset(*other) for other in others] == [{}, {}, {}]


# real Credit


@pytest.mark.slow
def test_credit_is_as_accurate_as_it_should_be(fitted):
    assert fitted.model == "xgboost" and fitted.accuracy["test"] >= 0.52
    assert set(fitted.accuracy) == {"train", "valid", "calibration", "test"}


@pytest.mark.slow
@pytest.mark.parametrize(("score", "published"), [("tps", 2.268), ("aps", 2.328)])
def test_base_efficiency_on_credit_is_the_authors_within_two_per_cent(
    credit, fitted, score, published
):
    sizes = []
    for seed in range(10):
        scored = score_split(credit, fitted.probs, fitted.parts, score, seed)
        threshold = conformal_quantile(
            scored.scores[scored.calibration, credit.y[scored.calibration]], 0.1
        )
        sizes.append(efficiency(prediction_sets(scored.scores[scored.test], threshold)))
    assert np.mean(sizes) == pytest.approx(published, rel=0.02)


def test_probabilities_are_float32_rows_that_sum_to_one(credit, fitted):
    assert fitted.probs.shape == (30_000, 4) and fitted.probs.dtype == np.float32
    assert fitted.probs.min() >= 0
    np.testing.assert_allclose(fitted.probs.sum(axis=1, dtype=np.float64), 1, atol=1e-5)
    right = fitted.probs.argmax(axis=1) == credit.y
    for part, accuracy in fitted.accuracy.items():
        assert accuracy == np.mean(
            [r for r, p in zip(right, fitted.parts, strict=True) if p == part]
        )


def test_training_on_credit_stops_before_the_last_tree_and_keeps_the_best(credit, fitted):
    trees, trained = fitted.parameters["n_estimators"], len(fitted.history)
    best = int(fitted.history["loss"].argmin())
    assert trained < trees
    assert trained == best + training.PATIENCE + 1
    assert fitted.history["held_out"][best] == pytest.approx(
        fitted.accuracy["valid"], abs=1e-6
    )


def test_the_quick_preset_of_credit_is_as_good_as_the_papers(credit, fitted):
    quick, paper = (
        presets.preset(credit, "xgboost", profile) for profile in ("quick", "paper")
    )
    if quick == paper:
        return  # nothing can be closer
    probs, _ = training.train(credit, fitted.parts, "xgboost", paper)
    valid = fitted.parts == "valid"
    assert (
        fitted.accuracy["valid"]
        >= (probs.argmax(axis=1) == credit.y)[valid].mean() - 0.005
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["acs_income", "acs_education"])
@pytest.mark.filterwarnings("ignore:too few rows")
def test_the_quick_presets_of_acs_are_as_good_as_the_papers_on_simulated_people(
    home, name
):
    people = load_dataset(name, n=6000)
    found = {"quick": [], "paper": []}
    for seed in (
        (0, 1) if name == "acs_income" else (0,)
    ):  # for education the quick one is better by far
        parts = split(people, seed)
        for profile, accuracies in found.items():
            probs, _ = train(
                people,
                parts,
                parameters=presets.preset(people, "xgboost", profile),
                seed=seed,
            )
            accuracies.append((probs.argmax(axis=1) == people.y)[parts == "valid"].mean())
    assert np.mean(found["quick"]) >= np.mean(found["paper"]) - 0.005
    assert np.mean(found["quick"]) > np.bincount(people.y).max() / len(people) + 0.05


# seeds and stopping


def test_the_same_seed_gives_the_same_probabilities_and_another_seed_others(data, parts):
    first, again, other = (train(data, parts, seed=seed)[0] for seed in (3, 3, 4))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.slow
def test_credit_computed_again_is_the_same_bit_for_bit(credit, fitted):
    again, _ = training.train(credit, fitted.parts, "xgboost", fitted.parameters, seed=0)
    assert np.array_equal(again, fitted.probs)


def test_the_parts_are_those_that_were_given_whatever_the_seed(artifacts, data, parts):
    for seed in (0, 5):
        given = models.base_model(
            data, parts, "xgboost", parameters=FAST, seed=seed, progress=False
        )
        assert np.array_equal(given.parts, parts) and given.seed == seed
        probs, _ = train(data, parts, seed=seed)
        assert np.array_equal(given.probs, probs)
    with pytest.raises(TypeError, match="parts"):
        models.base_model(data, progress=False)  # the split is said, never guessed


def test_a_learning_rate_too_large_stops_at_once(data, parts):
    _, history = train(
        data,
        parts,
        parameters={"learning_rate": 1.0, "max_depth": 8, "n_estimators": 300},
    )
    assert (
        len(history["loss"]) == np.argmin(history["loss"]) + training.PATIENCE + 1 < 100
    )


def test_too_few_trees_to_stop_are_all_grown(data, parts):
    probs, history = train(
        data, parts, parameters={"learning_rate": 0.01, "n_estimators": 7}
    )
    assert len(history["loss"]) == 7
    # the loss is that of the probabilities on the validation rows
    rows = np.flatnonzero(parts == "valid")
    assert history["loss"][-1] == pytest.approx(
        -np.log(probs[rows, data.y[rows]]).mean(), rel=1e-4
    )
    assert history["held_out"][-1] == pytest.approx(
        (probs.argmax(axis=1) == data.y)[rows].mean()
    )


# who has a say


def relabel(data, rows):
    y = data.y.copy()
    y[rows] = (y[rows] + 1) % data.n_classes
    return replace(data, y=y)


@pytest.mark.slow
@pytest.mark.parametrize("model", training.MODELS)
def test_labels_of_calibration_and_test_rows_have_no_influence(data, parts, model):
    parameters = FAST if model == "xgboost" else {"hidden_channels": 8}
    if model != "xgboost":
        pytest.importorskip("torch_geometric")
    probs, history = train(data, parts, model, parameters)
    other, other_history = train(
        relabel(data, np.isin(parts, ["calibration", "test"])), parts, model, parameters
    )
    assert np.array_equal(probs, other)
    assert np.array_equal(history["held_out"], other_history["held_out"])
    changed, _ = train(relabel(data, parts == "train"), parts, model, parameters)
    assert not np.array_equal(probs, changed)


def test_validation_rows_choose_the_number_of_trees_and_nothing_else(data, parts):
    other = relabel(data, parts == "valid")
    one = FAST | {"n_estimators": 1}
    assert np.array_equal(
        train(data, parts, parameters=one)[0], train(other, parts, parameters=one)[0]
    )
    histories = [
        train(which, parts, parameters=FAST)[1]["loss"] for which in (data, other)
    ]
    assert not np.array_equal(*histories)


def test_features_of_rows_outside_train_and_valid_change_their_own_probabilities_alone(
    data, parts
):
    test = parts == "test"
    X = data.X.copy()
    X.loc[test, "a"] += 10
    probs, moved = train(data, parts)[0], train(replace(data, X=X), parts)[0]
    assert np.array_equal(probs[~test], moved[~test]) and not np.array_equal(
        probs[test], moved[test]
    )


def test_xgboost_does_not_look_at_the_graph(data, parts):
    assert np.array_equal(
        train(data, parts)[0], train(replace(data, edge_index=None), parts)[0]
    )


# the cache


def test_a_base_model_is_read_for_the_same_key_and_computed_for_any_other(
    artifacts, data, parts, monkeypatch
):
    calls, real = [], training.train

    def counted(*arguments, **options):
        calls.append(1)
        return real(*arguments, **options)

    monkeypatch.setattr(models, "train", counted)
    versions = {"xgboost": "3.0"}
    monkeypatch.setattr(models, "version", lambda library: versions[library])

    def ask(data=data, parts=parts, parameters=FAST, **options):
        """The model, and whether it was computed."""
        before = len(calls)
        found = models.base_model(
            data,
            parts,
            "xgboost",
            parameters=parameters,
            progress=False,
            **{"device": "cpu"} | options,
        )
        return found, len(calls) > before

    first, computed = ask()
    assert computed
    second, computed = ask()
    assert not computed
    assert np.array_equal(first.probs, second.probs) and first.accuracy == second.accuracy
    assert first.seconds == second.seconds > 0 and first.history.equals(second.history)
    assert list(first.history) == ["epoch", "loss", "held_out"]

    y, X, other_parts = data.y.copy(), data.X.copy(), parts.copy()
    y[0], X.iloc[7, 1] = (y[0] + 1) % 3, X.iloc[7, 1] + 1e-9
    a, b = np.flatnonzero(parts == "train")[0], np.flatnonzero(parts == "test")[0]
    other_parts[[a, b]] = parts[[b, a]]
    changes = {
        "name": {"data": replace(data, name="other")},
        "source": {"data": replace(data, source="local")},
        "a label": {"data": replace(data, y=y)},
        "a feature": {"data": replace(data, X=X)},
        "a column's name": {"data": replace(data, X=data.X.rename(columns={"a": "z"}))},
        "parts": {"parts": other_parts},
        "a parameter": {"parameters": FAST | {"max_depth": 4}},
        "one parameter less": {"parameters": {"n_estimators": 12}},
        "seed": {"seed": 1},
    }
    for what, change in changes.items():
        assert ask(**change)[1], what
        assert not ask(**change)[1], what
    monkeypatch.setitem(versions, "xgboost", "3.1")
    assert ask()[1], "library"
    monkeypatch.setattr(training, "PATIENCE", 5)
    assert ask()[1], "patience"
    monkeypatch.setattr(
        models, "train", lambda *_, **__: real(data, parts, "xgboost", FAST)
    )  # no GPU is needed
    before = len(list(artifacts.iterdir()))
    ask(device="cuda"), ask(device="cuda:1")
    assert len(list(artifacts.iterdir())) == before + 1, "device"


def test_a_graph_models_key_has_its_edges_and_its_defaults(
    artifacts, data, parts, monkeypatch
):
    gnn = pytest.importorskip("cfhelpers.gnn")
    calls = []

    def fake(dataset, parts, model, parameters, **options):
        calls.append(model)
        return np.full((len(dataset), 3), 1 / 3, np.float32), {"epoch": np.arange(2.0)}

    monkeypatch.setattr(models, "train", fake)

    def ask(data=data, **options):
        models.base_model(
            data, parts, "gcn", **{"parameters": {}, "progress": False} | options
        )
        return len(calls)

    assert ask() == ask() == 1
    assert ask(replace(data, edge_index=data.edge_index[:, 1:])) == 2
    monkeypatch.setitem(gnn.DEFAULTS, "layers", 3)
    assert ask() == 3
    assert ask(parameters={"layers": 2}) == 3  # what was the default
    assert ask(parameters={"layers": 3}) == 3


def test_files_hold_numbers_that_need_no_pickle(artifacts, data, parts):
    models.base_model(data, parts, "xgboost", parameters=FAST, progress=False)
    (path,) = artifacts.iterdir()
    with np.load(path, allow_pickle=False) as stored:
        assert {stored[name].dtype.kind for name in stored.files} == {"f", "U"}


# the choice of a model


def test_without_a_name_a_graph_is_given_the_model_with_the_best_validation_accuracy(
    artifacts, data, parts, monkeypatch
):
    pytest.importorskip("cfhelpers.gnn")
    seen = {}

    def fake(dataset, parts, model, parameters, **options):
        seen[model] = parameters
        probs = np.eye(3, dtype=np.float32)[dataset.y]
        valid, test = np.flatnonzero(parts == "valid"), parts == "test"
        wrong = valid[: {"gcn": 9, "sage": 4, "gat": 6}[model]]
        probs[wrong] = np.roll(probs[wrong], 1, axis=1)
        if model == "sage":  # the worst on the test rows
            probs[test] = np.roll(probs[test], 1, axis=1)
        return probs, {"epoch": np.arange(1.0)}

    monkeypatch.setattr(models, "train", fake)
    monkeypatch.setattr(
        presets,
        "load_settings",
        lambda profile: {("toy", "simulated", "gat"): {"parameters": {"lr": 1}}},
    )
    assert models.base_model(data, parts, progress=False).model == "sage"
    assert seen == {"gcn": {}, "sage": {}, "gat": {"lr": 1}}
    models.base_model(data, parts, parameters={"lr": 0.5}, progress=False)
    assert seen == {name: {"lr": 0.5} for name in ("gcn", "sage", "gat")}


def test_a_graph_model_is_trained_stored_and_described(artifacts, data, parts):
    pytest.importorskip("torch_geometric")
    parameters = {"hidden_channels": 8, "layers": 1}
    found = models.base_model(data, parts, "gcn", parameters=parameters, progress=False)
    again = models.base_model(data, parts, "gcn", parameters=parameters, progress=False)
    assert (
        np.array_equal(found.probs, again.probs) and len(list(artifacts.iterdir())) == 1
    )
    kept = found.history["valid_loss"].idxmin()
    accuracy = found.history["held_out"][kept]
    assert found.accuracy["valid"] == pytest.approx(accuracy, abs=1e-6)
    assert found.seconds >= found.history["seconds"].max() > 0
    assert (
        "toy" not in repr(found) and "gcn" in repr(found) and "probs" not in repr(found)
    )


# what is told


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"model": "svm"},
            "model: found 'svm'; wanted one of 'xgboost', 'gcn', 'sage', 'gat'",
        ),
        ({"profile": "slow"}, "profile: found 'slow'; wanted one of 'quick', 'paper'"),
        (
            {"model": "xgboost"},
            "dataset: found 'toy'; wanted one of 'credit', 'acs_income', 'acs_education'",
        ),
        (
            {"model": "xgboost", "parameters": {"trees": 3}},
            "parameters: found 'trees'; wanted some of learning_rate",
        ),
        (
            {"model": "gcn", "parameters": {"trees": 3}},
            "parameters: found 'trees'; wanted some of lr",
        ),
    ],
    ids=str,
)
def test_what_there_is_not_is_told(artifacts, data, parts, options, message):
    pytest.importorskip("torch_geometric")
    with pytest.raises(ValueError, match=message):
        models.base_model(data, parts, progress=False, **options)
    assert not artifacts.exists() or not list(artifacts.iterdir())


@pytest.mark.parametrize("model", [None, "gcn", "gat"])
def test_a_graph_model_for_data_without_edges_is_told(artifacts, data, parts, model):
    pytest.importorskip("torch_geometric")
    with pytest.raises(
        ValueError,
        match=r"model: found 'g[ca].' for toy without edges; "
        "wanted 'xgboost', or its graph",
    ):
        models.base_model(replace(data, edge_index=None), parts, model, progress=False)


@pytest.mark.parametrize("model", ["xgboost", "gcn"])
def test_parts_that_cannot_be_trained_on_are_told(data, parts, model):
    pytest.importorskip("torch_geometric")
    cases = {
        "399 parts for 400 rows": parts[:-1],
        "0 'train'": np.where(parts == "train", "test", parts),
        "0 'valid'": np.where(parts == "valid", "test", parts),
    }
    for message, wrong in cases.items():
        with pytest.raises(ValueError, match=f"parts: found .*{message}"):
            train(data, wrong, model, {})
    assert np.array_equal(
        train(data, parts.tolist(), model, {})[0], train(data, parts, model, {})[0]
    )


def test_a_label_without_training_rows_is_told(data, parts):
    with pytest.raises(
        ValueError,
        match=r"parts: found labels \[0, 2\] in the 'train' rows; wanted \[0, 1, 2\]",
    ):
        train(data, np.where((parts == "train") & (data.y == 1), "test", parts))
    unlabelled = replace(data, y=np.where(np.arange(400) < 50, -1, data.y))
    with pytest.raises(ValueError, match=r"found labels \[-1, 0, 1, 2\]"):
        train(unlabelled, parts)


# devices


@pytest.mark.parametrize(
    ("prints", "cuda", "device"),
    [
        ("GPU 0: NVIDIA A100 (UUID: GPU-1)", True, "cuda"),
        ("GPU 0: NVIDIA A100 (UUID: GPU-1)", False, "cpu"),
        ("No devices were found", True, "cpu"),
        (None, True, "cpu"),
    ],
)
@pytest.mark.skipif(
    os.name == "nt", reason="the stand-in for nvidia-smi is a shell script"
)
def test_xgboost_uses_a_gpu_that_is_there_and_that_it_can_use(
    tmp_path, monkeypatch, prints, cuda, device
):
    if prints:
        tool = tmp_path / "nvidia-smi"
        tool.write_text(f'#!/bin/sh\n[ "$1" = -L ] && echo "{prints}"\n')
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(xgboost, "build_info", lambda: {"USE_CUDA": cuda})
    training.choose_device.cache_clear()
    try:
        assert training.choose_device("xgboost") == device
    finally:
        training.choose_device.cache_clear()


def test_a_graph_model_uses_the_device_of_torch(monkeypatch):
    gnn = pytest.importorskip("cfhelpers.gnn")
    monkeypatch.setattr(gnn.torch.cuda, "is_available", lambda: True)
    training.choose_device.cache_clear()
    try:
        assert training.choose_device("gat") == "cuda"
    finally:
        training.choose_device.cache_clear()

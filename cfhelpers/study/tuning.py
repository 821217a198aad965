"""Ray Tune over the search spaces of Tab D1–D3, on this machine or a cluster.

The best settings go to a small YAML file: `python -m cfhelpers.study.tuning` searches for
the quick profile and rewrites its entries in profiles/settings.yaml.
"""

import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from cfhelpers import paths
from cfhelpers._cache import fingerprint
from cfhelpers._checks import one_of, plain
from cfhelpers.datasets import Dataset, load_dataset, split
from cfhelpers.study import models, training
from cfhelpers.study.presets import TUNED, save_best

Space = dict[str, tuple[Any, ...]]  # a law and its values, by hyperparameter

KINDS = ("gcn", "sage", "gat")
LAYERS: Space = {
    "lr": ("loguniform", 1e-4, 1e-1),
    "hidden_channels": ("choice", 16, 32, 64, 128),
    "dropout": ("uniform", 0.1, 0.8),
    "aggr": ("choice", "mean", "gcn", "pool", "lstm"),
}
# Tab D1, D2, D3; their batch_size is not searched, since a batch is the whole graph.
SPACES: dict[str, Space] = {
    "gnn": LAYERS | {"layers": ("choice", 1, 2, 4), "heads": ("choice", 2, 4, 8)},
    "xgboost": {
        "learning_rate": ("loguniform", 1e-4, 1e-1),
        "n_estimators": ("integers", 2, 500),
        "max_depth": ("integers", 2, 30),
        "gamma": ("uniform", 0.0, 1.0),
        "subsample": ("uniform", 0.5, 1.0),
        "colsample_bytree": ("uniform", 0.25, 1.0),
        "colsample_bylevel": ("uniform", 0.25, 1.0),
        "colsample_bynode": ("uniform", 0.25, 1.0),
    },
    "cfgnn": LAYERS
    | {
        "layers": ("choice", 1, 2, 3, 4),
        "heads": ("choice", 2, 4),
        "temperature": ("loguniform", 1e-3, 1e1),
        "kind": ("choice", *KINDS),
    },
}
ONLY = {"heads": "gat", "aggr": "sage"}  # rows of one kind of layer
# Ray sends nothing out, prints no tables, stores the finished trials every second,
# writes no logs, leaves Ctrl-C alone.
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_GLOBAL_CHECKPOINT_S": "1",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
}
# What a trial is judged by → what Ray calls it.
MEASURED = {"value": "value", "deviation": "deviation", "seconds": "time_total_s"}
# Dataset, how it is loaded, model, and what is not searched, as Credit's graph is large.
QUICK: tuple[tuple[str, dict[str, Any], str, dict[str, Any]], ...] = (
    ("credit", {}, "xgboost", {}),
    ("pokec_n", {"n": 3000}, "gcn", {}),
    ("pokec_n", {"n": 3000}, "sage", {}),
    ("pokec_n", {"n": 3000}, "gat", {}),
    (
        "credit",
        {"graph": "without_target"},
        "cfgnn",
        {"kind": "gcn", "hidden_channels": 32, "layers": 2},
    ),
)


class FittedModel(Protocol):
    """What a search takes from a base model."""

    @property
    def parts(self) -> np.ndarray: ...

    @property
    def probs(self) -> np.ndarray: ...


def table(name: str) -> pd.DataFrame:
    """One of the paper's tables of search spaces.

    Parameters
    ----------
    name : {"gnn", "xgboost", "cfgnn"}
        For Tab D1, D2 or D3.

    Returns
    -------
    DataFrame
        A row per hyperparameter.

    Examples
    --------
    >>> table("xgboost").iloc[0].tolist()
    ['learning_rate', 'loguniform(0.0001, 0.1)', '']
    """
    one_of(name, "name", tuple(SPACES))
    rows = []
    for parameter, (law, *values) in SPACES[name].items():
        searched = f"{law}({', '.join(map(str, values))})"
        rows.append((parameter, searched, ONLY.get(parameter, "")))
    return pd.DataFrame(rows, columns=["hyperparameter", "search space", "only for"])


def space(model: str, dataset: Dataset) -> Space:
    """What is searched for a model on a dataset.

    Parameters
    ----------
    model : {"xgboost", "gcn", "sage", "gat", "cfgnn"}
    dataset : Dataset
        Where its graph is too large for it, lstm is left out.

    Returns
    -------
    dict
        The rows of `SPACES` that apply.

    Examples
    --------
    >>> sorted(space("xgboost", load_dataset("credit")))[:3]
    ['colsample_bylevel', 'colsample_bynode', 'colsample_bytree']
    """
    one_of(model, "model", TUNED)
    whole = SPACES.get(model, SPACES["gnn"])
    rows = {name: row for name, row in whole.items() if _applies(name, model)}
    if "aggr" in rows:
        edges = _edges(model, dataset)
        if not _fits_lstm(rows, len(dataset), dataset.X.shape[1], edges):
            rows["aggr"] = tuple(value for value in rows["aggr"] if value != "lstm")
    return rows


def _fits_lstm(rows: Space, n: int, n_features: int, edges: np.ndarray) -> bool:
    """Whether the widest layer of the space can have the lstm aggregator here."""
    from cfhelpers.gnn import LSTM_LIMIT

    _, *widths = rows["hidden_channels"]
    width = max(n_features, *widths)
    return bool(n * np.bincount(edges[0]).max() * width <= LSTM_LIMIT)


def _edges(model: str, dataset: Dataset) -> np.ndarray:
    """The edges of a dataset that must have some for this model."""
    if dataset.edge_index is None:
        raise ValueError(
            f"model: found {model!r} for {dataset.name} without edges; "
            "load the dataset with its graph"
        )
    return dataset.edge_index


def _applies(name: str, kind: str) -> bool:
    """Whether a kind of layer has this hyperparameter."""
    return kind not in KINDS or ONLY.get(name, kind) == kind


def _parameters(sample: Mapping[str, Any]) -> dict[str, Any]:
    """A sample of the space to four digits: what is measured can be written down."""
    kind = sample.get("kind", "")
    parameters = {}
    for name, value in sample.items():
        if _applies(name, kind):
            value = plain(value)
            if isinstance(value, float):
                value = float(f"{value:.4g}")
            parameters[name] = value
    return parameters


def _objective(
    sample: Mapping[str, Any],
    model: str,
    dataset: Dataset,
    parts: np.ndarray,
    probs: np.ndarray | None,
    seeds: Sequence[int],
) -> dict[str, float]:
    """Mean over seeds of the validation accuracy, or of CFGNN's set size.

    The size is that on validation rows that CFGNN did not learn from. Validation rows
    alone: a row that calibrates or tests in any split has no say in the choice.
    """
    parameters = _parameters(sample)
    valid = np.flatnonzero(parts == "valid")
    values = []
    for seed in seeds:
        if model == "cfgnn":
            assert probs is not None  # `tune` has seen to that
            value = _cfgnn_size(dataset, probs, valid, parameters, seed)
        else:
            fitted, _ = training.train(dataset, parts, model, parameters, seed=seed)
            value = float((fitted[valid].argmax(axis=1) == dataset.y[valid]).mean())
        values.append(value)
    return {"value": float(np.mean(values)), "deviation": float(np.std(values))}


def _cfgnn_size(
    dataset: Dataset,
    probs: np.ndarray,
    valid: np.ndarray,
    parameters: Mapping[str, Any],
    seed: int,
) -> float:
    """The size of CFGNN's sets on those validation rows that choose its epoch."""
    from cfhelpers import graph_scores

    _, how = graph_scores.cfgnn(
        probs,
        dataset.y,
        _edges("cfgnn", dataset),
        valid,
        parameters=parameters,
        seed=seed,
        progress=False,
    )
    return how["held_out_size"]


def tune(
    dataset: Dataset,
    model: str,
    *,
    n_samples: int | None = None,
    seeds: Sequence[int] = range(5),
    fixed: Mapping[str, Any] | None = None,
    base: FittedModel | None = None,
    seed: int = 0,
    address: str | None = None,
    storage: str | os.PathLike | None = None,
    resume: bool = True,
    progress: bool = True,
) -> tuple[dict[str, Any], pd.DataFrame]:
    """Random search for the best parameters of a model.

    An interrupted search goes on with its finished trials kept.

    Parameters
    ----------
    dataset : Dataset
        With its graph, for all models but XGBoost.
    model : {"xgboost", "gcn", "sage", "gat", "cfgnn"}
    n_samples : int, optional
        None: as in the paper, 25 for XGBoost and 10 for the others.
    seeds : sequence of int
        Each sample is judged by its mean over these.
    fixed : mapping, optional
        Parameters that are not searched, and their values.
    base : BaseModel, optional
        What `models.base_model` gives; "cfgnn" adjusts its probabilities. None: rows are
        split by `datasets.split` with seed 0.
    seed : int
        Draws the samples.
    address : str, optional
        A Ray cluster whose nodes have cfhelpers and see `storage`; None: this machine.
    storage : path or URI, optional
        Where trials are kept; None: artifacts/tuning.
    resume : bool
        Whether to go on with a search that was interrupted.
    progress : bool
        Whether a bar shows how far it is.

    Returns
    -------
    record : dict
        For `presets.save_best`: the best parameters and how they were found.
    trials : DataFrame
        Best first.
    """
    seeds = [int(each) for each in seeds]
    if n_samples is None:
        n_samples = 25 if model == "xgboost" else 10
    rows = _searched_rows(dataset, model, n_samples, seeds, fixed, base)
    if base is None:
        parts = split(dataset, 0)
        probs = None
    else:
        parts = base.parts
        probs = base.probs
    settings = repr([str(dataset.source), model, rows, n_samples, seeds, seed])
    contents = [dataset.X, dataset.y, parts, dataset.edge_index, probs, settings]
    folder = _trial_folder(storage, f"{dataset.name}-{model}-{fingerprint(*contents)}")
    inputs = {
        "model": model,
        "dataset": dataset,
        "parts": parts,
        "probs": probs,
        "seeds": seeds,
    }
    results = _search(rows, inputs, n_samples, seed, address, folder, resume, progress)
    _tell_failures(results, n_samples)
    trials = _finished_trials(results)
    if model == "cfgnn":
        objective = "mean set size"
        trials.sort(key=lambda trial: trial["value"])
    else:
        objective = "validation accuracy"
        trials.sort(key=lambda trial: -trial["value"])
    best = {name: trials[0][name] for name in trials[0] if name not in MEASURED}
    record = {
        "parameters": best,
        "objective": objective,
        "value": round(trials[0]["value"], 4),
        "samples": n_samples,
        "seeds": seeds,
        "rows": len(dataset),
        "attribute": dataset.attribute,
    }
    return record, pd.DataFrame(trials)


def _searched_rows(
    dataset: Dataset,
    model: str,
    n_samples: int,
    seeds: Sequence[int],
    fixed: Mapping[str, Any] | None,
    base: FittedModel | None,
) -> Space:
    """The space of a search, what is fixed at one value; a bad request is refused."""
    if n_samples < 1 or not seeds:
        raise ValueError(
            f"n_samples, seeds: found {n_samples} and {seeds}; "
            "wanted at least one of each"
        )
    if one_of(model, "model", TUNED) != "xgboost":
        _edges(model, dataset)
    if model == "cfgnn" and base is None:
        raise ValueError(
            "base: found None; "
            "'cfgnn' wants the base model whose probabilities it adjusts"
        )
    rows = space(model, dataset)
    fixed = fixed or {}
    unknown = sorted(set(fixed) - set(rows))
    if unknown:
        raise ValueError(f"fixed: found {unknown[0]!r}; wanted some of {', '.join(rows)}")
    for name, value in fixed.items():
        rows[name] = ("choice", value)
    return rows


def _trial_folder(storage: str | os.PathLike | None, name: str) -> str:
    """Where the trials of a search are kept: a folder of its own below a path or URI."""
    place = str(storage or paths.ARTIFACTS / "tuning")
    if "://" not in place:
        place = os.path.abspath(place)
    return f"{place}/{name}"


def _tell_failures(results: Any, n_samples: int) -> None:
    """Warn of trials that failed; raise if all of them did."""
    failed = [result.error for result in results if result.error]
    if not failed:
        return
    reason = str(failed[0]).strip().splitlines()[-1]
    text = f"{len(failed)} of {n_samples} trials failed, the first by {reason}"
    if len(failed) == n_samples:
        raise RuntimeError(text) from failed[0]
    warnings.warn(text, stacklevel=3)


def _finished_trials(results: Any) -> list[dict[str, Any]]:
    """Parameters and measurements of every trial that did not fail, in their order."""
    finished = [result for result in results if not result.error]
    finished.sort(key=lambda result: result.metrics["trial_id"])
    trials = []
    for result in finished:
        trial = _parameters(result.config)
        for name, field in MEASURED.items():
            trial[name] = result.metrics[field]
        trials.append(trial)
    return trials


def _search(
    rows: Space,
    inputs: Mapping[str, Any],
    n_samples: int,
    seed: int,
    address: str | None,
    folder: str,
    resume: bool,
    progress: bool,
) -> Any:
    """Ray Tune's results.

    From the Ray that is running already, the cluster at `address`, or one for the
    meantime.
    """
    os.environ.update(ENVIRONMENT)
    import ray
    from ray import tune

    logging.getLogger("ray.tune").setLevel(logging.ERROR)
    started_here = not ray.is_initialized()
    if started_here:
        _start(ray, address)
    try:
        resources = {"cpu": 1, "gpu": min(1, ray.cluster_resources().get("GPU", 0))}
        objective = tune.with_parameters(_objective, **inputs)
        trainable = tune.with_resources(objective, resources)
        if resume and _has_begun(folder):
            return tune.Tuner.restore(folder, trainable, restart_errored=True).fit()
        storage, name = folder.rsplit("/", 1)
        order = tune.search.BasicVariantGenerator(random_state=seed)
        bar = _progress_bar(f"tuning {inputs['model']}", n_samples, progress)
        return tune.Tuner(
            trainable,
            param_space=_ray_space(rows),
            tune_config=tune.TuneConfig(
                num_samples=n_samples, search_alg=order, reuse_actors=True
            ),
            run_config=tune.RunConfig(
                name=name, storage_path=storage, callbacks=[bar], verbose=0
            ),
        ).fit()
    finally:
        if started_here:
            ray.shutdown()


def _ray_space(rows: Space) -> dict[str, Any]:
    """The rows of a space as Ray Tune's own distributions."""
    from ray import tune

    searched = {}
    for name, (law, *values) in rows.items():
        if law == "choice":
            searched[name] = tune.choice(values)
        elif law == "integers":
            low, high = values
            searched[name] = tune.randint(low, high + 1)
        elif law == "uniform":
            searched[name] = tune.uniform(*values)
        else:
            searched[name] = tune.loguniform(*values)
    return searched


def _progress_bar(title: str, n_samples: int, progress: bool) -> Any:
    """A bar that moves with every finished trial.

    Ray stores it with all it refers to; so it is given a title, not the data.
    """
    from ray import tune

    class Bar(tune.Callback):
        def setup(self, **info: Any) -> None:
            self.bar = tqdm(total=n_samples, desc=title, disable=not progress)

        def on_step_end(self, iteration: int, trials: Any, **info: Any) -> None:
            newly_finished = sum(trial.is_finished() for trial in trials) - self.bar.n
            if newly_finished:
                self.bar.update(newly_finished)

        def on_experiment_end(self, trials: Any, **info: Any) -> None:
            self.bar.close()

    return Bar()


def _has_begun(folder: str) -> bool:
    """Whether a search has stored a trial in this folder."""
    from ray import tune

    try:
        return bool(tune.ExperimentAnalysis(folder).trials)
    except (OSError, ValueError):  # nothing there, or stopped before the first trial
        return False


def _start(ray: Any, address: str | None) -> None:
    """Connect to the cluster at `address`, or start one here, in up to three attempts.

    Ray gives its own parts 15 s to start; on a busy machine that may be too little.
    """
    if address:
        place: dict[str, Any] = {"address": address}
        attempts = 1
    else:
        place = {"address": "local", "include_dashboard": False}
        attempts = 3
    for attempt in range(1, attempts + 1):
        try:
            ray.init(**place, log_to_driver=False, logging_level=logging.ERROR)
            return
        except Exception:
            ray.shutdown()
            if attempt == attempts:
                raise


def main() -> None:
    """Search for the quick profile, and store what is best."""
    for name, options, model, fixed in QUICK:
        dataset = load_dataset(name, **options)
        base = None
        if model == "cfgnn":
            base = models.base_model(dataset, split(dataset, 0))
        record, _ = tune(
            dataset, model, n_samples=6, seeds=(0, 1), fixed=fixed, base=base
        )
        path = save_best("quick", dataset, model, record)
        print(path, name, dataset.source, model, record["value"])


if __name__ == "__main__":
    main()

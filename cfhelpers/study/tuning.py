"""Ray Tune over the search spaces of Tab D1–D3, on this machine or a cluster; the best settings go to a small YAML.

`python -m cfhelpers.study.tuning` searches for the quick profile and rewrites its entries in profiles/settings.yaml.
"""

import logging
import os
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from cfhelpers import paths
from cfhelpers._cache import fingerprint
from cfhelpers._checks import one_of, plain
from cfhelpers.datasets import Dataset, load_dataset, split
from cfhelpers.study import models
from cfhelpers.study.presets import TUNED, save_best

KINDS = ("gcn", "sage", "gat")
LAYERS = {
    "lr": ("loguniform", 1e-4, 1e-1),
    "hidden_channels": ("choice", 16, 32, 64, 128),
    "dropout": ("uniform", 0.1, 0.8),
    "aggr": ("choice", "mean", "gcn", "pool", "lstm"),
}
SPACES = {  # Tab D1, D2, D3; their batch_size is not searched, since a batch is the whole graph
    "gnn": LAYERS | {"layers": ("choice", 1, 2, 4), "heads": ("choice", 2, 4, 8)},
    "xgboost": {
        "learning_rate": ("loguniform", 1e-4, 1e-1),
        "n_estimators": ("integers", 2, 500),
        "max_depth": ("integers", 2, 30),
        "gamma": ("uniform", 0.0, 1.0),
        "subsample": ("uniform", 0.5, 1.0),
    }
    | {
        f"colsample_by{part}": ("uniform", 0.25, 1.0)
        for part in ("tree", "level", "node")
    },
    "cfgnn": LAYERS
    | {"layers": ("choice", 1, 2, 3, 4), "heads": ("choice", 2, 4)}
    | {"temperature": ("loguniform", 1e-3, 1e1), "kind": ("choice", *KINDS)},
}
ONLY = {"heads": "gat", "aggr": "sage"}  # rows of one kind of layer
# Ray sends nothing out, prints no tables, writes no logs, stores the finished trials every second, leaves Ctrl-C alone
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_GLOBAL_CHECKPOINT_S": "1",
}
ENVIRONMENT |= {
    f"TUNE_DISABLE_{part}": "1" for part in ("AUTO_CALLBACK_LOGGERS", "SIGINT_HANDLER")
}
QUICK = (  # dataset, how it is loaded, model, what is not searched, as Credit's graph is large
    ("credit", {}, "xgboost", {}),
    *(("pokec_n", {"n": 3000}, kind, {}) for kind in KINDS),
    (
        "credit",
        {"graph": "without_target"},
        "cfgnn",
        {"kind": "gcn", "hidden_channels": 32, "layers": 2},
    ),
)


def table(name: str) -> pd.DataFrame:
    """Tab D1 ("gnn"), D2 ("xgboost") or D3 ("cfgnn"): a row per hyperparameter."""
    rows = [
        (parameter, f"{law}({', '.join(map(str, values))})", ONLY.get(parameter, ""))
        for parameter, (law, *values) in SPACES[
            one_of(name, "name", tuple(SPACES))
        ].items()
    ]
    return pd.DataFrame(rows, columns=["hyperparameter", "search space", "only for"])


def space(model: str, dataset: Dataset) -> dict[str, tuple]:
    """The rows of `SPACES` that are searched for a model on a dataset; no lstm where the graph is too large for it."""
    rows = SPACES.get(one_of(model, "model", TUNED), SPACES["gnn"])
    rows = {name: row for name, row in rows.items() if _applies(name, model)}
    if "aggr" in rows:
        from cfhelpers.gnn import LSTM_LIMIT

        width = max(dataset.X.shape[1], *rows["hidden_channels"][1:])
        if len(dataset) * np.bincount(dataset.edge_index[0]).max() * width > LSTM_LIMIT:
            rows["aggr"] = tuple(value for value in rows["aggr"] if value != "lstm")
    return rows


def _applies(name: str, kind: str) -> bool:
    return kind not in KINDS or ONLY.get(name, kind) == kind


def _parameters(sample: dict) -> dict:
    """A sample of the space to four digits: what is measured is what can be written down."""
    sample = {
        name: plain(value)
        for name, value in sample.items()
        if _applies(name, sample.get("kind", ""))
    }
    return {
        name: float(f"{value:.4g}") if isinstance(value, float) else value
        for name, value in sample.items()
    }


def _objective(
    sample: dict, model: str, dataset: Dataset, parts, probs, seeds
) -> dict[str, float]:
    """Mean over seeds of the validation accuracy, or of CFGNN's set size on validation rows that it did not learn from.

    Validation rows alone: a row that calibrates or tests in any split has no say in the choice.
    """
    from cfhelpers import graph_scores

    parameters, valid = _parameters(sample), np.flatnonzero(parts == "valid")

    def value(seed):
        options = {"parameters": parameters, "seed": seed, "progress": False}
        if model == "cfgnn":
            return graph_scores.cfgnn(
                probs, dataset.y, dataset.edge_index, valid, **options
            )[1]["held_out_size"]
        fitted, _ = models.train(dataset, parts, model, **options)
        return (fitted[valid].argmax(axis=1) == dataset.y[valid]).mean()

    values = [value(seed) for seed in seeds]
    return {"value": float(np.mean(values)), "deviation": float(np.std(values))}


def tune(
    dataset: Dataset,
    model: str,
    *,
    n_samples: int | None = None,
    seeds: Sequence[int] = range(5),
    fixed: dict[str, Any] | None = None,
    base: Any = None,
    seed: int = 0,
    address: str | None = None,
    storage: str | os.PathLike | None = None,
    resume: bool = True,
    progress: bool = True,
) -> tuple[dict[str, Any], pd.DataFrame]:
    """Random search: a record for `save_best` that holds the best parameters, and the trials, best first.

    As in the paper, 25 samples for XGBoost and 10 for the others, each judged by its mean over `seeds`; `seed` draws
    them. `fixed` parameters are not searched. "cfgnn" needs the `base` model of `models.base_model`. `address`: a Ray
    cluster whose nodes have cfhelpers and see the folder or URI `storage`; None: this machine. An interrupted search
    goes on with its finished trials kept.
    """
    seeds, n_samples = (
        [int(s) for s in seeds],
        (25 if model == "xgboost" else 10) if n_samples is None else n_samples,
    )
    if n_samples < 1 or not seeds:
        raise ValueError(
            f"n_samples, seeds: found {n_samples} and {seeds}; wanted at least one of each"
        )
    if one_of(model, "model", TUNED) != "xgboost" and dataset.edge_index is None:
        raise ValueError(
            f"model: found {model!r} for {dataset.name} without edges; load the dataset with its graph"
        )
    if model == "cfgnn" and base is None:
        raise ValueError(
            "base: found None; 'cfgnn' wants the base model whose probabilities it adjusts"
        )
    rows, fixed = (
        space(model, dataset),
        {name: ("choice", value) for name, value in (fixed or {}).items()},
    )
    if unknown := set(fixed) - set(rows):
        raise ValueError(
            f"fixed: found {sorted(unknown)[0]!r}; wanted some of {', '.join(rows)}"
        )
    parts, probs = (split(dataset, 0), None) if base is None else (base.parts, base.probs)
    rows, contents = (
        rows | fixed,
        [dataset.X, dataset.y, parts, dataset.edge_index, probs],
    )
    key = fingerprint(
        *contents, repr([dataset.source, model, rows, n_samples, seeds, seed])
    )
    storage = str(storage or paths.ARTIFACTS / "tuning")
    folder = f"{storage if '://' in storage else os.path.abspath(storage)}/{dataset.name}-{model}-{key}"
    inputs = {
        "model": model,
        "dataset": dataset,
        "parts": parts,
        "probs": probs,
        "seeds": seeds,
    }
    results = _search(rows, inputs, n_samples, seed, address, folder, resume, progress)
    if failed := [result.error for result in results if result.error]:
        text = f"{len(failed)} of {n_samples} trials failed, the first by {str(failed[0]).strip().splitlines()[-1]}"
        if len(failed) == n_samples:
            raise RuntimeError(text) from failed[0]
        warnings.warn(text, stacklevel=2)
    measured = {"value": "value", "deviation": "deviation", "seconds": "time_total_s"}
    finished = sorted(
        (r for r in results if not r.error), key=lambda result: result.metrics["trial_id"]
    )
    trials = [
        _parameters(r.config) | {n: r.metrics[field] for n, field in measured.items()}
        for r in finished
    ]
    trials.sort(key=lambda trial: trial["value"] if model == "cfgnn" else -trial["value"])
    best = {name: value for name, value in trials[0].items() if name not in measured}
    objective = "mean set size" if model == "cfgnn" else "validation accuracy"
    facts = {
        "samples": n_samples,
        "seeds": seeds,
        "rows": len(dataset),
        "attribute": dataset.attribute,
    }
    record = {
        "parameters": best,
        "objective": objective,
        "value": round(trials[0]["value"], 4),
    } | facts
    return record, pd.DataFrame(trials)


def _search(rows, inputs, n_samples, seed, address, folder, resume, progress):
    """Ray Tune's results, from the Ray that is running already, the cluster at `address`, or one for the meantime."""
    os.environ.update(ENVIRONMENT)
    import ray
    from ray import tune

    title = f"tuning {inputs['model']}"  # Ray stores the bar and all it refers to: not the data

    class Bar(tune.Callback):
        def setup(self, **info):
            self.bar = tqdm(total=n_samples, desc=title, disable=not progress)

        def on_step_end(self, iteration, trials, **info):
            if finished := sum(trial.is_finished() for trial in trials) - self.bar.n:
                self.bar.update(finished)

        def on_experiment_end(self, trials, **info):
            self.bar.close()

    def begun():
        try:
            return bool(tune.ExperimentAnalysis(folder).trials)
        except (
            OSError,
            ValueError,
        ):  # nothing there, or stopped before the first trial was stored
            return False

    logging.getLogger("ray.tune").setLevel(logging.ERROR)
    laws = {
        "choice": lambda *values: tune.choice(values),
        "integers": lambda low, high: tune.randint(low, high + 1),
    }
    laws |= {"uniform": tune.uniform, "loguniform": tune.loguniform}
    ours = not ray.is_initialized()
    if ours:
        _start(ray, address)
    try:
        resources = {"cpu": 1, "gpu": min(1, ray.cluster_resources().get("GPU", 0))}
        trainable = tune.with_resources(
            tune.with_parameters(_objective, **inputs), resources
        )
        if resume and begun():
            return tune.Tuner.restore(folder, trainable, restart_errored=True).fit()
        storage, name = folder.rsplit("/", 1)
        order = tune.search.BasicVariantGenerator(random_state=seed)
        return tune.Tuner(
            trainable,
            param_space={
                parameter: laws[law](*values)
                for parameter, (law, *values) in rows.items()
            },
            tune_config=tune.TuneConfig(
                num_samples=n_samples, search_alg=order, reuse_actors=True
            ),
            run_config=tune.RunConfig(
                name=name, storage_path=storage, callbacks=[Bar()], verbose=0
            ),
        ).fit()
    finally:
        if ours:
            ray.shutdown()


def _start(ray, address: str | None) -> None:
    """Connect to the cluster at `address`, or start one here, in up to three attempts.

    Ray gives its own parts 15 s to start; on a busy machine that may be too little.
    """
    place = (
        {"address": address}
        if address
        else {"address": "local", "include_dashboard": False}
    )
    for attempts in (2, 1, 0):
        try:
            return ray.init(**place, log_to_driver=False, logging_level=logging.ERROR)
        except Exception:
            ray.shutdown()
            if address or not attempts:
                raise


if __name__ == "__main__":
    for name, options, model, fixed in QUICK:
        dataset = load_dataset(name, **options)
        base = models.base_model(dataset) if model == "cfgnn" else None
        record, _ = tune(
            dataset, model, n_samples=6, seeds=(0, 1), fixed=fixed, base=base
        )
        print(
            save_best("quick", dataset, model, record),
            name,
            dataset.source,
            model,
            record["value"],
        )

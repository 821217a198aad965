"""Random search over Tab D1–D3 with Ray, on this machine or a cluster.

Settings are drawn beforehand and trained in rungs: all of them for a few epochs, the best
third for more, the best of those to the end. Each trial is a row of a small CSV file as
soon as it is done, so that a search that was stopped goes on, on another machine too.
`python -m cfhelpers.study.tuning` searches for the quick profile and rewrites its entries
in profiles/settings.yaml.
"""

import logging
import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from cfhelpers import paths
from cfhelpers._cache import fingerprint
from cfhelpers._checks import one_of
from cfhelpers.datasets import Dataset, load_dataset, split
from cfhelpers.study import training
from cfhelpers.study.presets import TUNED, save_best
from cfhelpers.study.spaces import KINDS, SPACES, Space, draw, edges_of, space, table

__all__ = ["SPACES", "space", "table", "trials_path", "tune"]

RUNGS = (30, 100, 500)  # epochs of a graph model
KEPT_SHARE = 3  # of so many settings one goes on to the next rung
TRIAL = ["setting", "seed", "epochs"]  # what tells a trial from the others of a search
MEASURED = ["value", "accuracy", "epoch", "reached", "seconds"]
WENT_ON = "went on"
STOPPED = "stopped"
FINISHED = "finished"
ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0"}  # Ray sends nothing out
# Dataset, how it is loaded, model, and what is not searched, as Credit's graph is large.
QUICK: tuple[tuple[str, dict[str, Any], str, dict[str, Any]], ...] = (
    ("credit", {}, "xgboost", {}),
    ("pokec_n", {"n": 3000}, "gcn", {}),
    ("pokec_n", {"n": 3000}, "sage", {}),
    ("pokec_n", {"n": 3000}, "gat", {}),
)


class FittedModel(Protocol):
    """What a search takes from a base model."""

    @property
    def parts(self) -> np.ndarray: ...

    @property
    def probs(self) -> np.ndarray: ...


def trials_path(dataset: Dataset, model: str) -> Path:
    """Where the trials of a search on real records are kept, in results/.

    Parameters
    ----------
    dataset : Dataset
    model : str

    Returns
    -------
    Path

    Examples
    --------
    >>> trials_path(load_dataset("credit"), "cfgnn").name
    'credit_bundled_cfgnn.csv'
    """
    name = f"{dataset.name}_{dataset.source}_{model}.csv"
    return paths.RESULTS / "trials" / name


def tune(
    dataset: Dataset,
    model: str,
    *,
    n_samples: int | None = None,
    seeds: Sequence[int] = range(5),
    rungs: Sequence[int] = RUNGS,
    fixed: Mapping[str, Any] | None = None,
    base: FittedModel | None = None,
    seed: int = 0,
    trials: str | os.PathLike | None = None,
    address: str | None = None,
    progress: bool = True,
) -> tuple[dict[str, Any], pd.DataFrame]:
    """Random search for the best parameters of a model, by the validation rows.

    Judged by the cross-entropy on the validation rows; CFGNN, which learns from a part of
    them, by the size of its sets on the others. A row that calibrates or tests in any
    split has no say.

    Parameters
    ----------
    dataset : Dataset
        With its graph, for all models but XGBoost.
    model : {"xgboost", "gcn", "sage", "gat", "cfgnn"}
    n_samples : int, optional
        None: as in the paper, 25 for XGBoost and 10 for the others.
    seeds : sequence of int
        Each setting is judged by its mean over these.
    rungs : sequence of int
        Epochs of a graph model: after each number but the last, a third of the settings
        goes on.
    fixed : mapping, optional
        Parameters that are not searched, and their values.
    base : BaseModel, optional
        What `models.base_model` gives; "cfgnn" adjusts its probabilities. None: rows are
        split by `datasets.split` with seed 0.
    seed : int
        Draws the settings.
    trials : path, optional
        The CSV file of trials; those that are in it are not run again. None: a file in
        artifacts/tuning.
    address : str, optional
        A Ray cluster whose nodes have cfhelpers; None: this machine.
    progress : bool
        Whether a bar shows how far it is.

    Returns
    -------
    record : dict
        For `presets.save_best`: the best parameters and how they were found.
    trials : DataFrame
        A row per setting, seed and rung: parameters, value (what it is judged by),
        accuracy, the epoch that was kept and the number of epochs that were reached,
        seconds, and whether it went on, was stopped or has finished.
    """
    seeds = [int(each) for each in seeds]
    if n_samples is None:
        n_samples = 25 if model == "xgboost" else 10
    rows = _searched_rows(dataset, model, n_samples, seeds, fixed, base)
    parts = split(dataset, 0) if base is None else base.parts
    probs = None if base is None else base.probs
    settings = draw(rows, n_samples, seed)
    contents = [dataset.X, dataset.y, parts, dataset.edge_index, probs]
    key = fingerprint(*contents, repr([str(dataset.source), model, rows, seed]))
    place = Path(trials or paths.ARTIFACTS / "tuning" / f"{dataset.name}-{key}.csv")
    inputs = {"model": model, "dataset": dataset, "parts": parts, "probs": probs}
    steps = [int(epochs) for epochs in rungs] if model in KINDS else [0]
    search = _Search(place, key, settings, seeds, steps)
    with _Workers(address, inputs) as workers:
        search.run(workers, f"tuning {model}", progress)
    best = search.best()
    record = {
        "parameters": settings[best],
        "objective": "mean set size" if model == "cfgnn" else "validation loss",
        "value": round(search.mean_values(steps[-1])[best], 4),
        "samples": n_samples,
        "seeds": seeds,
        "rows": len(dataset),
        "attribute": dataset.attribute,
    }
    return record, search.table()


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
        edges_of(model, dataset)
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


class _Search:
    """The trials of a search, in a CSV file: what is done, and what comes next."""

    def __init__(
        self,
        path: Path,
        key: str,
        settings: list[dict[str, Any]],
        seeds: list[int],
        rungs: list[int],
    ) -> None:
        self.path = path
        self.key = key
        self.settings = settings
        self.seeds = seeds
        self.rungs = rungs
        self.others = pd.DataFrame()
        self.done: dict[tuple[int, int, int], dict[str, Any]] = {}
        if path.exists():
            self._read()

    def _read(self) -> None:
        """Take the rows of this search from the file; keep those of other ones."""
        stored = pd.read_csv(self.path, dtype={"key": str})
        is_own = stored["key"] == self.key
        self.others = stored[~is_own]
        for row in stored[is_own].to_dict("records"):
            trial = (int(row["setting"]), int(row["seed"]), int(row["epochs"]))
            self.done[trial] = {name: row[name] for name in MEASURED}

    def run(self, workers: "_Workers", title: str, progress: bool) -> None:
        """Run what is missing, rung by rung; every finished trial is stored at once."""
        alive = list(range(len(self.settings)))
        for rung, epochs in enumerate(self.rungs):
            pending = []
            for setting in alive:
                for seed in self.seeds:
                    if (setting, seed, epochs) not in self.done:
                        pending.append((setting, seed, epochs))
            self._run_all(workers, pending, f"{title}, rung {rung + 1}", progress)
            alive = self._survivors(alive, epochs)
        self._save()

    def _run_all(
        self,
        workers: "_Workers",
        pending: list[tuple[int, int, int]],
        title: str,
        progress: bool,
    ) -> None:
        """Run some trials beside each other; tell of those that fail."""
        units = [(self.settings[place], *trial) for place, *trial in pending]
        failed = []
        results = workers.results(units)
        bar = tqdm(results, title, len(pending), disable=not progress, leave=False)
        for place, measured in bar:
            if isinstance(measured, Exception):
                failed.append(measured)
                continue
            self.done[pending[place]] = measured
            self._save()
        if failed:
            reason = str(failed[0]).strip().splitlines()[-1]
            text = f"{len(failed)} of {len(pending)} trials failed, the first by {reason}"
            if len(failed) == len(pending):
                raise RuntimeError(text) from failed[0]
            warnings.warn(text, stacklevel=4)

    def mean_values(self, epochs: int) -> dict[int, float]:
        """By setting, the mean over seeds after so many epochs; only whole settings."""
        values: dict[int, float] = {}
        for setting in range(len(self.settings)):
            trials = [(setting, seed, epochs) for seed in self.seeds]
            if all(trial in self.done for trial in trials):
                values[setting] = np.mean([self.done[trial]["value"] for trial in trials])
        return values

    def _survivors(self, alive: list[int], epochs: int) -> list[int]:
        """The settings that go on: the best third of those that did not fail."""
        values = self.mean_values(epochs)
        ranked = sorted((set(alive) & set(values)), key=lambda place: values[place])
        n_kept = -(-len(ranked) // KEPT_SHARE)
        return sorted(ranked[:n_kept])

    def best(self) -> int:
        """The setting with the smallest value at the end; the first of equals."""
        values = self.mean_values(self.rungs[-1])
        return min(values, key=lambda place: values[place])

    def table(self) -> pd.DataFrame:
        """The trials with their settings, in the order of rungs, settings and seeds."""
        alive = {place: set(range(len(self.settings))) for place in [0]}
        for rung, epochs in enumerate(self.rungs):
            alive[rung + 1] = set(self._survivors(sorted(alive[rung]), epochs))
        rows = []
        for trial in sorted(self.done, key=lambda each: (each[2], each[0], each[1])):
            setting, _, epochs = trial
            if setting >= len(self.settings) or epochs not in self.rungs:
                continue
            rung = self.rungs.index(epochs)
            row = dict(zip(TRIAL, trial, strict=True)) | self.settings[setting]
            row |= self.done[trial]
            if epochs == self.rungs[-1]:
                row["status"] = FINISHED
            else:
                row["status"] = WENT_ON if setting in alive[rung + 1] else STOPPED
            rows.append(row)
        return pd.DataFrame(rows)

    def _save(self) -> None:
        """Write all trials, whole or not at all."""
        own = self.table().assign(key=self.key)
        parts = [part for part in (self.others, own) if len(part)]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with paths.atomic_write(self.path) as unfinished:
            pd.concat(parts, ignore_index=True).to_csv(unfinished, index=False)


def _run_trial(
    parameters: dict[str, Any],
    seed: int,
    epochs: int,
    model: str,
    dataset: Dataset,
    parts: np.ndarray,
    probs: np.ndarray | None,
) -> dict[str, float]:
    """What is measured of one setting and seed."""
    start = time.perf_counter()
    valid = np.flatnonzero(parts == "valid")
    if model == "cfgnn":
        assert probs is not None  # `tune` has seen to that
        measured = _cfgnn_trial(parameters, seed, dataset, valid, probs)
    else:
        fitted, history = training.train(
            dataset, parts, model, parameters, seed=seed, epochs=epochs or None
        )
        column = "loss" if model == "xgboost" else "valid_loss"
        kept = int(np.argmin(history[column]))
        is_right = fitted[valid].argmax(axis=1) == dataset.y[valid]
        measured = {
            "value": float(history[column][kept]),
            "accuracy": float(is_right.mean()),
            "epoch": int(history["epoch"][kept]),
            "reached": len(history["epoch"]),
        }
    return measured | {"seconds": round(time.perf_counter() - start, 1)}


def _cfgnn_trial(
    parameters: dict[str, Any],
    seed: int,
    dataset: Dataset,
    valid: np.ndarray,
    probs: np.ndarray,
) -> dict[str, float]:
    """The size of CFGNN's sets on those validation rows that choose its epoch."""
    from cfhelpers import graph_scores

    adjusted, how = graph_scores.cfgnn(
        probs,
        dataset.y,
        edges_of("cfgnn", dataset),
        valid,
        parameters=parameters,
        seed=seed,
        progress=False,
    )
    is_right = adjusted[valid].argmax(axis=1) == dataset.y[valid]
    return {
        "value": how["held_out_size"],
        "accuracy": float(is_right.mean()),
        "epoch": how["epoch"],
        "reached": how["reached"],
    }


class _Workers:
    """Ray's workers: those that are there, a cluster's, or some for the meantime."""

    def __init__(self, address: str | None, inputs: Mapping[str, Any]) -> None:
        self.address = address
        self.inputs = inputs
        self.is_started_here = False

    def __enter__(self) -> "_Workers":
        return self

    def __exit__(self, *error: Any) -> None:
        if self.is_started_here:
            import ray

            ray.shutdown()

    def results(self, units: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        """(place, what a trial measured or why it failed), as trials end."""
        if not units:
            return
        os.environ.update(ENVIRONMENT)
        import ray

        if not ray.is_initialized():
            _start(ray, self.address)
            self.is_started_here = True
        gpus = min(1, ray.cluster_resources().get("GPU", 0))
        trial = ray.remote(_run_trial).options(num_cpus=1, num_gpus=gpus)
        shared = {name: ray.put(value) for name, value in self.inputs.items()}
        places = {}
        for place, unit in enumerate(units):
            places[trial.remote(*unit, **shared)] = place
        waiting = list(places)
        while waiting:
            (finished,), waiting = ray.wait(waiting)
            try:
                yield places[finished], ray.get(finished)
            except ray.exceptions.RayError as error:
                yield places[finished], error


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
        record, _ = tune(dataset, model, n_samples=6, seeds=(0, 1), fixed=fixed)
        path = save_best("quick", dataset, model, record)
        print(path, name, dataset.source, model, record["value"])


if __name__ == "__main__":
    main()

"""Random search over Tab D1–D3 with Ray, on this machine or a cluster.

Settings are drawn beforehand and trained in rungs: all of them for a few epochs, the best
third for more, the best of those to the end. Each trial is a row of a small CSV file as
soon as it is done, so that a search that was stopped goes on, on another machine too.
`python -m cfhelpers.study.tuning` searches for the quick profile and rewrites its entries
in profiles/settings.yaml.
"""

import os
import time
import warnings
from collections.abc import Mapping, Sequence
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
from cfhelpers.study.workers import Workers

__all__ = ["SPACES", "space", "table", "trials_path", "tune"]

RUNGS = (20, 60, 300)  # epochs of a graph model
KEPT_SHARE = 3  # of so many settings one goes on to the next rung
TRIAL = ["setting", "seed", "epochs"]  # what tells a trial from the others of a search
MEASURED = {
    "value": float,
    "accuracy": float,
    "epoch": int,
    "reached": int,
    "seconds": float,
}
WAITING = "waiting"  # for the others of its rung
WENT_ON = "went on"
STOPPED = "stopped"
FINISHED = "finished"
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
        Epochs of a graph model, in ascending order: after each number but the last, a
        third of the settings goes on.
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
        seconds, and whether it went on, was stopped or has finished. In the file of a
        search that was interrupted a trial may be waiting for the others of its rung.
    """
    seeds = [int(each) for each in seeds]
    if n_samples is None:
        n_samples = 25 if model == "xgboost" else 10
    rows = _searched_rows(dataset, model, n_samples, seeds, fixed, base)
    steps = _steps(model, rungs)
    parts = split(dataset, 0) if base is None else base.parts
    probs = None if base is None else base.probs
    settings = draw(rows, n_samples, seed)
    contents = [dataset.X, dataset.y, parts, dataset.edge_index, probs]
    key = fingerprint(*contents, repr([str(dataset.source), model, rows, seed]))
    place = Path(trials or paths.ARTIFACTS / "tuning" / f"{dataset.name}-{key}.csv")
    inputs = {"model": model, "dataset": dataset, "parts": parts, "probs": probs}
    search = _Search(place, key, settings, seeds, steps)
    with Workers(_run_trial, inputs, address) as workers:
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
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds: found {seeds}; wanted different numbers")
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


def _steps(model: str, rungs: Sequence[int]) -> list[int]:
    """The epochs of every rung; a model that is not trained in rungs has one, 0."""
    if model not in KINDS:
        return [0]
    steps = [int(epochs) for epochs in rungs]
    if not steps or steps[0] < 1 or steps != sorted(set(steps)):
        raise ValueError(
            f"rungs: found {steps}; wanted numbers of epochs in ascending order"
        )
    return steps


class _Search:
    """The trials of a search, in a CSV file: what is done, and what comes next.

    A file may hold more: trials of another search, and those of this one with other
    seeds, other rungs or more settings. These stay as they are.
    """

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
        self.went_on: dict[int, list[int]] = {}  # settings, by the epochs of a rung
        self.others = pd.DataFrame()
        self.done: dict[tuple[int, int, int], dict[str, Any]] = {}
        n_damaged = self._read()
        if n_damaged:
            warnings.warn(
                f"{path.name}: {n_damaged} rows of this search cannot be used; "
                "their trials are run again",
                stacklevel=3,
            )

    def _read(self) -> int:
        """Take the trials of this search from the file, and keep the other rows.

        Gives the number of rows that belong to this search and cannot be used.
        """
        if not self.path.exists():
            return 0
        stored = _read_texts(self.path)
        is_other = np.ones(len(stored), bool)
        n_damaged = 0
        for place, row in enumerate(stored.to_dict("records")):
            if row["key"] != self.key:
                continue
            try:
                trial = (int(row["setting"]), int(row["seed"]), int(row["epochs"]))
                is_other[place] = not self._asks_for(*trial)
                if self._asks_for(*trial):
                    self.done.setdefault(trial, self._measured(trial[0], row))
            except ValueError:
                is_other[place] = False
                n_damaged += 1
        self.others = stored[is_other]
        return n_damaged

    def _asks_for(self, setting: int, seed: int, epochs: int) -> bool:
        """Whether a trial is one of this search."""
        is_known = 0 <= setting < len(self.settings)
        return is_known and seed in self.seeds and epochs in self.rungs

    def _measured(self, setting: int, row: Mapping[Any, str]) -> dict[str, Any]:
        """What a stored row says was measured of a setting."""
        for name, value in self.settings[setting].items():
            if not _says(row.get(name, ""), value):
                raise ValueError(f"{name}: found {row.get(name)!r}; wanted {value!r}")
        measured = {name: kind(row[name]) for name, kind in MEASURED.items()}
        if not np.isfinite(measured["value"]):
            raise ValueError(f"value: found {row['value']!r}; wanted a number")
        return measured

    def run(self, workers: Workers, title: str, progress: bool) -> None:
        """Run what is missing, rung by rung; every finished trial is stored at once."""
        alive = list(range(len(self.settings)))
        for rung, epochs in enumerate(self.rungs):
            pending = []
            for setting in alive:
                for seed in self.seeds:
                    if (setting, seed, epochs) not in self.done:
                        pending.append((setting, seed, epochs))
            failed = self._run_all(
                workers, pending, f"{title}, rung {rung + 1}", progress
            )
            alive = self._survivors(alive, epochs)
            if failed:
                text = f"{len(failed)} of {len(pending)} trials failed, {_told(failed)}"
                if not alive:
                    raise RuntimeError(text) from next(iter(failed.values()))
                warnings.warn(text, stacklevel=3)
            self.went_on[epochs] = alive
        self._save()

    def _run_all(
        self,
        workers: Workers,
        pending: list[tuple[int, int, int]],
        title: str,
        progress: bool,
    ) -> dict[tuple[int, int, int], Exception]:
        """Run some trials beside each other; gives those that fail, and why."""
        units = []
        for setting, seed, epochs in pending:
            parameters = self.settings[setting]
            units.append({"parameters": parameters, "seed": seed, "epochs": epochs})
        failed = {}
        results = workers.results(units)
        bar = tqdm(results, title, len(pending), disable=not progress, leave=False)
        for place, measured in bar:
            if isinstance(measured, Exception):
                failed[pending[place]] = measured
                continue
            self.done[pending[place]] = measured
            self._save()
        return failed

    def mean_values(self, epochs: int) -> dict[int, float]:
        """By setting, the mean over seeds after so many epochs; only whole settings."""
        values: dict[int, float] = {}
        for setting in range(len(self.settings)):
            trials = [(setting, seed, epochs) for seed in self.seeds]
            if all(trial in self.done for trial in trials):
                found = [self.done[trial]["value"] for trial in trials]
                values[setting] = float(np.mean(found))
        return values

    def _survivors(self, alive: list[int], epochs: int) -> list[int]:
        """The settings that go on: the best third of those that did not fail."""
        values = self.mean_values(epochs)
        whole = [place for place in alive if place in values]
        ranked = sorted(whole, key=lambda place: values[place])
        n_kept = -(-len(ranked) // KEPT_SHARE)
        return sorted(ranked[:n_kept])

    def best(self) -> int:
        """The setting with the smallest value at the end; the first of equals."""
        values = self.mean_values(self.rungs[-1])
        return min(values, key=lambda place: values[place])

    def table(self) -> pd.DataFrame:
        """The trials with their settings, in the order of rungs, settings and seeds."""
        rows = []
        for trial in sorted(self.done, key=lambda each: (each[2], each[0], each[1])):
            setting, _, epochs = trial
            row = dict(zip(TRIAL, trial, strict=True)) | self.settings[setting]
            row |= self.done[trial]
            if epochs == self.rungs[-1]:
                row["status"] = FINISHED
            elif epochs not in self.went_on:
                row["status"] = WAITING
            elif setting in self.went_on[epochs]:
                row["status"] = WENT_ON
            else:
                row["status"] = STOPPED
            rows.append(row)
        return pd.DataFrame(rows)

    def _save(self) -> None:
        """Write all trials, with what others have written since; whole or not at all."""
        self._read()
        own = self.table().assign(key=self.key)
        parts = [part for part in (self.others, own) if len(part)]
        with paths.atomic_write(self.path) as unfinished:
            pd.concat(parts, ignore_index=True).to_csv(unfinished, index=False)


def _read_texts(path: Path) -> pd.DataFrame:
    """The rows of a file of trials, as they are written; another file is refused."""
    try:
        stored = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (pd.errors.EmptyDataError, pd.errors.ParserError) as error:
        raise ValueError(
            f"trials: found {path.name}, which is no table ({str(error).strip()}); "
            "wanted a CSV file of trials"
        ) from error
    absent = [name for name in ("key", *TRIAL, *MEASURED) if name not in stored]
    if absent:
        raise ValueError(
            f"trials: found {path.name} without the column {absent[0]!r}; "
            "wanted a CSV file of trials"
        )
    return stored


def _says(text: str, value: Any) -> bool:
    """Whether a text of a file is this value of a parameter."""
    if text == str(value):
        return True
    try:
        return float(text) == value
    except ValueError:
        return False


def _told(failed: Mapping[tuple[int, int, int], Exception]) -> str:
    """Which trials failed, and the last line of what the first of them says."""
    names = [f"setting {setting} with seed {seed}" for setting, seed, _ in failed]
    error = next(iter(failed.values()))
    lines = str(error).strip().splitlines() or [repr(error)]
    return f"{', '.join(names)}; the first by {lines[-1]}"


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
        losses = np.nan_to_num(history[column], nan=np.inf)
        kept = int(np.argmin(losses))
        if not np.isfinite(losses[kept]):
            raise ValueError(f"{model}: no epoch has a validation loss that is a number")
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


def main() -> None:
    """Search for the quick profile, and store what is best."""
    for name, options, model, fixed in QUICK:
        dataset = load_dataset(name, **options)
        record, _ = tune(dataset, model, n_samples=6, seeds=(0, 1), fixed=fixed)
        path = save_best("quick", dataset, model, record)
        print(path, name, dataset.source, model, record["value"])


if __name__ == "__main__":
    main()

"""Base models beside each other: how often they are right, and how large their sets are.

results/base_models.csv has a row per dataset, model, settings and training split.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from cfhelpers import conformal, paths
from cfhelpers.datasets import Dataset
from cfhelpers.datasets import split as split_rows
from cfhelpers.study import experiments, models, presets, scoring
from cfhelpers.study.stored_rows import add_rows, own_rows
from cfhelpers.study.workers import results

FILE = "base_models.csv"
SCORES = ("tps", "aps")
LARGEST_CLASS = "largest class"
COLUMNS = [
    "dataset",
    "attribute",
    "source",
    "model",
    "settings",
    "training_split",
    "valid_accuracy",
    "valid_log_loss",
    "test_accuracy",
    "test_log_loss",
    "tps_size",
    "aps_size",
    "splits",
    "key",
]
Candidate = tuple[str, Mapping[str, Any]]  # a model and its parameters


def credit_candidates(dataset: Dataset) -> list[Candidate]:
    """What is compared on Credit: graph models, features scaled or not, and XGBoost.

    Parameters
    ----------
    dataset : Dataset
        Credit.

    Returns
    -------
    list of (model, parameters)

    Examples
    --------
    >>> from cfhelpers import load_dataset
    >>> [model for model, _ in credit_candidates(load_dataset("credit"))][:3]
    ['xgboost', 'gcn', 'sage']
    """
    candidates: list[Candidate] = [("xgboost", presets.preset(dataset))]
    for is_scaled in (True, False):
        for model in ("gcn", "sage", "gat"):
            candidates.append((model, {"scaled": is_scaled}))
    return candidates


def path() -> Path:
    """The file of all rows.

    Returns
    -------
    Path
    """
    return paths.RESULTS / FILE


def compare(
    dataset: Dataset,
    candidates: Iterable[Candidate],
    training_splits: int = 3,
    splits: int = 10,
    *,
    jobs: int = 1,
    progress: bool = True,
) -> pd.DataFrame:
    """Accuracy, log loss and the size of conformal sets of several base models.

    Rows that are in results/base_models.csv for the same records, model and settings are
    read; the others are computed and added to the file at once.

    Parameters
    ----------
    dataset : Dataset
        With its graph, for the graph models.
    candidates : (model, parameters)
    training_splits : int
        Each has its own division of the rows and its own model.
    splits : int
        Re-splits, over which the sizes are means.
    jobs : int
        More than 1: models are trained beside each other, by Ray.
    progress : bool
        Whether a bar shows how far it is.

    Returns
    -------
    DataFrame
        The columns of COLUMNS, and a row for the largest class of every training split.
    """
    compared = [*candidates, (LARGEST_CLASS, {})]
    units = []
    keys = []
    for seed in range(training_splits):
        parts = split_rows(dataset, seed)
        for model, parameters in compared:
            units.append({"model": model, "parameters": parameters, "seed": seed})
            keys.append(
                experiments.rows_key(
                    dataset, parts, model, parameters, seed, {"splits": splits}
                )
            )
    missing = [i for i, key in enumerate(keys) if own_rows(path(), COLUMNS, key).empty]
    pending = [units[i] for i in missing]
    found = results(_row, pending, {"dataset": dataset, "splits": splits}, jobs)
    for place, row in tqdm(
        found, "base models", len(pending), disable=not progress, leave=False
    ):
        row |= {"key": keys[missing[place]]}
        add_rows(path(), pd.DataFrame([row], columns=COLUMNS), COLUMNS[:6])
    return pd.concat([own_rows(path(), COLUMNS, key) for key in keys], ignore_index=True)


def _row(
    dataset: Dataset, splits: int, model: str, parameters: Mapping[str, Any], seed: int
) -> dict[str, Any]:
    """One row of `compare`, without its key."""
    if model == LARGEST_CLASS:
        return largest_class(dataset, seed)
    return measure(dataset, split_rows(dataset, seed), model, parameters, seed, splits)


def measure(
    dataset: Dataset,
    parts: np.ndarray,
    model: str,
    parameters: Mapping[str, Any],
    seed: int,
    splits: int,
) -> dict[str, Any]:
    """A row of `compare`: one model of one training split.

    Parameters
    ----------
    dataset : Dataset
    parts : array of str, shape (n,)
    model : str
    parameters : mapping
    seed : int
        Of the model.
    splits : int

    Returns
    -------
    dict
    """
    base = models.base_model(
        dataset, parts, model, parameters=parameters, seed=seed, progress=False
    )
    row: dict[str, Any] = {
        "dataset": dataset.name,
        "attribute": dataset.attribute,
        "source": str(dataset.source),
        "model": model,
        "settings": json.dumps(dict(parameters)),
        "training_split": seed,
        "valid_accuracy": base.accuracy["valid"],
        "valid_log_loss": experiments.log_loss_of(dataset, base, "valid"),
        "test_accuracy": base.accuracy["test"],
        "test_log_loss": experiments.log_loss_of(dataset, base, "test"),
        "splits": splits,
    }
    for score in SCORES:
        sizes = [_size(dataset, base, score, split) for split in range(splits)]
        row[f"{score}_size"] = float(np.mean(sizes))
    return row


def _size(dataset: Dataset, base: models.BaseModel, score: str, split: int) -> float:
    """The mean size of the conformal sets of the test rows of one re-split."""
    scored = scoring.score_split(dataset, base.probs, base.parts, score, split)
    threshold = experiments.calibrate(dataset, scored, 0.1).base
    return conformal.efficiency(
        conformal.prediction_sets(scored.scores[scored.test], threshold)
    )


def largest_class(dataset: Dataset, seed: int) -> dict[str, Any]:
    """The accuracy of always naming the most frequent label of the training rows.

    Parameters
    ----------
    dataset : Dataset
    seed : int
        Of the training split.

    Returns
    -------
    dict
        A row like those of `measure`; there are no sets.
    """
    parts = split_rows(dataset, seed)
    label = np.bincount(dataset.y[parts == "train"]).argmax()
    row = {
        "dataset": dataset.name,
        "attribute": dataset.attribute,
        "source": str(dataset.source),
        "model": LARGEST_CLASS,
        "settings": "{}",
        "training_split": seed,
    }
    for part in ("valid", "test"):
        row[f"{part}_accuracy"] = float((dataset.y[parts == part] == label).mean())
    return row


def load() -> pd.DataFrame:
    """All rows that are stored.

    Returns
    -------
    DataFrame
        The columns of COLUMNS; no rows where nothing was run.
    """
    if not path().exists():
        return pd.DataFrame(columns=COLUMNS)
    return pd.read_csv(path(), dtype={"key": str})


def of_pokec() -> pd.DataFrame:
    """The rows of the real Pokec-n, of each model with the settings that came last.

    Returns
    -------
    DataFrame
        The columns of COLUMNS.

    Examples
    --------
    >>> set(of_pokec()["dataset"])
    {'pokec_n'}
    """
    rows = load().query("dataset == 'pokec_n' and source == 'local'")
    newest = rows.groupby("model")["settings"].transform("last")
    return rows[rows["settings"] == newest]

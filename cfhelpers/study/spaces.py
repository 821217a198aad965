"""The search spaces of Tab D1–D3, and settings drawn from them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from cfhelpers._checks import one_of, plain
from cfhelpers.datasets import Dataset
from cfhelpers.study.presets import TUNED

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
    >>> from cfhelpers import load_dataset
    >>> sorted(space("xgboost", load_dataset("credit")))[:3]
    ['colsample_bylevel', 'colsample_bynode', 'colsample_bytree']
    """
    one_of(model, "model", TUNED)
    whole = SPACES.get(model, SPACES["gnn"])
    rows = {name: row for name, row in whole.items() if _applies(name, model)}
    if "aggr" in rows:
        edges = edges_of(model, dataset)
        if not _fits_lstm(rows, len(dataset), dataset.X.shape[1], edges):
            rows["aggr"] = tuple(value for value in rows["aggr"] if value != "lstm")
    return rows


def _fits_lstm(rows: Space, n: int, n_features: int, edges: np.ndarray) -> bool:
    """Whether the widest layer of the space can have the lstm aggregator here."""
    from cfhelpers.gnn import LSTM_LIMIT

    _, *widths = rows["hidden_channels"]
    width = max(n_features, *widths)
    most = np.bincount(edges[0], minlength=1).max()
    return bool(n * most * width <= LSTM_LIMIT)


def edges_of(model: str, dataset: Dataset) -> np.ndarray:
    """The edges of a dataset that must have some for this model.

    Parameters
    ----------
    model : str
    dataset : Dataset

    Returns
    -------
    array of int, shape (2, E)
    """
    if dataset.edge_index is None:
        raise ValueError(
            f"model: found {model!r} for {dataset.name} without edges; "
            "load the dataset with its graph"
        )
    return dataset.edge_index


def _applies(name: str, kind: str) -> bool:
    """Whether a kind of layer has this hyperparameter."""
    return kind not in KINDS or ONLY.get(name, kind) == kind


def draw(rows: Space, n: int, seed: int = 0) -> list[dict[str, Any]]:
    """Settings of a space, drawn at random.

    The i-th setting is the same for every n.

    Parameters
    ----------
    rows : dict
        A space, as `space` gives it.
    n : int
    seed : int

    Returns
    -------
    list of dict
        The hyperparameters that apply, numbers to four digits, so that what is measured
        can be written down.

    Examples
    --------
    >>> draw(SPACES["gnn"], 1)[0]["layers"] in (1, 2, 4)
    True
    """
    settings = []
    for place in range(n):
        rng = np.random.default_rng([seed, place])
        sample = {name: _draw_one(rng, *row) for name, row in rows.items()}
        settings.append(_applicable(sample))
    return settings


def _draw_one(rng: np.random.Generator, law: str, *values: Any) -> Any:
    """A value of one hyperparameter."""
    if law == "choice":
        return values[rng.integers(len(values))]
    low, high = values
    if law == "integers":
        return rng.integers(low, high, endpoint=True)
    if law == "uniform":
        return rng.uniform(low, high)
    return np.exp(rng.uniform(np.log(low), np.log(high)))


def _applicable(sample: Mapping[str, Any]) -> dict[str, Any]:
    """What applies of a sample, numbers to four digits."""
    kind = sample.get("kind", "")
    parameters = {}
    for name, value in sample.items():
        if _applies(name, kind):
            value = plain(value)
            if isinstance(value, float):
                value = float(f"{value:.4g}")
            parameters[name] = value
    return parameters

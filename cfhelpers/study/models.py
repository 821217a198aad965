"""Base models: a dataset in, probabilities for every row out.

The method starts from these and never looks back.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from cfhelpers._cache import cached, fingerprint
from cfhelpers._checks import as_array, one_of
from cfhelpers.datasets import PARTS, Dataset
from cfhelpers.study import training
from cfhelpers.study.presets import PROFILES, XGBOOST, preset
from cfhelpers.study.training import MODELS, choose_device, default_parameters, train


@dataclass(frozen=True, eq=False)
class BaseModel:
    """A fitted model, as the method sees it.

    Attributes
    ----------
    model : str
        "xgboost", "gcn", "sage" or "gat".
    parameters : dict
        What it was fitted with, beside its defaults.
    seed : int
        Of its own random choices.
    probs : array of float32, shape (n, K)
        For every row.
    parts : array of str, shape (n,)
        The part of every row.
    accuracy : dict of str to float
        By part.
    seconds : float
        That the training took.
    history : DataFrame
        A row per epoch or tree: loss, and accuracy on the validation rows.
    """

    model: str
    parameters: dict[str, Any]
    seed: int
    probs: np.ndarray = field(repr=False)
    parts: np.ndarray = field(repr=False)
    accuracy: dict[str, float]
    seconds: float
    history: pd.DataFrame = field(repr=False)


def base_model(
    dataset: Dataset,
    parts: ArrayLike,
    model: str | None = None,
    *,
    profile: str = "quick",
    parameters: Mapping[str, Any] | None = None,
    seed: int = 0,
    device: str | None = None,
    progress: bool = True,
) -> BaseModel:
    """The base model of a dataset, fitted, or read from artifacts/.

    Parameters
    ----------
    dataset : Dataset
        With its graph, for the graph models.
    parts : array of str, shape (n,)
        The part of every row, as `datasets.split` gives it: "train" fits, "valid" says
        when to stop.
    model : {"xgboost", "gcn", "sage", "gat"}, optional
        None: XGBoost for a dataset with a preset for it, else the graph model with the
        best validation accuracy.
    profile : {"quick", "paper"}
        Whose preset to take where no parameters are given.
    parameters : mapping, optional
        See `training.train`; None: those of `presets.preset`.
    seed : int
        Of the model's own random choices.
    device : str, optional
        "cpu", "cuda" …; None: a GPU when there is one.
    progress : bool
        Whether a bar shows how far the training is.

    Returns
    -------
    BaseModel
    """
    one_of(profile, "profile", PROFILES)
    if model is None and dataset.name not in XGBOOST[profile]:
        return _best_graph_model(
            dataset,
            parts,
            profile=profile,
            parameters=parameters,
            seed=seed,
            device=device,
            progress=progress,
        )
    model = one_of(model or "xgboost", "model", MODELS)
    if parameters is None:
        parameters = preset(dataset, model, profile)
    device = device or choose_device(model)
    parts = as_array(parts)

    def compute() -> dict[str, np.ndarray]:
        start = time.perf_counter()
        probs, history = train(
            dataset, parts, model, parameters, seed=seed, device=device, progress=progress
        )
        duration = np.array(time.perf_counter() - start)
        return {"probs": probs, "duration": duration} | history

    key = _model_key(dataset, parts, model, parameters, seed, device)
    stored = cached(f"{dataset.name}-{model}", key, compute, code=training.__name__)
    probs = stored.pop("probs")
    seconds = float(stored.pop("duration"))
    return BaseModel(
        model=model,
        parameters=dict(parameters),
        seed=seed,
        probs=probs,
        parts=parts,
        accuracy=_accuracy_by_part(probs, dataset.y, parts),
        seconds=seconds,
        history=pd.DataFrame(stored),
    )


def _best_graph_model(dataset: Dataset, parts: ArrayLike, **options: Any) -> BaseModel:
    """Of the graph models the one with the best validation accuracy."""
    candidates = []
    for name in MODELS[1:]:
        candidates.append(base_model(dataset, parts, name, **options))
    return max(candidates, key=lambda candidate: candidate.accuracy["valid"])


def _model_key(
    dataset: Dataset,
    parts: np.ndarray,
    model: str,
    parameters: Mapping[str, Any],
    seed: int,
    device: str,
) -> dict[str, Any]:
    """All that the probabilities of a base model depend on, its code apart."""
    if model == "xgboost":
        content = fingerprint(dataset.X, dataset.y)
        library = "xgboost"
    else:
        content = fingerprint(dataset.X, dataset.y, dataset.edge_index)
        library = "torch"
    return {
        "data": dataset.name,
        "source": dataset.source,
        "content": content,
        "parts": fingerprint(parts),
        "model": model,
        "parameters": default_parameters(model) | dict(parameters),
        "seed": seed,
        "device": device.split(":")[0],
        library: version(library),
    }


def _accuracy_by_part(
    probs: np.ndarray, y: np.ndarray, parts: np.ndarray
) -> dict[str, float]:
    """The share of rows whose most probable label is the true one, by part."""
    right = probs.argmax(axis=1) == y
    return {part: float(right[parts == part].mean()) for part in PARTS}

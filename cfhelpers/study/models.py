"""Base models: a dataset in, probabilities for every row out; the method starts from these and never looks back."""

import shutil
import subprocess
import time
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from cfhelpers._cache import cached, fingerprint
from cfhelpers._checks import as_array, one_of
from cfhelpers.datasets import PARTS, Dataset, split
from cfhelpers.study.presets import MODELS, NAMES, PROFILES, XGBOOST, preset

PATIENCE = 20  # trees without a better validation loss


@dataclass(frozen=True, eq=False)
class BaseModel:
    """A fitted model, as the method sees it: probabilities float32 (n, K) and the part of every row, str (n,)."""

    model: str
    parameters: dict[str, Any]
    seed: int
    probs: np.ndarray = field(repr=False)
    parts: np.ndarray = field(repr=False)
    accuracy: dict[str, float]
    seconds: float
    history: pd.DataFrame = field(
        repr=False
    )  # a row per epoch or tree: loss, accuracy on the validation rows


def base_model(
    dataset: Dataset,
    model: str | None = None,
    *,
    profile: str = "quick",
    parameters: dict[str, Any] | None = None,
    seed: int = 0,
    parts: np.ndarray | None = None,
    device: str | None = None,
    progress: bool = True,
) -> BaseModel:
    """The base model of a dataset, fitted, or read from artifacts/; `seed` splits its rows, unless `parts` says how.

    Without a name: XGBoost for a dataset with a preset for it, else the graph model with the best validation accuracy.
    """
    one_of(profile, "profile", PROFILES)
    if model is None and dataset.name not in XGBOOST[profile]:
        options = {
            "profile": profile,
            "parameters": parameters,
            "seed": seed,
            "parts": parts,
        }
        options |= {"device": device, "progress": progress}
        return max(
            (base_model(dataset, name, **options) for name in MODELS[1:]),
            key=lambda m: m.accuracy["valid"],
        )
    model = one_of(model or "xgboost", "model", MODELS)
    parameters = preset(dataset, model, profile) if parameters is None else parameters
    parts, device = (
        split(dataset, seed) if parts is None else as_array(parts),
        device or _device(model),
    )
    library = "xgboost" if model == "xgboost" else "torch"
    defaults = (
        {"patience": PATIENCE}
        if model == "xgboost"
        else import_module("cfhelpers.gnn").DEFAULTS
    )
    key = {
        "data": dataset.name,
        "source": dataset.source,
        "content": fingerprint(
            dataset.X, dataset.y, *([] if model == "xgboost" else [dataset.edge_index])
        ),
        "parts": fingerprint(parts),
        "model": model,
        "parameters": defaults | parameters,
        "seed": seed,
        "device": device.split(":")[0],
        library: version(library),
    }

    def compute():
        start = time.perf_counter()
        probs, history = train(
            dataset, parts, model, parameters, seed=seed, device=device, progress=progress
        )
        return {
            "probs": probs,
            "duration": np.array(time.perf_counter() - start),
        } | history

    stored = cached(f"{dataset.name}-{model}", key, compute)
    probs, seconds = stored.pop("probs"), float(stored.pop("duration"))
    right = probs.argmax(axis=1) == dataset.y
    accuracy = {part: float(right[parts == part].mean()) for part in PARTS}
    return BaseModel(
        model, parameters, seed, probs, parts, accuracy, seconds, pd.DataFrame(stored)
    )


def train(
    dataset: Dataset,
    parts: np.ndarray,
    model: str,
    parameters: dict[str, Any],
    *,
    seed: int = 0,
    device: str | None = None,
    progress: bool = False,
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Fit on the "train" rows, stop by the "valid" rows; probabilities, float32 (n, K), and the history."""
    parts = as_array(parts)
    rows = [int((parts == part).sum()) for part in PARTS[:2]]
    if len(parts) != len(dataset) or not all(rows):
        found = f"{len(parts)} parts for {len(dataset)} rows, {rows[0]} 'train', {rows[1]} 'valid'"
        raise ValueError(
            f"parts: found {found}; wanted one for each row, and some of both"
        )
    if one_of(model, "model", MODELS) == "xgboost":
        return _xgboost(
            dataset, parts, parameters, seed, device or _device(model), progress
        )
    from cfhelpers import gnn

    if dataset.edge_index is None:
        raise ValueError(
            f"model: found {model!r} for {dataset.name} without edges; wanted 'xgboost', or its graph"
        )
    options = {"seed": seed, "device": device, "progress": progress}
    return gnn.fit(
        dataset.X,
        dataset.y,
        dataset.edge_index,
        parts,
        dataset.n_classes,
        model,
        parameters,
        **options,
    )


def _xgboost(dataset, parts, parameters, seed, device, progress):
    import xgboost

    if unknown := set(parameters) - set(NAMES):
        raise ValueError(
            f"parameters: found {sorted(unknown)[0]!r}; wanted some of {', '.join(NAMES)}"
        )

    class Bar(xgboost.callback.TrainingCallback):
        def after_iteration(self, model, epoch, log):
            log = log["validation_0"]
            bar.set_postfix(
                loss=f"{log['mlogloss'][-1]:.3f}",
                valid=f"{1 - log['merror'][-1]:.3f}",
                refresh=False,
            )
            bar.update()

    X, y, fit, valid = (
        dataset.X.to_numpy(np.float32),
        dataset.y,
        parts == "train",
        parts == "valid",
    )
    if (labels := np.unique(y[fit]).tolist()) != (
        wanted := list(range(dataset.n_classes))
    ):
        raise ValueError(
            f"parts: found labels {labels} in the 'train' rows; wanted {wanted}"
        )
    with tqdm(
        total=parameters.get("n_estimators", 100),
        desc="training xgboost",
        disable=not progress,
        leave=False,
    ) as bar:
        model = xgboost.XGBClassifier(
            **parameters,
            objective="multi:softprob",
            tree_method="hist",
            eval_metric=["merror", "mlogloss"],
            early_stopping_rounds=PATIENCE,
            callbacks=[Bar()],
            random_state=seed,
            device=device,
        )
        model.fit(X[fit], y[fit], eval_set=[(X[valid], y[valid])], verbose=False)
    log = model.evals_result()["validation_0"]
    history = {
        "epoch": np.arange(len(log["merror"])),
        "loss": log["mlogloss"],
        "held_out": 1 - np.array(log["merror"]),
    }
    return model.predict_proba(X), {
        name: np.asarray(values, float) for name, values in history.items()
    }


@cache
def _device(model: str) -> str:
    """ "cuda" when there is a GPU that the model's library can use."""
    if model != "xgboost":
        from cfhelpers import gnn

        return gnn.choose_device().type
    import xgboost

    smi = shutil.which("nvidia-smi")
    listed = smi and subprocess.run(
        [smi, "-L"], capture_output=True, text=True
    ).stdout.startswith("GPU")
    return "cuda" if listed and xgboost.build_info().get("USE_CUDA") else "cpu"

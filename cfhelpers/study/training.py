"""Training of the base models: XGBoost on tables, graph networks on graphs."""

import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from tqdm.auto import tqdm

from cfhelpers._checks import as_array, one_of
from cfhelpers.datasets import PARTS, Dataset

MODELS = ("xgboost", "gcn", "sage", "gat")
XGBOOST_PARAMETERS = (
    "learning_rate",
    "n_estimators",
    "max_depth",
    "gamma",
    "colsample_bytree",
    "colsample_bylevel",
    "colsample_bynode",
    "subsample",
)
PATIENCE = 20  # trees without a better validation loss


def train(
    dataset: Dataset,
    parts: ArrayLike,
    model: str,
    parameters: Mapping[str, Any],
    *,
    seed: int = 0,
    device: str | None = None,
    epochs: int | None = None,
    progress: bool = False,
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Fit a model on the "train" rows and stop by the "valid" rows.

    Labels of other rows have no influence.

    Parameters
    ----------
    dataset : Dataset
        With its graph, for the graph models.
    parts : array of str, shape (n,)
        The part of every row, as `datasets.split` gives it.
    model : {"xgboost", "gcn", "sage", "gat"}
    parameters : mapping
        Some of `XGBOOST_PARAMETERS`, or of `gnn.DEFAULTS`.
    seed : int
        Of the model's own random choices.
    device : str, optional
        "cpu", "cuda" …; None: a GPU when there is one.
    epochs : int, optional
        Of a graph model, at most; None: as many as `gnn.fit` takes by itself.
    progress : bool
        Whether a bar shows how far it is.

    Returns
    -------
    probs : array of float32, shape (n, K)
        For all rows.
    history : dict of str to array
        An entry per epoch or tree: "epoch", "loss" and "held_out", the validation
        accuracy; for graph models "valid_loss" and "seconds" too.
    """
    parts = as_array(parts)
    _check_parts(parts, len(dataset))
    if one_of(model, "model", MODELS) == "xgboost":
        return _fit_xgboost(
            dataset, parts, parameters, seed, device or choose_device(model), progress
        )
    if dataset.edge_index is None:
        raise ValueError(
            f"model: found {model!r} for {dataset.name} without edges; "
            "wanted 'xgboost', or its graph"
        )
    from cfhelpers import gnn

    limit = {} if epochs is None else {"epochs": epochs}
    return gnn.fit(
        dataset.X,
        dataset.y,
        dataset.edge_index,
        parts,
        dataset.n_classes,
        model,
        parameters,
        seed=seed,
        device=device,
        progress=progress,
        **limit,
    )


def default_parameters(model: str) -> dict[str, Any]:
    """What holds for a model where nothing else is said.

    Parameters
    ----------
    model : {"xgboost", "gcn", "sage", "gat"}

    Returns
    -------
    dict
        By name.

    Examples
    --------
    >>> default_parameters("xgboost")
    {'patience': 20}
    """
    if model == "xgboost":
        return {"patience": PATIENCE}
    from cfhelpers import gnn

    return dict(gnn.DEFAULTS)


@cache
def choose_device(model: str) -> str:
    """The device on which a model is trained: "cuda" where its library can use a GPU.

    Parameters
    ----------
    model : {"xgboost", "gcn", "sage", "gat"}

    Returns
    -------
    str
        "cuda" or "cpu".
    """
    if model != "xgboost":
        from cfhelpers import gnn

        return gnn.choose_device().type
    import xgboost

    if _lists_a_gpu() and xgboost.build_info().get("USE_CUDA"):
        return "cuda"
    return "cpu"


def _lists_a_gpu() -> bool:
    """Whether NVIDIA's own tool is here and knows of a GPU."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return False
    found = subprocess.run([tool, "-L"], capture_output=True, text=True)
    return found.stdout.startswith("GPU")


def _check_parts(parts: np.ndarray, n: int) -> None:
    """Refuse parts that do not fit n rows or leave nothing to learn from."""
    n_train = int((parts == PARTS[0]).sum())
    n_valid = int((parts == PARTS[1]).sum())
    if len(parts) != n or not n_train or not n_valid:
        found = f"{len(parts)} parts for {n} rows, {n_train} 'train', {n_valid} 'valid'"
        raise ValueError(
            f"parts: found {found}; wanted one for each row, and some of both"
        )


def _check_labels(y: np.ndarray, n_classes: int) -> None:
    """Refuse training rows that lack a label, or have none."""
    labels = np.unique(y).tolist()
    wanted = list(range(n_classes))
    if labels != wanted:
        raise ValueError(
            f"parts: found labels {labels} in the 'train' rows; wanted {wanted}"
        )


def _fit_xgboost(
    dataset: Dataset,
    parts: np.ndarray,
    parameters: Mapping[str, Any],
    seed: int,
    device: str,
    progress: bool,
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Probabilities of all rows by the best number of trees, and the history."""
    import xgboost

    unknown = sorted(set(parameters) - set(XGBOOST_PARAMETERS))
    if unknown:
        raise ValueError(
            f"parameters: found {unknown[0]!r}; "
            f"wanted some of {', '.join(XGBOOST_PARAMETERS)}"
        )
    X = dataset.X.to_numpy(np.float32)
    y = dataset.y
    fit = parts == "train"
    valid = parts == "valid"
    _check_labels(y[fit], dataset.n_classes)
    bar = tqdm(
        total=parameters.get("n_estimators", 100),
        desc="training xgboost",
        disable=not progress,
        leave=False,
    )

    class Bar(xgboost.callback.TrainingCallback):
        """Shows loss and accuracy on the validation rows."""

        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            log = evals_log["validation_0"]
            loss = f"{log['mlogloss'][-1]:.3f}"
            accuracy = f"{1 - log['merror'][-1]:.3f}"
            bar.set_postfix(loss=loss, valid=accuracy, refresh=False)
            bar.update()
            return False

    with bar:
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
    return model.predict_proba(X), _xgboost_history(model.evals_result())


def _xgboost_history(results: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """An entry per tree: loss and accuracy on the validation rows."""
    log = results["validation_0"]
    errors = np.array(log["merror"], float)
    return {
        "epoch": np.arange(len(errors), dtype=float),
        "loss": np.array(log["mlogloss"], float),
        "held_out": 1 - errors,
    }

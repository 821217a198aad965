"""Every score on one split of a dataset, and the tuning of RAPS and DAPS."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cfhelpers._checks import as_array, as_probabilities, as_scores, one_of
from cfhelpers.datasets import Dataset, resplit, tune_halves
from cfhelpers.graph_scores import STREAM, cfgnn, held_out_size, mix, neighbour_mean
from cfhelpers.scores import aps, raps, tps

SCORES = ("tps", "aps", "raps", "daps", "cfgnn")
DIFFUSIONS = tuple(np.round(np.linspace(0.05, 1, 20), 2).tolist())
PENALTIES = (0.001, 0.01, 0.05, 0.1, 0.2, 0.5)


@dataclass(frozen=True, eq=False)
class ScoredSplit:
    """Scores (n, K) of every row, the rows that give q̂ and λ, the rows to report on, and what was chosen by tuning."""

    score: str
    scores: np.ndarray = field(repr=False)
    calibration: np.ndarray = field(repr=False)
    test: np.ndarray = field(repr=False)
    chosen: dict[str, Any]


def score_split(
    dataset: Dataset,
    probs: Any,
    parts: np.ndarray,
    score: str,
    seed: int,
    *,
    alpha: float = 0.1,
    **options: Any,
) -> ScoredSplit:
    """Divide calibration and test anew by `seed` and score every row; u is one number per row, drawn by `seed` too.

    TPS and APS calibrate on the whole calibration part; RAPS, DAPS and CFGNN give half of it to their tuning. `options`
    are those of `cfgnn`.
    """
    one_of(score, "score", SCORES)
    if (probs := as_probabilities(probs)).shape != (
        wanted := (len(dataset), dataset.n_classes)
    ):
        raise ValueError(
            f"probabilities: found shape {probs.shape}; {dataset.name} wants {wanted}"
        )
    if score in ("daps", "cfgnn") and dataset.edge_index is None:
        raise ValueError(
            f"score: found {score!r} for {dataset.name} without edges; load the dataset with its graph"
        )
    parts = resplit(dataset, parts, seed)
    test, u = (
        np.flatnonzero(parts == "test"),
        np.random.default_rng([seed, STREAM]).random(len(dataset)),
    )
    chosen = {}
    if score in ("raps", "daps", "cfgnn"):
        parts = tune_halves(dataset, parts, seed)
        tune, y = np.flatnonzero(parts == "tune"), dataset.y
    if score == "tps":
        values = tps(probs)
    elif score == "aps":
        values = aps(probs, u)
    elif score == "raps":
        chosen = tune_raps(probs[tune], y[tune], u[tune], alpha)
        values = raps(probs, u, **chosen)
    elif score == "daps":
        values, chosen = tune_daps(aps(probs, u), y, dataset.edge_index, tune, alpha)
    else:
        adjusted, chosen = cfgnn(
            probs, y, dataset.edge_index, tune, alpha=alpha, seed=seed, **options
        )
        values = aps(adjusted, u)
    return ScoredSplit(
        score, values, np.flatnonzero(parts == "calibration"), test, chosen
    )


def _smallest(
    candidates: Iterable[dict], score: Callable, y: np.ndarray, alpha: float
) -> dict:
    """The candidate whose scores give the smallest sets; the first of equals."""
    return min(
        candidates, key=lambda candidate: held_out_size(score(**candidate), y, alpha)
    )


def tune_raps(
    probs: Any, y: Any, u: Any, alpha: float = 0.1, penalties=PENALTIES
) -> dict[str, float]:
    """The penalty and k_reg of RAPS that give the smallest sets on these rows."""
    n_classes = as_array(probs).shape[1]
    candidates = (
        {"penalty": penalty, "k_reg": k}
        for k in range(1, n_classes)
        for penalty in penalties
    )
    return _smallest(
        candidates, lambda **candidate: raps(probs, u, **candidate), as_array(y), alpha
    )


def tune_daps(
    scores: Any,
    y: Any,
    edge_index: Any,
    tune: np.ndarray,
    alpha: float = 0.1,
    diffusions: Iterable[float] = DIFFUSIONS,
) -> tuple[np.ndarray, dict[str, float]]:
    """DAPS with the δ that gives the smallest sets on the rows `tune`: scores (n, K), and the choice.

    Each candidate is one diffusion of the same scores, never of scores that were diffused before.
    """
    scores, y = as_scores(scores), as_array(y)[tune]
    means = neighbour_mean(edge_index, len(scores)) @ scores
    candidates = ({"diffusion": diffusion} for diffusion in diffusions)
    chosen = _smallest(
        candidates, lambda diffusion: mix(scores[tune], means[tune], diffusion), y, alpha
    )
    return mix(scores, means, **chosen), chosen

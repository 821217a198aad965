"""Every score on one split of a dataset, and the tuning of RAPS and DAPS."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cfhelpers._checks import as_array, as_probabilities, as_scores, one_of
from cfhelpers.datasets import Dataset, resplit, tune_halves
from cfhelpers.graph_scores import STREAM, cfgnn, held_out_size, mix, neighbour_mean
from cfhelpers.scores import aps, raps, tps

SCORES = ("tps", "aps", "raps", "daps", "cfgnn")
TUNED_SCORES = ("raps", "daps", "cfgnn")
DIFFUSIONS = tuple(np.round(np.linspace(0.05, 1, 20), 2).tolist())
PENALTIES = (0.001, 0.01, 0.05, 0.1, 0.2, 0.5)


@dataclass(frozen=True, eq=False)
class ScoredSplit:
    """One split of a dataset, with the scores of every row.

    Attributes
    ----------
    score : str
    scores : array, shape (n, K)
        Of every row.
    calibration, test : array of int
        The rows that give q̂ and λ, and the rows to report on.
    chosen : dict
        What tuning chose; empty where there is nothing to choose.
    """

    score: str
    scores: np.ndarray = field(repr=False)
    calibration: np.ndarray = field(repr=False)
    test: np.ndarray = field(repr=False)
    chosen: dict[str, Any]


def score_split(
    dataset: Dataset,
    probs: ArrayLike,
    parts: np.ndarray,
    score: str,
    seed: int,
    *,
    alpha: float = 0.1,
    **options: Any,
) -> ScoredSplit:
    """Divide calibration and test rows anew, and score every row.

    TPS and APS calibrate on the whole calibration part; RAPS, DAPS and CFGNN give half of
    it to their tuning.

    Parameters
    ----------
    dataset : Dataset
        With its graph, for DAPS and CFGNN.
    probs : array, shape (n, K)
    parts : array of str, shape (n,)
        As `datasets.split` gives it.
    score : {"tps", "aps", "raps", "daps", "cfgnn"}
    seed : int
        Draws the division and u, one number per row.
    alpha : float
        The miscoverage that tuning looks at.
    **options
        Those of `graph_scores.cfgnn`.

    Returns
    -------
    ScoredSplit

    Examples
    --------
    >>> from cfhelpers.datasets import credit_probabilities, load_dataset
    >>> probs, parts = credit_probabilities()
    >>> scored = score_split(load_dataset("credit"), probs, parts, "tps", seed=0)
    >>> scored.scores.shape, len(scored.calibration), len(scored.test)
    ((30000, 4), 7501, 7500)
    """
    one_of(score, "score", SCORES)
    probs = as_probabilities(probs)
    wanted = (len(dataset), dataset.n_classes)
    if probs.shape != wanted:
        raise ValueError(
            f"probabilities: found shape {probs.shape}; {dataset.name} wants {wanted}"
        )
    parts = resplit(dataset, parts, seed)
    if score in TUNED_SCORES:
        parts = tune_halves(dataset, parts, seed)
    tune = np.flatnonzero(parts == "tune")
    u = np.random.default_rng([seed, STREAM]).random(len(dataset))
    y = dataset.y
    chosen: dict[str, Any] = {}
    if score == "tps":
        values = tps(probs)
    elif score == "aps":
        values = aps(probs, u)
    elif score == "raps":
        chosen = tune_raps(probs[tune], y[tune], u[tune], alpha)
        values = raps(probs, u, **chosen)
    elif score == "daps":
        edges = _edges_for(score, dataset)
        values, chosen = tune_daps(aps(probs, u), y, edges, tune, alpha)
    else:
        edges = _edges_for(score, dataset)
        adjusted, chosen = cfgnn(probs, y, edges, tune, alpha=alpha, seed=seed, **options)
        values = aps(adjusted, u)
    return ScoredSplit(
        score=score,
        scores=values,
        calibration=np.flatnonzero(parts == "calibration"),
        test=np.flatnonzero(parts == "test"),
        chosen=chosen,
    )


def _edges_for(score: str, dataset: Dataset) -> np.ndarray:
    """The edges of a dataset that must have some for this score."""
    if dataset.edge_index is None:
        raise ValueError(
            f"score: found {score!r} for {dataset.name} without edges; "
            "load the dataset with its graph"
        )
    return dataset.edge_index


def tune_raps(
    probs: ArrayLike,
    y: ArrayLike,
    u: ArrayLike,
    alpha: float = 0.1,
    penalties: Iterable[float] = PENALTIES,
) -> dict[str, Any]:
    """The penalty and k_reg of RAPS that give the smallest sets on these rows.

    Parameters
    ----------
    probs : array, shape (n, K)
    y : array of int, shape (n,)
        True labels.
    u : array, shape (n,)
        One number in [0, 1] per row.
    alpha : float
        Miscoverage.
    penalties : numbers
        To try, each with every k_reg below K.

    Returns
    -------
    dict
        "penalty" and "k_reg"; the first of equals.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> probs = rng.dirichlet(np.ones(3), 200)
    >>> sorted(tune_raps(probs, probs.argmax(axis=1), rng.random(200)))
    ['k_reg', 'penalty']
    """
    n_classes = as_array(probs).shape[1]
    labels = as_array(y)
    penalties = list(penalties)
    chosen: dict[str, Any] = {}
    smallest = np.inf
    for k_reg in range(1, n_classes):
        for penalty in penalties:
            values = raps(probs, u, penalty=penalty, k_reg=k_reg)
            size = held_out_size(values, labels, alpha)
            if not chosen or size < smallest:
                smallest = size
                chosen = {"penalty": penalty, "k_reg": k_reg}
    return chosen


def tune_daps(
    scores: ArrayLike,
    y: ArrayLike,
    edge_index: ArrayLike,
    tune: np.ndarray,
    alpha: float = 0.1,
    diffusions: Iterable[float] = DIFFUSIONS,
) -> tuple[np.ndarray, dict[str, float]]:
    """DAPS with the δ that gives the smallest sets on some rows.

    Each candidate is one diffusion of the same scores, never of scores that were diffused
    before.

    Parameters
    ----------
    scores : array, shape (n, K)
    y : array of int, shape (n,)
        Labels; those outside `tune` are not looked at.
    edge_index : array of int, shape (2, E)
    tune : array of int
        The rows that choose.
    alpha : float
        Miscoverage.
    diffusions : numbers
        The δ to try.

    Returns
    -------
    scores : array, shape (n, K)
    chosen : dict
        "diffusion"; the first of equals.

    Examples
    --------
    >>> scores = np.random.default_rng(0).random((6, 2))
    >>> edges = np.array([[0, 1, 2], [3, 4, 5]])
    >>> values, chosen = tune_daps(scores, np.zeros(6, int), edges, np.arange(6))
    >>> values.shape, sorted(chosen)
    ((6, 2), ['diffusion'])
    """
    scores = as_scores(scores)
    labels = as_array(y)[tune]
    means = neighbour_mean(edge_index, len(scores)) @ scores
    chosen: dict[str, float] = {}
    smallest = np.inf
    for diffusion in diffusions:
        values = mix(scores[tune], means[tune], diffusion)
        size = held_out_size(values, labels, alpha)
        if not chosen or size < smallest:
            smallest = size
            chosen = {"diffusion": diffusion}
    return mix(scores, means, **chosen), chosen

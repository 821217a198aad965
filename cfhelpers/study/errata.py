"""The bugs of the authors' release, each behind a switch, and the open choices of CFGNN.

Each bug is a small function that does what the release does. Its docstring names the
correct function that it replaces. What the switches move is measured in `errata_runs`;
nothing else imports this module.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from cfhelpers._checks import as_float_column, as_fraction, one_of
from cfhelpers.conformal import conformal_quantile
from cfhelpers.datasets import Dataset, resplit, tune_halves
from cfhelpers.graph_scores import (
    CFGNN,
    STREAM,
    cfgnn,
    held_out_size,
    mix,
    neighbour_mean,
)
from cfhelpers.groups import as_groups
from cfhelpers.scores import aps
from cfhelpers.study import batch_gcp, cfgnn_settings, presets
from cfhelpers.study.errata_cfgnn import MOST_LAYERS, cfgnn_in_batches
from cfhelpers.study.scoring import DIFFUSIONS, ScoredSplit, _edges_for, score_split

LOOPS_AT_LOADING = 1  # the release adds loops when it loads a graph, too
# How the release's solver of BatchGCP takes its steps, and when it stops.
LEARNING_RATE = 0.05
MOMENTUM = 0.5
BATCH = 2048
TRAINING_SHARE = 0.8
PATIENCE = 50  # epochs
LEAST_IMPROVEMENT = 0.001
# What these switches change in `graph_scores.cfgnn`.
CFGNN_OPTIONS: dict[str, dict[str, Any]] = {
    "shortcut": {"variant": "shortcut"},
    "last_epoch": {"keep": "last"},
    "longer_training": {"epochs": 900, "patience": 900},
    "shorter_training": {"epochs": 100, "warm_up": 33, "patience": 33},
}


@dataclass(frozen=True)
class Errata:
    """Which bugs, and which choices in CFGNN, are on; `str()` names them.

    Without any, CFGNN is as published: trained anew for every re-split, on the whole
    graph, and kept as at its best epoch.

    Attributes
    ----------
    quantile : bool
        q̂ is one order statistic too high: `quantile_one_rank_up`.
    self_loops : bool
        A node is among its own neighbours, once more after every re-split:
        `with_loops`.
    composed_tuning : bool
        DAPS tries each diffusion on scores that the ones before have diffused:
        `composed_candidates`.
    halves_by_index : bool
        The first half of the tuning rows gives the threshold and the second half the
        sizes: `size_by_index`.
    early_gcp : bool
        BatchGCP's solver stops before it has converged: `fit_stopped_early`.
    unlabelled_at_minus_one : bool
        Unlabelled nodes have probabilities of −1: `unlabelled_at_minus_one`.
    shortcut : bool
        CFGNN adds to the logarithms of the base probabilities.
    last_epoch : bool
        CFGNN is kept as at its last epoch.
    longer_training, shorter_training : bool
        CFGNN is trained three times as long, or a third of it.
    trained_once : bool
        CFGNN learns from the tuning rows of re-split 0, and is used for all re-splits.
    batches : bool
        CFGNN is a GCN that is trained and run in batches of nodes, with the degrees of
        the graph: `errata_cfgnn.cfgnn_in_batches`. The other side of `block_degrees`.
    block_degrees : bool
        The same with degrees counted inside a batch.

    Examples
    --------
    >>> print(Errata(self_loops=True, composed_tuning=True))
    self_loops + composed_tuning
    >>> print(Errata())
    none
    """

    quantile: bool = False
    self_loops: bool = False
    composed_tuning: bool = False
    halves_by_index: bool = False
    early_gcp: bool = False
    unlabelled_at_minus_one: bool = False
    shortcut: bool = False
    last_epoch: bool = False
    longer_training: bool = False
    shorter_training: bool = False
    trained_once: bool = False
    batches: bool = False
    block_degrees: bool = False

    @property
    def names(self) -> list[str]:
        """The switches that are on."""
        return [field.name for field in fields(self) if getattr(self, field.name)]

    def __str__(self) -> str:
        return " + ".join(self.names) or "none"


def alone() -> list[Errata]:
    """Each switch alone.

    Returns
    -------
    list of Errata

    Examples
    --------
    >>> [str(errata) for errata in alone()[:2]]
    ['quantile', 'self_loops']
    """
    return [Errata(**{field.name: True}) for field in fields(Errata)]


def quantile_one_rank_up(scores: ArrayLike, alpha: float) -> float:
    """The release's q̂: the order statistic after the right one, and never infinite.

    The right one is `conformal.conformal_quantile`, the k-th smallest of n scores. The
    release asks for the quantile at level k/n "or higher". That lies between the k-th and
    the (k + 1)-th score, so it gets the latter. Where k ≥ n it gets the largest score.

    Parameters
    ----------
    scores : numbers (n,)
        The score of the true label of every calibration point.
    alpha : float in (0, 1)

    Returns
    -------
    float
        One of the scores.

    Examples
    --------
    >>> scores = [0.1, 0.2, 0.3, 0.4]
    >>> conformal_quantile(scores, alpha=0.5), quantile_one_rank_up(scores, alpha=0.5)
    (0.3, 0.4)
    >>> conformal_quantile(scores, alpha=0.1), quantile_one_rank_up(scores, alpha=0.1)
    (inf, 0.4)
    """
    ordered = np.sort(as_float_column(scores, "scores"))
    n = len(ordered)
    right_rank = conformal_quantile(np.arange(1, n + 1), alpha)
    rank = int(min(right_rank + 1, n))
    return float(ordered[rank - 1])


def with_loops(averaging: sparse.csr_array, loops: int) -> sparse.csr_array:
    """The matrix that averages over neighbours and, several times, the node itself.

    The right one is `graph_scores.neighbour_mean`. The release adds a loop to every node
    when it loads the graph and another with every re-split, and removes none.

    Parameters
    ----------
    averaging : sparse array, shape (n, n)
        The mean over neighbours, of `graph_scores.neighbour_mean`.
    loops : int
        How often a node is among its own neighbours, from 1.

    Returns
    -------
    sparse array, shape (n, n)

    Examples
    --------
    >>> with_loops(neighbour_mean([[0], [1]], 3), loops=3).toarray()
    array([[0.75, 0.25, 0.  ],
           [0.25, 0.75, 0.  ],
           [0.  , 0.  , 1.  ]])
    """
    if loops < 1:
        raise ValueError(f"loops: found {loops!r}; wanted an integer from 1")
    degrees = np.diff(averaging.indptr)
    own_weight = loops / (degrees + loops)
    neighbours = sparse.diags_array(1 - own_weight) @ averaging
    return (neighbours + sparse.diags_array(own_weight)).tocsr()


def unlabelled_at_minus_one(
    scores: np.ndarray, y: np.ndarray, u: np.ndarray
) -> np.ndarray:
    """APS scores in which the unlabelled rows have a probability of −1 for every label.

    The right ones are `scores.aps` of the model's probabilities, for every row. The
    release predicts for labelled nodes only and leaves −1 for the others. The label that
    is ranked r-th then has the score −r + u. DAPS mixes these into the scores of labelled
    neighbours. All labels tie; they are taken in their order here.

    Parameters
    ----------
    scores : array, shape (n, K)
        APS scores of every row.
    y : array of int, shape (n,)
        −1 for unlabelled rows.
    u : array, shape (n,)
        One number in [0, 1] per row.

    Returns
    -------
    array, shape (n, K)

    Examples
    --------
    >>> scores = np.array([[0.5, 0.75], [0.5, 0.75]])
    >>> unlabelled_at_minus_one(scores, np.array([1, -1]), np.array([0.25, 0.25]))
    array([[ 0.5 ,  0.75],
           [-0.75, -1.75]])
    """
    ranks = np.arange(1, scores.shape[1] + 1)
    changed = scores.copy()
    is_unlabelled = y < 0
    changed[is_unlabelled] = u[is_unlabelled, None] - ranks
    return changed


def candidates(
    scores: np.ndarray, averaging: sparse.csr_array, diffusions: Iterable[float]
) -> Iterator[tuple[float, np.ndarray]]:
    """Each δ with the scores that it gives: one diffusion of the same scores.

    This is the right way, as `scoring.tune_daps` does it.

    Parameters
    ----------
    scores : array, shape (n, K)
    averaging : sparse array, shape (n, n)
        The mean over neighbours.
    diffusions : numbers
        The δ to try.

    Yields
    ------
    (float, array of shape (n, K))

    Examples
    --------
    >>> scores = np.array([[1.0], [0.0]])
    >>> tried = candidates(scores, neighbour_mean([[0], [1]], 2), [0.5, 0.25])
    >>> [(diffusion, values.ravel().tolist()) for diffusion, values in tried]
    [(0.5, [0.5, 0.5]), (0.25, [0.75, 0.25])]
    """
    means = averaging @ scores
    for diffusion in diffusions:
        yield diffusion, mix(scores, means, diffusion)


def composed_candidates(
    scores: np.ndarray, averaging: sparse.csr_array, diffusions: Iterable[float]
) -> Iterator[tuple[float, np.ndarray]]:
    """Each δ with a diffusion of the scores that the δ before has left.

    The right way is `candidates`. So a δ is judged by scores that all the δ before it
    have smoothed, while the δ that is chosen is applied only once.

    Parameters
    ----------
    scores, averaging, diffusions
        As in `candidates`.

    Yields
    ------
    (float, array of shape (n, K))

    Examples
    --------
    >>> scores = np.array([[1.0], [0.0]])
    >>> tried = composed_candidates(scores, neighbour_mean([[0], [1]], 2), [0.5, 0.25])
    >>> [(diffusion, values.ravel().tolist()) for diffusion, values in tried]
    [(0.5, [0.5, 0.5]), (0.25, [0.5, 0.5])]
    """
    for diffusion in diffusions:
        scores = mix(scores, averaging @ scores, diffusion)
        yield diffusion, scores


def size_by_index(
    scores: np.ndarray, y: np.ndarray, alpha: float, is_one_rank_up: bool = False
) -> float:
    """Mean set size in the second half of the rows, by the first half's threshold.

    The right one is `graph_scores.held_out_size`, in which even and odd rows take their
    threshold from each other. The rows of a file may be in an order that means something.

    Parameters
    ----------
    scores : array, shape (n, K)
    y : array of int, shape (n,)
        True labels.
    alpha : float
        Miscoverage.
    is_one_rank_up : bool
        Take the threshold by `quantile_one_rank_up`.

    Returns
    -------
    float
        Labels per set.

    Examples
    --------
    >>> scores = np.array([[0.2, 0.9], [0.1, 0.8], [0.15, 0.1], [0.15, 0.4]])
    >>> size_by_index(scores, np.array([0, 0, 0, 0]), 0.5)  # the threshold is 0.2
    1.5
    """
    n_first = (len(scores) + 1) // 2
    first = slice(0, n_first)
    second = slice(n_first, None)
    return _size(scores, y, alpha, [(second, first)], is_one_rank_up)


def _size(
    scores: np.ndarray,
    y: np.ndarray,
    alpha: float,
    halves: Sequence[tuple[slice, slice]],
    is_one_rank_up: bool,
) -> float:
    """Mean set size of rows, over pairs (the rows, those that give their threshold)."""
    in_sets = []
    for rows, others in halves:
        labels = y[others]
        true_scores = scores[others][np.arange(len(labels)), labels]
        threshold = _quantile(true_scores, alpha, is_one_rank_up)
        in_sets.append(scores[rows] <= threshold)
    return float(np.concatenate(in_sets).sum(axis=1).mean())


def _quantile(scores: np.ndarray, alpha: float, is_one_rank_up: bool) -> float:
    """q̂, right or one rank up."""
    if is_one_rank_up:
        return quantile_one_rank_up(scores, alpha)
    return conformal_quantile(scores, alpha)


def tuning_size(scores: np.ndarray, y: np.ndarray, alpha: float, errata: Errata) -> float:
    """The size of sets by which tuning judges a candidate.

    Parameters
    ----------
    scores : array, shape (n, K)
        Of the tuning rows.
    y : array of int, shape (n,)
        True labels.
    alpha : float
        Miscoverage.
    errata : Errata
        `halves_by_index` and `quantile` matter.

    Returns
    -------
    float
        Labels per set.

    Examples
    --------
    >>> scores = np.array([[0.2, 0.9], [0.1, 0.8], [0.15, 0.1], [0.15, 0.4]])
    >>> y = np.array([0, 0, 0, 0])
    >>> tuning_size(scores, y, 0.5, Errata())
    1.0
    >>> tuning_size(scores, y, 0.5, Errata(halves_by_index=True))
    1.5
    """
    if errata.halves_by_index:
        return size_by_index(scores, y, alpha, errata.quantile)
    if errata.quantile:
        even = slice(0, None, 2)
        odd = slice(1, None, 2)
        return _size(scores, y, alpha, [(even, odd), (odd, even)], is_one_rank_up=True)
    return held_out_size(scores, y, alpha)


def tune_daps_as_released(
    scores: np.ndarray,
    y: np.ndarray,
    averaging: sparse.csr_array,
    tune: np.ndarray,
    errata: Errata,
    alpha: float = 0.1,
    diffusions: Iterable[float] = DIFFUSIONS,
) -> tuple[np.ndarray, dict[str, float]]:
    """DAPS, once, with the δ that gives the smallest sets on some rows.

    The right one is `scoring.tune_daps`; without an erratum they are the same.

    Parameters
    ----------
    scores : array, shape (n, K)
    y : array of int, shape (n,)
        Labels; those outside `tune` are not looked at.
    averaging : sparse array, shape (n, n)
        The mean over neighbours.
    tune : array of int
        The rows that choose.
    errata : Errata
        `composed_tuning`, `halves_by_index` and `quantile` matter.
    alpha : float
        Miscoverage.
    diffusions : numbers
        The δ to try, in this order.

    Returns
    -------
    scores : array, shape (n, K)
    chosen : dict
        "diffusion"; the first of equals.

    Examples
    --------
    >>> scores = np.random.default_rng(0).random((6, 2))
    >>> averaging = neighbour_mean([[0, 1, 2], [3, 4, 5]], 6)
    >>> composed = Errata(composed_tuning=True)
    >>> values, chosen = tune_daps_as_released(
    ...     scores, np.zeros(6, int), averaging, np.arange(6), composed
    ... )
    >>> values.shape, sorted(chosen)
    ((6, 2), ['diffusion'])
    """
    if errata.composed_tuning:
        tried = composed_candidates(scores, averaging, diffusions)
    else:
        tried = candidates(scores, averaging, diffusions)
    chosen: dict[str, float] = {}
    smallest = np.inf
    for diffusion, values in tried:
        size = tuning_size(values[tune], y[tune], alpha, errata)
        if not chosen or size < smallest:
            smallest = size
            chosen = {"diffusion": diffusion}
    return mix(scores, averaging @ scores, **chosen), chosen


def fit_stopped_early(
    scores: ArrayLike, groups: Any, alpha: float = 0.1, steps: int | None = None
) -> batch_gcp.BatchGCP:
    """BatchGCP after some gradient steps on its loss.

    The right one is `batch_gcp.fit`: for disjoint groups each group's own conformal
    quantile. Here a threshold begins at 0, and a step moves it in proportion to its
    group's share of the points. So a small group's is still far below its optimum when
    the solver stops, and the group is undercovered.

    The release stops when 50 epochs in a row have each lowered the loss by less than
    .001; in this loss, too, a group counts by its share of the points. It takes its steps
    on random batches of four fifths of the points, and the loss on the other fifth. Here
    both are of all points, so that nothing is random; there are as many steps in an
    epoch.

    Parameters
    ----------
    scores : (n,)
        The calibration points' scores of their true labels.
    groups : (n,)
        One name per point.
    alpha : float
        The allowed miscoverage.
    steps : int, optional
        How many steps are taken; by default as many as the release's rule asks for.

    Returns
    -------
    BatchGCP

    Examples
    --------
    >>> scores = [0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9]
    >>> groups = ["a"] * 4 + ["b"] * 4
    >>> batch_gcp.fit(scores, groups, alpha=0.25).thresholds
    {'a': 0.4, 'b': 0.9}
    >>> early = fit_stopped_early(scores, groups, alpha=0.25, steps=10).thresholds
    >>> round(early["a"], 2), round(early["b"], 2)
    (0.26, 0.36)
    """
    values = as_float_column(scores, "scores").astype(np.float64)
    alpha = as_fraction(alpha, "alpha")
    found = as_groups(groups, len(values))
    walk = gradient_steps(values, found.codes, alpha)
    if steps is None:
        reached = _walk_by_rule(walk, values, found.codes, alpha)
    elif steps >= 0:
        reached = next(islice(walk, steps, None))
    else:
        raise ValueError(f"steps: found {steps!r}; wanted an integer from 0")
    thresholds = dict(zip(found.names, reached.tolist(), strict=True))
    return batch_gcp.BatchGCP(conformal_quantile(values, alpha), thresholds)


def gradient_steps(
    scores: np.ndarray, codes: np.ndarray, alpha: float
) -> Iterator[np.ndarray]:
    """The thresholds of disjoint groups before any step, after one, after two, ….

    Steps are on the mean pinball loss at level 1 − alpha, with Nesterov's momentum.

    Parameters
    ----------
    scores : array, shape (n,)
    codes : array of int, shape (n,)
        The group of each point, from 0.
    alpha : float

    Yields
    ------
    array, shape (groups,)

    Examples
    --------
    >>> walk = gradient_steps(np.array([0.5, 0.6]), np.array([0, 0]), 0.5)
    >>> [next(walk).round(4).tolist() for _ in range(3)]
    [[0.0], [0.0375], [0.0813]]
    """
    in_order = [np.sort(scores[codes == code]) for code in range(codes.max() + 1)]
    sizes = np.array([len(own) for own in in_order])
    shares = sizes / len(scores)
    thresholds = np.zeros(len(sizes))
    velocity = np.zeros(len(sizes))
    while True:
        yield thresholds
        n_covered = [
            np.searchsorted(own, threshold, side="right")
            for own, threshold in zip(in_order, thresholds, strict=True)
        ]
        gradient = shares * (np.array(n_covered) / sizes - (1 - alpha))
        velocity = gradient + MOMENTUM * velocity
        thresholds = thresholds - LEARNING_RATE * (gradient + MOMENTUM * velocity)


def _walk_by_rule(
    walk: Iterator[np.ndarray], scores: np.ndarray, codes: np.ndarray, alpha: float
) -> np.ndarray:
    """The thresholds at which the release's rule stops."""
    steps_per_epoch = int(TRAINING_SHARE * len(scores)) // BATCH + 1
    thresholds = next(walk)
    best = np.inf
    idle_epochs = 0
    while idle_epochs < PATIENCE:
        for reached in islice(walk, steps_per_epoch):
            thresholds = reached
        above = scores - thresholds[codes]
        loss = np.maximum((1 - alpha) * above, -alpha * above).mean()
        idle_epochs += 1
        if loss < best - LEAST_IMPROVEMENT:
            idle_epochs = 0
        best = min(best, loss)
    return thresholds


def score_split_as_released(
    dataset: Dataset,
    probs: ArrayLike,
    parts: np.ndarray,
    score: str,
    seed: int,
    errata: Errata,
    alpha: float = 0.1,
    *,
    resplits: int | None = None,
) -> tuple[ScoredSplit, float]:
    """Score every row, and give q̂, with some of the release's bugs.

    The right one is `scoring.score_split`; without an erratum they are the same. All
    scores know the erratum `quantile`; the others are DAPS's or CFGNN's, but for
    `early_gcp`, which is no matter of scores. CFGNN has the parameters that
    `cfgnn_options` gives.

    Parameters
    ----------
    dataset, probs, parts, score, seed, alpha
        As in `scoring.score_split`.
    errata : Errata
    resplits : int, optional
        How often the release has divided the rows anew when it scores, this time
        included: so often it has added loops. By default seed + 1.

    Returns
    -------
    scored : ScoredSplit
    quantile : float
        q̂, from the calibration rows.

    Examples
    --------
    >>> from cfhelpers.datasets import credit_probabilities, load_dataset
    >>> credit = load_dataset("credit")
    >>> probs, parts = credit_probabilities()
    >>> right = score_split_as_released(credit, probs, parts, "tps", 0, Errata())
    >>> bug = Errata(quantile=True)
    >>> wrong = score_split_as_released(credit, probs, parts, "tps", 0, bug)
    >>> right[1] < wrong[1]
    True
    """
    if score == "daps":
        if resplits is None:
            resplits = seed + 1
        scored = _score_daps(dataset, probs, parts, seed, errata, alpha, resplits)
    elif score == "cfgnn":
        scored = _score_cfgnn(dataset, probs, parts, seed, errata, alpha)
    else:
        scored = score_split(dataset, probs, parts, score, seed, alpha=alpha)
    true_scores = scores_of_labels(scored, dataset)
    return scored, _quantile(true_scores, alpha, errata.quantile)


def _score_daps(
    dataset: Dataset,
    probs: ArrayLike,
    parts: np.ndarray,
    seed: int,
    errata: Errata,
    alpha: float,
    resplits: int,
) -> ScoredSplit:
    """DAPS on one split, with some of the release's bugs."""
    averaging = _neighbour_mean_of(dataset)
    if errata.self_loops:
        averaging = with_loops(averaging, LOOPS_AT_LOADING + resplits)
    scores = score_split(dataset, probs, parts, "aps", seed).scores
    if errata.unlabelled_at_minus_one:
        u = np.random.default_rng([seed, STREAM]).random(len(dataset))
        scores = unlabelled_at_minus_one(scores, dataset.y, u)
    tune = rows_of(dataset, parts, seed, "tune")
    values, chosen = tune_daps_as_released(
        scores, dataset.y, averaging, tune, errata, alpha
    )
    return _scored(dataset, parts, "daps", seed, values, chosen)


def _scored(
    dataset: Dataset,
    parts: np.ndarray,
    score: str,
    seed: int,
    values: np.ndarray,
    chosen: dict[str, Any],
) -> ScoredSplit:
    """The scores of a re-split that has tuning rows, and its parts."""
    return ScoredSplit(
        score=score,
        scores=values,
        calibration=rows_of(dataset, parts, seed, "calibration"),
        test=rows_of(dataset, parts, seed, "test"),
        chosen=chosen,
    )


def rows_of(dataset: Dataset, parts: np.ndarray, seed: int, part: str) -> np.ndarray:
    """The rows of one part of a re-split whose tuning rows are set aside.

    Parameters
    ----------
    dataset : Dataset
    parts : array of str, shape (n,)
        As `datasets.split` gives it.
    seed : int
        Of the re-split.
    part : {"tune", "calibration", "test"}

    Returns
    -------
    array of int

    Examples
    --------
    >>> from cfhelpers.datasets import load_dataset, split
    >>> credit = load_dataset("credit")
    >>> parts = split(credit, 0)
    >>> len(rows_of(credit, parts, 0, "tune")), len(rows_of(credit, parts, 0, "test"))
    (3749, 7500)
    """
    one_of(part, "part", ("tune", "calibration", "test"))
    return np.flatnonzero(_new_parts(dataset, parts, seed) == part)


def _new_parts(dataset: Dataset, parts: np.ndarray, seed: int) -> np.ndarray:
    """The parts of a re-split whose tuning rows are set aside."""
    return tune_halves(dataset, resplit(dataset, parts, seed), seed)


def cfgnn_options(dataset: Dataset, errata: Errata) -> dict[str, Any]:
    """What CFGNN is trained with.

    Parameters
    ----------
    dataset : Dataset
        With its graph.
    errata : Errata

    Returns
    -------
    dict
        Of `graph_scores.cfgnn`, or with batches of `errata_cfgnn.cfgnn_in_batches`.
        "parameters" are those of the quick preset; for batches, where that is no GCN of
        one or two layers, those of the best such in results/cfgnn_settings.csv.

    Examples
    --------
    >>> from cfhelpers.datasets import load_dataset
    >>> credit = load_dataset("credit", graph="published")
    >>> cfgnn_options(credit, Errata(last_epoch=True))["keep"]
    'last'
    """
    if errata.batches or errata.block_degrees:
        parameters = _small_gcn(dataset)
        return {"parameters": parameters, "block_degrees": errata.block_degrees}
    options: dict[str, Any] = {"parameters": presets.preset(dataset, "cfgnn")}
    for name in errata.names:
        options |= CFGNN_OPTIONS.get(name, {})
    return options


def _small_gcn(dataset: Dataset) -> dict[str, Any]:
    """Parameters of a GCN of one or two layers: the preset's, or the best one run."""
    tuned = presets.preset(dataset, "cfgnn")
    network = CFGNN | tuned
    if network["kind"] == "gcn" and network["layers"] <= MOST_LAYERS:
        return tuned
    rows = cfgnn_settings.load(dataset.name)
    is_small = (rows["kind"] == "gcn") & (rows["layers"] <= MOST_LAYERS)
    own = rows[is_small & (rows["variant"] == "published")]
    if own.empty:
        return {}  # the defaults are such a network
    return cfgnn_settings.best(dataset, own)


def _score_cfgnn(
    dataset: Dataset,
    probs: ArrayLike,
    parts: np.ndarray,
    seed: int,
    errata: Errata,
    alpha: float,
) -> ScoredSplit:
    """CFGNN on one split, with some of the switches."""
    options = cfgnn_options(dataset, errata)
    edges = _edges_for("cfgnn", dataset)
    seed_of_rows = 0 if errata.trained_once else seed
    tune = rows_of(dataset, parts, seed_of_rows, "tune")
    train: Callable[..., tuple[np.ndarray, dict[str, Any]]] = cfgnn
    if errata.batches or errata.block_degrees:
        train = cfgnn_in_batches
    adjusted, chosen = train(
        probs,
        dataset.y,
        edges,
        tune,
        alpha=alpha,
        seed=seed_of_rows,
        progress=False,
        **options,
    )
    u = np.random.default_rng([seed, STREAM]).random(len(dataset))
    return _scored(dataset, parts, "cfgnn", seed, aps(adjusted, u), chosen)


@lru_cache(maxsize=1)
def _neighbour_mean_of(dataset: Dataset) -> sparse.csr_array:
    """The mean over neighbours in a dataset's graph, which it must have."""
    return neighbour_mean(_edges_for("daps", dataset), len(dataset))


def scores_of_labels(scored: ScoredSplit, dataset: Dataset) -> np.ndarray:
    """The scores of the true labels of the calibration rows.

    Parameters
    ----------
    scored : ScoredSplit
    dataset : Dataset

    Returns
    -------
    array, shape (calibration rows,)
    """
    rows = scored.calibration
    return scored.scores[rows, dataset.y[rows]]


def fit_gcp(
    dataset: Dataset, scored: ScoredSplit, errata: Errata, alpha: float = 0.1
) -> batch_gcp.BatchGCP:
    """BatchGCP on the calibration rows, at its optimum or stopped early.

    Parameters
    ----------
    dataset : Dataset
    scored : ScoredSplit
    errata : Errata
        `early_gcp` matters.
    alpha : float
        The allowed miscoverage.

    Returns
    -------
    BatchGCP
    """
    true_scores = scores_of_labels(scored, dataset)
    groups = dataset.groups[scored.calibration]
    if errata.early_gcp:
        return fit_stopped_early(true_scores, groups, alpha)
    return batch_gcp.fit(true_scores, groups, alpha)

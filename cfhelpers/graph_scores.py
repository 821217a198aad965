"""Scores on graphs: DAPS, which mixes neighbours' scores, and CFGNN, which learns to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from cfhelpers._cache import cached, fingerprint
from cfhelpers._checks import as_adjacency, as_array, as_probabilities, as_scores
from cfhelpers.conformal import conformal_quantile
from cfhelpers.scores import aps

if TYPE_CHECKING:
    import torch

STREAM = 0xA95  # u is drawn from a stream of its own
CFGNN: dict[str, Any] = {
    "kind": "gcn",
    "lr": 0.005,
    "hidden_channels": 32,
    "layers": 2,
    "dropout": 0.1,
    "temperature": 0.05,
}
SIZE_WEIGHT = 0.1  # of the size loss beside the cross-entropy
TARGET = 1.0  # the size below which a set costs nothing


def held_out_size(scores: np.ndarray, y: np.ndarray, alpha: float) -> float:
    """Mean set size when each half of the rows takes its threshold from the other half.

    The halves are the even and the odd rows.

    Parameters
    ----------
    scores : array, shape (n, K)
    y : array of int, shape (n,)
        True labels.
    alpha : float
        Miscoverage.

    Returns
    -------
    float
        Labels per set.

    Examples
    --------
    >>> scores = np.array([[0.2, 0.9], [0.1, 0.8]])
    >>> held_out_size(scores, np.array([0, 0]), 0.5)  # thresholds 0.1 and 0.2
    0.5
    """
    even = slice(0, None, 2)
    odd = slice(1, None, 2)
    in_sets = []
    for half, other in ((even, odd), (odd, even)):
        others = scores[other]
        labels = y[other]
        true_scores = others[np.arange(len(labels)), labels]
        in_sets.append(scores[half] <= conformal_quantile(true_scores, alpha))
    return float(np.concatenate(in_sets).sum(axis=1).mean())


def neighbour_mean(edge_index: ArrayLike, n: int) -> sparse.csr_array:
    """The matrix that averages over neighbours.

    Parameters
    ----------
    edge_index : array of int, shape (2, E)
        Edges in either direction; repetitions and loops do not count.
    n : int
        Number of nodes.

    Returns
    -------
    sparse array, shape (n, n)
        A node without neighbours is its own.

    Examples
    --------
    >>> neighbour_mean([[0, 1], [1, 2]], 4).toarray()
    array([[0. , 1. , 0. , 0. ],
           [0.5, 0. , 0.5, 0. ],
           [0. , 1. , 0. , 0. ],
           [0. , 0. , 0. , 1. ]])
    """
    adjacency = as_adjacency(edge_index, n).astype(np.float64)
    degrees = np.diff(adjacency.indptr)
    alone = sparse.diags_array((degrees == 0).astype(np.float64))
    return (sparse.diags_array(1 / np.maximum(degrees, 1)) @ adjacency + alone).tocsr()


def daps(scores: ArrayLike, edge_index: ArrayLike, diffusion: float) -> np.ndarray:
    """Scores mixed with the mean of the neighbours' scores, once.

    (1 − δ)·s(v, y) + δ·mean of s(u, y) over the neighbours u of v; a node without
    neighbours keeps its scores.

    Parameters
    ----------
    scores : array, shape (n, K)
    edge_index : array of int, shape (2, E)
        Edges in either direction; repetitions and loops do not count.
    diffusion : float
        δ in [0, 1].

    Returns
    -------
    array, shape (n, K)

    Examples
    --------
    >>> daps([[0.2], [0.4], [0.9]], [[0], [1]], 0.5)
    array([[0.3],
           [0.3],
           [0.9]])
    """
    scores = as_scores(scores)
    if not 0 <= diffusion <= 1:
        raise ValueError(f"diffusion: found {diffusion!r}; wanted a number in [0, 1]")
    return mix(scores, neighbour_mean(edge_index, len(scores)) @ scores, diffusion)


def mix(scores: np.ndarray, means: np.ndarray, diffusion: float) -> np.ndarray:
    """Scores and their neighbours' means, weighed by the diffusion.

    Parameters
    ----------
    scores, means : array, shape (n, K)
    diffusion : float
        The weight of the means.

    Returns
    -------
    array, shape (n, K)

    Examples
    --------
    >>> mix(np.array([[1.0]]), np.array([[3.0]]), 0.5)
    array([[2.]])
    """
    return (1 - diffusion) * scores + diffusion * means


@dataclass(frozen=True)
class _Schedule:
    """How CFGNN is trained."""

    alpha: float
    epochs: int
    warm_up: int
    patience: int


def cfgnn(
    probs: ArrayLike,
    y: ArrayLike,
    edge_index: ArrayLike,
    tune: np.ndarray,
    *,
    alpha: float = 0.1,
    parameters: Mapping[str, Any] | None = None,
    seed: int = 0,
    epochs: int = 200,
    warm_up: int = 60,
    patience: int = 60,
    device: str | None = None,
    progress: bool = True,
) -> tuple[np.ndarray, dict[str, Any]]:
    """Probabilities corrected by a second network that is trained for small sets.

    The network sees the logarithms of the base probabilities and the graph, and adds to
    the former. It learns from the rows `tune` alone: two thirds of them train, the others
    choose the epoch. Conformalise and report on rows outside `tune`. What was trained is
    kept in artifacts/.

    Parameters
    ----------
    probs : array, shape (n, K)
        The base model's probabilities.
    y : array of int, shape (n,)
        Labels; those outside `tune` are not looked at.
    edge_index : array of int, shape (2, E)
        Edges in either direction.
    tune : array of int
        The rows to learn from.
    alpha : float
        The miscoverage that set sizes are judged at.
    parameters : mapping, optional
        Some of `gnn.DEFAULTS` and `CFGNN`.
    seed : int
        Of the rows that train, of weights and dropout.
    epochs, warm_up, patience : int
        Cross-entropy alone in the first `warm_up` epochs, the size of sets too in the
        others; stops when `patience` of those have brought no smaller sets.
    device : str, optional
        None: a GPU when there is one.
    progress : bool
        Whether a bar shows how far it is.

    Returns
    -------
    probs : array of float32, shape (n, K)
    how : dict
        "epoch", the one that was kept, and "held_out_size", its sets on the rows that
        chose it.
    """
    from cfhelpers import gnn

    probs = as_probabilities(probs).astype(np.float32)
    options = gnn.model_options(gnn.DEFAULTS | CFGNN, parameters)
    if epochs <= warm_up:
        raise ValueError(
            f"epochs: found {epochs} with a warm-up of {warm_up}; "
            "wanted more than the warm-up"
        )
    schedule = _Schedule(alpha, epochs, warm_up, patience)
    place = gnn.choose_device(device)
    key = {
        "content": fingerprint(probs, as_array(y)[tune], as_array(edge_index), tune),
        "parameters": options,
        "schedule": [*asdict(schedule).values(), SIZE_WEIGHT, TARGET],
        "seed": seed,
        "device": place.type,
        "torch": gnn.torch.__version__,
    }

    def compute() -> dict[str, np.ndarray]:
        return _train_cfgnn(
            probs, as_array(y), edge_index, tune, options, schedule, seed, place, progress
        )

    stored = cached("cfgnn", key, compute, code=__name__)
    how = {"epoch": int(stored["epoch"]), "held_out_size": float(stored["size"])}
    return stored["probs"], how


def _train_cfgnn(
    probs: np.ndarray,
    y: np.ndarray,
    edge_index: ArrayLike,
    tune: np.ndarray,
    options: Mapping[str, Any],
    schedule: _Schedule,
    seed: int,
    device: torch.device,
    progress: bool,
) -> dict[str, np.ndarray]:
    """Adjusted probabilities, the epoch they come from, and the size of its sets."""
    from cfhelpers import gnn

    with gnn.seeded(seed, device):
        training = _Training(probs, y, edge_index, tune, options, schedule, seed, device)
        _, history = gnn.best_epoch(
            training.model,
            training.step,
            training.judge,
            schedule.epochs,
            schedule.patience,
            progress,
            "training cfgnn",
            schedule.warm_up,
        )
        with gnn.torch.no_grad():
            adjusted = gnn.torch.softmax(training.logits().double(), dim=1)
    best = int(np.argmax(history["held_out"]))
    return {
        "probs": adjusted.float().cpu().numpy(),
        "epoch": np.asarray(history["epoch"][best]),
        "size": np.asarray(-history["held_out"][best]),
    }


class _Training:
    """The second network in training: its data, a step, and a judgement."""

    def __init__(
        self,
        probs: np.ndarray,
        y: np.ndarray,
        edge_index: ArrayLike,
        tune: np.ndarray,
        options: Mapping[str, Any],
        schedule: _Schedule,
        seed: int,
        device: torch.device,
    ) -> None:
        from cfhelpers import gnn

        self.torch = gnn.torch
        self.cross_entropy = gnn.functional.cross_entropy
        self.rng = np.random.default_rng([seed, STREAM, 1])
        shuffled = self.rng.permutation(tune)
        self.fit, self.held_out = np.split(shuffled, [2 * len(tune) // 3])
        self.u_held_out = self.rng.random(len(self.held_out))
        self.y = y
        self.schedule = schedule
        self.graph = gnn.Graph(edge_index, len(probs), device)
        self.x = self.torch.tensor(np.log(probs.clip(1e-6)), device=device)
        self.labels = self.torch.tensor(y, device=device)
        layers = dict(options)
        kind = layers.pop("kind")
        lr = layers.pop("lr")
        self.temperature = layers.pop("temperature")
        n_classes = probs.shape[1]
        self.model = gnn.GNN(kind, n_classes, n_classes, **layers).to(device)
        self.optimizer = self.torch.optim.Adam(
            self.model.parameters(), lr=lr, weight_decay=gnn.WEIGHT_DECAY
        )
        self.steps_taken = 0

    def logits(self) -> torch.Tensor:
        """The base model's logarithms and what the network adds to them."""
        return self.x + self.model(self.x, self.graph)

    def step(self) -> float:
        """One epoch: the cross-entropy and, after the warm-up, the size of sets."""
        self.steps_taken += 1
        logits = self.logits()
        loss = self.cross_entropy(logits[self.fit], self.labels[self.fit])
        if self.steps_taken > self.schedule.warm_up:
            rows = self.torch.tensor(self.rng.permutation(self.fit), device=logits.device)
            soft = self.torch.softmax(logits[rows], dim=1)
            alpha = self.schedule.alpha
            size = size_loss(soft, self.labels[rows], alpha, self.temperature)
            loss = loss + SIZE_WEIGHT * size
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def judge(self) -> tuple[float, float]:
        """The size of sets, negative, on the rows that do not train; nothing for ties."""
        logits = self.logits()[self.held_out]
        adjusted = self.torch.softmax(logits, dim=1).cpu().numpy()
        scores = aps(adjusted, self.u_held_out)
        size = held_out_size(scores, self.y[self.held_out], self.schedule.alpha)
        return -size, 0.0


def size_loss(
    probs: torch.Tensor,
    y: torch.Tensor,
    alpha: float,
    temperature: float,
    target: float = TARGET,
) -> torch.Tensor:
    """How far the soft size of prediction sets lies above `target`, mean over points.

    The first half of the rows calibrates: η is the conformal quantile of their APS
    scores. In the second half a label belongs to a set by σ((η − s)/temperature) instead
    of 0 or 1.

    Parameters
    ----------
    probs : tensor, shape (n, K)
    y : tensor of int, shape (n,)
        True labels.
    alpha : float
        Miscoverage.
    temperature : float
        The softer, the larger.
    target : float
        The size below which a set costs nothing.

    Returns
    -------
    tensor
        A number, with gradients.

    Examples
    --------
    >>> import torch
    >>> probs = torch.tensor([[0.9, 0.1], [0.8, 0.2]])
    >>> round(float(size_loss(probs, torch.tensor([0, 0]), 0.1, 1e-3, target=0.5)), 3)
    0.5
    """
    from cfhelpers.gnn import functional, torch

    ranked, order = probs.sort(dim=1, descending=True)
    middles = ranked.cumsum(dim=1) - ranked / 2  # u at its mean
    scores = torch.zeros_like(probs).scatter(1, order, middles)
    n = len(probs) // 2
    rank = int(min(conformal_quantile(np.arange(1, n + 1), alpha), n))
    true_scores = scores[:n].gather(1, y[:n, None]).squeeze(1)
    threshold = true_scores.sort().values[rank - 1]
    soft_sizes = torch.sigmoid((threshold - scores[n:]) / temperature).sum(dim=1)
    return functional.relu(soft_sizes - target).mean()

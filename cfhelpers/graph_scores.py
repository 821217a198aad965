"""Scores on graphs: DAPS, which mixes neighbours' scores, and CFGNN, which learns to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from cfhelpers._cache import cached, fingerprint
from cfhelpers._checks import (
    as_adjacency,
    as_array,
    as_probabilities,
    as_scores,
    one_of,
)
from cfhelpers.conformal import conformal_quantile
from cfhelpers.scores import aps

if TYPE_CHECKING:
    import torch

    from cfhelpers import gnn

STREAM = 0xA95  # u is drawn from a stream of its own
CFGNN: dict[str, Any] = {
    "kind": "gcn",
    "lr": 0.005,
    "hidden_channels": 32,
    "layers": 2,
    "dropout": 0.1,
    "temperature": 0.05,
}


@dataclass(frozen=True)
class Variant:
    """A form of CFGNN: what its network sees, and what it is trained for in the end.

    Attributes
    ----------
    has_shortcut : bool
        Whether it sees the logarithms of the base probabilities and adds to them.
        Otherwise it sees the probabilities, and nothing of them goes past it.
    cross_entropy, size : float
        The weights of the cross-entropy and of the soft size of sets, after the warm-up.
    target : float
        The size below which a set costs nothing.
    """

    has_shortcut: bool
    cross_entropy: float
    size: float
    target: float


# As published, and the one of the first edition of this project.
VARIANTS = {
    "published": Variant(has_shortcut=False, cross_entropy=0.5, size=0.5, target=0.0),
    "shortcut": Variant(has_shortcut=True, cross_entropy=1.0, size=0.1, target=1.0),
}
KEPT = ("best", "last")


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
    keep: str


def cfgnn(
    probs: ArrayLike,
    y: ArrayLike,
    edge_index: ArrayLike,
    tune: np.ndarray,
    *,
    alpha: float = 0.1,
    parameters: Mapping[str, Any] | None = None,
    seed: int = 0,
    variant: str = "published",
    epochs: int = 300,
    warm_up: int = 100,
    patience: int = 100,
    keep: str = "best",
    device: str | None = None,
    progress: bool = True,
) -> tuple[np.ndarray, dict[str, Any]]:
    """Probabilities from a second network that is trained for small sets.

    The network sees the base probabilities and the graph. It learns from the rows `tune`
    alone: two thirds of them train, the others choose the epoch. Conformalise and report
    on rows outside `tune`. What was trained is kept in artifacts/.

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
        Some of `gnn.LAYERS` and `CFGNN`.
    seed : int
        Of the rows that train, of weights and dropout.
    variant : {"published", "shortcut"}
        One of `VARIANTS`.
    epochs, warm_up, patience : int
        Cross-entropy alone in the first `warm_up` epochs, the size of sets too in the
        others; stops when `patience` of those have brought no smaller sets. A step takes
        the whole graph.
    keep : {"best", "last"}
        Which epoch: that with the smallest sets on the rows that do not train, or the
        last of all `epochs`.
    device : str, optional
        None: a GPU when there is one.
    progress : bool
        Whether a bar shows how far it is.

    Returns
    -------
    probs : array of float32, shape (n, K)
    how : dict
        "epoch", the one that was kept; "held_out_size", its sets on the rows that chose
        it; "reached", how many epochs there were.
    """
    from cfhelpers import gnn

    probs = as_probabilities(probs).astype(np.float32)
    options = gnn.model_options(gnn.LAYERS | CFGNN, parameters)
    one_of(variant, "variant", tuple(VARIANTS))
    one_of(keep, "keep", KEPT)
    if epochs <= warm_up:
        raise ValueError(
            f"epochs: found {epochs} with a warm-up of {warm_up}; "
            "wanted more than the warm-up"
        )
    schedule = _Schedule(alpha, epochs, warm_up, patience, keep)
    place = gnn.choose_device(device)
    key = {
        "content": fingerprint(probs, as_array(y)[tune], as_array(edge_index), tune),
        "parameters": options,
        "variant": asdict(VARIANTS[variant]),
        "schedule": asdict(schedule),
        "seed": seed,
        "device": place.type,
        "torch": gnn.torch.__version__,
    }

    def compute() -> dict[str, np.ndarray]:
        with gnn.seeded(seed, place):
            graph = gnn.Graph(edge_index, len(probs), place)
            network = _Training(
                probs,
                as_array(y),
                graph,
                tune,
                options,
                VARIANTS[variant],
                schedule,
                seed,
            )
            return network.train(progress)

    stored = cached("cfgnn", key, compute, code=__name__)
    how = {
        "epoch": int(stored["epoch"]),
        "held_out_size": float(stored["size"]),
        "reached": int(stored["reached"]),
    }
    return stored["probs"], how


class _Training:
    """The second network in training: its data, a step, and a judgement."""

    def __init__(
        self,
        probs: np.ndarray,
        y: np.ndarray,
        graph: gnn.Graph,
        tune: np.ndarray,
        options: Mapping[str, Any],
        variant: Variant,
        schedule: _Schedule,
        seed: int,
    ) -> None:
        from cfhelpers import gnn

        self.torch = gnn.torch
        self.cross_entropy = gnn.functional.cross_entropy
        self.rng = np.random.default_rng([seed, STREAM, 1])
        shuffled = self.rng.permutation(tune)
        self.fit, self.held_out = np.split(shuffled, [2 * len(tune) // 3])
        self.u_held_out = self.rng.random(len(self.held_out))
        self.y = y
        self.variant = variant
        self.schedule = schedule
        self.graph = graph
        seen = np.log(probs.clip(1e-6)) if variant.has_shortcut else probs
        self.x = self.torch.tensor(seen, device=graph.device)
        self.labels = self.torch.tensor(y, device=graph.device)
        layers = dict(options)
        kind = layers.pop("kind")
        lr = layers.pop("lr")
        self.temperature = layers.pop("temperature")
        n_classes = probs.shape[1]
        self.model = gnn.GNN(kind, n_classes, n_classes, **layers).to(graph.device)
        self.near_fit = self.model.reach(graph, self.fit)
        self.near_held_out = self.model.reach(graph, self.held_out)
        self.optimizer = self.torch.optim.Adam(
            self.model.parameters(), lr=lr, weight_decay=gnn.WEIGHT_DECAY
        )
        self.steps_taken = 0

    def train(self, progress: bool) -> dict[str, np.ndarray]:
        """The new probabilities, the epoch they come from, and the size of its sets."""
        from cfhelpers import gnn

        schedule = self.schedule
        _, history = gnn.best_epoch(
            self.model,
            self.step,
            self.judge,
            schedule.epochs,
            schedule.patience,
            progress,
            "training cfgnn",
            schedule.warm_up,
            schedule.keep,
        )
        with self.torch.no_grad():
            adjusted = self.torch.softmax(self.logits().double(), dim=1)
        kept = -1
        if schedule.keep == "best":
            kept = int(np.argmin(history["held_out"]))
        return {
            "probs": adjusted.float().cpu().numpy(),
            "epoch": np.asarray(history["epoch"][kept]),
            "size": np.asarray(history["held_out"][kept]),
            "reached": np.asarray(self.steps_taken),
        }

    def logits(self) -> torch.Tensor:
        """Of all nodes: what the network gives, and with a shortcut what it adds to."""
        given = self.model(self.x, self.graph)
        return self.x + given if self.variant.has_shortcut else given

    def logits_of(self, rows: np.ndarray, near: gnn.Reach) -> torch.Tensor:
        """The same, of some rows alone."""
        given = self.model.at(self.x, near)
        return self.x[rows] + given if self.variant.has_shortcut else given

    def step(self) -> float:
        """One epoch: the cross-entropy and, after the warm-up, the size of sets."""
        self.steps_taken += 1
        logits = self.logits_of(self.fit, self.near_fit)
        loss = self.cross_entropy(logits, self.labels[self.fit])
        if self.steps_taken > self.schedule.warm_up:
            size = self.soft_size(logits)
            loss = self.variant.cross_entropy * loss + self.variant.size * size
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def soft_size(self, logits: torch.Tensor) -> torch.Tensor:
        """The size loss on the training rows, of which a random half calibrates."""
        order = self.torch.tensor(self.rng.permutation(len(self.fit)))
        order = order.to(logits.device)
        soft = self.torch.softmax(logits[order], dim=1)
        labels = self.labels[self.fit][order]
        alpha = self.schedule.alpha
        return size_loss(soft, labels, alpha, self.temperature, self.variant.target)

    def judge(self) -> dict[str, float]:
        """The size of sets on the rows that do not train."""
        logits = self.logits_of(self.held_out, self.near_held_out)
        adjusted = self.torch.softmax(logits, dim=1).cpu().numpy()
        scores = aps(adjusted, self.u_held_out)
        labels = self.y[self.held_out]
        return {"held_out": held_out_size(scores, labels, self.schedule.alpha)}


def size_loss(
    probs: torch.Tensor,
    y: torch.Tensor,
    alpha: float,
    temperature: float,
    target: float = 0.0,
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

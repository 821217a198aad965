"""CFGNN trained and run in batches of nodes, with degrees counted inside a batch or not.

The release takes 64 nodes at a time, with all their neighbours. Its layers divide by
degrees that they count among the edges of the batch, so that a node's scores depend on
which 63 others share its batch. Degrees of the whole graph are the right ones: with them,
a batch gives what the whole graph gives.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy import sparse
from torch.nn import functional

from cfhelpers import gnn, graph_scores
from cfhelpers._cache import cached, fingerprint
from cfhelpers._checks import as_adjacency, as_array, as_probabilities
from cfhelpers.scores import aps

SIZE = 64  # nodes of a batch, as in the release
EPOCHS = 30
MOST_LAYERS = 2


@dataclass(frozen=True, eq=False)
class Block:
    """What one layer sends to some nodes, as a matrix in three factors.

    Attributes
    ----------
    joined : sparse array, shape (receivers, senders)
        1 where a message is sent.
    received : array, shape (receivers, 1)
        What the sum of its messages is multiplied by.
    sent : array, shape (senders, 1)
        What a sender's message is multiplied by.
    """

    joined: sparse.csr_array
    received: np.ndarray
    sent: np.ndarray

    def toarray(self) -> np.ndarray:
        """The matrix, dense."""
        return self.received * self.joined.toarray() * self.sent.T

    def sums(self, x: np.ndarray) -> np.ndarray:
        """The matrix times x, (senders, columns)."""
        return self.received * (self.joined @ (self.sent * x))

    def sums_back(self, x: np.ndarray) -> np.ndarray:
        """The transposed matrix times x, (receivers, columns)."""
        return self.sent * (self.joined.T @ (self.received * x))


@dataclass(frozen=True, eq=False)
class Batch:
    """Some nodes, and all that their scores depend on.

    Attributes
    ----------
    nodes : array of int
    blocks : list of Block
        One per layer, the first layer's first. All nodes of the graph are senders of the
        first; the receivers of the last are `nodes`.
    """

    nodes: np.ndarray
    blocks: list[Block]


class Batches:
    """A graph that gives batches of nodes to a GCN.

    Parameters
    ----------
    edge_index : array of int, shape (2, E)
        Edges in either direction; repetitions and loops do not count. Every node then
        gets one loop.
    n : int
        Number of nodes.
    layers : int
        Of the network.
    block_degrees : bool
        Whether a message is divided by the root of how many nodes of the *batch's* layer
        its sender reaches, as in the release, or by that of its degree in the graph. It
        is divided by the root of its receiver's degree in either case; all its
        neighbours are there.

    Examples
    --------
    >>> path = [[0, 1], [1, 2]]
    >>> right = Batches(path, 3, layers=1).batch(np.array([0]))
    >>> right.blocks[0].toarray().round(3)
    array([[0.5  , 0.408, 0.   ]], dtype=float32)
    >>> wrong = Batches(path, 3, layers=1, block_degrees=True).batch(np.array([0]))
    >>> wrong.blocks[0].toarray().round(3)  # both reach node 0 alone
    array([[0.707, 0.707, 0.   ]], dtype=float32)
    """

    def __init__(
        self, edge_index: ArrayLike, n: int, layers: int, block_degrees: bool = False
    ) -> None:
        loops = sparse.eye_array(n, dtype=np.float32)
        self.joined = (as_adjacency(edge_index, n) + loops).tocsr()
        self.degrees = np.diff(self.joined.indptr)
        self.layers = layers
        self.block_degrees = block_degrees

    def batch(self, nodes: np.ndarray) -> Batch:
        """The blocks of some nodes, built from the last layer to the first."""
        blocks: list[Block] = []
        receivers = nodes
        for layer in reversed(range(self.layers)):
            rows = self.joined[receivers]
            senders = np.arange(len(self.degrees))
            if layer > 0:
                senders = np.unique(rows.indices)
            blocks.insert(0, self._block(receivers, senders, rows))
            receivers = senders
        return Batch(nodes, blocks)

    def _block(
        self, receivers: np.ndarray, senders: np.ndarray, rows: sparse.csr_array
    ) -> Block:
        """The block of some rows of the graph, whose columns are the senders."""
        joined = rows
        if len(senders) < rows.shape[1]:
            places = np.searchsorted(senders, rows.indices).astype(np.int32)
            shape = (len(receivers), len(senders))
            joined = sparse.csr_array((rows.data, places, rows.indptr), shape=shape)
        reached = self.degrees[senders]
        if self.block_degrees:
            reached = np.bincount(joined.indices, minlength=len(senders))
        received = _one_by_root(self.degrees[receivers])
        return Block(joined, received, _one_by_root(reached))

    def over(self, nodes: np.ndarray) -> Iterator[Batch]:
        """Batches of SIZE nodes, in their order; the last may have fewer."""
        for start in range(0, len(nodes), SIZE):
            yield self.batch(nodes[start : start + SIZE])


def _one_by_root(counts: np.ndarray) -> np.ndarray:
    """1/√count as a column; where nothing is counted, 1, as nothing is sent."""
    column = 1 / np.sqrt(np.maximum(counts, 1))
    return column.astype(np.float32)[:, None]


class _Product(torch.autograd.Function):
    """A block's matrix times x, with the gradient for x."""

    @staticmethod
    def forward(context: Any, block: Block, x: torch.Tensor) -> torch.Tensor:
        context.block = block
        return torch.from_numpy(block.sums(x.detach().numpy()))

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[None, torch.Tensor]:
        return None, torch.from_numpy(context.block.sums_back(gradient.numpy()))


def batch_logits(model: gnn.GNN, x: torch.Tensor, batch: Batch) -> torch.Tensor:
    """What a GCN gives for the nodes of a batch.

    Parameters
    ----------
    model : GNN
        Of the kind "gcn".
    x : tensor, shape (n, p)
        Features of all nodes, on the CPU.
    batch : Batch

    Returns
    -------
    tensor, shape (nodes, n_out)
        With gradients for the model's weights.

    Examples
    --------
    >>> path = [[0, 1], [1, 2]]
    >>> with gnn.seeded(0, torch.device("cpu")):
    ...     model = gnn.GNN("gcn", 2, 3, layers=2).eval()
    >>> x = torch.eye(3, 2)
    >>> batch = Batches(path, 3, layers=2).batch(np.array([2]))
    >>> whole = model(x, gnn.Graph(path, 3))
    >>> torch.allclose(batch_logits(model, x, batch), whole[[2]])
    True
    """
    hidden = x
    for place, block in enumerate(batch.blocks):
        convolution = model.convolutions[place]
        if place:
            hidden = functional.relu(hidden)
        hidden = functional.dropout(hidden, model.dropout, model.training)
        # as in the whole graph, the sparse product takes the fewer columns
        if convolution.in_channels < convolution.out_channels:
            hidden = convolution.lin(_Product.apply(block, hidden)) + convolution.bias
        else:
            hidden = _Product.apply(block, convolution.lin(hidden)) + convolution.bias
    return hidden


class _TrainingInBatches(graph_scores._Training):
    """CFGNN as published, but for the batches: an epoch takes a step with each."""

    def __init__(self, batches: Batches, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.batches = batches
        self.judged = list(batches.over(self.held_out))

    def logits(self) -> torch.Tensor:
        """Of all nodes, in batches in the order of the nodes."""
        return self._logits(self.batches.over(np.arange(len(self.y))))

    def _logits(self, batches: Iterator[Batch] | list[Batch]) -> torch.Tensor:
        """Of the nodes of some batches."""
        return torch.cat([batch_logits(self.model, self.x, own) for own in batches])

    def step(self) -> float:
        """One epoch, in batches of shuffled rows; gives the mean loss."""
        self.steps_taken += 1
        losses = []
        for batch in self.batches.over(self.rng.permutation(self.fit)):
            if len(batch.nodes) > 1:  # one alone has no half that calibrates
                losses.append(self._batch_step(batch))
        return float(np.mean(losses))

    def _batch_step(self, batch: Batch) -> float:
        """A step on one batch, whose first half calibrates its second."""
        logits = batch_logits(self.model, self.x, batch)
        labels = self.labels[torch.from_numpy(batch.nodes)]
        loss = self.cross_entropy(logits, labels)
        if self.steps_taken > self.schedule.warm_up:
            soft = torch.softmax(logits, dim=1)
            size = graph_scores.size_loss(
                soft, labels, self.schedule.alpha, self.temperature, self.variant.target
            )
            loss = self.variant.cross_entropy * loss + self.variant.size * size
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def judge(self) -> dict[str, float]:
        """The size of sets on the rows that do not train, in batches of their own."""
        adjusted = torch.softmax(self._logits(self.judged), dim=1).numpy()
        scores = aps(adjusted, self.u_held_out)
        labels = self.y[self.held_out]
        size = graph_scores.held_out_size(scores, labels, self.schedule.alpha)
        return {"held_out": size}


def cfgnn_in_batches(
    probs: ArrayLike,
    y: ArrayLike,
    edge_index: ArrayLike,
    tune: np.ndarray,
    *,
    block_degrees: bool,
    alpha: float = 0.1,
    parameters: Mapping[str, Any] | None = None,
    seed: int = 0,
    epochs: int = EPOCHS,
    progress: bool = True,
) -> tuple[np.ndarray, dict[str, Any]]:
    """Probabilities of CFGNN as published, trained and run in batches of nodes.

    `graph_scores.cfgnn` takes the whole graph in every step. Here a step takes 64 of the
    rows that train, and all that their scores depend on; the size of sets is that of the
    second half of a batch, by the first half's threshold. In the end all nodes get their
    probabilities in batches of 64, in their order. As there, two thirds of `tune` train
    and the others choose the epoch, the first third of the epochs has the cross-entropy
    alone, and what was trained is kept in artifacts/. It runs on the CPU.

    Parameters
    ----------
    probs, y, edge_index, tune, alpha, seed, progress
        As in `graph_scores.cfgnn`.
    block_degrees : bool
        See `Batches`.
    parameters : mapping, optional
        Some of `gnn.LAYERS` and `graph_scores.CFGNN`: a GCN of one or two layers.
    epochs : int
        At least 2. It stops when a third of them have brought no smaller sets.

    Returns
    -------
    probs : array of float32, shape (n, K)
    how : dict
        As in `graph_scores.cfgnn`.
    """
    probs = as_probabilities(probs).astype(np.float32)
    options = gnn.model_options(gnn.LAYERS | graph_scores.CFGNN, parameters)
    _check_network(options)
    if epochs < 2:
        raise ValueError(f"epochs: found {epochs}; wanted at least 2")
    third = max(epochs // 3, 1)
    schedule = graph_scores._Schedule(alpha, epochs, third, third, "best")
    key = {
        "content": fingerprint(probs, as_array(y)[tune], as_array(edge_index), tune),
        "parameters": options,
        "block_degrees": block_degrees,
        "schedule": asdict(schedule),
        "seed": seed,
        "torch": torch.__version__,
    }

    def compute() -> dict[str, np.ndarray]:
        place = torch.device("cpu")
        batches = Batches(edge_index, len(probs), options["layers"], block_degrees)
        with gnn.seeded(seed, place):
            network = _TrainingInBatches(
                batches,
                probs,
                as_array(y),
                gnn.Graph(edge_index, len(probs), place),
                tune,
                options,
                graph_scores.VARIANTS["published"],
                schedule,
                seed,
            )
            return network.train(progress)

    stored = cached("cfgnn_batches", key, compute, code=__name__)
    how = {
        "epoch": int(stored["epoch"]),
        "held_out_size": float(stored["size"]),
        "reached": int(stored["reached"]),
    }
    return stored["probs"], how


def _check_network(options: Mapping[str, Any]) -> None:
    """Refuse what has no batches here."""
    kind = options["kind"]
    if kind != "gcn":
        raise ValueError(f"parameters: found kind {kind!r}; wanted 'gcn'")
    layers = options["layers"]
    if not 1 <= layers <= MOST_LAYERS:
        raise ValueError(f"parameters: found {layers} layers; wanted 1 or {MOST_LAYERS}")

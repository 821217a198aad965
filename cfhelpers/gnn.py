"""GCN, GraphSAGE and GAT on a whole graph at once, on the CPU or a GPU.

Features and edges in, probabilities out.
"""

import copy
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

try:
    import torch
    from torch.nn import functional
    from torch_geometric.nn import GATConv, GCNConv, SAGEConv
    from tqdm.auto import tqdm
except ModuleNotFoundError as error:
    raise ImportError(
        f"networks on graphs need {error.name}: pip install 'cfhelpers[models]'"
    ) from None

from cfhelpers._checks import as_adjacency, as_array, one_of

KINDS = ("gcn", "sage", "gat")
AGGREGATORS = ("mean", "gcn", "pool", "lstm")  # DGL's names, as in Tab D1
LAYERS: dict[str, Any] = {
    "hidden_channels": 64,
    "layers": 2,
    "dropout": 0.5,
    "heads": 4,
    "aggr": "mean",
}
DEFAULTS: dict[str, Any] = {"lr": 0.01, "scaled": True} | LAYERS
WEIGHT_DECAY = 5e-4
# Beyond this share of the nodes, leaving out the others is not worth its while.
LARGE_SHARE = 0.5
# Numbers that the lstm aggregator may hold at once: nodes × largest degree × channels.
LSTM_LIMIT = 2**28


def choose_device(device: str | None = None) -> torch.device:
    """The named device, or a GPU when there is one, or the CPU.

    Parameters
    ----------
    device : str, optional
        Such as "cpu" or "cuda:1".

    Returns
    -------
    torch.device

    Examples
    --------
    >>> choose_device("cpu").type
    'cpu'
    """
    if device:
        return torch.device(device)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("cpu")


class Neighbourhood:
    """What some nodes of a graph, the targets, take from others, the sources.

    Attributes
    ----------
    adjacency, normalised : sparse tensors, shape (targets, sources)
        1 between neighbours; and, with loops, divided by the roots of both degrees.
    adjacency_back, normalised_back : sparse tensors, shape (sources, targets)
        The same, transposed.
    counts : tensor, shape (targets, 1)
        The neighbours of every target, as numbers to divide by.
    """

    adjacency: torch.Tensor
    adjacency_back: torch.Tensor
    normalised: torch.Tensor
    normalised_back: torch.Tensor
    counts: torch.Tensor

    def of_targets(self, x: torch.Tensor) -> torch.Tensor:
        """The rows of the targets, from rows of the sources."""
        raise NotImplementedError

    @cached_property
    def edges(self) -> torch.Tensor:
        """(2, E): from, to; in the order of the nodes they lead to."""
        return torch.stack([self.adjacency.col_indices(), _rows_of(self.adjacency)])

    @cached_property
    def targets(self) -> torch.Tensor:
        """The row of every entry of `normalised`: where its edge, or loop, leads to."""
        return _rows_of(self.normalised)

    @cached_property
    def reversed_entries(self) -> torch.Tensor:
        """For every entry of `normalised_back` the place of the same in `normalised`."""
        return torch.argsort(self.normalised.col_indices(), stable=True)

    def with_weights(self, weights: torch.Tensor) -> torch.Tensor:
        """The matrix `normalised` with other values in its entries."""
        return _with_values(self.normalised, weights)

    def with_weights_back(self, weights: torch.Tensor) -> torch.Tensor:
        """The same, transposed."""
        return _with_values(self.normalised_back, weights[self.reversed_entries])


class Graph(Neighbourhood):
    """An undirected graph on a device, with the matrices that the layers multiply by.

    Every node is a target, and every node is a source.

    Parameters
    ----------
    edge_index : array of int, shape (2, E)
        Edges in either direction; repetitions and loops do not count.
    n : int
        Number of nodes.
    device : str or torch.device

    Attributes
    ----------
    degrees : array of int, shape (n,)
        Neighbours of every node.

    Examples
    --------
    >>> graph = Graph([[0, 1], [1, 2]], 3)
    >>> graph.edges.tolist()
    [[1, 0, 2, 1], [0, 1, 1, 2]]
    """

    def __init__(
        self, edge_index: ArrayLike, n: int, device: str | torch.device = "cpu"
    ) -> None:
        adjacency = as_adjacency(edge_index, n)
        self.n = n
        self.device = torch.device(device)
        self.degrees = np.diff(adjacency.indptr)
        scale = sparse.diags_array(1 / np.sqrt(self.degrees + 1)).astype(np.float32)
        with_loops = adjacency + sparse.eye_array(n, dtype=np.float32)
        self.normalised = _as_tensor((scale @ with_loops @ scale).tocsr(), self.device)
        self.adjacency = _as_tensor(adjacency, self.device)
        counts = torch.tensor(self.degrees, device=self.device, dtype=torch.float32)
        self.counts = counts[:, None]
        # symmetric, as edges have no direction
        self.adjacency_back = self.adjacency
        self.normalised_back = self.normalised

    def of_targets(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def reach(self, nodes: np.ndarray, layers: int) -> "Reach":
        """The nodes that some nodes hear of through so many layers, and how.

        As soon as the sources are more than half of the graph, little can be left out,
        and all of it is taken.

        Parameters
        ----------
        nodes : array of int
        layers : int

        Returns
        -------
        Reach

        Examples
        --------
        >>> path = Graph([[0, 1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6, 7]], 8)
        >>> path.reach(np.array([0]), layers=2).nodes.tolist()
        [0, 1, 2]
        """
        matrices = (_as_matrix(self.adjacency), _as_matrix(self.normalised))
        everyone = np.arange(self.n)
        targets = nodes
        parts: list[Neighbourhood] = []
        while len(parts) < layers:
            sources = np.unique(matrices[1][targets].indices)
            if len(sources) > LARGE_SHARE * self.n:
                break
            parts.insert(0, Part(*matrices, targets, sources, self.device))
            targets = sources
        n_whole = layers - len(parts)
        if not parts:
            return Reach(everyone, [self] * layers, nodes)
        if n_whole:
            parts.insert(0, Part(*matrices, targets, everyone, self.device))
            parts = [self] * (n_whole - 1) + parts
            targets = everyone
        return Reach(targets, parts, np.arange(len(nodes)))


class Part(Neighbourhood):
    """Some rows and columns of a graph's matrices.

    Parameters
    ----------
    adjacency, normalised : sparse arrays, shape (n, n)
    targets, sources : array of int
        Nodes; the sources ascend, and hold the targets and their neighbours.
    device : torch.device
    """

    def __init__(
        self,
        adjacency: sparse.csr_array,
        normalised: sparse.csr_array,
        targets: np.ndarray,
        sources: np.ndarray,
        device: torch.device,
    ) -> None:
        near = adjacency[targets][:, sources]
        weighted = normalised[targets][:, sources]
        self.adjacency = _as_tensor(near.tocsr(), device)
        self.normalised = _as_tensor(weighted.tocsr(), device)
        self.adjacency_back = _as_tensor(near.T.tocsr(), device)
        self.normalised_back = _as_tensor(weighted.T.tocsr(), device)
        counts = np.diff(adjacency.indptr)[targets]
        self.counts = torch.tensor(counts, device=device, dtype=torch.float32)[:, None]
        self.places = torch.tensor(np.searchsorted(sources, targets), device=device)

    def of_targets(self, x: torch.Tensor) -> torch.Tensor:
        return x[self.places]


@dataclass(frozen=True, eq=False)
class Reach:
    """All that the outputs of some nodes depend on.

    Attributes
    ----------
    nodes : array of int
        Whose features the first layer takes.
    parts : list of Neighbourhood
        One per layer, the first layer's first.
    rows : array of int
        Which of the last layer's targets are the nodes that were asked for.
    """

    nodes: np.ndarray
    parts: list[Neighbourhood]
    rows: np.ndarray


def _rows_of(matrix: torch.Tensor) -> torch.Tensor:
    """The row of every entry of a sparse tensor."""
    starts = matrix.crow_indices()
    rows = torch.arange(len(starts) - 1, device=starts.device)
    return rows.repeat_interleave(starts.diff())


def _with_values(matrix: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """A sparse tensor with other values in its entries."""
    return _sparse_csr(
        matrix.crow_indices(), matrix.col_indices(), values, tuple(matrix.shape)
    )


def _as_tensor(matrix: sparse.csr_array, device: torch.device) -> torch.Tensor:
    """The matrix as a sparse tensor on a device."""
    matrix.sort_indices()
    starts = torch.as_tensor(matrix.indptr.astype(np.int64))
    columns = torch.as_tensor(matrix.indices.astype(np.int64))
    values = torch.as_tensor(matrix.data)
    return _sparse_csr(starts, columns, values, matrix.shape).to(device)


def _as_matrix(tensor: torch.Tensor) -> sparse.csr_array:
    """A sparse tensor as SciPy's matrix."""
    own = tensor.cpu()
    parts = (own.values().numpy(), own.col_indices().numpy(), own.crow_indices().numpy())
    return sparse.csr_array(parts, shape=tuple(own.shape))


def _sparse_csr(
    starts: torch.Tensor,
    columns: torch.Tensor,
    values: torch.Tensor,
    shape: tuple[int, ...],
) -> torch.Tensor:
    """A sparse tensor, without torch's notice that these are young."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(
            starts, columns, values, shape, check_invariants=False
        )


class _SparseProduct(torch.autograd.Function):
    """matrix @ x for a sparse matrix whose transposed one is at hand.

    Its gradient is another such product, with no transpose to build.
    """

    @staticmethod
    def forward(
        context: Any, matrix: torch.Tensor, back: torch.Tensor, x: torch.Tensor
    ) -> torch.Tensor:
        context.back = back
        return matrix @ x

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[None, None, torch.Tensor]:
        return None, None, context.back @ gradient


def _sum_near(graph: Neighbourhood, x: torch.Tensor) -> torch.Tensor:
    """For every target, the sum of x over its neighbours."""
    return _SparseProduct.apply(graph.adjacency, graph.adjacency_back, x)


def _mix_near(graph: Neighbourhood, x: torch.Tensor) -> torch.Tensor:
    """For every target, the weighted sum of x over it and its neighbours."""
    return _SparseProduct.apply(graph.normalised, graph.normalised_back, x)


class _WeightedSum(torch.autograd.Function):
    """Sums over neighbours and the node itself, with a weight per entry of the graph.

    Nothing is copied per edge but the weights and their gradients: a dense layer's
    columns stay with the nodes.
    """

    @staticmethod
    def forward(
        context: Any, weights: torch.Tensor, x: torch.Tensor, graph: Neighbourhood
    ) -> torch.Tensor:
        context.save_for_backward(weights, x)
        context.graph = graph
        return graph.with_weights(weights) @ x

    @staticmethod
    def backward(
        context: Any, gradient: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, None]:
        weights, x = context.saved_tensors
        graph = context.graph
        gradient = gradient.contiguous()
        pattern = graph.with_weights(torch.zeros_like(weights))
        products = torch.sparse.sampled_addmm(pattern, gradient, x.T.contiguous())
        return products.values(), graph.with_weights_back(weights) @ gradient, None


class _GCN(GCNConv):
    """PyG's GCN layer on a matrix that is already normalised."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__(n_in, n_out, normalize=False)

    def forward(self, x: torch.Tensor, graph: Neighbourhood) -> torch.Tensor:
        # A(xW) = (Ax)W: the product with the graph takes the fewer columns
        if self.in_channels < self.out_channels:
            return self.lin(_mix_near(graph, x)) + self.bias
        return _mix_near(graph, self.lin(x)) + self.bias


class _SAGE(SAGEConv):
    """PyG's GraphSAGE layer with DGL's aggregators."""

    OPTIONS: Mapping[str, dict[str, Any]] = {
        "mean": {},
        "gcn": {"root_weight": False},
        "pool": {"aggr": "max", "project": True},
        "lstm": {"aggr": "lstm"},
    }

    def __init__(self, n_in: int, n_out: int, aggr: str) -> None:
        self.kind = aggr
        super().__init__(n_in, n_out, **self.OPTIONS[aggr])

    def forward(self, x: torch.Tensor, graph: Neighbourhood) -> torch.Tensor:
        own = graph.of_targets(x)
        if self.kind == "pool" and x.device.type == "cpu":
            largest = torch.sparse.mm(graph.adjacency, self.lin(x).relu(), "amax")
            return self.lin_l(largest) + self.lin_r(own)
        if self.kind in ("pool", "lstm"):
            return super().forward((x, own), graph.edges)
        if self.kind == "gcn":
            return self.lin_l((_sum_near(graph, x) + own) / (graph.counts + 1))
        share = 1 / graph.counts.clamp(min=1)
        # as in a GCN, the product with the graph takes the fewer columns
        if self.in_channels < self.out_channels:
            return self.lin_l(_sum_near(graph, x) * share) + self.lin_r(own)
        total = _sum_near(graph, x @ self.lin_l.weight.T)
        return total * share + self.lin_l.bias + self.lin_r(own)


class _GAT(GATConv):
    """PyG's GAT layer, whose heads share the channels, by products with the graph."""

    def __init__(self, n_in: int, n_out: int, heads: int) -> None:
        super().__init__(n_in, n_out // heads, heads=heads, add_self_loops=False)

    def forward(self, x: torch.Tensor, graph: Neighbourhood) -> torch.Tensor:
        by_head = self.lin.weight.view(self.heads, self.out_channels, -1)
        attention = self._attention(x, by_head, graph)
        # a product with the graph takes the fewer columns, as in a GCN
        is_wider_inside = self.in_channels < self.out_channels
        sent = [x] * self.heads
        if not is_wider_inside:
            sent = list((x @ self.lin.weight.T).split(self.out_channels, dim=1))
        outputs = []
        for head, weight in enumerate(by_head):
            mean = self._mean(attention[head], sent[head], graph)
            outputs.append(mean @ weight.T if is_wider_inside else mean)
        return torch.cat(outputs, dim=1) + self.bias

    def _attention(
        self, x: torch.Tensor, by_head: torch.Tensor, graph: Neighbourhood
    ) -> tuple[torch.Tensor, ...]:
        """By head, exp of what it makes of each entry, less the largest of its node."""
        from_source = torch.einsum("hoi,ho->ih", by_head, self.att_src[0])
        from_target = torch.einsum("hoi,ho->ih", by_head, self.att_dst[0])
        source = x @ from_source
        target = graph.of_targets(x) @ from_target
        columns = graph.normalised.col_indices()
        # unlike source[columns], its gradient is summed in one order by any threads
        logits = functional.embedding(columns, source)
        logits = logits + functional.embedding(graph.targets, target)
        logits = functional.leaky_relu(logits, self.negative_slope)
        starts = graph.normalised.crow_indices()
        largest = torch.segment_reduce(logits.detach(), "max", offsets=starts)
        return (logits - largest[graph.targets]).exp().T.contiguous().unbind()

    def _mean(
        self, attention: torch.Tensor, sent: torch.Tensor, graph: Neighbourhood
    ) -> torch.Tensor:
        """Of what the sources send, the mean, weighted by attention."""
        ones = torch.ones_like(sent[:, :1])
        sums = _WeightedSum.apply(attention, torch.cat([sent, ones], dim=1), graph)
        return sums[:, :-1] / sums[:, -1:]


class GNN(torch.nn.Module):
    """Graph convolutions of one kind, with ReLU and dropout between them.

    Parameters
    ----------
    kind : {"gcn", "sage", "gat"}
    n_in, n_out : int
        Features that go in, logits that come out.
    hidden_channels, layers : int
        The width between layers, and their number.
    dropout : float
        The share of entries that training leaves out before every layer.
    heads : int
        Of "gat": they share the channels, and one decides in the end.
    aggr : {"mean", "gcn", "pool", "lstm"}
        Of "sage": how neighbours are brought together.

    Examples
    --------
    >>> graph = Graph([[0, 1], [1, 2]], 3)
    >>> GNN("gcn", 5, 2)(torch.zeros(3, 5), graph).shape
    torch.Size([3, 2])
    """

    def __init__(
        self,
        kind: str,
        n_in: int,
        n_out: int,
        *,
        hidden_channels: int = 64,
        layers: int = 2,
        dropout: float = 0.5,
        heads: int = 4,
        aggr: str = "mean",
    ) -> None:
        super().__init__()
        self.kind = one_of(kind, "kind", KINDS)
        self.aggr = one_of(aggr, "aggr", AGGREGATORS)
        self.dropout = dropout
        if kind == "gat" and hidden_channels % heads:
            raise ValueError(
                f"heads: found {heads} for {hidden_channels} channels; "
                "wanted a divisor of the channels"
            )
        self.convolutions = torch.nn.ModuleList()
        width = n_in
        for _ in range(layers - 1):
            self.convolutions.append(self._layer(width, hidden_channels, heads))
            width = hidden_channels
        self.convolutions.append(self._layer(width, n_out, 1))

    def _layer(self, n_in: int, n_out: int, heads: int) -> torch.nn.Module:
        """One convolution of this model's kind."""
        if self.kind == "gcn":
            return _GCN(n_in, n_out)
        if self.kind == "sage":
            return _SAGE(n_in, n_out, self.aggr)
        return _GAT(n_in, n_out, heads)

    def forward(self, x: torch.Tensor, graph: Graph) -> torch.Tensor:
        """Logits, (n, n_out), from features, (n, n_in)."""
        self._check_memory(graph)
        return self._through(x, [graph] * len(self.convolutions))

    def reach(self, graph: Graph, nodes: np.ndarray) -> Reach:
        """What the logits of some nodes depend on; for `at`.

        The lstm aggregator takes all neighbourhoods as long as the largest, so that what
        it makes of one depends on the whole graph.

        Parameters
        ----------
        graph : Graph
        nodes : array of int

        Returns
        -------
        Reach
        """
        self._check_memory(graph)
        layers = len(self.convolutions)
        if self._takes_sequences:
            return Reach(np.arange(graph.n), [graph] * layers, nodes)
        return graph.reach(nodes, layers)

    def at(self, x: torch.Tensor, reach: Reach) -> torch.Tensor:
        """Logits of some nodes alone, from features of all, (n, n_in).

        Whatever these do not depend on is not computed.

        Parameters
        ----------
        x : tensor, shape (n, n_in)
        reach : Reach

        Returns
        -------
        tensor, shape (nodes, n_out)

        Examples
        --------
        >>> graph = Graph([[0, 1], [1, 2]], 3)
        >>> model = GNN("gcn", 5, 2).eval()
        >>> x = torch.rand(3, 5)
        >>> own = model.at(x, model.reach(graph, np.array([2])))
        >>> torch.allclose(own, model(x, graph)[[2]], atol=1e-6)
        True
        """
        if len(reach.nodes) < len(x):
            x = x[reach.nodes]
        return self._through(x, reach.parts)[reach.rows]

    @property
    def _takes_sequences(self) -> bool:
        """Whether neighbours are read one after another."""
        return self.kind == "sage" and self.aggr == "lstm"

    def _through(self, x: torch.Tensor, parts: Sequence[Neighbourhood]) -> torch.Tensor:
        """What the layers make of features, each with its part of the graph."""
        layers = zip(self.convolutions, parts, strict=True)
        for place, (convolution, part) in enumerate(layers):
            if place:
                x = functional.relu(x)
            x = functional.dropout(x, self.dropout, self.training)
            x = convolution(x, part)
        return x

    def _check_memory(self, graph: Graph) -> None:
        """Refuse a graph that is too large for the lstm aggregator."""
        if not self._takes_sequences:
            return
        most = int(graph.degrees.max())
        width = max(convolution.in_channels for convolution in self.convolutions)
        if graph.n * most * width > LSTM_LIMIT:
            found = f"a graph of {graph.n:,} nodes with up to {most:,} neighbours"
            raise ValueError(
                f"aggr: found 'lstm' for {found}, which does not fit; "
                "wanted mean, gcn or pool"
            )


def standardise(X: ArrayLike, train: np.ndarray) -> np.ndarray:
    """Columns of X less their mean, in units of their deviation, both over some rows.

    Parameters
    ----------
    X : array, shape (n, p)
    train : array of int or bool
        The rows that mean and deviation come from. A column that does not vary there is
        not divided.

    Returns
    -------
    array of float32, shape (n, p)

    Examples
    --------
    >>> standardise([[1.0], [3.0], [9.0]], np.array([0, 1])).tolist()
    [[-1.0], [1.0], [7.0]]
    """
    columns = np.asarray(X, np.float64)
    deviation = columns[train].std(axis=0)
    unit = np.where(deviation > 0, deviation, 1)
    return ((columns - columns[train].mean(axis=0)) / unit).astype(np.float32)


def fit(
    X: ArrayLike,
    y: ArrayLike,
    edge_index: ArrayLike,
    parts: np.ndarray,
    n_classes: int,
    kind: str = "gcn",
    parameters: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    device: str | None = None,
    epochs: int = 500,
    patience: int = 50,
    progress: bool = True,
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Train a graph network, and keep the epoch with the lowest validation loss.

    Learns from the rows whose part is "train"; stops when `patience` epochs have brought
    no lower cross-entropy on "valid".

    Parameters
    ----------
    X : array, shape (n, p)
        Features.
    y : array of int, shape (n,)
        Labels; those outside "train" and "valid" are not looked at.
    edge_index : array of int, shape (2, E)
    parts : array of str, shape (n,)
        As `datasets.split` gives it.
    n_classes : int
    kind : {"gcn", "sage", "gat"}
    parameters : mapping, optional
        Some of `DEFAULTS`. Features that are not "scaled" are taken as they are.
    seed : int
        Of weights and dropout; torch's own streams are left as they were.
    device : str, optional
        None: a GPU when there is one.
    epochs, patience : int
    progress : bool
        Whether a bar shows how far it is.

    Returns
    -------
    probs : array of float32, shape (n, K)
    history : dict of str to array
        An entry per epoch: "epoch", "loss", "valid_loss", "held_out" (validation
        accuracy), "seconds".
    """
    options = model_options(DEFAULTS, parameters)
    lr = options.pop("lr")
    is_scaled = options.pop("scaled")
    place = choose_device(device)
    train = np.flatnonzero(parts == "train")
    valid = np.flatnonzero(parts == "valid")
    graph = Graph(edge_index, len(parts), place)
    features = standardise(X, train) if is_scaled else np.asarray(X, np.float32)
    x = torch.tensor(features, device=place)
    labels = torch.tensor(as_array(y), device=place)
    with seeded(seed, place):
        model = GNN(kind, x.shape[1], n_classes, **options).to(place)
        optimizer = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=WEIGHT_DECAY)
        near_train = model.reach(graph, train)
        near_valid = model.reach(graph, valid)

        def step() -> float:
            loss = functional.cross_entropy(model.at(x, near_train), labels[train])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.item()

        def judge() -> dict[str, float]:
            logits = model.at(x, near_valid)
            loss = functional.cross_entropy(logits, labels[valid])
            accuracy = (logits.argmax(1) == labels[valid]).float().mean()
            return {"valid_loss": float(loss), "held_out": float(accuracy)}

        title = f"training {kind}"
        best, history = best_epoch(model, step, judge, epochs, patience, progress, title)
        with torch.no_grad():
            probs = torch.softmax(best(x, graph).double(), dim=1)
    return probs.float().cpu().numpy(), history


def model_options(
    defaults: Mapping[str, Any], parameters: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The defaults with some of them replaced.

    Parameters
    ----------
    defaults, parameters : mapping
        By name; `parameters` may only have names that `defaults` has.

    Returns
    -------
    dict

    Examples
    --------
    >>> model_options({"lr": 0.01, "layers": 2}, {"layers": 3})
    {'lr': 0.01, 'layers': 3}
    """
    options = dict(defaults) | dict(parameters or {})
    unknown = sorted(set(options) - set(defaults))
    if unknown:
        raise ValueError(
            f"parameters: found {unknown[0]!r}; wanted some of {', '.join(defaults)}"
        )
    return options


def best_epoch(
    model: torch.nn.Module,
    step: Callable[[], float],
    judge: Callable[[], dict[str, float]],
    epochs: int,
    patience: int,
    progress: bool,
    title: str,
    first: int = 0,
    keep: str = "best",
) -> tuple[torch.nn.Module, dict[str, np.ndarray]]:
    """Train a model until nothing is better for a while; keep it as at its best epoch.

    Parameters
    ----------
    model : torch.nn.Module
        Changed in place.
    step : function
        One epoch of training; gives the loss.
    judge : function
        Gives numbers by name; the first of them is to be small.
    epochs, patience : int
        Stops after `epochs`, or when `patience` epochs have brought nothing better.
    progress : bool
        Whether a bar, with this `title`, shows how far it is.
    title : str
    first : int
        Epochs before this one are not judged.
    keep : {"best", "last"}
        "last": goes on to the end, and keeps the model as it is then.

    Returns
    -------
    model : torch.nn.Module
        The same, with the weights of the epoch that is kept, and ready to predict.
    history : dict of str to array
        An entry per judged epoch: "epoch", "loss", what `judge` gives, "seconds".
    """
    best_weights = None
    best_value = np.inf
    best_at = first
    history: dict[str, list[float]] = {}
    start = time.perf_counter()
    with tqdm(
        range(epochs), title, disable=not progress, leave=False, mininterval=0.5
    ) as bar:
        for epoch in bar:
            model.train()
            loss = step()
            if epoch < first:
                continue
            model.eval()
            with torch.no_grad():
                judged = judge()
            seconds = time.perf_counter() - start
            row = {"epoch": epoch, "loss": loss, **judged, "seconds": seconds}
            for name, number in row.items():
                history.setdefault(name, []).append(number)
            value = next(iter(judged.values()))
            bar.set_postfix(loss=f"{loss:.3f}", held_out=f"{value:.3f}", refresh=False)
            if best_weights is None or value < best_value:
                best_weights = copy.deepcopy(model.state_dict())
                best_value = value
                best_at = epoch
            elif keep == "best" and epoch - best_at >= patience:
                break
    if keep == "best":
        model.load_state_dict(best_weights)
    model.eval()
    return model, {name: np.array(column) for name, column in history.items()}


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Inside, torch draws from `seed`; outside, its streams are as they were.

    Examples
    --------
    >>> before = torch.get_rng_state()
    >>> with seeded(0, torch.device("cpu")):
    ...     first = torch.rand(1)
    >>> torch.equal(torch.get_rng_state(), before)
    True
    """
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        yield

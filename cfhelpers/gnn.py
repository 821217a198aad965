"""GCN, GraphSAGE and GAT on a whole graph at once, on the CPU or a GPU.

Features and edges in, probabilities out.
"""

import copy
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy import sparse
from torch.nn import functional
from torch_geometric.nn import GATConv, GCNConv, SAGEConv
from torch_geometric.utils import add_self_loops
from tqdm.auto import tqdm

from cfhelpers._checks import as_adjacency, as_array, one_of

KINDS = ("gcn", "sage", "gat")
AGGREGATORS = ("mean", "gcn", "pool", "lstm")  # DGL's names, as in Tab D1
DEFAULTS: dict[str, Any] = {
    "lr": 0.01,
    "hidden_channels": 64,
    "layers": 2,
    "dropout": 0.5,
    "heads": 4,
    "aggr": "mean",
}
WEIGHT_DECAY = 5e-4
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


class Graph:
    """An undirected graph on a device, with the matrices that the layers multiply by.

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
    adjacency, normalised : sparse tensors, shape (n, n)
        1 between neighbours; and, with loops, divided by the roots of both degrees.
    counts : tensor, shape (n, 1)
        The degrees, as numbers to divide by.

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
        self.normalised = self._put((scale @ with_loops @ scale).tocsr())
        self.adjacency = self._put(adjacency)
        counts = torch.tensor(self.degrees, device=self.device, dtype=torch.float32)
        self.counts = counts[:, None]

    @cached_property
    def edges(self) -> torch.Tensor:
        """(2, E): from, to; in the order of the nodes they lead to."""
        per_node = self.adjacency.crow_indices().diff()
        to = torch.arange(self.n, device=self.device).repeat_interleave(per_node)
        return torch.stack([self.adjacency.col_indices(), to])

    @cached_property
    def edges_and_loops(self) -> torch.Tensor:
        """The edges, and one from every node to itself."""
        return add_self_loops(self.edges, num_nodes=self.n)[0]

    def _put(self, matrix: sparse.csr_array) -> torch.Tensor:
        """The matrix as a sparse tensor on the graph's device."""
        starts = torch.as_tensor(matrix.indptr.astype(np.int64))
        columns = torch.as_tensor(matrix.indices.astype(np.int64))
        values = torch.as_tensor(matrix.data)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
            tensor = torch.sparse_csr_tensor(
                starts, columns, values, matrix.shape, check_invariants=False
            )
        return tensor.to(self.device)


class _SymmetricProduct(torch.autograd.Function):
    """matrix @ x for a symmetric sparse matrix.

    Its gradient is another such product, with no transpose to build.
    """

    @staticmethod
    def forward(context: Any, matrix: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        context.matrix = matrix
        return matrix @ x

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[None, torch.Tensor]:
        return None, context.matrix @ gradient


class _GCN(GCNConv):
    """PyG's GCN layer on a matrix that is already normalised."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__(n_in, n_out, normalize=False)

    def forward(self, x: torch.Tensor, graph: Graph) -> torch.Tensor:
        # A(xW) = (Ax)W: the product with the graph takes the fewer columns
        if self.in_channels < self.out_channels:
            return self.lin(_SymmetricProduct.apply(graph.normalised, x)) + self.bias
        return _SymmetricProduct.apply(graph.normalised, self.lin(x)) + self.bias


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

    def forward(self, x: torch.Tensor, graph: Graph) -> torch.Tensor:
        if self.kind in ("pool", "lstm"):
            return super().forward(x, graph.edges)
        total = _SymmetricProduct.apply(graph.adjacency, x)
        if self.kind == "gcn":
            return self.lin_l((total + x) / (graph.counts + 1))
        return self.lin_l(total / graph.counts.clamp(min=1)) + self.lin_r(x)


class _GAT(GATConv):
    """PyG's GAT layer whose heads share the channels."""

    def __init__(self, n_in: int, n_out: int, heads: int) -> None:
        super().__init__(n_in, n_out // heads, heads=heads, add_self_loops=False)

    def forward(self, x: torch.Tensor, graph: Graph) -> torch.Tensor:
        return super().forward(x, graph.edges_and_loops)


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
        for place, convolution in enumerate(self.convolutions):
            if place:
                x = functional.relu(x)
            x = functional.dropout(x, self.dropout, self.training)
            x = convolution(x, graph)
        return x

    def _check_memory(self, graph: Graph) -> None:
        """Refuse a graph that is too large for the lstm aggregator."""
        if self.kind != "sage" or self.aggr != "lstm":
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
    """Train a graph network, and keep the epoch with the best validation accuracy.

    Learns from the rows whose part is "train"; stops when `patience` epochs bring neither
    a better accuracy on "valid" nor, at the same, a lower loss there.

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
        Some of `DEFAULTS`.
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
        An entry per epoch: "epoch", "loss", "held_out" (validation accuracy), "seconds".
    """
    options = model_options(DEFAULTS, parameters)
    lr = options.pop("lr")
    place = choose_device(device)
    train = np.flatnonzero(parts == "train")
    valid = np.flatnonzero(parts == "valid")
    graph = Graph(edge_index, len(parts), place)
    x = torch.tensor(standardise(X, train), device=place)
    labels = torch.tensor(as_array(y), device=place)
    with seeded(seed, place):
        model = GNN(kind, x.shape[1], n_classes, **options).to(place)
        optimizer = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=WEIGHT_DECAY)

        def step() -> float:
            loss = functional.cross_entropy(model(x, graph)[train], labels[train])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.item()

        def judge() -> tuple[float, float]:
            logits = model(x, graph)[valid]
            accuracy = (logits.argmax(1) == labels[valid]).float().mean()
            loss = functional.cross_entropy(logits, labels[valid])
            return float(accuracy), float(loss)

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
    judge: Callable[[], tuple[float, float]],
    epochs: int,
    patience: int,
    progress: bool,
    title: str,
    first: int = 0,
) -> tuple[torch.nn.Module, dict[str, np.ndarray]]:
    """Train a model until nothing is better for a while; keep it as at its best epoch.

    Parameters
    ----------
    model : torch.nn.Module
        Changed in place.
    step : function
        One epoch of training; gives the loss.
    judge : function
        Gives what is to be large, and what is to be small where that is equal.
    epochs, patience : int
        Stops after `epochs`, or when `patience` epochs have brought nothing better.
    progress : bool
        Whether a bar, with this `title`, shows how far it is.
    title : str
    first : int
        Epochs before this one are not judged.

    Returns
    -------
    model : torch.nn.Module
        The same, with the weights of its best epoch and ready to predict.
    history : dict of str to array
        An entry per judged epoch: "epoch", "loss", "held_out", "seconds".
    """
    best_weights = None
    best_value = -np.inf
    best_tie = np.inf
    best_at = first
    history = []
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
                value, tie = judge()
            history.append((epoch, loss, value, time.perf_counter() - start))
            bar.set_postfix(loss=f"{loss:.3f}", held_out=f"{value:.3f}", refresh=False)
            if value > best_value or (value == best_value and tie < best_tie):
                best_weights = copy.deepcopy(model.state_dict())
                best_value = value
                best_tie = tie
                best_at = epoch
            elif epoch - best_at >= patience:
                break
    model.load_state_dict(best_weights)
    model.eval()
    names = ("epoch", "loss", "held_out", "seconds")
    return model, dict(zip(names, np.array(history).T, strict=True))


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

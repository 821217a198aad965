"""GCN, GraphSAGE and GAT on a whole graph at once, on the CPU or a GPU: features and edges in, probabilities out."""

import copy
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch.nn import functional
from torch_geometric.nn import GATConv, GCNConv, SAGEConv
from torch_geometric.utils import add_self_loops
from tqdm.auto import tqdm

from cfhelpers._checks import as_adjacency, as_array, one_of

KINDS = ("gcn", "sage", "gat")
AGGREGATORS = ("mean", "gcn", "pool", "lstm")  # DGL's names, as in Tab D1
DEFAULTS = {
    "lr": 0.01,
    "hidden_channels": 64,
    "layers": 2,
    "dropout": 0.5,
    "heads": 4,
    "aggr": "mean",
}
WEIGHT_DECAY = 5e-4
LSTM_LIMIT = (
    2**28
)  # numbers that the lstm aggregator may hold at once: nodes × largest degree × channels


def choose_device(device: str | None = None) -> torch.device:
    """The named device, or a GPU when there is one, or the CPU."""
    return torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))


class Graph:
    """An undirected graph of n nodes on a device, with the matrices that the layers multiply by."""

    def __init__(self, edge_index: Any, n: int, device: str | torch.device = "cpu"):
        adjacency = as_adjacency(edge_index, n)
        self.n, self.device = n, torch.device(device)
        self.degrees = np.diff(adjacency.indptr)
        scale = sparse.diags_array(1 / np.sqrt(self.degrees + 1)).astype(np.float32)
        self.normalised = self._put(
            (scale @ (adjacency + sparse.eye_array(n, dtype=np.float32)) @ scale).tocsr()
        )
        self.adjacency = self._put(adjacency)
        self.counts = torch.tensor(self.degrees, device=self.device, dtype=torch.float32)[
            :, None
        ]

    @cached_property
    def edges(self) -> torch.Tensor:
        """(2, E): from, to; in the order of the nodes they lead to."""
        adjacency = self.adjacency
        to = torch.arange(self.n, device=self.device).repeat_interleave(
            adjacency.crow_indices().diff()
        )
        return torch.stack([adjacency.col_indices(), to])

    @cached_property
    def edges_and_loops(self) -> torch.Tensor:
        return add_self_loops(self.edges, num_nodes=self.n)[0]

    def _put(self, matrix: sparse.csr_array) -> torch.Tensor:
        parts = (
            torch.as_tensor(part.astype(np.int64))
            for part in (matrix.indptr, matrix.indices)
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
            tensor = torch.sparse_csr_tensor(
                *parts, torch.as_tensor(matrix.data), matrix.shape, check_invariants=False
            )
        return tensor.to(self.device)


class _SymmetricProduct(torch.autograd.Function):
    """matrix @ x for a symmetric sparse matrix: its gradient is another such product, with no transpose to build."""

    @staticmethod
    def forward(context, matrix, x):
        context.matrix = matrix
        return matrix @ x

    @staticmethod
    def backward(context, gradient):
        return None, context.matrix @ gradient


class _GCN(GCNConv):
    """PyG's GCN layer on a matrix that is already normalised."""

    def __init__(self, *channels):
        super().__init__(*channels, normalize=False)

    def forward(self, x, graph):
        if (
            self.in_channels < self.out_channels
        ):  # A(xW) = (Ax)W: the product with the graph takes the fewer columns
            return self.lin(_SymmetricProduct.apply(graph.normalised, x)) + self.bias
        return _SymmetricProduct.apply(graph.normalised, self.lin(x)) + self.bias


class _SAGE(SAGEConv):
    """PyG's GraphSAGE layer with DGL's aggregators."""

    def __init__(self, n_in, n_out, aggr):
        self.kind = aggr
        options = {
            "gcn": {"root_weight": False},
            "pool": {"aggr": "max", "project": True},
            "lstm": {"aggr": "lstm"},
        }
        super().__init__(n_in, n_out, **options.get(aggr, {}))

    def forward(self, x, graph):
        if self.kind in ("pool", "lstm"):
            return super().forward(x, graph.edges)
        total = _SymmetricProduct.apply(graph.adjacency, x)
        if self.kind == "gcn":
            return self.lin_l((total + x) / (graph.counts + 1))
        return self.lin_l(total / graph.counts.clamp(min=1)) + self.lin_r(x)


class _GAT(GATConv):
    def __init__(self, n_in, n_out, heads):
        super().__init__(n_in, n_out // heads, heads=heads, add_self_loops=False)

    def forward(self, x, graph):
        return super().forward(x, graph.edges_and_loops)


class GNN(torch.nn.Module):
    """Graph convolutions of one kind, with ReLU and dropout between them: (n, n_in) in, logits (n, n_out) out."""

    def __init__(
        self,
        kind,
        n_in,
        n_out,
        *,
        hidden_channels=64,
        layers=2,
        dropout=0.5,
        heads=4,
        aggr="mean",
    ):
        super().__init__()
        one_of(kind, "kind", KINDS), one_of(aggr, "aggr", AGGREGATORS)
        self.dropout, self.kind, self.aggr = dropout, kind, aggr
        if kind == "gat" and hidden_channels % heads:
            raise ValueError(
                f"heads: found {heads} for {hidden_channels} channels; wanted a divisor of the channels"
            )

        def layer(place, before, after):
            if kind == "gat":  # the heads share the channels; one decides in the end
                return _GAT(before, after, heads if place < layers - 1 else 1)
            return _GCN(before, after) if kind == "gcn" else _SAGE(before, after, aggr)

        widths = [n_in, *[hidden_channels] * (layers - 1), n_out]
        self.convolutions = torch.nn.ModuleList(
            map(layer, range(layers), widths[:-1], widths[1:])
        )

    def forward(self, x, graph):
        most, width = (
            int(graph.degrees.max()),
            max(convolution.in_channels for convolution in self.convolutions),
        )
        if (
            self.kind == "sage"
            and self.aggr == "lstm"
            and graph.n * most * width > LSTM_LIMIT
        ):
            found = f"a graph of {graph.n:,} nodes with up to {most:,} neighbours"
            raise ValueError(
                f"aggr: found 'lstm' for {found}, which does not fit; wanted mean, gcn or pool"
            )
        for place, convolution in enumerate(self.convolutions):
            x = functional.dropout(
                functional.relu(x) if place else x, self.dropout, self.training
            )
            x = convolution(x, graph)
        return x


def standardise(X: Any, train: np.ndarray) -> np.ndarray:
    """Columns of X less their mean over the training rows, in units of their deviation there; float32 (n, p)."""
    X = np.asarray(X, np.float64)
    deviation = X[train].std(axis=0)
    return ((X - X[train].mean(axis=0)) / np.where(deviation > 0, deviation, 1)).astype(
        np.float32
    )


def fit(
    X: Any,
    y: Any,
    edge_index: Any,
    parts: np.ndarray,
    n_classes: int,
    kind: str = "gcn",
    parameters: dict | None = None,
    *,
    seed: int = 0,
    device: str | None = None,
    epochs: int = 500,
    patience: int = 50,
    progress: bool = True,
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Probabilities, float32 (n, K), of the epoch with the best validation accuracy, and the history of the training.

    Learns from the rows whose part is "train"; stops when `patience` epochs bring neither a better accuracy on "valid"
    nor, at the same, a lower loss there.
    """
    options, device = DEFAULTS | (parameters or {}), choose_device(device)
    if unknown := set(options) - set(DEFAULTS):
        raise ValueError(
            f"parameters: found {sorted(unknown)[0]!r}; wanted some of {', '.join(DEFAULTS)}"
        )
    lr = options.pop("lr")
    train, valid = np.flatnonzero(parts == "train"), np.flatnonzero(parts == "valid")
    graph = Graph(edge_index, len(parts), device)
    x, labels = (
        torch.tensor(standardise(X, train), device=device),
        torch.tensor(as_array(y), device=device),
    )
    with seeded(seed, device):
        model = GNN(kind, x.shape[1], n_classes, **options).to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=WEIGHT_DECAY)

        def step():
            loss = functional.cross_entropy(model(x, graph)[train], labels[train])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.item()

        def judge(logits):
            right = (logits[valid].argmax(1) == labels[valid]).float().mean()
            return float(right), float(
                functional.cross_entropy(logits[valid], labels[valid])
            )

        best, history = best_epoch(
            model,
            step,
            lambda: judge(model(x, graph)),
            epochs,
            patience,
            progress,
            f"training {kind}",
        )
        with torch.no_grad():
            probs = torch.softmax(best(x, graph).double(), dim=1)
    return probs.float().cpu().numpy(), history


def best_epoch(model, step, judge, epochs, patience, progress, title, first=0):
    """Run `step` until `judge` has not improved for `patience` epochs; the model of the best epoch, and the history.

    `judge` gives (what is to be large, what is to be small where that is equal); epochs before `first` are not judged.
    """
    best, best_value, best_at, history, start = (
        None,
        (-np.inf, np.inf),
        first,
        [],
        time.perf_counter(),
    )
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
            if (value, -tie) > (best_value[0], -best_value[1]):
                best, best_value, best_at = (
                    copy.deepcopy(model.state_dict()),
                    (value, tie),
                    epoch,
                )
            elif epoch - best_at >= patience:
                break
    model.load_state_dict(best)
    model.eval()
    names = ("epoch", "loss", "held_out", "seconds")
    return model, dict(zip(names, np.array(history).T, strict=True))


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Inside, torch draws from `seed`; outside, its streams are as they were."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield

"""Scores with something to choose: RAPS and, on graphs, DAPS and CFGNN; tuned apart from the rows that calibrate."""

from typing import Any

import numpy as np
from scipy import sparse

from cfhelpers._cache import cached, fingerprint
from cfhelpers._checks import as_adjacency, as_array, as_probabilities, as_scores
from cfhelpers.conformal import conformal_quantile
from cfhelpers.scores import aps

STREAM = 0xA95  # u is drawn from a stream of its own
CFGNN = {
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
    """Mean set size when each half of the rows, even and odd, takes its threshold from the other half."""
    sizes = []
    for half in (0, 1):
        other, true = scores[1 - half :: 2], y[1 - half :: 2]
        sizes.append(
            scores[half::2]
            <= conformal_quantile(other[np.arange(len(true)), true], alpha)
        )
    return float(np.concatenate(sizes).sum(axis=1).mean())


def neighbour_mean(edge_index: Any, n: int) -> sparse.csr_array:
    """The sparse (n, n) matrix that averages over neighbours; a node without neighbours is its own."""
    adjacency = as_adjacency(edge_index, n).astype(np.float64)
    degrees = np.diff(adjacency.indptr)
    alone = sparse.diags_array((degrees == 0).astype(np.float64))
    return (sparse.diags_array(1 / np.maximum(degrees, 1)) @ adjacency + alone).tocsr()


def daps(scores: Any, edge_index: Any, diffusion: float) -> np.ndarray:
    """(1 - δ)·s(v, y) + δ·mean of s(u, y) over the neighbours u of v, scores (n, K); without neighbours, s(v, y)."""
    scores = as_scores(scores)
    if not 0 <= diffusion <= 1:
        raise ValueError(f"diffusion: found {diffusion!r}; wanted a number in [0, 1]")
    return mix(scores, neighbour_mean(edge_index, len(scores)) @ scores, diffusion)


def mix(scores: np.ndarray, means: np.ndarray, diffusion: float) -> np.ndarray:
    return (1 - diffusion) * scores + diffusion * means


def cfgnn(
    probs: Any,
    y: Any,
    edge_index: Any,
    tune: np.ndarray,
    *,
    alpha: float = 0.1,
    parameters: dict[str, Any] | None = None,
    seed: int = 0,
    epochs: int = 200,
    warm_up: int = 60,
    patience: int = 60,
    device: str | None = None,
    progress: bool = True,
) -> tuple[np.ndarray, dict[str, Any]]:
    """Probabilities, float32 (n, K), corrected by a second GNN that is trained for small sets; and how that went.

    The GNN sees the logarithms of the base probabilities and the graph, and adds to the former. It learns from the rows
    `tune` alone: two thirds of them train, the others choose the epoch. Conformalise and report on rows outside `tune`.
    """
    from cfhelpers import gnn

    defaults = gnn.DEFAULTS | CFGNN
    probs, options = (
        as_probabilities(probs).astype(np.float32),
        defaults | (parameters or {}),
    )
    if unknown := set(options) - set(defaults):
        raise ValueError(
            f"parameters: found {sorted(unknown)[0]!r}; wanted some of {', '.join(defaults)}"
        )
    if epochs <= warm_up:
        raise ValueError(
            f"epochs: found {epochs} with a warm-up of {warm_up}; wanted more than the warm-up"
        )
    device = gnn.choose_device(device)
    key = {
        "content": fingerprint(probs, as_array(y)[tune], as_array(edge_index), tune),
        "parameters": options,
        "schedule": [alpha, epochs, warm_up, patience, SIZE_WEIGHT, TARGET],
        "seed": seed,
        "device": device.type,
        "torch": gnn.torch.__version__,
    }

    def compute():
        return _train_cfgnn(
            probs,
            y,
            edge_index,
            tune,
            alpha,
            options,
            seed,
            epochs,
            warm_up,
            patience,
            device,
            progress,
        )

    stored = cached("cfgnn", key, compute)
    return stored["probs"], {
        "epoch": int(stored["epoch"]),
        "held_out_size": float(stored["size"]),
    }


def _train_cfgnn(
    probs,
    y,
    edge_index,
    tune,
    alpha,
    options,
    seed,
    epochs,
    warm_up,
    patience,
    device,
    progress,
):
    from cfhelpers import gnn

    torch, functional = gnn.torch, gnn.functional
    shape = {
        name: value
        for name, value in options.items()
        if name not in ("kind", "lr", "temperature")
    }
    rng = np.random.default_rng([seed, STREAM, 1])
    fit, held_out = np.split(rng.permutation(tune), [2 * len(tune) // 3])
    graph, y = gnn.Graph(edge_index, len(probs), device), as_array(y)
    x, labels = (
        torch.tensor(np.log(probs.clip(1e-6)), device=device),
        torch.tensor(y, device=device),
    )
    u_held_out = rng.random(len(held_out))
    with gnn.seeded(seed, device):
        model = gnn.GNN(options["kind"], probs.shape[1], probs.shape[1], **shape).to(
            device
        )
        optimizer = torch.optim.Adam(
            model.parameters(), lr=options["lr"], weight_decay=gnn.WEIGHT_DECAY
        )
        taken = 0

        def step():
            nonlocal taken
            logits, taken = x + model(x, graph), taken + 1
            loss = functional.cross_entropy(logits[fit], labels[fit])
            if taken > warm_up:
                rows = torch.tensor(rng.permutation(fit), device=device)
                soft = torch.softmax(logits[rows], dim=1)
                loss = loss + SIZE_WEIGHT * size_loss(
                    soft, labels[rows], alpha, options["temperature"]
                )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.item()

        def judge():
            adjusted = torch.softmax((x + model(x, graph))[held_out], dim=1).cpu().numpy()
            return -held_out_size(aps(adjusted, u_held_out), y[held_out], alpha), 0.0

        model, history = gnn.best_epoch(
            model, step, judge, epochs, patience, progress, "training cfgnn", warm_up
        )
        with torch.no_grad():
            adjusted = (
                torch.softmax((x + model(x, graph)).double(), dim=1).float().cpu().numpy()
            )
    best = int(np.argmax(history["held_out"]))
    return {
        "probs": adjusted,
        "epoch": history["epoch"][best],
        "size": -history["held_out"][best],
    }


def size_loss(probs, y, alpha: float, temperature: float, target: float = TARGET):
    """How far the soft size of prediction sets lies above `target`, mean over points; a torch scalar with gradients.

    The first half of the rows calibrates: η is the conformal quantile of their APS scores. In the second half a label
    belongs to a set by σ((η − s)/temperature) instead of 0 or 1.
    """
    from cfhelpers.gnn import functional, torch

    ranked, order = probs.sort(dim=1, descending=True)
    scores = torch.zeros_like(probs).scatter(
        1, order, ranked.cumsum(dim=1) - ranked / 2
    )  # u at its mean
    n = len(probs) // 2
    rank = int(min(conformal_quantile(np.arange(1, n + 1), alpha), n))
    threshold = scores[:n].gather(1, y[:n, None]).squeeze(1).sort().values[rank - 1]
    soft_sizes = torch.sigmoid((threshold - scores[n:]) / temperature).sum(dim=1)
    return functional.relu(soft_sizes - target).mean()

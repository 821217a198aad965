"""A small graph to learn from, for the tests of models and graph scores; simulated."""

import numpy as np
import pandas as pd

from cfhelpers.datasets import Dataset
from cfhelpers.datasets._dataset import symmetric, undirected

# with a loop, a repeated edge, an edge in both directions, edges in one direction only,
# and node 8 without any
EDGES = np.array([[0, 0, 1, 2, 2, 3, 5, 6, 7, 7], [1, 1, 0, 2, 3, 4, 6, 0, 4, 5]])
NODES = 9


def neighbours(edges, n) -> list[set[int]]:
    """Who is joined to each of n nodes.

    Either direction counts, loops and repetitions do not.
    """
    near = [set() for _ in range(n)]
    for a, b in np.transpose(edges):
        if a != b:
            near[a].add(int(b))
            near[b].add(int(a))
    return near


def toy(n=400, n_classes=3, seed=0, unlabelled=0.0, edges=True, noise=1.0) -> Dataset:
    """Classes that shift two of three features, in two groups.

    The graph mostly joins like to like.
    """
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    X = rng.normal(0, noise, (n, 3)) + np.stack([y, (y == 1) * 1.0, 0 * y], axis=1)
    order = np.argsort(y + rng.normal(0, 0.3, n))
    pairs = np.concatenate([[order[k:], order[: n - k]] for k in (1, 2, 5)], axis=1)
    pairs = pairs[
        :, (pairs >= n // 50).all(axis=0)
    ]  # the first few nodes have no neighbours
    return Dataset(
        name="toy",
        source="simulated",
        X=pd.DataFrame(X, columns=["a", "b", "c"]),
        y=np.where(rng.random(n) < unlabelled, -1, y),
        groups=np.where(rng.random(n) < 0.4, "few", "many"),
        group_names=("many", "few"),
        label_names=tuple(f"class {k}" for k in range(n_classes)),
        attribute="size",
        edge_index=symmetric(undirected(pairs, n)) if edges else None,
    )

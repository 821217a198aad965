"""Mondrian conformal prediction: one threshold per group and label.

Also called group-conditional conformal prediction. It is the baseline for whoever may ask
for a person's group at prediction: every label is covered in every group on its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from cfhelpers._written import written_name
from cfhelpers.conformal import (
    conformal_quantile,
    coverage,
    efficiency,
    prediction_sets,
)
from cfhelpers.fairness import measure
from cfhelpers.groups import Groups, as_groups
from cfhelpers.metrics import FairnessMetric

PER_GROUP = "one threshold per group and label (Mondrian)"
FAIR = "fair without groups"
BASE = "one threshold for everyone"


def cell_thresholds(
    scores: np.ndarray, labels: np.ndarray, groups: Groups, alpha: float
) -> np.ndarray:
    """The conformal quantile of every group and label, (G, K).

    Infinite where a cell has too few points.

    Parameters
    ----------
    scores : (n, K)
    labels : integers (n,)
    groups : Groups
        One per point.
    alpha : float

    Returns
    -------
    float64 (G, K)

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> people = as_groups(["a", "b"] * 100, 200)
    >>> scores = rng.random((200, 2))
    >>> cell_thresholds(scores, rng.integers(0, 2, 200), people, 0.1).shape
    (2, 2)
    """
    check_is_partition(groups)
    thresholds = np.full((len(groups), scores.shape[1]), np.inf)
    for code in range(len(groups)):
        for label in range(scores.shape[1]):
            in_cell = (groups.codes == code) & (labels == label)
            if in_cell.any():
                own = scores[in_cell, label]
                thresholds[code, label] = conformal_quantile(own, alpha)
    return thresholds


def check_is_partition(groups: Groups) -> None:
    """Every person must be in exactly one group."""
    if groups.memberships is not None:
        raise ValueError(
            "groups: found a boolean table; per_group=True wanted one group for each "
            "person, since each person is served by that group's thresholds"
        )


def codes_of_known(values: Any, names: list[Any], n: int) -> np.ndarray:
    """The places of n people's groups among the names; others are refused by name.

    A name may have come back from JSON as a text, such as that of an age band.
    """
    groups = as_groups(values, n)
    check_is_partition(groups)
    places = {name: place for place, name in enumerate(names)}
    known = []
    unknown = []
    for name, count in zip(groups.names, groups.counts, strict=True):
        own = name if name in places else written_name(name)
        known.append(places.get(own, -1))
        if own not in places and count > 0:
            unknown.append(name)
    if unknown:
        raise ValueError(
            f"groups: found {', '.join(map(repr, unknown))}, which fit did not have; "
            f"wanted among {names}"
        )
    return np.array(known, np.intp)[groups.codes]


def sets_by_group(
    scores: np.ndarray, thresholds: np.ndarray, codes: np.ndarray
) -> np.ndarray:
    """Prediction sets by the thresholds (G, K) of everyone's own group."""
    sets = np.empty(scores.shape, bool)
    for code in np.unique(codes):
        is_own = codes == code
        sets[is_own] = prediction_sets(scores[is_own], thresholds[code])
    return sets


def comparison(
    sets_by_name: dict[str, np.ndarray],
    labels: np.ndarray,
    groups: Groups,
    metric: FairnessMetric,
    positive_labels: list[int],
) -> pd.DataFrame:
    """What asking for the group brings: a row per predictor, on the same data."""
    compared = "ratio" if metric.is_ratio else "gap"
    rows = []
    for name, sets in sets_by_name.items():
        shares = measure(sets, labels, groups, metric, positive_labels)
        rows.append(
            {
                "asks for the group": name == PER_GROUP,
                "mean set size": efficiency(sets),
                compared: shares.disparity,
                "coverage": coverage(sets, labels),
            }
        )
    return pd.DataFrame(rows, index=pd.Index(list(sets_by_name), name="predictor"))

"""What is asked of counts: a metric and the options of `find_threshold`, checked."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from cfhelpers._binned import CountedScores, ScoreCounts
from cfhelpers._checks import as_flag, as_fraction, one_of
from cfhelpers._ordering import CellMap
from cfhelpers.control import (
    GUARANTEES,
    Curve,
    Guarantee,
    PairTest,
    Search,
    _as_start,
)
from cfhelpers.fairness import positive_codes
from cfhelpers.groups import Groups, as_groups
from cfhelpers.metrics import METRICS, FairnessMetric, Quantity, get_metric

COUNTED = tuple(Quantity)[:4]  # what counts per cell are enough for


@dataclass(frozen=True)
class Question:
    """What is asked of counts: the options of `find_threshold`, checked."""

    metric: FairnessMetric
    labels: list[int]
    alpha: float
    classwise: bool
    guarantee: str
    delta: float
    start: float | None
    is_dependent: bool

    @property
    def level(self) -> float | None:
        """Of the test; None: the paper's rule."""
        if self.guarantee == Guarantee.NONE:
            return None
        return self.delta / max(len(self.labels), 1) if self.classwise else self.delta


def as_question(
    metric: str | FairnessMetric,
    label_names: Sequence[Any],
    *,
    alpha: float = 0.1,
    classwise: bool = False,
    positive_labels: ArrayLike | None = None,
    guarantee: str = "none",
    delta: float = 0.1,
    start: float | None = None,
    test: str = "staircase",
) -> Question:
    """The options of `find_threshold`, checked."""
    metric = get_metric(metric)
    if not metric.is_built_in or metric.quantity not in COUNTED:
        known = ", ".join(name for name, own in METRICS.items() if is_counted(own))
        raise ValueError(
            f"metric: found {metric.name!r}, which counts per cell are not enough for; "
            f"wanted one of {known}"
        )
    return Question(
        metric=metric,
        labels=positive_codes(positive_labels, list(label_names)),
        alpha=as_fraction(alpha, "alpha"),
        classwise=as_flag(classwise, "classwise") and metric.per_label,
        guarantee=one_of(guarantee, "guarantee", GUARANTEES),
        delta=as_fraction(delta, "delta"),
        start=_as_start(start),
        is_dependent=one_of(test, "test", tuple(PairTest)) == PairTest.BOUNDS,
    )


def is_counted(metric: FairnessMetric) -> bool:
    return metric.is_built_in and metric.quantity in COUNTED


def _cells(
    question: Question,
    labels: list[int],
    columns: list[int],
    names: list[Any],
    pools: np.ndarray | None,
) -> CellMap:
    """What one threshold is judged by; of the points only the groups' names matter."""
    nobody = np.zeros(1, np.int64)
    groups = Groups(nobody, names)
    return CellMap.build(
        question.metric, labels, columns, nobody, groups, pools, question.is_dependent
    )


def cell_maps(
    question: Question, counted: ScoreCounts, pools: np.ndarray | None
) -> list[CellMap]:
    """One per threshold that is looked for."""
    names = counted.group_names
    if question.classwise:
        maps = []
        for label in question.labels:
            maps.append(_cells(question, [label], [label], names, pools))
        return maps
    every_label = list(range(len(counted.label_names)))
    return [_cells(question, question.labels, every_label, names, pools)]


def finished_search(
    counted: ScoreCounts,
    n_labelled: int,
    question: Question,
    base: float,
    curves: list[Curve],
) -> Search:
    """The finished pass, which `control.Search` answers from."""
    n_classes = len(counted.label_names)
    others = []
    if question.classwise:
        others = [label for label in range(n_classes) if label not in question.labels]
    in_sets = 0
    hits = 0
    for label in others:
        below = CountedScores.build(counted, [label], base).below
        in_sets += int(below.sum())
        hits += int(below[: len(counted.group_names)].sum())
    return Search(
        curves=curves,
        metric=question.metric,
        guarantee=question.guarantee,
        group_names=counted.group_names,
        base=base,
        n_points=counted.n_points,
        n_labelled=n_labelled,
        n_classes=n_classes,
        classwise=question.classwise,
        others_in_sets=in_sets,
        others_hits=hits,
    )


def with_known_groups(
    counted: ScoreCounts, declared: Sequence[Any], argument: str
) -> ScoreCounts:
    """Groups in the order of their names, declared ones among them, none missing."""
    names = counted.group_names
    sizes = dict(zip(names, counted.group_sizes.tolist(), strict=True))
    for name in names:
        parts = name if isinstance(name, tuple) else (name,)
        if any(part is None for part in parts):
            if sizes[name] == 0:
                continue
            raise ValueError(
                f"{argument}: {sizes[name]:,} rows have none; every point needs a group"
            )
    every = list(dict.fromkeys([*names, *declared]))
    every = [name for name in every if name is not None]
    return counted.with_groups(with_all(every, names)).renamed(_sorted_groups(every))


def with_all(every: list[Any], names: list[Any]) -> list[Any]:
    """The names, and those of ours that are not among them."""
    return [*every, *[name for name in names if name not in every]]


def _sorted_groups(names: list[Any]) -> Groups:
    """Names in the order that they have in memory."""
    if names and isinstance(names[0], tuple):
        return as_groups(pd.DataFrame(names, dtype=object), len(names))
    return as_groups(pd.Series(names, dtype=object), len(names))

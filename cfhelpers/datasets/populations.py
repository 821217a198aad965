"""Populations whose distribution is known, so that true coverage is known too."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cfhelpers._checks import as_positive_labels, as_scores
from cfhelpers.cells import EQUAL_DIFFERENT, CellCounts
from cfhelpers.conformal import round_down
from cfhelpers.metrics import METRICS, FairnessMetric


@dataclass(frozen=True, eq=False)
class Population:
    """Groups with known shares, whose members have known probabilities of every label.

    Logits are normal around an offset per group and class, and labels are drawn from
    their softmax. A predictor sees softmax(.9 × logits + noise): informative, and neither
    exact nor equally good in every group.

    Attributes
    ----------
    names : str (G,)
    shares : (G,)
        Of the groups; they sum to 1.
    offsets : (G, K)
    spread : float
        Standard deviation of the logits.
    shrink, noise : float
        What the predictor sees of the logits.

    Examples
    --------
    >>> probabilities, y, groups = two_groups().draw(1000, np.random.default_rng(0))
    >>> probabilities.shape
    (1000, 3)
    """

    names: np.ndarray
    shares: np.ndarray
    offsets: np.ndarray
    spread: float = 1.2
    shrink: float = 0.9
    noise: float = 0.2

    @property
    def n_classes(self) -> int:
        return self.offsets.shape[1]

    def draw(
        self, n: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """n independent points.

        Parameters
        ----------
        n : int
        rng : Generator

        Returns
        -------
        probabilities : float32 (n, K)
        y : int64 (n,)
        groups : str (n,)
        """
        limits = np.cumsum(self.shares)[:-1]
        codes = np.searchsorted(limits, rng.random(n), side="right")
        probabilities, y = self._draw_members(codes, rng)
        return probabilities, y, self.names[codes]

    def _draw_members(
        self, codes: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities and labels of a member of each group, in place to save memory."""
        logits = rng.standard_normal((len(codes), self.n_classes), dtype=np.float32)
        logits *= self.spread
        logits += self.offsets.astype(np.float32)[codes]
        cumulative = np.cumsum(np.exp(logits), axis=1)
        point = cumulative[:, -1] * rng.random(len(codes), dtype=np.float32)
        y = (cumulative[:, :-1] <= point[:, None]).sum(axis=1)
        probabilities = rng.standard_normal(logits.shape, dtype=np.float32)
        probabilities *= self.noise
        probabilities += self.shrink * logits
        np.exp(probabilities, out=probabilities)
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        return probabilities, y

    def truth(
        self,
        score: Callable[[np.ndarray], ArrayLike],
        n: int = 3_000_000,
        rng: np.random.Generator | None = None,
    ) -> "Truth":
        """The true coverage of any threshold.

        Parameters
        ----------
        score : callable
            Probabilities (n, K) to scores (n, K).
        n : int
            Draws. Every group gets as many of them: coverage is conditional on the group,
            and rare groups need them most.
        rng : Generator, optional

        Returns
        -------
        Truth

        Examples
        --------
        >>> truth = two_groups().truth(lambda probabilities: 1 - probabilities, n=20_000)
        >>> round(truth.disparity(0.7, "equal_opportunity"), 1)
        0.3
        """
        if rng is None:
            rng = np.random.default_rng(0)
        codes = np.arange(n) % len(self.names)
        probabilities, y = self._draw_members(codes, rng)
        return Truth.of(score(probabilities), y, codes, self.names)


@dataclass(frozen=True, eq=False)
class Truth:
    """Sorted scores of a sample so large that it stands for the population.

    Attributes
    ----------
    names : (G,)
        Of the groups.
    counts : integers (G, K)
        Points per group and true label.
    cells : lists
        Sorted scores: cells[group][label][true label].

    Examples
    --------
    >>> scores = [[0.1, 0.9], [0.6, 0.4]]
    >>> truth = Truth.of(scores, y=[0, 1], codes=[0, 1], names=["a", "b"])
    >>> truth.disparity(0.5, "demographic_parity")
    1.0
    """

    names: np.ndarray
    counts: np.ndarray
    cells: list[list[list[np.ndarray]]]

    @classmethod
    def of(
        cls, scores: ArrayLike, y: ArrayLike, codes: ArrayLike, names: ArrayLike
    ) -> "Truth":
        """From scores (n, K), true labels (n,) and group codes (n,) into `names`."""
        values = as_scores(scores)
        names = np.asarray(names)
        n_groups = len(names)
        n_classes = values.shape[1]
        cell = np.asarray(codes) * n_classes + np.asarray(y)
        sizes = np.bincount(cell, minlength=n_groups * n_classes)
        by_cell = values[np.argsort(cell, kind="stable")]
        parts = np.split(by_cell, np.cumsum(sizes)[:-1])
        cells: list[list[list[np.ndarray]]] = []
        for group in range(n_groups):
            by_label: list[list[np.ndarray]] = [[] for _ in range(n_classes)]
            for part in parts[group * n_classes : (group + 1) * n_classes]:
                columns = np.ascontiguousarray(np.sort(part, axis=0).T)
                for label, column in enumerate(columns):
                    by_label[label].append(column)
            cells.append(by_label)
        return cls(names, sizes.reshape(n_groups, n_classes), cells)

    def coverage(self, threshold: ArrayLike) -> np.ndarray:
        """Pr[s(x, label) ≤ threshold | group, true label].

        Parameters
        ----------
        threshold : float, or one per label (K,)

        Returns
        -------
        (G, K, K)
            By group, label and true label; NaN where there are no points.
        """
        with np.errstate(invalid="ignore"):
            return self._hits(threshold) / self.counts[:, None, :]

    def counts_at(self, threshold: ArrayLike) -> CellCounts:
        """Covered and all points per (label, condition, group).

        Parameters
        ----------
        threshold : float, or one per label (K,)

        Returns
        -------
        CellCounts

        Examples
        --------
        >>> truth = Truth.of([[0.1, 0.9], [0.6, 0.4]], [0, 1], [0, 1], ["a", "b"])
        >>> truth.counts_at(0.5).covered.tolist()
        [[[1, 0], [0, 0]], [[0, 1], [0, 0]]]
        """
        hits = self._hits(threshold)
        n_groups, n_classes = self.counts.shape
        covered = np.empty((n_classes, 2, n_groups), np.int64)
        covered[:, 0] = np.diagonal(hits, axis1=1, axis2=2).T
        covered[:, 1] = hits.sum(axis=2).T - covered[:, 0]
        sizes = np.empty_like(covered)
        sizes[:, 0] = self.counts.T
        sizes[:, 1] = self.counts.sum(axis=1) - sizes[:, 0]
        return CellCounts(covered, sizes, EQUAL_DIFFERENT, self.names.tolist())

    def _hits(self, threshold: ArrayLike) -> np.ndarray:
        """Points whose score is at most the threshold, (G, K, K) as in `coverage`."""
        n_groups, n_classes = self.counts.shape
        limits = round_down(
            np.broadcast_to(np.asarray(threshold, np.float64), n_classes),
            self.cells[0][0][0].dtype,
        )
        hits = np.empty((n_groups, n_classes, n_classes), np.int64)
        for group, by_label in enumerate(self.cells):
            for label, by_true_label in enumerate(by_label):
                for true_label, scores in enumerate(by_true_label):
                    n_hits = scores.searchsorted(limits[label], side="right")
                    hits[group, label, true_label] = n_hits
        return hits

    def group_coverages(self, threshold: ArrayLike, metric_name: str) -> np.ndarray:
        """The quantity that a metric compares between groups.

        Parameters
        ----------
        threshold : float, or one per label (K,)
        metric_name : str
            One of the eight metrics but equalized odds, which compares two quantities.

        Returns
        -------
        (G, K)
            By group and label; NaN where it is undefined.
        """
        metric = _metric_named(metric_name)
        values = self.counts_at(threshold).shares(metric).values
        if values.shape[1] > 1:
            raise ValueError(
                f"metric_name: found {metric_name!r}, which compares two coverages; "
                "wanted 'equal_opportunity' or 'predictive_equality'"
            )
        # Overall accuracy has one value for all labels.
        return np.broadcast_to(values[:, 0].T, self.counts.shape).copy()

    def disparity(
        self,
        threshold: ArrayLike,
        metric_name: str,
        positive_labels: ArrayLike | None = None,
    ) -> float:
        """The true disparity over the positive labels.

        Parameters
        ----------
        threshold : float, or one per label (K,)
        metric_name : str
            One of the eight metrics.
        positive_labels : labels, optional
            By default all but label 0.

        Returns
        -------
        float
            The largest difference between groups, or the smallest ratio.
        """
        metric = _metric_named(metric_name)
        labels = as_positive_labels(positive_labels, self.counts.shape[1])
        return self.counts_at(threshold).shares(metric, labels).disparity


def _metric_named(metric_name: str) -> FairnessMetric:
    """One of the eight metrics."""
    if metric_name not in METRICS:
        raise ValueError(
            f"metric_name: found {metric_name!r}; "
            "wanted the name of one of the eight metrics"
        )
    return METRICS[metric_name]


def nine_groups() -> Population:
    """Nine groups A to I, from 78% of the population down to 0.3%, and four classes.

    Examples
    --------
    >>> nine_groups().names.tolist()
    ['A', 'B', 'C', 'D', 'E', 'F', 'G', 'H', 'I']
    """
    names = np.array(list("ABCDEFGHI"))
    shares = np.array([0.78, 0.10, 0.06, 0.03, 0.015, 0.005, 0.004, 0.003, 0.003])
    offsets = np.random.default_rng(0).normal(0, 0.6, (9, 4))
    return Population(names, shares, offsets)


def two_groups() -> Population:
    """Two groups of 80% and 20%, and three classes.

    In the smaller group the last class is rarer and harder to tell.

    Examples
    --------
    >>> two_groups().shares.tolist()
    [0.8, 0.2]
    """
    names = np.array(["A", "B"])
    shares = np.array([0.8, 0.2])
    offsets = np.array([[0.0, 0.0, 0.6], [0.5, 0.3, -0.6]])
    return Population(names, shares, offsets)

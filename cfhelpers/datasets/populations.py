"""Populations whose distribution is known, so that true coverage is known too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True, eq=False)
class Population:
    """Groups with known shares; logits normal around an offset per group and class; labels drawn from their softmax.

    A predictor sees softmax(.9 × logits + noise): informative, and neither exact nor equally good in every group.
    """

    names: np.ndarray  # (G,) str
    shares: np.ndarray  # (G,), sums to 1
    offsets: np.ndarray  # (G, K)
    spread: float = 1.2
    shrink: float = 0.9
    noise: float = 0.2

    @property
    def n_classes(self) -> int:
        return self.offsets.shape[1]

    def draw(
        self, n: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """n independent points: probabilities float32 (n, K), labels int64 (n,), group names (n,)."""
        codes = np.searchsorted(np.cumsum(self.shares)[:-1], rng.random(n), side="right")
        return *self._draw(codes, rng), self.names[codes]

    def _draw(
        self, codes: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        logits = rng.standard_normal((len(codes), self.n_classes), dtype=np.float32)
        logits *= self.spread
        logits += self.offsets.astype(np.float32)[codes]
        cumulative = np.cumsum(np.exp(logits), axis=1)
        point = cumulative[:, -1] * rng.random(len(codes), dtype=np.float32)
        y = (cumulative[:, :-1] <= point[:, None]).sum(axis=1)
        probs = rng.standard_normal(logits.shape, dtype=np.float32)
        probs *= self.noise
        probs += self.shrink * logits
        np.exp(probs, out=probs)
        probs /= probs.sum(axis=1, keepdims=True)
        return probs, y

    def truth(
        self, score: Callable, n: int = 3_000_000, rng: np.random.Generator | None = None
    ) -> Truth:
        """True coverage of any threshold under `score`, probabilities (n, K) → scores (n, K), from n draws.

        Every group gets the same number of draws: coverage is conditional on the group, and rare groups need it most.
        """
        codes = np.arange(n) % len(self.names)
        probs, y = self._draw(codes, np.random.default_rng(0) if rng is None else rng)
        return Truth.of(score(probs), y, codes, self.names)


@dataclass(frozen=True, eq=False)
class Truth:
    """Sorted scores per (group, label, true label) of a sample so large that it stands for the population."""

    names: np.ndarray  # (G,)
    counts: np.ndarray  # (G, K): points per group and true label
    cells: list  # [group][label][true label]: sorted scores

    @classmethod
    def of(
        cls, scores: ArrayLike, y: ArrayLike, codes: ArrayLike, names: ArrayLike
    ) -> Truth:
        """From scores (n, K), true labels (n,) and group codes (n,) into `names`."""
        scores, names = np.asarray(scores), np.asarray(names)
        shape = (len(names), scores.shape[1])
        key = np.asarray(codes) * shape[1] + np.asarray(y)
        counts = np.bincount(key, minlength=shape[0] * shape[1])
        grouped = np.split(
            scores[np.argsort(key, kind="stable")], np.cumsum(counts)[:-1]
        )  # by group, then true label
        columns = [np.sort(cell, axis=0).T.copy() for cell in grouped]
        cells = [
            [
                [columns[g * shape[1] + y][k] for y in range(shape[1])]
                for k in range(shape[1])
            ]
            for g in range(shape[0])
        ]
        return cls(names, counts.reshape(shape), cells)

    def coverage(self, threshold: ArrayLike) -> np.ndarray:
        """Pr[s(x, label) ≤ threshold | group, true label], (G, K, K) by group, label and true label."""
        kind = self.cells[0][0][0].dtype.type
        levels = [
            _at_most(v, kind)
            for v in np.broadcast_to(
                np.asarray(threshold, np.float64), self.counts.shape[1]
            )
        ]
        hits = [
            [
                [c.searchsorted(v, "right") for c in row]
                for v, row in zip(levels, g, strict=True)
            ]
            for g in self.cells
        ]
        with np.errstate(invalid="ignore"):
            return np.array(hits) / self.counts[:, None, :]

    def group_coverages(self, threshold: ArrayLike, metric_name: str) -> np.ndarray:
        """The quantity that `metric_name` compares, (G, K) by group and label; NaN where it is undefined."""
        prior = self.counts / self.counts.sum(axis=1, keepdims=True)
        joint = np.nan_to_num(self.coverage(threshold)) * prior[:, None, :]
        included, both = (
            joint.sum(axis=2),
            np.einsum("gkk->gk", joint),
        )  # Pr[label in set | g]; and Y = label
        with np.errstate(invalid="ignore", divide="ignore"):
            values = {
                "demographic_parity": included,
                "disparate_impact": included,
                "equal_opportunity": both / prior,
                "predictive_equality": (included - both) / (1 - prior),
                "predictive_parity": both / included,
                "predictive_parity_proxy": both / included - prior,
                "overall_accuracy_equality": np.broadcast_to(
                    both.sum(axis=1, keepdims=True), both.shape
                ),
            }
        if metric_name not in values:
            raise ValueError(
                f"metric_name: found {metric_name!r}; wanted the name of one of the eight metrics"
            )
        return values[metric_name]

    def disparity(
        self,
        threshold: ArrayLike,
        metric_name: str,
        positive_labels: ArrayLike | None = None,
    ) -> float:
        """True disparity: over the positive labels, the largest difference between groups, or the smallest ratio."""
        if metric_name == "equalized_odds":
            parts = ("equal_opportunity", "predictive_equality")
            return max(self.disparity(threshold, part, positive_labels) for part in parts)
        labels = (
            np.arange(1, self.counts.shape[1])
            if positive_labels is None
            else np.asarray(positive_labels)
        )
        values = self.group_coverages(threshold, metric_name)[:, labels]
        high, low = np.nanmax(values, axis=0), np.nanmin(values, axis=0)
        if metric_name == "disparate_impact":
            return float(
                np.min(np.divide(low, high, out=np.ones_like(low), where=high > 0))
            )
        return float(np.max(high - low))


def _at_most(value: float, kind: type) -> np.floating:
    """The largest number of a float type that is not above `value`: comparing with it is comparing in float64."""
    with np.errstate(over="ignore"):
        near = kind(value)
    return near if near <= value else np.nextafter(near, kind(-np.inf))


def nine_groups() -> Population:
    """Nine groups A to I, from 78% of the population down to 0.3%, four classes."""
    shares = np.array([0.78, 0.10, 0.06, 0.03, 0.015, 0.005, 0.004, 0.003, 0.003])
    return Population(
        np.array(list("ABCDEFGHI")),
        shares,
        np.random.default_rng(0).normal(0, 0.6, (9, 4)),
    )


def two_groups() -> Population:
    """Two groups of 80% and 20% and three classes: in the smaller group the last class is rarer and harder to tell."""
    return Population(
        np.array(["A", "B"]),
        np.array([0.8, 0.2]),
        np.array([[0.0, 0.0, 0.6], [0.5, 0.3, -0.6]]),
    )

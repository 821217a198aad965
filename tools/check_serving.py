"""How often sets that are served one person at a time are less fair than promised.

Models with few distinct outputs are the hard case: many people share a row, so their
randomised scores tie. The population is finite and known, so the true gap of a fitted
classifier is a sum over its rows. `python tools/check_serving.py` prints the share of
fits whose true gap is beyond c, for three populations.
"""

import argparse
from dataclasses import dataclass

import numpy as np

from cfhelpers import FairConformalClassifier

CLOSENESS = 0.1
DELTA = 0.1
N_CLASSES = 3
N_POINTS = 3000
ROWS_PER_GROUP = (3, 8, 30)
GROUPS = ("a", "b")


@dataclass(frozen=True)
class Population:
    """Two groups of a few distinct rows, with known weights and label probabilities."""

    rows: np.ndarray  # (groups, rows, K): what the model says
    weights: np.ndarray  # (groups, rows): how common each row is within its group
    truth: np.ndarray  # (groups, rows, K): the labels' true probabilities

    def draw(
        self, n: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Probabilities, labels and groups of n people."""
        group = rng.integers(0, len(GROUPS), n)
        row = np.empty(n, np.int64)
        for code, weights in enumerate(self.weights):
            members = group == code
            row[members] = rng.choice(len(weights), members.sum(), p=weights)
        truth = self.truth[group, row]
        y = (truth.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
        y = np.minimum(y, N_CLASSES - 1)
        return self.rows[group, row], y, np.array(GROUPS)[group]

    def true_gap(self, fair: FairConformalClassifier) -> float:
        """The largest difference in coverage of a positive label between the groups.

        Every row is served alone. Its random number belongs to it, so its set is fixed.
        """
        coverages = []
        for rows, weights, truth in zip(self.rows, self.weights, self.truth, strict=True):
            sets = np.concatenate([fair.predict_set(row[None]) for row in rows])
            with_label = weights[:, None] * truth
            coverages.append((with_label * sets).sum(axis=0) / with_label.sum(axis=0))
        positive = fair.promise_.labels
        return float(np.abs(coverages[0] - coverages[1])[positive].max())


def population(rows_per_group: int, rng: np.random.Generator) -> Population:
    """A population in which the model is less sure about the second group."""
    shape = (len(GROUPS), rows_per_group, N_CLASSES)
    sharpness = np.array([2.0, 1.0])[:, None, None]
    logits = rng.normal(0, 1, shape) * sharpness
    rows = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    noise = rng.normal(0, 0.5, shape)
    odds = np.exp(logits + noise)
    truth = odds / odds.sum(axis=2, keepdims=True)
    weights = rng.dirichlet(np.full(rows_per_group, 3.0), len(GROUPS))
    return Population(rows, weights, truth)


def share_beyond(rows_per_group: int, fits: int, seed: int = 0) -> tuple[float, float]:
    """Shares of fits whose true gap is beyond c, and whose thresholds are finite."""
    rng = np.random.default_rng([seed, rows_per_group])
    people = population(rows_per_group, rng)
    beyond = 0
    finite = 0
    for fit in range(fits):
        fair = FairConformalClassifier(
            conformity_score="aps",
            closeness=CLOSENESS,
            delta=DELTA,
            alpha=0.3,
            random_state=fit,
        )
        fair.fit(*people.draw(N_POINTS, rng))
        beyond += people.true_gap(fair) > CLOSENESS + 1e-9
        finite += fair.result_.feasible
    return beyond / fits, finite / fits


def main() -> None:
    """Print the shares for three populations."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--fits", type=int, default=300)
    fits = parser.parse_args().fits
    limit = DELTA + 3 * np.sqrt(DELTA * (1 - DELTA) / fits)
    for rows_per_group in ROWS_PER_GROUP:
        beyond, finite = share_beyond(rows_per_group, fits)
        print(
            f"{rows_per_group} rows per group, {fits} fits: beyond c in {beyond:.3f} "
            f"(limit {limit:.3f}), finite thresholds in {finite:.2f}"
        )


if __name__ == "__main__":
    main()

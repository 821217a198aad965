"""How large the staircase test really is: its exact size, by counting every outcome.

For two groups of n_a and n_b points, a closeness c and a level δ, the chance to accept is
the sum of binomial probabilities over all outcomes whose loss is within c. It is largest
where the true gap is exactly c, p_a = p_b + c (for ratios p_b = c·p_a). Between the
points of a grid of p it is bounded by monotonicity: accepting is more likely the lower
p_a and the higher p_b are, so on [p_i, p_{i+1}] it is at most the chance at
(p_i + c, p_{i+1}).

    python tools/check_staircase.py --cases 200
"""

import argparse
import sys

import numpy as np
from scipy.stats import binom

from cfhelpers import bounds


def one_way_losses(n_a: int, n_b: int, delta: float, is_ratio: bool) -> np.ndarray:
    """The loss of every outcome (k_a, k_b) against a larger p_a; (n_a + 1, n_b + 1).

    `staircase_losses` is the larger of both directions. One alone is what the theorem
    bounds, and it falls with k_b and rises with k_a, which both together do not.
    """
    levels = bounds.listed_levels(delta)
    upper = [bounds.clopper_pearson(np.arange(n_a + 1), n_a, t)[1] for t in levels]
    lower = [bounds.clopper_pearson(np.arange(n_b + 1), n_b, t)[0] for t in levels]
    k_a, k_b = np.indices((n_a + 1, n_b + 1)).reshape(2, -1)
    sizes = bounds._rounded(np.array([n_a, n_b]))
    losses = bounds._loss_of_pair(
        np.array(upper)[:, k_a], np.array(lower)[:, k_b], *sizes, delta, is_ratio
    )
    return losses.reshape(n_a + 1, n_b + 1)


def accepted(n_a: int, n_b: int, c: float, delta: float, is_ratio: bool) -> np.ndarray:
    """Which outcomes (k_a, k_b) are accepted against a larger p_a."""
    limit = -c if is_ratio else c
    return one_way_losses(n_a, n_b, delta, is_ratio) <= limit + 1e-12


def chance(outcomes: np.ndarray, p_a: np.ndarray, p_b: np.ndarray) -> np.ndarray:
    """The probability of these outcomes for every pair of true coverages."""
    n_a, n_b = np.array(outcomes.shape) - 1
    law_a = binom.pmf(np.arange(n_a + 1), n_a, p_a[:, None])
    law_b = binom.pmf(np.arange(n_b + 1), n_b, p_b[:, None])
    return np.einsum("pa,ab,pb->p", law_a, outcomes.astype(float), law_b, optimize=True)


def size_bound(
    n_a: int, n_b: int, c: float, delta: float, is_ratio: bool, points: int = 2001
) -> tuple[float, float]:
    """The size on a grid of p, and an upper bound for it everywhere."""
    outcomes = accepted(n_a, n_b, c, delta, is_ratio)
    if is_ratio:
        p_a = np.linspace(0, 1, points)
        p_b = c * p_a
    else:
        p_b = np.linspace(0, 1 - c, points)
        p_a = p_b + c
    on_grid = chance(outcomes, p_a, p_b)
    between = chance(outcomes, p_a[:-1], p_b[1:])
    return float(on_grid.max()), float(between.max())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--largest", type=int, default=250, help="points of a group")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    ratios = []
    worst = 0.0
    for _ in range(options.cases):
        n_a, n_b = np.exp(rng.uniform(np.log(5), np.log(options.largest), 2)).astype(int)
        delta = float(rng.choice([0.5, 0.2, 0.1, 0.05, 0.0333, 0.01]))
        is_ratio = bool(rng.random() < 0.4)
        c = float(rng.uniform(0.5, 0.95) if is_ratio else rng.uniform(0.02, 0.4))
        on_grid, everywhere = size_bound(n_a, n_b, c, delta, is_ratio)
        ratios.append(on_grid / delta)
        worst = max(worst, everywhere / delta)
        if on_grid > delta:
            print(f"too large: {n_a} {n_b} c={c} δ={delta} ratio={is_ratio}: {on_grid}")
    low, middle, high = np.quantile(ratios, [0.1, 0.5, 0.9])
    print(f"{options.cases} cases: exact size over δ at most {max(ratios):.3f}")
    print(f"deciles and median {low:.2f}, {middle:.2f}, {high:.2f}")
    print(f"bounded everywhere between grid points by {worst:.3f} δ")
    return int(max(ratios) > 1)


if __name__ == "__main__":
    sys.exit(main())

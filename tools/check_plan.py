"""Whether a planned calibration set passes as often as the plan says.

Each plan is tried on simulated calibration sets of the size it asks for, with random
sizes of cells. The share that passes the guarantee's test should be the power asked for,
give or take .05.

    python tools/check_plan.py --draws 4000
"""

import argparse
import sys

import numpy as np

from cfhelpers.cells import Shares
from cfhelpers.metrics import METRICS
from cfhelpers.planning import Plan, plan

TWO = {"first": 0.6, "second": 0.4}
CASES = (
    {"closeness": 0.1, "groups": TWO, "metric": "demographic_parity"},
    {"closeness": 0.1, "groups": TWO, "labels": {"yes": 0.3, "no": 0.7}},
    {"closeness": 0.2, "groups": {"a": 0.5, "b": 0.3, "c": 0.2}, "coverage": 0.8},
    {"closeness": 0.8, "groups": ["a", "b"], "metric": "disparate_impact"},
    {"closeness": 0.1, "groups": TWO, "gap": 0.0, "power": 0.9},
    {"closeness": 0.1, "groups": {"a": 0.7, "b": 0.2, "c": 0.07, "d": 0.03}},
    {"closeness": 0.1, "groups": TWO, "labels": {"x": 0.5, "y": 0.35, "z": 0.15}},
    {"closeness": 0.2, "groups": ["a", "b"], "gap": 0.0, "coverage": 1.0},
)


def passing_share(found: Plan, draws: int, rng: np.random.Generator) -> float:
    """The share of simulated calibration sets that pass."""
    passes = np.ones(draws, bool)
    metric = METRICS[found.metric]
    limit = metric.closeness(found.closeness) + 1e-12
    for _, cells in found.cells.groupby(["label", "condition"], dropna=False):
        trials = rng.binomial(
            found.people, cells["points"] / found.people, (draws, len(cells))
        )
        hits = rng.binomial(trials, cells["coverage"])
        shares = Shares(
            metric, hits[:, None, None], trials[:, None, None], [1], list(cells["group"])
        )
        # Sizes differ from draw to draw, and a draw is tested as it is.
        passes &= shares.test_losses(found.delta)[:, 0, 0] <= limit
    return float(passes.mean())


def main() -> int:
    """Print planned and simulated power, and fail if they differ by more than .05."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    is_right = True
    for case in CASES:
        found = plan(**case)
        share = passing_share(found, options.draws, rng)
        print(f"{found}\n  simulated: {share:.4f}", flush=True)
        is_right &= abs(share - found.power) <= 0.05
    print(f"wanted: within .05 of the power: {is_right}")
    return int(not is_right)


if __name__ == "__main__":
    sys.exit(main())

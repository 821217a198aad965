"""How often the audit's verdicts are right and wrong, where the true gap is known.

Two groups of 70% and 30% of 5,000 points, one label, a closeness of .1 and a confidence
of .95. At a gap of .06 the audit should say "within"; just beyond .1 it may say so in at
most 5% of audits; and at exactly .1 it may say "beyond" in at most 5%.

    python tools/check_audit.py --audits 2000
"""

import argparse
import sys
from collections import Counter

import numpy as np

from cfhelpers.auditing import BEYOND, UNDECIDED, WITHIN
from cfhelpers.auditing.verdicts import Judge
from cfhelpers.cells import Shares
from cfhelpers.metrics import METRICS

N_POINTS = 5000
SHARE = 0.7  # of the first group
COVERAGE = 0.9  # of the first group
CLOSENESS = 0.1
GAMMA = 0.05
LEAST_POWER = 0.9
METRIC = METRICS["equal_opportunity"]


def draw(other_coverage: float, rng: np.random.Generator) -> Shares:
    """What one audit counts; the groups' sizes are random too."""
    n_first = rng.binomial(N_POINTS, SHARE)
    sizes = np.array([n_first, N_POINTS - n_first])
    hits = rng.binomial(sizes, [COVERAGE, other_coverage])
    return Shares(METRIC, hits[None, None], sizes[None, None], [1], ["first", "second"])


def verdict_shares(other_coverage: float, audits: int, seed: int) -> dict[str, float]:
    """The share of audits with each verdict."""
    rng = np.random.default_rng(seed)
    judge = Judge(CLOSENESS, GAMMA)
    counts: Counter[str] = Counter()
    for _ in range(audits):
        counts[judge.verdict(draw(other_coverage, rng))] += 1
    return {word: counts[word] / audits for word in (WITHIN, BEYOND, UNDECIDED)}


def main() -> int:
    """Print the shares, and fail if one is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--audits", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    most = GAMMA + 3 * np.sqrt(GAMMA * (1 - GAMMA) / options.audits)
    found = []
    for other in (0.84, 0.7999, 0.8):
        shares = verdict_shares(other, options.audits, options.seed)
        listed = ", ".join(f"{word} {share:.4f}" for word, share in shares.items())
        print(f"coverages {COVERAGE} and {other}, {options.audits} audits: {listed}")
        found.append(shares)
    is_right = (
        found[0][WITHIN] >= LEAST_POWER
        and found[1][WITHIN] <= most
        and found[2][BEYOND] <= most
    )
    print(
        f"wanted: within at least {LEAST_POWER}, then within at most {most:.4f}, "
        f"then beyond at most {most:.4f}"
    )
    return int(not is_right)


if __name__ == "__main__":
    sys.exit(main())

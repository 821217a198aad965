"""How often a monitor is right and wrong over a year of weekly looks.

Two equal groups, one label, a closeness of .1 and a confidence of .95. Every stream is
another year. At a gap just beyond .1 no look may say "within", and at a gap of .1 no look
may say "beyond", in more than 5% of the streams. A gap of .13 should be found within the
year, and a gap of 0 should be called within. The audit for one look, read every week,
stands beside it.

In the case of late labels every person's label becomes known after a random number of
weeks, from 0 to 12, that does not depend on being covered.

    python tools/check_monitor.py --streams 2000
"""

import argparse
import sys

import numpy as np

from cfhelpers.auditing.verdicts import Judge
from cfhelpers.cells import Shares
from cfhelpers.control import TOLERANCE
from cfhelpers.metrics import METRICS
from cfhelpers.monitoring import sequence_losses

WEEKS = 52
PEOPLE = 1500  # per week
CLOSENESS = 0.1
GAMMA = 0.05
LONGEST_DELAY = 12  # weeks
METRIC = METRICS["equal_opportunity"]


def counts_by_look(
    coverages: tuple[float, float],
    streams: int,
    rng: np.random.Generator,
    people: int = PEOPLE,
    is_late: bool = False,
) -> Shares:
    """Covered and all people at every look (streams, weeks, 1, 1, groups)."""
    first = rng.binomial(people, 0.5, (streams, WEEKS))
    arrived = np.stack([first, people - first], axis=-1)
    if is_late:
        arrived = known_by_week(arrived, rng)
    hits = rng.binomial(arrived, coverages)
    return Shares(
        METRIC,
        hits.cumsum(axis=1)[:, :, None, None],
        arrived.cumsum(axis=1)[:, :, None, None],
        [1],
        ["a", "b"],
    )


def known_by_week(arrived: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """People whose label becomes known in each week; some are not known by the end."""
    known = np.zeros_like(arrived)
    left = arrived.copy()
    for delay in range(LONGEST_DELAY + 1):
        chance = 1 / (LONGEST_DELAY + 1 - delay)
        now = rng.binomial(left, chance)
        left = left - now
        known[:, delay:] += now[:, : WEEKS - delay]
    return known


def verdicts(shares: Shares) -> tuple[np.ndarray, np.ndarray]:
    """Whether each look says within, and beyond (streams, weeks)."""
    near, far = sequence_losses(shares, GAMMA)
    return far <= CLOSENESS + TOLERANCE, near > CLOSENESS + TOLERANCE


def one_look_audits(shares: Shares) -> np.ndarray:
    """Whether the audit for one look says within (streams, weeks)."""
    judge = Judge(CLOSENESS, GAMMA)
    return judge.passes(shares)[..., 0, 0]


def report(streams: int, seed: int) -> bool:
    """Print the shares of streams, and say whether all are as they should be."""
    rng = np.random.default_rng(seed)
    most = GAMMA + 3 * np.sqrt(GAMMA * (1 - GAMMA) / streams)
    is_right = True
    for is_late in (False, True):
        told = "late labels" if is_late else "labels at once"
        beyond_c = counts_by_look((0.8001, 0.7), streams, rng, is_late=is_late)
        wrong_within = verdicts(beyond_c)[0].any(axis=1).mean()
        at_c = counts_by_look((0.8, 0.7), streams, rng, is_late=is_late)
        wrong_beyond = verdicts(at_c)[1].any(axis=1).mean()
        wide = counts_by_look((0.8, 0.67), streams, rng, is_late=is_late)
        finds = verdicts(wide)[1].any(axis=1).mean()
        none = counts_by_look((0.8, 0.8), streams, rng, is_late=is_late)
        within = verdicts(none)[0].any(axis=1).mean()
        audit_within = one_look_audits(beyond_c).any(axis=1).mean()
        print(
            f"{told}, {streams} streams of {WEEKS} weeks, {PEOPLE} people a week:\n"
            f"  gap .1001: within at some look {wrong_within:.4f} "
            f"(the audit for one look: {audit_within:.4f})\n"
            f"  gap .1: beyond at some look {wrong_beyond:.4f}\n"
            f"  gap .13: beyond within the year {finds:.4f}\n"
            f"  gap 0: within within the year {within:.4f}"
        )
        is_right &= max(wrong_within, wrong_beyond) <= most
        is_right &= min(finds, within) >= 0.95
    few = counts_by_look((0.8, 0.67), streams, rng, people=200)
    print(f"gap .13 at 200 people a week: {verdicts(few)[1].any(axis=1).mean():.4f}")
    print(f"wanted: wrong at most {most:.4f}, right at least .95: {is_right}")
    return bool(is_right)


def main() -> int:
    """Run the counts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    return int(not report(options.streams, options.seed))


if __name__ == "__main__":
    sys.exit(main())

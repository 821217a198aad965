"""How often the number of people that an audit names does settle the verdict.

In five situations an audit cannot tell, and says how many people would give a verdict
with 80% probability if coverages stay as observed. Files of that size are drawn from the
people of the first file, and audited anew: 75 to 85% of them should be decided.

    python tools/check_projection.py --audits 2000
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tqdm import tqdm

from cfhelpers import audit
from cfhelpers.auditing import UNDECIDED, Audit
from cfhelpers.auditing.projection import POWER

ALLOWED = 0.05  # by which the share of decided audits may miss 80%


@dataclass(frozen=True)
class File:
    """People with sets, labels and groups."""

    sets: np.ndarray
    y: np.ndarray
    groups: np.ndarray

    def take(self, rows: np.ndarray) -> "File":
        """Some of the people, some of them several times."""
        return File(self.sets[rows], self.y[rows], self.groups[rows])

    def audit(self, metric: str, closeness: float | None = None) -> Audit:
        """The audit of all labels."""
        n_labels = self.sets.shape[1]
        return audit(
            self.sets,
            self.y,
            self.groups,
            metric,
            closeness,
            positive_labels=list(range(n_labels)),
        )


def two_groups(n: int, coverages: tuple[float, float], n_labels: int = 2) -> File:
    """Groups of 70% and 30%, whose sets hold a label with these probabilities."""
    rng = np.random.default_rng(7)
    group = (rng.random(n) < 0.3).astype(int)
    y = rng.integers(n_labels, size=n)
    sets = rng.random((n, n_labels)) < np.array(coverages)[group][:, None]
    return File(sets, y, np.array(["most", "few"])[group])


def decisions(n: int) -> File:
    """Sets of one label: what is in one label's sets is not in the other's."""
    file = two_groups(n, (0.6, 0.57))
    is_second = file.sets[:, 1]
    return File(np.column_stack([~is_second, is_second]), file.y, file.groups)


def many_groups(n: int) -> File:
    """Six groups whose coverages differ a little."""
    rng = np.random.default_rng(8)
    group = rng.choice(6, size=n, p=[0.3, 0.25, 0.15, 0.12, 0.1, 0.08])
    y = rng.integers(3, size=n)
    sets = rng.random((n, 3)) < (0.9 - 0.006 * group)[:, None]
    return File(sets, y, np.array(list("abcdef"))[group])


SITUATIONS: dict[str, tuple[Callable[[], File], str, float | None]] = {
    "equal opportunity, two groups": (
        lambda: two_groups(800, (0.90, 0.86)),
        "equal_opportunity",
        None,
    ),
    "demographic parity of decisions": (
        lambda: decisions(700),
        "demographic_parity",
        None,
    ),
    "disparate impact": (lambda: two_groups(700, (0.7, 0.62)), "disparate_impact", None),
    "a gap beyond what is allowed": (
        lambda: two_groups(400, (0.9, 0.7)),
        "overall_accuracy_equality",
        None,
    ),
    "six groups, three labels": (
        lambda: many_groups(5000),
        "demographic_parity",
        None,
    ),
}


def share_decided(name: str, audits: int, seed: int) -> tuple[int, int, float]:
    """People now, people that are named, and the share of audits that are decided."""
    make, metric, closeness = SITUATIONS[name]
    file = make()
    found = file.audit(metric, closeness)
    n_now = len(file.y)
    n_wanted = found.people_needed.get(metric)
    if n_wanted is None:
        raise ValueError(f"{name}: found {found.verdicts}; wanted a number of people")
    rng = np.random.default_rng(seed)
    n_decided = 0
    for _ in tqdm(range(audits), desc=name, leave=False, disable=None):
        again = file.take(rng.integers(n_now, size=n_wanted))
        n_decided += again.audit(metric, closeness).verdicts[metric] != UNDECIDED
    return n_now, n_wanted, n_decided / audits


def main() -> int:
    """Print the shares, and fail if one is not within 5 points of 80%."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--audits", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    is_right = True
    for name in SITUATIONS:
        now, wanted, share = share_decided(name, options.audits, options.seed)
        print(f"{name}: {now:,} people now, {wanted:,} named, decided {share:.3f}")
        is_right &= abs(share - POWER) <= ALLOWED
    return int(not is_right)


if __name__ == "__main__":
    sys.exit(main())

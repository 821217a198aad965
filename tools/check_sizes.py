"""How often sizes of sets that should be close are not: thresholds and the audit.

Every population has a cliff: on the way down the gap in sizes (or in singletons, or in
coverage) jumps in one step from nothing to just beyond c, which is the hardest case of
the walk. A threshold below the cliff is a failure, and a promise at δ may fail in δ of
all calibrations. The paper's rule, which promises nothing, stands beside it. The audit
looks at sets below the cliff, where "within" is wrong, and at sets whose gap is exactly
c, where "beyond" is wrong.

    python tools/check_sizes.py --draws 2000
"""

import argparse
import sys
from dataclasses import dataclass

import numpy as np
from scipy.stats import beta, binom

from cfhelpers import audit
from cfhelpers.control import find_threshold

CLOSENESS = 0.1
DELTA = 0.1
GAMMA = 0.05
BEYOND = 1e-4  # by so much the gap below the cliff exceeds c
LOW = 0.3  # the score of what a threshold below the cliff lets in
HIGH = 0.6  # the cliff
GRID = [0.3, 0.45, 0.6, 0.8, 1.0]


@dataclass(frozen=True)
class Setting:
    """What is asked for, and people for whom it is hardest."""

    name: str
    metric: str | tuple[str, ...]
    sets: str  # "labels apart", "all or none", "one or all", or "one label"
    best: float  # the mean size, or share, of the first group; the others have less
    n_groups: int = 2
    n_classes: int = 3


SETTINGS = (
    Setting("size, labels apart", "set_size", "labels apart", 0.9),
    Setting("size, labels apart, small", "set_size", "labels apart", 0.3),
    Setting("size, all or none", "set_size", "all or none", 0.6),
    Setting("size, nearly all or none", "set_size", "all or none", 0.995),
    Setting("size, four groups", "set_size", "all or none", 0.6, n_groups=4),
    Setting("size, ten labels", "set_size", "labels apart", 0.5, n_classes=10),
    Setting("singletons", "singletons", "one or all", 0.6),
    Setting("singletons, few", "singletons", "one or all", 0.11),
    Setting("both, sizes differ", ("equal_opportunity", "set_size"), "all or none", 0.6),
    Setting(
        "both, coverages differ", ("equal_opportunity", "set_size"), "one label", 0.95
    ),
)


def draw(
    setting: Setting, n: int, gap: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, labels and groups; below the cliff the gap is as given, above it 0."""
    groups = rng.integers(0, setting.n_groups, n)
    y = rng.integers(0, setting.n_classes, n)
    share = np.where(groups == 0, setting.best, setting.best - gap)
    scores = np.full((n, setting.n_classes), HIGH)
    if setting.sets == "labels apart":
        scores[rng.random(scores.shape) < share[:, None]] = LOW
    elif setting.sets == "all or none":
        scores[rng.random(n) < share] = LOW
    elif setting.sets == "one or all":
        scores[:, 1:] = np.where(rng.random(n) < share, HIGH, LOW)[:, None]
        scores[:, 0] = LOW
    else:  # everyone has one label; in the first group it is the true one more often
        is_true = rng.random(n) < share
        served = np.where(is_true, y, (y + 1) % setting.n_classes)
        scores[np.arange(n), served] = LOW
    return scores, y, groups


def failures(
    setting: Setting, draws: int, n: int, seed: int, guarantee: str = "fixed-sequence"
) -> float:
    """The share of calibrations whose threshold lies below the cliff."""
    rng = np.random.default_rng(seed)
    failed = 0
    for _ in range(draws):
        found = find_threshold(
            *draw(setting, n, CLOSENESS + BEYOND, rng),
            setting.metric,
            CLOSENESS,
            alpha=0.95,
            classwise=False,
            guarantee=guarantee,
            delta=DELTA,
            grid=GRID if guarantee != "none" else None,
        )
        failed += found.threshold[0] < HIGH
    return failed / draws


def wrong_verdicts(
    setting: Setting, draws: int, n: int, seed: int
) -> tuple[float, float]:
    """Audits that say "within" just beyond c, and "beyond" at c."""
    rng = np.random.default_rng(seed)
    wrong = {"within": 0, "beyond": 0}
    for word, gap in (("within", CLOSENESS + BEYOND), ("beyond", CLOSENESS)):
        for _ in range(draws):
            scores, y, groups = draw(setting, n, gap, rng)
            found = audit(
                scores <= LOW,
                y,
                groups,
                setting.metric,
                closeness=CLOSENESS,
                confidence=1 - GAMMA,
            )
            wrong[word] += found.verdicts[setting.metric] == word
    return wrong["within"] / draws, wrong["beyond"] / draws


def most(level: float, draws: int) -> float:
    """More than this happens once in a million runs, where a test errs at `level`."""
    return float(binom.ppf(1 - 1e-6, draws, level)) / draws


def told(share: float, draws: int) -> str:
    """A share of draws with its exact upper limit at 97.5%."""
    hits = round(share * draws)
    upper = beta.ppf(0.975, hits + 1, draws - hits) if hits < draws else 1.0
    return f"{share:.4f} (at most {upper:.4f})"


def main() -> int:
    """Print every count; 1 if one is above what chance explains."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--audits", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    is_right = True
    few = max(options.draws // 5, 1)
    print(f"thresholds, {options.draws} calibrations each: beyond c = {CLOSENESS}")
    for setting in SETTINGS:
        for n in (300, 1500):
            share = failures(setting, options.draws, n, options.seed)
            beside = failures(setting, few, n, options.seed, "none")
            print(
                f"  {setting.name:<26} {n:>5}  {told(share, options.draws)}; "
                f"the paper's rule {beside:.3f}",
                flush=True,
            )
            is_right &= share <= most(DELTA, options.draws)
    print(f"audits, {options.audits} each: within just beyond c, beyond at c")
    for setting in SETTINGS:
        if not isinstance(setting.metric, str):
            continue
        shares = wrong_verdicts(setting, options.audits, 1500, options.seed)
        print(f"  {setting.name:<26}  {shares[0]:.4f}  {shares[1]:.4f}", flush=True)
        is_right &= max(shares) <= most(GAMMA, options.audits)
    print(f"wanted: at most δ = {DELTA}, and γ = {GAMMA} in audits: {is_right}")
    return int(not is_right)


if __name__ == "__main__":
    sys.exit(main())

"""How often promises fail where the truth is known: weights, intervals, survey shares.

Each setting has a cliff: on the way down the gap jumps in one step from nothing to just
beyond c, which is the hardest case of the walk. A promise at δ may fail in δ of all
calibrations.

    python tools/check_weights.py --draws 2000
"""

import argparse
import sys

import numpy as np
from scipy.integrate import quad
from scipy.special import betaincinv
from scipy.stats import beta, norm

from cfhelpers.control import find_threshold
from cfhelpers.regression import FairConformalRegressor
from cfhelpers.weights import weighted_quantile

CLOSENESS = 0.1
DELTA = 0.1
BEYOND = 1e-4  # by so much the gap below the cliff exceeds c
RARE_CITY = 0.2  # its share of the sample; in the target it is half
BOUND = 0.5 / RARE_CITY


def draw_shifted(
    rng: np.random.Generator, n: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores of label 1, groups and weights; cities differ in the target's share.

    Scores are .2 or .6. In the common city 95% of both groups have .2. In the rare one
    95% of A and 75% of B less twice the excess have: the gap of the target is just
    beyond .1, that of the sample .04.
    """
    is_rare = rng.random(n) < RARE_CITY
    groups = rng.integers(0, 2, n)
    covered = np.full(n, 0.95)
    covered[is_rare & (groups == 1)] -= 2 * (CLOSENESS + BEYOND)
    scores = np.where(rng.random(n) < covered, 0.2, 0.6)
    own = np.where(is_rare, 0.5 / RARE_CITY, 0.5 / (1 - RARE_CITY))
    return scores, groups, own


def shifted_failures(draws: int, n: int, seed: int) -> dict[str, float]:
    """Shares of calibrations that accept the threshold below the cliff."""
    rng = np.random.default_rng(seed)
    failed = {"thinned": 0, "without weights": 0, "weighted counts, plain rule": 0}
    options = {"alpha": 0.9, "guarantee": "fixed-sequence", "delta": DELTA}
    grid = [0.2, 0.4, 0.6, 0.8, 1.0]
    for draw in range(draws):
        column, groups, own = draw_shifted(rng, n)
        scores = np.stack([np.zeros(n), column], axis=1)
        args = (scores, np.ones(n, int), groups, "equal_opportunity", CLOSENESS)
        found = {
            "thinned": find_threshold(
                *args,
                sample_weight=own,
                weight_bound=BOUND,
                random_state=draw,
                grid=grid,
                **options,
            ),
            "without weights": find_threshold(*args, grid=grid, **options),
            "weighted counts, plain rule": find_threshold(
                *args, alpha=0.9, sample_weight=own
            ),
        }
        for name, result in found.items():
            failed[name] += result.threshold[1] < 0.6
    return {name: count / draws for name, count in failed.items()}


def shifted_coverage(draws: int, n: int, seed: int) -> dict[str, float]:
    """Mean coverage of q̂ in the target, α = .1, where the score shifts with the city."""
    rng = np.random.default_rng(seed)
    reached = {"weighted quantile": 0.0, "quantile without weights": 0.0}
    for _ in range(draws):
        is_rare = rng.random(n) < RARE_CITY
        own = np.where(is_rare, 0.5 / RARE_CITY, 0.5 / (1 - RARE_CITY))
        scores = rng.random(n) + is_rare
        for name, weight in (
            ("weighted quantile", own),
            ("quantile without weights", np.ones(n)),
        ):
            limit = weighted_quantile(scores, weight, 0.1)
            covered = (np.clip(limit, 0, 1) + np.clip(limit - 1, 0, 1)) / 2
            reached[name] += covered / draws
    return reached


def region_failures(draws: int, n: int, seed: int) -> float:
    """Equal opportunity of "50 and above": the cliff of predictions far below 50.

    Of the people with an outcome of 60, 95% of group 0 and 85% less the excess of group
    1 are predicted to have 45, the others 20: intervals ± 5 meet the region for the
    former, intervals ± 30 for all.
    """
    rng = np.random.default_rng(seed)
    failed = 0
    for _ in range(draws):
        groups = rng.integers(0, 2, n)
        y = np.where(rng.random(n) < 0.5, 60.0, 40.0)
        share = np.where(groups == 0, 0.95, 0.95 - CLOSENESS - BEYOND)
        prediction = np.where(rng.random(n) < share, 45.0, 20.0)
        fair = FairConformalRegressor(
            regions=[50.0],
            metric="equal_opportunity",
            closeness=CLOSENESS,
            alpha=0.9,
            positive_regions=[1],
            delta=DELTA,
            grid=np.arange(0.0, 50.0, 2.5),
        )
        fair.fit(prediction, y, groups)
        failed += fair.threshold_ < 30
    return failed / draws


def normal_gap(limit: float, sds: tuple[float, float]) -> float:
    """The true gap of "50 and above" between groups whose noise differs.

    Predictions are N(60, 20²), outcomes the prediction plus noise.
    """
    shares = []
    for sd in sds:

        def has_outcome(x: float, sd: float = sd) -> float:
            return norm.pdf(x, 60, 20) * norm.sf(50, x, sd)

        met = quad(has_outcome, 50 - limit, 160)[0]
        shares.append(met / quad(has_outcome, -60, 160)[0])
    return abs(shares[0] - shares[1])


def normal_failures(draws: int, n: int, seed: int) -> tuple[float, float]:
    """Intervals with a grid from training data: outcomes covered, and a region met."""
    rng = np.random.default_rng(seed)
    sds = (5.0, 20.0)
    failed_region = 0
    failed_outcome = 0
    for _ in range(draws):
        groups = rng.integers(0, 2, 2 * n)
        prediction = rng.normal(60, 20, 2 * n)
        y = prediction + rng.normal(size=2 * n) * np.array(sds)[groups]
        data = (prediction[:n], y[:n], groups[:n])
        training = (prediction[n:], y[n:])
        options = {"alpha": 0.5, "delta": DELTA}
        fair = FairConformalRegressor(
            regions=[50.0],
            metric="equal_opportunity",
            closeness=0.02,
            positive_regions=[1],
            **options,
        ).fit(*data, training=training)
        failed_region += normal_gap(fair.threshold_, sds) > 0.02
        fair = FairConformalRegressor(closeness=CLOSENESS, **options)
        fair.fit(*data, training=training)
        covered = 2 * norm.cdf(fair.threshold_ / np.array(sds)) - 1
        failed_outcome += np.ptp(covered) > CLOSENESS
    return failed_region / draws, failed_outcome / draws


def survey_coverage(
    draws: int, n: int, share: float, depends: float, seed: int
) -> tuple[float, float]:
    """How often the 95% interval of a weighted share holds the target's share.

    People are drawn with unequal probabilities: weights are lognormal with σ = .8, an
    effective size of about half the points. The chance of being covered falls with the
    weight where `depends` is above 0. Also the same for an interval that ignores weights.
    """
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(draws, n))
    own = np.exp(0.8 * z)
    logit = np.log(share / (1 - share)) - depends * z
    hits = rng.random((draws, n)) < 1 / (1 + np.exp(-logit))
    # In the target z is N(.8, 1): the density of the sample times the weight.
    grid = norm.ppf((np.arange(100_000) + 0.5) / 100_000) + 0.8
    truth = float(np.mean(1 / (1 + np.exp(depends * grid - np.log(share / (1 - share))))))
    size = own.sum(axis=1) ** 2 / (own**2).sum(axis=1)
    k = size * (own * hits).sum(axis=1) / own.sum(axis=1)
    counted = hits.sum(axis=1)
    return _holds(k, size, truth), _holds(counted, np.full(draws, float(n)), truth)


def _holds(k: np.ndarray, n: np.ndarray, truth: float) -> float:
    """How often the Clopper-Pearson interval at 95% holds the truth."""
    lower = np.where(k > 0, betaincinv(np.maximum(k, 1e-9), n - k + 1, 0.025), 0)
    rest = np.maximum(n - k, 1e-9)
    upper = np.where(n - k > 1e-9, betaincinv(k + 1, rest, 0.975), 1)
    return float(((lower <= truth) & (truth <= upper)).mean())


def told(share: float, draws: int) -> str:
    """A share of draws with its exact lower limit at 97.5%."""
    hits = round(share * draws)
    lower = beta.ppf(0.025, hits, draws - hits + 1) if hits else 0.0
    return f"{share:.4f} (lower limit {lower:.4f})"


def main() -> None:
    """Print every count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draws = options.draws
    seed = options.seed
    print(f"{draws} draws each; δ = {DELTA}, c = {CLOSENESS}, just beyond c at the cliff")
    for n in (1500, 6000):
        print(f"\nA known shift, {n} points: beyond c in the target")
        for name, share in shifted_failures(draws, n, seed).items():
            print(f"  {name:<30} {told(share, draws)}")
    print("\nMean coverage of q̂ in the target, α = .1, 500 points")
    for name, share in shifted_coverage(draws, 500, seed).items():
        print(f"  {name:<30} {share:.4f}")
    print("\nIntervals: beyond c")
    for n in (400, 2000):
        share = region_failures(draws, n, seed)
        print(f"  region, cliff, {n} points       {told(share, draws)}")
    region, outcome = normal_failures(max(draws // 4, 1), 1500, seed)
    print(f"  region, normal, 1500 points    {told(region, max(draws // 4, 1))}")
    print(f"  outcome, normal, 1500 points   {told(outcome, max(draws // 4, 1))}")
    print("\nSurvey: how often a 95% interval holds the target's share")
    print("  points  share  depends on weight  effective size  without weights")
    for n in (50, 200, 1000, 5000):
        for share in (0.5, 0.9, 0.97):
            for depends in (0.0, 0.7):
                weighted, plain = survey_coverage(draws, n, share, depends, seed)
                print(
                    f"  {n:>6}  {share:>5}  {depends:>17}  {weighted:>14.3f}  {plain:.3f}"
                )


if __name__ == "__main__":
    sys.exit(main())

"""The grid of the paper: what sharing saves, what a loop over candidates costs, and the
whole of ACSIncome.

The last part reads the real records of 2024 in the folder that CFHELPERS_DATA names,
and is left out without it. With the option `--write` the tables are kept in
benchmarks/grid.md.
"""

import argparse
import os
import platform
import resource
import time
from pathlib import Path

import numpy as np
from run import markdown

from cfhelpers import control, paths
from cfhelpers.datasets import split
from cfhelpers.study import experiments, models

SHARES = [0.70, 0.10, 0.06, 0.05, 0.04, 0.02, 0.015, 0.01, 0.005]
CANDIDATES = 500  # of which the authors' code tries each in turn


def example(n: int = 200_000, n_classes: int = 4, seed: int = 0):
    """Scores, labels and nine unequal groups, as many as ACSIncome; simulated."""
    rng = np.random.default_rng(seed)
    return (
        rng.random((n, n_classes), np.float32),
        rng.integers(0, n_classes, n),
        rng.choice(9, n, p=SHARES),
    )


def seconds(work) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def settings():
    for metric in experiments.GRID_METRICS:
        for classwise in (False, True):
            for guarantee in control.GUARANTEES:
                yield metric, {"classwise": classwise, "guarantee": guarantee}


def together(scores, y, groups) -> None:
    calibration = control.Calibration(scores, y, groups)
    for metric, options in settings():
        found = calibration.search(metric, **options)
        _ = [found.find(c) for c in experiments.CLOSENESS]


def apart(scores, y, groups) -> None:
    for metric, options in settings():
        _ = [
            control.find_threshold(scores, y, groups, metric, c, **options)
            for c in experiments.CLOSENESS
        ]


def loop(scores, y, groups, candidates: int) -> None:
    """Demographic parity at one c as the release has it: a Python loop over candidates.

    Every candidate, label and group is counted afresh.
    """
    base = control.Calibration(scores, y, groups, share=False).base
    for threshold in np.linspace(base, 1, candidates):
        for label in range(1, scores.shape[1]):
            for group in range(9):
                (scores[groups == group, label] <= threshold).mean()


def vectorised(scores, y, groups, candidates: int) -> float:
    """The same grid as one would write it in NumPy: one sort per cell, then a look-up."""
    base = control.Calibration(scores, y, groups, share=False).base
    thresholds = np.linspace(base, 1, candidates)
    gaps = np.zeros(candidates)
    members = [np.flatnonzero(groups == group) for group in range(9)]
    for label in range(1, scores.shape[1]):
        column = scores[:, label]
        highest = np.zeros(candidates)
        lowest = np.ones(candidates)
        for rows in members:
            covered = np.searchsorted(np.sort(column[rows]), thresholds, side="right")
            np.maximum(highest, (covered + 1) / (len(rows) + 1), out=highest)
            np.minimum(lowest, covered / (len(rows) + 1), out=lowest)
        np.maximum(gaps, highest - lowest, out=gaps)
    within = np.flatnonzero(gaps <= 0.1)
    if len(within) == 0:
        return np.inf
    return thresholds[within[0]]


def bench_sharing() -> list[list[str]]:
    data = example()
    whole = seconds(lambda: together(*data))
    alone = seconds(lambda: apart(*data))
    one = best_of(lambda: control.find_threshold(*data, "demographic_parity", 0.1))
    straw = seconds(lambda: loop(*data, 10)) * CANDIDATES / 10
    in_numpy = best_of(lambda: vectorised(*data, CANDIDATES))
    searched = "one metric, one c, over the exact search for every c"
    return [
        [
            "the grid of one split (24 searches × 4 values of c), shared over apart",
            f"{whole / alone:.2f}",
        ],
        [
            f"a vectorised grid of {CANDIDATES} candidates, {searched}",
            f"{in_numpy / one:.1f}",
        ],
        [
            f"a Python loop over {CANDIDATES} candidates, {searched}",
            f"{straw / one:,.0f}",
        ],
    ]


def best_of(work, repeats: int = 7) -> float:
    """The least processor time of some tries, after one that is not counted."""
    work()
    return min(seconds(work) for _ in range(repeats))


def bench_acs() -> list[list[str]]:
    data = experiments.load("acs_income", "race", "local")
    base = models.base_model(data, split(data, 0))
    start = time.perf_counter()
    rows = experiments.run(data, base)
    taken = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return [
        ["rows of data; rows of results", f"{len(data):,}; {len(rows):,}", "", ""],
        [
            "seconds after training",
            f"{taken:.0f}",
            "≤ 300",
            "yes" if taken <= 300 else "no",
        ],
        [
            "peak memory of the whole process, GB",
            f"{peak:.2f}",
            "≤ 8",
            "yes" if peak <= 8 else "no",
        ],
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--write", action="store_true", help="keep the tables in benchmarks/grid.md"
    )
    write = parser.parse_args().write
    head = "# The grid\n\nWritten by `benchmarks/grid.py --write`: "
    head += f"one thread, {platform.machine()}.\n"
    title = "Ratios of processor time in one run"
    title += " (n = 200,000, K = 4, 9 skewed groups, simulated)"
    texts = [head, markdown(title, ["", "ratio"], bench_sharing())]
    if os.environ.get("CFHELPERS_DATA"):
        title = "ACSIncome, records of 2024: 3 scores × 21 × single and classwise"
        title += " × both guarantees × 10 splits"
        texts.append(markdown(title, ["", "measured", "target", "met"], bench_acs()))
    print("\n".join(texts))
    if write:
        with paths.atomic_write(Path(__file__).with_name("grid.md")) as partial:
            partial.write_text("\n".join(texts), encoding="utf-8")


if __name__ == "__main__":
    main()

"""Speed, memory and the guarantee, as facts that do not depend on the machine: ratios, megabytes and shares.

`make bench` prints them beside their targets; with the option `--write` they are kept in benchmarks/results.md. Run it
with one thread (OMP_NUM_THREADS=1) on a machine that does nothing else.
"""

import argparse
import importlib.util
import platform
import time
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from cfhelpers import conformal, control, paths, scores
from cfhelpers.datasets.populations import Population, nine_groups

ALPHA, DELTA = 0.1, 0.1
TARGETS = {"frontier": 3.0, "torchcp": 1.0, "megabytes": 100.0, "beyond": DELTA}


def population(n_classes: int) -> Population:
    """Nine groups from 78% of the population down to 0.3%, with any number of classes."""
    base = nine_groups()
    if n_classes == base.n_classes:
        return base
    return Population(
        base.names, base.shares, np.random.default_rng(0).normal(0, 0.6, (9, n_classes))
    )


def seconds(work: Callable) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def ratios(
    work: Callable, yardstick: Callable, repeats: int
) -> tuple[float, float, float]:
    """Time of `work` over that of `yardstick`, taken in turns: median and minimum of the rounds, and best over best."""
    work(), yardstick()
    times = np.array([(seconds(work), seconds(yardstick)) for _ in range(repeats)])
    by_round = times[:, 0] / times[:, 1]
    best = times.min(axis=0)
    return float(np.median(by_round)), float(by_round.min()), float(best[0] / best[1])


def row(name: str, values: tuple[float, float, float], target: float) -> list[str]:
    median, least, best = values
    return [
        name,
        f"{median:.2f}",
        f"{least:.2f}",
        f"{best:.2f}",
        f"≤ {target:g}",
        "yes" if median <= target else "no",
    ]


def bench_frontier(n: int, n_classes: int, repeats: int) -> list[list[str]]:
    """The whole frontier for demographic parity, in sorts of the n·K float32 scores."""
    probs, y, names = population(n_classes).draw(n, np.random.default_rng(1))
    codes = np.unique(names, return_inverse=True)[1]
    rows = []
    for score, values in (
        ("TPS", scores.tps(probs)),
        ("APS", scores.aps(probs, np.random.default_rng(2).random(n, np.float32))),
    ):
        assert values.dtype == np.float32
        for kind, groups in (("integers", codes), ("strings", names)):
            for classwise in (False, True):
                result = ratios(
                    lambda v=values, g=groups, c=classwise: control.frontier(
                        v, y, g, "demographic_parity", alpha=ALPHA, classwise=c
                    ),
                    lambda v=values: np.sort(v, axis=None),
                    repeats,
                )
                name = f"{score}, {'classwise' if classwise else 'single λ'}, groups as {kind}"
                rows.append(row(name, result, TARGETS["frontier"]))
    return rows


def ours(
    probs: np.ndarray, y: np.ndarray, u: np.ndarray | None = None
) -> tuple[float, np.ndarray]:
    """APS scores, quantile and sets."""
    values = scores.aps(probs, u)
    threshold = conformal.conformal_quantile(values[np.arange(len(y)), y], ALPHA)
    return threshold, conformal.prediction_sets(values, threshold)


def bench_torchcp(n: int, n_classes: int, repeats: int) -> list[list[str]]:
    """APS scores, quantile and sets, beside TorchCP on the same probabilities."""
    import torch

    warnings.simplefilter("ignore", DeprecationWarning)
    from torchcp.classification.predictor import SplitPredictor
    from torchcp.classification.score import APS

    torch.set_num_threads(1)
    probs, y, _ = population(n_classes).draw(n, np.random.default_rng(1))
    tensor, labels, rng = (
        torch.from_numpy(probs),
        torch.from_numpy(y),
        np.random.default_rng(2),
    )

    def with_predictor(randomized):
        """As its documentation shows: calibrate, then predict. True-label scores first, then those of all labels."""
        predictor = SplitPredictor(
            APS(score_type="identity", randomized=randomized), alpha=ALPHA
        )
        predictor.calculate_threshold(tensor, labels)
        return float(predictor.q_hat), predictor.predict_with_logits(tensor)

    def with_one_pass(randomized):
        """Its parts, put together so that scores are computed once, which is what we do."""
        predictor = SplitPredictor(
            APS(score_type="identity", randomized=randomized), alpha=ALPHA
        )
        values = predictor.score_function(tensor)
        q_hat = predictor._calculate_conformal_value(
            values[torch.arange(n), labels], ALPHA
        )
        return float(q_hat), predictor._generate_prediction_set(values, q_hat)

    check_same_sets(probs, y, *with_predictor(False))
    rows = []
    for randomized in (False, True):
        for name, theirs in (
            ("its predictor", with_predictor),
            ("its parts, one pass", with_one_pass),
        ):
            result = ratios(
                lambda r=randomized: ours(
                    probs, y, rng.random(n, np.float32) if r else None
                ),
                lambda r=randomized, f=theirs: f(r),
                repeats,
            )
            kind = "randomised" if randomized else "not randomised"
            rows.append(row(f"against {name}, {kind}", result, TARGETS["torchcp"]))
    return rows


def check_same_sets(
    probs: np.ndarray, y: np.ndarray, their_threshold: float, their_sets
) -> None:
    """The same sets, but for scores that equal the threshold up to the rounding of float32 sums."""
    threshold, sets = ours(probs, y)
    assert abs(threshold - their_threshold) < 1e-6, (threshold, their_threshold)
    differ = sets != their_sets.numpy().astype(bool)
    far = np.abs(scores.aps(probs)[differ] - threshold) > 1e-6
    assert not far.any() and differ.mean() < 1e-5, (
        f"{differ.sum()} entries differ, {far.sum()} of them by more than rounding"
    )
    print(
        f"TorchCP's sets and ours: {differ.sum()} of {differ.size:,} entries differ, all within float32 rounding of q̂"
    )


def bench_memory(n: int, n_classes: int) -> list[list[str]]:
    """Peak memory of the search above its inputs."""
    probs, y, names = population(n_classes).draw(n, np.random.default_rng(1))
    codes, values = np.unique(names, return_inverse=True)[1], scores.tps(probs)
    rows = []
    for guarantee in control.GUARANTEES:
        for classwise in (False, True):
            tracemalloc.start()
            control.search(
                values,
                y,
                codes,
                "demographic_parity",
                classwise=classwise,
                guarantee=guarantee,
            ).frontier()
            peak = tracemalloc.get_traced_memory()[1] / 1e6
            tracemalloc.stop()
            name = f"{'classwise' if classwise else 'single λ'}, guarantee: {guarantee}"
            met = "yes" if peak < TARGETS["megabytes"] else "no"
            rows.append([name, f"{peak:.0f}", f"< {TARGETS['megabytes']:g}", met])
    return rows


def bench_guarantee(n: int, calibrations: int, truth_draws: int) -> list[list[str]]:
    """How often the true gap exceeds c, over many calibrations: classwise demographic parity, TPS, four classes."""
    people, levels = population(4), (0.05, 0.10, 0.20)
    truth = people.truth(scores.tps, truth_draws, np.random.default_rng(1))
    gaps = {(guarantee, c): [] for guarantee in control.GUARANTEES for c in levels}
    sizes = {key: [] for key in gaps}
    for seed in range(calibrations):
        probs, y, names = people.draw(n, np.random.default_rng([2, seed]))
        values = scores.tps(probs)
        for guarantee in control.GUARANTEES:
            search = control.search(
                values,
                y,
                names,
                "demographic_parity",
                alpha=ALPHA,
                classwise=True,
                guarantee=guarantee,
                delta=DELTA,
            )
            for c in levels:
                threshold = search.find(c).threshold
                gaps[guarantee, c].append(
                    truth.disparity(threshold, "demographic_parity")
                )
                sizes[guarantee, c].append(
                    conformal.efficiency(conformal.prediction_sets(values, threshold))
                )
    rules = {
        "none": "the paper's: first passing λ",
        "fixed-sequence": "fixed-sequence test",
    }
    rows = []
    for (guarantee, c), values in gaps.items():
        beyond = np.mean(np.array(values) > c)
        met = (
            "" if guarantee == "none" else "yes" if beyond <= TARGETS["beyond"] else "no"
        )
        target = "" if guarantee == "none" else f"≤ {TARGETS['beyond']:g}"
        size = np.mean(sizes[guarantee, c])
        rows.append(
            [
                rules[guarantee],
                f"{c:.2f}",
                f"{beyond:.3f}",
                f"{np.mean(values):.3f}",
                f"{size:.2f}",
                target,
                met,
            ]
        )
    return rows


def markdown(title: str, header: list[str], rows: list[list[str]]) -> str:
    lines = [f"## {title}", "", f"| {' | '.join(header)} |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows), ""])


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--write", action="store_true", help="keep the tables in benchmarks/results.md"
    )
    parser.add_argument(
        "--n", type=int, default=200_000, help="points, for speed and memory"
    )
    parser.add_argument("--classes", type=int, default=6)
    parser.add_argument(
        "--repeats", type=int, default=40, help="rounds of each comparison"
    )
    parser.add_argument("--calibrations", type=int, default=200, help="for the guarantee")
    parser.add_argument(
        "--only", nargs="+", choices=["frontier", "torchcp", "memory", "guarantee"]
    )
    options = parser.parse_args(arguments)
    n, k, repeats = options.n, options.classes, options.repeats
    chosen = options.only or ["frontier", "torchcp", "memory", "guarantee"]
    speed = ["", "median", "minimum", "best / best", "target", "met"]
    setting = f"n = {n:,}, K = {k}, 9 skewed groups, simulated"
    texts = []

    def tell(text: str) -> None:
        texts.append(text)
        print(f"\n{text}", flush=True)

    if "frontier" in chosen:
        rows = bench_frontier(n, k, repeats)
        tell(
            markdown(
                f"Frontier, time over that of np.sort of the n·K float32 scores ({setting})",
                speed,
                rows,
            )
        )
    if "torchcp" in chosen and importlib.util.find_spec("torchcp") is None:
        print("TorchCP is not installed: `make bench` sets up an environment that has it")
    elif "torchcp" in chosen:
        rows = bench_torchcp(n, k, repeats)
        tell(
            markdown(
                f"APS scores, quantile and sets, time over that of TorchCP ({setting})",
                speed,
                rows,
            )
        )
    if "memory" in chosen:
        rows = bench_memory(n, k)
        tell(
            markdown(
                f"Frontier, peak megabytes above the inputs ({setting})",
                ["", "MB", "target", "met"],
                rows,
            )
        )
    if "guarantee" in chosen:
        header = [
            "rule",
            "c",
            "share beyond c",
            "mean true gap",
            "mean set size",
            "target for the share",
            "met",
        ]
        title = f"True gap beyond c in {options.calibrations} calibrations (n = 50,000, δ = {DELTA:g}, simulated)"
        tell(
            markdown(
                title, header, bench_guarantee(50_000, options.calibrations, 3_000_000)
            )
        )
    if options.write:
        about = f"one thread, {platform.machine()}, NumPy {np.__version__}"
        head = f"# Benchmarks\n\nWritten by `benchmarks/run.py --write`: {about}.\n"
        with paths.atomic_write(Path(__file__).with_name("results.md")) as partial:
            partial.write_text("\n".join([head, *texts]), encoding="utf-8")


if __name__ == "__main__":
    main()

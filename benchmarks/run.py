"""Speed, memory and the guarantee, as ratios, megabytes and shares.

`make bench` prints them beside their targets; with the option `--write` they are kept in
benchmarks/results.md. Run it with one thread (OMP_NUM_THREADS=1) on a machine that does
nothing else. Times are processor times.
"""

import argparse
import importlib.util
import os
import platform
import subprocess
import sys
import tempfile
import time
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from cfhelpers import conformal, control, paths, scores
from cfhelpers.datasets.populations import Population, nine_groups

ALPHA = 0.1
DELTA = 0.1
TARGETS = {"torchcp": 1.0, "megabytes": 100.0, "beyond": DELTA}
VAGUE, CONFIDENT, PROXY = 2.5, 3.5, 3.0  # sorts
MANY_LABELS = {200: (4.0, 300), 1000: (6.0, 300)}  # K: sorts, megabytes at n = 20,000


def population(n_classes: int) -> Population:
    """Nine groups from 78% of the population down to 0.3%, with any number of classes."""
    base = nine_groups()
    if n_classes == base.n_classes:
        return base
    return Population(
        base.names, base.shares, np.random.default_rng(0).normal(0, 0.6, (9, n_classes))
    )


def confident(n_classes: int, deviation: float) -> Population:
    """The same groups; labels drawn from the softmax of known normal logits."""
    base = nine_groups()
    offsets = np.zeros((len(base.names), n_classes))
    return Population(base.names, base.shares, offsets, deviation, shrink=1.0, noise=0.0)


def seconds(work: Callable) -> float:
    """Processor time."""
    start = time.process_time()
    work()
    return time.process_time() - start


def ratios(
    work: Callable, yardstick: Callable, repeats: int
) -> tuple[float, float, float]:
    """Time of `work` over that of `yardstick`, taken in turns.

    Median and minimum over the rounds, and best over best.
    """
    work()
    yardstick()
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


def in_sorts(
    values: np.ndarray,
    y: np.ndarray,
    groups: np.ndarray,
    metric: str,
    classwise: bool,
    repeats: int,
) -> tuple[float, float, float]:
    """Time of the whole frontier over that of sorting the scores."""
    return ratios(
        lambda: control.frontier(
            values, y, groups, metric, alpha=ALPHA, classwise=classwise
        ),
        lambda: np.sort(values, axis=None),
        repeats,
    )


def bench_frontier(n: int, n_classes: int, repeats: int) -> list[list[str]]:
    """The whole frontier, in sorts of the n·K float32 scores."""
    rows = []
    probs, y, names = population(n_classes).draw(n, np.random.default_rng(1))
    codes = np.unique(names, return_inverse=True)[1]
    u = np.random.default_rng(2).random(n, np.float32)
    tps = scores.tps(probs)
    kinds = ((False, "single λ"), (True, "classwise"))
    for metric in ("demographic_parity", "equal_opportunity"):
        for classwise, kind in kinds:
            result = in_sorts(tps, y, codes, metric, classwise, repeats)
            rows.append(row(f"vague, TPS, {metric}, {kind}", result, VAGUE))
    for classwise, kind in kinds:
        result = in_sorts(
            scores.aps(probs, u), y, codes, "demographic_parity", classwise, repeats
        )
        rows.append(row(f"vague, APS, demographic_parity, {kind}", result, VAGUE))
        result = in_sorts(tps, y, names, "demographic_parity", classwise, repeats)
        rows.append(row(f"vague, TPS, groups as strings, {kind}", result, VAGUE))
    result = in_sorts(tps, y, codes, "predictive_parity_proxy", False, repeats)
    rows.append(row("vague, TPS, predictive_parity_proxy, single λ", result, PROXY))
    for deviation in (1.2, 2.1, 4.0):
        probs, y, names = confident(n_classes, deviation).draw(
            n, np.random.default_rng(1)
        )
        codes = np.unique(names, return_inverse=True)[1]
        tps = scores.tps(probs)
        base = conformal.conformal_quantile(tps[np.arange(n), y], ALPHA)
        share = (tps > base).mean()
        for metric in ("demographic_parity", "equal_opportunity"):
            for classwise, kind in kinds:
                result = in_sorts(tps, y, codes, metric, classwise, repeats)
                name = f"logits' deviation {deviation}, {share:.2f} of the scores above q̂"
                rows.append(row(f"{name}, {metric}, {kind}", result, CONFIDENT))
    return rows


def bench_many_labels(n_scores: int, repeats: int) -> list[list[str]]:
    """The frontier at an equal number of scores, in sorts."""
    rows = []
    for n_classes, (target, _) in MANY_LABELS.items():
        n = n_scores // n_classes
        probs, y, names = population(n_classes).draw(n, np.random.default_rng(1))
        codes = np.unique(names, return_inverse=True)[1]
        values = scores.tps(probs)
        result = in_sorts(values, y, codes, "demographic_parity", False, repeats)
        rows.append(row(f"K = {n_classes:,}, n = {n:,}", result, target))
    return rows


def bench_many_labels_memory(n: int = 20_000, n_classes: int = 1000) -> list[list[str]]:
    """Peak memory of the search above its inputs, with room that is never written to."""
    probs, y, names = population(n_classes).draw(n, np.random.default_rng(1))
    codes = np.unique(names, return_inverse=True)[1]
    values = scores.tps(probs)
    tracemalloc.start()
    control.frontier(values, y, codes, "demographic_parity")
    megabytes = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    target = MANY_LABELS[n_classes][1]
    met = "yes" if megabytes < target else "no"
    return [[f"K = {n_classes:,}, n = {n:,}", f"{megabytes:.0f}", f"< {target}", met]]


def bench_compilation() -> list[list[str]]:
    """Seconds until the loops are ready: compiled at first, then read from disk."""
    code = "from cfhelpers import _sweep; _sweep.warm_up()"
    with tempfile.TemporaryDirectory() as folder:
        rows = []
        for name in ("compiled for the first time", "read from disk"):
            start = time.perf_counter()
            run_python(code, NUMBA_CACHE_DIR=folder)
            rows.append([name, f"{time.perf_counter() - start:.1f}"])
    start = time.perf_counter()
    run_python("import numba")
    rows.append(
        ["of which Python and the import of Numba", f"{time.perf_counter() - start:.1f}"]
    )
    return rows


def run_python(code: str, **environment: str) -> str:
    """What a process of its own prints, run from this folder."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        cwd=Path(__file__).parent,
        check=True,
        capture_output=True,
        text=True,
    ).stdout


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
        """As its documentation shows: calibrate, then predict."""
        predictor = SplitPredictor(
            APS(score_type="identity", randomized=randomized), alpha=ALPHA
        )
        predictor.calculate_threshold(tensor, labels)
        return float(predictor.q_hat), predictor.predict_with_logits(tensor)

    def with_one_pass(randomized):
        """Its parts, put together so that scores are computed once."""
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
    """The same sets, but for scores within rounding of the threshold."""
    threshold, sets = ours(probs, y)
    assert abs(threshold - their_threshold) < 1e-6, (threshold, their_threshold)
    differ = sets != their_sets.numpy().astype(bool)
    far = np.abs(scores.aps(probs)[differ] - threshold) > 1e-6
    assert not far.any() and differ.mean() < 1e-5, (
        f"{differ.sum()} entries differ, {far.sum()} of them by more than rounding"
    )
    print(
        f"TorchCP's sets and ours: {differ.sum()} of {differ.size:,} entries differ, "
        "all within float32 rounding of q̂"
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
    """How often the true gap exceeds c: classwise demographic parity, TPS."""
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


PARTS = ("frontier", "labels", "compilation", "torchcp", "memory", "guarantee")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--write", action="store_true", help="keep the tables in benchmarks/results.md"
    )
    parser.add_argument("--n", type=int, default=200_000, help="points")
    parser.add_argument("--classes", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=25, help="rounds of a comparison")
    parser.add_argument("--calibrations", type=int, default=200, help="for the guarantee")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    options = parser.parse_args(arguments)
    texts = []
    for part in options.only:
        text = table_of(part, options)
        texts.append(text)
        print(f"\n{text}", flush=True)
    if options.write:
        about = f"one thread, {platform.machine()}, NumPy {np.__version__}"
        head = f"# Benchmarks\n\nWritten by `benchmarks/run.py --write`: {about}.\n"
        with paths.atomic_write(Path(__file__).with_name("results.md")) as partial:
            partial.write_text("\n".join([head, *texts]), encoding="utf-8")


def table_of(part: str, options: argparse.Namespace) -> str:
    """One part of the benchmark as a Markdown table."""
    speed = ["", "median", "minimum", "best / best", "target", "met"]
    megabytes = ["", "MB", "target", "met"]
    setting = f"n = {options.n:,}, K = {options.classes}, 9 skewed groups, simulated"
    over_sort = "processor time over that of np.sort of the n·K float32 scores"
    if part == "frontier":
        rows = bench_frontier(options.n, options.classes, options.repeats)
        return markdown(f"Frontier, {over_sort} ({setting})", speed, rows)
    if part == "labels":
        n_scores = options.n * options.classes
        rows = bench_many_labels(n_scores, options.repeats)
        title = f"Frontier, demographic parity, single λ, many labels, {over_sort}"
        return markdown(title, speed, rows)
    if part == "compilation":
        title = "The search's two loops, seconds until they can be called"
        return markdown(title, ["", "seconds"], bench_compilation())
    if part == "torchcp":
        if importlib.util.find_spec("torchcp") is None:
            return (
                "TorchCP is not installed: `make bench` sets up an environment with it\n"
            )
        rows = bench_torchcp(options.n, options.classes, options.repeats)
        title = f"APS scores, quantile and sets, time over that of TorchCP ({setting})"
        return markdown(title, speed, rows)
    if part == "memory":
        rows = bench_memory(options.n, options.classes) + bench_many_labels_memory()
        return markdown(
            f"Frontier, megabytes above the inputs ({setting})", megabytes, rows
        )
    header = ["rule", "c", "share beyond c", "mean true gap", "mean set size"]
    header += ["target for the share", "met"]
    title = f"True gap beyond c in {options.calibrations} calibrations"
    title += f" (n = 50,000, δ = {DELTA:g}, simulated)"
    rows = bench_guarantee(50_000, options.calibrations, 3_000_000)
    return markdown(title, header, rows)


if __name__ == "__main__":
    main()

"""Base models and graph scores at the size of real data, beside their targets.

Reads the real files in the folder that CFHELPERS_DATA names: the ACS records of 2024 and
the graph of Pokec-n. Run it on a machine that does nothing else; with the option
`--write` the tables are kept in benchmarks/models.md.
"""

import argparse
import os
import platform
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
from run import markdown

from cfhelpers import gnn, paths, scores
from cfhelpers.datasets import Dataset, load_dataset, split
from cfhelpers.study import presets, scoring, training

HEADER = ["", "measured", "target", "met"]


def row(
    name: str,
    value: float,
    form: str,
    at_most: float | None = None,
    at_least: float | None = None,
) -> list[str]:
    """A line of the table; without a target it only tells."""
    if at_most is None and at_least is None:
        return [name, f"{value:{form}}", "", ""]
    if at_most is not None:
        target = f"≤ {at_most:g}"
        met = value <= at_most
    else:
        target = f"≥ {at_least:{form}}"
        met = value >= at_least
    return [name, f"{value:{form}}", target, "yes" if met else "no"]


def accuracy(probs: np.ndarray, y: np.ndarray, rows: np.ndarray) -> float:
    """The share of these rows whose most probable label is the true one."""
    return float((probs[rows].argmax(axis=1) == y[rows]).mean())


@dataclass
class Fit:
    """What one preset took and gave."""

    seconds: float
    trees: int
    valid: float
    test: float


def fit_preset(data: Dataset, parts: np.ndarray, profile: str) -> Fit:
    """XGBoost by the preset of a profile, fitted and predicted for all rows."""
    parameters = presets.preset(data, "xgboost", profile)
    start = time.perf_counter()
    probs, history = training.train(data, parts, "xgboost", parameters, progress=True)
    return Fit(
        seconds=time.perf_counter() - start,
        trees=len(history["loss"]),
        valid=accuracy(probs, data.y, parts == "valid"),
        test=accuracy(probs, data.y, parts == "test"),
    )


def bench_acs() -> list[list[str]]:
    """XGBoost for the incomes of 2024, by both presets."""
    data = load_dataset("acs_income", "local", year=2024)
    parts = split(data, 0)
    quick = fit_preset(data, parts, "quick")
    paper = fit_preset(data, parts, "paper")
    close = paper.valid - 0.005
    return [
        row("rows", len(data), ",d"),
        row(
            "quick preset: seconds to fit and predict", quick.seconds, ".0f", at_most=180
        ),
        row("quick preset: trees", quick.trees, "d"),
        row("quick preset: test accuracy", quick.test, ".4f", at_least=0.58),
        row("quick preset: validation accuracy", quick.valid, ".4f", at_least=close),
        row("the authors' preset: validation accuracy", paper.valid, ".4f"),
        row("the authors' preset: seconds to fit and predict", paper.seconds, ".0f"),
    ]


def bench_pokec() -> list[list[str]]:
    """A GCN until it stops by itself, then DAPS on its probabilities, every δ tried."""
    data = load_dataset("pokec_n", "local")
    parts = split(data, 0)
    parameters = presets.preset(data, "gcn")
    start = time.perf_counter()
    probs, history = training.train(data, parts, "gcn", parameters, progress=True)
    seconds_gcn = time.perf_counter() - start
    valid = parts == "valid"
    largest_class = np.bincount(data.y[parts == "train"]).argmax()
    majority = float((data.y[valid] == largest_class).mean())
    above = float(np.nextafter(majority, 1))
    found = accuracy(probs, data.y, valid)
    values = scores.aps(probs, np.random.default_rng(0).random(len(data)))
    tune = np.flatnonzero(parts == "calibration")[::2]
    start = time.perf_counter()
    diffused, chosen = scoring.tune_daps(values, data.y, data.edge_index, tune)
    seconds_daps = time.perf_counter() - start
    assert np.isfinite(diffused).all()
    daps = f"DAPS, {len(scoring.DIFFUSIONS)} candidates and the final scores: seconds"
    return [
        row("nodes", len(data), ",d"),
        row("edges", data.edge_index.shape[1] // 2, ",d"),
        row("GCN: seconds to early stopping", seconds_gcn, ".0f", at_most=600),
        row("GCN: epochs", len(history["epoch"]), "d"),
        row("GCN: validation accuracy", found, ".4f", at_least=above),
        row("majority class: validation accuracy", majority, ".4f"),
        row(daps, seconds_daps, ".1f", at_most=10),
        row("DAPS: chosen δ", chosen["diffusion"], "g"),
    ]


BENCHES = {
    "acs": ("ACS income, 2024, real: XGBoost", bench_acs),
    "pokec": (
        "Pokec-n, the real graph with structural features: GCN and DAPS",
        bench_pokec,
    ),
}


def about() -> str:
    """The machine and the libraries, in a line."""
    facts = [f"{os.cpu_count()} cores", gnn.choose_device().type, platform.machine()]
    for library in ("xgboost", "torch", "numpy"):
        facts.append(f"{library} {version(library)}")
    return ", ".join(facts)


def main(arguments: list[str] | None = None) -> None:
    """Run the benches and print, or keep, their tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--write", action="store_true", help="keep the tables in benchmarks/models.md"
    )
    parser.add_argument("--only", nargs="+", choices=list(BENCHES), default=list(BENCHES))
    options = parser.parse_args(arguments)
    texts = [
        "# Base models and graph scores\n\n"
        f"Written by `benchmarks/models.py --write`: {about()}.\n"
    ]
    for name in options.only:
        title, bench = BENCHES[name]
        texts.append(markdown(title, HEADER, bench()))
        print(f"\n{texts[-1]}", flush=True)
    if options.write:
        with paths.atomic_write(Path(__file__).with_name("models.md")) as partial:
            partial.write_text("\n".join(texts), encoding="utf-8")


if __name__ == "__main__":
    main()

"""Base models and graph scores at the size of real data: seconds and accuracies, beside their targets.

Reads the real files in the folder that CFHELPERS_DATA names: the ACS records of 2024 and the graph of Pokec-n. Run it
on a machine that does nothing else; with the option `--write` the tables are kept in benchmarks/models.md.
"""

import argparse
import os
import platform
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
from run import markdown

from cfhelpers import gnn, paths, scores
from cfhelpers.datasets import load_dataset, split
from cfhelpers.study import models, presets, scoring

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
    target, met = (
        (f"≤ {at_most:g}", value <= at_most)
        if at_least is None
        else (f"≥ {at_least:{form}}", value >= at_least)
    )
    return [name, f"{value:{form}}", target, "yes" if met else "no"]


def accuracy(probs: np.ndarray, y: np.ndarray, rows: np.ndarray) -> float:
    return float((probs[rows].argmax(axis=1) == y[rows]).mean())


def bench_acs() -> list[list[str]]:
    """XGBoost for the incomes of 2024: fitted on the training rows, predicted for all."""
    data = load_dataset("acs_income", "local", year=2024)
    parts, found = split(data, 0), {}
    for profile in models.PROFILES:
        start = time.perf_counter()
        probs, history = models.train(
            data,
            parts,
            "xgboost",
            presets.preset(data, "xgboost", profile),
            progress=True,
        )
        taken = time.perf_counter() - start
        found[profile] = (
            taken,
            len(history["loss"]),
            *(accuracy(probs, data.y, parts == p) for p in ("valid", "test")),
        )
    quick, paper = found["quick"], found["paper"]
    return [
        row("rows", len(data), ",d"),
        row("quick preset: seconds to fit and predict", quick[0], ".0f", at_most=180),
        row("quick preset: trees", quick[1], "d"),
        row("quick preset: test accuracy", quick[3], ".4f", at_least=0.58),
        row(
            "quick preset: validation accuracy",
            quick[2],
            ".4f",
            at_least=paper[2] - 0.005,
        ),
        row("the authors' preset: validation accuracy", paper[2], ".4f"),
        row("the authors' preset: seconds to fit and predict", paper[0], ".0f"),
    ]


def bench_pokec() -> list[list[str]]:
    """A GCN until it stops by itself, then DAPS on its probabilities with all candidates of δ."""
    data = load_dataset("pokec_n", "local")
    parts = split(data, 0)
    start = time.perf_counter()
    probs, history = models.train(
        data, parts, "gcn", presets.preset(data, "gcn"), progress=True
    )
    taken, valid = time.perf_counter() - start, parts == "valid"
    majority = float(
        (data.y[valid] == np.bincount(data.y[parts == "train"]).argmax()).mean()
    )
    values = scores.aps(probs, np.random.default_rng(0).random(len(data)))
    tune = np.flatnonzero(parts == "calibration")[::2]
    start = time.perf_counter()
    diffused, chosen = scoring.tune_daps(values, data.y, data.edge_index, tune)
    spread = time.perf_counter() - start
    assert np.isfinite(diffused).all()
    return [
        row("nodes", len(data), ",d"),
        row("edges", data.edge_index.shape[1] // 2, ",d"),
        row("GCN: seconds to early stopping", taken, ".0f", at_most=600),
        row("GCN: epochs", len(history["epoch"]), "d"),
        row(
            "GCN: validation accuracy",
            accuracy(probs, data.y, valid),
            ".4f",
            at_least=np.nextafter(majority, 1),
        ),
        row("majority class: validation accuracy", majority, ".4f"),
        row(
            f"DAPS, {len(scoring.DIFFUSIONS)} candidates and the final scores: seconds",
            spread,
            ".1f",
            at_most=10,
        ),
        row("DAPS: chosen δ", chosen["diffusion"], "g"),
    ]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--write", action="store_true", help="keep the tables in benchmarks/models.md"
    )
    benches = {
        "acs": ("ACS income, 2024, real: XGBoost", bench_acs),
        "pokec": (
            "Pokec-n, the real graph with structural features: GCN and DAPS",
            bench_pokec,
        ),
    }
    parser.add_argument("--only", nargs="+", choices=list(benches), default=list(benches))
    options = parser.parse_args(arguments)
    texts = []
    for name in options.only:
        title, bench = benches[name]
        texts.append(markdown(title, HEADER, bench()))
        print(f"\n{texts[-1]}", flush=True)
    if options.write:
        libraries = ", ".join(
            f"{library} {version(library)}" for library in ("xgboost", "torch", "numpy")
        )
        about = f"{os.cpu_count()} cores, {gnn.choose_device().type}, {platform.machine()}, {libraries}"
        head = f"# Base models and graph scores\n\nWritten by `benchmarks/models.py --write`: {about}.\n"
        with paths.atomic_write(Path(__file__).with_name("models.md")) as partial:
            partial.write_text("\n".join([head, *texts]), encoding="utf-8")


if __name__ == "__main__":
    main()

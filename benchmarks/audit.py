"""The audit beside fairlearn's MetricFrame on the same sets, and on a million rows.

`python benchmarks/audit.py` prints both; with `--write` they are kept in benchmarks/audit.md. fairlearn is in the extra
`bench`. Run it with one thread (OMP_NUM_THREADS=1). Beside fairlearn, processor time is counted, which depends less on
what else the machine does.
"""

import argparse
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from run import markdown, population, seconds

from cfhelpers import audit, conformal, fairness, paths, scores
from cfhelpers.auditing import audit_file
from cfhelpers.auditing.reading import read_table

LEAST_RATIO, MOST_SECONDS = 500, 10


def draw(n: int, n_classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """TPS sets of a simulated population with nine skewed groups, true labels, and groups by name."""
    probs, y, groups = population(n_classes).draw(n, np.random.default_rng(1))
    return conformal.prediction_sets(scores.tps(probs), 0.9), y, groups


def with_metric_frame(
    sets: np.ndarray, y: np.ndarray, groups: np.ndarray, names: list[str]
) -> pd.DataFrame:
    """These rates of every label by group: a frame per label, as its documentation shows."""
    from fairlearn import metrics
    from sklearn.metrics import precision_score

    functions = {name: getattr(metrics, name, precision_score) for name in names}
    frames = {
        label: metrics.MetricFrame(
            metrics=functions,
            y_true=(y == label).astype(int),
            y_pred=sets[:, label].astype(int),
            sensitive_features=groups,
        ).by_group
        for label in range(sets.shape[1])
    }
    return pd.concat(frames, axis=1)


def bench_metric_frame(n: int, n_classes: int, repeats: int) -> list[list[str]]:
    """Its time over that of the audit. Both give the same rates; the audit also intervals and verdicts."""
    sets, y, groups = draw(n, n_classes)
    labels = list(range(n_classes))
    rates = [
        "selection_rate",
        "true_positive_rate",
        "false_positive_rate",
        "precision_score",
    ]
    metrics = [
        "demographic_parity",
        "equal_opportunity",
        "predictive_equality",
        "predictive_parity",
    ]
    rows = []
    for name, asked, number in (
        ("demographic parity", metrics[:1], 1),
        ("all eight metrics", [*fairness.METRICS], 4),
    ):
        theirs, spent = processor_time(
            lambda number=number: with_metric_frame(sets, y, groups, rates[:number])
        )
        times = []
        for _ in range(repeats):
            found, ours = processor_time(
                lambda m=asked: audit(sets, y, groups, m, positive_labels=labels)
            )
            times.append(ours)
        for metric, rate in zip(metrics[:number], rates, strict=False):
            own = found.table[found.table["metric"] == metric].pivot(
                index="group", columns="label", values="coverage"
            )
            assert np.allclose(own.to_numpy(float), theirs.xs(rate, axis=1, level=1)), (
                metric
            )
        ratio = spent / np.median(times)
        made_of = ", ".join(rates[:number])
        met = "yes" if ratio >= LEAST_RATIO else "no"
        ours = f"{1000 * np.median(times):.1f}"
        rows.append(
            [
                name,
                made_of,
                ours,
                f"{spent:.1f}",
                f"{ratio:,.0f}",
                f"≥ {LEAST_RATIO}",
                met,
            ]
        )
    return rows


def processor_time(work: Callable) -> tuple[Any, float]:
    """What the work gives, and the seconds it took the processor."""
    start = time.process_time()
    return work(), time.process_time() - start


def bench_file(n: int, n_classes: int) -> list[list[str]]:
    """A file with probabilities and two group columns: reading, and everything after it."""
    probs, y, groups = population(n_classes).draw(n, np.random.default_rng(1))
    frame = pd.DataFrame(probs.round(5)).add_prefix("p_")
    frame = frame.assign(
        y=y, group=groups, sex=np.random.default_rng(2).choice(["f", "m"], n)
    )
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("predictions.csv", "predictions.parquet"):
            path = Path(folder) / name
            frame.to_csv(path, index=False) if name.endswith("csv") else frame.to_parquet(
                path
            )
            reading = seconds(lambda path=path: read_table(path))
            whole = seconds(lambda path=path: str(audit_file(path, groups="group, sex")))
            met = "yes" if whole - reading < MOST_SECONDS else "no"
            rows.append(
                [
                    name,
                    f"{reading:.1f}",
                    f"{whole - reading:.1f}",
                    f"< {MOST_SECONDS}",
                    met,
                ]
            )
    return rows


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--write", action="store_true", help="keep the tables in benchmarks/audit.md"
    )
    parser.add_argument("--n", type=int, default=200_000, help="points, beside fairlearn")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the file")
    parser.add_argument("--classes", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=11)
    options = parser.parse_args(arguments)
    setting = f"{options.classes} labels, 9 skewed groups, simulated"
    header = [
        "audit of",
        "MetricFrame of",
        "audit, ms",
        "MetricFrame, s",
        "ratio",
        "target",
        "met",
    ]
    texts = [
        markdown(
            f"The audit beside fairlearn's MetricFrame (n = {options.n:,}, {setting})",
            header,
            bench_metric_frame(options.n, options.classes, options.repeats),
        ),
        markdown(
            f"A file with {options.rows:,} rows, by two columns and their combinations ({setting})",
            ["file", "reading, s", "after reading, s", "target", "met"],
            bench_file(options.rows, options.classes),
        ),
    ]
    print("\n".join(texts))
    if options.write:
        about = f"one thread, {platform.machine()}, NumPy {np.__version__}"
        with paths.atomic_write(Path(__file__).with_name("audit.md")) as partial:
            head = f"# Benchmarks of the audit\n\nWritten by `benchmarks/audit.py --write`: {about}.\n"
            partial.write_text("\n".join([head, *texts]), encoding="utf-8")


if __name__ == "__main__":
    main()

"""The audit beside fairlearn's MetricFrame on the same sets, and on a million rows.

`python benchmarks/audit.py` prints both; with `--write` they are kept in
benchmarks/audit.md. fairlearn is in the extra `bench`. Run it with one thread
(OMP_NUM_THREADS=1). Processor time is counted, which depends less on what else the
machine does.
"""

import argparse
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from run import markdown, population

from cfhelpers import audit, conformal, paths, scores
from cfhelpers.auditing import Audit, audit_file
from cfhelpers.auditing.reading import read_table
from cfhelpers.metrics import LABEL_METRICS

LEAST_RATIO = 500
MOST_SECONDS = 5  # for verdicts, after reading
MOST_PAGE_SECONDS = 15  # for the command that writes the page
MOST_GIGABYTES = 1
KILOBYTE = 1024  # the unit of ru_maxrss
GIGABYTE = 1e9
# The rates of fairlearn, and the metrics whose coverages they are.
METRIC_OF_RATE = {
    "selection_rate": "demographic_parity",
    "true_positive_rate": "equal_opportunity",
    "false_positive_rate": "predictive_equality",
    "precision_score": "predictive_parity",
}


def draw(n: int, n_classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """TPS sets of a simulated population with nine groups, true labels, and groups."""
    probs, y, groups = population(n_classes).draw(n, np.random.default_rng(1))
    return conformal.prediction_sets(scores.tps(probs), 0.9), y, groups


def with_metric_frame(
    sets: np.ndarray, y: np.ndarray, groups: np.ndarray, names: list[str]
) -> pd.DataFrame:
    """These rates of every label by group: a frame per label, as documented."""
    from fairlearn import metrics
    from sklearn.metrics import precision_score

    functions = {name: getattr(metrics, name, precision_score) for name in names}
    frames = {}
    for label in range(sets.shape[1]):
        frames[label] = metrics.MetricFrame(
            metrics=functions,
            y_true=(y == label).astype(int),
            y_pred=sets[:, label].astype(int),
            sensitive_features=groups,
        ).by_group
    return pd.concat(frames, axis=1)


def bench_metric_frame(n: int, n_classes: int, repeats: int) -> list[list[str]]:
    """Its time over that of the audit.

    Both give the same rates; the audit also intervals and verdicts.
    """
    sets, y, groups = draw(n, n_classes)
    labels = list(range(n_classes))
    all_rates = list(METRIC_OF_RATE)
    rows = []
    for name, metrics, rates in (
        ("demographic parity", ["demographic_parity"], all_rates[:1]),
        ("all eight metrics", list(LABEL_METRICS), all_rates),
    ):
        frame, their_seconds = processor_time(
            partial(with_metric_frame, sets, y, groups, rates)
        )
        times = []
        for _ in range(repeats):
            found, our_seconds = processor_time(
                partial(audit, sets, y, groups, metrics, positive_labels=labels)
            )
            times.append(our_seconds)
        for rate in rates:
            check_same_rates(found, METRIC_OF_RATE[rate], frame, rate)
        ratio = their_seconds / np.median(times)
        rows.append(
            [
                name,
                ", ".join(rates),
                f"{1000 * np.median(times):.1f}",
                f"{their_seconds:.1f}",
                f"{ratio:,.0f}",
                f"≥ {LEAST_RATIO}",
                yes_or_no(ratio >= LEAST_RATIO),
            ]
        )
    return rows


def check_same_rates(found: Audit, metric: str, frame: pd.DataFrame, rate: str) -> None:
    """The audit and the metric frame have counted the same."""
    cells = found.table[found.table["metric"] == metric]
    ours = cells.pivot(index="group", columns="label", values="coverage")
    assert np.allclose(ours.to_numpy(float), frame.xs(rate, axis=1, level=1)), metric


def yes_or_no(is_met: bool) -> str:
    return "yes" if is_met else "no"


def processor_time(work: Callable[[], Any]) -> tuple[Any, float]:
    """What the work gives, and the seconds it took the processor."""
    start = time.process_time()
    result = work()
    return result, time.process_time() - start


def bench_file(n: int, n_classes: int) -> list[list[str]]:
    """A file with probabilities and two group columns: verdicts, and the whole page.

    Verdicts are counted without reading. The page is the command with all that it
    writes, from the start of Python to the end: fixes are searched and measured too.
    """
    probs, y, groups = population(n_classes).draw(n, np.random.default_rng(1))
    frame = pd.DataFrame(probs.round(5)).add_prefix("p_")
    frame["y"] = y
    frame["group"] = groups
    frame["sex"] = np.random.default_rng(2).choice(["f", "m"], n)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        csv = Path(folder) / "predictions.csv"
        parquet = Path(folder) / "predictions.parquet"
        frame.to_csv(csv, index=False)
        frame.to_parquet(parquet)
        for path in (csv, parquet):
            _, reading = processor_time(partial(read_table, path))
            _, verdicts = processor_time(partial(audit_verdicts, path))
            page, gigabytes = page_costs(path)
            after = verdicts - reading
            rows.append(
                [
                    path.name,
                    f"{reading:.1f}",
                    f"{after:.1f}",
                    f"{page:.1f}",
                    f"{gigabytes:.2f}",
                    f"≤ {MOST_SECONDS} s, ≤ {MOST_PAGE_SECONDS} s, < {MOST_GIGABYTES} GB",
                    yes_or_no(
                        after <= MOST_SECONDS
                        and page <= MOST_PAGE_SECONDS
                        and gigabytes < MOST_GIGABYTES
                    ),
                ]
            )
    return rows


def audit_verdicts(path: Path) -> list[str]:
    """The verdicts of the file, by the kind of cannot tell, people needed included."""
    found = audit_file(path, groups="group, sex")
    return [record.text for record in found.verdicts]


def page_costs(path: Path) -> tuple[float, float]:
    """Processor seconds of the command that writes the page, and its memory in GB."""
    page = path.with_suffix(".html")
    words = ["audit", str(path), "--groups", "group,sex", "--output", str(page)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "cfhelpers", *words],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used, after.ru_maxrss * KILOBYTE / GIGABYTE


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
            f"A file with {options.rows:,} rows, by two columns and their combinations "
            f"({setting})",
            [
                "file",
                "reading, s",
                "verdicts after reading, s",
                "command with page, s",
                "its memory, GB",
                "target",
                "met",
            ],
            bench_file(options.rows, options.classes),
        ),
    ]
    print("\n".join(texts))
    if options.write:
        machine = f"one thread, {platform.machine()}, NumPy {np.__version__}"
        head = (
            "# Benchmarks of the audit\n\n"
            f"Written by `benchmarks/audit.py --write`: {machine}.\n"
        )
        with paths.atomic_write(Path(__file__).with_name("audit.md")) as target:
            target.write_text("\n".join([head, *texts]), encoding="utf-8")


if __name__ == "__main__":
    main()

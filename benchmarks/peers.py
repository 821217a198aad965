"""Beside every peer: scores, quantile and sets; group rates; thresholds; the floor.

`make bench` runs it in an environment that has the peers. Each library runs in a process
of its own, one work after the other, first compared with ours and then timed
(`peer_work.py`). What takes more than `--limit` seconds of processor time, or more than
`--gigabytes` of memory, is ended and marked, and is not tried at a larger n; nor is what
would need more memory, by what it took at a smaller n.

benchmarks/peers.csv has every time, and gets it as soon as it is measured. What is there
is not measured again, so that a run that was stopped goes on; `--again` begins anew. From
the file are made benchmarks/peers.md, benchmarks/peers.png and the table of speeds in
README.md: `--report` makes them without measuring.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from peer_work import VALUES_OF_C
from run import markdown, population

from cfhelpers import paths

HERE = Path(__file__).resolve().parent
README = HERE.parent / "README.md"
MARKS = ("<!-- speed: made by benchmarks/peers.py -->", "<!-- end of speed -->")
SIZES = (20_000, 200_000, 2_000_000)
LABELS = (4, 6, 100)
ROWS_AT_ONCE = 100_000
SET_WORK = ["TPS sets", "APS sets", "RAPS sets"]
PEERS = {
    "TorchCP": SET_WORK,
    "MAPIE": SET_WORK[:2],
    "crepes": SET_WORK[:1],
    "puncc": SET_WORK,
    "fairlearn": ["group rates"],
    "the authors' grid": ["thresholds"],
}
OURS = [*SET_WORK, "thresholds", "group rates", "audit"]
FLOOR = ["sort", "copy", "Parquet"]
WORKS = {"cfhelpers": OURS, "floor": FLOOR, **PEERS}
MODULES = {
    "TorchCP": "torchcp",
    "MAPIE": "mapie",
    "crepes": "crepes",
    "puncc": "deel",
    "fairlearn": "fairlearn",
}
USES_CORES = ("cfhelpers", "TorchCP")  # the others run on one core in any case
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
TITLES = {
    "TPS sets": "TPS: scores, quantile, sets",
    "APS sets": "APS: scores, quantile, sets",
    "RAPS sets": "RAPS: scores, quantile, sets",
    "group rates": "four rates of every label and group, and their gaps",
    "thresholds": "fair thresholds (ours: for every c; the grid: for one)",
    "audit": "audit: eight metrics, intervals, verdicts (fairlearn: the four rates)",
}
UNFINISHED = ("started", "ready")
COLUMNS = ["library", "cores", "n", "K", "work", "status", "wall", "processor", "tries"]
COLUMNS += ["peak", "size", "limit", "jobs", "why"]
# What a peer is asked for where it has nothing like our work.
THEIR_WORK = {"audit": "group rates"}


def make_data(folder: Path, n: int, n_classes: int) -> None:
    """Probabilities (float32), true labels and nine unequal groups, as files."""
    folder.mkdir()
    shape = (n, n_classes)
    probs = np.lib.format.open_memmap(folder / "probs.npy", "w+", np.float32, shape)
    y = np.empty(n, np.int64)
    groups = np.empty(n, np.int64)
    people = population(n_classes)
    for first in range(0, n, ROWS_AT_ONCE):
        some = slice(first, min(first + ROWS_AT_ONCE, n))
        n_rows = some.stop - first
        drawn, y[some], names = people.draw(n_rows, np.random.default_rng([1, first]))
        probs[some] = drawn
        groups[some] = np.searchsorted(np.sort(people.names), names)
    probs.flush()
    np.save(folder / "y.npy", y)
    np.save(folder / "groups.npy", groups)


def processor_seconds(pid: int) -> float:
    """What a running process has used so far, by all of its threads."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Kept:
    """The measured rows; the file has each of them as soon as it is known."""

    def __init__(self, file: Path, limit: float, is_anew: bool = False) -> None:
        self.file = file
        self.rows: list[dict[str, Any]] = []
        self.lock = threading.Lock()
        if file.exists() and not is_anew:
            table = pd.read_csv(file)
            self.rows = table[is_still_good(table, limit)].to_dict("records")

    def add(self, row: dict[str, Any]) -> None:
        print(row, flush=True)
        with self.lock:
            self.rows.append(row)
            with paths.atomic_write(self.file) as partial:
                pd.DataFrame(self.rows, columns=COLUMNS).to_csv(partial, index=False)

    def of(self, library: str, cores: int) -> list[dict[str, Any]]:
        with self.lock:
            rows = list(self.rows)
        return [row for row in rows if (row["library"], row["cores"]) == (library, cores)]


def is_still_good(table: pd.DataFrame, limit: float) -> pd.Series:
    """Whether a row need not be measured again under this limit.

    What was ended under a lower limit may end by itself now, and what was absent may be
    installed.
    """
    is_lower = table["limit"] < limit
    is_ended = table["status"].isin(["time", "not tried"])
    return (table["status"] != "absent") & ~(is_lower & is_ended)


def run_library(
    library: str, items: list[tuple], order: dict[str, Any], kept: Kept
) -> None:
    """Measure a library's items (n, K, work) that are not yet among the kept rows.

    After one that was ended a new process goes on, without the same work at a larger n.
    """

    def keep(row: dict[str, Any]) -> None:
        about = {"library": library, "cores": order["cores"]}
        kept.add({**about, **row, "limit": order["limit"], "jobs": order["jobs"]})

    module = MODULES.get(library, "numpy")
    is_absent = importlib.util.find_spec(module) is None
    ended: dict | None = {}
    while ended is not None:
        left = []
        rows = kept.of(library, order["cores"])
        for item in items:
            if is_measured(item, rows):
                continue
            if is_absent:
                keep(row_of(item, "absent"))
            elif is_hopeless(item, rows):
                keep(row_of(item, "not tried"))
            else:
                left.append(item)
        if not left:
            return
        ended = run_process({**order, "library": library, "items": left}, keep)
        if ended is not None:
            keep(ended)


def is_measured(item: tuple, rows: list[dict]) -> bool:
    """Whether the item has its row.

    "scaling" has several, of which the last counts, or one under its own name if it was
    ended.
    """
    n, n_classes, work = item
    for row in rows:
        if (row["n"], row["K"]) != (n, n_classes):
            continue
        is_last = (row["work"], row.get("size")) == ("values of c", VALUES_OF_C[-1])
        if row["work"] == work or (work == "scaling" and is_last):
            return True
    return False


def is_hopeless(item: tuple, rows: list[dict]) -> bool:
    """Whether the same work was ended, or out of memory, at a smaller n."""
    n, n_classes, work = item
    for row in rows:
        is_same = (row["K"], row["work"]) == (n_classes, work)
        if is_same and row["n"] < n and row["status"] in ("time", "memory"):
            return True
    return False


def row_of(item: tuple, status: str) -> dict[str, Any]:
    n, n_classes, work = item
    return {"n": n, "K": n_classes, "work": work, "status": status}


def run_process(order: dict[str, Any], keep: Callable[[dict], None]) -> dict | None:
    """Keep what one process finishes; give the item at which it ended, if any."""
    handle, name = tempfile.mkstemp(".jsonl", dir=order["folder"])
    said = Path(name)
    environment = os.environ | dict.fromkeys(THREADS, str(order["cores"]))
    with os.fdopen(handle, "w") as file:
        process = subprocess.Popen(
            [sys.executable, HERE / "peer_work.py", json.dumps(order)],
            stdout=file,
            env=environment,
        )
    used_before: dict[str, float] = {}
    status = "failed"
    n_lines = 0
    try:
        while process.poll() is None:
            time.sleep(0.05)
            n_lines = keep_finished(said, n_lines, keep)
            current = last_line(said)
            if current.get("status") not in UNFINISHED:
                continue
            used = processor_seconds(process.pid)
            begun = used_before.setdefault(json.dumps(current), used)
            if used - begun > order["limit"]:
                process.kill()
                process.wait()
                status = "time"
    finally:
        process.kill()
    keep_finished(said, n_lines, keep)
    current = last_line(said)
    if not current and process.returncode:
        raise RuntimeError(f"{order['library']}: it did not start")
    if current.get("status") not in UNFINISHED:
        return None
    if process.returncode == -9 and status != "time":
        status = "memory"
    return current | {"status": status}


def keep_finished(said: Path, n_lines: int, keep: Callable[[dict], None]) -> int:
    """Keep the lines after the first so many that tell of finished work; count all."""
    lines = said.read_text().splitlines(keepends=True)
    whole = [line for line in lines if line.endswith("\n")]
    for line in whole[n_lines:]:
        row = json.loads(line)
        if row["status"] not in UNFINISHED:
            keep(row)
    return len(whole)


def last_line(file: Path) -> dict[str, Any]:
    """What a process said last, if it said it to the end."""
    lines = file.read_text().splitlines()
    try:
        return json.loads(lines[-1])
    except (IndexError, ValueError):
        return {}


def run_all(options: argparse.Namespace, folder: Path, kept: Kept) -> None:
    """All libraries at all sizes, the smallest first."""
    tables = []
    for n in options.sizes:
        for n_classes in options.labels:
            if n * n_classes <= options.most_scores:
                tables.append((n, n_classes))
    order = {"folder": str(folder), "limit": options.limit, "cores": 1}
    order["gigabytes"] = options.gigabytes
    order["jobs"] = options.jobs
    orders = []
    orders_of_many = []
    many = os.cpu_count() or 1
    for library in options.libraries:
        items = [(n, K, work) for n, K in tables for work in WORKS[library]]
        orders.append((library, items, order))
        if library in USES_CORES and many > 1:
            items = [(n, K, work) for n, K in tables for work in SET_WORK]
            orders_of_many.append((library, items, {**order, "cores": many}))
    if "cfhelpers" in options.libraries:
        item = (*options.scaling, "scaling")
        orders.append(("cfhelpers", [item], order))
    wanted = set()
    for library, items, own in orders + orders_of_many:
        rows = kept.of(library, own["cores"])
        wanted |= {item[:2] for item in items if not is_measured(item, rows)}
    for n, n_classes in sorted(wanted):
        make_data(folder / f"{n}-{n_classes}", n, n_classes)
    finish(orders, options.jobs, kept)
    finish(orders_of_many, 1, kept)  # each has the machine for itself


def finish(orders: list[tuple], jobs: int, kept: Kept) -> None:
    """Do all orders (library, items, order), so many at the same time."""
    with ThreadPoolExecutor(jobs) as pool:
        for _ in pool.map(lambda order: run_library(*order, kept), orders):
            pass


def had_to_wait(row: pd.Series, time: str) -> bool:
    """Whether a wall time tells of other people's work on the machine, not of its own."""
    return time == "wall" and row["status"] == "ok" and row[time] > 1.5 * row["processor"]


def ratio_text(ours: pd.Series | None, theirs: pd.Series | None, time: str) -> str:
    """How many times as long a peer takes, or why that is not known."""
    if theirs is None or ours is None:
        return "–"
    if had_to_wait(ours, time) or had_to_wait(theirs, time):
        return "busy"
    if theirs["status"] == "ok":
        return f"{short(theirs[time] / ours[time])}×"
    if theirs["status"] == "time":
        return f"> {short(theirs['limit'] / ours[time])}×"
    return str(theirs["status"])


def short(value: float) -> str:
    """Two digits, or all of a larger number."""
    if value < 10:
        return f"{value:.1f}"
    return f"{value:,.0f}"


def milliseconds(row: pd.Series | None, time: str) -> str:
    if row is None or row["status"] != "ok":
        return "–" if row is None else str(row["status"])
    if had_to_wait(row, time):
        return "busy"
    return f"{short(1000 * row[time])} ms"


class Results:
    """The measured rows, found by what was measured."""

    def __init__(self, table: pd.DataFrame) -> None:
        self.table = table
        self.sizes = sorted(table["n"].unique())
        self.labels = sorted(table["K"].unique())
        self.many = int(table["cores"].max())

    def row(self, library: str, work: str, n: int, K: int, cores: int = 1) -> Any:
        """One row, or None."""
        wanted = {"library": library, "work": work, "n": n, "K": K, "cores": cores}
        found = self.table
        for column, value in wanted.items():
            found = found[found[column] == value]
        return None if found.empty else found.iloc[0]

    def line(self, work: str, n: int, K: int, cores: int = 1) -> list[str]:
        """Our time, and every peer's as a multiple of it."""
        time = "processor" if cores == 1 else "wall"
        ours = self.row("cfhelpers", work, n, K, cores)
        cells = [f"{n:,}", str(K), milliseconds(ours, time)]
        for library in peers_of(work, cores):
            theirs = self.row(library, THEIR_WORK.get(work, work), n, K, cores)
            cells.append(ratio_text(ours, theirs, time))
        return cells

    def exponent(self, work: str, by: str, fixed: dict[str, int]) -> str:
        """The slope of log time over log size, least squares over what was measured."""
        rows = self.table[self.table["work"] == work]
        rows = rows[(rows["library"] == "cfhelpers") & (rows["cores"] == 1)]
        for column, value in fixed.items():
            rows = rows[rows[column] == value]
        rows = rows.dropna(subset=["processor", by])
        if len(rows) < 2:
            return "–"
        slope = np.polyfit(np.log(rows[by]), np.log(rows["processor"]), 1)[0]
        return f"{slope:.2f}"


def peers_of(work: str, cores: int = 1) -> list[str]:
    """The libraries that do this work, and use more than one core where there are."""
    theirs = THEIR_WORK.get(work, work)
    found = [library for library, works in PEERS.items() if theirs in works]
    return [library for library in found if cores == 1 or library in USES_CORES]


def report(results: Results) -> str:
    """All tables as Markdown."""
    limit = results.table["limit"].max()
    jobs = results.table["jobs"].max()
    texts = [
        "# Beside every peer\n",
        "Written by `benchmarks/peers.py` from benchmarks/peers.csv. Nine unequal "
        "groups, simulated; probabilities are float32.\nBefore a peer is timed its "
        "answers are compared with ours. On one core, times are the least processor "
        "time of some tries; a\npeer's time is given as a multiple of ours. Processes at "
        f"the same time: {jobs}.\n",
        f"`>`: ended after {limit:,.0f} s of processor time. `not tried`: ended, or out "
        "of memory, at a smaller n. `memory`: it took, or by a\nsmaller n would take, "
        "more memory than one process may have. `–`: not measured in this run. `busy`: "
        "the wall time was\nmore than 1.5 times the processor time, so the machine was "
        "shared.\n",
        "Not the same work, and so not timed: MAPIE's RAPS, which tunes its penalty on a "
        "fifth of the points. crepes has neither APS\nnor RAPS. puncc keeps the label "
        "that crosses the quantile, and is compared without it.\n",
        "Every library is given the same probabilities, as float32; puncc, which wants "
        "sums within 1e-5, as float64. All give sets, and all but\ncrepes a quantile. "
        "TorchCP's sets are 0 and 1 as int32, and it does not look at its input; ours "
        "are Boolean, and every probability is\nchecked. For APS and RAPS ours draw a "
        "random number for every point, as MAPIE's APS does; the others draw none.\n",
        "![Time against the number of points, on logarithmic axes, for ours, every peer "
        "and the floor, with six labels](peers.png)\n",
    ]
    for work, title in TITLES.items():
        header = ["n", "K", "ours", *peers_of(work)]
        rows = [results.line(work, n, K) for n in results.sizes for K in results.labels]
        texts.append(markdown(f"{title}; one core", header, rows))
    if results.many > 1:
        for work in SET_WORK:
            header = ["n", "K", "ours", *peers_of(work, results.many)]
            rows = []
            for n in results.sizes:
                for K in results.labels:
                    rows.append(results.line(work, n, K, results.many))
            title = f"{TITLES[work]}; all {results.many} cores, wall time"
            texts.append(markdown(title, header, rows))
    texts.append(
        markdown("The floor, and the work that stands on it", *floor_rows(results))
    )
    texts.append(
        markdown("Exponents: time grows like size^e, one core", *exponent_rows(results))
    )
    return "\n".join(texts)


def floor_rows(results: Results) -> tuple[list[str], list[list[str]]]:
    """Sorting, copying and decoding, and ours in multiples of them."""
    header = ["n", "K", "np.sort", "copy", "Parquet", "thresholds / sort"]
    rows = []
    for n in results.sizes:
        for K in results.labels:
            sort = results.row("floor", "sort", n, K)
            found = results.row("cfhelpers", "thresholds", n, K)
            cells = [f"{n:,}", str(K), milliseconds(sort, "processor")]
            for work in FLOOR[1:]:
                cells.append(milliseconds(results.row("floor", work, n, K), "processor"))
            cells.append(ratio_text(sort, found, "processor"))
            rows.append(cells)
    return header, rows


def exponent_rows(results: Results) -> tuple[list[str], list[list[str]]]:
    """In n and K for every work; in groups and values of c for the thresholds."""
    middle_n = results.sizes[len(results.sizes) // 2]
    middle_K = results.labels[len(results.labels) // 2]
    header = ["work", f"n, at K = {middle_K}", f"K, at n = {middle_n:,}"]
    header += ["groups", "values of c"]
    rows = []
    for work in TITLES:
        in_n = results.exponent(work, "n", {"K": middle_K})
        in_K = results.exponent(work, "K", {"n": middle_n})
        rows.append([work, in_n, in_K, "", ""])
        if work == "thresholds" and "size" in results.table:
            rows[-1][3] = results.exponent("groups", "size", {})
            rows[-1][4] = results.exponent("values of c", "size", {})
    return header, rows


def speed_table(results: Results) -> str:
    """The README's table: six labels, the two larger sizes."""
    K = results.labels[len(results.labels) // 2]
    header = ["one core", "n", "ours", *PEERS]
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    for work, title in TITLES.items():
        for n in results.sizes[-2:]:
            ours = results.row("cfhelpers", work, n, K)
            cells = [title, f"{n:,}", milliseconds(ours, "processor")]
            for library in PEERS:
                theirs = results.row(library, THEIR_WORK.get(work, work), n, K)
                cells.append(ratio_text(ours, theirs, "processor"))
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def with_speed(readme: str, table: str) -> str:
    """The README with this table between its marks."""
    before, found, rest = readme.partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not found or not end:
        raise ValueError(f"README.md: found no {MARKS[0]} … {MARKS[1]}")
    return f"{before}{MARKS[0]}\n{table}\n{MARKS[1]}{after}"


def draw(results: Results, file: Path) -> None:
    """Time against n, a panel for each work, with the floor in grey."""
    from matplotlib.figure import Figure

    K = results.labels[len(results.labels) // 2]
    figure = Figure(figsize=(11, 6.4), layout="constrained")
    axes = figure.subplots(2, 3, sharex=True).ravel()
    colours = dict(zip(PEERS, ("C1", "C2", "C3", "C4", "C5", "C6"), strict=True))
    for ax, (work, title) in zip(axes[:5], list(TITLES.items())[:5], strict=True):
        for name, style in (("sort", ":"), ("copy", "--"), ("Parquet", "-.")):
            line(
                ax,
                results,
                "floor",
                name,
                K,
                color="0.6",
                ls=style,
                label=f"floor: {name}",
            )
        for library in peers_of(work):
            line(ax, results, library, work, K, color=colours[library], label=library)
        line(ax, results, "cfhelpers", work, K, color="C0", lw=2.5, label="cfhelpers")
        ax.set(xscale="log", yscale="log", title=title.split(" (")[0])
        ax.title.set_fontsize(10)
        ax.grid(alpha=0.3)
    for ax in axes[2:5]:
        ax.set_xlabel("points n")
        ax.tick_params(labelbottom=True)
    axes[0].set_ylabel("seconds of processor time")
    axes[3].set_ylabel("seconds of processor time")
    handles = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles[label] = handle
    axes[5].axis("off")
    axes[5].legend(handles.values(), handles.keys(), loc="center", frameon=False)
    figure.suptitle(
        f"One core, {K} labels, nine groups. A line ends where a run was ended"
    )
    figure.savefig(file, dpi=110)


def line(
    ax: Any, results: Results, library: str, work: str, K: int, **style: Any
) -> None:
    """One library's times of one work."""
    sizes = []
    times = []
    for n in results.sizes:
        row = results.row(library, work, n, K)
        if row is not None and row["status"] == "ok":
            sizes.append(n)
            times.append(row["processor"])
    if sizes:
        ax.plot(sizes, times, marker="o", ms=4, **style)


def write_report(table: pd.DataFrame, folder: Path, readme: Path | None) -> None:
    """Tables and picture from the measured rows."""
    results = Results(table)
    with paths.atomic_write(folder / "peers.md") as partial:
        partial.write_text(report(results), encoding="utf-8")
    draw(results, folder / "peers.png")
    if readme is not None:
        text = with_speed(readme.read_text(encoding="utf-8"), speed_table(results))
        with paths.atomic_write(readme) as partial:
            partial.write_text(text, encoding="utf-8")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="points")
    parser.add_argument("--labels", type=int, nargs="+", default=LABELS)
    parser.add_argument("--libraries", nargs="+", choices=WORKS, default=list(WORKS))
    parser.add_argument("--limit", type=float, default=300, help="processor seconds")
    parser.add_argument("--most-scores", type=int, default=10**9, help="no larger table")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="libraries at the same time"
    )
    parser.add_argument("--gigabytes", type=float, default=8, help="memory of a process")
    parser.add_argument("--scaling", type=int, nargs=2, default=(200_000, 6))
    parser.add_argument("--folder", type=Path, help="write there, not to the repository")
    parser.add_argument("--again", action="store_true", help="drop the rows there are")
    parser.add_argument("--quick", action="store_true", help="a size that takes seconds")
    parser.add_argument(
        "--report", action="store_true", help="from the rows that are kept"
    )
    options = parser.parse_args(arguments)
    if options.quick:
        options.sizes = (500,)
        options.labels = (3,)
        options.scaling = (500, 3)
        options.limit = min(options.limit, 60)
    target = options.folder or HERE
    readme = README if options.folder is None else None
    if not options.report:
        kept = Kept(target / "peers.csv", options.limit, options.again)
        with tempfile.TemporaryDirectory() as folder:
            run_all(options, Path(folder), kept)
    write_report(pd.read_csv(target / "peers.csv"), target, readme)


if __name__ == "__main__":
    main()

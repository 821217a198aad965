"""Thresholds from 100 million rows: processor time, memory, and how both grow.

Parquet files are simulated once. Every measurement runs in a process of its own. Times
are processor times (user and system, of all processes for Ray), so that a busy machine
matters little; memory is the largest sum over all processes, shared pages counted once.
With the option `--write` the tables are kept in benchmarks/scale.md.

With `--folder` the files and what was measured stay there, and a call with the same
options goes on where another was stopped; without it everything is removed at the end.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from run import markdown

from cfhelpers import paths, scale

N_CLASSES = 4
SHARES = [0.70, 0.10, 0.06, 0.05, 0.04, 0.02, 0.015, 0.01, 0.005]
PROBABILITIES = [f"p_{label}" for label in range(N_CLASSES)]
ROWS_AT_ONCE = 1 << 16
N_BINS = 1024
LIMIT = 1.5  # processor time over that of the floor
THREADS_GB = 1.5
RAY_GB = 3.0
LINEAR = 0.15
N_CELLS = 2 * len(SHARES) * (N_BINS + 1)
READY_CELLS = np.random.default_rng(0).integers(0, N_CELLS, ROWS_AT_ONCE)
SECONDS_BETWEEN_LOOKS = 0.5  # at the memory
START = 2  # files that are counted by themselves, to know what a start costs
WARM = 10  # files that are counted before: compiled code, memory, Ray and its workers
TRIES = (3, 2)  # of a tenth of the files, and of all; the least time counts
FLOORS = ("plain floor", "floor", "coded floor")
SEARCHES = ("threads", "threads, APS", "threads, paper's rule", "ray")
WAYS = (*FLOORS, *SEARCHES)


def write_file(path: Path, n: int, seed: int) -> None:
    """Simulated predictions of nine unequal groups, as a model in float32 gives them."""
    rng = np.random.default_rng(seed)
    odds = np.exp(1.5 * rng.standard_normal((n, N_CLASSES), np.float32))
    probs = odds / odds.sum(axis=1, keepdims=True)
    y = (rng.random((n, 1), np.float32) > probs.cumsum(axis=1)).sum(axis=1)
    codes = pa.array(rng.choice(len(SHARES), n, p=SHARES).astype(np.int8))
    names = pa.array([f"group {i}" for i in range(len(SHARES))])
    columns = {name: probs[:, i] for i, name in enumerate(PROBABILITIES)}
    columns["label"] = y.clip(max=N_CLASSES - 1).astype(np.int8)
    columns["group"] = pa.DictionaryArray.from_arrays(codes, names).cast(pa.string())
    pq.write_table(pa.table(columns), path)


def floor(
    files: list[Path], texts: list[str], count: Callable[[pa.RecordBatch], None]
) -> None:
    """Decode the files, and one bincount per label: the least that counting can take."""
    for file in files:
        with pq.ParquetFile(file, memory_map=True, read_dictionary=texts) as parquet:
            for batch in parquet.iter_batches(ROWS_AT_ONCE, use_threads=False):
                count(batch)


def count_ready_cells(batch: pa.RecordBatch) -> None:
    """One bincount per label of cells that nobody had to find: random ones."""
    for _ in PROBABILITIES:
        np.bincount(READY_CELLS[: batch.num_rows], minlength=N_CELLS)


def count_batch(batch: pa.RecordBatch) -> None:
    """Even bins of TPS by one multiplication, which is coarser than a grid can be."""
    column = batch.column("group")
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    group = column.indices.to_numpy().astype(np.int64)
    y = batch.column("label").to_numpy()
    for label, name in enumerate(PROBABILITIES):
        place = ((1 - batch.column(name).to_numpy()) * N_BINS).astype(np.int64)
        cell = 2 * group + (y != label)
        np.bincount(cell * (N_BINS + 1) + place, minlength=N_CELLS)


def work_of(way: str) -> Callable[[list[Path], str], None]:
    """What is measured: a function of files and the folder that keeps counts."""
    if way == "plain floor":
        return lambda files, _: floor(files, [], count_ready_cells)
    if way == "floor":
        return lambda files, _: floor(files, [], count_batch)
    if way == "coded floor":
        return lambda files, _: floor(files, ["group"], count_batch)
    options = {"guarantee": "fixed-sequence", "score": "tps", "executor": None}
    if way.endswith("APS"):
        options["score"] = "aps"
    if way.endswith("rule"):
        options["guarantee"] = "none"
    if way == "ray":
        options["executor"] = "ray"

    def find(files: list[Path], folder: str) -> None:
        scale.find_threshold_at_scale(
            files, metric="equal_opportunity", folder=folder, progress=False, **options
        )

    return find


def processor_time() -> float:
    """Seconds of this process, of those it started, and of those that ended since."""
    total = 0.0
    me = psutil.Process()
    for process in [me, *me.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
        total += times.children_user + times.children_system
    return total


def measure(way: str, files: list[Path]) -> None:
    """In a process of its own: seconds of a first call and of one that resumes.

    Of two files before, too: what a call costs however few files there are. Ten files go
    before everything, so that the code is compiled and the memory has been touched.
    """
    work = work_of(way)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        calls = [("first", files, "kept")]
        work(files[:WARM], f"{folder}/warm")
        if "floor" not in way:
            calls.insert(0, ("first of two", files[:START], "two"))
            calls.insert(1, ("again of two", files[:START], "two"))
            calls.append(("again", files, "kept"))
        for name, some, kept in calls:
            start = processor_time()
            work(some, f"{folder}/{kept}")
            found[name] = processor_time() - start
    print(json.dumps(found))


def memory_of(process: psutil.Process) -> float:
    """Gigabytes of a process and those it started; shared pages count once."""
    total = 0
    for one in [process, *process.children(recursive=True)]:
        try:
            total += one.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return total / 1e9


def measured(way: str, files: list[Path]) -> dict[str, float]:
    """Seconds and peak memory of one way."""
    command = [sys.executable, __file__, "--measure", way, *map(str, files)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    peak = 0.0
    while child.poll() is None:
        try:
            peak = max(peak, memory_of(psutil.Process(child.pid)))
        except psutil.NoSuchProcess:
            break
        time.sleep(SECONDS_BETWEEN_LOOKS)
    output, _ = child.communicate()
    if child.returncode:
        raise RuntimeError(f"{way}: exit status {child.returncode}")
    return json.loads(output.splitlines()[-1]) | {"memory": peak}


def told(is_met: bool) -> str:
    return "yes" if is_met else "no"


def time_table(found: dict[tuple[str, int], dict[str, float]], rows: int) -> str:
    """Each way beside both floors."""
    base = found["floor", rows]["first"]
    plain = found["plain floor", rows]["first"]

    def line(name: str, seconds: float, has_target: bool = False) -> list[str]:
        cells = [name, f"{seconds:.1f}"]
        for least in (base, plain):
            ratio = seconds / least
            cells.append(f"{ratio:.2f}")
            cells.append(told(ratio <= LIMIT) if has_target else "")
        return cells

    lines = []
    for way in WAYS:
        if (way, rows) not in found:
            continue
        own = found[way, rows]
        lines.append(line(way, own["first"], way == "threads"))
        if way == "threads":
            counting = own["first"] - own["again"]
            lines.append(line("threads, counting alone", counting, has_target=True))
    title = f"Processor time for {rows:,} rows × {N_CLASSES} labels"
    header = ["", "seconds", "over the floor", f"≤ {LIMIT}"]
    header += ["over the plain floor", f"≤ {LIMIT}"]
    return markdown(title, header, lines)


def memory_table(found: dict[tuple[str, int], dict[str, float]], rows: int) -> str:
    """The largest sum over all processes, beside what is allowed."""
    table = []
    for way in SEARCHES:
        limit = RAY_GB if way == "ray" else THREADS_GB
        if (way, rows) not in found:
            continue
        peak = found[way, rows]["memory"]
        table.append([way, f"{peak:.2f}", f"< {limit}", told(peak < limit)])
    header = ["", "peak, GB", "target", "met"]
    return markdown(f"Memory of all processes together, {rows:,} rows", header, table)


def growth_table(
    found: dict[tuple[str, int], dict[str, float]], sizes: list[int], rows_per_file: int
) -> str:
    """Counting alone: the call less the same call when all counts are kept.

    And what is left of it without the first files, which cost the same in both calls.
    """
    table = []
    few, many = sizes
    for way in SEARCHES:
        if (way, many) not in found:
            continue
        seconds = []
        beyond_start = []
        for rows in sizes:
            own = found[way, rows]
            counting = own["first"] - own["again"]
            start = own["first of two"] - own["again of two"]
            seconds.append(counting)
            beyond_start.append((counting - start) / (rows - START * rows_per_file))
        growth = seconds[1] / seconds[0] / (many / few)
        without_start = beyond_start[1] / beyond_start[0]
        is_met = abs(without_start - 1) <= LINEAR
        again = found[way, many]["again"]
        cells = [way, f"{seconds[0]:.2f}", f"{seconds[1]:.1f}", f"{growth:.2f}"]
        cells += [f"{without_start:.2f}", f"1 ± {LINEAR}", told(is_met), f"{again:.1f}"]
        table.append(cells)
    header = ["", f"{few:,} rows, s", f"{many:,} rows, s", "growth over rows' growth"]
    header += ["beyond the first two files", "target", "met"]
    header += ["the search from kept counts, s"]
    return markdown("Counting, processor time, and its growth", header, table)


def measure_all(
    options: argparse.Namespace, folder: Path
) -> tuple[dict[tuple[str, int], dict[str, float]], float]:
    """What each way took for a tenth of the files and for all, and their gigabytes.

    Files and measurements that are in the folder already are used as they are.
    """
    files = [folder / f"rows{options.rows}-{i:04d}.parquet" for i in range(options.files)]
    for seed, file in enumerate(files):
        if not file.exists():
            with paths.atomic_write(file) as partial:
                write_file(partial, options.rows, seed)
    size = sum(file.stat().st_size for file in files) / 1e9
    kept = folder / f"measured-{options.files}x{options.rows}.jsonl"
    found = {}
    if kept.exists():
        for line in kept.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            found[row.pop("way"), row.pop("rows")] = row
    sizes = (max(START + 1, options.files // 10), options.files)
    for n_files, n_tries in zip(sizes, TRIES, strict=True):
        rows = n_files * options.rows
        for way in options.only:
            if (way, rows) in found:
                continue
            tries = [measured(way, files[:n_files]) for _ in range(n_tries)]
            own = {name: min(one[name] for one in tries) for name in tries[0]}
            own["memory"] = max(one["memory"] for one in tries)
            found[way, rows] = own
            with kept.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"way": way, "rows": rows, **own}) + "\n")
            print(f"{rows:,} rows, {way}: {own}", flush=True)
    return found, size


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="keep benchmarks/scale.md")
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--rows", type=int, default=1_000_000, help="per file")
    parser.add_argument("--folder", type=Path, help="where files and results are kept")
    parser.add_argument("--only", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measure:
        way, *names = options.measure
        measure(way, [Path(name) for name in names])
        return
    if options.folder is None:
        with tempfile.TemporaryDirectory() as folder:
            found, size = measure_all(options, Path(folder))
    else:
        options.folder.mkdir(parents=True, exist_ok=True)
        found, size = measure_all(options, options.folder)
    text = report(found, options.files, size)
    print(f"\n{text}")
    if options.write:
        (paths.ROOT / "benchmarks" / "scale.md").write_text(text, encoding="utf-8")


def report(
    found: dict[tuple[str, int], dict[str, float]], n_files: int, gigabytes: float
) -> str:
    """The page with all tables."""
    few, many = sorted({rows for _, rows in found})
    about = (
        f"# Larger than memory\n\nWritten by `benchmarks/scale.py --write`: "
        f"{os.cpu_count()} processors, {platform.machine()}, {n_files} files, "
        f"{gigabytes:.1f} GB, {len(SHARES)} groups, simulated. The least time and the "
        f"largest memory of {TRIES[0]} tries with a tenth of the files, {TRIES[1]} with "
        "all.\n\n"
        "The floor decodes the files as they come, finds even bins and counts them by "
        "`np.bincount`, once per label. The plain floor does not find the bins: it "
        "counts cells that were made beforehand. The coded floor is the floor, but "
        "reads the groups' names as codes. The others find a threshold for equal "
        "opportunity, with the guarantee unless it says so, and TPS unless it says so.\n"
        "Counting alone is the whole less the search, which works on the counts and "
        "takes the same time however many rows there are. The floors map files into "
        "memory. Ours reads them, since a mapped file that somebody cuts off ends the "
        "process.\n"
    )
    parts = [about, time_table(found, many), memory_table(found, many)]
    parts.append(growth_table(found, [few, many], many // n_files))
    return "\n".join(parts)


if __name__ == "__main__":
    main()

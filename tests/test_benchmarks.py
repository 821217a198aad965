"""The benchmark beside every peer: it runs, it compares, the README has its results."""

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def peers(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("peers")


@pytest.fixture
def peer_work(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("peer_work")


def small_data(seed=0):
    """Probabilities of three labels, true labels and two groups."""
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.ones(3), 400).astype(np.float32)
    return probs, rng.integers(0, 3, 400), rng.integers(0, 2, 400)


def test_readme_and_tables_are_made_from_the_measured_rows(peers):
    results = peers.Results(pd.read_csv(BENCHMARKS / "peers.csv"))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert peers.with_speed(readme, peers.speed_table(results)) == readme
    written = (BENCHMARKS / "peers.md").read_text(encoding="utf-8")
    assert peers.report(results) == written


def test_a_readme_without_marks_is_refused(peers):
    with pytest.raises(ValueError, match="found no <!-- speed"):
        peers.with_speed("# A page", "| a |")


def test_a_peer_that_was_ended_is_told_by_its_limit(peers):
    ours = pd.Series({"status": "ok", "processor": 0.01})
    ended = pd.Series({"status": "time", "limit": 300.0})
    slower = pd.Series({"status": "ok", "processor": 0.05})
    assert peers.ratio_text(ours, ended, "processor") == "> 30,000×"
    assert peers.ratio_text(ours, slower, "processor") == "5.0×"
    assert peers.ratio_text(ours, None, "processor") == "–"


def test_a_wall_time_on_a_busy_machine_is_not_compared(peers):
    free = pd.Series({"status": "ok", "wall": 1.0, "processor": 1.0})
    waited = pd.Series({"status": "ok", "wall": 30.0, "processor": 1.0})
    assert peers.ratio_text(free, waited, "wall") == "busy"
    assert peers.milliseconds(waited, "wall") == "busy"
    assert peers.ratio_text(free, waited, "processor") == "1.0×"


def test_an_exponent_is_the_slope_on_logarithmic_axes(peers):
    n = np.array([10, 100, 1000])
    table = pd.DataFrame({"n": n, "K": 4, "processor": 1e-6 * n**1.5, "work": "sort"})
    table = table.assign(library="cfhelpers", cores=1)
    assert peers.Results(table).exponent("sort", "n", {"K": 4}) == "1.50"


@pytest.mark.parametrize("work", ["TPS sets", "APS sets", "RAPS sets"])
def test_sets_that_differ_from_ours_are_noticed(peer_work, work):
    data = small_data()
    threshold, sets = peer_work.our_sets(data, work)
    values = peer_work.our_scores(data[0], work, None)
    assert peer_work.compare_sets(values, (threshold, sets), (threshold, sets)) == ""
    wrong = sets.copy()
    wrong[0, np.abs(values[0] - threshold).argmax()] ^= True
    found = peer_work.compare_sets(values, (threshold, sets), (threshold, wrong))
    assert "1 entries" in found
    shifted = (threshold + 0.01, sets)
    assert "quantile" in peer_work.compare_sets(values, (threshold, sets), shifted)


def test_the_authors_grid_with_every_candidate_is_our_exact_answer(peer_work):
    peer_work.forget()
    assert peer_work.check("the authors' grid", "thresholds", small_data()) == ""


def kept_row(**changes):
    """A row as the file has it."""
    row = {"library": "puncc", "cores": 1, "n": 500, "K": 3, "work": "TPS sets"}
    return row | {"status": "ok", "processor": 0.1, "limit": 60, "jobs": 1} | changes


def test_a_row_is_in_the_file_at_once_and_is_read_again(peers, tmp_path):
    kept = peers.Kept(tmp_path / "peers.csv", limit=60)
    for n in (500, 600):
        kept.add(kept_row(n=n))
        assert len(pd.read_csv(kept.file)) == len(kept.rows)
    again = peers.Kept(kept.file, limit=60)
    assert [row["n"] for row in again.of("puncc", 1)] == [500, 600]
    assert again.of("puncc", 2) == again.of("crepes", 1) == []
    assert peers.Kept(kept.file, limit=60, is_anew=True).rows == []


def test_what_a_lower_limit_ended_and_what_was_absent_is_measured_again(peers, tmp_path):
    kept = peers.Kept(tmp_path / "peers.csv", limit=60)
    for n, status in enumerate(["ok", "time", "not tried", "absent", "memory"]):
        kept.add(kept_row(n=n, status=status))
    assert [row["n"] for row in peers.Kept(kept.file, limit=60).rows] == [0, 1, 2, 4]
    assert [row["n"] for row in peers.Kept(kept.file, limit=300).rows] == [0, 4]


def test_only_what_has_no_row_is_measured(peers, tmp_path, monkeypatch):
    kept = peers.Kept(tmp_path / "peers.csv", limit=60)
    kept.add(kept_row(n=500))
    kept.add(kept_row(n=500, work="APS sets", status="time"))
    asked = []

    def measure_first(order, keep):
        """One item is measured in each process, and the second of them is ended."""
        asked.append(order["items"])
        item = dict(zip(("n", "K", "work"), order["items"][0], strict=True))
        if len(asked) == 2:
            return item | {"status": "time"}
        keep(item | {"status": "ok"})
        return None if len(asked) == 3 else {**item, "work": "other", "status": "failed"}

    monkeypatch.setattr(peers, "run_process", measure_first)
    monkeypatch.setitem(peers.MODULES, "puncc", "numpy")
    works = ("TPS sets", "APS sets", "RAPS sets")
    items = [(n, 3, work) for n in (500, 600) for work in works]
    order = {"cores": 1, "limit": 60, "jobs": 1}
    peers.run_library("puncc", items, order, kept)
    assert asked == [[items[2], items[3], items[5]], [items[3], items[5]], [items[5]]]
    status = {(row["n"], row["work"]): row["status"] for row in kept.rows}
    assert status[600, "APS sets"] == "not tried"  # it was ended at 500
    assert status[600, "TPS sets"] == "time"
    n_asked = len(asked)
    peers.run_library("puncc", items, order, kept)
    assert len(asked) == n_asked


def test_the_last_row_of_several_says_that_scaling_is_measured(peers):
    item = (500, 3, "scaling")
    rows = [kept_row(work="values of c", size=size) for size in (1, 10)]
    assert not peers.is_measured(item, rows)
    assert peers.is_measured(item, [*rows, kept_row(work="values of c", size=100)])
    assert peers.is_measured(item, [*rows, kept_row(work="scaling", status="failed")])


def test_a_long_work_is_tried_once_and_a_short_one_often(peer_work):
    assert peer_work.wants_another_try(0, 0.0) and peer_work.wants_another_try(2, 19.0)
    assert not peer_work.wants_another_try(1, 21.0)
    assert not peer_work.wants_another_try(3, 0.6)
    assert peer_work.wants_another_try(24, 0.4)
    assert not peer_work.wants_another_try(25, 0.4)


def test_unfinished_lines_are_read_when_they_are_whole(peers, tmp_path):
    said = tmp_path / "said.jsonl"
    kept = []
    said.write_text('{"status": "started"}\n{"status": "ok", "n": 1}\n{"status": "o')
    n_lines = peers.keep_finished(said, 0, kept.append)
    with said.open("a") as file:
        file.write('k", "n": 2}\n')
    assert n_lines == 2 and peers.keep_finished(said, n_lines, kept.append) == 3
    assert [row["n"] for row in kept] == [1, 2]


@pytest.mark.stress
def test_the_benchmark_runs_at_a_tiny_size(tmp_path):
    command = [sys.executable, BENCHMARKS / "peers.py", "--quick", "--folder", tmp_path]
    subprocess.run(command, check=True, capture_output=True)
    table = pd.read_csv(tmp_path / "peers.csv")
    assert set(table["status"]) <= {"ok", "absent"}
    ours = table[table["library"].isin(["cfhelpers", "floor", "the authors' grid"])]
    assert set(ours["status"]) == {"ok"} and (ours["processor"] > 0).all()
    assert {"audit", "groups", "values of c", "Parquet"} <= set(ours["work"])
    assert (tmp_path / "peers.png").stat().st_size > 10_000
    assert "| 500 | 3 |" in (tmp_path / "peers.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_what_takes_too_long_is_ended_and_not_tried_at_a_larger_size(tmp_path):
    command = [sys.executable, BENCHMARKS / "peers.py", "--folder", tmp_path]
    command += ["--sizes", "500", "600", "--labels", "3", "--limit", "0.01"]
    command += ["--libraries", "the authors' grid"]
    subprocess.run(command, check=True, capture_output=True)
    table = pd.read_csv(tmp_path / "peers.csv")
    assert table["status"].tolist() == ["time", "not tried"]

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

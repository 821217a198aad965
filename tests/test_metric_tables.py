"""Tab 1 and Tab A1: made from the metrics, and as notebook 02 prints them."""

import re

import nbformat

from cfhelpers.metrics import LABEL_METRICS
from cfhelpers.study import metric_tables


def cells_of(text):
    """The table's cells, row by row, without padding."""
    rows = []
    for line in text.splitlines():
        if line.startswith("|") and not re.fullmatch(r"[|\s-]+", line):
            rows.append([cell.strip() for cell in line.strip().strip("|").split("|")])
    return rows


def test_notebook_02_prints_the_definitions_of_the_metrics(root):
    path = root / "notebooks" / "02_fairness_as_coverage.ipynb"
    notebook = nbformat.read(path, as_version=4)
    printed = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and "(Tab A1)" in cell.source:
            printed = cells_of(cell.source)
    assert printed == cells_of(metric_tables.side_by_side())
    assert len(printed) == 1 + len(LABEL_METRICS)


def test_equalized_odds_names_both_conditions():
    text = metric_tables.for_sets().loc["equalized odds", "definition"]
    assert "Y = " in text and r"Y \ne " in text


def test_tables_in_results_are_those_of_the_metrics(root, tmp_path, monkeypatch):
    monkeypatch.setattr("cfhelpers.paths.RESULTS", tmp_path)
    metric_tables.save()
    made = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert {path.stem for path in made} == {"tab1_metrics", "taba1_metric_definitions"}
    for path in made:
        stored = root / "results" / path.relative_to(tmp_path)
        assert path.read_text() == stored.read_text()

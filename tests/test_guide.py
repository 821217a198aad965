"""The user guide: its examples run, and the numbers it states are the code's."""

import contextlib
import io
import re
import shlex
import warnings

import numpy as np
import pytest
from audit_files import incomes

from cfhelpers import FairConformalClassifier, conformal, fairness, load_dataset
from cfhelpers.auditing import command
from cfhelpers.control import find_threshold
from cfhelpers.datasets import credit_probabilities


@pytest.fixture(scope="module")
def guide(root):
    return (root / "docs" / "guide.md").read_text(encoding="utf-8")


def test_examples_run_and_print(guide):
    blocks = re.findall(r"```python\n(.*?)```", guide, flags=re.DOTALL)
    assert len(blocks) >= 2
    for block in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block, "guide.md", "exec"), {})
        assert len(printed.getvalue().split()) > 3


def test_commands_of_the_audit_run_on_one_file(guide, tmp_path, monkeypatch, capsys):
    pytest.importorskip("jinja2", reason="the page needs the extra report")
    incomes(600).rename(columns={"income": "outcome"}).to_csv(
        tmp_path / "my.csv", index=False
    )
    monkeypatch.chdir(tmp_path)
    lines = re.sub(r"\\\n +", "", guide)
    commands = re.findall(
        r"^    cfhelpers (audit my\.csv .+)$", lines, flags=re.MULTILINE
    )
    assert len(commands) == 3
    statuses = [command.main(shlex.split(line)) for line in commands]
    assert statuses == [command.DONE, command.GATE_SAYS_NO, command.DONE]
    assert capsys.readouterr().err == ""
    written = {"report.html", "report.json", "report_tables", "audit.json", "fix.json"}
    assert {each.name for each in tmp_path.iterdir()} == written | {"my.csv"}


def stated_sizes(guide):
    rows = re.findall(r"\| `(\w+)` \| (?:yes|no) \| ([^|]+) \|", guide)
    return {metric: size.strip() for metric, size in rows}


def test_every_metric_has_a_row(guide):
    assert set(stated_sizes(guide)) == set(fairness.METRICS) - {"set_size", "singletons"}


def test_prices_on_credit_are_those_of_the_default_classifier(guide):
    data = load_dataset("credit")
    probabilities, parts = credit_probabilities()
    calibration = parts == "calibration"
    for metric, stated in stated_sizes(guide).items():
        fair = FairConformalClassifier(metric=metric, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # predictive parity: no threshold passes
            fair.fit(
                probabilities[calibration], data.y[calibration], data.groups[calibration]
            )
        sets = fair.predict_set(probabilities[parts == "test"])
        if fair.result_.satisfied:
            assert stated == f"{conformal.efficiency(sets):.2f}"
        else:
            assert stated == "can be impossible"


def test_the_base_predictor_has_the_stated_size(guide):
    data = load_dataset("credit")
    probabilities, parts = credit_probabilities()
    calibration = parts == "calibration"
    true_scores = 1 - probabilities[calibration, data.y[calibration]]
    threshold = conformal.conformal_quantile(true_scores, 0.1)
    sets = conformal.prediction_sets(1 - probabilities[parts == "test"], threshold)
    assert (
        f"The predictor that looks at no group has {conformal.efficiency(sets):.2f}"
        in (" ".join(guide.split()))
    )


def test_sizes_of_mondrian_sets_on_credit_are_those_of_the_summary(guide):
    data = load_dataset("credit")
    probabilities, parts = credit_probabilities()
    rows = parts == "calibration"
    by_group = FairConformalClassifier(per_group=True, random_state=0)
    by_group.fit(probabilities[rows], data.y[rows], data.groups[rows])
    sizes = by_group.summary_["mean set size"]
    stated = f"Mondrian sets have {sizes.iloc[0]:.2f} labels, and the fair ones "
    stated += f"without groups {sizes.iloc[1]:.2f}"
    assert stated in " ".join(guide.split())


def test_points_needed_are_the_least_with_which_a_finite_threshold_passes(guide):
    closeness = re.search(r"\| closeness \| (.*) \|", guide)[1].split(" | ")
    points = re.search(r"\| points per cell, one threshold \| (.*) \|", guide)[1].split(
        " | "
    )
    for c, n in zip(map(float, closeness), map(int, points), strict=True):
        assert np.isfinite(threshold_of_covered_cells(n, c))
        assert np.isinf(threshold_of_covered_cells(n - 1, c))


def threshold_of_covered_cells(n, closeness):
    """The threshold for two groups of n people of one label, all with a score of 0."""
    scores = np.zeros((2 * n, 2))
    y = np.ones(2 * n, int)
    groups = np.repeat(["a", "b"], n)
    found = find_threshold(
        scores, y, groups, "equal_opportunity", closeness, guarantee="fixed-sequence"
    )
    return found.threshold[1]

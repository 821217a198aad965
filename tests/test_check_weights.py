"""A part of what tools/check_weights.py counts, and the numbers that the guide states."""

import re
import sys
from pathlib import Path

import pytest
from scipy.stats import binom

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

import check_weights

DRAWS = 600  # as the guide's numbers were counted


@pytest.fixture(scope="module")
def survey():
    found = {}
    for n in (50, 200, 1000, 5000):
        for share in (0.5, 0.9, 0.97):
            for depends in (0.0, 0.7):
                setting = (n, share, depends)
                found[setting] = check_weights.survey_coverage(DRAWS, *setting, 0)
    return found


def test_survey_intervals_hold_as_often_as_the_guide_says(root, survey):
    text = " ".join((root / "docs" / "guide.md").read_text(encoding="utf-8").split())
    pattern = (
        r"in (\d+)% to (\d+)% of surveys where coverage does not depend on the weight, "
        r"and in (\d+)% to (\d+)% where it does"
    )
    stated = [int(number) for number in re.search(pattern, text).groups()]
    found = []
    for depends in (0.0, 0.7):
        held = [values[0] for key, values in survey.items() if key[2] == depends]
        found += [round(100 * min(held)), round(100 * max(held))]
    assert found == stated
    worst = max(
        values[1] for (n, _, depends), values in survey.items() if n >= 1000 and depends
    )
    assert (
        f"intervals that ignore the weights then held it in at most {100 * worst:.0f}%"
        in (text)
    )


def test_thinned_guarantee_holds_in_the_target_where_it_is_hardest():
    n_draws = 60
    failed = check_weights.shifted_failures(n_draws, 1500, seed=1)
    # A test that errs in a tenth of draws gives more than this in 1 of 10⁶ runs.
    assert failed["thinned"] * n_draws <= binom.ppf(
        1 - 1e-6, n_draws, check_weights.DELTA
    )
    assert failed["without weights"] > 0.8


def test_weighted_quantile_covers_the_target_and_the_plain_one_does_not():
    reached = check_weights.shifted_coverage(200, 500, seed=1)
    assert abs(reached["weighted quantile"] - 0.9) < 0.01
    assert reached["quantile without weights"] < 0.8

"""The tables in results/beyond: weights, dollars, sizes, one threshold per group."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from cfhelpers.weights import thin

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

import acs_beyond

# Where one threshold per group and label has larger sets than the guarantee.
SMALL_OR_FAIR_AT_ONCE = {"Credit, by age", "ACS income 2024, by sex"}


@pytest.fixture
def vermont(shared, monkeypatch):
    if not (shared / "data" / "acs" / "pums2024").is_dir():
        pytest.skip("the person records of ACS 2024 are not here")
    monkeypatch.setenv("CFHELPERS_DATA", str(shared / "data"))
    return acs_beyond.survey("sex", ("VT",))


def test_every_worker_has_a_survey_weight(vermont):
    data, weights = vermont
    assert len(weights) == len(data.y)
    assert weights.min() >= 1
    assert weights.max() <= acs_beyond.BOUND
    assert len(np.unique(weights)) > 100


def test_thinning_keeps_the_share_of_workers_that_their_weights_say(vermont):
    _, weights = vermont
    n = len(weights)
    n_kept = thin(weights, acs_beyond.BOUND, seed=0).sum()
    share = weights.mean() / acs_beyond.BOUND
    # Points with different chances vary less than a binomial with their mean.
    assert binom.ppf(5e-7, n, share) <= n_kept <= binom.ppf(1 - 5e-7, n, share)


def test_table_of_verdicts_has_survey_and_country_side_by_side(root):
    table = pd.read_csv(root / "results" / "beyond" / "acs_weights.csv")
    assert set(table["grouped by"]) == {"race", "sex"}
    assert set(table["metric"]) == set(acs_beyond.METRICS)
    verdicts = {"within", "beyond", "cannot tell"}
    assert set(table["survey: verdict"]) | set(table["country: verdict"]) <= verdicts
    assert (table["country: people"] < table["survey: people"]).all()
    assert (table["points kept"] < acs_beyond.N_CALIBRATION).all()
    assert (table["cost"] > 1).all()


def test_credit_s_rows_of_one_threshold_per_group_are_those_of_a_fresh_run(root):
    stored = pd.read_csv(root / "results" / "beyond" / "mondrian.csv")
    fresh = pd.DataFrame(acs_beyond.mondrian_rows(acs_beyond.credit_scored()))
    stored = stored[stored["data"] == fresh["data"][0]].reset_index(drop=True)
    pd.testing.assert_frame_equal(stored, fresh, atol=6e-5, rtol=0)


def test_the_guide_s_table_of_four_predictors_is_the_stored_one(root):
    guide = (root / "docs" / "guide.md").read_text(encoding="utf-8")
    table = pd.read_csv(root / "results" / "beyond" / "mondrian.csv")
    is_total = table["group"] == acs_beyond.EVERYONE
    groups = table[~is_total].groupby(["data", "predictor"])
    lowest = groups["lowest coverage of a label"].min()
    assert is_total.sum() == 12
    for _, row in table[is_total].iterrows():
        asks = "yes" if row["asks for the group"] else "no"
        stated = f"{row['mean set size']:.2f} | {row['gap']:.3f}"
        low = lowest[row["data"], row["predictor"]]
        line = f"| {row['data']} | {row['predictor']} | {asks} | {stated} | {low:.2f} |"
        assert line in guide


def test_what_the_guide_says_of_one_threshold_per_group(root):
    table = pd.read_csv(root / "results" / "beyond" / "mondrian.csv")
    table = table[table["group"] == acs_beyond.EVERYONE]
    for name, rows in table.groupby("data"):
        sizes = rows.set_index("predictor")["mean set size"]
        own = sizes["one threshold per group and label (Mondrian)"]
        assert (own > sizes["guarantee"]) == (name in SMALL_OR_FAIR_AT_ONCE)
    gaps = table.set_index(["data", "predictor"])["gap"]
    assert gaps["ACS income 2024, by sex", "one threshold for everyone"] < 0.1
    by_group = "one threshold per group and label (Mondrian)"
    assert gaps["ACS income 2024, by race", by_group] > 0.1


def test_equal_coverage_and_equal_size_pull_apart(root):
    table = pd.read_csv(root / "results" / "beyond" / "acs_sizes.csv")
    by_sex = table[table["data"] == "ACS income 2024, by sex"]
    along = by_sex[by_sex["asked for"] == "along the threshold"]
    few = along[along["mean set size"] < 2.4]
    assert few["gap in coverage"].is_monotonic_decreasing
    assert few["gap in size"].iloc[-1] > 3 * few["gap in size"].iloc[0]
    asked = by_sex.set_index(["asked for", "rule"])
    base = asked.loc[("nothing", "one quantile")]
    for rule in ("none", "fixed-sequence"):
        equal_size = asked.loc[("set_size", rule)]
        assert equal_size["mean set size"] - base["mean set size"] < 0.01
        assert abs(equal_size["gap in coverage"] - base["gap in coverage"]) < 0.01
    by_race = table[table["data"] == "ACS income 2024, by race"]
    asked = by_race.set_index(["asked for", "rule"])
    assert asked.loc[("set_size", "fixed-sequence"), "mean set size"] > 3.8


@pytest.mark.parametrize("people", [100, 3000])
def test_sizes_along_the_threshold_are_counted_plainly(people):
    rng = np.random.default_rng(people)
    groups = rng.choice(["a", "b"], people)
    y = rng.integers(0, 3, people)
    scores = rng.random((people, 3))
    data = acs_beyond.Scored("x", (scores, y, groups), (scores, y, groups))
    row = acs_beyond.size_row(data, "nothing", "", 0.6)
    sizes = (scores <= 0.6).sum(axis=1)
    assert row["mean set size"] == sizes.mean()
    gap = abs(sizes[groups == "a"].mean() - sizes[groups == "b"].mean()) / 3
    assert row["gap in size"] == pytest.approx(gap)


def test_one_quantile_per_group_does_not_make_regions_equal(root):
    table = pd.read_csv(root / "results" / "beyond" / "acs_dollars.csv")
    rich = table[table["regions"] == "[100000]"].set_index("intervals")
    fair = rich.loc["fair without groups"]
    assert fair["gap"] <= 0.05
    assert rich.loc["one threshold per group (Mondrian)", "gap"] > 0.05
    assert fair["mean width"] > rich.loc["one threshold for everyone", "mean width"]

"""The tables of ACS in results/beyond: the sample or the country, income in dollars."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from cfhelpers.weights import thin

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

import acs_beyond


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


def test_one_quantile_per_group_does_not_make_regions_equal(root):
    table = pd.read_csv(root / "results" / "beyond" / "acs_dollars.csv")
    rich = table[table["regions"] == "[100000]"].set_index("intervals")
    fair = rich.loc["fair without groups"]
    assert fair["gap"] <= 0.05
    assert rich.loc["one threshold per group (Mondrian)", "gap"] > 0.05
    assert fair["mean width"] > rich.loc["one threshold for everyone", "mean width"]

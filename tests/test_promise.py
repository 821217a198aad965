"""A twentieth of what tools/check_promise.py counts: the promise, where it is hardest."""

import sys
from pathlib import Path

import pytest
from scipy.special import betaincinv

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

import check_promise

DRAWS = 50


@pytest.mark.slow
@pytest.mark.parametrize("metric", [*check_promise.NAMES, check_promise.RATIO])
@pytest.mark.parametrize("setting", check_promise.SETTINGS, ids=lambda s: s.name)
def test_the_true_gap_is_beyond_c_no_more_often_than_delta(setting, metric):
    for classwise in (False, True):
        beyond, finite = check_promise.share_beyond(setting, metric, classwise, DRAWS, 1)
        lowest = betaincinv(beyond, DRAWS - beyond + 1, 0.001) if beyond else 0.0
        assert lowest <= check_promise.DELTA
        assert finite > DRAWS / 2


def test_a_cliff_catches_a_test_that_promises_less():
    """The paper's rule breaks c far more often there."""
    cliff = check_promise.SETTINGS[2]
    asked = (cliff, "demographic_parity", False, DRAWS, 1)
    beyond, _ = check_promise.share_beyond(*asked, guarantee="none")
    assert beyond / DRAWS > 0.25

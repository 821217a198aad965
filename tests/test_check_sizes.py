"""A part of what tools/check_sizes.py counts: sizes of sets at a cliff."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

import check_sizes

DRAWS = 40
BY_NAME = {setting.name: setting for setting in check_sizes.SETTINGS}


@pytest.mark.parametrize(
    "name", ["size, all or none", "singletons", "both, coverages differ"]
)
def test_sizes_are_beyond_c_no_more_often_than_promised(name):
    setting = BY_NAME[name]
    share = check_sizes.failures(setting, DRAWS, 1500, seed=1)
    assert share <= check_sizes.most(check_sizes.DELTA, DRAWS)
    # The paper's rule, on the same people, shows that the cliff can be missed.
    assert check_sizes.failures(setting, DRAWS, 1500, seed=1, guarantee="none") > 0.1


def test_the_audit_of_sizes_is_seldom_wrong_at_the_edge():
    shares = check_sizes.wrong_verdicts(BY_NAME["singletons"], 20, 1500, seed=1)
    assert max(shares) <= check_sizes.most(check_sizes.GAMMA, 20)

"""The drawings of the guarantee show what the bounds and the walk compute."""

import warnings

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from cfhelpers import plots
from cfhelpers.bounds import clopper_pearson
from cfhelpers.diagrams import guarantee


@pytest.fixture(autouse=True)
def _style():
    plt.close("all")  # figures of other tests
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("error")
        plots.use_style()
        yield
    plt.close("all")


def test_the_titles_count_the_intervals_that_hold_the_coverage():
    counts = stats.binom(200, 0.8).rvs(30, random_state=1)
    fig = guarantee.brackets(counts, 200, 0.8, level=0.05)
    fig.canvas.draw()
    low, high = clopper_pearson(counts, np.full(30, 200), 0.05)
    in_bracket = (counts <= 201 * 0.8) & (counts + 1 >= 201 * 0.8)
    in_interval = (low <= 0.8) & (high >= 0.8)
    left, right = (ax.get_title() for ax in fig.axes)
    assert f"{in_bracket.sum()} of 30" in left
    assert f"{in_interval.sum()} of 30" in right


def test_a_gap_equal_to_c_is_within_c():
    fig = guarantee.again_and_again([0.1, 0.1, 0.2], c=0.1)
    fig.canvas.draw()
    assert [text.get_text() for text in fig.axes[0].texts] == [
        "67%\nwithin c",
        "33%\nbeyond c",
    ]


@pytest.mark.parametrize("k, n, level", [(50, 60, 0.05), (0, 20, 0.1), (99, 100, 0.01)])
def test_at_the_bound_so_few_have_exactly_the_level(k, n, level):
    fig = guarantee.clopper_pearson_tail(k, n, level)
    fig.canvas.draw()
    shares = [ax.get_title().split("so few in ")[1] for ax in fig.axes]
    assert shares[1] == f"{level:.1%} of draws"
    values = [float(share.split("%")[0]) for share in shares]
    assert values[0] > values[1] > values[2]


def test_the_walk_stops_at_the_first_rejection_and_not_below():
    losses = [0.01, 0.3, 0.05, 0.02]  # at 0.6, which is better, nobody looks
    fig = guarantee.walk_down([0.6, 0.7, 0.8, 0.9], losses, 0.1, 0.5, losses)
    fig.canvas.draw()
    title = fig.axes[0].get_title()
    assert title == "Accepted: ∞ and 2 more; rejected: 0.7; never looked at: 1"


def test_the_walk_ends_at_the_quantile():
    losses = [0.3, 0.02, 0.02]
    fig = guarantee.walk_down([0.6, 0.8, 0.9], losses, 0.1, 0.7, losses)
    fig.canvas.draw()
    title = fig.axes[0].get_title()
    assert title == "Accepted: ∞ and 2 more; never looked at: 1"


@pytest.mark.parametrize("p_a", [0.0, 0.5, 0.97, 1.0])
def test_both_areas_are_at_most_delta(p_a):
    fig = guarantee.staircase_steps(150, 40, 0.1, p_a)
    fig.canvas.draw()
    for ax in fig.axes:
        assert float(ax.get_title().split("area ")[1]) <= 0.1


def test_every_group_has_both_sizes():
    sizes = pd.DataFrame({"base": [2.0, 2.5], "fair": [2.9, 3.0]}, index=["x", "y"])
    fig = guarantee.sizes_by_group(sizes, constant=3.0)
    fig.canvas.draw()
    ticks = [tick.get_text() for tick in fig.axes[0].get_yticklabels()]
    assert ticks == ["x", "y"]
    assert fig.axes[0].lines[0].get_xdata().tolist() == [2.0, 2.5]

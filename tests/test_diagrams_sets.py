"""The drawings of sets and metrics show what the functions of the module compute."""

import warnings

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from scipy import stats

from cfhelpers import conformal, fairness, plots, scores
from cfhelpers.diagrams import metrics, sets

NAMES = ["none", "school", "college"]
ROWS = np.array([[0.1, 0.6, 0.3], [0.2, 0.2, 0.6]])


@pytest.fixture(autouse=True)
def _style():
    plt.close("all")  # figures of other tests
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("error")
        plots.use_style()
        yield
    plt.close("all")


def shown(fig):
    """Draws the figure, so that what cannot be drawn fails, and gives its texts."""
    fig.canvas.draw()
    found = []
    for ax in fig.axes:
        found += [text.get_text() for text in ax.texts]
    return found


def test_coloured_bars_are_the_labels_in_the_set():
    fig = sets.client_bars(ROWS, NAMES, ["A", "B"], [1, 0], cut=0.25)
    shown(fig)
    inside = conformal.prediction_sets(scores.tps(ROWS), 0.75)
    for ax, wanted in zip(fig.axes, inside, strict=True):
        colours = [to_hex(bar.get_facecolor()) for bar in ax.patches]
        assert [colour == to_hex(sets.INSIDE) for colour in colours] == wanted.tolist()
    assert fig.axes[1].get_yticklabels()[0].get_text() == "none ★"


def test_without_a_threshold_no_bar_is_coloured():
    fig = sets.client_bars(ROWS, NAMES, ["A", "B"])
    colours = {to_hex(bar.get_facecolor()) for ax in fig.axes for bar in ax.patches}
    assert colours == {to_hex(sets.OUTSIDE)}


@pytest.mark.parametrize("threshold", [0.3, 0.4, 0.7, 0.95, np.inf])
def test_the_set_at_the_right_is_the_set_of_the_module(threshold):
    fig = sets.from_probabilities_to_a_set(ROWS[0], NAMES, min(threshold, 2))
    inside = conformal.prediction_sets(scores.tps(ROWS[:1]), min(threshold, 2))[0]
    marks = [text.get_text().startswith("✓") for text in fig.axes[2].texts]
    assert marks == inside.tolist()


@pytest.mark.parametrize("n, alpha, covered", [(9, 0.2, 8), (9, 0.1, 9), (8, 0.1, 9)])
def test_the_covered_slots_are_those_up_to_the_quantile(n, alpha, covered):
    fig = sets.slots(n, alpha)
    texts = shown(fig)
    colours = [to_hex(slot.get_facecolor()) for slot in fig.axes[0].patches]
    inside = [colour == to_hex(sets.INSIDE) for colour in colours[: n + 1]]
    assert inside == [True] * covered + [False] * (n + 1 - covered)
    assert texts.count(f"1/{n + 1}") == n + 1
    is_infinite = conformal.conformal_quantile(range(n), alpha) == np.inf
    assert any(r"\infty" in text for text in texts) == is_infinite


@pytest.mark.parametrize("u", [0.0, 0.4, 0.9])
def test_the_marks_on_the_stairs_are_the_scores(u):
    fig = sets.aps_stairs(ROWS[0], u, NAMES, threshold=0.8)
    shown(fig)
    marks = fig.axes[0].lines[0].get_ydata()
    wanted = scores.aps(ROWS[:1], [u])[0]
    assert np.allclose(marks, wanted[[1, 2, 0]])
    ticks = [tick.get_text() for tick in fig.axes[0].get_xticklabels()]
    assert ticks == ["school", "college", "none"]
    bars = [bar.get_facecolor()[:3] for bar in fig.axes[0].patches]
    inside = matplotlib.colors.to_rgb(sets.INSIDE)
    assert [color == inside for color in bars] == (marks <= 0.8).tolist()


def test_the_range_beside_the_law_holds_nine_in_ten():
    draws = {n: stats.beta(k, n + 1 - k).rvs(400, random_state=0) for n, k in LAWS}
    fig = sets.beta_laws(0.1, draws)
    for text, (n, k) in zip(shown(fig), LAWS, strict=True):
        low, high = (float(word) for word in text.split() if word.startswith("0."))
        law = stats.beta(k, n + 1 - k)
        assert law.cdf(high) - law.cdf(low) == pytest.approx(0.9, abs=0.03)
    assert len({ax.get_xlim() for ax in fig.axes}) == 1


LAWS = [(100, 91), (1000, 901)]

HAS = np.array([1, 0, 1, 1, 0, 0], dtype=bool)
IS = np.array([1, 1, 0, 1, 1, 0], dtype=bool)
GROUPS = np.array(["a", "a", "a", "b", "b", "b"])


@pytest.mark.parametrize(
    "name", ["demographic_parity", "equal_opportunity", "predictive_equality"]
)
def test_the_shares_above_the_people_are_the_coverages(name):
    fig = metrics.filter_on_people(HAS, IS, GROUPS, [name])
    both = np.column_stack([np.ones(6, dtype=bool), HAS])
    table = fairness.group_coverages(both, IS.astype(int), GROUPS, name)
    for text, row in zip(shown(fig), table.itertuples(), strict=True):
        covered = round(row.n * row.coverage)
        assert text.startswith(f"{row.group}\n{covered} of {row.n} = ")


def test_a_group_without_people_to_look_at_has_a_dash():
    fig = metrics.filter_on_people(HAS, [True] * 6, GROUPS, ["predictive_equality"])
    assert shown(fig) == ["a\n0 of 0 = –", "b\n0 of 0 = –"]


def test_a_metric_with_two_filters_is_refused():
    with pytest.raises(ValueError, match="equalized_odds has several filters"):
        metrics.filter_on_people(HAS, IS, GROUPS, ["equalized_odds"])


def test_the_named_groups_make_the_gap():
    table = pd.DataFrame(
        {
            "label": [1, 1, 1, 2, 2, 2],
            "group": ["x", "y", "z"] * 2,
            "n": [90, 20, 30, 90, 20, 30],
            "coverage": [0.9, 0.5, 0.7, np.nan, 0.2, 0.6],
        }
    )
    fig = metrics.coverage_by_many_groups(table, NAMES, "three groups")
    assert shown(fig) == ["0.50, n = 20", "0.90, n = 90", "0.20, n = 20", "0.60, n = 30"]
    assert [ax.get_title() for ax in fig.axes] == [
        "school: gap .40, from y to x",
        "college: gap .40, from y to z",
    ]
    ticks = [tick.get_text() for tick in fig.axes[0].get_yticklabels()]
    assert ticks == ["x", "z", "y"]  # the largest first


def test_the_filled_area_is_the_coverage_of_the_true_label():
    rng = np.random.default_rng(1)
    inside = rng.random((500, 3)) < [0.2, 0.9, 0.7]
    y = rng.integers(0, 3, 500)
    groups = rng.choice(["a", "b"], 500)
    table = fairness.group_coverages(
        inside, y, groups, "equal_opportunity", positive_labels=range(3)
    )
    fig = metrics.hidden_in_the_average(table, NAMES)
    shown(fig)
    for ax in fig.axes:
        group = ax.get_title()[0]
        filled = ax.patches[3:]  # the first three are the empty strips
        area = sum(bar.get_width() * bar.get_height() for bar in filled)
        mine = groups == group
        assert area == pytest.approx(conformal.coverage(inside[mine], y[mine]))


def test_the_constant_answer_has_no_gap_whatever_the_groups():
    rng = np.random.default_rng(2)
    y = rng.integers(0, 4, 300)
    groups = rng.choice(["a", "b", "c"], 300)
    same = conformal.constant_sets(300, [1, 2, 3], n_classes=4)
    assert conformal.efficiency(same) == 3
    assert conformal.coverage(same, y) == (y != 0).mean()
    for name in ("equal_opportunity", "demographic_parity", "predictive_equality"):
        assert fairness.disparity(same, y, groups, name) == 0


def test_the_constant_answer_refuses_a_label_that_there_is_not():
    with pytest.raises(ValueError, match=r"labels: found 4; .* integers from 0 to 3"):
        conformal.constant_sets(2, [1, 4], n_classes=4)

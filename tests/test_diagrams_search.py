"""The drawings of the search show what the functions of the module compute."""

import warnings

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from cfhelpers import conformal, control, plots
from cfhelpers.diagrams import search


@pytest.fixture(autouse=True)
def _style():
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


def test_the_rows_that_pass_are_coloured_and_say_yes():
    table = pd.DataFrame({"λ": [0.4, 0.5, 0.6], "k": [1, 2, 2], "gap": [0.5, 0.25, 0.5]})
    fig = search.passing_table(table, table["gap"] <= 0.3)
    texts = shown(fig)
    assert texts[:4] == ["λ", "k", "gap", "passes?"]
    assert texts[7::4] == ["no", "yes", "no"]
    (band,) = fig.axes[0].patches
    assert band.get_y() == 1.5
    assert band.get_height() == 1


PIECES = [([0.3, 0.1, 0.3, 0.1], 2), ([0.1, 0.1, 0.3, 0.3], 1), ([0.3, 0.3, 0.3], 0)]


@pytest.mark.parametrize("gaps, pieces", PIECES)
def test_the_title_counts_the_pieces_that_pass(gaps, pieces):
    places = np.linspace(0.8, 0.9, len(gaps))
    fig = search.gap_steps(places, gaps, 0.2, places[-1])
    shown(fig)
    assert f"form {pieces} piece" in fig.axes[0].get_title()


def test_a_single_step_that_passes_is_filled_and_so_is_the_last():
    fig = search.gap_steps([0.8, 0.85, 0.9, 1.0], [0.3, 0.1, 0.3, 0.2], 0.25, 0.85)
    shown(fig)
    (bars,) = fig.axes[0].containers
    edges = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in bars]
    assert edges == [pytest.approx((0.85, 0.9)), pytest.approx((1.0, 1.02))]
    assert [bar.get_height() for bar in bars] == [0.1, 0.2]


def test_a_probe_stands_on_the_gap_and_has_its_number():
    fig = search.gap_steps([0.8, 0.9, 0.95], [0.3, 0.1, 0.2], 0.15, 0.9, [0.95, 0.8])
    assert shown(fig) == ["1", "2"]
    marks = fig.axes[0].lines[-2:]
    heights = [line.get_ydata()[0] for line in marks]
    assert heights == [0.2, 0.3]


def test_a_bar_ends_where_the_label_needs_it_and_the_rest_is_hatched():
    classwise = [0.8, 0.9, 0.85]
    fig = search.single_against_classwise(["a", "b", "c"], 0.8, classwise, 0.9)
    assert shown(fig) == ["base: q̂", "single λ"]
    shared, own = fig.axes[0].containers
    assert [bar.get_width() for bar in own] == pytest.approx([0, 0.1, 0.05])
    assert [bar.get_width() for bar in shared] == pytest.approx([0.1, 0, 0.05])
    assert all(bar.get_hatch() for bar in shared)


@pytest.mark.parametrize("classwise", [False, True])
def test_the_price_at_c_is_the_size_of_the_sets_that_the_search_gives(classwise):
    rng = np.random.default_rng(0)
    scores = rng.random((400, 3))
    y = rng.integers(0, 3, 400)
    groups = rng.choice(["a", "b"], 400)
    data = (scores, y, groups, "demographic_parity")
    table = control.frontier(*data, classwise=classwise)
    fig = search.price({"fair": table}, base=2.0, constant=3.0, widest=0.5)
    assert shown(fig)[0].startswith("3.0 = everything")
    line = fig.axes[0].lines[0]
    closenesses = np.asarray(line.get_xdata())
    sizes = np.asarray(line.get_ydata())
    for c in (0.02, 0.05, 0.1):
        found = control.find_threshold(*data, c, classwise=classwise)
        wanted = conformal.efficiency(conformal.prediction_sets(scores, found.threshold))
        drawn = sizes[np.searchsorted(closenesses, c, side="right") - 1]
        assert drawn == pytest.approx(wanted)

"""The drawings of counting show sums that are right, and the bins that decide."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import same_color

from cfhelpers.diagrams import scale


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def texts(ax):
    return [text.get_text() for text in ax.texts]


def test_the_last_panel_holds_the_sums_of_the_others():
    rng = np.random.default_rng(0)
    files = [rng.random(n) for n in (4, 7, 2)]
    edges = np.arange(5) / 4
    fig = scale.counts_add_up(files, edges, 0.5)
    fig.canvas.draw()
    tables = [list(map(int, texts(ax))) for ax in fig.axes]
    assert tables[-1] == np.histogram(np.concatenate(files), edges)[0].tolist()
    assert np.sum(tables[:-1], axis=0).tolist() == tables[-1]
    assert [ax.get_title() for ax in fig.axes][::3] == ["file 1", "=   all files"]


def test_people_up_to_the_threshold_are_coloured():
    fig = scale.counts_add_up([[0.1, 0.2, 0.9], [0.6]], [0, 0.5, 1], 0.5)
    covered, other = fig.axes[0].collections
    assert len(covered.get_offsets()) == 2
    assert same_color(covered.get_facecolor()[0], scale.COVERED)
    assert same_color(other.get_facecolor()[0], scale.OTHERS)


CASES = [
    ([0.4, 0.1, 0.0], [0.5, 0.2, 0.1], [False, True, False]),  # the first that passes
    ([0.1, 0.3, 0.1], [0.5, 0.5, 0.5], [True, False, True]),  # none passes at its end
]


@pytest.mark.parametrize("least, at_end, wanted", CASES)
def test_the_bins_that_can_hold_the_answer_are_coloured(least, at_end, wanted):
    fig = scale.bins_that_decide([0.7, 0.8, 0.9, 1.0], least, at_end, 0.25)
    fig.canvas.draw()
    ax = fig.axes[0]
    decides = []
    for bar in ax.patches:
        if same_color(bar.get_facecolor(), scale.DECIDES):
            decides.append(round(bar.get_x(), 6))
    np.testing.assert_allclose(decides, 0.7 + 0.1 * np.flatnonzero(wanted))
    assert ax.get_title().startswith(f"{sum(wanted)} of 3 bins")

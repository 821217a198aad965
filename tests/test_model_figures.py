"""Figures of models: what is drawn and said is what the rows hold."""

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from matplotlib.colors import to_rgba

from cfhelpers.study import model_figures

PAPER = (2.202, 0.922)


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


@pytest.fixture
def settings():
    """Three settings: CF never changes the first, sometimes the second."""
    return pd.DataFrame(
        {
            "kind": ["gcn", "sage", "gat"],
            "base_efficiency": [2.30, 2.10, 2.25],
            "base_ratio": [0.95, 0.82, 0.60],
            "cf_efficiency": [2.30, 2.15, 2.50],
            "cf_ratio": [0.95, 0.83, 0.81],
            "unchanged": [1.0, 0.5, 0.0],
        }
    )


def lines_with(ax, marker):
    return [line for line in ax.lines if line.get_marker() == marker]


def test_each_setting_is_marked_where_its_base_predictor_is(settings):
    (ax,) = model_figures.draw_cfgnn_settings(settings, *PAPER).axes
    for row in settings.itertuples():
        (mark,) = lines_with(ax, model_figures.MARKS[row.kind])
        assert (*mark.get_xdata(), *mark.get_ydata()) == (
            row.base_ratio,
            row.base_efficiency,
        )
        is_filled = to_rgba(mark.get_markerfacecolor()) != to_rgba("white")
        assert is_filled == (row.unchanged == 1)


def test_a_line_leads_from_each_base_to_what_cf_makes_of_it(settings):
    (ax,) = model_figures.draw_cfgnn_settings(settings, *PAPER).axes
    ends = {(*line.get_xdata(), *line.get_ydata()) for line in ax.lines}
    columns = ["base_ratio", "cf_ratio", "base_efficiency", "cf_efficiency"]
    assert set(settings[columns].itertuples(index=False, name=None)) <= ends


def test_the_papers_numbers_are_a_star(settings):
    (ax,) = model_figures.draw_cfgnn_settings(settings, *PAPER).axes
    (star,) = lines_with(ax, "*")
    assert (*star.get_ydata(), *star.get_xdata()) == PAPER


def test_the_sentences_count_settings_on_either_side_of_the_paper(settings):
    text = model_figures.tell_cfgnn_settings(settings, *PAPER)
    assert "leaves 1 unchanged in every re-split, and 1 in some of them" in text
    assert "2.100 to 2.300: 1 of 3 settings have smaller sets than 2.202" in text
    assert "0.600 to 0.950: 1 of 3 settings are fairer than 0.922" in text


@pytest.mark.parametrize(
    "function", [model_figures.draw_cfgnn_settings, model_figures.tell_cfgnn_settings]
)
def test_no_settings_are_refused(settings, function):
    with pytest.raises(ValueError, match="rows: found none; wanted a row per setting"):
        function(settings.iloc[:0], *PAPER)

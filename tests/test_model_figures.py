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
    assert "leaves 1 (33%) unchanged in every re-split, and 1 in some of them" in text
    assert "2.100 to 2.300: 1 of 3 settings have smaller sets than 2.202" in text
    assert "0.600 to 0.950: 1 of 3 settings are fairer than 0.922" in text


@pytest.mark.parametrize(
    "function", [model_figures.draw_cfgnn_settings, model_figures.tell_cfgnn_settings]
)
def test_no_settings_are_refused(settings, function):
    with pytest.raises(ValueError, match="rows: found none; wanted a row per setting"):
        function(settings.iloc[:0], *PAPER)


COLUMNS = ["setting", "seed", "epochs", "lr", "value", "accuracy", "status"]


@pytest.fixture
def trials():
    """Two settings and seeds: one is stopped after 30 epochs, the other finishes."""
    rows = [
        [0, 0, 30, 0.1, 1.4, 0.4, "stopped"],
        [0, 1, 30, 0.1, 1.2, 0.5, "stopped"],
        [1, 0, 30, 0.01, 1.1, 0.5, "went on"],
        [1, 1, 30, 0.01, 1.0, 0.5, "went on"],
        [1, 0, 100, 0.01, 0.9, 0.6, "finished"],
        [1, 1, 100, 0.01, 0.8, 0.7, "finished"],
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def test_a_search_is_told_by_the_last_rung_of_each_setting_the_furthest_first(trials):
    table = model_figures.search_table(trials)
    assert table.index.tolist() == [1, 0]
    assert table["loss"].tolist() == pytest.approx([0.85, 1.3])
    assert table["accuracy"].tolist() == pytest.approx([0.65, 0.45])
    assert table["epochs"].tolist() == [100, 30]
    assert table["seeds"].tolist() == [2, 2]
    assert table["lr"].tolist() == [0.01, 0.1]


def test_a_stopped_setting_ends_in_a_cross_and_a_finished_one_in_a_star(trials):
    figure = model_figures.draw_search({"gcn": trials}, reference=0.7)
    (ax,) = figure.axes
    for status, mean in (("stopped", 1.3), ("finished", 0.85)):
        (mark,) = lines_with(ax, model_figures.STATUS_MARKS[status][0])
        assert mark.get_ydata() == pytest.approx([mean])
    means = [line.get_ydata() for line in ax.lines if line.get_linewidth() == 1.2]
    assert [*means[1]] == pytest.approx([1.05, 0.85])
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "XGBoost, untuned" in names


def test_a_setting_that_waits_for_its_next_rung_has_neither_mark(trials):
    waiting = trials[trials["epochs"] == 30]
    (ax,) = model_figures.draw_search({"gcn": waiting}).axes
    assert lines_with(ax, model_figures.STATUS_MARKS["finished"][0]) == []
    assert len(lines_with(ax, "o")) == 1


def test_the_newest_search_of_a_file_is_the_one_that_was_written_last(trials, tmp_path):
    older = trials.assign(key="older", value=9.0)
    newer = trials.assign(key="newer")
    file = tmp_path / "trials.csv"
    pd.concat([older, newer]).to_csv(file, index=False)
    pd.testing.assert_frame_equal(model_figures.newest_trials(file), trials)


def test_no_search_is_refused():
    with pytest.raises(ValueError, match="trials: found none; wanted those of"):
        model_figures.draw_search({})


def test_base_models_are_means_over_training_splits_by_model_and_features():
    models = ["gcn", "gcn", "gcn", "xgboost"]
    settings = ["{}", "{}", '{"scaled": false}', "{}"]
    rows = pd.DataFrame({"model": models, "settings": settings})
    rows["training_split"] = [0, 1, 0, 0]
    for name in ["valid_log_loss", *model_figures.MEASURED]:
        rows[name] = [0.2, 0.4, 0.5, 0.6]
    table = model_figures.base_models_table(rows)
    assert table["tps_size"].to_dict() == pytest.approx(
        {("gcn", "scaled"): 0.3, ("gcn", "as they are"): 0.5, ("xgboost", ""): 0.6}
    )
    assert table["training splits"].tolist() == [2, 1, 1]

"""The figures say what the rows say: every mark is held against a number."""

import importlib.util
import itertools
import sys
import warnings

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.lines import Line2D

from cfhelpers import paths, plots
from cfhelpers.study import authors, figure_texts, figures

METRICS = [
    "demographic_parity",
    "equal_opportunity",
    "equalized_odds",
    "predictive_equality",
]
C = [0.05, 0.1, 0.15, 0.2]
SUBJECT = {
    "dataset": "credit",
    "attribute": "age",
    "data": "the paper's",
    "records": "real, UCI table",
    "model": "xgboost",
}


def some_rows(scores=("aps", "tps"), splits=3, **subject):
    """Rows whose numbers all differ, in an order that nothing may depend on."""
    rng = np.random.default_rng(0)
    metrics = [*METRICS, "predictive_parity_proxy"]
    axes = [scores, metrics, [False, True], ["none", "fixed-sequence"], C, range(splits)]
    rows = pd.DataFrame(
        itertools.product(*axes),
        columns=["score", "metric", "classwise", "guarantee", "c", "split"],
    ).assign(**(SUBJECT | subject))
    for column in ("efficiency", "disparity", "base_efficiency", "base_disparity"):
        rows[column] = rng.random(len(rows)) * (4 if "efficiency" in column else 0.5)
    for column in ("beyond", "base_beyond", "feasible"):
        rows[column] = rng.random(len(rows)) < 0.5
    rows["threshold"] = [[0.9] * 4] * len(rows)
    return rows.sample(frac=1, random_state=1)


@pytest.fixture(autouse=True)
def _style():
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("error")
        plots.use_style()
        yield
    plt.close("all")


def wanted(
    rows,
    column,
    clusters=METRICS,
    by="metric",
    guarantee="none",
    classwise=True,
    take="mean",
    **where,
):
    """The statistic of a column for every bar, by plain selection."""
    part = rows[(rows["guarantee"] == guarantee) & (rows["classwise"] == classwise)]
    for name, value in where.items():
        part = part[part[name] == value]
    cells = [
        part.loc[(part[by] == cluster) & (part["c"] == c), column]
        for cluster in clusters
        for c in C
    ]
    return [getattr(cell, take)() for cell in cells]


def bars(ax):
    """Tops and middles of every bar of a panel, by series; edges are left out."""
    series = [c for c in ax.containers if isinstance(c, BarContainer)]
    return [
        (
            [p.get_y() + p.get_height() for p in c],
            [p.get_x() + p.get_width() / 2 for p in c],
        )
        for c in series
    ]


def segments_of(ax, look):
    """Height, left and right end of the short lines that have a look's colour."""
    found = []
    for lines in ax.collections:
        if not isinstance(lines, LineCollection):
            continue
        has_color = to_hex(lines.get_color()[0]) == to_hex(look["color"])
        if has_color and lines.get_linewidth()[0] == look["lw"]:
            found += [(ends[0, 1], *ends[:, 0]) for ends in lines.get_segments()]
    return found


def spans(ax):
    """Lower and upper ends of the error bars of a panel, by series."""
    found = [
        container.lines[2][0].get_segments()
        for container in ax.containers
        if isinstance(container, ErrorbarContainer)
    ]
    return [np.array(segments)[:, :, 1].T for segments in found if segments]


def heights(ax, marker):
    """Heights of the marks of one shape."""
    return [
        y for line in ax.lines if line.get_marker() == marker for y in line.get_ydata()
    ]


def numbers(ax):
    return [
        int(text.get_text())
        for text in sorted(
            ax.texts, key=lambda t: (t.get_position()[1], t.get_position()[0])
        )
    ]


def block_axes(fig):
    """A line per block: bars and numbers at the left, bars and numbers at the right."""
    return np.array(fig.axes).reshape(-1, 4)


def panels(fig):
    """The panels with bars: a line per block, left and right."""
    return block_axes(fig)[:, ::2]


def texts(fig):
    return "\n".join(text.get_text() for text in fig.texts)


def legend_names(fig):
    return [text.get_text() for text in fig.legends[0].get_texts()]


def test_bars_are_means_over_splits_and_error_bars_their_deviation():
    rows = some_rows()
    axes = panels(figures.fairness_bars(rows, True))
    for line, score in enumerate(("aps", "tps")):
        for ax, quantity in zip(axes[line], ("efficiency", "disparity"), strict=True):
            mean, sd = (
                np.array(wanted(rows, quantity, score=score, take=take))
                for take in ("mean", "std")
            )
            assert bars(ax)[0][0] == pytest.approx(mean)
            assert spans(ax)[0] == pytest.approx(np.array([mean - sd, mean + sd]))


def test_bars_of_sizes_stand_on_the_base_predictor_and_those_of_gaps_on_zero():
    rows = some_rows(["aps"])
    ((sizes, gaps),) = panels(figures.fairness_bars(rows, True))
    feet = [patch.get_y() for patch in sizes.containers[0]]
    assert feet == pytest.approx(wanted(rows, "base_efficiency"))
    assert {patch.get_y() for patch in gaps.containers[0]} == {0}


def test_diamonds_are_the_version_with_a_guarantee_and_their_deviation():
    rows = some_rows()
    axes = panels(figures.fairness_bars(rows, True))
    for ax, quantity in zip(axes[1], ("efficiency", "disparity"), strict=True):
        options = {"guarantee": "fixed-sequence", "score": "tps"}
        mean, sd = (
            np.array(wanted(rows, quantity, take=take, **options))
            for take in ("mean", "std")
        )
        assert heights(ax, "D") == pytest.approx(mean)
        assert spans(ax)[1] == pytest.approx(np.array([mean - sd, mean + sd]))


def test_clusters_have_the_papers_order():
    rows = some_rows(["aps"])
    for numbered in block_axes(figures.fairness_bars(rows, True))[0, 1::2]:
        names = [label.get_text() for label in numbered.get_xticklabels()]
        assert names == ["DP", "EO", "EOdds", "PE"]


def test_dots_stand_at_c_over_their_bars_and_only_among_the_gaps():
    sizes, gaps = panels(figures.fairness_bars(some_rows(), True))[0]
    assert heights(sizes, "o") == []
    assert heights(gaps, "o") == pytest.approx(C * 4)
    dots = next(line.get_xdata() for line in gaps.lines if line.get_marker() == "o")
    assert dots == pytest.approx(bars(gaps)[0][1])


def test_no_dot_and_no_number_stands_where_c_was_not_asked_for():
    rows = some_rows(["aps"])
    is_left_out = (rows["metric"] == "equalized_odds") & (rows["c"] == 0.2)
    ((_, infinite, gaps, beyond),) = block_axes(
        figures.fairness_bars(rows[~is_left_out], True)
    )
    assert heights(gaps, "o") == pytest.approx([*C, *C, *C[:3], *C])
    assert len(numbers(beyond)) == 3 * 15 and len(numbers(infinite)) == 2 * 15


def test_dashes_are_the_base_predictor_across_each_bar():
    rows = some_rows()
    axes = panels(figures.fairness_bars(rows, True))[0]
    for ax, quantity in zip(axes, ("efficiency", "disparity"), strict=True):
        height, left, right = np.transpose(segments_of(ax, figures.DASHES))
        assert height == pytest.approx(wanted(rows, f"base_{quantity}", score="aps"))
        middles = np.array(bars(ax)[0][1])
        assert left == pytest.approx(middles - 0.5)
        assert right == pytest.approx(middles + 0.5)


def authors_bars(score, column, classwise=True, dataset="credit", metrics=METRICS):
    """What the authors stored for each bar, by plain selection."""
    stored = authors.runs()
    found = []
    for metric, c in itertools.product(metrics, C):
        is_own = stored["dataset"].eq(dataset) & stored["score"].eq(score)
        is_own &= stored["metric"].eq(metric) & np.isclose(stored["c"], c)
        is_own &= stored["classwise"].eq(classwise)
        found.append(stored.loc[is_own, column].item())
    return found


@pytest.mark.parametrize("granular", [False, True])
@pytest.mark.parametrize("classwise", [False, True])
def test_the_authors_means_are_marked_on_their_bars(granular, classwise):
    fig = figures.fairness_bars(some_rows(), classwise, granular=granular)
    for line, score in enumerate(("aps", "tps")):
        for ax, quantity in zip(panels(fig)[line], figures.QUANTITY_NAMES, strict=True):
            height, left, right = np.transpose(segments_of(ax, figures.AUTHORS))
            assert height == pytest.approx(authors_bars(score, quantity, classwise))
            assert (left + right) / 2 == pytest.approx(bars(ax)[0][1])
            height, *_ = np.transpose(segments_of(ax, figures.AUTHORS_BASE))
            base = authors_bars(score, f"base_{quantity}", classwise)
            assert height == pytest.approx(base)
    assert {"the authors' run", "the authors' base predictor"} < set(legend_names(fig))


def test_the_authors_proxy_is_marked_by_score():
    rows = some_rows(("aps", "daps"))
    sizes, _, gaps, _ = figures.proxy_bars(rows, True).axes
    for ax, quantity in ((sizes, "efficiency"), (gaps, "disparity")):
        height, left, right = np.transpose(segments_of(ax, figures.AUTHORS))
        metrics = ["predictive_parity_proxy"]
        found = [
            number
            for score in ("aps", "daps")
            for number in authors_bars(score, quantity, metrics=metrics)
        ]
        assert height == pytest.approx(found)
        assert (left + right) / 2 == pytest.approx(bars(ax)[0][1])


def test_raps_has_no_mark_of_the_authors():
    fig = figures.fairness_bars(some_rows(("aps", "raps")), True)
    (_, with_marks), (sizes, gaps) = panels(fig)
    assert segments_of(with_marks, figures.AUTHORS)
    assert not segments_of(sizes, figures.AUTHORS)
    assert not segments_of(gaps, figures.AUTHORS_BASE)
    assert "the authors' run (RAPS: none stored)" in legend_names(fig)


@pytest.mark.parametrize("kind", ["the paper's", "other", "simulated"])
def test_simulated_panels_say_so_and_have_no_number_of_the_paper(kind):
    is_simulated = kind == "simulated"
    rows = some_rows(["aps"], data=kind)
    for fig in (
        figures.fairness_bars(rows, True),
        figures.fairness_bars(rows, True, granular=True),
        figures.single_and_classwise(rows, "efficiency"),
        figures.proxy_bars(rows, True),
    ):
        for ax in panels(fig).flat:
            words = [text.get_text() for text in ax.texts]
            assert words == ["simulated"] * is_simulated
            assert bool(segments_of(ax, figures.AUTHORS)) != is_simulated
        assert ("the authors' run" in legend_names(fig)) != is_simulated
        assert ("not the paper's records" in fig.get_suptitle()) == (kind == "other")


def test_numbers_count_the_splits_beyond_c_and_those_without_a_finite_threshold():
    rows = some_rows()
    rows["infinite"] = ~rows["feasible"]
    fig = figures.fairness_bars(rows, True)
    _, infinite, _, beyond = block_axes(fig)[1]
    lines = [("none", "base_beyond"), ("none", "beyond"), ("fixed-sequence", "beyond")]
    both = {"beyond": lines, "infinite": [(rule, "infinite") for rule in figures.RULES]}
    for ax, lines in ((beyond, both["beyond"]), (infinite, both["infinite"])):
        found = [
            wanted(rows, column, guarantee=rule, score="tps", take="sum")
            for rule, column in lines
        ]
        assert numbers(ax) == [number for line in found for number in line]
    assert "splits of 3 with a gap beyond c" in legend_names(fig)


def test_numbers_are_readable_on_a_page():
    fig = figures.fairness_bars(some_rows(), True)
    scale = 6.5 / fig.get_size_inches()[0]
    sizes = {text.get_fontsize() for ax in fig.axes for text in ax.texts}
    sizes |= {text.get_fontsize() for text in fig.texts + fig.legends[0].get_texts()}
    assert min(sizes) * scale >= 7


def test_darker_ground_means_more_splits():
    rows = some_rows(splits=5)
    ax = block_axes(figures.fairness_bars(rows, True))[0, 3]
    ruled = [c for c in ax.containers if isinstance(c, BarContainer)][1]
    light = pd.Series([sum(patch.get_facecolor()[:3]) for patch in ruled])
    share = pd.Series(wanted(rows, "beyond", score="aps"))
    assert light.corr(share, method="spearman") == pytest.approx(-1)


def test_bars_are_the_paler_the_more_splits_have_no_finite_threshold():
    rows = some_rows(splits=5)
    ax = panels(figures.fairness_bars(rows, True))[0, 0]
    alpha = [patch.get_facecolor()[3] for patch in ax.containers[0]]
    assert alpha == pytest.approx(
        0.35 + 0.65 * np.array(wanted(rows, "feasible", score="aps"))
    )


def test_panels_hold_only_their_kind_of_threshold():
    rows = some_rows()
    single = panels(figures.fairness_bars(rows, False))
    assert bars(single[0, 0])[0][0] == pytest.approx(
        wanted(rows, "efficiency", score="aps", classwise=False)
    )


@pytest.mark.parametrize("quantity", ["efficiency", "disparity"])
def test_single_threshold_stands_beside_classwise(quantity):
    rows = some_rows()
    rows["infinite"] = ~rows["feasible"]
    single, counted, by_label, counted_by_label = block_axes(
        figures.single_and_classwise(rows, quantity)
    )[1]
    column, first = {"efficiency": ("infinite", 0), "disparity": ("beyond", 16)}[quantity]
    for classwise, ax, numbered in (
        (False, single, counted),
        (True, by_label, counted_by_label),
    ):
        assert bars(ax)[0][0] == pytest.approx(
            wanted(rows, quantity, score="tps", classwise=classwise)
        )
        found = wanted(rows, column, score="tps", classwise=classwise, take="sum")
        assert numbers(numbered)[first : first + 16] == found
        assert figures.THRESHOLD_NAMES[classwise] in ax.get_title()


def test_granular_has_a_base_bar_beside_every_bar():
    rows = some_rows()
    axes = panels(figures.fairness_bars(rows, True, granular=True))
    for line, score in enumerate(("aps", "tps")):
        for ax, quantity in zip(axes[line], ("efficiency", "disparity"), strict=True):
            (ruled, x), (base, left) = bars(ax)
            assert ruled == pytest.approx(wanted(rows, quantity, score=score))
            assert base == pytest.approx(wanted(rows, f"base_{quantity}", score=score))
            assert np.array(x) - np.array(left) == pytest.approx(0.48)
            assert np.diff(x).min() > 0.9
        feet = {patch.get_y() for patch in axes[line, 0].containers[1]}
        assert feet == {1} and axes[line, 0].get_ylim()[0] == 1


def test_the_proxy_has_a_cluster_for_every_score():
    rows = some_rows(("aps", "cfgnn", "daps"))
    sizes, _, gaps, counted = figures.proxy_bars(rows, True).axes
    where = {
        "by": "score",
        "clusters": ["aps", "cfgnn", "daps"],
        "metric": "predictive_parity_proxy",
    }
    assert bars(sizes)[0][0] == pytest.approx(wanted(rows, "efficiency", **where))
    assert bars(gaps)[0][0] == pytest.approx(wanted(rows, "disparity", **where))
    assert [label.get_text() for label in counted.get_xticklabels()] == [
        "APS",
        "CFGNN",
        "DAPS",
    ]


def test_a_single_split_has_no_deviation():
    rows = some_rows(splits=1)
    ax = panels(figures.fairness_bars(rows, True))[0, 1]
    assert spans(ax)[0][0] == pytest.approx(spans(ax)[0][1])


# Axes


def sizes_between(low, high, **subject):
    """Rows whose sizes lie between two numbers, without spread."""
    rows = some_rows(**subject)
    rank = rows["efficiency"].rank(pct=True)
    return rows.assign(efficiency=low + rank * (high - low), base_efficiency=low)


def test_the_axis_of_sizes_shows_small_differences_and_says_where_it_begins():
    rows = sizes_between(2.2, 2.9, data="other", dataset="none of the paper's")
    axes = panels(figures.fairness_bars(rows, True))[:, 0]
    ((low, high),) = {ax.get_ylim() for ax in axes}
    assert 2.0 <= low <= 2.2 and 2.9 <= high <= 3.1
    assert all(f"(axis from {low:.1f})" in ax.get_title() for ax in axes)
    assert low == pytest.approx(round(low, 1))


@pytest.mark.parametrize("highest, is_in_sight", [(3.0, False), (4.0, True)])
def test_all_labels_are_a_line_where_they_are_in_sight(highest, is_in_sight):
    rows = sizes_between(2.2, highest, data="other", dataset="none of the paper's")
    fig = figures.fairness_bars(rows, True)
    for ax in panels(fig)[:, 0]:
        dotted = [
            line
            for line in ax.lines
            if line.get_linestyle() == ":" and list(line.get_ydata()) == [4, 4]
        ]
        assert len(dotted) == is_in_sight
    assert ("all 4 labels" in legend_names(fig)) == is_in_sight


def test_every_bar_and_mark_lies_within_its_axis():
    rows = some_rows()
    fig = figures.fairness_bars(rows, True)
    for column in panels(fig).T:
        ((low, high),) = {ax.get_ylim() for ax in column}
        for ax in column:
            tops = [y for series, _ in bars(ax) for y in series]
            marks = [y for y, *_ in segments_of(ax, figures.AUTHORS)]
            assert low <= min(tops + marks) and max(tops + marks) <= high


# Words


def test_the_title_names_data_records_kind_and_model():
    rows = some_rows(
        ["aps"],
        dataset="pokec_z",
        attribute="region+gender",
        data="simulated",
        records="simulated, 9 rows",
        model="sage",
    )
    first, second = figures.fairness_bars(rows, True, "Fig 9").get_suptitle().split("\n")
    data = 'the paper\'s "Pokec-z" (= Pokec-n) by region × gender'
    assert first == f"Fig 9 · {data} · classwise λ"
    assert second == "simulated, 9 rows · GraphSAGE"
    title = figures.single_and_classwise(rows, "efficiency").get_suptitle()
    assert title.startswith(f"{data} · single λ and classwise λ\n")


def test_the_title_tells_labelled_rows_and_accuracy_where_the_rows_have_them():
    rows = some_rows(["aps"], n_labelled=8797, test_accuracy=0.5834)
    title = figures.fairness_bars(rows, True).get_suptitle()
    facts = "real, UCI table, 8,797 labelled · XGBoost, 58.3% of test labels right"
    assert title.endswith(facts)


@pytest.mark.parametrize(
    "training_splits, words",
    [
        (None, "3 re-splits of one trained model"),
        ([7], "3 re-splits of one trained model"),
        ([0, 1], "3 re-splits of each of 2 trained models"),
    ],
)
def test_the_legend_says_what_deviations_are_over(training_splits, words):
    rows = some_rows(["aps"])
    n_splits = 3
    if training_splits:
        parts = [rows.assign(training_split=split) for split in training_splits]
        rows = pd.concat(parts)
        n_splits *= len(training_splits)
    fig = figures.fairness_bars(rows, True)
    title = fig.legends[0].get_title().get_text()
    assert title == f"Means; error bars and bands: ± sd over {words}"
    assert f"splits of {n_splits} with a gap beyond c" in legend_names(fig)


def with_cells(rows):
    """The rows with the columns that name cells, the same for all."""
    return rows.assign(
        widest="label 1: a (40) < b (2,000)",
        widest_n=40,
        base_widest="label 2: b (1,999) < a (41)",
        base_widest_n=41,
        smallest_cell="a / 1",
        smallest_n=3,
    )


def classwise_cells(splits=3):
    """Rows of one score, of the four metrics and one λ for each label."""
    rows = with_cells(some_rows(["aps"], splits))
    return rows[rows["metric"].isin(METRICS) & rows["classwise"]]


def test_the_two_groups_of_the_gap_are_named_for_base_and_rule():
    rows = with_cells(some_rows(["aps"]))
    words = texts(figures.fairness_bars(rows, True))
    assert "Widest gap, base predictor" in words
    assert "DP, EO, EOdds, PE: label 2, b < a (41), 3 of 3" in words
    assert "paper's rule, c = 0.05" in words
    assert "DP, EO, EOdds, PE: label 1, a (40) < b, 3 of 3" in words


def test_the_pair_that_is_widest_most_often_is_named_and_counted():
    rows = classwise_cells(splits=5)
    rows.loc[rows["split"] > 1, "widest"] = "label 3: c (1,217) < b (999,000)"
    rows.loc[rows["split"] == 4, "widest"] = "label 3: c (1,219) < b (999,000)"
    rows.loc[rows["split"] == 0, "widest"] = ""
    (line,) = figure_texts.widest_lines(rows, "widest")
    assert line == "DP, EO, EOdds, PE: label 3, c (1,217) < b, 3 of 5"


def test_the_condition_on_the_true_label_is_said_for_equalized_odds_alone():
    rows = classwise_cells()
    for metric, condition in zip(
        METRICS, ["", ", y = 3", ", y ≠ 3", ", y ≠ 3"], strict=True
    ):
        own = rows["metric"] == metric
        rows.loc[own, "widest"] = f"label 3{condition}: a, so (4) < b, y: 2 (20)"
    assert figure_texts.widest_lines(rows, "widest") == [
        "DP, EO, PE: label 3, a, so (4) < b, y: 2, 3 of 3",
        "EOdds: label 3, y ≠ 3, a, so (4) < b, y: 2, 3 of 3",
    ]


def test_one_group_at_both_ends_is_no_gap():
    rows = classwise_cells(splits=3)
    rows.loc[rows["split"] > 0, "widest"] = "label 1: a (40) < a (40)"
    (line,) = figure_texts.widest_lines(rows, "widest")
    assert line == "DP, EO, EOdds, PE: no gap, 2 of 3"


def test_only_the_rule_at_the_strictest_c_is_named():
    rows = classwise_cells()
    is_shown = (rows["c"] == 0.05) & (rows["guarantee"] == "none")
    rows.loc[~is_shown, "widest"] = "label 3: x (1) < y (2)"
    (line,) = figure_texts.widest_lines(rows, "widest")
    assert line == "DP, EO, EOdds, PE: label 1, a (40) < b, 3 of 3"


def test_metrics_with_different_pairs_have_a_line_each():
    rows = classwise_cells()
    own = rows["metric"].eq("equalized_odds")
    rows.loc[own, "widest"] = "label 1, y = 1: a (4) < b (20)"
    assert figure_texts.widest_lines(rows, "widest") == [
        "DP, EO, PE: label 1, a (40) < b, 3 of 3",
        "EOdds: label 1, y = 1, a (4) < b, 3 of 3",
    ]


def test_single_and_classwise_name_the_cells_of_both():
    rows = with_cells(some_rows(["aps"]))
    rows.loc[~rows["classwise"], "widest"] = "label 3: c (7) < b (2,000)"
    words = texts(figures.single_and_classwise(rows, "disparity"))
    for line in ("label 2, b < a (41)", "label 3, c (7) < b", "label 1, a (40) < b"):
        assert line in words
    assert "Widest" not in texts(figures.single_and_classwise(rows, "efficiency"))


def test_lines_about_the_base_predictor_are_whole_in_both_columns():
    rows = with_cells(some_rows(["aps"]))
    long = "label 1: Native, tribe unspecified ({}) < Native, Alaska and other (90)"
    for n, metric in enumerate(METRICS, 10):
        rows.loc[rows["metric"] == metric, "base_widest"] = long.format(n)
    fig = figures.single_and_classwise(rows, "disparity")
    _, left, right = [text.get_text().splitlines() for text in fig.texts][:3]
    names = [line.split(":")[0] for line in left + right if ": label" in line]
    assert names == ["DP", "EO", "EOdds", "PE"]
    assert left[0].startswith("Widest gap, base") and right[0] == ""
    assert left[-1].endswith("3 of 3") and right[-1].endswith("3 of 3")


def test_where_no_finite_threshold_is_left_the_smallest_calibration_cell_is_named():
    rows = with_cells(some_rows(["aps"]).assign(feasible=True))
    assert "Smallest" not in texts(figures.fairness_bars(rows, True))
    own = rows["metric"].isin(["equal_opportunity", "equalized_odds"])
    rows.loc[own, "feasible"] = False
    words = texts(figures.fairness_bars(rows, True))
    assert "where λ = ∞: EO, EOdds: 3 points of a / 1" in words
    rows.loc[rows["metric"] == "equalized_odds", "smallest_n"] = 1
    line = figure_texts.smallest_cells_line(rows[rows["metric"].isin(METRICS)])
    assert line.endswith("where λ = ∞: EO: 3 points of a / 1; EOdds: 1 point of a / 1")


def test_rows_without_the_names_of_cells_have_no_lines_about_them():
    rows = some_rows(["aps"])
    for fig in (
        figures.fairness_bars(rows, True),
        figures.single_and_classwise(rows, "disparity"),
        figures.proxy_bars(rows, True),
    ):
        assert "Widest" not in texts(fig) and "Smallest" not in texts(fig)


@pytest.mark.slow
@pytest.mark.parametrize("has_cells", [False, True])
@pytest.mark.parametrize("draw", ["plain", "granular", "both", "proxy"])
def test_legend_and_texts_lie_outside_the_panels_and_inside_the_figure(draw, has_cells):
    rows = some_rows(("aps", "cfgnn", "daps", "raps", "tps"), splits=2)
    if has_cells:
        long = "label 1, y = 1: Native, tribe unspecified (40) < two or more (2,000)"
        rows = with_cells(rows).assign(widest=long, base_widest=long)
    figure = {
        "plain": lambda: figures.fairness_bars(rows, True, "Fig 2"),
        "granular": lambda: figures.fairness_bars(rows, True, "Fig E4", granular=True),
        "both": lambda: figures.single_and_classwise(rows, "disparity", "Fig E2"),
        "proxy": lambda: figures.proxy_bars(rows, True, "Fig E11"),
    }[draw]()
    figure.canvas.draw()
    page, legend = figure.bbox, figure.legends[0].get_window_extent()
    lines = [t.get_window_extent() for t in figure.texts if t.get_text()]
    for words in (legend, *lines):
        assert not any(words.overlaps(ax.get_window_extent()) for ax in figure.axes)
    assert not any(legend.overlaps(words) for words in lines)
    boxes = [legend, *lines, *(ax.get_tightbbox() for ax in figure.axes)]
    assert all(
        page.x0 <= box.x0
        and box.x1 <= page.x1
        and page.y0 <= box.y0
        and box.y1 <= page.y1
        for box in boxes
    )
    kinds = {type(handle) for handle in figure.legends[0].legend_handles}
    assert Line2D in kinds and len(legend_names(figure)) >= 10


@pytest.mark.slow
@pytest.mark.parametrize("profile, folder", [("quick", "."), ("paper", "paper")])
def test_a_profile_has_its_own_folder_and_a_figure_its_bytes(
    tmp_path, monkeypatch, profile, folder
):
    monkeypatch.setattr(paths, "FIGURES", tmp_path)
    rows, stored = some_rows(["aps"]), []
    for order in (rows, rows.sort_values("disparity")):
        target = plots.save(figures.proxy_bars(order, True, "Fig E11"), "bars", profile)
        assert target == tmp_path / folder / "bars.png"
        stored.append((target.read_bytes(), target.with_suffix(".pdf").read_bytes()))
    assert stored[0] == stored[1]


# BatchGCP


def gcp_rows(kind):
    """Rows of BatchGCP, base and conformal fairness on two splits, with their groups."""
    arms = [("base", np.nan), ("batch_gcp", np.nan)]
    arms += [(arm, c) for arm in ("cf", "cf_guarantee") for c in C]
    rows = [
        {"arm": arm, "c": c, "scored_on": scored_on, "split": split}
        for arm, c in arms
        for scored_on in ("fixed label", "true label")
        for split in (0, 1)
    ]
    rows = pd.DataFrame(rows).assign(metric="demographic_parity", efficiency=2.5)
    rows["disparity"] = np.linspace(0.01, 0.4, len(rows))
    groups = rows[rows["arm"].isin(["base", "batch_gcp"])].drop_duplicates(
        ["arm", "split"]
    )
    groups = [
        groups.assign(metric="group_coverage", group=group, n=n, coverage=0.9)
        for group, n in (("a", 900), ("b", 40))
    ]
    subject = SUBJECT | {"dataset": "acs_income", "attribute": "race", "data": kind}
    return pd.concat([rows, *groups]).assign(score="aps", **subject)


@pytest.mark.parametrize("kind", ["other", "simulated"])
def test_beside_batch_gcp_dots_and_the_authors_stand_where_c_was_asked_for(kind):
    fig = figures.batch_gcp_bars(gcp_rows(kind))
    sizes, fixed, true = fig.axes
    assert [heights(ax, "o") for ax in (sizes, fixed, true)] == [[], C, []]
    marked = {"efficiency": sizes, "disparity": fixed}
    for quantity, ax in marked.items():
        found = [y for y, *_ in segments_of(ax, figures.AUTHORS)]
        expected = []
        if kind == "other":
            options = {"dataset": "acs_income", "metrics": METRICS[:1]}
            expected = authors_bars("aps", quantity, **options)
        assert found == pytest.approx(expected)
    assert not segments_of(true, figures.AUTHORS)
    assert ("the authors' run" in legend_names(fig)) == (kind == "other")


@pytest.mark.parametrize("kind", ["other", "simulated"])
@pytest.mark.parametrize("draw", [figures.batch_gcp_bars, figures.group_coverage_dots])
def test_figures_of_batch_gcp_say_simulated_and_what_error_bars_are_over(draw, kind):
    fig = draw(gcp_rows(kind))
    for ax in fig.axes:
        words = [text.get_text() for text in ax.texts]
        assert words == ["simulated"] * (kind == "simulated")
    over = fig.legends[0].get_title().get_text()
    assert over.endswith("± sd over 2 re-splits of one trained model")


# Bad input


def test_rows_that_are_not_there_are_told():
    rows = some_rows(["aps"])
    with pytest.raises(ValueError, match="rows: found none with classwise λ"):
        figures.fairness_bars(rows[~rows["classwise"]], True)
    with pytest.raises(ValueError, match="quantity: found 'size'"):
        figures.single_and_classwise(rows, "size")
    with pytest.raises(ValueError, match="profile: found 'full'"):
        plots.save(figures.proxy_bars(rows, True), "bars", "full")


@pytest.mark.parametrize("library", ["matplotlib", "seaborn"])
def test_without_the_libraries_of_plots_the_extra_is_named(monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    spec = importlib.util.spec_from_file_location("another_plots", plots.__file__)
    with pytest.raises(ImportError, match=r"pip install 'cfhelpers\[plots\]'"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))

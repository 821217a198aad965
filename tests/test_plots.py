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
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.lines import Line2D

from cfhelpers import paths, plots
from cfhelpers.study import figures

METRICS = [
    "demographic_parity",
    "equal_opportunity",
    "predictive_equality",
    "equalized_odds",
]
C = [0.05, 0.1, 0.15, 0.2]
SUBJECT = {
    "dataset": "credit",
    "attribute": "age",
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
    """Height and middle of every bar of a panel, by series; edges are left out."""
    series = [c for c in ax.containers if isinstance(c, BarContainer)]
    return [
        ([p.get_height() for p in c], [p.get_x() + p.get_width() / 2 for p in c])
        for c in series
    ]


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


def grid(fig, columns):
    return np.array(fig.axes).reshape(-1, columns)


def test_bars_are_means_over_splits_and_error_bars_their_deviation():
    rows = some_rows()
    axes = grid(figures.fairness_bars(rows, True), 2)
    for line, quantity in enumerate(("efficiency", "disparity")):
        for ax, score in zip(axes[line], ("aps", "tps"), strict=True):
            mean, sd = (
                np.array(wanted(rows, quantity, score=score, take=take))
                for take in ("mean", "std")
            )
            assert bars(ax)[0][0] == pytest.approx(mean)
            assert spans(ax)[0] == pytest.approx(np.array([mean - sd, mean + sd]))


def test_diamonds_are_the_version_with_a_guarantee_and_their_deviation():
    rows = some_rows()
    axes = grid(figures.fairness_bars(rows, True), 2)
    for line, quantity in enumerate(("efficiency", "disparity")):
        options = {"guarantee": "fixed-sequence", "score": "tps"}
        mean, sd = (
            np.array(wanted(rows, quantity, take=take, **options))
            for take in ("mean", "std")
        )
        assert heights(axes[line, 1], "D") == pytest.approx(mean)
        assert spans(axes[line, 1])[1] == pytest.approx(np.array([mean - sd, mean + sd]))


def test_dots_stand_at_c_over_their_bars_and_only_among_the_gaps():
    efficiency, disparity, _ = grid(figures.fairness_bars(some_rows(), True), 2)[:, 0]
    assert heights(efficiency, "o") == [] and heights(disparity, "o") == pytest.approx(
        C * 4
    )
    dots = next(line.get_xdata() for line in disparity.lines if line.get_marker() == "o")
    assert dots == pytest.approx(bars(disparity)[0][1])


def test_dashes_are_the_base_predictor_across_each_bar():
    rows = some_rows()
    for ax, quantity in zip(
        grid(figures.fairness_bars(rows, True), 2)[:2, 0],
        ("efficiency", "disparity"),
        strict=True,
    ):
        dashes = next(
            c
            for c in ax.collections
            if isinstance(c, LineCollection) and len(c.get_segments()) == 16
        )
        ends = np.array(dashes.get_segments())
        assert (
            pytest.approx(np.array([wanted(rows, f"base_{quantity}", score="aps")] * 2))
            == ends[:, :, 1].T
        )
        middles = np.array(bars(ax)[0][1])
        assert pytest.approx(np.array([middles - 0.5, middles + 0.5])) == ends[:, :, 0].T


def test_numbers_count_the_splits_beyond_c_and_those_without_a_finite_threshold():
    rows = some_rows()
    rows["infinite"] = ~rows["feasible"]
    ax = grid(figures.fairness_bars(rows, True), 2)[2, 1]
    lines = [("none", "base_beyond"), ("none", "beyond"), ("fixed-sequence", "beyond")]
    lines += [("none", "infinite"), ("fixed-sequence", "infinite")]
    found = [
        wanted(rows, column, guarantee=rule, score="tps", take="sum")
        for rule, column in lines
    ]
    assert numbers(ax) == [number for line in found for number in line]


def test_darker_ground_means_more_splits():
    rows = some_rows(splits=5)
    ax = grid(figures.fairness_bars(rows, True), 2)[2, 0]
    ruled = [c for c in ax.containers if isinstance(c, BarContainer)][1]
    light = pd.Series([sum(patch.get_facecolor()[:3]) for patch in ruled])
    share = pd.Series(wanted(rows, "beyond", score="aps"))
    assert light.corr(share, method="spearman") == pytest.approx(-1)


def test_bars_are_the_paler_the_more_splits_have_no_finite_threshold():
    rows = some_rows(splits=5)
    ax = grid(figures.fairness_bars(rows, True), 2)[0, 0]
    alpha = [patch.get_facecolor()[3] for patch in ax.containers[0]]
    assert alpha == pytest.approx(
        0.35 + 0.65 * np.array(wanted(rows, "feasible", score="aps"))
    )


def test_panels_hold_only_their_kind_of_threshold():
    rows = some_rows()
    single = grid(figures.fairness_bars(rows, False), 2)
    assert bars(single[0, 0])[0][0] == pytest.approx(
        wanted(rows, "efficiency", score="aps", classwise=False)
    )


@pytest.mark.parametrize("quantity", ["efficiency", "disparity"])
def test_single_threshold_stands_above_classwise(quantity):
    rows = some_rows()
    axes = grid(figures.single_and_classwise(rows, quantity), 2)
    for line, classwise in ((0, False), (2, True)):
        assert bars(axes[line, 1])[0][0] == pytest.approx(
            wanted(rows, quantity, score="tps", classwise=classwise)
        )
        beyond = wanted(rows, "beyond", score="tps", classwise=classwise, take="sum")
        assert numbers(axes[line + 1, 1])[16:32] == beyond
        assert figures.THRESHOLD_NAMES[classwise] in axes[line, 0].get_ylabel()


def test_granular_has_a_base_bar_beside_every_bar():
    rows = some_rows()
    axes = grid(figures.fairness_bars(rows, True, granular=True), 2)
    for line, score in ((0, "aps"), (2, "tps")):
        for ax, quantity in zip(axes[line], ("efficiency", "disparity"), strict=True):
            (ruled, x), (base, left) = bars(ax)
            assert ruled == pytest.approx(wanted(rows, quantity, score=score))
            assert base == pytest.approx(wanted(rows, f"base_{quantity}", score=score))
            assert (
                np.array(x) - np.array(left) == pytest.approx(0.48)
                and np.diff(x).min() > 0.9
            )
        assert numbers(axes[line + 1, 1])[16:32] == wanted(
            rows, "beyond", score=score, take="sum"
        )


def test_the_proxy_has_a_cluster_for_every_score():
    rows = some_rows(("aps", "cfgnn", "daps"))
    efficiency, disparity, counted = figures.proxy_bars(rows, True).axes
    where = {
        "by": "score",
        "clusters": ["aps", "cfgnn", "daps"],
        "metric": "predictive_parity_proxy",
    }
    assert bars(efficiency)[0][0] == pytest.approx(wanted(rows, "efficiency", **where))
    assert bars(disparity)[0][0] == pytest.approx(wanted(rows, "disparity", **where))
    assert [label.get_text() for label in counted.get_xticklabels()] == [
        "APS",
        "CFGNN",
        "DAPS",
    ]


def test_a_single_split_has_no_deviation():
    rows = some_rows(splits=1)
    ax = grid(figures.fairness_bars(rows, True), 2)[1, 0]
    assert spans(ax)[0][0] == pytest.approx(spans(ax)[0][1])


def test_the_title_names_data_records_kind_and_splits():
    rows = some_rows(
        ["aps"],
        dataset="pokec_z",
        attribute="region+gender",
        records="simulated, 9 rows",
        model="gcn",
    )
    title = figures.fairness_bars(rows, True, "Fig 9").get_suptitle()
    data = "Pokec-z by region+gender (simulated, 9 rows)"
    assert title == f"Fig 9 · {data} · gcn · classwise λ · 3 splits"
    title = figures.single_and_classwise(rows, "efficiency").get_suptitle()
    assert title.startswith("Pokec-z") and title.endswith(
        "single λ and classwise λ · 3 splits"
    )


@pytest.mark.slow
@pytest.mark.parametrize("draw", ["plain", "granular", "both", "proxy"])
def test_legend_and_texts_lie_outside_the_panels_and_inside_the_figure(draw):
    rows = some_rows(("aps", "cfgnn", "daps", "raps", "tps"), splits=2)
    figure = {
        "plain": lambda: figures.fairness_bars(rows, True, "Fig 2"),
        "granular": lambda: figures.fairness_bars(rows, True, "Fig E4", granular=True),
        "both": lambda: figures.single_and_classwise(rows, "disparity", "Fig E2"),
        "proxy": lambda: figures.proxy_bars(rows, True, "Fig E11"),
    }[draw]()
    figure.canvas.draw()
    page, legend = figure.bbox, figure.legends[0].get_window_extent()
    assert not any(legend.overlaps(ax.get_window_extent()) for ax in figure.axes)
    boxes = [legend, *(ax.get_tightbbox() for ax in figure.axes)]
    assert all(
        page.x0 <= box.x0
        and box.x1 <= page.x1
        and page.y0 <= box.y0
        and box.y1 <= page.y1
        for box in boxes
    )
    kinds = {type(handle) for handle in figure.legends[0].legend_handles}
    assert Line2D in kinds and len(figure.legends[0].get_texts()) == 11


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

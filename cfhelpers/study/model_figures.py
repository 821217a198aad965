"""Figures and tables of models: searches, base models, and CFGNN by its setting."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from cfhelpers.study.cfgnn_settings import C
from cfhelpers.study.tuning import FINISHED, STOPPED

KIND_NAMES = {"gcn": "GCN", "sage": "GraphSAGE", "gat": "GAT"}
MARKS = {"gcn": "o", "sage": "s", "gat": "D"}
COLOURS = {"gcn": "C0", "sage": "C1", "gat": "C2"}
STATUS_MARKS = {STOPPED: ("X", 10), FINISHED: ("*", 17)}  # a setting's end; points
WAITING = ("o", 7)  # of a setting whose next rung has not been run
NOT_PARAMETERS = (
    "setting",
    "seed",
    "epochs",
    "value",
    "accuracy",
    "epoch",
    "reached",
    "seconds",
    "status",
    "key",
)
MEASURED = ["valid_accuracy", "test_accuracy", "test_log_loss", "tps_size", "aps_size"]
ALWAYS = 1.0  # the share of re-splits in which CF leaves a setting as it is


def draw_cfgnn_settings(
    rows: pd.DataFrame, paper_efficiency: float, paper_ratio: float
) -> Figure:
    """What CFGNN gives with every setting, and where the paper's numbers lie.

    Parameters
    ----------
    rows : DataFrame
        Of `cfgnn_settings.run` or `cfgnn_settings.load`, a row per setting.
    paper_efficiency, paper_ratio : float
        The paper's base efficiency and its ratio of disparate impact.

    Returns
    -------
    Figure
        A mark per setting: the ratio of the base predictor to the right, its labels in a
        set upwards. A thin line leads to what the CF algorithm makes of it, one threshold
        for all labels.

    Examples
    --------
    >>> base = {"kind": ["gcn"], "base_efficiency": [2.2], "base_ratio": [0.7]}
    >>> found = {"cf_efficiency": [2.3], "cf_ratio": [0.8], "unchanged": [0.0]}
    >>> figure = draw_cfgnn_settings(pd.DataFrame(base | found), 2.202, 0.922)
    >>> figure.axes[0].get_xlabel()
    'ratio between the groups (disparate impact)'
    >>> plt.close(figure)
    """
    _check_rows(rows)
    fig, ax = plt.subplots(figsize=(8.5, 4.4))
    for row in rows.to_dict("records"):
        _draw_setting(ax, row)
    ax.plot(paper_ratio, paper_efficiency, "*", color="C3", ms=17, mec="white", zorder=4)
    ax.axvline(C, color="0.3", lw=1, ls=":")
    ax.set_xlabel("ratio between the groups (disparate impact)")
    ax.set_ylabel("labels in a set")
    ax.set_title(f"Credit (real): CFGNN with {len(rows)} settings drawn beforehand")
    fig.legend(handles=_settings_marks(), loc="outside right center")
    return fig


def _check_rows(rows: pd.DataFrame) -> None:
    """Refuse a table without settings."""
    if rows.empty:
        raise ValueError("rows: found none; wanted a row per setting of CFGNN")


def _draw_setting(ax: Axes, row: Mapping[Any, Any]) -> None:
    """One setting: its mark, and a line to what the CF algorithm makes of it."""
    ratios = [row["base_ratio"], row["cf_ratio"]]
    sizes = [row["base_efficiency"], row["cf_efficiency"]]
    ax.plot(ratios, sizes, color="0.7", lw=1, zorder=1)
    ax.plot(ratios[1], sizes[1], ".", color="0.5", ms=5, zorder=2)
    colour = COLOURS[row["kind"]]
    is_unchanged = row["unchanged"] >= ALWAYS
    inside = colour if is_unchanged else "white"
    ax.plot(
        ratios[0],
        sizes[0],
        MARKS[row["kind"]],
        color=colour,
        mfc=inside,
        mew=1.6,
        ms=8,
        zorder=3,
    )


def _settings_marks() -> list[Line2D]:
    """The legend of `draw_cfgnn_settings`."""
    none: dict[str, Any] = {"ls": "none"}
    marks = []
    for kind, name in KIND_NAMES.items():
        look = none | {"marker": MARKS[kind], "color": COLOURS[kind], "mfc": "white"}
        marks.append(Line2D([], [], label=name, mew=1.6, ms=8, **look))
    filled = none | {"marker": "o", "color": "0.3", "ms": 8}
    marks.append(Line2D([], [], label="filled: CF never changes it", **filled))
    marks.append(
        Line2D([], [], label="what CF makes of it", color="0.5", marker=".", lw=1)
    )
    paper = none | {"marker": "*", "color": "C3", "mec": "white", "ms": 15}
    marks.append(Line2D([], [], label="the paper's base", **paper))
    marks.append(Line2D([], [], label="four fifths", color="0.3", lw=1, ls=":"))
    return marks


def tell_cfgnn_settings(
    rows: pd.DataFrame, paper_efficiency: float, paper_ratio: float
) -> str:
    """How many settings the CF algorithm leaves as they are, and the paper's place.

    Parameters
    ----------
    rows : DataFrame
        As for `draw_cfgnn_settings`.
    paper_efficiency, paper_ratio : float

    Returns
    -------
    str
        Three sentences.

    Examples
    --------
    >>> numbers = {"base_efficiency": [2.1, 2.3], "base_ratio": [0.7, 0.95]}
    >>> rows = pd.DataFrame(numbers | {"unchanged": [0.4, 1.0]})
    >>> print(tell_cfgnn_settings(rows, 2.202, 0.922))
    Of 2 settings CF leaves 1 (50%) unchanged in every re-split, and 1 in some of them.
    Base efficiency is 2.100 to 2.300: 1 of 2 settings have smaller sets than 2.202.
    Base ratio is 0.700 to 0.950: 1 of 2 settings are fairer than 0.922.
    """
    _check_rows(rows)
    n = len(rows)
    shares = rows["unchanged"].to_numpy()
    n_always = int((shares >= ALWAYS).sum())
    n_sometimes = int(((shares > 0) & (shares < ALWAYS)).sum())
    sizes = rows["base_efficiency"].to_numpy()
    ratios = rows["base_ratio"].to_numpy()
    n_smaller = int(np.sum(sizes < paper_efficiency))
    n_fairer = int(np.sum(ratios > paper_ratio))
    lines = [
        f"Of {n} settings CF leaves {n_always} ({n_always / n:.0%}) unchanged "
        f"in every re-split, and {n_sometimes} in some of them.",
        f"Base efficiency is {sizes.min():.3f} to {sizes.max():.3f}: "
        f"{n_smaller} of {n} settings have smaller sets than {paper_efficiency:.3f}.",
        f"Base ratio is {ratios.min():.3f} to {ratios.max():.3f}: "
        f"{n_fairer} of {n} settings are fairer than {paper_ratio:.3f}.",
    ]
    return "\n".join(lines)


def newest_trials(path: Path) -> pd.DataFrame:
    """The trials of the newest search in a file.

    Parameters
    ----------
    path : Path
        Of `tuning.trials_path`.

    Returns
    -------
    DataFrame
        No rows where there is no file.

    Examples
    --------
    >>> newest_trials(Path("no_such_file.csv")).empty
    True
    """
    if not path.exists():
        return pd.DataFrame()
    stored = pd.read_csv(path, dtype={"key": str})
    newest = stored["key"].iloc[-1]
    return stored[stored["key"] == newest].drop(columns="key").reset_index(drop=True)


def search_table(trials: pd.DataFrame) -> pd.DataFrame:
    """The settings of a search, the best first.

    Parameters
    ----------
    trials : DataFrame
        Of `tuning.tune`, or its CSV file.

    Returns
    -------
    DataFrame
        A row per setting: epochs of the last rung it reached, seeds, means over them of
        loss and accuracy, how it ended, and the parameters. Settings that got further
        come first, then those with the lower loss.

    Examples
    --------
    >>> trials = pd.DataFrame(
    ...     {
    ...         "setting": [0, 1, 1],
    ...         "seed": [0, 0, 0],
    ...         "epochs": [30, 30, 100],
    ...         "value": [1.3, 1.1, 1.0],
    ...         "accuracy": [0.4, 0.5, 0.6],
    ...         "status": ["stopped", "went on", "finished"],
    ...         "lr": [0.1, 0.01, 0.01],
    ...     }
    ... )
    >>> search_table(trials)[["epochs", "loss", "status"]].to_numpy().tolist()
    [[100, 1.0, 'finished'], [30, 1.3, 'stopped']]
    """
    furthest = trials.groupby("setting")["epochs"].transform("max")
    last = trials[trials["epochs"] == furthest]
    names = [name for name in trials.columns if name not in NOT_PARAMETERS]
    taken = {"status": ("status", "first")} | {name: (name, "first") for name in names}
    table = last.groupby("setting").agg(
        epochs=("epochs", "first"),
        seeds=("seed", "nunique"),
        loss=("value", "mean"),
        accuracy=("accuracy", "mean"),
        **taken,
    )
    return table.sort_values(["epochs", "loss"], ascending=[False, True])


def draw_search(
    trials: Mapping[str, pd.DataFrame], reference: float | None = None
) -> Figure:
    """How the settings of some searches did from rung to rung.

    Parameters
    ----------
    trials : mapping
        By model; of `tuning.tune`, or its CSV file.
    reference : float, optional
        The validation loss of another model, drawn as a line.

    Returns
    -------
    Figure
        A panel per model: a line per setting, the mean over seeds of the validation loss
        against the epochs of the rungs. A cross ends the setting that was stopped, a star
        the one that has finished.

    Examples
    --------
    >>> columns = ["setting", "seed", "epochs", "value", "status"]
    >>> rows = [[0, 0, 30, 1.3, "stopped"], [1, 0, 30, 1.1, "finished"]]
    >>> figure = draw_search({"gcn": pd.DataFrame(rows, columns=columns)})
    >>> figure.axes[0].get_title()
    'GCN: 2 settings'
    >>> plt.close(figure)
    """
    if not trials:
        raise ValueError("trials: found none; wanted those of at least one model")
    width = 2.0 + 3.5 * len(trials)
    fig, axes = plt.subplots(
        1, len(trials), figsize=(width, 3.9), sharey=True, squeeze=False
    )
    rungs = sorted(set().union(*(rows["epochs"] for rows in trials.values())))
    for ax, (model, rows) in zip(axes[0], trials.items(), strict=True):
        for _, own in rows.groupby("setting"):
            _draw_trials(ax, own, rungs, COLOURS[model])
        if reference is not None:
            ax.axhline(reference, color="0.3", lw=1, ls="--")
        ax.set_xticks(range(len(rungs)), [str(epochs) for epochs in rungs])
        ax.set_xlim(-0.5, len(rungs) - 0.5)
        ax.set_title(f"{KIND_NAMES[model]}: {rows['setting'].nunique()} settings")
        ax.set_xlabel("epochs of the rung")
    axes[0, 0].set_ylabel("loss on the validation rows")
    fig.legend(handles=_search_marks(reference), loc="outside right center")
    return fig


def _draw_trials(ax: Axes, rows: pd.DataFrame, rungs: list[int], colour: str) -> None:
    """One setting: its seeds as dots, their means as a line, and how it ended."""
    beside = [rungs.index(epochs) - 0.08 for epochs in rows["epochs"]]
    ax.plot(beside, rows["value"], ".", color="0.7", ms=5)
    means = rows.groupby("epochs")["value"].mean()
    places = [rungs.index(epochs) for epochs in means.index]
    ax.plot(places, means, color=colour, lw=1.2)
    (status,) = rows.loc[rows["epochs"] == means.index[-1], "status"].unique()
    mark, size = STATUS_MARKS.get(status, WAITING)
    ax.plot(places[-1], means.iloc[-1], mark, color=colour, ms=size, mec="white")


def _search_marks(reference: float | None) -> list[Line2D]:
    """The legend of `draw_search`."""
    marks = [Line2D([], [], color="0.7", marker=".", ls="none", label="one seed")]
    marks.append(Line2D([], [], color="0.3", lw=1.2, label="a setting, mean"))
    for status, (mark, size) in STATUS_MARKS.items():
        look: dict[str, Any] = {
            "marker": mark,
            "color": "0.3",
            "mec": "white",
            "ms": size,
        }
        marks.append(Line2D([], [], ls="none", label=status, **look))
    if reference is not None:
        marks.append(Line2D([], [], color="0.3", lw=1, ls="--", label="XGBoost, untuned"))
    return marks


def base_models_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Base models beside each other: means over training splits.

    Parameters
    ----------
    rows : DataFrame
        Of `base_models.compare` or `base_models.load`, of one dataset.

    Returns
    -------
    DataFrame
        A row per model and its features, scaled or as they are; the number of training
        splits, and the means of the validation loss and of MEASURED.

    Examples
    --------
    >>> rows = pd.DataFrame({"model": ["gcn"], "settings": ['{"scaled": false}']})
    >>> rows = rows.assign(training_split=0, **dict.fromkeys(MEASURED, 0.5))
    >>> rows = rows.assign(valid_log_loss=1.0)
    >>> base_models_table(rows).index.tolist()
    [('gcn', 'as they are')]
    """
    named = rows.assign(features=[_features(row) for row in rows.to_dict("records")])
    groups = named.groupby(["model", "features"], sort=False)
    table = groups[["valid_log_loss", *MEASURED]].mean()
    table.insert(0, "training splits", groups["training_split"].nunique())
    return table


def _features(row: Mapping[Any, Any]) -> str:
    """Whether the features of a row's model were scaled, in words."""
    if row["model"] not in KIND_NAMES:
        return ""
    is_scaled = json.loads(row["settings"]).get("scaled", True)
    return "scaled" if is_scaled else "as they are"

"""Figures of models: how a search went, and what CFGNN gives by its setting."""

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from cfhelpers.study.cfgnn_settings import C

KIND_NAMES = {"gcn": "GCN", "sage": "GraphSAGE", "gat": "GAT"}
MARKS = {"gcn": "o", "sage": "s", "gat": "D"}
COLOURS = {"gcn": "C0", "sage": "C1", "gat": "C2"}
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
    Of 2 settings CF leaves 1 unchanged in every re-split, and 1 in some of them.
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
        f"Of {n} settings CF leaves {n_always} unchanged in every re-split, "
        f"and {n_sometimes} in some of them.",
        f"Base efficiency is {sizes.min():.3f} to {sizes.max():.3f}: "
        f"{n_smaller} of {n} settings have smaller sets than {paper_efficiency:.3f}.",
        f"Base ratio is {ratios.min():.3f} to {ratios.max():.3f}: "
        f"{n_fairer} of {n} settings are fairer than {paper_ratio:.3f}.",
    ]
    return "\n".join(lines)

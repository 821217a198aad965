"""The picture of an audit in a notebook: shares by group with their intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

MOST_ROWS = 60  # more cells than this are not drawn one by one


def plot_cells(cells: pd.DataFrame, closeness: float, ax: Any = None) -> Any:
    """Draw the cells of one metric, a line per group, labels one below the other.

    Parameters
    ----------
    cells : DataFrame
        Rows of `Audit.table` for one metric.
    closeness : float
        What is allowed; it stands in the title.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError(
            "plot needs matplotlib: pip install 'cfhelpers[plots]'"
        ) from None
    n_rows = len(cells)
    shown = cells
    if n_rows > MOST_ROWS:
        widest = _spread(cells).nlargest(1).index
        keys = cells.set_index(["label", "condition"]).index
        shown = cells[keys.isin(widest)]
    if ax is None:
        _, ax = plt.subplots(figsize=(7, 1 + 0.28 * len(shown)), layout="constrained")
    place = np.arange(len(shown))[::-1]
    share = shown["coverage"].to_numpy(float)
    low = shown["lower"].to_numpy(float)
    high = shown["upper"].to_numpy(float)
    ax.hlines(place, low, high, color="0.55", linewidth=3)
    ax.plot(share, place, "o", color="C0")
    ax.set_yticks(place, [_cell_name(cell) for _, cell in shown.iterrows()])
    ax.set_xlabel("share, with its interval")
    ax.set_title(f"{shown['metric'].iloc[0]}, allowed {closeness:g}")
    return ax


def _spread(cells: pd.DataFrame) -> pd.Series:
    """The distance between the highest and the lowest group, by label and condition."""
    shares = cells.groupby(["label", "condition"], sort=False)["coverage"]
    return shares.max() - shares.min()


def _cell_name(cell: pd.Series) -> str:
    """What stands beside a line; a dollar sign is no mathematics here."""
    name = f"{cell['group']} · {cell['label']} ({cell['condition']}, {cell['count']:,})"
    return name.replace("$", r"\$")

"""One look for every figure, and one way to save it."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from cfhelpers import paths

RULES = {"none": "the paper's rule", "fixed-sequence": "with a guarantee"}
MARKERS = "osD^vP*X<>"  # groups differ by shape as well as by colour


def use_style() -> None:
    """White grid, colours that colour-blind readers can tell apart, and inline figures small enough to commit."""
    sns.set_theme(style="whitegrid", palette="colorblind", font_scale=1.0)
    mpl.rcParams.update(
        {
            "figure.figsize": (7.0, 4.0),
            "figure.dpi": 80,
            "figure.constrained_layout.use": True,
            "savefig.dpi": 160,
            "axes.titlesize": 12,
            "axes.labelsize": 11,
            "legend.fontsize": 10,
            "legend.frameon": False,
            "pdf.fonttype": 42,
            "svg.hashsalt": "cfhelpers",
        }
    )


def save(fig: Figure, name: str, profile: str = "quick") -> Path:
    """Write <name>.png and .pdf where the profile's figures are, the same bytes each time; the path of the PNG."""
    for suffix, metadata in (
        ("png", {"Software": None}),
        ("pdf", {"CreationDate": None}),
    ):
        target = paths.figures(profile) / f"{name}.{suffix}"
        with paths.atomic_write(target) as partial:
            fig.savefig(partial, metadata=metadata)
    return target.with_suffix(".png")


def coverage_by_group(
    tables: dict[str, pd.DataFrame], label_names: Sequence[str], title: str = ""
) -> Figure:
    """Coverage of each label by group, one panel per table of `fairness.group_coverages`; a grey bar spans each gap."""
    fig, axes = plt.subplots(
        1, len(tables), figsize=(4.4 * len(tables), 3.8), sharey=True, squeeze=False
    )
    for ax, (name, table) in zip(axes[0], tables.items(), strict=True):
        values = table.pivot_table(
            index="label", columns="group", values=table.columns[-1], sort=False
        )
        low, width = values.min(axis=1), min(0.12 * values.shape[1], 0.7)
        ax.bar(
            range(len(values)),
            values.max(axis=1) - low,
            width,
            low,
            color="0.88",
            edgecolor="none",
        )
        for place, group in enumerate(values):
            shift = width * (place / max(values.shape[1] - 1, 1) - 0.5)
            x = [position + shift for position in range(len(values))]
            ax.plot(
                x, values[group], MARKERS[place % len(MARKERS)], markersize=7, label=group
            )
        ax.set(title=name, ylim=(-0.03, 1.03), xlim=(-0.5, len(values) - 0.5))
        ax.set_xticks(
            range(len(values)),
            [label_names[label].replace(" ", "\n") for label in values.index],
        )
        ax.grid(visible=False, axis="x")
    axes[0, 0].set_ylabel("coverage of the label")
    fig.legend(
        *axes[0, 0].get_legend_handles_labels(), title="group", loc="outside right center"
    )
    fig.suptitle(title)
    return fig


def price_of_fairness(
    frontiers: dict[str, list[pd.DataFrame]], outcomes: pd.DataFrame, title: str = ""
) -> Figure:
    """Left: mean set size against c. Right: the gaps that new people get.

    `frontiers` holds tables of `control.frontier` by guarantee, of which the first is drawn bold; `outcomes` has the
    columns rule (a guarantee), c and gap, of which medians and the 10th to 90th percentiles are drawn.
    """
    looks = {"none": ("C1", "--", "o"), "fixed-sequence": ("C0", "-", "s")}
    fig, (cost, gain) = plt.subplots(1, 2, figsize=(8.4, 4.2))
    widest, top = 1.08 * outcomes["c"].max(), 0.0
    for place, (guarantee, tables) in enumerate(frontiers.items()):
        color, line, marker = looks[guarantee]
        for table in reversed(tables):
            steps = table.sort_values("closeness")
            bold = (
                {"lw": 2.6, "label": RULES[guarantee]}
                if table is tables[0]
                else {"lw": 0.7, "alpha": 0.25}
            )
            size = steps["mean_set_size"].tolist()
            cost.plot(
                [*steps["closeness"], 1],
                [*size, size[-1]],
                line,
                color=color,
                drawstyle="steps-post",
                **bold,
            )
        gaps = (
            outcomes[outcomes["rule"] == guarantee]
            .groupby("c")["gap"]
            .quantile([0.1, 0.5, 0.9])
            .unstack()
        )
        x = gaps.index + (place - 0.5) * 0.016 * widest
        gain.vlines(x, gaps[0.1], gaps[0.9], color=color, lw=2)
        gain.plot(x, gaps[0.5], marker, color=color, ms=6, label=RULES[guarantee])
        top = max(top, 1.05 * gaps[0.9].max())
    cost.axhline(size[-1], color="0.35", lw=1.2, ls=":")
    cost.text(
        0.02 * widest,
        size[-1],
        "nothing asked of the gap",
        color="0.35",
        va="bottom",
        fontsize=10,
    )
    gain.fill_between(
        [0, widest], [0, widest], [widest, widest + top], color="C3", alpha=0.12, lw=0
    )
    gain.plot([0, widest], [0, widest], color="black", lw=1)
    gain.text(
        0.04 * widest,
        0.95 * top,
        "less fair than allowed",
        color="C3",
        va="top",
        fontweight="bold",
    )
    cost.set(
        title="What it costs (thin: other splits)",
        ylabel="labels in a set, on average",
        xlim=(0, widest),
    )
    gain.set(
        title="What new people get (over splits)",
        ylabel="gap between groups",
        xlim=(0, widest),
        ylim=(0, top),
    )
    for ax in (cost, gain):
        ax.set_xlabel("largest gap allowed, c     (stricter: to the left)")
        sns.despine(ax=ax)
    cost.legend(loc="upper right")
    gain.legend(loc="lower right")
    fig.suptitle(title, fontsize=13, fontweight="bold")
    return fig

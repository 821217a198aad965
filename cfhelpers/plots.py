"""One look for every figure, and one way to save it."""

from pathlib import Path

import matplotlib as mpl
import seaborn as sns
from matplotlib.figure import Figure

from cfhelpers import paths


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


def save(fig: Figure, name: str) -> Path:
    """Write figures/<name>.png and .pdf, the same bytes for the same figure; the path of the PNG."""
    for suffix, metadata in (("png", {"Software": None}), ("pdf", {"CreationDate": None})):
        target = paths.FIGURES / f"{name}.{suffix}"
        with paths.atomic_write(target) as partial:
            fig.savefig(partial, metadata=metadata)
    return paths.FIGURES / f"{name}.png"

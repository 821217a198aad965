"""Draw the README's first picture: whom the sets of two predictors leave out.

Of 100 real clients of each age group whose education ended with high school, a filled dot
is one whose set holds "high school".
"""

import argparse
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")

import matplotlib.pyplot as plt

from cfhelpers import FairConformalClassifier, load_dataset, plots
from cfhelpers.datasets import credit_probabilities

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "figures" / "readme" / "who_is_left_out.png"
LABEL = "high school"
GROUPS = ("25 or older", "under 25")


def shares() -> tuple[dict[tuple[str, str], float], dict[str, float]]:
    """What two predictors give the test clients.

    First, by predictor and group, of the clients with the label the share that gets it;
    then, by predictor, the mean number of labels in a set.
    """
    data = load_dataset("credit")
    probs, parts = credit_probabilities()
    calibration = parts == "calibration"
    label = data.label_names.index(LABEL)
    has_label = (parts == "test") & (data.y == label)
    options = {
        "one threshold for all": {"closeness": 1.0, "guarantee": "none"},
        "fair": {"closeness": 0.1},
    }
    found = {}
    sizes = {}
    for name, asked in options.items():
        predictor = FairConformalClassifier(random_state=0, **asked)
        predictor.fit(probs[calibration], data.y[calibration], data.groups[calibration])
        sets = predictor.predict_set(probs)
        sizes[name] = float(sets[parts == "test"].sum(axis=1).mean())
        for group in GROUPS:
            people = has_label & (data.groups == group)
            found[name, group] = float(sets[people, label].mean())
    return found, sizes


def draw(found: dict[tuple[str, str], float]) -> plt.Figure:
    """A hundred dots per predictor and group, filled where the label is in the set."""
    plots.use_style()
    names = list(dict.fromkeys(name for name, _ in found))
    fig, axes = plt.subplots(len(names), len(GROUPS), figsize=(8, 4.6))
    places = np.arange(100)
    for (name, group), ax in zip(found, axes.flat, strict=True):
        count = round(100 * found[name, group])
        inside = places < count
        for chosen, colour in ((inside, "C0"), (~inside, "0.85")):
            ax.scatter(places[chosen] % 20, -(places[chosen] // 20), s=70, color=colour)
        ax.set_title(f"{group}: {count} of 100", fontsize=13)
        ax.set(xticks=[], yticks=[], xlim=(-1, 20), ylim=(-4.8, 0.8))
        ax.grid(False)
        for side in ax.spines.values():
            side.set_visible(False)
    for name, row in zip(names, axes, strict=True):
        row[0].set_ylabel(name, fontsize=13)
    fig.suptitle(
        "Clients who finished at high school: who has “high school” in the set?\n"
        "Credit (real), test clients",
        fontsize=13,
    )
    return fig


def main(arguments: list[str] | None = None) -> None:
    """Command line: `first_picture.py [file]`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path, nargs="?", default=PICTURE)
    target = parser.parse_args(arguments).target
    target.parent.mkdir(parents=True, exist_ok=True)
    found, sizes = shares()
    draw(found).savefig(target, dpi=120, metadata={"Software": None})
    for (name, group), share in found.items():
        print(f"{name}, {group}: {share:.2f}")
    for name, size in sizes.items():
        print(f"{name}: {size:.2f} labels in a set")


if __name__ == "__main__":
    main()

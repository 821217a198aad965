"""The command `cfhelpers plan`: how many people a calibration set needs."""

import argparse
from pathlib import Path
from typing import Any

from cfhelpers.auditing.reading import list_items
from cfhelpers.paths import atomic_write
from cfhelpers.planning import plan


def add_parser(commands: Any) -> None:
    """Add the command to those of the command line."""
    command = commands.add_parser(
        "plan",
        help="how many people a calibration set needs",
        description="How many people a calibration set needs for a promise on closeness.",
        allow_abbrev=False,
    )
    command.add_argument(
        "--groups",
        required=True,
        help="shares of the people, such as women=0.4,men=0.6; names alone: equal shares",
    )
    command.add_argument("--labels", help="the same for labels that must be fair")
    command.add_argument("--metric", default="equal_opportunity")
    command.add_argument("--closeness", type=float, help="by default 0.1, for ratios 0.8")
    command.add_argument("--delta", type=float, default=0.1, help="of the promise")
    command.add_argument("--gap", type=float, help="the true disparity that is expected")
    command.add_argument("--power", type=float, default=0.8, help="chance of passing")
    command.add_argument(
        "--coverage", type=float, default=0.9, help="of the group that is covered best"
    )
    command.add_argument("--classwise", action="store_true", help="a threshold per label")
    command.add_argument("--curve", type=Path, help="CSV file for the chance by people")
    command.add_argument("--picture", type=Path, help="PNG or PDF file for the curve")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the plan; 0 if it worked, else an error that the command line tells."""
    labels = None if options.labels is None else shares(options.labels, "labels")
    found = plan(
        options.closeness,
        shares(options.groups, "groups"),
        options.metric,
        labels,
        options.delta,
        options.gap,
        options.power,
        coverage=options.coverage,
        classwise=options.classwise,
    )
    if options.picture:
        with atomic_write(options.picture) as partial:
            found.plot().savefig(partial)
    if options.curve:
        with atomic_write(options.curve) as partial:
            found.curve.to_csv(partial, index=False)
    print(found)
    print(found.cells.dropna(axis=1, how="all").to_string(index=False))
    return 0


def shares(text: str, name: str) -> Any:
    """Shares by name from text such as a=0.4,b=0.6; names alone are a list.

    Examples
    --------
    >>> shares("a=0.4, b=0.6", "groups")
    {'a': 0.4, 'b': 0.6}
    >>> shares("a,b", "groups")
    ['a', 'b']
    """
    items = list_items(text)
    if not any("=" in item for item in items):
        return items
    found: dict[str, float] = {}
    for item in items:
        key, _, value = item.rpartition("=")
        try:
            share = float(value)
        except ValueError:
            raise ValueError(f"{name}: found {item!r}; wanted name=share") from None
        if key.strip() in found or not key.strip():
            raise ValueError(f"{name}: found {item!r}; wanted name=share, each name once")
        found[key.strip()] = share
    return found

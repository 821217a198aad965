"""Conformal fairness: prediction sets whose coverage is close across groups."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_EXPORTS = {
    "FairConformalClassifier": "cfhelpers.predictor",
    "FairConformalRegressor": "cfhelpers.regression",
    "audit": "cfhelpers.auditing",
    "load_dataset": "cfhelpers.datasets",
    "Monitor": "cfhelpers.monitoring",
    "plan": "cfhelpers.planning",
}
__all__ = [
    "FairConformalClassifier",
    "FairConformalRegressor",
    "Monitor",
    "audit",
    "load_dataset",
    "plan",
]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, so that `import cfhelpers` costs nothing."""
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_EXPORTS])

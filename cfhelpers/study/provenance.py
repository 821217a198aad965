"""The last cell of a notebook: what it ran with."""

import platform
import sys
import time
from importlib import metadata
from typing import Any

from cfhelpers import __version__

PACKAGES = ("numpy", "pandas", "scipy", "scikit-learn", "matplotlib")
WHERE_USED = ("xgboost", "torch", "torch_geometric", "ray")
_started = time.perf_counter()


def report(data: str, **parameters: Any) -> None:
    """Print the versions, the parameters, the data's source, and the seconds since this module was imported."""
    versions = {"Python": platform.python_version(), "cfhelpers": __version__}
    versions |= {name: metadata.version(name) for name in PACKAGES}
    versions |= {
        name: metadata.version(name) for name in WHERE_USED if name in sys.modules
    }
    print(
        "versions    "
        + " · ".join(f"{name} {version}" for name, version in versions.items())
    )
    print(
        "parameters  "
        + " · ".join(f"{name} = {value}" for name, value in parameters.items())
    )
    print(f"data        {data}")
    print(f"wall time   {time.perf_counter() - _started:.0f} s")

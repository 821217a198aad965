"""The last cell of a notebook: what it ran with."""

import platform
import sys
import time
from importlib import metadata

from cfhelpers import __version__

PACKAGES = ("numpy", "pandas", "scipy", "scikit-learn", "matplotlib")
WHERE_USED = ("xgboost", "torch", "torch_geometric", "ray")
_started = time.perf_counter()


def report(data: str, **parameters: object) -> None:
    """Print the versions, the parameters, the data's source, and the time it took.

    Parameters
    ----------
    data : str
        What the data are and where they come from.
    **parameters
        The notebook's parameters, by name.

    Examples
    --------
    >>> report("simulated", seed=0)  # doctest: +ELLIPSIS
    versions    Python ... · cfhelpers ... · numpy ...
    parameters  seed = 0
    data        simulated
    wall time   ... s
    """
    versions = {"Python": platform.python_version(), "cfhelpers": __version__}
    for name in PACKAGES:
        versions[name] = metadata.version(name)
    for name in WHERE_USED:
        if name in sys.modules:
            versions[name] = metadata.version(name)
    shown_versions = [f"{name} {version}" for name, version in versions.items()]
    shown_parameters = [f"{name} = {value}" for name, value in parameters.items()]
    print("versions    " + " · ".join(shown_versions))
    print("parameters  " + " · ".join(shown_parameters))
    print(f"data        {data}")
    print(f"wall time   {time.perf_counter() - _started:.0f} s")

"""Ray: how it is started, or the sentence that says it is missing."""

import logging
import os
from typing import Any

ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0"}  # Ray sends nothing out


def connected(address: str | None, argument: str, extra: str) -> Any:
    """The package ray, connected; `argument` asked for it, `extra` installs it."""
    os.environ.update(ENVIRONMENT)
    try:
        import ray
    except ImportError:
        raise ImportError(
            f"{argument}: Ray is not installed; pip install 'cfhelpers[{extra}]'"
        ) from None
    if not ray.is_initialized():
        start(ray, address)
    return ray


def start(ray: Any, address: str | None) -> None:
    """Connect to the cluster at `address`, or start one here, in up to three attempts.

    Ray gives its own parts 15 s to start; on a busy machine that may be too little.
    """
    if address:
        place: dict[str, Any] = {"address": address}
        attempts = 1
    else:
        place = {"address": "local", "include_dashboard": False}
        attempts = 3
    for attempt in range(1, attempts + 1):
        try:
            ray.init(**place, log_to_driver=False, logging_level=logging.ERROR)
            return
        except Exception:
            ray.shutdown()
            if attempt == attempts:
                raise

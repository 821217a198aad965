"""Independent pieces of long work, beside each other on Ray's workers.

A piece is a call of one function. What several of them share, such as a dataset, reaches
each worker once.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from cfhelpers._ray import ENVIRONMENT
from cfhelpers._ray import start as _start


class Workers:
    """Ray's workers: those that are there, a cluster's, or some for the meantime.

    Parameters
    ----------
    function : function
        What a worker calls, with the values of a unit and of `shared`, by name.
    shared : mapping
        Arguments that are the same for all units.
    address : str, optional
        A Ray cluster whose nodes have cfhelpers; None: this machine.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        shared: Mapping[str, Any],
        address: str | None = None,
    ) -> None:
        self.function = function
        self.shared = shared
        self.address = address
        self.is_started_here = False

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *error: Any) -> None:
        if self.is_started_here:
            import ray

            ray.shutdown()

    def results(self, units: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, Any]]:
        """(place, what a unit gave or why it failed), as units end."""
        if not units:
            return
        os.environ.update(ENVIRONMENT)
        import ray

        if not ray.is_initialized():
            _start(ray, self.address)
            self.is_started_here = True
        gpus = min(1, ray.cluster_resources().get("GPU", 0))
        task = ray.remote(self.function).options(num_cpus=1, num_gpus=gpus)
        shared = {name: ray.put(value) for name, value in self.shared.items()}
        places = {}
        for place, unit in enumerate(units):
            places[task.remote(**unit, **shared)] = place
        waiting = list(places)
        while waiting:
            (finished,), waiting = ray.wait(waiting)
            try:
                yield places[finished], ray.get(finished)
            except ray.exceptions.RayError as error:
                yield places[finished], error


def results(
    function: Callable[..., Any],
    units: Sequence[Mapping[str, Any]],
    shared: Mapping[str, Any],
    jobs: int = 1,
) -> Iterator[tuple[int, Any]]:
    """(place, what a unit gave), as units end; the first that fails ends the work.

    Parameters
    ----------
    function : function
    units : sequence of mappings
        The arguments of each call, by name.
    shared : mapping
        Arguments of every call.
    jobs : int
        1: in this process, one unit after the other; more: beside each other by Ray, on
        as many processors as there are.

    Yields
    ------
    place : int
    result

    Examples
    --------
    >>> list(results(pow, [{"exp": 2}, {"exp": 3}], {"base": 10}))
    [(0, 100), (1, 1000)]
    """
    if jobs == 1 or len(units) < 2:
        for place, unit in enumerate(units):
            yield place, function(**unit, **shared)
        return
    with Workers(function, shared) as workers:
        for place, found in workers.results(units):
            if isinstance(found, Exception):
                raise found
            yield place, found

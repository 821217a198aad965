"""How loops are compiled: once per machine, or once per process where nothing is kept."""

from collections.abc import Callable, Sequence
from typing import Any


def compile_loop(
    loop: Callable[..., Any], signatures: Sequence[Any], **options: Any
) -> Callable[..., Any]:
    """A loop compiled by Numba for these types, and kept on disk for the next process.

    Where Numba finds no folder that it can write, every process compiles anew.
    """
    from numba import njit

    try:
        return njit(signatures, cache=True, **options)(loop)
    except RuntimeError:  # no folder for Numba's cache
        return njit(signatures, **options)(loop)

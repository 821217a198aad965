"""Large tables a block of rows at a time: what is done to a block stays in the cache.

Several small steps over one block read the table from memory once, and need no second
table beside it. Every block is done by itself, so the result is the same bits however
many threads share the blocks out.
"""

import collections
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

VALUES_AT_ONCE = 1 << 17  # half a megabyte, or one
# From here on it pays to start threads: for work of a nanosecond a value, and of ten.
MANY_VALUES = 1 << 23
MANY_RANKED_VALUES = 1 << 20


def in_blocks(
    work: Callable[[slice], None],
    shape: tuple[int, ...],
    values_at_once: int = VALUES_AT_ONCE,
    many_values: int = MANY_VALUES,
) -> None:
    """Call `work` with slices that together are all rows of a table (n, K).

    Threads share them out where there are many values.
    """
    n, n_columns = shape
    step = max(1, values_at_once // n_columns)
    starts = iter(range(0, n, step))

    def do_what_is_left() -> None:
        for first in starts:  # threads take from one iterator what nobody has taken
            try:
                work(slice(first, min(first + step, n)))
            except BaseException:
                collections.deque(starts, maxlen=0)  # nothing is left for the others
                raise

    if n * n_columns < many_values or n <= step:
        do_what_is_left()
        return
    n_threads = allowed_threads()
    if n_threads == 1:
        do_what_is_left()
        return
    with ThreadPoolExecutor(n_threads) as pool:
        parts = [pool.submit(do_what_is_left) for _ in range(n_threads)]
    for part in parts:
        part.result()


def allowed_threads() -> int:
    """How many threads to start: OMP_NUM_THREADS where it is set, as NumPy's BLAS does.

    Otherwise as many as there are processors for this process. One where the caller is
    itself one of several threads, and in a browser.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or sys.platform == "emscripten":
        return 1
    if hasattr(os, "sched_getaffinity"):
        n_processors = len(os.sched_getaffinity(0))
    else:
        n_processors = os.cpu_count() or 1
    named = os.environ.get("OMP_NUM_THREADS", "")
    if named.isdigit() and int(named) > 0:
        return min(int(named), n_processors)
    return n_processors

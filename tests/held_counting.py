"""Counting that waits where a test wants it to, in Ray's workers too.

The folder that HELD_COUNTING names holds a file `hold-NAME` for every data file whose
counting waits; when that file is gone it goes on. Begin and end of every count are noted
there as files.
"""

import os
import time
import uuid
from pathlib import Path

from cfhelpers import _counting

count_and_keep = _counting.count_and_keep


def held(file, **options):
    """`count_and_keep`, noted, and held where there is a `hold-NAME`."""
    notes = Path(os.environ["HELD_COUNTING"])
    name = Path(file).stem
    (notes / f"begin-{name}-{os.getpid()}").touch()
    while (notes / f"hold-{name}").exists():
        time.sleep(0.05)
    found = count_and_keep(file, **options)
    (notes / f"end-{name}-{uuid.uuid4()}").touch()
    return found


def hold() -> None:
    """From now on files are counted by `held`."""
    _counting.count_and_keep = held

"""The counts of every file, kept on disk: whole or not at all, and for that very file.

A run that was stopped goes on from them; a file that changed has other ones.
"""

import contextlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cfhelpers import _cache
from cfhelpers._binned import ScoreCounts
from cfhelpers._parquet import Layout, arrow, identity


def _key(
    who: Mapping[str, Any], layout: Layout, edges: np.ndarray, is_noted: np.ndarray
) -> str:
    """All that the counts of a file depend on; of edges and notes the fingerprint."""
    key = {"file": who, "layout": repr(layout), "edges": edges, "noted": is_noted}
    return _cache.key_text("scale", key, "cfhelpers._parquet")


def _kept_path(folder: Path, text: str) -> Path:
    return folder / _cache.cache_path("counts", text).name


def keep(
    found: ScoreCounts,
    who: Mapping[str, Any],
    layout: Layout,
    edges: np.ndarray,
    is_noted: np.ndarray,
    folder: Path,
) -> None:
    """Write the counts of a file, whole or not at all."""
    text = _key(who, layout, edges, is_noted)
    arrays = {
        "counts": found.counts,
        "values": found.values,
        "kinds": found.kinds,
        "groups": _names_as_bytes(found.group_names, len(layout.groups)),
    }
    _cache.store(_kept_path(folder, text), text, arrays)


def is_kept(
    file: Path, layout: Layout, edges: np.ndarray, is_noted: np.ndarray, folder: Path
) -> bool:
    """Whether there are counts of this very file."""
    try:
        text = _key(identity(file), layout, edges, is_noted)
    except OSError:
        return False
    return _kept_path(folder, text).is_file()


def read_kept(
    file: Path, layout: Layout, edges: np.ndarray, is_noted: np.ndarray, folder: Path
) -> ScoreCounts | None:
    """The counts that are kept of this very file; None where there are none."""
    try:
        text = _key(identity(file), layout, edges, is_noted)
    except OSError:
        return None
    arrays = _cache.read(_kept_path(folder, text), text)
    if arrays is None:
        return None
    return ScoreCounts(
        counts=arrays["counts"],
        edges=edges,
        label_names=list(layout.label_names),
        group_names=_names_from_bytes(arrays["groups"]),
        is_noted=is_noted,
        values=arrays["values"],
        kinds=arrays["kinds"],
    )


def look_key(first_file: Path, layout: Layout, alpha: float, edges: np.ndarray) -> str:
    """What a look at q̂ belongs to: not what is in the files, nor how many there are."""
    key = {
        "first file": str(first_file.resolve()),
        "layout": repr(layout),
        "alpha": alpha,
        "edges": edges,
    }
    return _cache.key_text("look", key, "cfhelpers._parquet")


def _look_path(folder: Path, text: str) -> Path:
    return folder / _cache.cache_path("look", text).name


def keep_look(folder: Path, text: str, around: np.ndarray) -> None:
    """Write between which numbers q̂ seemed to lie, for the next run over these files.

    Bins end there. After a file has changed, a new look would give other bins, and the
    counts of all other files would be of no use.
    """
    with contextlib.suppress(OSError):  # counting tells of a folder that keeps nothing
        _cache.store(_look_path(folder, text), text, {"around": around})


def read_look(folder: Path, text: str) -> np.ndarray | None:
    """What `keep_look` wrote; None where there is nothing."""
    arrays = _cache.read(_look_path(folder, text), text)
    return None if arrays is None else arrays["around"]


def _names_as_bytes(names: list[Any], n_columns: int) -> np.ndarray:
    """Names of groups with their types: an Arrow table as bytes."""
    pa, _ = arrow()
    columns = {}
    for place in range(n_columns):
        values = [name if n_columns == 1 else name[place] for name in names]
        columns[str(place)] = pa.array(values, _arrow_type(values))
    table = pa.table(columns)
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    return np.frombuffer(stream.getvalue(), np.uint8)


def _arrow_type(values: list[Any]) -> Any:
    """The type of names for which pyarrow finds one that loses some; None otherwise."""
    pa, _ = arrow()
    for value in values:
        if isinstance(value, pd.Timestamp):
            return pa.timestamp("ns", value.tz)
        if isinstance(value, pd.Timedelta):
            return pa.duration("ns")
        if isinstance(value, int) and value > np.iinfo(np.int64).max:
            return pa.uint64()
    return None


def _names_from_bytes(data: np.ndarray) -> list[Any]:
    """The names that `_names_as_bytes` wrote."""
    pa, _ = arrow()
    table = pa.ipc.open_stream(data.tobytes()).read_all()
    columns = [column.to_pylist() for column in table.columns]
    if len(columns) == 1:
        return columns[0]
    return list(zip(*columns, strict=True))

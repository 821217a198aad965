"""Pokec-n and Pokec-z: users of a Slovak social network, in FairGNN's raw format."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from cfhelpers import paths
from cfhelpers.datasets._dataset import (
    Dataset,
    Source,
    choose_source,
    group_by,
    symmetric,
    undirected,
)
from cfhelpers.datasets._files import (
    fetch,
    local_folders,
    named_in_errors,
    not_found,
)
from cfhelpers.datasets._formats import SIZES, STEMS, TARGET, pokec_names
from cfhelpers.datasets.simulated import pokec_files

if TYPE_CHECKING:
    import scipy.sparse as sp

__all__ = [
    "GROUPS",
    "SIZES",
    "STEMS",
    "TARGET",
    "RawGraph",
    "lines",
    "load",
    "prepare",
    "read",
    "read_graph",
    "users",
]

SOURCES = (Source.SIMULATED, Source.LOCAL, Source.DOWNLOAD)
URL = "https://raw.githubusercontent.com/EnyanDai/FairGNN/main/dataset/pokec"
MOST_FIELDS = 999  # of work; the files have a handful
GROUPS = {
    "region": np.array(["region 0", "region 1"]),
    "gender": np.array(["women", "men"]),
}
PAPER_CLASSES = 4
LICENCE = "none stated; public profiles, collected for research (SNAP soc-Pokec)"
CITATION = (
    "Takac and Zabovsky (2012), Data analysis in public social networks; "
    "sampled by Dai and Wang (2021), FairGNN"
)


@dataclass(frozen=True, eq=False)
class RawGraph:
    """Users, undirected edges between their rows (2, E), and what a card says of them."""

    users: pd.DataFrame
    edges: np.ndarray
    dropped: dict[str, int] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def load(
    name: str,
    source: str | None = None,
    *,
    attribute: str | Sequence[str] | None = None,
    n: int = 10_000,
    seed: int = 0,
) -> Dataset:
    """Pokec, with the field of work as the target.

    Users who name no field of work have y = -1. A local pokec_n.npz holds the real graph
    without most of the profiles; features are then structural.

    Parameters
    ----------
    name : "pokec_n" or "pokec_z"
    source : "simulated" (default), "local" or "download"
    attribute : "region" (default), "gender", or both
    n, seed : int
        Size and seed of the simulated users.

    Returns
    -------
    Dataset
    """
    chosen_source = choose_source(name, source, SOURCES)
    if chosen_source == Source.SIMULATED:
        raw = read(*pokec_files(name, n, seed))
    elif chosen_source == Source.DOWNLOAD:
        raw = read(*download(name))
    else:
        raw = _read_local(name)
    return prepare(name, chosen_source, attribute, raw)


def download(name: str) -> tuple[Path, Path]:
    """User file and relationship file from FairGNN, checked before they are kept."""
    n_users, n_lines = SIZES[name]
    users_name, lines_name = pokec_names(name)
    folder = paths.DATA / "pokec"

    def check_users(path: Path) -> None:
        users(path, n_users)

    def check_lines(path: Path) -> None:
        lines(path, n_lines)

    users_path = fetch(f"{URL}/{users_name}", folder / users_name, check_users)
    lines_path = fetch(f"{URL}/{lines_name}", folder / lines_name, check_lines)
    return users_path, lines_path


def _read_local(name: str) -> RawGraph:
    """From the first local folder that has FairGNN's two files, or the graph alone."""
    users_name, lines_name = pokec_names(name)
    graph_name = f"{name}.npz"
    tried = []
    for folder in local_folders():
        for root in (folder / "pokec", folder / "dataset" / "pokec", folder):
            if (root / users_name).exists() and (root / lines_name).exists():
                return read(root / users_name, root / lines_name)
            if (root / graph_name).exists():
                return read_graph(root / graph_name)
            tried += [root / users_name, root / lines_name, root / graph_name]
    raise not_found(name, tried)


def users(path: Path, size: int | None = None) -> pd.DataFrame:
    """The user file, one row each; a ValueError says what is not as it should be."""
    with named_in_errors(path):
        frame = pd.read_csv(path)
        _check_users(frame)
    return _all_users(frame, size)


def _check_users(frame: pd.DataFrame) -> None:
    """A ValueError for what is no number, and for codes that there are not."""
    for name in frame:
        if not pd.api.types.is_numeric_dtype(frame[name]):
            is_wrong = pd.to_numeric(frame[name], errors="coerce").isna().to_numpy()
            row = int(is_wrong.argmax())
            raise ValueError(
                f"column {name} has {frame[name].iloc[row]!r} in row {row}; "
                "wanted a number"
            )
    largest = {kind: len(names) - 1 for kind, names in GROUPS.items()}
    largest[TARGET] = MOST_FIELDS
    for name in [name for name in largest if name in frame]:
        least = -99 if name == TARGET else 0  # below 0: unknown
        is_wrong = ~frame[name].between(least, largest[name]).to_numpy()
        is_wrong |= (frame[name] % 1 != 0).to_numpy()
        if is_wrong.any():
            row = int(is_wrong.argmax())
            raise ValueError(
                f"{name} is {frame[name].iloc[row]:g} in row {row}; wanted a whole "
                f"number from {least} to {largest[name]}"
            )


def _all_users(frame: pd.DataFrame, size: int | None) -> pd.DataFrame:
    """The users, if every column and each of them is there."""
    absent = [name for name in ("user_id", *GROUPS, TARGET) if name not in frame]
    if absent:
        raise ValueError(f"user file: no column {', '.join(absent)}")
    is_whole = size is None or len(frame) == size
    if not is_whole or not frame["user_id"].is_unique:
        found = f"{len(frame):,} rows, {frame['user_id'].nunique():,} users"
        raise ValueError(f"user file: {found}; wanted {size or 'each once'}")
    return frame


def lines(path: Path, size: int | None = None) -> np.ndarray:
    """The relationship file: pairs of user ids, int64 (lines, 2)."""
    with named_in_errors(path):
        table = pd.read_csv(path, sep=r"\s+", header=None)
        pairs = table.to_numpy(dtype=np.int64)
    is_whole = size is None or len(pairs) == size
    if not is_whole or pairs.shape[1] != 2:
        raise ValueError(
            f"relationship file: {len(pairs):,} lines of {pairs.shape[1]}; "
            f"wanted {size or 'any'} of 2"
        )
    return pairs


def read(users_path: Path, lines_path: Path) -> RawGraph:
    """Users and edges from FairGNN's two files.

    Parameters
    ----------
    users_path, lines_path : Path
        The user file and the relationship file.

    Returns
    -------
    RawGraph
    """
    frame = users(users_path)
    pairs = lines(lines_path)
    rows = pd.Index(frame["user_id"]).get_indexer(pairs.ravel()).reshape(-1, 2)
    known = rows[(rows >= 0).all(axis=1)]
    edges = undirected(known.T, len(frame))
    n_loops = int((known[:, 0] == known[:, 1]).sum())
    dropped = {
        "friendships with users outside the file": len(pairs) - len(known),
        "friendships with oneself": n_loops,
        "repeated or reverse lines": len(known) - n_loops - edges.shape[1],
    }
    dropped = {reason: n for reason, n in dropped.items() if n}
    return RawGraph(frame, edges, dropped)


def read_graph(path: Path, dimensions: int = 32) -> RawGraph:
    """Users and edges of the real graph, with features from edges and profiles.

    Features are the profile, the degree, the mean of both over the neighbours, and
    coordinates in the graph (`_coordinates`); none knows of the labels.

    Parameters
    ----------
    path : Path
        An npz file with row, col (edges), label and the columns of the profile.
    dimensions : int
        How many coordinates.

    Returns
    -------
    RawGraph
    """
    import scipy.sparse as sp

    with np.load(path) as arrays:
        profile = {key: arrays[key] for key in arrays if key not in ("row", "col")}
        edges = np.stack([arrays["row"], arrays["col"]])
    frame = pd.DataFrame(profile)
    label = frame.pop("label").rename(TARGET)
    X = frame.astype(np.float32)
    ones = np.ones(2 * edges.shape[1], np.float32)
    adjacency = sp.coo_array((ones, symmetric(edges)), (len(X), len(X))).tocsr()
    X["degree"] = adjacency.sum(axis=1)
    root_inverse = sp.diags_array(1 / np.sqrt(X["degree"].clip(1).to_numpy()))
    neighbours = pd.DataFrame(
        root_inverse @ (root_inverse @ (adjacency @ X.to_numpy())),
        columns=[f"neighbours_{name}" for name in X],
    )
    coordinates = pd.DataFrame(
        _coordinates(adjacency, dimensions),
        columns=[f"coordinate_{place}" for place in range(dimensions)],
    )
    return RawGraph(
        pd.concat([X, neighbours, coordinates, label], axis=1),
        edges,
        missing=("most profile features",),
        notes=(f"features from the graph in {path.name}",),
    )


def _coordinates(
    adjacency: "sp.csr_array", dimensions: int, steps: int = 16, seed: int = 0
) -> np.ndarray:
    """Where each user is in the graph: alike for users whose long walks meet.

    Each user starts with random signs and takes the mean of the neighbours, many times;
    what all users have in common is taken off, and each row is brought to length 1. An
    embedding by singular vectors would spend most of its columns on the few users outside
    the largest component, and would be another one on another processor. These sums are
    rounded to four places, so that a last bit does not matter.
    """
    import scipy.sparse as sp

    degrees = adjacency.sum(axis=1, dtype=np.float64)
    mean_of_neighbours = sp.diags_array(1 / np.maximum(degrees, 1)) @ adjacency
    share = degrees / max(degrees.sum(), 1)
    signs = np.random.default_rng(seed).integers(0, 2, (len(degrees), dimensions))
    at = 2.0 * signs - 1
    for _ in range(steps):
        at = mean_of_neighbours @ at
        at -= share @ at
    at[degrees == 0] = 0
    length = np.linalg.norm(at, axis=1, keepdims=True)
    tiny = np.finfo(np.float64).tiny
    return np.round(at / np.maximum(length, tiny), 4)


def prepare(
    name: str, source: str, attribute: str | Sequence[str] | None, raw: RawGraph
) -> Dataset:
    """Labels, groups and features of the users.

    The target, the id and whatever tells the chosen attribute are no features.

    Parameters
    ----------
    name, source, attribute
        As in `load`.
    raw : RawGraph
        As `read` or `read_graph` gives it.

    Returns
    -------
    Dataset
    """
    target = raw.users[TARGET].to_numpy(dtype=np.int64)
    n_classes = int(target.max()) + 1
    kinds = {}
    for kind, names in GROUPS.items():
        kinds[kind] = names[raw.users[kind].to_numpy().astype(int)]
    grouping = group_by(kinds, attribute)
    left_out = ["user_id", TARGET]
    for kind in grouping.attributes:
        left_out += [kind, f"neighbours_{kind}"]
    notes = raw.notes
    if n_classes != PAPER_CLASSES and not notes:
        notes = (f"{n_classes} fields of work in the file; the paper says 4",)
    is_real = source != Source.SIMULATED
    return Dataset(
        name=name,
        source=source,
        X=raw.users.drop(columns=left_out, errors="ignore").astype(np.float32),
        y=np.maximum(target, -1),
        groups=grouping.groups,
        group_names=grouping.names,
        label_names=tuple(f"field {label}" for label in range(n_classes)),
        attribute=grouping.attribute,
        edge_index=symmetric(raw.edges),
        dropped=raw.dropped,
        missing=raw.missing,
        notes=notes,
        licence=LICENCE if is_real else "",
        citation=CITATION if is_real else "",
    )

"""Pokec-n and Pokec-z: users of a Slovak social network, their profiles and friendships, in FairGNN's raw format."""

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from cfhelpers import paths
from cfhelpers.datasets._dataset import Dataset, group_by, symmetric, undirected
from cfhelpers.datasets._files import fetch, local_folders, not_found

URL = "https://raw.githubusercontent.com/EnyanDai/FairGNN/main/dataset/pokec"
STEMS = {"pokec_n": "region_job_2", "pokec_z": "region_job"}
SIZES = {
    "pokec_n": (66_569, 729_129),
    "pokec_z": (67_797, 882_765),
}  # users, lines of the relationship file
TARGET = "I_am_working_in_field"
GROUPS = {
    "region": np.array(["region 0", "region 1"]),
    "gender": np.array(["women", "men"]),
}
LICENCE = "none stated; public profiles, collected for research (SNAP soc-Pokec)"
CITATION = "Takac and Zabovsky (2012), Data analysis in public social networks; sampled by Dai and Wang (2021), FairGNN"


def load(name, source=None, *, attribute=None, n=10_000, seed=0) -> Dataset:
    """Pokec as a `Dataset`, groups by "region" (default), "gender" or both; source simulated, local or download.

    Users who name no field of work have y = -1. A local pokec_n.npz holds the real graph without most of the profiles:
    its features are then structural. `n`, `seed`: of the simulated users.
    """
    attribute, source = (
        "region" if attribute is None else attribute,
        source or "simulated",
    )
    files = [f"{STEMS[name]}.csv", f"{STEMS[name]}_relationship.txt"]
    if source == "simulated":
        from cfhelpers.datasets.simulated import pokec_files

        return prepare(name, source, attribute, *read(*pokec_files(name, n, seed)))
    if source == "download":
        checks = [
            partial(users, size=SIZES[name][0]),
            partial(lines, size=SIZES[name][1]),
        ]
        pair = [
            fetch(f"{URL}/{f}", paths.DATA / "pokec" / f, check)
            for f, check in zip(files, checks, strict=True)
        ]
        return prepare(name, source, attribute, *read(*pair))
    if source != "local":
        raise ValueError(
            f"source: found {source!r}; {name} has 'simulated', 'local' and 'download'"
        )
    roots = [
        place
        for folder in local_folders()
        for place in (folder / "pokec", folder / "dataset" / "pokec", folder)
    ]
    for root in roots:
        if all((root / file).exists() for file in files):
            return prepare(
                name, source, attribute, *read(root / files[0], root / files[1])
            )
        if (root / f"{name}.npz").exists():
            return prepare(name, source, attribute, *read_graph(root / f"{name}.npz"))
    raise not_found(
        name, [root / file for root in roots for file in (*files, f"{name}.npz")]
    )


def users(path: Path, size: int | None = None) -> pd.DataFrame:
    """The user file, one row each; a ValueError says what is not as it should be."""
    frame = pd.read_csv(path)
    if absent := [c for c in ("user_id", *GROUPS, TARGET) if c not in frame]:
        raise ValueError(f"user file: no column {', '.join(absent)}")
    if not frame["user_id"].is_unique or len(frame) != (size or len(frame)):
        found = f"{len(frame):,} rows, {frame['user_id'].nunique():,} users"
        raise ValueError(f"user file: {found}; wanted {size or 'each once'}")
    return frame


def lines(path: Path, size: int | None = None) -> np.ndarray:
    """The relationship file: pairs of user ids, int64 (lines, 2)."""
    pairs = pd.read_csv(path, sep=r"\s+", header=None).to_numpy(dtype=np.int64)
    if pairs.shape != (size or len(pairs), 2):
        raise ValueError(
            f"relationship file: {len(pairs):,} lines of {pairs.shape[1]}; wanted {size or 'any'} of 2"
        )
    return pairs


def read(users_path: Path, lines_path: Path) -> tuple[pd.DataFrame, np.ndarray, dict]:
    """Users, undirected edges between their rows (2, E), and what was dropped on the way."""
    frame, pairs = users(users_path), lines(lines_path)
    rows = pd.Index(frame["user_id"]).get_indexer(pairs.ravel()).reshape(-1, 2)
    known = rows[(rows >= 0).all(axis=1)]
    edges = undirected(known.T, len(frame))
    dropped = {
        "friendships with users outside the file": len(pairs) - len(known),
        "friendships with oneself": (loops := int((known[:, 0] == known[:, 1]).sum())),
        "repeated or reverse lines": len(known) - loops - edges.shape[1],
    }
    return frame, edges, {"dropped": {reason: n for reason, n in dropped.items() if n}}


def read_graph(path: Path, dimensions: int = 32) -> tuple[pd.DataFrame, np.ndarray, dict]:
    """Users and edges of the real graph, with features from edges and profiles, never from labels.

    Degree, the neighbours' mean degree and profile, and a spectral embedding.
    """
    import scipy.sparse as sp
    from sklearn.decomposition import TruncatedSVD

    with np.load(path) as arrays:
        frame = pd.DataFrame(
            {key: arrays[key] for key in arrays if key not in ("row", "col")}
        )
        edges = np.stack([arrays["row"], arrays["col"]])
    y, X = frame.pop("label"), frame.astype(np.float32)
    adjacency = sp.coo_array(
        (np.ones(2 * edges.shape[1], np.float32), symmetric(edges)), (len(X), len(X))
    ).tocsr()
    X["degree"] = adjacency.sum(axis=1)
    inverse = sp.diags_array(1 / np.sqrt(X["degree"].clip(1).to_numpy()))
    around = pd.DataFrame(
        inverse @ (inverse @ (adjacency @ X.to_numpy())),
        columns=[f"neighbours_{c}" for c in X],
    )
    spectral = TruncatedSVD(dimensions, random_state=0).fit_transform(
        inverse @ adjacency @ inverse
    ) * np.sqrt(len(X))
    spectral = pd.DataFrame(
        spectral, columns=[f"spectral_{i}" for i in range(dimensions)]
    )
    notes = {
        "missing": ("most profile features",),
        "notes": (f"features from the graph in {path.name}",),
    }
    return pd.concat([X, around, spectral, y.rename(TARGET)], axis=1), edges, notes


def prepare(name, source, attribute, frame, edges, extra) -> Dataset:
    """Labels, groups and features; the target, the id and whatever tells the chosen attribute are no features."""
    y = frame[TARGET].to_numpy(dtype=np.int64)
    groups = group_by(
        {kind: names[frame[kind].astype(int)] for kind, names in GROUPS.items()},
        attribute,
    )
    out = [
        "user_id",
        TARGET,
        *(
            place + kind
            for kind in groups["attribute"].split(" × ")
            for place in ("", "neighbours_")
        ),
    ]
    if (K := y.max() + 1) != 4:
        extra = {"notes": (f"{K} fields of work in the file; the paper says 4",)} | extra
    return Dataset(
        name=name,
        source=source,
        X=frame.drop(columns=out, errors="ignore").astype(np.float32),
        y=np.maximum(y, -1),
        **groups,
        label_names=tuple(f"field {k}" for k in range(K)),
        edge_index=symmetric(edges),
        licence="" if source == "simulated" else LICENCE,
        citation="" if source == "simulated" else CITATION,
        **extra,
    )

"""Move results of the former caches to the one cache: `python tools/move_cache.py`, once.

Moved are models of XGBoost (artifacts/*.npz, which hold their inputs but nothing of their
code) and the edges of Credit (artifacts/credit_edges_*.npy). Before anything moves, the
smallest few of them are computed anew; if one comes out differently, all stay where they
are. Graph models and CFGNN stay: they are trained in another way since.

Rows (artifacts/runs/*.parquet) cannot be moved: their names are digests of inputs and of
the code of that time, and the files hold neither. They are computed again when they are
asked for; the files may be deleted.
"""

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cfhelpers import _cache, paths
from cfhelpers._cache import Arrays, fingerprint
from cfhelpers.datasets import Dataset, credit, load_dataset, split
from cfhelpers.study import experiments, training

CLOSE = 1e-6  # probabilities that are so close are the same: threads may sum in any order
TRAINING = "cfhelpers.study.training"
CREDIT = "cfhelpers.datasets.credit"


@dataclass(frozen=True)
class Stored:
    """A result of a former cache: where it is, what it depends on, and what it is."""

    path: Path
    name: str
    key: dict[str, Any]
    arrays: Arrays
    code: str

    @property
    def size(self) -> int:
        """Numbers in the result."""
        return sum(array.size for array in self.arrays.values())


def former_results() -> list[Stored]:
    """What the former caches left, the smallest first."""
    found = []
    for path in sorted(paths.ARTIFACTS.glob("*.npz")):
        found.append(read_arrays(path))
    for path in sorted(paths.ARTIFACTS.glob("credit_edges_*.npy")):
        found.append(read_edges(path))
    return sorted(filter(None, found), key=lambda stored: stored.size)


def read_arrays(path: Path) -> Stored | None:
    """A model of XGBoost; None for a file that is damaged, foreign or moved."""
    try:
        with np.load(path, allow_pickle=False) as file:
            text, *names = file["key"].tolist()
            arrays = {name: file[name] for name in names}
        key = json.loads(text)
        name = key.pop("name")
    except Exception:  # whatever it is, it is not one of ours
        return None
    is_other = key.get("model") != "xgboost" or "code" in key
    if is_other or path.name != _cache.cache_path(name, text).name:
        return None
    return Stored(path, name, key, arrays, TRAINING)


def read_edges(path: Path) -> Stored | None:
    """A graph of Credit; None if it was not made from the table as it is now."""
    found = re.fullmatch(r"credit_edges_(\w+)_([0-9a-f]{12})", path.stem)
    table = credit_table()
    hashes = pd.util.hash_pandas_object(table, index=False).to_numpy()
    if not found or found[2] != hashlib.sha256(hashes.tobytes()).hexdigest()[:12]:
        return None
    kind = found[1]
    key = {"table": fingerprint(table), "left_out": list(credit.GRAPHS[kind])}
    arrays = {"edges": np.load(path, allow_pickle=False)}
    return Stored(path, f"credit-edges-{kind}", key, arrays, CREDIT)


def credit_table() -> pd.DataFrame:
    """The table that Credit's graphs are built from."""
    return credit.derive(credit.uci_table())


def difference(stored: Stored) -> float | None:
    """How far a result lies from the same computed anew; None if that cannot be done."""
    if stored.code == CREDIT:
        edges = credit.similarity_edges(credit_table(), stored.key["left_out"])
        return float(not np.array_equal(edges, stored.arrays["edges"]))
    key = stored.key
    dataset = find_dataset(key, len(stored.arrays["probs"]))
    if dataset is None:
        return None
    parameters = {
        name: value for name, value in key["parameters"].items() if name != "patience"
    }
    probs, _ = training.train(
        dataset,
        split(dataset, key["seed"]),
        key["model"],
        parameters,
        seed=key["seed"],
        device=key["device"],
    )
    return float(np.abs(probs - stored.arrays["probs"]).max())


def find_dataset(key: dict[str, Any], n: int) -> Dataset | None:
    """The dataset, with the groups, that a base model was fitted on."""
    for dataset in candidate_datasets(key, n):
        contents = [dataset.X, dataset.y]
        if key["model"] != "xgboost":
            contents.append(dataset.edge_index)
        same_parts = fingerprint(split(dataset, key["seed"])) == key["parts"]
        if same_parts and fingerprint(*contents) == key["content"]:
            return dataset
    return None


def candidate_datasets(key: dict[str, Any], n: int) -> Iterator[Dataset]:
    """The dataset of that name and source, by each of its attributes and graphs."""
    options: list[dict[str, Any]] = [{}]
    if key["source"] == "simulated":
        options = [{"n": n}]
    elif key["data"] == "credit" and key["model"] != "xgboost":
        options = [{"graph": kind} for kind in credit.GRAPHS]
    for name, attribute in experiments.RUNS:
        if name != key["data"]:
            continue
        for option in options:
            by = attribute.split("+")
            try:
                yield load_dataset(name, key["source"], attribute=by, **option)
            except FileNotFoundError:  # real records that this machine does not have
                return


def check(results: list[Stored], n: int) -> bool:
    """Compute the n smallest anew that can be; whether all are what they were."""
    done = 0
    agree = True
    for stored in results:
        if done == n:
            break
        apart = difference(stored)
        if apart is None:
            continue
        done += 1
        same = apart <= CLOSE
        agree = agree and same
        word = "the same" if same else "NOT the same"
        print(f"{stored.path.name}: computed anew, {word}; at most {apart:.1g} apart")
    print(f"{done} of {len(results)} results computed anew")
    return agree


def move(stored: Stored) -> Path:
    """Store a result under its new name and key, and remove the former file."""
    text = _cache.key_text(stored.name, stored.key, stored.code)
    path = _cache.cache_path(stored.name, text)
    _cache.store(path, text, stored.arrays)
    stored.path.unlink()
    return path


def main(arguments: list[str] | None = None) -> None:
    """Check some, then move all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", type=int, default=3, help="how many to compute anew; -1: all"
    )
    options = parser.parse_args(arguments)
    results = former_results()
    if not check(results, options.check):
        sys.exit("nothing was moved: a result is not what the code of today computes")
    for stored in results:
        print(f"{stored.path.name} → {move(stored).name}")
    rows = list((paths.ARTIFACTS / "runs").glob("*.parquet"))
    if rows:
        print(f"{len(rows)} files of rows are of no more use: they are computed again")


if __name__ == "__main__":
    main()

"""Tidy rows in results/runs: written whole, found again, and used again.

A file holds the rows of one dataset, one attribute and one training split. The rows of
training split 0 are in results/runs/<profile>; those of the others, by the paper's rule
alone, in results/runs/<profile>/training. Rows of a model that has been replaced since
are named in results/former_models.csv, until the present one has been run.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from cfhelpers import paths
from cfhelpers.control import Guarantee
from cfhelpers.study.names import RUNS, DataKind

FORMER_FILE = "former_models.csv"


def rows_path(
    profile: str, dataset: str, attribute: str, training_split: int = 0
) -> Path:
    """Where the rows of one run are.

    Parameters
    ----------
    profile, dataset, attribute : str
    training_split : int

    Returns
    -------
    Path

    Examples
    --------
    >>> rows_path("quick", "pokec_n", "region+gender").name
    'pokec_n_region_gender.parquet'
    >>> rows_path("quick", "credit", "age", 3).name
    'credit_age_3.parquet'
    """
    stem = f"{dataset}_{attribute.replace('+', '_')}"
    folder = paths.runs(profile)
    if training_split == 0:
        return folder / f"{stem}.parquet"
    return folder / "training" / f"{stem}_{training_split}.parquet"


def save_rows(rows: pd.DataFrame) -> Path:
    """Write the rows of one run where the profile's rows are, whole or not at all.

    Parameters
    ----------
    rows : DataFrame
        Of `experiments.run`.

    Returns
    -------
    Path
        See `rows_path`.
    """
    place = ["profile", "dataset", "attribute", "training_split"]
    ((profile, dataset, attribute, split),) = rows[place].drop_duplicates().to_numpy()
    path = rows_path(profile, dataset, attribute, split)
    with paths.atomic_write(path) as unfinished:
        rows.to_parquet(
            unfinished, index=False, compression="zstd", write_page_checksum=True
        )
    return path


def read_stored(path: Path, key: str, n_rows: int) -> pd.DataFrame | None:
    """The rows in a file, if they were made for this key.

    Parameters
    ----------
    path : Path
    key : str
        Of `experiments.rows_key`.
    n_rows : int
        How many there must be.

    Returns
    -------
    DataFrame or None
        None where there is no file, or one that cannot be read or has another key or
        another number of rows.
    """
    try:
        rows = pd.read_parquet(path, page_checksum_verification=True)
        is_own = len(rows) == n_rows and (rows["key"] == key).all()
    except Exception:  # absent or damaged, in whatever way: computed again
        return None
    return rows if is_own else None


def own_rows(path: Path, columns: Sequence[str], key: str) -> pd.DataFrame:
    """The rows of a CSV file that were made for this key.

    Parameters
    ----------
    path : Path
    columns : names
        Those of the file.
    key : str
        Of `experiments.rows_key`.

    Returns
    -------
    DataFrame
        No rows where there is no file, or none of this key.
    """
    if not path.exists():
        return pd.DataFrame(columns=list(columns))
    stored = pd.read_csv(path, dtype={"key": str})
    return stored[stored["key"] == key].reset_index(drop=True)


def add_rows(path: Path, rows: pd.DataFrame, identity: Sequence[str]) -> None:
    """Add rows to a CSV file, in the place of older ones of the same things.

    The others stay as they are, to the letter.

    Parameters
    ----------
    path : Path
    rows : DataFrame
    identity : names
        Columns whose values say what a row is about.

    Examples
    --------
    >>> import tempfile
    >>> old = pd.DataFrame({"model": ["gcn", "gat"], "size": [3, 2]})
    >>> new = pd.DataFrame({"model": ["gcn"], "size": [1]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "rows.csv"
    ...     add_rows(file, old, ["model"])
    ...     add_rows(file, new, ["model"])
    ...     pd.read_csv(file).to_numpy().tolist()
    [['gat', 2], ['gcn', 1]]
    """
    kept = [rows]
    if path.exists():
        stored = pd.read_csv(path, dtype=str, keep_default_na=False)
        new = set(rows[list(identity)].astype(str).itertuples(index=False, name=None))
        about = stored[list(identity)].itertuples(index=False, name=None)
        is_kept = [place not in new for place in about]
        kept = [part for part in (stored[is_kept], rows) if len(part)]
    with paths.atomic_write(path) as unfinished:
        pd.concat(kept, ignore_index=True).to_csv(unfinished, index=False)


def load_rows(
    profile: str | None = None, dataset: str | None = None, attribute: str | None = None
) -> pd.DataFrame:
    """The stored rows of all runs, or of one profile, dataset or attribute.

    Parameters
    ----------
    profile, dataset, attribute : str, optional

    Returns
    -------
    DataFrame
        Of training split 0. Of a former model, `data` says so, and so do the words of
        `records`.

    Examples
    --------
    >>> load_rows("quick", "credit")["split"].nunique()
    10
    """
    profiles = [profile] if profile else paths.PROFILES
    parts = []
    for one_profile in profiles:
        for name, by in RUNS:
            path = rows_path(one_profile, name, by)
            is_wanted = dataset in (None, name) and attribute in (None, by)
            if is_wanted and path.exists():
                parts.append(told_if_former(pd.read_parquet(path)))
    if not parts:
        command = "make paper" if profile == "paper" else "make"
        raise FileNotFoundError(
            f"no rows of {dataset or 'any dataset'} in results/runs; "
            f"`{command}` makes them"
        )
    return pd.concat(parts, ignore_index=True)


def former_keys() -> frozenset[str]:
    """The keys of stored rows whose model, or its features, have been replaced since.

    What they measured is true of a model that nobody can train any more with this code.
    So they are shown as what they are, and compared with nothing.

    Returns
    -------
    frozenset of str
        The column `key` of results/former_models.csv; its column `why` is for readers.

    Examples
    --------
    >>> all(len(key) == 20 for key in former_keys())
    True
    """
    path = paths.RESULTS / FORMER_FILE
    if not path.exists():
        return frozenset()
    return frozenset(pd.read_csv(path, dtype=str)["key"])


def told_if_former(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows whose `data` and `records` say which of them are of a former model.

    Parameters
    ----------
    rows : DataFrame
        Of `experiments.run`.

    Returns
    -------
    DataFrame

    Examples
    --------
    >>> rows = pd.DataFrame({"key": ["0"], "data": ["other"], "records": ["real"]})
    >>> told_if_former(rows)["data"].tolist()  # no key is as short as this
    ['other']
    """
    if "key" not in rows:
        return rows
    is_former = rows["key"].isin(former_keys())
    records = rows["records"].mask(is_former, rows["records"] + ", a former model")
    data = rows["data"].mask(is_former, str(DataKind.FORMER))
    return rows.assign(data=data, records=records)


def load_training_rows(
    dataset: str | None = None, attribute: str | None = None
) -> pd.DataFrame:
    """The stored rows of every training split, on real records, by the paper's rule.

    Parameters
    ----------
    dataset, attribute : str, optional
        One dataset, one attribute; by default all.

    Returns
    -------
    DataFrame
        The column `training_split` tells them apart. Of several profiles the one with
        the most training splits is taken. A file of another model or of other records
        than those of training split 0 is left out, with a warning; rows of a former model
        are left out. Empty where nothing is stored.

    Examples
    --------
    >>> sorted(set(load_training_rows("credit")["training_split"]))
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    parts = []
    for name, by in RUNS:
        if dataset in (None, name) and attribute in (None, by):
            of_profiles = [_all_splits(profile, name, by) for profile in paths.PROFILES]
            most = max(of_profiles, key=len)
            if most:
                parts.append(pd.concat(most))
    if not parts:
        return pd.DataFrame()
    return pd.concat(parts, ignore_index=True)


def _all_splits(profile: str, dataset: str, attribute: str) -> list[pd.DataFrame]:
    """The rows of every training split of one run, a frame each; real records alone."""
    first = rows_path(profile, dataset, attribute)
    if not first.exists():
        return []
    pattern = rows_path(profile, dataset, attribute, 1).name.replace("_1.", "_[0-9]*.")
    others = sorted((first.parent / "training").glob(pattern))
    rows = told_if_former(pd.read_parquet(first))
    made_of = _made_of(rows)
    parts = [rows]
    for path in others:
        rows = told_if_former(pd.read_parquet(path))
        seed = int(path.stem.rpartition("_")[2])
        if _made_of(rows) == made_of and (rows["training_split"] == seed).all():
            parts.append(rows)
        else:
            warnings.warn(
                f"{path.name}: left out, since it has another model or other records "
                f"than {first.name}, or belongs to another training split",
                stacklevel=3,
            )
    wanted = []
    for rows in parts:
        is_wanted = rows["guarantee"] == Guarantee.NONE
        is_wanted &= rows["data"].isin([DataKind.PAPERS, DataKind.OTHER])
        wanted.append(rows[is_wanted])
    return [rows for rows in wanted if len(rows)]


def _made_of(rows: pd.DataFrame) -> list[tuple[str, ...]]:
    """Of which records and by which model rows were made."""
    names = ["dataset", "attribute", "records", "model", "parameters"]
    return sorted(set(map(tuple, rows[names].astype(str).to_numpy())))

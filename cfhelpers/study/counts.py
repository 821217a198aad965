"""People per group and label, kept as small files that stay when the records are gone.

results/pokec_n_counts.csv has the test rows of Pokec-n, divided by two rules.
results/tab2_records.csv and results/tab2_counts.csv say of every dataset how large its
real records are and how many of them have each group and label.
"""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from cfhelpers import fairness, paths
from cfhelpers.datasets import NAMES, Dataset, load_dataset, pokec, split
from cfhelpers.datasets.simulated import LABELLED, USERS
from cfhelpers.study.experiments import records_words

POKEC_LABELLED = 8_797
POKEC_ATTRIBUTES = ("region", "gender", "region+gender")
SEEDS = range(5)
# How rows are divided into 30, 20, 25 and 25% of every group and label. "rounded cuts" is
# the release's way: scikit-learn cuts off 30%, then 2/7 of the rest, then half of what is
# left. It rounds each time, so that the counts are the same for every seed. "ours" is
# datasets.split, which rounds every cell up or down by chance.
ROUNDED_CUTS = "rounded cuts"
OURS = "ours"
RULES = (ROUNDED_CUTS, OURS)
FIRST_ROWS = "first rows"  # the source of what is known of Pokec-z


def rounded_cuts_test(dataset: Dataset, seed: int) -> np.ndarray:
    """The test rows by three of scikit-learn's stratified cuts.

    Parameters
    ----------
    dataset : Dataset
    seed : int

    Returns
    -------
    integers
        Row numbers of labelled rows, a quarter of them.

    Examples
    --------
    >>> len(rounded_cuts_test(load_dataset("credit"), seed=0))
    7500
    """
    cell = (
        pd.Series(dataset.groups).astype(str) + " / " + pd.Series(dataset.y).astype(str)
    )
    rows = np.flatnonzero(dataset.y >= 0)
    for share in (0.3, 0.2 / 0.7, 0.5):
        _, rows = train_test_split(
            rows, train_size=share, stratify=cell[rows], random_state=seed
        )
    return rows


def count_test_rows(dataset: Dataset, rule: str, seed: int) -> pd.DataFrame:
    """Test rows per group and label.

    Parameters
    ----------
    dataset : Dataset
    rule : str
        One of RULES.
    seed : int

    Returns
    -------
    DataFrame
        group, label, n.

    Examples
    --------
    >>> int(count_test_rows(load_dataset("credit"), "rounded cuts", seed=0)["n"].sum())
    7500
    """
    if rule not in RULES:
        raise ValueError(f"rule: found {rule!r}; wanted one of {', '.join(RULES)}")
    if rule == ROUNDED_CUTS:
        rows = rounded_cuts_test(dataset, seed)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of small cells, which the counts show
            rows = np.flatnonzero(split(dataset, seed) == "test")
    table = pd.DataFrame({"group": dataset.groups[rows], "label": dataset.y[rows]})
    return table.groupby(["group", "label"]).size().rename("n").reset_index()


def full_set_gap(counts: pd.DataFrame) -> float:
    """The predictive-parity gap of a predictor that always answers with every label.

    Every set holds every label, so what is compared is the share of the label in each
    group: the gap depends on the counts alone.

    Parameters
    ----------
    counts : DataFrame
        group, label, n.

    Returns
    -------
    float

    Examples
    --------
    >>> cells = {"group": list("aabb"), "label": [0, 1, 0, 1], "n": [8, 2, 5, 5]}
    >>> round(full_set_gap(pd.DataFrame(cells)), 3)
    0.3
    """
    y = np.repeat(counts["label"].to_numpy(), counts["n"].to_numpy())
    groups = np.repeat(counts["group"].to_numpy(), counts["n"].to_numpy())
    sets = np.ones((len(y), y.max() + 1), dtype=bool)
    return fairness.disparity(sets, y, groups, "predictive_parity")


def write_pokec_counts() -> Path:
    """Count Pokec-n's real test rows by both rules, and keep the counts in results/.

    Returns
    -------
    Path
        Of results/pokec_n_counts.csv: attribute, rule, seed, group, label, n.
    """
    frames = []
    for attribute in POKEC_ATTRIBUTES:
        dataset = load_dataset("pokec_n", "local", attribute=attribute.split("+"))
        n_labelled = int((dataset.y >= 0).sum())
        if n_labelled != POKEC_LABELLED:
            raise ValueError(
                f"Pokec-n: found {n_labelled:,} labelled users; "
                f"wanted all {POKEC_LABELLED:,}"
            )
        for rule in RULES:
            for seed in SEEDS:
                table = count_test_rows(dataset, rule, seed)
                table.insert(0, "attribute", attribute)
                table.insert(1, "rule", rule)
                table.insert(2, "seed", seed)
                frames.append(table)
    path = pokec_counts_path()
    with paths.atomic_write(path) as partial:
        pd.concat(frames).to_csv(partial, index=False, lineterminator="\n")
    return path


def pokec_counts_path() -> Path:
    """Where the counts of Pokec-n's test rows are."""
    return paths.RESULTS / "pokec_n_counts.csv"


def pokec_counts() -> pd.DataFrame:
    """The counts of Pokec-n's real test rows, as they were last written.

    Returns
    -------
    DataFrame
        attribute, rule, seed, group, label, n.

    Examples
    --------
    >>> counts = pokec_counts().query("attribute == 'gender' and rule == 'rounded cuts'")
    >>> [round(full_set_gap(table), 4) for _, table in counts.groupby("seed")]
    [0.0507, 0.0507, 0.0507, 0.0507, 0.0507]
    """
    return pd.read_csv(pokec_counts_path())


def describe_records(dataset: Dataset) -> dict[str, Any]:
    """How large the records of a dataset are.

    Parameters
    ----------
    dataset : Dataset

    Returns
    -------
    dict
        dataset, rows, edges (undirected, each once), labelled, groups, classes, source,
        records.

    Examples
    --------
    >>> describe_records(load_dataset("credit"))["groups"]
    'age (2)'
    """
    n_edges = None
    if dataset.edge_index is not None:
        n_edges = dataset.edge_index.shape[1] // 2
    return {
        "dataset": dataset.name,
        "rows": len(dataset),
        "edges": n_edges,
        "labelled": int((dataset.y >= 0).sum()),
        "groups": f"{dataset.attribute} ({len(dataset.group_names)})",
        "classes": dataset.n_classes,
        "source": str(dataset.source),
        "records": records_words(dataset),
    }


def count_cells(dataset: Dataset) -> pd.DataFrame:
    """Labelled rows per group and label.

    Parameters
    ----------
    dataset : Dataset

    Returns
    -------
    DataFrame
        dataset, group, label, n, source, records; larger groups first.

    Examples
    --------
    >>> count_cells(load_dataset("credit"))["n"].tolist()[:4]
    [428, 4602, 12420, 9865]
    """
    table = dataset.counts()
    table = table.rename_axis(index="group", columns="label")
    cells = table.stack().reset_index(name="n")  # type: ignore[call-overload]
    cells.insert(0, "dataset", dataset.name)
    return cells.assign(source=str(dataset.source), records=records_words(dataset))


def pokec_z_first_rows() -> tuple[dict[str, Any], pd.DataFrame]:
    """What is known of Pokec-z: the size of its files, and counts of its first rows.

    Returns
    -------
    record : dict
        As `describe_records` gives it; edges are lines of the relationship file, and the
        number of labelled users is not known.
    cells : DataFrame
        As `count_cells` gives them, of the first rows of region_job.csv.

    Examples
    --------
    >>> record, cells = pokec_z_first_rows()
    >>> record["classes"], int(cells["n"].sum())
    (5, 502)
    """
    n_users, n_lines = pokec.SIZES["pokec_z"]
    n_first = int(np.sum(USERS["pokec_z"]))
    labelled = np.array(LABELLED["pokec_z"])
    words = f"real, the first {n_first:,} of {n_users:,} rows of region_job.csv"
    cells = []
    for region, region_name in enumerate(pokec.GROUPS["region"]):
        for gender, gender_name in enumerate(pokec.GROUPS["gender"]):
            for label, n in enumerate(labelled[region, gender]):
                group = f"{region_name}, {gender_name}"
                cells.append(("pokec_z", group, f"field {label}", int(n)))
    table = pd.DataFrame(cells, columns=["dataset", "group", "label", "n"])
    record = {
        "dataset": "pokec_z",
        "rows": n_users,
        "edges": n_lines,
        "labelled": None,
        "groups": "region × gender (4)",
        "classes": labelled.shape[-1],
        "source": FIRST_ROWS,
        "records": f"size of the files; classes of the first {n_first:,} rows",
    }
    return record, table.assign(source=FIRST_ROWS, records=words)


def keep_records(datasets: Mapping[str, Dataset]) -> None:
    """Keep the sizes and the counts of real records in results/.

    Parameters
    ----------
    datasets : mapping of name to Dataset
        Those at hand. Of the others what was kept before stays.
    """
    records = []
    cells = []
    for name, dataset in datasets.items():
        if dataset.source == "simulated":
            raise ValueError(f"datasets: found simulated records of {name}; wanted real")
        records.append(pd.DataFrame([describe_records(dataset)]))
        cells.append(count_cells(dataset))
    for path, frames in ((records_path(), records), (counts_path(), cells)):
        if path.exists():
            kept = pd.read_csv(path)
            frames.append(kept[kept["source"] != FIRST_ROWS])
    first, first_cells = pokec_z_first_rows()
    records.append(pd.DataFrame([first]))
    cells.append(first_cells)
    _write_newest(records_path(), records)
    _write_newest(counts_path(), cells)


def _write_newest(path: Path, frames: Sequence[pd.DataFrame]) -> None:
    """Write each dataset by the first frame that has it, in the order of NAMES."""
    tables = []
    for name in NAMES:
        own = [frame[frame["dataset"] == name] for frame in frames]
        tables += [frame for frame in own if len(frame)][:1]
    whole = pd.concat(tables)
    for column in {"edges", "labelled"} & set(whole):
        whole[column] = whole[column].astype("Int64")
    with paths.atomic_write(path) as partial:
        whole.to_csv(partial, index=False, lineterminator="\n")


def records_path() -> Path:
    """Where the sizes of the real records are."""
    return paths.RESULTS / "tab2_records.csv"


def counts_path() -> Path:
    """Where the counts of the real records are."""
    return paths.RESULTS / "tab2_counts.csv"


def real_records() -> pd.DataFrame:
    """The sizes of the real records of every dataset, as they were last kept.

    Returns
    -------
    DataFrame
        Indexed by dataset, with the columns of `describe_records`.

    Examples
    --------
    >>> int(real_records().loc["pokec_n", "labelled"])
    8797
    """
    table = pd.read_csv(records_path(), index_col="dataset")
    return table.astype({"edges": "Int64", "labelled": "Int64"})


def real_counts() -> pd.DataFrame:
    """The counts of the real records of every dataset, as they were last kept.

    Returns
    -------
    DataFrame
        With the columns of `count_cells`.

    Examples
    --------
    >>> counts = real_counts()
    >>> counts.loc[counts["dataset"] == "pokec_n", "n"].sum().item()
    8797
    """
    return pd.read_csv(counts_path())

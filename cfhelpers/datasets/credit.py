"""Credit: the UCI table of credit card clients, what is derived from it, a plain model.

`python -m cfhelpers.datasets.credit` fits the model again and rewrites its file.
"""

import random
from collections.abc import Sequence
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from cfhelpers import paths
from cfhelpers._cache import cached
from cfhelpers.datasets._dataset import (
    Dataset,
    Source,
    choose_source,
    group_by,
    split,
    symmetric,
    undirected,
)
from cfhelpers.datasets._files import local_folders, not_found

SOURCES = (Source.BUNDLED, Source.LOCAL)
LABEL_NAMES = ("other", "high school", "university", "graduate school")
NOT_FEATURES = ["NoDefaultNextMonth", "Single", "EducationLevel"]
LICENCE = "CC BY 4.0"
CITATION = (
    "I-Cheng Yeh (2009), Default of Credit Card Clients, "
    "UCI Machine Learning Repository, doi:10.24432/C55S3H"
)
# Columns that are standardised before clients are compared.
SCALED = [
    "MaxBillAmountOverLast6Months",
    "MaxPaymentAmountOverLast6Months",
    "MostRecentBillAmount",
    "MostRecentPaymentAmount",
    "TotalMonthsOverdue",
]
# The graphs, by the columns that they leave out.
GRAPHS = {
    "published": ["NoDefaultNextMonth", "Single"],
    "without_target": NOT_FEATURES,
}
DOLLARS_OF_TAIWAN = 32.75  # for one of the United States
UNIT = 1_000_000  # cached probabilities are whole millionths
BLOCK = 500  # clients that are compared with all others at once


def load(
    name: str = "credit",
    source: str | None = None,
    *,
    attribute: str | Sequence[str] | None = None,
    graph: str | None = None,
) -> Dataset:
    """Credit, with education as the target.

    Parameters
    ----------
    name : "credit"
    source : "bundled" (default) or "local"
    attribute : "age" (default), "sex", or both
    graph : "published" or "without_target", optional
        The columns of the published graph include the target, so labels leak into it.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> load().group_names
    ('25 or older', 'under 25')
    """
    chosen_source = choose_source("credit", source, SOURCES)
    if graph not in (None, *GRAPHS):
        known = ", ".join(map(repr, GRAPHS))
        raise ValueError(f"graph: found {graph!r}; wanted None, {known}")
    if chosen_source == Source.LOCAL:
        uci = pd.read_csv(_local_file())
    else:
        uci = uci_table()
    table = derive(uci)
    columns = {
        "age": np.where(uci["AGE"] < 25, "under 25", "25 or older"),
        "sex": uci["SEX"].map({1: "men", 2: "women"}).to_numpy(),
    }
    grouping = group_by(columns, attribute)
    notes = [
        "target: education, with unknown codes under 'other'",
        f"not features: {', '.join(NOT_FEATURES)}",
    ]
    edge_index = None
    if graph is not None:
        edge_index = symmetric(_graph(table, graph))
        notes.append(f"graph: {graph}")
    if graph == "published":
        notes[-1] += ", from columns that include the target"
    return Dataset(
        name="credit",
        source=chosen_source,
        X=table.drop(columns=NOT_FEATURES),
        y=table["EducationLevel"].to_numpy(),
        groups=grouping.groups,
        group_names=grouping.names,
        label_names=LABEL_NAMES,
        attribute=grouping.attribute,
        edge_index=edge_index,
        notes=tuple(notes),
        licence=LICENCE,
        citation=CITATION,
    )


def _bundled(name: str) -> pd.DataFrame:
    """A table that is shipped with the package: an array per column."""
    with (
        as_file(files("cfhelpers.datasets") / name) as path,
        np.load(path, allow_pickle=False) as columns,
    ):
        return pd.DataFrame({column: columns[column] for column in columns})


def uci_table() -> pd.DataFrame:
    """The UCI table as it is shipped with the package.

    Returns
    -------
    DataFrame of integers (30000, 25)

    Examples
    --------
    >>> uci_table()["AGE"].head(3).tolist()
    [24, 26, 34]
    """
    return _bundled("uci_credit.npz")


def _local_file() -> Path:
    """The UCI table in the first local folder that has it."""
    tried = []
    for folder in local_folders():
        path = folder / "credit" / "uci_credit_card.csv"
        if path.exists():
            return path
        tried.append(path)
    raise not_found("credit", tried)


def derive(uci: pd.DataFrame) -> pd.DataFrame:
    """The 15 columns that the literature on fair graphs uses.

    Parameters
    ----------
    uci : DataFrame (n, 25)
        The UCI table.

    Returns
    -------
    DataFrame of int64 (n, 15)

    Examples
    --------
    >>> derive(uci_table())["MostRecentBillAmount"].head(3).tolist()
    [120, 80, 890]
    """
    bills = _us_dollars(uci.filter(regex="^BILL_AMT"))
    payments = _us_dollars(uci.filter(regex="^PAY_AMT"))
    used = bills / _us_dollars(uci["LIMIT_BAL"])[:, None]
    oldest_first = ["PAY_6", "PAY_5", "PAY_4", "PAY_3", "PAY_2", "PAY_0"]
    months_overdue = uci[oldest_first].to_numpy().clip(0)
    is_late = months_overdue > 0
    becomes_late = np.diff(is_late, axis=1, prepend=False) & is_late
    table = {
        "NoDefaultNextMonth": 1 - uci["default payment next month"],
        "Married": uci["MARRIAGE"] == 1,
        "Single": uci["MARRIAGE"] == 2,
        "Age": uci["AGE"] < 25,
        "EducationLevel": uci["EDUCATION"].map({1: 3, 2: 2, 3: 1}).fillna(0),
        "MaxBillAmountOverLast6Months": bills.max(axis=1).clip(0),
        "MaxPaymentAmountOverLast6Months": payments.max(axis=1),
        "MonthsWithZeroBalanceOverLast6Months": (payments > bills).sum(axis=1),
        "MonthsWithLowSpendingOverLast6Months": (used < 0.2).sum(axis=1),
        "MonthsWithHighSpendingOverLast6Months": (used > 0.8).sum(axis=1),
        "MostRecentBillAmount": bills[:, 0].clip(0),
        "MostRecentPaymentAmount": payments[:, 0],
        "TotalOverdueCounts": becomes_late.sum(axis=1),
        "TotalMonthsOverdue": months_overdue.sum(axis=1),
        "HistoryOfOverduePayments": is_late.any(axis=1),
    }
    return pd.DataFrame(table).astype(np.int64)


def _us_dollars(amounts: ArrayLike) -> np.ndarray:
    """Amounts of Taiwan's dollars in tens of dollars."""
    return np.round(np.asarray(amounts) / DOLLARS_OF_TAIWAN, -1)


def similarity_edges(
    table: pd.DataFrame,
    left_out: list[str],
    *,
    share: float = 0.7,
    most: int = 200,
    seed: int = 912,
) -> np.ndarray:
    """Edges between similar clients, by the published rule.

    Similarity is 1/(1 + Euclidean distance). A client is joined to those more similar
    than `share` × its nearest. Where that is more than `most`, itself among them,
    `random.shuffle` chooses, seeded anew for every client.

    Parameters
    ----------
    table : DataFrame
        As `derive` gives it.
    left_out : list of str
        Columns that do not count.
    share, most, seed
        Of the rule.

    Returns
    -------
    int32 (2, E)
        Every undirected edge once.

    Examples
    --------
    >>> table = derive(uci_table()).head(6)
    >>> similarity_edges(table, GRAPHS["published"], share=0.9).tolist()
    [[0, 0, 1, 2, 3], [1, 2, 2, 4, 5]]
    """
    from scipy.spatial.distance import cdist

    columns = table.drop(columns=left_out).astype(np.float64)
    columns[SCALED] = (columns[SCALED] - columns[SCALED].mean()) / columns[SCALED].std()
    points = np.ascontiguousarray(columns)

    @cache
    def chosen_places(n: int) -> list[int]:
        """Which of n candidates are joined; the same for all clients with n of them."""
        places = list(range(n))
        random.Random(seed).shuffle(places)
        return places[:most]

    pairs = []
    for start in range(0, len(points), BLOCK):
        similarity = 1 / (1 + cdist(points[start : start + BLOCK], points))
        # The largest is the client's own, the second largest its nearest.
        nearest = np.partition(similarity, -2, axis=1)[:, -2]
        is_near = similarity > share * nearest[:, None]
        for client, candidates in enumerate(is_near, start):
            near = np.flatnonzero(candidates)
            if len(near) > most:
                near = near[chosen_places(len(near))]
            pairs.append(np.stack([np.full(len(near), client), near]))
    return undirected(np.concatenate(pairs, axis=1), len(points)).astype(np.int32)


def _graph(table: pd.DataFrame, kind: str) -> np.ndarray:
    """The edges of a graph, built once and kept in artifacts/."""

    def compute() -> dict[str, np.ndarray]:
        return {"edges": similarity_edges(table, GRAPHS[kind])}

    key = {"table": table, "left_out": GRAPHS[kind]}
    return cached(f"credit-edges-{kind}", key, compute, code=__name__)["edges"]


def credit_probabilities() -> tuple[np.ndarray, np.ndarray]:
    """A plain model's probabilities, and the part of every row.

    Returns
    -------
    probabilities : float32 (30000, 4)
    parts : str (30000,)
        `split` with seed 0.

    Examples
    --------
    >>> probabilities, parts = credit_probabilities()
    >>> probabilities[0].round(2)
    array([0.  , 0.13, 0.55, 0.32], dtype=float32)
    """
    stored = _bundled("credit_probabilities.npz").to_numpy(dtype=np.int64)
    last = UNIT - stored.sum(axis=1)
    probabilities = np.column_stack([stored, last]) / UNIT
    return probabilities.astype(np.float32), split(load(), seed=0)


def fit_probabilities() -> np.ndarray:
    """The plain model, fitted on the train part of split 0: float64 (30000, 4)."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    data = load()
    is_train = split(data, seed=0) == "train"
    model = HistGradientBoostingClassifier(
        learning_rate=0.05,
        max_iter=60,
        max_leaf_nodes=8,
        early_stopping=False,
        random_state=0,
    )
    model.fit(data.X[is_train], data.y[is_train])
    return model.predict_proba(data.X)


def write_probabilities() -> None:
    """Fit the plain model and rewrite the file that the package ships."""
    units = np.round(fit_probabilities()[:, :-1] * UNIT).astype(np.int32)
    frame = pd.DataFrame(units, columns=list(LABEL_NAMES[:-1]))
    path = Path(__file__).with_name("credit_probabilities.npz")
    columns = {str(name): frame[name].to_numpy() for name in frame}
    with paths.atomic_write(path) as partial:
        np.savez_compressed(partial, allow_pickle=False, **columns)


if __name__ == "__main__":
    write_probabilities()

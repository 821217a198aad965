"""Credit: the UCI table "default of credit card clients", its derived table, and a plain model's probabilities.

`python -m cfhelpers.datasets.credit` fits the model again and rewrites its file.
"""

import hashlib
import random
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
import pandas as pd

from cfhelpers import paths
from cfhelpers.datasets._dataset import Dataset, group_by, split, symmetric, undirected
from cfhelpers.datasets._files import local_folders, not_found

LABEL_NAMES = ("other", "high school", "university", "graduate school")
NOT_FEATURES = ["NoDefaultNextMonth", "Single", "EducationLevel"]
LICENCE = "CC BY 4.0"
CITATION = "I-Cheng Yeh (2009), Default of Credit Card Clients, UCI Machine Learning Repository, doi:10.24432/C55S3H"
AMOUNTS = [
    "MaxBillAmountOverLast6Months",
    "MaxPaymentAmountOverLast6Months",
    "MostRecentBillAmount",
]
SCALED = [*AMOUNTS, "MostRecentPaymentAmount", "TotalMonthsOverdue"]
GRAPHS = {
    "published": ["NoDefaultNextMonth", "Single"],
    "without_target": NOT_FEATURES,
}  # columns left out
UNIT = 1_000_000  # cached probabilities are whole millionths


def _bundled(name: str) -> pd.DataFrame:
    with as_file(files("cfhelpers.datasets") / name) as path:
        return pd.read_parquet(path)


def derive(uci: pd.DataFrame) -> pd.DataFrame:
    """The 15 columns of the graph-fairness literature, int64 (n, 15), from the 25 of the UCI table."""

    def usd(amounts):
        return np.round(np.asarray(amounts) / 32.75, -1)

    bills, payments = (
        usd(uci.filter(regex="^BILL_AMT")),
        usd(uci.filter(regex="^PAY_AMT")),
    )
    late = (
        uci[[f"PAY_{month}" for month in (6, 5, 4, 3, 2, 0)]].to_numpy().clip(0)
    )  # months overdue, oldest first
    used = bills / usd(uci["LIMIT_BAL"])[:, None]
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
        "TotalOverdueCounts": (np.diff(late > 0, axis=1, prepend=False) & (late > 0)).sum(
            axis=1
        ),
        "TotalMonthsOverdue": late.sum(axis=1),
        "HistoryOfOverduePayments": late.any(axis=1),
    }
    return pd.DataFrame(table).astype(np.int64)


def similarity_edges(
    table: pd.DataFrame, left_out: list[str], *, share=0.7, most=200, seed=912
) -> np.ndarray:
    """Edges between similar clients, int32 (2, E) with E counting each undirected edge once, by the published rule.

    Similarity is 1/(1 + Euclidean distance). A client is joined to those more similar than `share` × its nearest; where
    that is more than `most`, itself among them, `random.shuffle` chooses, seeded anew for every client.
    """
    from scipy.spatial.distance import cdist

    columns = table.drop(columns=left_out).astype(np.float64)
    columns[SCALED] = (columns[SCALED] - columns[SCALED].mean()) / columns[SCALED].std()
    points, pairs = np.ascontiguousarray(columns), []

    @cache
    def chosen(n):
        places = list(range(n))
        random.Random(seed).shuffle(places)
        return places[:most]

    for start in range(0, len(points), 500):
        similarity = 1 / (1 + cdist(points[start : start + 500], points))
        nearest = np.partition(similarity, -2, axis=1)[
            :, -2
        ]  # the largest is the client's own
        for i, candidates in enumerate(similarity > share * nearest[:, None], start):
            near = np.flatnonzero(candidates)
            near = near[chosen(len(near))] if len(near) > most else near
            pairs.append(np.stack([np.full(len(near), i), near]))
    return undirected(np.concatenate(pairs, axis=1), len(points)).astype(np.int32)


def _graph(table: pd.DataFrame, kind: str) -> np.ndarray:
    """The edges of graph `kind`, built once and kept in artifacts/ under a name that changes with the table."""
    key = hashlib.sha256(
        pd.util.hash_pandas_object(table, index=False).to_numpy().tobytes()
    ).hexdigest()[:12]
    path = paths.ARTIFACTS / f"credit_edges_{kind}_{key}.npy"
    if not path.exists():
        edges = similarity_edges(table, GRAPHS[kind])
        with paths.atomic_write(path) as partial:
            np.save(partial, edges)
    return np.load(path)


def load(name="credit", source=None, *, attribute=None, graph=None) -> Dataset:
    """Credit as a `Dataset`: target education, groups by "age" (default), "sex" or both; source bundled or local.

    `graph`: None, "published" (its columns include the target, so labels leak into it), or "without_target".
    """
    if source not in (None, "bundled", "local"):
        raise ValueError(f"source: found {source!r}; credit has 'bundled' and 'local'")
    if graph not in (None, *GRAPHS):
        raise ValueError(
            f"graph: found {graph!r}; wanted None, {', '.join(map(repr, GRAPHS))}"
        )
    if source == "local":
        tried = [folder / "credit" / "uci_credit_card.csv" for folder in local_folders()]
        if not any(path.exists() for path in tried):
            raise not_found("credit", tried)
        uci = pd.read_csv(next(path for path in tried if path.exists()))
    else:
        uci = _bundled("uci_credit.parquet")
    table, age, sex = (
        derive(uci),
        np.where(uci["AGE"] < 25, "under 25", "25 or older"),
        uci["SEX"].map({1: "men", 2: "women"}),
    )
    notes = [
        "target: education, with unknown codes under 'other'",
        f"not features: {', '.join(NOT_FEATURES)}",
    ]
    notes += (
        [
            f"graph: {graph}"
            + ", from columns that include the target" * (graph == "published")
        ]
        if graph
        else []
    )
    return Dataset(
        name="credit",
        source=source or "bundled",
        X=table.drop(columns=NOT_FEATURES),
        y=table["EducationLevel"].to_numpy(),
        **group_by(
            {"age": age, "sex": sex.to_numpy()}, "age" if attribute is None else attribute
        ),
        label_names=LABEL_NAMES,
        edge_index=symmetric(_graph(table, graph)) if graph else None,
        notes=tuple(notes),
        licence=LICENCE,
        citation=CITATION,
    )


def credit_probabilities() -> tuple[np.ndarray, np.ndarray]:
    """A plain model's probabilities, float32 (30000, 4), and the part of every row: `split` of Credit with seed 0."""
    stored = _bundled("credit_probabilities.parquet").to_numpy(dtype=np.int64)
    probs = np.column_stack([stored, UNIT - stored.sum(axis=1)]) / UNIT
    return probs.astype(np.float32), split(load(), seed=0)


def fit_probabilities() -> np.ndarray:
    """Fit the plain model on the train part of split 0; its probabilities for all rows, float64 (30000, 4)."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    data = load()
    train = split(data, seed=0) == "train"
    options = {
        "learning_rate": 0.05,
        "max_iter": 60,
        "max_leaf_nodes": 8,
        "early_stopping": False,
        "random_state": 0,
    }
    model = HistGradientBoostingClassifier(**options)
    return model.fit(data.X[train], data.y[train]).predict_proba(data.X)


if __name__ == "__main__":
    units = np.round(fit_probabilities()[:, :-1] * UNIT).astype(np.int32)
    with paths.atomic_write(
        Path(__file__).with_name("credit_probabilities.parquet")
    ) as partial:
        frame = pd.DataFrame(units, columns=list(LABEL_NAMES[:-1]))
        frame.to_parquet(partial, index=False, compression="zstd", use_dictionary=False)

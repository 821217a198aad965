"""Credit: the UCI table "default of credit card clients", its derived table, and a plain model's probabilities.

`python -m cfhelpers.datasets.credit` fits the model again and rewrites its file.
"""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
import pandas as pd

from cfhelpers.datasets._dataset import Dataset, intersect, split

LABEL_NAMES = ("other", "high school", "university", "graduate school")
NOT_FEATURES = ["NoDefaultNextMonth", "Single", "EducationLevel"]
LICENCE = "CC BY 4.0"
CITATION = "I-Cheng Yeh (2009), Default of Credit Card Clients, UCI Machine Learning Repository, doi:10.24432/C55S3H"
UNIT = 1_000_000  # cached probabilities are whole millionths


def _bundled(name: str) -> pd.DataFrame:
    with as_file(files("cfhelpers.datasets") / name) as path:
        return pd.read_parquet(path)


def derive(uci: pd.DataFrame) -> pd.DataFrame:
    """The 15 columns of the graph-fairness literature, int64 (n, 15), from the 25 of the UCI table."""

    def usd(amounts):
        return np.round(np.asarray(amounts) / 32.75, -1)

    bills, payments = usd(uci.filter(regex="^BILL_AMT")), usd(uci.filter(regex="^PAY_AMT"))
    late = uci[[f"PAY_{month}" for month in (6, 5, 4, 3, 2, 0)]].to_numpy().clip(0)  # months overdue, oldest first
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
        "TotalOverdueCounts": (np.diff(late > 0, axis=1, prepend=False) & (late > 0)).sum(axis=1),
        "TotalMonthsOverdue": late.sum(axis=1),
        "HistoryOfOverduePayments": late.any(axis=1),
    }
    return pd.DataFrame(table).astype(np.int64)


def load(source: str | None = None, *, attribute=None) -> Dataset:
    """Credit as a `Dataset`: target education, groups by "age" (default), "sex" or both; source "bundled"."""
    if source not in (None, "bundled"):
        raise ValueError(f"source: found {source!r}; credit has 'bundled'")
    uci = _bundled("uci_credit.parquet")
    columns = {
        "age": np.where(uci["AGE"] < 25, "under 25", "25 or older"),
        "sex": np.where(uci["SEX"] == 2, "women", "men"),
    }
    attributes = (attribute or "age",) if isinstance(attribute, str | None) else tuple(attribute)
    if not attributes or not set(attributes) <= set(columns):
        raise ValueError(f"attribute: found {attribute!r}; wanted {' or '.join(map(repr, columns))}, or both")
    groups = columns[attributes[0]] if len(attributes) == 1 else intersect(*(columns[a] for a in attributes))
    table = derive(uci)
    return Dataset(
        name="credit",
        source="bundled",
        X=table.drop(columns=NOT_FEATURES),
        y=table["EducationLevel"].to_numpy(),
        groups=groups,
        group_names=tuple(pd.Series(groups).value_counts().index),
        label_names=LABEL_NAMES,
        attribute=" × ".join(attributes),
        notes=("target: education, with unknown codes under 'other'", f"not features: {', '.join(NOT_FEATURES)}"),
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
    model = HistGradientBoostingClassifier(
        learning_rate=0.05, max_iter=60, max_leaf_nodes=8, early_stopping=False, random_state=0
    )
    return model.fit(data.X[train], data.y[train]).predict_proba(data.X)


def _write_probabilities() -> None:
    units = np.round(fit_probabilities()[:, :-1] * UNIT).astype(np.int32)
    frame = pd.DataFrame(units, columns=list(LABEL_NAMES[:-1]))
    path = Path(__file__).with_name("credit_probabilities.parquet")
    frame.to_parquet(path.with_suffix(".part"), index=False, compression="zstd", use_dictionary=False)
    path.with_suffix(".part").replace(path)


if __name__ == "__main__":
    _write_probabilities()

"""What the figures say in words: titles, what a deviation is over, and which cells."""

import re
import textwrap
from collections.abc import Mapping

import pandas as pd

from cfhelpers.control import Guarantee
from cfhelpers.study.names import DATASETS, DataKind

# As short as an axis wants them, in the order of the paper's clusters.
METRIC_NAMES = {
    "demographic_parity": "DP",
    "equal_opportunity": "EO",
    "equalized_odds": "EOdds",
    "predictive_equality": "PE",
}
METRICS_OF_TWO_CONDITIONS = ("equalized_odds",)  # y = ỹ, and y ≠ ỹ
MODEL_NAMES = {"xgboost": "XGBoost", "gcn": "GCN", "sage": "GraphSAGE", "gat": "GAT"}
THRESHOLD_NAMES = {False: "single λ", True: "classwise λ"}
_CONDITION = re.compile(r"(?<=^label )([^,:]+), [^:]+(?=: )")  # of "label 1, y = 1: …"
_NO_GAP = "no gap"  # all groups have the same share, so one group is both ends
_UNBROKEN = re.compile(r"(?<=\d) of (?=\d)| / ")  # "8 of 10", "group / label"
# "label 1: a (40) < b (2,000)": a cell, two groups, and their points.
_WIDEST = re.compile(
    r"(?P<cell>.+): (?P<low>.+) \((?P<low_n>[\d,]+)\)"
    r" < (?P<high>.+) \((?P<high_n>[\d,]+)\)"
)


def dataset_title(dataset: str) -> str:
    """What a title calls a dataset.

    Parameters
    ----------
    dataset : str

    Returns
    -------
    str

    Examples
    --------
    >>> print(dataset_title("credit"), dataset_title("pokec_z"))
    Credit the paper's "Pokec-z" (= Pokec-n)
    """
    if dataset == "pokec_z":
        return 'the paper\'s "Pokec-z" (= Pokec-n)'
    return DATASETS.get(dataset, dataset)


def subject(rows: pd.DataFrame) -> str:
    """Dataset, attribute and kind of λ.

    Parameters
    ----------
    rows : DataFrame
        With the columns dataset, attribute and classwise.

    Returns
    -------
    str

    Examples
    --------
    >>> rows = {"dataset": ["credit"], "attribute": ["age"], "classwise": [True]}
    >>> subject(pd.DataFrame(rows))
    'Credit by age · classwise λ'
    """
    row = rows.iloc[0]
    name = dataset_title(row["dataset"])
    attribute = row["attribute"].replace("+", " × ")
    kinds = [THRESHOLD_NAMES[kind] for kind in sorted(set(rows["classwise"]))]
    return f"{name} by {attribute} · {' and '.join(kinds)}"


def records_and_model(rows: pd.DataFrame) -> str:
    """Whose records, how many are labelled, the model, and how often it is right.

    Parameters
    ----------
    rows : DataFrame
        With the columns records, data and model; n_labelled and test_accuracy are told
        where they are there.

    Returns
    -------
    str

    Examples
    --------
    >>> rows = {"records": ["real"], "data": ["the paper's"], "model": ["gcn"]}
    >>> records_and_model(pd.DataFrame(rows | {"n_labelled": [8797]}))
    'real, 8,797 labelled · GCN'
    """
    row = rows.iloc[0]
    words = [row["records"]]
    if "n_labelled" in rows:
        words.append(f"{row['n_labelled']:,} labelled")
    if row["data"] == DataKind.OTHER:
        words.append("not the paper's records")
    model = MODEL_NAMES.get(row["model"], row["model"])
    if "test_accuracy" in rows:
        model += f", {rows['test_accuracy'].mean():.1%} of test labels right"
    return f"{', '.join(words)} · {model}"


def deviation_words(rows: pd.DataFrame) -> str:
    """What error bars and bands are over.

    Parameters
    ----------
    rows : DataFrame
        With the column split, and training_split where there are several models.

    Returns
    -------
    str

    Examples
    --------
    >>> deviation_words(pd.DataFrame({"split": [0, 1, 1]}))
    '± sd over 2 re-splits of one trained model'
    """
    n_models = 1
    if "training_split" in rows:
        n_models = rows["training_split"].nunique()
    of = "one trained model"
    if n_models > 1:
        of = f"each of {n_models} trained models"
    return f"± sd over {rows['split'].nunique()} re-splits of {of}"


def cluster_column(rows: pd.DataFrame) -> str:
    """What clusters of bars are by: the metric, or the score if there is one metric.

    Parameters
    ----------
    rows : DataFrame

    Returns
    -------
    "metric" or "score"
    """
    if rows["metric"].nunique() > 1:
        return "metric"
    return "score"


def cluster_name(cluster: str) -> str:
    """A metric's short name, or a score's.

    Parameters
    ----------
    cluster : str

    Returns
    -------
    str

    Examples
    --------
    >>> cluster_name("equal_opportunity"), cluster_name("aps")
    ('EO', 'APS')
    """
    return METRIC_NAMES.get(cluster, cluster.upper())


def clusters_in_order(rows: pd.DataFrame) -> list[str]:
    """The clusters of some rows in the order in which they are drawn.

    Parameters
    ----------
    rows : DataFrame

    Returns
    -------
    list of str
    """
    found = set(rows[cluster_column(rows)])
    return [name for name in METRIC_NAMES if name in found] or sorted(found)


def widest_lines(rows: pd.DataFrame, column: str) -> list[str]:
    """Between which cells the gap is, at the strictest c, by the paper's rule.

    Parameters
    ----------
    rows : DataFrame
    column : "widest" or "base_widest"
        The latter for the base predictor.

    Returns
    -------
    list of str
        A line per metric, or per score if there is one metric; those that say the same
        are one. What a metric asks of the true label is said where it asks two things.
        Empty where the rows have no such column.

    Examples
    --------
    >>> rows = pd.DataFrame({
    ...     "metric": "demographic_parity",
    ...     "score": "aps",
    ...     "guarantee": "none",
    ...     "c": 0.05,
    ...     "widest": ["label 3: a (217) < b (9,000)"],
    ... })
    >>> widest_lines(rows, "widest")
    ['APS: label 3, a (217) < b, 1 of 1']
    """
    if column not in rows:
        return []
    strictest = rows["c"] == rows["c"].min()
    by_rule = rows[strictest & rows["guarantee"].eq(Guarantee.NONE)]
    texts = {}
    for cluster in clusters_in_order(rows):
        found = by_rule[by_rule[cluster_column(rows)] == cluster]
        texts_of_splits = found[column].astype(str)
        if not found["metric"].isin(METRICS_OF_TWO_CONDITIONS).any():
            texts_of_splits = texts_of_splits.str.replace(_CONDITION, r"\1", regex=True)
        text = _widest_most_often(texts_of_splits)
        if text:
            texts[cluster] = text
    return _merged_lines(texts)


def _widest_most_often(texts: pd.Series) -> str:
    """The two cells that are widest most often, and in how many splits; "" if none."""
    parts = texts.str.extract(_WIDEST).dropna()
    if parts.empty:
        return ""
    pairs = parts[["cell", "low", "high"]].agg("\n".join, axis=1)
    pairs = pairs.mask(parts["low"] == parts["high"], _NO_GAP)
    most_often = pairs.mode().iloc[0]
    chosen = parts[pairs == most_often]
    share = f"{len(chosen)} of {len(texts)}"
    if most_often == _NO_GAP:
        return f"{_NO_GAP}, {share}"
    cell, low, high = most_often.split("\n")
    sizes = chosen[["low_n", "high_n"]].apply(lambda n: n.str.replace(",", ""))
    low_n, high_n = sizes.astype(int).median()
    if low_n <= high_n:
        groups = f"{low} ({low_n:,.0f}) < {high}"
    else:
        groups = f"{low} < {high} ({high_n:,.0f})"
    return f"{cell}, {groups}, {share}"


def smallest_cells_line(rows: pd.DataFrame) -> str:
    """The smallest calibration cell wherever no finite λ was left.

    Parameters
    ----------
    rows : DataFrame

    Returns
    -------
    str
        Empty where λ is finite everywhere, or the rows do not name their cells.

    Examples
    --------
    >>> rows = pd.DataFrame({
    ...     "metric": "equal_opportunity",
    ...     "score": ["aps", "tps"],
    ...     "feasible": [False, True],
    ...     "smallest_cell": "a / 1",
    ...     "smallest_n": 3,
    ... })
    >>> smallest_cells_line(rows)
    'Smallest calibration cell (group / label) where λ = ∞: APS: 3 points of a / 1'
    """
    if "smallest_cell" not in rows:
        return ""
    texts = {}
    for cluster in clusters_in_order(rows):
        is_own = rows[cluster_column(rows)] == cluster
        infinite = rows[is_own & ~rows["feasible"]]
        if len(infinite):
            cell = infinite["smallest_cell"].mode().iloc[0]
            n = infinite.loc[infinite["smallest_cell"] == cell, "smallest_n"].min()
            points = "1 point" if n == 1 else f"{n:,} points"
            texts[cluster] = f"{points} of {cell}"
    if not texts:
        return ""
    cells = "; ".join(_merged_lines(texts))
    return f"Smallest calibration cell (group / label) where λ = ∞: {cells}"


def _merged_lines(texts: Mapping[str, str]) -> list[str]:
    """Texts behind the names of their clusters; clusters with one text share a line."""
    names: dict[str, list[str]] = {}
    for cluster, text in texts.items():
        names.setdefault(text, []).append(cluster_name(cluster))
    return [f"{', '.join(found)}: {text}" for text, found in names.items()]


def wrapped(lines: list[str], width: int) -> list[str]:
    """Lines of at most so many letters; what follows the first is set in.

    "8 of 10" and "group / label" are not broken.

    Parameters
    ----------
    lines : list of str
    width : int

    Returns
    -------
    list of str

    Examples
    --------
    >>> wrapped(["one two three"], 8)
    ['one two', '   three']
    """
    found = []
    for line in lines:
        kept = _UNBROKEN.sub(lambda part: part[0].replace(" ", "\xa0"), line)
        parts = textwrap.wrap(kept, width, subsequent_indent="   ")
        found += [part.replace("\xa0", " ") for part in parts]
    return found

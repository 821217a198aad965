"""Tab 1 and Tab A1: what each fairness metric compares, read off the metrics."""

import pandas as pd

from cfhelpers.fairness import METRICS, FairnessMetric
from cfhelpers.metrics import LABEL_METRICS, Quantity
from cfhelpers.study import tables

GIVEN = {"any": "", "equal": r"Y = \tilde y, ", "different": r"Y \ne \tilde y, "}


def definition(metric: FairnessMetric, says: str, is_right: str) -> str:
    r"""What a metric compares between groups a, in LaTeX.

    Parameters
    ----------
    metric : FairnessMetric
    says : str
        How the predictor names the label.
    is_right : str
        How it names the true label.

    Returns
    -------
    str

    Examples
    --------
    >>> print(definition(METRICS["equal_opportunity"], r"\hat Y = \tilde y", ""))
    $\Pr[\hat Y = \tilde y \mid Y = \tilde y, g = a]$
    """
    if metric.quantity == Quantity.TRUE_LABEL_COVERAGE:
        return rf"$\Pr[{is_right} \mid g = a]$"
    if metric.quantity == Quantity.COVERAGE:
        texts = []
        for condition in metric.conditions:
            texts.append(rf"$\Pr[{says} \mid {GIVEN[str(condition)]}g = a]$")
        return " and ".join(texts)
    prior = ""
    if metric.quantity == Quantity.PPV_MINUS_PRIOR:
        prior = r" - \Pr[Y = \tilde y \mid g = a]"
    return rf"$\Pr[Y = \tilde y \mid {says}, g = a]{prior}$"


def definitions(says: str, is_right: str) -> pd.DataFrame:
    """Every metric with its definition and how groups are compared."""
    rows = {}
    for name in LABEL_METRICS:
        metric = METRICS[name]
        text = definition(metric, says, is_right)
        rows[name.replace("_", " ")] = {
            "definition": text,
            "compared as": str(metric.compare),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("metric")


def for_labels() -> pd.DataFrame:
    """Tab A1: the metrics of a classifier that predicts one label."""
    return definitions(r"\hat Y = \tilde y", r"\hat Y = Y")


def for_sets() -> pd.DataFrame:
    """Tab 1: the metrics of a predictor that answers with sets."""
    return definitions(r"\tilde y \in \mathcal C", r"Y \in \mathcal C")


def save() -> None:
    """Write both tables to results/tables."""
    what = "What fairness metrics compare between groups $a$: "
    tables.save(for_labels(), "taba1_metric_definitions", f"{what}one predicted label.")
    sets = rf"{what}prediction sets $\mathcal C$."
    tables.save(for_sets(), "tab1_metrics", sets)


def side_by_side() -> str:
    """Both tables as one Markdown table, as notebook 02 shows it."""
    columns = {
        "one predicted label (Tab A1)": for_labels()["definition"],
        "prediction sets (Tab 1)": for_sets()["definition"],
        "compared as": for_sets()["compared as"],
    }
    return tables.markdown(pd.DataFrame(columns))

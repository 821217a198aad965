"""Every number of the paper's tables beside ours, with one honest word; nothing is computed but means over splits."""

import os
from pathlib import Path

import numpy as np
import pandas as pd

from cfhelpers import paths
from cfhelpers.study import experiments

EFFICIENCY_TOLERANCE = 0.05  # relative to the paper's number
DISPARITY_TOLERANCE = 0.05  # absolute, of a difference or a ratio
TIE = 0.005  # two numbers that are no farther apart count as equal
STATUSES = ("match", "close", "differs", "other year", "simulated", "not run here")
DATA = (
    "the paper's",
    "other",
    "simulated",
)  # what is shown first; only the first kind is judged
TABLES = {  # label in the paper's text -> id, and the notebook that makes it
    "tab:disparate_impact": ("Tab 3", 10),
    "tab:acs_educ_pred_par": ("Tab 4", 11),
    "tab:acseducation_di_all": ("Tab E1", 10),
    "tab:acsincome_di_all": ("Tab E2", 10),
    "tab:credit_di_all": ("Tab E3", 10),
    "tab:pokec_n_di_all": ("Tab E4", 10),
    "tab:pokec_z_di_all": ("Tab E5", 10),
    "tab:disparate_gcp": ("Tab E6", 12),
}
SETTING = ["dataset", "attribute", "classwise", "score", "arm", "metric", "c", "quantity"]
MADE_BY = ["source", "data", "records", "profile", "model"]
QUANTITIES = ("efficiency", "disparity")
AVERAGE = 0.125  # Tab 4's base is an average over c = .05, .10, .15, .20; so is this
BASE_DISPARITY = (
    "base disparity depends strongly on the base model "
    "(Credit, four models: DP .06–.11 for APS, .14–.33 for TPS)"
)
BATCH_GCP = "the paper scored BatchGCP on the true label (erratum 8); ours is on fixed labels, as CF"
POKEC_Z_GENDER = {
    "aps": ".751 → .790",
    "tps": ".716 → .790",
    "cfgnn": ".682 → .800",
    "daps": ".754 → .797",
}


def authors_runs() -> pd.DataFrame:
    """The means over the authors' runs, one row per setting, from their release; see results/authors."""
    return pd.read_csv(paths.RESULTS / "authors" / "authors_runs_summary.csv")


def load() -> tuple[pd.DataFrame, pd.DataFrame]:
    """The tidy rows and the BatchGCP rows of every profile, as far as they were made; either may be empty."""
    try:
        rows = experiments.load_rows()
    except FileNotFoundError:
        rows = pd.DataFrame()
    batch = [
        pd.read_parquet(file)
        for file in sorted((paths.RESULTS / "runs").glob("*/batch_gcp_*.parquet"))
    ]
    return rows, pd.concat(batch, ignore_index=True) if batch else pd.DataFrame()


def scorecard(
    reported: pd.DataFrame, rows: pd.DataFrame, batch_rows: pd.DataFrame
) -> pd.DataFrame:
    """One row per reported number, in their order: paper, ours, sd over splits, difference, tolerance, status, reason.

    `rows` are tidy rows of `experiments`, `batch_rows` those of BatchGCP; either may be empty.
    """
    if unknown := set(reported["table"]) - set(TABLES):
        raise ValueError(
            f"reported: found the table {sorted(unknown)[0]!r}; wanted some of {', '.join(TABLES)}"
        )
    card = reported.rename(columns={"value": "paper"}).reset_index(drop=True)
    card.insert(
        card.columns.get_loc("paper"),
        "id",
        card["table"].map(lambda table: TABLES[table][0]),
    )
    efficiency, mixed = card["quantity"] == "efficiency", card["id"] == "Tab 4"
    wanted = card[SETTING].assign(
        c=_closeness(card), classwise=card["classwise"].mask(mixed, efficiency)
    )  # erratum 4
    summarised = _summarise(rows, batch_rows)
    ours = wanted.merge(summarised, how="left", on=SETTING, validate="many_to_one")
    true_label = wanted.assign(quantity="true label").merge(
        summarised, how="left", on=SETTING
    )["ours"]
    data, tolerance = (
        ours["data"],
        (EFFICIENCY_TOLERANCE * card["paper"]).where(efficiency, DISPARITY_TOLERANCE),
    )
    difference = ours["ours"] - card["paper"]
    card = card.join(ours[["ours", "sd"]]).assign(
        splits=ours["splits"].fillna(0).astype(int),
        difference=difference.where(data.isin(["the paper's", "other"])),
        tolerance=tolerance.where(data == "the paper's"),
        **ours[["source", "data", "records", "profile"]],
        notebook=card["table"].map(lambda table: TABLES[table][1]),
    )
    words = {
        "not run here": data.isna(),
        "simulated": data == "simulated",
        "other year": data == "other",
        "match": difference.abs() <= tolerance + 1e-9,
        "close": (_conclusion(card, "paper") == _conclusion(card, "ours")).all(axis=1)
        & card["ours"].notna(),
    }
    card["status"] = np.select(list(words.values()), list(words), "differs")
    card["reason"] = _reasons(card, true_label)
    return card.round(dict.fromkeys(["ours", "sd", "difference", "tolerance"], 6))


def _closeness(card: pd.DataFrame) -> pd.Series:
    return pd.to_numeric(card["c"].replace("avg", AVERAGE)).astype(float).round(6)


def _summarise(rows: pd.DataFrame, batch_rows: pd.DataFrame) -> pd.DataFrame:
    """Mean, sd and number of splits of every setting; of several runs the paper's data first, then more splits."""
    columns = [*SETTING, *MADE_BY, "split", "value"]
    parts = []
    if len(rows):
        rows = rows[rows["guarantee"] == "none"]
        for arm, prefix in (("cf", ""), ("base", "base_")):
            parts += [
                rows.assign(arm=arm, quantity=name, value=rows[prefix + name])
                for name in QUANTITIES
            ]
        base = pd.concat(parts[-2:])
        base = base[base["metric"] == "predictive_parity_proxy"]
        same_split = [name for name in columns if name not in ("c", "value")]
        parts.append(base.groupby(same_split, as_index=False)[["c", "value"]].mean())
    if len(batch_rows):
        batch_rows = batch_rows[batch_rows["arm"] == "batch_gcp"].assign(
            classwise=True, c=0.8
        )
        fixed, true = (
            batch_rows[batch_rows["scored_on"] == scored]
            for scored in ("fixed label", "true label")
        )
        parts += [fixed.assign(quantity=name, value=fixed[name]) for name in QUANTITIES]
        parts.append(true.assign(quantity="true label", value=true["disparity"]))
    long = pd.concat([pd.DataFrame(columns=columns), *(part[columns] for part in parts)])
    if unknown := set(long["data"]) - set(DATA):
        raise ValueError(
            f"rows: found the data {sorted(map(str, unknown))[0]!r}; wanted one of {', '.join(DATA)}"
        )
    long = long.assign(
        c=long["c"].astype(float).round(6), value=long["value"].astype(float)
    )
    values = long.groupby([*SETTING, *MADE_BY])["value"]
    found = values.agg(ours="mean", sd="std", splits="count").reset_index()
    order = {
        "kind": found["data"].map(DATA.index),
        "fewer": -found["splits"],
        "slower": found["profile"] != "quick",
    }
    return found.assign(**order).sort_values([*order, *MADE_BY]).drop_duplicates(SETTING)


def _conclusion(card: pd.DataFrame, which: str) -> pd.DataFrame:
    """Whether a number's arm is beyond c, and the number's order with the base's (the base's: with CF's)."""
    value, arm, c = card[which], card["arm"], _closeness(card)
    setting = [
        card[name]
        for name in ("table", "dataset", "attribute", "classwise", "score", "metric")
    ]
    disparity = (
        value.where(card["quantity"] == "disparity")
        .groupby([*setting, c, arm])
        .transform("max")
    )
    worse = (c - disparity).where(card["metric"] == "disparate_impact", disparity - c)
    means = {
        a: value.where(arm == a).groupby([*setting, card["quantity"]]).transform("mean")
        for a in ("base", "cf")
    }
    apart = value - means["base"].where(arm != "base", means["cf"])
    return pd.DataFrame(
        {
            "beyond": worse > TIE + 1e-9,
            "order": np.sign(apart).where(apart.abs() > TIE + 1e-9, 0),
        }
    )


def _reasons(card: pd.DataFrame, true_label: pd.Series) -> pd.Series:
    """What is known about each number: errata of the paper, and why ours may differ."""
    score, arm, status, disparity = (
        card["score"],
        card["arm"],
        card["status"],
        card["quantity"] == "disparity",
    )
    proxy, gender = (
        card["id"] == "Tab 4",
        (card["dataset"] == "pokec_z") & (card["attribute"] == "gender"),
    )
    off, authors = status.isin(["close", "differs"]), score.map(POKEC_Z_GENDER)
    scored = true_label.map(
        lambda found: "" if np.isnan(found) else f" (on the true label {found:.3f})"
    ).where(disparity, "")
    notes = [
        ("no rows: make or make paper makes them", status == "not run here"),
        ("ours is undefined on every split", (status == "differs") & card["ours"].isna()),
        (BASE_DISPARITY, off & disparity & (arm == "base")),
        ("the paper's RAPS cannot be traced (erratum 7)", score == "raps"),
        (
            "the paper's CFGNN was trained once, on split 0, and reused (erratum 9)",
            score == "cfgnn",
        ),
        ("the paper's DAPS tuning composes diffusions (erratum 9)", score == "daps"),
        (BATCH_GCP + scored, arm == "batch_gcp"),
        (
            "disparities of a single λ beside classwise efficiencies; ours likewise (erratum 4)",
            proxy & (arm == "cf"),
        ),
        (
            "the authors take |PPV − prior| in each group, which hides its sign",
            proxy & disparity,
        ),
        (
            "the paper repeats Pokec-n's number (erratum 5)",
            gender & disparity & repeats(card),
        ),
        (
            "the authors' runs give " + authors.fillna("") + " (erratum 5)",
            gender & disparity & authors.notna(),
        ),
    ]
    texts = pd.concat(
        [
            pd.Series(text, card.index, dtype=object).where(mask, "")
            for text, mask in notes
        ],
        axis=1,
    )
    known = texts.agg(lambda row: "; ".join(filter(None, row)), axis=1)
    return known.mask((status == "differs") & (known == ""), "unexplained")


def repeats(card: pd.DataFrame) -> pd.Series:
    """Whether a number of Pokec-n or Pokec-z is printed, to the last digit, in the same place for the other."""
    both = card[card["dataset"].isin(["pokec_n", "pokec_z"])]
    place = ["attribute", "classwise", "score", "arm", "metric", "c", "quantity", "paper"]
    return both.duplicated(place, keep=False).reindex(card.index, fill_value=False)


def summary(card: pd.DataFrame) -> pd.DataFrame:
    """How many numbers of each table have each status word."""
    return pd.crosstab(card["id"], card["status"]).reindex(
        columns=list(STATUSES), fill_value=0
    )


def write(card: pd.DataFrame, path: str | os.PathLike | None = None) -> Path:
    """Write the card as CSV, to results/scorecard.csv unless told otherwise; the path."""
    path = paths.RESULTS / "scorecard.csv" if path is None else Path(path)
    with paths.atomic_write(path) as partial:
        card.to_csv(partial, index=False)
    return path

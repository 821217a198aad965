"""Sentences of the paper, each with the statistic that decides it.

The statistic and its bound follow the sentence's words and stand in code; a rule that was
changed after its value had been seen says so. A sentence that only describes a figure or
table is decided by the authors' numbers; one that says something about a method by our
runs on real records, and so is one for which the authors stored nothing. Simulated
records decide nothing.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cfhelpers import fairness, paths
from cfhelpers.control import Guarantee
from cfhelpers.study import authors, base_models, counts
from cfhelpers.study.judging import ROUNDING, prediction_interval
from cfhelpers.study.names import DATASETS, Arm, DataKind

ENOUGH = 3  # with fewer training splits the interval is over re-splits
RUN = ["dataset", "attribute", "data", "records", "profile", "model"]
SETTING = ["dataset", "attribute", "classwise", "score", "metric", "c"]
MEANS = ["coverage", "efficiency", "disparity"]
MEANS += [f"base_{name}" for name in MEANS]
PROXY = "predictive_parity_proxy"
NO_NUMBERS = "no numbers"
EXACT = "exact"
COLUMNS = ["id", "sentence", "place", "statistic", "rule", "decided_by", "records"]
COLUMNS += ["over", "value", "low", "high", "verdict", "reason"]
COLUMNS += ["verdict_beside", "beside", "revised"]


class Verdict(StrEnum):
    """What the numbers say of a sentence."""

    HOLDS = "holds"
    FAILS = "fails"
    CANNOT_TELL = "cannot tell"


class Source(StrEnum):
    """Where the numbers come from."""

    PRINTED = "the paper's tables"
    STORED = "the authors' stored means"
    COVERAGES = "the authors' stored coverages"
    OURS = "our runs"
    BASE_MODELS = "our base models"
    BATCH_GCP = "our runs of BatchGCP"
    AUTHORS_GROUPS = "the authors' coverages per group under BatchGCP"
    GROUPS = "our coverages per group under BatchGCP"
    FULL_SETS = "full sets for Pokec-n's test labels"
    ARITHMETIC = "arithmetic"


Evidence = Mapping[Source, pd.DataFrame]


@dataclass(frozen=True)
class Claim:
    """A sentence, and what decides it.

    Parameters
    ----------
    id : str
    sentence : str
        Quoted from the paper, without LaTeX markup.
    place : str
    statistic : str
        What is computed, in words; it continues "The statistic is".
    compute : function
        Means of settings in, the statistic out.
    sources : tuple of Source
        The first decides; the others are shown beside it.
    at_least, at_most : float
        One of the two: the bound that the sentence needs.
    where : mapping
        Column → values: which settings it is about.
    printed : mapping
        The same for the paper's tables.
    form : str
        How the value is written.
    limits : (float, float)
        What the statistic can be: 0 and 1 for a share. Intervals end there.
    lacks : str
        What was not run or not stored, where that is known.
    note : str
        What else the reader should know of the value: a sentence.
    revised : str
        What the rule was before, and what it said, if it was changed after its value had
        been seen.

    Examples
    --------
    >>> claim = Claim("a", "Sets shrink.", "§1", "the share", np.size, (Source.OURS,), 1)
    >>> claim.rule
    'holds if the share is at least 1.000, fails if it is less'
    """

    id: str
    sentence: str
    place: str
    statistic: str
    compute: Callable[[pd.DataFrame], float]
    sources: tuple[Source, ...]
    at_least: float | None = None
    at_most: float | None = None
    where: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    printed: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    form: str = ".3f"
    limits: tuple[float, float] = (-np.inf, np.inf)
    lacks: str = ""
    note: str = ""
    revised: str = ""

    def __post_init__(self) -> None:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError(
                f"claim {self.id}: found at_least {self.at_least} and "
                f"at_most {self.at_most}; wanted one of the two"
            )

    @property
    def needs(self) -> str:
        """The bound in words."""
        if self.at_least is not None:
            return f"at least {self.at_least:{self.form}}"
        return f"at most {self.at_most:{self.form}}"

    @property
    def rule(self) -> str:
        """When the claim holds and when it fails, in words."""
        other = "less" if self.at_most is None else "more"
        return f"holds if {self.statistic} is {self.needs}, fails if it is {other}"

    def verdict(self, low: float, high: float) -> Verdict:
        """What an interval of the statistic says.

        Parameters
        ----------
        low, high : float
            NaN where there is no value.

        Returns
        -------
        Verdict
            "cannot tell" where the bound is inside the interval, or there is none.
        """
        if np.isnan(low) or np.isnan(high):
            return Verdict.CANNOT_TELL
        if self.at_least is not None:
            if low >= self.at_least - ROUNDING:
                return Verdict.HOLDS
            if high < self.at_least - ROUNDING:
                return Verdict.FAILS
        if self.at_most is not None:
            if high <= self.at_most + ROUNDING:
                return Verdict.HOLDS
            if low > self.at_most + ROUNDING:
                return Verdict.FAILS
        return Verdict.CANNOT_TELL


@dataclass(frozen=True)
class Measured:
    """A statistic's value and interval, and what they were computed from."""

    value: float
    low: float
    high: float
    over: str
    records: str
    lacking: tuple[str, ...] = ()  # datasets that the claim is about and were not run

    @property
    def is_missing(self) -> bool:
        return bool(np.isnan(self.value))


def our_settings(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over re-splits of every setting, for each training split.

    Parameters
    ----------
    rows : DataFrame
        Of `stored_rows.load_training_rows`; may be empty.

    Returns
    -------
    DataFrame
        A run with fewer than ENOUGH training splits gives a line per re-split instead.
        `unit` tells training splits or re-splits apart, `over` says which of the two.
        `changed_runs` counts the re-splits in which CF changed the sets by a finite λ,
        `changed_beyond` those of them that were beyond c.
    """
    columns = [*RUN, *SETTING[2:], "unit", "over", *MEANS]
    if not len(rows):
        return pd.DataFrame(columns=[*columns, "changed_runs", "changed_beyond"])
    is_real = rows["data"].isin([DataKind.PAPERS, DataKind.OTHER])
    rows = rows[is_real & (rows["guarantee"] == Guarantee.NONE)]
    if "training_split" not in rows:
        rows = rows.assign(training_split=0)
    rows = rows.assign(training_split=rows["training_split"].fillna(0).astype(int))
    trained = rows.groupby(RUN)["training_split"]
    is_enough = trained.transform("nunique") >= ENOUGH
    is_first = rows["training_split"] == trained.transform("min")
    rows = rows.assign(
        unit=rows["training_split"].where(is_enough, rows["split"]),
        over=np.where(is_enough, "training splits", "re-splits of one model"),
    )
    rows = rows[is_enough | is_first]
    changed = (rows["efficiency"] > rows["base_efficiency"]) & rows["feasible"]
    rows = rows.assign(
        changed_runs=changed,
        changed_beyond=changed & rows["beyond"].astype(bool),
    )
    grouped = rows.groupby([*RUN, *SETTING[2:], "unit", "over"], as_index=False)
    counts = dict.fromkeys(["changed_runs", "changed_beyond"], "sum")
    return grouped.agg(dict.fromkeys(MEANS, "mean") | counts)


def base_model_settings(rows: pd.DataFrame) -> pd.DataFrame:
    """The size of conformal sets by base model, a line per score and training split.

    Parameters
    ----------
    rows : DataFrame
        Of `base_models.load`; may be empty.

    Returns
    -------
    DataFrame
        The columns of RUN, score, settings, unit, over, base_efficiency.
    """
    rows = rows[rows["model"] != base_models.LARGEST_CLASS]
    parts = []
    for score in base_models.SCORES:
        parts.append(rows.assign(score=score, base_efficiency=rows[f"{score}_size"]))
    table = pd.concat(parts, ignore_index=True)
    records = table["dataset"] + ", " + table["source"]
    return table.assign(
        data=str(DataKind.PAPERS),
        records=records,
        profile="paper",
        unit=table["training_split"],
        over="training splits",
    )


def stored_settings() -> pd.DataFrame:
    """The authors' means as settings.

    Returns
    -------
    DataFrame
        All runs of a setting whose mean set size changed count as changed.
    """
    runs = authors.runs()
    changed = runs["efficiency"] > runs["base_efficiency"]
    return runs.assign(
        changed_runs=runs["runs"].where(changed, 0),
        changed_beyond=runs["runs_beyond_c"].where(changed, 0),
    )


def printed_settings() -> pd.DataFrame:
    """The paper's tables as settings: base, CF and BatchGCP side by side.

    Returns
    -------
    DataFrame
        With the column `table`. Tab 4's base, an average over c, stands beside every c.
    """
    values = authors.reported_values()
    names = {Arm.CF: "", Arm.BASE: "base_", Arm.BATCH_GCP: "batch_gcp_"}
    values["column"] = values["arm"].map(names) + values["quantity"]
    place = ["table", "dataset", "attribute", "classwise", "score", "metric"]
    is_average = values["c"] == "avg"
    rest = values[~is_average].assign(c=lambda part: part["c"].astype(float))
    wide = rest.pivot(index=[*place, "c"], columns="column", values="value").reset_index()
    averages = values[is_average].pivot(index=place, columns="column", values="value")
    beside = wide[place].merge(averages.reset_index(), how="left", on=place)
    for name in ("base_efficiency", "base_disparity"):
        wide[name] = wide[name].fillna(beside[name])
    return wide


def batch_gcp_settings(rows: pd.DataFrame) -> pd.DataFrame:
    """Base, BatchGCP and CF on fixed labels, side by side, a line per c and re-split.

    Parameters
    ----------
    rows : DataFrame
        Of `batch_gcp`; may be empty.

    Returns
    -------
    DataFrame
    """
    keys = [*RUN, "score", "metric", "split"]
    names = {Arm.BASE: "base_", Arm.BATCH_GCP: "batch_gcp_"}
    columns = [*keys, "c", "unit", "over", "efficiency", "disparity"]
    for prefix in names.values():
        columns += [f"{prefix}efficiency", f"{prefix}disparity"]
    if not len(rows):
        return pd.DataFrame(columns=columns)
    is_real = rows["data"].isin([DataKind.PAPERS, DataKind.OTHER])
    rows = rows[is_real & (rows["scored_on"] == "fixed label")]
    table = rows.loc[rows["arm"] == Arm.CF, [*keys, "c", "efficiency", "disparity"]]
    for arm, prefix in names.items():
        own = rows.loc[rows["arm"] == arm, [*keys, "efficiency", "disparity"]]
        renamed = {name: prefix + name for name in ("efficiency", "disparity")}
        table = table.merge(own.rename(columns=renamed), on=keys, validate="many_to_one")
    return table.assign(unit=table["split"], over="re-splits of one model")


def group_settings(rows: pd.DataFrame) -> pd.DataFrame:
    """The coverage of every group under BatchGCP, a line per group and re-split.

    Parameters
    ----------
    rows : DataFrame
        Of `batch_gcp`; may be empty.

    Returns
    -------
    DataFrame
    """
    columns = [*RUN, "split", "group", "coverage", "n"]
    if not len(rows):
        return pd.DataFrame(columns=[*columns, "unit", "over"])
    is_wanted = (rows["arm"] == Arm.BATCH_GCP) & (rows["metric"] == "group_coverage")
    is_real = rows["data"].isin([DataKind.PAPERS, DataKind.OTHER])
    table = rows.loc[is_wanted & is_real, columns]
    return table.assign(unit=table["split"], over="re-splits of one model")


def full_set_settings() -> pd.DataFrame:
    """The proxy's gap where every label is in every set, for Pokec-n's test labels.

    Returns
    -------
    DataFrame
        A line per attribute, computed from the counts in results/pokec_n_counts.csv.
    """
    table = counts.pokec_counts()
    table = table[(table["rule"] == counts.ROUNDED_CUTS) & (table["seed"] == 0)]
    lines = []
    for attribute, part in table.groupby("attribute"):
        y = np.repeat(part["label"].to_numpy(), part["n"])
        groups = np.repeat(part["group"].to_numpy(), part["n"])
        sets = np.ones((len(y), y.max() + 1), dtype=bool)
        line = {
            "dataset": "pokec_n",
            "attribute": attribute,
            "metric": PROXY,
            "coverage": 1.0,
            "efficiency": sets.sum(axis=1).mean(),
            "disparity": fairness.disparity(sets, y, groups, PROXY),
        }
        lines.append(line)
    return pd.DataFrame(lines)


def evidence(
    training_rows: pd.DataFrame, batch_rows: pd.DataFrame
) -> dict[Source, pd.DataFrame]:
    """All numbers that claims are decided by.

    Parameters
    ----------
    training_rows : DataFrame
        Of `stored_rows.load_training_rows`; may be empty.
    batch_rows : DataFrame
        Of `batch_gcp`; may be empty.

    Returns
    -------
    dict
        Source → settings.
    """
    return {
        Source.PRINTED: printed_settings(),
        Source.STORED: stored_settings(),
        Source.COVERAGES: authors.pokec_coverages(),
        Source.OURS: our_settings(training_rows),
        Source.BASE_MODELS: base_model_settings(base_models.load()),
        Source.BATCH_GCP: batch_gcp_settings(batch_rows),
        Source.AUTHORS_GROUPS: group_settings(batch_rows.iloc[:0]),  # none are stored
        Source.GROUPS: group_settings(batch_rows),
        Source.FULL_SETS: full_set_settings(),
        Source.ARITHMETIC: pd.DataFrame({"n": [1000], "p": [0.5]}),
    }


def measure(claim: Claim, source: Source, settings: pd.DataFrame) -> Measured:
    """A claim's statistic on the settings of one source.

    Parameters
    ----------
    claim : Claim
    source : Source
    settings : DataFrame
        Of `evidence`.

    Returns
    -------
    Measured
        NaN where no settings are there.
    """
    wanted = claim.printed if source == Source.PRINTED else claim.where
    chosen = select(settings, wanted)
    missing = Measured(np.nan, np.nan, np.nan, NO_NUMBERS, NO_NUMBERS)
    if not len(chosen):
        return missing
    if "unit" not in chosen:
        value = claim.compute(chosen)
        return Measured(value, value, value, EXACT, str(source))
    values = []
    for unit in _common_units(chosen):
        values.append(claim.compute(chosen[chosen["unit"] == unit]))
    known = np.array(values)[~np.isnan(values)]
    if not len(known):
        return missing
    low, high = np.clip(prediction_interval(known), *claim.limits)
    over = f"{len(known)} {' and '.join(sorted(set(chosen['over'])))}"
    there = set(chosen["dataset"])
    lacking = [name for name in wanted.get("dataset", ()) if name not in there]
    return Measured(
        value=float(known.mean()),
        low=float(low),
        high=float(high),
        over=over,
        records=_records(chosen),
        lacking=tuple(lacking),
    )


def select(settings: pd.DataFrame, wanted: Mapping[str, Sequence[Any]]) -> pd.DataFrame:
    """The settings whose columns have the wanted values.

    Parameters
    ----------
    settings : DataFrame
    wanted : mapping
        Column → values.

    Returns
    -------
    DataFrame

    Examples
    --------
    >>> frame = pd.DataFrame({"score": ["aps", "tps"], "c": [0.1, 0.2]})
    >>> select(frame, {"score": ["tps"]})["c"].tolist()
    [0.2]
    """
    is_chosen = pd.Series(True, settings.index)
    for column, values in wanted.items():
        is_chosen &= settings[column].isin(list(values))
    return settings[is_chosen]


def _common_units(settings: pd.DataFrame) -> list[int]:
    """The training splits, or re-splits, that every dataset and attribute has."""
    units = None
    for _, part in settings.groupby(["dataset", "attribute"]):
        own = set(part["unit"])
        units = own if units is None else units & own
    return sorted(units or set())


def _records(settings: pd.DataFrame) -> str:
    """Whose records were used, in words."""
    texts = []
    for kind, part in settings.groupby("data", sort=False):
        whose = "the paper's records" if kind == DataKind.PAPERS else "other records"
        texts.append(f"{whose} ({'; '.join(sorted(set(part['records'])))})")
    return " and ".join(texts)


def evaluate(claims: Sequence[Claim], numbers: Evidence) -> pd.DataFrame:
    """Every claim with its value, its interval and its verdict.

    Parameters
    ----------
    claims : list of Claim
    numbers : mapping
        Of `evidence`.

    Returns
    -------
    DataFrame
        One row per claim, the columns of COLUMNS.
    """
    lines = []
    for claim in claims:
        measured = [measure(claim, source, numbers[source]) for source in claim.sources]
        deciding = measured[0]
        others = zip(claim.sources[1:], measured[1:], strict=True)
        beside = [_beside_words(claim, source, other) for source, other in others]
        line = {
            "id": claim.id,
            "sentence": claim.sentence,
            "place": claim.place,
            "statistic": claim.statistic,
            "rule": claim.rule,
            "decided_by": str(claim.sources[0]),
            "records": deciding.records,
            "over": deciding.over,
            "value": deciding.value,
            "low": deciding.low,
            "high": deciding.high,
            "verdict": str(claim.verdict(deciding.low, deciding.high)),
            "reason": f"{_reason(claim, deciding)} {claim.note}".rstrip(),
            "verdict_beside": _verdict_beside(claim, measured[1:]),
            "beside": " ".join(beside),
            "revised": claim.revised,
        }
        lines.append(line)
    table = pd.DataFrame(lines, columns=COLUMNS)
    return table.round(dict.fromkeys(["value", "low", "high"], 6))


def _verdict_beside(claim: Claim, others: Sequence[Measured]) -> str:
    """What the same rule says of the second source; empty where there is none."""
    if not others or others[0].is_missing:
        return ""
    return str(claim.verdict(others[0].low, others[0].high))


def _reason(claim: Claim, found: Measured) -> str:
    """Why the verdict is what it is, in a plain sentence."""
    if found.is_missing:
        return f"No numbers: {claim.lacks or f'{claim.sources[0]} have none for it'}."
    words = f"{_capitalised(claim.statistic)} is {_value_words(claim, found)}"
    told = f"{words}; {claim.needs} is needed"
    verdict = claim.verdict(found.low, found.high)
    if verdict == Verdict.CANNOT_TELL:
        told += ", and the interval has both sides of it"
    if found.lacking:
        told += f"; not run: {', '.join(DATASETS[name] for name in found.lacking)}"
    return f"{told}."


def _value_words(claim: Claim, found: Measured) -> str:
    """A value with its interval, as text."""
    form = claim.form
    value = f"{found.value:{form}}"
    if found.over == EXACT:
        return value
    if np.isnan(found.low):
        return f"{value} (no interval, over {found.over})"
    return f"{value} (95%: {found.low:{form}} to {found.high:{form}}, over {found.over})"


def _beside_words(claim: Claim, source: Source, found: Measured) -> str:
    """The statistic on another source, as a sentence."""
    if found.is_missing:
        return f"In {source}: not there."
    where = str(source)
    if found.over != EXACT:
        where = f"{source} on {found.records}"
    return f"In {where} it is {_value_words(claim, found)}."


def _capitalised(text: str) -> str:
    """A text whose first letter is a capital, the rest left alone."""
    return text[:1].upper() + text[1:]


def write(table: pd.DataFrame, path: str | os.PathLike[str] | None = None) -> Path:
    """Write the claims as CSV, whole or not at all.

    Parameters
    ----------
    table : DataFrame
        Of `evaluate`.
    path : optional
        By default results/claims.csv.

    Returns
    -------
    Path
        Where it was written.
    """
    target = Path(path or paths.RESULTS / "claims.csv")
    with paths.atomic_write(target) as unfinished:
        table.to_csv(unfinished, index=False, lineterminator="\n")
    return target

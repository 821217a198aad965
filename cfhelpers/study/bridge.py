"""From real workers of 2018 to those of 2024: what the year does, and what the features.

The person files of 2024 lack place of birth and relationship, two of the ten features of
ACSIncome. A file of people at work in 2018 lacks hours of work and relationship. On the
features and the states that both have, with as many people of every state, they differ by
the year alone; with one feature more, a year differs from itself by that feature alone.
results/acs_bridge.csv keeps what came out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.model_selection import KFold
from sklearn.preprocessing import TargetEncoder
from tqdm.auto import tqdm

from cfhelpers import paths
from cfhelpers.control import Guarantee
from cfhelpers.datasets import Dataset, Source, acs, split
from cfhelpers.datasets._files import local_folders, not_found
from cfhelpers.datasets._formats import STATES
from cfhelpers.study import experiments, models

WORKERS = "acs/workers_2018.parquet"
YEAR = 2024  # of the records that the workers of 2018 are compared with
# The columns of the file of workers: ACS name, the file's name, codes of the categories.
CLASSES_OF_WORKERS = (
    "Employee of a private for-profit company or business, or of an individual, "
    "for wages, salary, or commissions",
    "Employee of a private not-for-profit, tax-exempt, or charitable organization",
    "Local government employee (city, county, etc.)",
    "State government employee",
    "Federal government employee",
    "Self-employed in own not incorporated business, professional practice, or farm",
    "Self-employed in own incorporated business, professional practice or farm",
    "Working without pay in family business or farm",
)
SCHOOLING = (
    "No schooling completed",
    "Nursery school, preschool",
    "Kindergarten",
    *(f"Grade {grade}" for grade in range(1, 12)),
    "12th grade - no diploma",
    "Regular high school diploma",
    "GED or alternative credential",
    "Some college, but less than 1 year",
    "1 or more years of college credit, no degree",
    "Associate's degree",
    "Bachelor's degree",
    "Master's degree",
    "Professional degree beyond a bachelor's degree",
    "Doctorate degree",
)
MARITAL = (
    "Married",
    "Widowed",
    "Divorced",
    "Separated",
    "Never married or under 15 years old",
)
RACES = (
    "White alone",
    "Black or African American alone",
    "American Indian alone",
    "Alaska Native alone",
    "American Indian and Alaska Native tribes specified; "
    "or American Indian or Alaska Native, not specified and no other races",
    "Asian alone",
    "Native Hawaiian and Other Pacific Islander alone",
    "Some Other Race alone",
    "Two or More Races",
)
# ACS codes begin at 1, in this order.
CATEGORIES = {
    "COW": ("Workclass", CLASSES_OF_WORKERS),
    "SCHL": ("Education", SCHOOLING),
    "MAR": ("Marital Status", MARITAL),
    "SEX": ("Gender", ("Male", "Female")),
    "RAC1P": ("Race", RACES),
}
# The file has these as text without the codes: their numbers mean nothing, and models see
# the mean bracket of each category instead.
TEXTS = {"OCCP": "Occupation", "POBP": "Place of birth"}
SHARED = ("AGEP", "COW", "SCHL", "MAR", "OCCP", "SEX", "RAC1P")
RECORDS = {
    2018: "real people at work in 2018, acs/workers_2018.parquet",
    YEAR: f"real people at work in {YEAR}, person files of the ACS",
}
METRICS = (
    "demographic_parity",
    "equal_opportunity",
    "predictive_equality",
    "disparate_impact",
)
CLOSENESS = (0.1,)
SCORES = ("aps", "tps")
KEPT = ["base_efficiency", "base_disparity", "efficiency", "disparity"]


@dataclass(frozen=True)
class Station:
    """A year, the features that a model sees, and those that are told by their mean."""

    year: int
    features: tuple[str, ...]
    averaged: tuple[str, ...] = ("OCCP",)


STATIONS = {
    "2018, with place of birth": Station(2018, (*SHARED, "POBP"), ("OCCP", "POBP")),
    "2018": Station(2018, SHARED),
    "2024": Station(2024, SHARED),
    "2024, with hours": Station(2024, (*SHARED, "WKHP")),
    "2024, with hours, occupations by code": Station(2024, (*SHARED, "WKHP"), ()),
}
# What differs between two stations, the first of them first.
STEPS = {
    "place of birth": ("2018", "2018, with place of birth"),
    "the year": ("2018", "2024"),
    "hours of work": ("2024", "2024, with hours"),
    "occupations by code": (
        "2024, with hours",
        "2024, with hours, occupations by code",
    ),
}


def code_workers(people: pd.DataFrame) -> pd.DataFrame:
    """Records of the file of workers under ACS names and codes.

    Parameters
    ----------
    people : DataFrame
        State, Income, Age and categories as text.

    Returns
    -------
    DataFrame of float64
        AGEP, PINCP, ST, the columns of CATEGORIES by their ACS codes, and those of TEXTS
        by numbers of no meaning. PWGTP and WKHP, which the file lacks, are 1: everyone in
        it counts and works.

    Examples
    --------
    >>> person = {"State": "New York/NY", "Income": 5e4, "Age": 30, "Gender": "Female"}
    >>> person |= {"Workclass": "State government employee", "Race": "Asian alone"}
    >>> person |= {"Education": "Master's degree", "Marital Status": "Divorced"}
    >>> person |= {"Occupation": "MED-Dentists", "Place of birth": "Peru"}
    >>> coded = code_workers(pd.DataFrame([person]))
    >>> coded[["ST", "COW", "SCHL", "MAR", "SEX", "RAC1P"]].iloc[0].tolist()
    [36.0, 4.0, 22.0, 3.0, 2.0, 6.0]
    """
    columns = {
        "AGEP": people["Age"].to_numpy(),
        "PINCP": people["Income"].to_numpy(),
        "ST": _codes(people["State"].astype(str).str[-2:], _fips_codes(), "State"),
    }
    for name, (own_name, texts) in CATEGORIES.items():
        codes = {text: code for code, text in enumerate(texts, start=1)}
        columns[name] = _codes(people[own_name].astype(str), codes, own_name)
    for name, own_name in TEXTS.items():
        columns[name] = pd.factorize(people[own_name].astype(str), sort=True)[0] + 1
    for name in ("PWGTP", "WKHP"):
        columns[name] = np.ones(len(people))
    return pd.DataFrame(columns).astype(np.float64)


def _fips_codes() -> dict[str, int]:
    """The FIPS code of every two-letter code of a state."""
    return {state: int(code) for state, code in STATES.items()}


def _codes(texts: pd.Series, codes: Mapping[str, int], name: str) -> np.ndarray:
    """The code of every text; a ValueError names one that has none."""
    found = texts.map(codes)
    if found.isna().any():
        unknown = texts[found.isna()].iloc[0]
        raise ValueError(f"{name}: found {unknown!r}; wanted one of {list(codes)}")
    return found.to_numpy()


def find_workers() -> Path:
    """The file of workers of 2018 in the first local folder that has it."""
    tried = [folder / WORKERS for folder in local_folders()]
    for path in tried:
        if path.exists():
            return path
    raise not_found("the workers of 2018", tried)


def workers_of_2018() -> pd.DataFrame:
    """People at work in 2018, under ACS names and codes."""
    names = ["State", "Income", "Age", *TEXTS.values()]
    names += [own_name for own_name, _ in CATEGORIES.values()]
    return code_workers(pd.read_parquet(find_workers(), columns=names))


def workers_of_2024() -> pd.DataFrame:
    """People at work in 2024, as the local person files have them.

    A means of transportation to work (JWTR) is recorded for those who were at work in the
    week before the survey, at home or elsewhere.
    """
    _, files = acs.find(YEAR, None, acs.PAPER_HORIZON)
    income, _ = acs.read("acs_income", files)
    education, _ = acs.read("acs_education", files)
    return income[education["JWTR"].notna().to_numpy()]


def common_people(
    workers: pd.DataFrame, others: pd.DataFrame, seed: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Both kinds of people in the states that both have, as many of every state.

    Only people whom the task keeps are counted: older than 16, with an income above 100
    dollars.

    Parameters
    ----------
    workers, others : DataFrame
        With AGEP, PINCP and ST.
    seed : int
        Of the draw, from whichever has more people of a state.

    Returns
    -------
    workers, others : DataFrame
        In the order of the states.

    Examples
    --------
    >>> few = pd.DataFrame({"AGEP": 30, "PINCP": 9e3, "ST": [8, 8, 6]})
    >>> many = pd.DataFrame({"AGEP": 40, "PINCP": 8e3, "ST": [8, 8, 8, 9]})
    >>> [len(people) for people in common_people(few, many, seed=0)]
    [2, 2]
    """
    kept = []
    for people in (workers, others):
        passes = (people["AGEP"] > 16) & (people["PINCP"] > 100)
        kept.append(people[passes])
    sizes = [people["ST"].value_counts() for people in kept]
    common = sorted(set(sizes[0].index) & set(sizes[1].index))
    rng = np.random.default_rng(seed)
    drawn: list[list[pd.DataFrame]] = [[], []]
    for state in common:
        n = int(min(sizes[0][state], sizes[1][state]))
        for own, people in zip(drawn, kept, strict=True):
            own.append(people[people["ST"] == state].sample(n, random_state=rng))
    return pd.concat(drawn[0]), pd.concat(drawn[1])


def station_dataset(
    name: str, people: pd.DataFrame, seed: int
) -> tuple[Dataset, np.ndarray]:
    """The people of a station with its features, and the parts of a training split.

    Parameters
    ----------
    name : str
        One of STATIONS.
    people : DataFrame
        Of the station's year.
    seed : int
        Of the split.

    Returns
    -------
    dataset : Dataset
        Where categories are told by their mean, `mean_brackets` of them stand in place of
        codes.
    parts : array of str, shape (n,)
    """
    station = STATIONS[name]
    ordered = [name for name in acs.FEATURES["acs_income"] if name in station.features]
    columns = {feature: feature for feature in ordered}
    dataset = acs.prepare("acs_income", people, columns, Source.LOCAL)
    parts = split(dataset, seed)
    averaged = list(station.averaged)
    if averaged:
        X = dataset.X.astype(np.float64)
        X[averaged] = mean_brackets(X[averaged], dataset.y, parts == "train", seed)
        dataset = replace(dataset, X=X.astype(np.float32))
    return replace(dataset, year=station.year), parts


def mean_brackets(
    categories: pd.DataFrame, y: np.ndarray, is_train: np.ndarray, seed: int
) -> np.ndarray:
    """Categories told by the mean bracket of the training rows that have them.

    Parameters
    ----------
    categories : DataFrame (n, columns)
    y : integers (n,)
    is_train : bool (n,)
    seed : int
        Of the five folds: for a training row the means are those of the other folds, so
        that it does not tell its own label.

    Returns
    -------
    array (n, columns)
        Means are drawn towards that of everyone where a category is rare, as
        scikit-learn's TargetEncoder does.

    Examples
    --------
    >>> jobs = pd.DataFrame({"job": [1, 2] * 40})
    >>> y = np.tile([0, 3], 40)
    >>> means = mean_brackets(jobs, y, np.arange(80) < 60, seed=0)
    >>> np.unique(means).tolist()
    [0.0, 3.0]
    """
    means = np.empty(categories.shape)
    encoder = TargetEncoder(target_type="continuous")
    train_rows = np.flatnonzero(is_train)
    folds = KFold(5, shuffle=True, random_state=seed)
    for others, own in folds.split(train_rows):
        encoder.fit(categories.iloc[train_rows[others]], y[train_rows[others]])
        means[train_rows[own]] = encoder.transform(categories.iloc[train_rows[own]])
    encoder.fit(categories[is_train], y[is_train])
    means[~is_train] = encoder.transform(categories[~is_train])
    return means


def run_station(
    name: str, people: pd.DataFrame, seed: int, splits: int = 10
) -> pd.DataFrame:
    """What a station gives on one training split: means over its re-splits.

    Parameters
    ----------
    name : str
        One of STATIONS.
    people : DataFrame
        Of the station's year.
    seed : int
        Of the training split and of the model.
    splits : int
        How often calibration and test rows are divided anew.

    Returns
    -------
    DataFrame
        A row per score, metric and way of searching; the columns of KEPT are means.
    """
    dataset, parts = station_dataset(name, people, seed)
    base = models.base_model(dataset, parts, "xgboost", seed=seed, progress=False)
    rows = experiments.run(
        dataset,
        base,
        splits=splits,
        scores=SCORES,
        progress=False,
        metrics=METRICS,
        closeness=CLOSENESS,
        guarantees=(Guarantee.NONE,),
    )
    setting = ["score", "metric", "classwise", "c"]
    means = rows.groupby(setting, sort=False)[KEPT].mean().round(4).reset_index()
    facts = {
        "station": name,
        "year": dataset.year,
        "records": RECORDS[STATIONS[name].year],
        "features": " ".join(dataset.X.columns),
        "people": len(dataset),
        "training_split": seed,
        "test_accuracy": round(base.accuracy["test"], 4),
    }
    for place, (column, value) in enumerate(facts.items()):
        means.insert(place, column, value)
    return means


def run_bridge(training_splits: int = 3, progress: bool = True) -> Path:
    """Run every station on the real records, and keep what came out in results/.

    Models and rows are kept in artifacts/ at once, so that a run that was stopped goes on
    where it was.

    Parameters
    ----------
    training_splits : int
        Each with a draw of people, a split and a model of its own.
    progress : bool
        Whether to show a bar.

    Returns
    -------
    Path
        Of results/acs_bridge.csv.
    """
    workers = workers_of_2018()
    others = workers_of_2024()
    frames = []
    pairs = list(product(range(training_splits), STATIONS))
    for seed, name in tqdm(pairs, "stations", disable=not progress, leave=False):
        people = dict(
            zip((2018, YEAR), common_people(workers, others, seed), strict=True)
        )
        frames.append(run_station(name, people[STATIONS[name].year], seed))
    path = bridge_path()
    with paths.atomic_write(path) as partial:
        pd.concat(frames).to_csv(partial, index=False, lineterminator="\n")
    return path


def bridge_path() -> Path:
    """Where the rows of all stations are."""
    return paths.RESULTS / "acs_bridge.csv"


def bridge_rows() -> pd.DataFrame:
    """The rows of all stations on real records, as they were last written.

    Returns
    -------
    DataFrame
        One row per station, training split, score, metric and way of searching; means
        over ten re-splits.

    Examples
    --------
    >>> sorted(bridge_rows()["year"].unique().tolist())
    [2018, 2024]
    """
    return pd.read_csv(bridge_path())


def step_changes(rows: pd.DataFrame, quantity: str = "base_efficiency") -> pd.DataFrame:
    """How each step of the bridge changes a quantity.

    Parameters
    ----------
    rows : DataFrame
        As `bridge_rows` gives them.
    quantity : str
        One of KEPT.

    Returns
    -------
    DataFrame
        Per step, score, metric and way of searching: the means at both ends, the mean
        change, and the least and the largest change over the training splits.

    Examples
    --------
    >>> changes = step_changes(bridge_rows())
    >>> list(changes.columns)
    ['from', 'to', 'change', 'least', 'largest']
    """
    setting = ["score", "metric", "classwise"]
    values = rows.pivot_table(
        index=[*setting, "training_split"], columns="station", values=quantity, sort=False
    )
    tables = {}
    for step, (first, second) in STEPS.items():
        change = (values[second] - values[first]).groupby(setting, sort=False)
        ends = values[[first, second]].groupby(setting, sort=False).mean()
        tables[step] = pd.DataFrame(
            {
                "from": ends[first],
                "to": ends[second],
                "change": change.mean(),
                "least": change.min(),
                "largest": change.max(),
            }
        )
    return pd.concat(tables, names=["step"])


def lesson(rows: pd.DataFrame, score: str = "aps") -> str:
    """What the bridge says about base efficiency, in one sentence.

    Parameters
    ----------
    rows : DataFrame
        As `bridge_rows` gives them.
    score : str

    Returns
    -------
    str

    Examples
    --------
    >>> lesson(bridge_rows()).startswith("With the same seven features")
    True
    """
    changes = step_changes(rows).xs(score, level="score")
    # Base efficiency is the same for every metric and way of searching.
    mean = changes.groupby("step").first()
    year = mean.loc["the year"]
    hours = mean.loc["hours of work"]
    birth = mean.loc["place of birth"]
    return (
        "With the same seven features and as many people of every state, the base sets "
        f"of {score.upper()} have {year['from']:.2f} labels in 2018 and "
        f"{year['to']:.2f} in 2024 ({year['change']:+.3f}); hours of work, which only "
        f"2024 has here, change them by {hours['change']:+.3f}, and place of birth, "
        f"which only 2018 has, by {birth['change']:+.3f}."
    )

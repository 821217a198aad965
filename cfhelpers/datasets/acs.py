"""ACSIncome and ACSEducation from ACS PUMS person records, of any year and any states.

Records are read from folktables' own layout, `<year>/<horizon>/psam_p08.csv`, and from
`acs/pums<year>/p_08.parquet`. OpenML has ACSIncome of 2018 in one file.
"""

import re
import shutil
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pyarrow.parquet import read_schema

from cfhelpers import paths
from cfhelpers._checks import one_of
from cfhelpers.datasets._dataset import Dataset, Source, choose_source, group_by
from cfhelpers.datasets._files import (
    fetch,
    local_folders,
    named_in_errors,
    not_found,
)
from cfhelpers.datasets._formats import RENAMED, STATES, csv_name
from cfhelpers.datasets._openml import fetch_table
from cfhelpers.datasets.simulated import acs_files

SOURCES = {
    "acs_income": (Source.SIMULATED, Source.LOCAL, Source.DOWNLOAD, Source.OPENML),
    "acs_education": (Source.SIMULATED, Source.LOCAL, Source.DOWNLOAD),
}
URL = "https://www2.census.gov/programs-surveys/acs/data/pums"
# folktables' list of states, which the paper used, has no DC.
PAPER_STATES = tuple(state for state in STATES if state != "DC")
PAPER_YEAR = 2018
PAPER_HORIZON = "1-Year"
HORIZONS = (PAPER_HORIZON, "5-Year")
PAPER_ROWS = 1_664_500
# ACSIncome of 2018 on OpenML, uploaded by fairlearn: rows that pass the filter, with the
# state and the income in dollars.
OPENML_ID = 43141
# The least and the largest value that a column of that table may have.
OPENML_RANGES = {
    "AGEP": (17, 99),
    "COW": (0, 9),
    "SCHL": (0, 24),
    "MAR": (1, 5),
    "OCCP": (0, 9999),
    "POBP": (0, 999),
    "RELP": (0, 17),
    "WKHP": (1, 99),
    "SEX": (1, 2),
    "RAC1P": (1, 9),
    "ST": (1, 72),
    "PINCP": (101, 10_000_000),
}
OPENML_MAY_BE_BLANK = ("COW", "SCHL", "OCCP", "POBP", "RELP")
_FEATURES = {
    "acs_income": "AGEP COW SCHL MAR OCCP POBP RELP WKHP SEX RAC1P",
    "acs_education": (
        "AGEP JWMNP MAR SEX DIS ESP MIG RELP RAC1P PUMA ST CIT OCCP JWTR POWPUMA POVPIP"
    ),
}
FEATURES = {name: tuple(columns.split()) for name, columns in _FEATURES.items()}
# Columns without which there are no rows, no groups or no labels.
NEEDED = ("AGEP", "PINCP", "WKHP", "PWGTP", "SCHL", "RAC1P", "SEX", "ST")
# RAC1P 1 to 9.
RACES = np.array(
    [
        "White",
        "Black",
        "American Indian",
        "Alaska Native",
        "Native, tribe unspecified",
        "Asian",
        "Pacific Islander",
        "other",
        "two or more",
    ],
    dtype=object,
)
INCOME_NAMES = ("lowest quarter", "second quarter", "third quarter", "highest quarter")
QUARTERS = (0.25, 0.5, 0.75)
EDUCATION_NAMES = (
    "no diploma",
    "high school",
    "GED",
    "some college",
    "bachelor",
    "graduate",
)
EDUCATION_CUTS = (16, 17, 18, 21, 22)  # SCHL codes at which the next class begins
LICENCE = (
    "public use microdata of the U.S. Census Bureau; users agree not to identify anyone"
)
CITATION = (
    "U.S. Census Bureau, ACS {} PUMS {}; "
    "tasks after Ding et al. (2021), Retiring Adult, NeurIPS"
)


def load(
    name: str,
    source: str | None = None,
    *,
    attribute: str | Sequence[str] | None = None,
    year: int | None = None,
    states: Sequence[str] | None = None,
    horizon: str = PAPER_HORIZON,
    brackets: str | pd.DataFrame = "state",
    n: int = 50_000,
    seed: int = 0,
) -> Dataset:
    """ACS person records with the label of a task.

    Parameters
    ----------
    name : "acs_income" or "acs_education"
    source : "simulated" (default), "local", "download" or, for ACSIncome, "openml"
    attribute : "race" (default), "sex", or both
    year : int, optional
        By default 2018; of local files without 2018 the newest.
    states : list of two-letter codes, optional
        By default all there are; for a download the paper's 51.
    horizon : "1-Year" or "5-Year"
    brackets : "state", "national" or DataFrame
        Quarters of income within each state or in the nation, or the `cuts` of a Dataset.
    n, seed : int
        Size and seed of the simulated records.

    Returns
    -------
    Dataset
    """
    _check_states(states)
    one_of(horizon, "horizon", HORIZONS)
    chosen_source = choose_source(name, source, SOURCES[name])
    survey = int(year or PAPER_YEAR)
    if chosen_source == Source.OPENML:
        _check_openml_survey(survey, horizon)
        return _load_openml(states, attribute, brackets)
    if chosen_source == Source.SIMULATED:
        files = _files_of(acs_files(n, seed, survey, horizon), states)
    elif chosen_source == Source.DOWNLOAD:
        files = {}
        for state in states or PAPER_STATES:
            files[state] = download(state, survey, horizon)
    else:
        survey, files = find(year, states, horizon)
    raw, columns = read(name, files)
    citation = CITATION.format(horizon, survey)
    data = prepare(name, raw, columns, chosen_source, attribute, brackets, citation)
    data = replace(data, year=survey)
    is_the_papers = (
        chosen_source == Source.DOWNLOAD
        and survey == PAPER_YEAR
        and horizon == PAPER_HORIZON
        and states is None
    )
    if is_the_papers and len(data) != PAPER_ROWS:
        raise ValueError(
            f"{name}: {len(data):,} rows pass the filter; "
            f"the 2018 files have {PAPER_ROWS:,}"
        )
    return data


def _check_openml_survey(year: int, horizon: str) -> None:
    """A ValueError for a survey other than the one that OpenML has."""
    if (year, horizon) != (PAPER_YEAR, PAPER_HORIZON):
        raise ValueError(
            f"year and horizon: found {year}, {horizon!r}; "
            f"OpenML has {PAPER_YEAR}, {PAPER_HORIZON!r}"
        )


def _load_openml(
    states: Sequence[str] | None,
    attribute: str | Sequence[str] | None,
    brackets: str | pd.DataFrame,
) -> Dataset:
    """ACSIncome of 2018 as OpenML has it; the other parameters are those of `load`."""
    raw, description = openml_records(PAPER_ROWS)
    if states:
        raw = raw[raw["ST"].isin([int(STATES[state]) for state in states])]
    columns = {feature: feature for feature in FEATURES["acs_income"]}
    citation = CITATION.format(PAPER_HORIZON, PAPER_YEAR)
    citation += f"; OpenML {OPENML_ID}, uploaded by fairlearn"
    data = prepare(
        "acs_income", raw, columns, Source.OPENML, attribute, brackets, citation
    )
    stated = description.get("licence") or "none"
    return replace(
        data,
        year=PAPER_YEAR,
        notes=(*data.notes, "filtered before it was uploaded"),
        licence=f"{LICENCE}; OpenML states: {stated}",
    )


def openml_records(n_rows: int) -> tuple[pd.DataFrame, dict[str, Any]]:
    """ACSIncome of 2018 from OpenML, checked before it is kept.

    Parameters
    ----------
    n_rows : int
        As many rows as there must be.

    Returns
    -------
    raw : DataFrame of float64
        As `read` gives it. Rows with a weight below 1 were left out before the upload, so
        every weight is 1.
    description : dict
        What OpenML states about the table.
    """

    def check(table: pd.DataFrame) -> None:
        _check_openml(table, n_rows)

    path = paths.DATA / "openml" / f"{OPENML_ID}.parquet"
    table, description = fetch_table(OPENML_ID, path, check)
    return table.assign(PWGTP=1.0), description


def _check_openml(table: pd.DataFrame, n_rows: int) -> None:
    """A ValueError for a table that is not ACSIncome of 2018."""
    absent = [name for name in OPENML_RANGES if name not in table]
    if absent:
        raise ValueError(f"no column {', '.join(absent)}")
    if len(table) != n_rows:
        raise ValueError(f"{len(table):,} rows; wanted {n_rows:,}")
    for name, (least, largest) in OPENML_RANGES.items():
        values = table[name]
        if name in OPENML_MAY_BE_BLANK:
            values = values.fillna(least)
        is_outside = ~values.between(least, largest)
        if is_outside.any():
            found = values[is_outside].iloc[0]
            raise ValueError(
                f"{name} is {found} in row {is_outside.argmax()}; "
                f"wanted {least} to {largest:,}"
            )


def _check_states(states: Sequence[str] | None) -> None:
    """A ValueError for whatever is no two-letter code."""
    unknown = set(states or ()) - set(STATES)
    if unknown:
        found = ", ".join(sorted(unknown))
        raise ValueError(f"states: found {found}; wanted two-letter codes such as CO")


def _files_of(files: Mapping[str, Path], states: Sequence[str] | None) -> dict[str, Path]:
    """The files of some states, in the order they have; of all where none is named."""
    if not states:
        return dict(files)
    return {state: path for state, path in files.items() if state in states}


def find(
    year: int | None, states: Sequence[str] | None, horizon: str
) -> tuple[int, dict[str, Path]]:
    """Person files in the first local folder that has those of all the states.

    Parameters
    ----------
    year : int, optional
        By default 2018, or the newest.
    states : list of two-letter codes, optional
        By default all there are.
    horizon : "1-Year" or "5-Year"

    Returns
    -------
    year : int
    files : dict
        State to path, in the order of FIPS codes.
    """
    roots = []
    for folder in local_folders():
        roots += [folder, folder / "acs"]
    for root in roots:
        years = [year] if year else _years_in(root)
        for survey in years:
            files = _person_files(root, survey, horizon)
            if files and set(states or ()) <= set(files):
                return survey, _files_of(files, states)
    shown = year or "<year>"
    layouts = f"{shown}/{horizon}/psam_p*.csv or pums{shown}/p_*.parquet"
    wanted = ", ".join(states or ["any state"])
    tried = [root / layouts for root in roots]
    raise not_found(f"acs person records of {wanted}", tried)


def _years_in(root: Path) -> list[int]:
    """The survey years that a folder has, the paper's first, then the newest."""
    years = set()
    for path in root.glob("*"):
        named = re.fullmatch(r"(?:pums)?(\d{4})", path.name)
        if named:
            years.add(int(named[1]))
    return sorted(years, key=lambda year: (year != PAPER_YEAR, -year))


def _person_files(root: Path, year: int, horizon: str) -> dict[str, Path]:
    """The person files of a year, by state; a CSV file goes before a Parquet file."""
    files = {}
    for state, code in STATES.items():
        table = root / f"pums{year}" / f"p_{code}.parquet"
        text = root / str(year) / horizon / csv_name(state, year)
        for path in (table, text):
            if path.exists():
                files[state] = path
    return files


def download(state: str, year: int, horizon: str) -> Path:
    """A state's person file from the Census Bureau, checked before it is kept.

    Parameters
    ----------
    state : str
        Two-letter code.
    year : int
    horizon : "1-Year" or "5-Year"

    Returns
    -------
    Path
        Under data/acs, in folktables' layout.
    """
    name = csv_name(state, year)

    def unpack(archive: Path, target: Path) -> None:
        """Take the person file out of the Bureau's archive."""
        try:
            with (
                zipfile.ZipFile(archive) as file,
                file.open(name) as member,
                open(target, "wb") as out,
            ):
                shutil.copyfileobj(member, out)
        except (zipfile.BadZipFile, KeyError) as error:
            raise ValueError(f"no zip that holds {name}: {error}") from error

    def check(path: Path) -> None:
        """All columns that are needed must be there."""
        _names_in_files("acs_income", [path])

    url = f"{URL}/{year}/{horizon}/csv_p{state.lower()}.zip"
    folder = paths.DATA / "acs" / str(year) / horizon
    return fetch(url, folder / name, check, unpack)


def read(name: str, files: Mapping[str, Path]) -> tuple[pd.DataFrame, dict[str, str]]:
    """The columns of a task from person files.

    Codes changed along with some names, so a feature that was renamed keeps its new name,
    and one that is absent is left out.

    Parameters
    ----------
    name : "acs_income" or "acs_education"
    files : mapping of state to path

    Returns
    -------
    raw : DataFrame of float64
        All rows, columns under their names of 2018.
    columns : dict
        The features, by the names they have in the files.
    """
    name_in_files = _names_in_files(name, files.values())
    wanted = list(name_in_files.values())
    frames = []
    for path in files.values():
        with named_in_errors(path):
            if _is_parquet(path):
                frame = pd.read_parquet(path, columns=wanted)
            else:
                frame = pd.read_csv(path, usecols=wanted, skipinitialspace=True)
            frame = frame[wanted].apply(pd.to_numeric).astype(np.float64)
            _check_codes(frame)
        frames.append(frame)
    raw = pd.concat(frames, ignore_index=True).set_axis(list(name_in_files), axis=1)
    columns = {}
    for feature in FEATURES[name]:
        if feature in name_in_files:
            columns[feature] = name_in_files[feature]
    return raw, columns


def _names_in_files(name: str, files: Iterable[Path]) -> dict[str, str]:
    """What the task's columns are called in all of the files, where they are there.

    A ValueError if one is absent that is needed.
    """
    common = set.intersection(*map(_columns_of, files))
    names = {}
    for column in (*FEATURES[name], *NEEDED):
        if column in common:
            names[column] = column
        elif RENAMED.get(column) in common:
            names[column] = RENAMED[column]
    absent = [column for column in NEEDED if column not in names]
    if absent:
        raise ValueError(f"no column {', '.join(absent)} in every person file")
    return names


def _check_codes(frame: pd.DataFrame) -> None:
    """A ValueError for a code of sex, race or state that there is not."""
    for name in ("SEX", "RAC1P", "ST"):
        column = name if name in frame else RENAMED.get(name, name)
        least, largest = OPENML_RANGES[name]
        is_wrong = ~frame[column].between(least, largest).to_numpy()
        if is_wrong.any():
            row = int(is_wrong.argmax())
            found = frame[column].iloc[row]
            raise ValueError(
                f"{column} is {found:g} in row {row}; wanted {least} to {largest}"
            )


def _columns_of(path: Path) -> set[str]:
    """The names of a file's columns."""
    with named_in_errors(path):
        if _is_parquet(path):
            return set(read_schema(path).names)
        return set(pd.read_csv(path, nrows=0).columns)


def _is_parquet(path: Path) -> bool:
    return path.suffix == ".parquet"


def prepare(
    name: str,
    raw: pd.DataFrame,
    columns: Mapping[str, str],
    source: str = Source.LOCAL,
    attribute: str | Sequence[str] | None = None,
    brackets: str | pd.DataFrame = "state",
    citation: str = "",
) -> Dataset:
    """The rows that a task keeps, with its features, labels and groups.

    Parameters
    ----------
    name : "acs_income" or "acs_education"
    raw, columns
        As `read` gives them.
    source, attribute, brackets
        As in `load`.
    citation : str

    Returns
    -------
    Dataset
    """
    is_kept, dropped = kept_rows(name, raw)
    data = raw[is_kept].reset_index(drop=True)
    X = data[list(columns)].astype(np.float32).set_axis(list(columns.values()), axis=1)
    notes = _notes_on_features(X, columns)
    cuts: pd.DataFrame | None = None
    label_names: tuple[str, ...]
    if name == "acs_income":
        y, cuts = income_classes(data["PINCP"], data["ST"], brackets)
        label_names = INCOME_NAMES
        shown = brackets if isinstance(brackets, str) else "given"
        notes.append(f"income brackets: {shown}")
    else:
        y = np.searchsorted(EDUCATION_CUTS, data["SCHL"], side="right")
        label_names = EDUCATION_NAMES
    people = {
        "race": RACES[data["RAC1P"].to_numpy().astype(int) - 1],
        "sex": np.where(data["SEX"] == 1, "men", "women"),
    }
    grouping = group_by(people, attribute)
    is_real = source != Source.SIMULATED
    return Dataset(
        name=name,
        source=source,
        X=X.fillna(0),
        y=y,
        groups=grouping.groups,
        group_names=grouping.names,
        label_names=label_names,
        attribute=grouping.attribute,
        dropped=dropped,
        missing=tuple(column for column in FEATURES[name] if column not in columns),
        notes=tuple(notes),
        cuts=cuts,
        licence=LICENCE if is_real else "",
        citation=citation if is_real else "",
    )


def kept_rows(name: str, raw: pd.DataFrame) -> tuple[np.ndarray, dict[str, int]]:
    """Which rows pass all rules of the task, and how many fall by each rule first."""
    rules = {
        "aged 16 or younger": raw["AGEP"] > 16,
        "with an income of 100 dollars or less": raw["PINCP"] > 100,
        "without usual working hours": raw["WKHP"] > 0,
        "with a weight below 1": raw["PWGTP"] >= 1,
    }
    if name == "acs_education":
        rules["without schooling recorded"] = raw["SCHL"].notna()
    is_kept = np.ones(len(raw), dtype=bool)
    dropped = {}
    for reason, passes in rules.items():
        n_lost = int((is_kept & ~passes).sum())
        if n_lost:
            dropped[reason] = n_lost
        is_kept &= passes.to_numpy()
    return is_kept, dropped


def _notes_on_features(X: pd.DataFrame, columns: Mapping[str, str]) -> list[str]:
    """Which features stand in for others, and where blanks are set to 0."""
    notes = []
    for name_of_2018, name in columns.items():
        if name != name_of_2018:
            notes.append(f"{name} in place of {name_of_2018}")
    for feature, n_blanks in X.isna().sum().items():
        if n_blanks:
            notes.append(f"{n_blanks:,} blanks in {feature} set to 0, as folktables does")
    return notes


def income_classes(
    income: pd.Series, state: pd.Series, brackets: str | pd.DataFrame
) -> tuple[np.ndarray, pd.DataFrame]:
    """The bracket of each income.

    Parameters
    ----------
    income, state : Series (n,)
    brackets : "state", "national" or DataFrame
        As in `load`.

    Returns
    -------
    classes : integers (n,)
        From 0 to 3; an income at a cut belongs to the upper bracket.
    cuts : DataFrame (states, 3)

    Examples
    --------
    >>> income = pd.Series([10.0, 20.0, 20.0, 30.0, 40.0])
    >>> income_classes(income, pd.Series([8, 8, 8, 8, 8]), "state")[0].tolist()
    [0, 2, 2, 3, 3]
    """
    if isinstance(brackets, pd.DataFrame):
        cuts = brackets
    elif brackets == "state":
        cuts = income.groupby(state).quantile(np.array(QUARTERS)).unstack()
    elif brackets == "national":
        quarters = income.quantile(list(QUARTERS))
        cuts = pd.DataFrame([quarters] * state.nunique(), index=np.unique(state))
    else:
        raise ValueError(
            f"brackets: found {brackets!r}; "
            "wanted 'state', 'national' or the cuts of a Dataset"
        )
    unknown = set(state) - set(cuts.index)
    if unknown:
        names = ", ".join(map(str, sorted(unknown)))
        raise ValueError(f"brackets: no cuts for state {names}")
    own_cuts = cuts.loc[state].to_numpy()
    return (income.to_numpy()[:, None] >= own_cuts).sum(axis=1), cuts

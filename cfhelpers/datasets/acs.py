"""ACSIncome and ACSEducation from ACS PUMS person records, any survey year and any states.

Records are read from folktables' own layout, `<year>/<horizon>/psam_p08.csv`, and from `acs/pums<year>/p_08.parquet`.
"""

import re
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
from pyarrow.parquet import read_schema

from cfhelpers import paths
from cfhelpers.datasets._dataset import Dataset, group_by
from cfhelpers.datasets._files import fetch, local_folders, not_found

URL = "https://www2.census.gov/programs-surveys/acs/data/pums"
_CODES = """AL01 AK02 AZ04 AR05 CA06 CO08 CT09 DE10 DC11 FL12 GA13 HI15 ID16 IL17 IN18 IA19 KS20 KY21 LA22 ME23 MD24
MA25 MI26 MN27 MS28 MO29 MT30 NE31 NV32 NH33 NJ34 NM35 NY36 NC37 ND38 OH39 OK40 OR41 PA42 RI44 SC45 SD46 TN47 TX48 UT49
VT50 VA51 WA53 WV54 WI55 WY56 PR72"""
STATES = {code[:2]: code[2:] for code in _CODES.split()}
PAPER_STATES = tuple(
    state for state in STATES if state != "DC"
)  # folktables' list, which the paper used, has no DC
PAPER_ROWS = 1_664_500
_FEATURES = {
    "acs_income": "AGEP COW SCHL MAR OCCP POBP RELP WKHP SEX RAC1P",
    "acs_education": "AGEP JWMNP MAR SEX DIS ESP MIG RELP RAC1P PUMA ST CIT OCCP JWTR POWPUMA POVPIP",
}
FEATURES = {name: tuple(columns.split()) for name, columns in _FEATURES.items()}
NEEDED = (
    "AGEP",
    "PINCP",
    "WKHP",
    "PWGTP",
    "SCHL",
    "RAC1P",
    "SEX",
    "ST",
)  # to filter, to group, to label
RENAMED = {
    "RELP": "RELSHIPP",
    "JWTR": "JWTRNS",
    "ST": "STATE",
    "POBP": "POBP12",
    "OCCP": "OCCP12",
}  # in other years
_RACES = "White|Black|American Indian|Alaska Native|Native, tribe unspecified|Asian|Pacific Islander|other|two or more"
RACES = np.array(_RACES.split("|"), dtype=object)  # RAC1P 1 to 9
INCOME_NAMES = ("lowest quarter", "second quarter", "third quarter", "highest quarter")
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
CITATION = "U.S. Census Bureau, ACS {} PUMS {}; tasks after Ding et al. (2021), Retiring Adult, NeurIPS"


def load(
    name,
    source=None,
    *,
    attribute=None,
    year=None,
    states=None,
    horizon="1-Year",
    brackets="state",
    n=50_000,
    seed=0,
) -> Dataset:
    """ACS as a `Dataset`, groups by "race" (default), "sex" or both; source simulated (default), local or download.

    `year` None: 2018, or the newest of local files without 2018. `states`: two-letter codes; None: all there are, for a
    download the paper's 51. `brackets`: income quarters within each "state", "national", or the `cuts` of a Dataset.
    `n`, `seed`: of the simulated records.
    """
    if unknown := set(states or ()) - set(STATES):
        raise ValueError(
            f"states: found {', '.join(sorted(unknown))}; wanted two-letter codes such as CO"
        )
    source, survey = source or "simulated", int(year or 2018)
    if source == "simulated":
        from cfhelpers.datasets.simulated import acs_files

        files = {
            s: path
            for s, path in acs_files(n, seed, survey, horizon).items()
            if s in (states or STATES)
        }
    elif source == "download":
        files = {
            state: download(state, survey, horizon) for state in states or PAPER_STATES
        }
    elif source == "local":
        survey, files = find(year, states, horizon)
    else:
        raise ValueError(
            f"source: found {source!r}; {name} has 'simulated', 'local' and 'download'"
        )
    data = prepare(
        name,
        *read(name, files),
        source,
        attribute,
        brackets,
        CITATION.format(horizon, survey),
    )
    if (source, survey, horizon, states) == ("download", 2018, "1-Year", None) and len(
        data
    ) != PAPER_ROWS:
        raise ValueError(
            f"{name}: {len(data):,} rows pass the filter; the 2018 files have {PAPER_ROWS:,}"
        )
    return data


def csv_name(state: str, year: int) -> str:
    """folktables' name of a state's person file."""
    return (
        f"psam_p{STATES[state]}.csv"
        if year >= 2017
        else f"ss{year % 100:02d}p{state.lower()}.csv"
    )


def find(year: int | None, states, horizon: str) -> tuple[int, dict[str, Path]]:
    """Survey year and person files by state, in the order of FIPS codes, from the first local folder that has them."""
    roots = [place for folder in local_folders() for place in (folder, folder / "acs")]
    for root in roots:
        years = {
            int(y)
            for p in root.glob("*")
            for y in re.findall(r"^(?:pums)?(\d{4})$", p.name)
        }
        for known in [year] if year else sorted(years, key=lambda y: (y != 2018, -y)):
            texts = {s: root / str(known) / horizon / csv_name(s, known) for s in STATES}
            tables = {
                s: root / f"pums{known}" / f"p_{code}.parquet"
                for s, code in STATES.items()
            }
            files = {
                s: path for s in STATES for path in (tables[s], texts[s]) if path.exists()
            }
            if files and set(states or ()) <= set(files):
                return known, {
                    s: path for s, path in files.items() if s in (states or STATES)
                }
    kept = (
        f"{year or '<year>'}/{horizon}/psam_p*.csv or pums{year or '<year>'}/p_*.parquet"
    )
    raise not_found(
        f"acs person records of {', '.join(states or ['any state'])}",
        [root / kept for root in roots],
    )


def download(state: str, year: int, horizon: str) -> Path:
    """A state's person file from the Census Bureau, in folktables' layout under data/acs; checked before it is kept."""
    name = csv_name(state, year)

    def unpack(archive: Path, target: Path) -> None:
        try:
            with (
                zipfile.ZipFile(archive) as file,
                file.open(name) as member,
                open(target, "wb") as out,
            ):
                shutil.copyfileobj(member, out)
        except (zipfile.BadZipFile, KeyError) as error:
            raise ValueError(f"no zip that holds {name}: {error}") from error

    url, folder = (
        f"{URL}/{year}/{horizon}/csv_p{state.lower()}.zip",
        paths.DATA / "acs" / str(year) / horizon,
    )
    return fetch(url, folder / name, lambda path: _names("acs_income", [path]), unpack)


def _names(name: str, files) -> dict[str, str]:
    """What the task's columns are called in all of `files`; a ValueError if one that cannot be missing is."""
    held = [
        read_schema(p).names
        if p.suffix == ".parquet"
        else pd.read_csv(p, nrows=0).columns
        for p in files
    ]
    common = set.intersection(*map(set, held))
    names = {c: c if c in common else RENAMED.get(c) for c in (*FEATURES[name], *NEEDED)}
    if absent := [c for c in NEEDED if names[c] not in common]:
        raise ValueError(f"no column {', '.join(absent)} in every person file")
    return {column: option for column, option in names.items() if option in common}


def read(name: str, files: dict[str, Path]) -> tuple[pd.DataFrame, dict[str, str]]:
    """Columns under their 2018 names, float64 (rows, …), and the features by the names they have in the files.

    Codes changed along with some names, so a renamed feature keeps its name; one that is absent is left out.
    """
    names, frames = _names(name, files.values()), []
    held = list(names.values())
    for path in files.values():
        csv = path.suffix != ".parquet"
        frame = (
            pd.read_csv(path, usecols=held, skipinitialspace=True)
            if csv
            else pd.read_parquet(path, columns=held)
        )
        frames.append(frame[held].apply(pd.to_numeric).astype(np.float64))
    raw = pd.concat(frames, ignore_index=True).set_axis(list(names), axis=1)
    return raw, {column: names[column] for column in FEATURES[name] if column in names}


def prepare(
    name, raw, columns, source="local", attribute=None, brackets="state", citation=""
) -> Dataset:
    """The rows that the task keeps, its features, labels and groups, from what `read` gives."""
    rules = {
        "aged 16 or younger": raw["AGEP"] > 16,
        "with an income of 100 dollars or less": raw["PINCP"] > 100,
        "without usual working hours": raw["WKHP"] > 0,
        "with a weight below 1": raw["PWGTP"] >= 1,
        "without schooling recorded": raw["SCHL"].notna() | (name == "acs_income"),
    }
    keep, dropped = np.ones(len(raw), dtype=bool), {}
    for reason, holds in rules.items():
        dropped |= {reason: lost} if (lost := int((keep & ~holds).sum())) else {}
        keep &= holds.to_numpy()
    data = raw[keep].reset_index(drop=True)
    X = data[list(columns)].astype(np.float32).set_axis(list(columns.values()), axis=1)
    notes = [f"{new} in place of {old}" for old, new in columns.items() if new != old]
    notes += [
        f"{n:,} blanks in {column} set to 0, as folktables does"
        for column, n in X.isna().sum().items()
        if n
    ]
    y, cuts, labels = (
        np.searchsorted(EDUCATION_CUTS, data["SCHL"], side="right"),
        None,
        EDUCATION_NAMES,
    )
    if name == "acs_income":
        y, cuts, labels = (
            *income_classes(data["PINCP"], data["ST"], brackets),
            INCOME_NAMES,
        )
        notes.append(
            f"income brackets: {brackets if isinstance(brackets, str) else 'given'}"
        )
    kinds = {
        "race": RACES[data["RAC1P"].astype(int) - 1],
        "sex": np.where(data["SEX"] == 1, "men", "women"),
    }
    return Dataset(
        name=name,
        source=source,
        X=X.fillna(0),
        y=y,
        **group_by(kinds, "race" if attribute is None else attribute),
        label_names=labels,
        dropped=dropped,
        missing=tuple(c for c in FEATURES[name] if c not in columns),
        notes=tuple(notes),
        cuts=cuts,
        licence="" if source == "simulated" else LICENCE,
        citation="" if source == "simulated" else citation,
    )


def income_classes(
    income: pd.Series, state: pd.Series, brackets
) -> tuple[np.ndarray, pd.DataFrame]:
    """Bracket 0..3 of each income, and the three cuts by state; an income at a cut belongs to the upper bracket."""
    quarters = [0.25, 0.5, 0.75]
    if isinstance(brackets, pd.DataFrame):
        cuts = brackets
    elif brackets == "state":
        cuts = income.groupby(state).quantile(quarters).unstack()
    elif brackets == "national":
        cuts = pd.DataFrame(
            [income.quantile(quarters)] * state.nunique(), index=np.unique(state)
        )
    else:
        raise ValueError(
            f"brackets: found {brackets!r}; wanted 'state', 'national' or the cuts of a Dataset"
        )
    if unknown := set(state) - set(cuts.index):
        raise ValueError(
            f"brackets: no cuts for state {', '.join(map(str, sorted(unknown)))}"
        )
    return (income.to_numpy()[:, None] >= cuts.loc[state].to_numpy()).sum(axis=1), cuts

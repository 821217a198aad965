"""Simulated records of ACS and Pokec: what source="simulated" reads.

They are written in the raw formats, so that the same code reads them. Group shares, class
balance and homophily are those of real records; the rest is made up, and known.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
from scipy.special import expit, ndtr

from cfhelpers import paths
from cfhelpers._cache import source_digest
from cfhelpers.datasets._dataset import undirected
from cfhelpers.datasets._formats import (
    FIRST_YEAR_OF_RENAMED,
    RENAMED,
    SIZES,
    STATES,
    TARGET,
    csv_name,
    pokec_names,
)

# Of people at work in 2018, by race, RAC1P 1 to 9.
RACE_SHARES = np.array([78286, 8545, 663, 41, 123, 5910, 174, 3807, 2451]) / 1e5
# Of their schooling.
CLASS_SHARES = np.array([0.0754, 0.2054, 0.0319, 0.3154, 0.2281, 0.1438])
# First and last code of SCHL, by class.
SCHL_CODES = np.array([[1, 15], [16, 16], [17, 17], [18, 20], [21, 21], [22, 24]])
# Made up: schooling and log income by race, log income by state.
SCHOOLING = np.array([0.0, -0.25, -0.5, -0.7, -0.4, 0.45, -0.35, -0.75, -0.05])
EARNINGS = np.array([0.0, -0.12, -0.15, -0.2, -0.15, 0.05, -0.1, -0.15, -0.05])
ACS_STATES = {"CA": 0.12, "CO": 0.05, "NY": 0.08, "PR": -0.6, "TX": 0.0}
# Columns that say nothing, and their largest code.
NOISE = {
    "PWGTP": 200,
    "PUMA": 4000,
    "POWPUMA": 4000,
    "COW": 8,
    "CIT": 5,
    "DIS": 2,
    "MIG": 3,
    "RELP": 17,
    "POBP": 500,
}
AT_HOME = 11  # the code of JWTR for people who work at home

# The share of Pokec-n's friendships that stay within.
HOMOPHILY = {"region": 0.953, "gender": 0.456, "label": 0.497}
# Users by region and gender. Of Pokec-z the first 3,219 users are known.
USERS = {
    "pokec_n": [[24336, 23002], [9789, 9442]],
    "pokec_z": [[1315, 1095], [385, 424]],
}
# Users who name their field of work, by region, gender and field.
LABELLED = {
    "pokec_n": [
        [[1746, 758, 493, 312], [1379, 510, 381, 396]],
        [[791, 320, 272, 217], [594, 201, 207, 220]],
    ],
    "pokec_z": [
        [[123, 36, 36, 17, 2], [71, 30, 19, 20, 32]],
        [[27, 13, 4, 8, 1], [33, 8, 10, 9, 3]],
    ],
}
LINES_PER_EDGE = 729_129 / 517_047  # many friendships are listed in both directions
INTERESTS = 260
TASTE_SEED = 7  # of the population: users of all draws share their taste
HIDDEN_LABELS = "hidden_labels.npy"


def people(
    n: int, rng: np.random.Generator, shares: np.ndarray = RACE_SHARES
) -> pd.DataFrame:
    """Made-up persons who pass the income filter, with the PUMS columns of both tasks.

    Parameters
    ----------
    n : int
    rng : Generator
    shares : (9,)
        Of the races.

    Returns
    -------
    DataFrame of float64 (n, columns)
        NaN is a blank.

    Examples
    --------
    >>> persons = people(100, np.random.default_rng(0))
    >>> bool((persons["PINCP"] > 100).all())
    True
    """
    race = rng.choice(9, n, p=shares)
    sex = rng.integers(1, 3, n)
    state = rng.integers(0, len(ACS_STATES), n)
    schooling = rng.normal(SCHOOLING[race], 1)
    skill = 0.8 * schooling + 0.6 * rng.normal(size=n)
    age = 17 + (70 * rng.beta(2, 3, n)).astype(int)
    hours = np.clip(np.round(rng.normal(39, 11, n)), 1, 99)
    log_income = (
        10.4
        + 0.3 * (schooling + skill)
        + 0.025 * (hours - 39)
        - 0.0006 * (age - 50) ** 2
        - 0.25 * (sex == 2)
    )
    by_state = np.array(list(ACS_STATES.values()))[state]
    log_income += EARNINGS[race] + by_state + rng.normal(0, 0.5, n)
    income = np.maximum(np.round(np.exp(log_income), -1), 110)
    works_at_home = rng.random(n) < 0.08
    columns: dict[str, np.ndarray] = {}
    for name, largest in NOISE.items():
        columns[name] = rng.integers(1, largest + 1, n)
    fips_codes = np.array([int(STATES[name]) for name in ACS_STATES])
    columns["ST"] = fips_codes[state]
    columns["AGEP"] = age
    columns["SEX"] = sex
    columns["RAC1P"] = race + 1
    is_married = rng.random(n) < np.clip((age - 18) / 40, 0, 0.75)
    columns["MAR"] = np.where(is_married, 1, 5)
    columns["SCHL"] = _schooling_codes(schooling, rng)
    columns["ESP"] = np.full(n, np.nan)  # asked of children only
    columns["OCCP"] = np.round(9830 - 9820 * ndtr(skill))
    columns["WKHP"] = hours
    columns["JWTR"] = np.where(works_at_home, AT_HOME, rng.integers(1, AT_HOME, n))
    minutes = np.round(rng.gamma(2, 10 + 3 * ndtr(schooling), n))
    columns["JWMNP"] = np.where(works_at_home, np.nan, np.clip(minutes, 1, 160))
    columns["PINCP"] = income
    poverty_ratio = np.round(income / 130 * rng.uniform(0.8, 1.6, n))
    columns["POVPIP"] = np.clip(poverty_ratio, 0, 501)
    return pd.DataFrame(columns).astype(float)


def _schooling_codes(schooling: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """SCHL of every person: cuts give the classes their shares in the population."""
    grid = np.linspace(-5, 5, 4001)
    share_below = ndtr(grid[:, None] - SCHOOLING) @ RACE_SHARES
    cuts = np.interp(np.cumsum(CLASS_SHARES)[:-1], share_below, grid)
    first, last = SCHL_CODES[np.searchsorted(cuts, schooling)].T
    return rng.integers(first, last + 1)


def acs_files(
    n: int, seed: int, year: int = 2018, horizon: str = "1-Year"
) -> dict[str, Path]:
    """Person files by state in folktables' layout, drawn where they are missing.

    Parameters
    ----------
    n : int
        Records that pass the income filter; n/20 more do not.
    seed : int
    year : int
        Of the survey that they stand for.
    horizon : "1-Year" or "5-Year"

    Returns
    -------
    dict
        State to path.
    """
    folder = _draw_folder("acs", n, seed) / str(year) / horizon
    files = {state: folder / csv_name(state, year) for state in ACS_STATES}
    if all(path.exists() for path in files.values()):
        return files
    rng = np.random.default_rng(seed)
    n_children = n // 20
    frame = people(n + n_children, rng)
    frame.loc[n:, "AGEP"] = rng.integers(0, 30, n_children)
    frame.loc[n:, ["WKHP", "PINCP"]] = np.nan
    if year >= FIRST_YEAR_OF_RENAMED:
        frame = frame.rename(columns={name: RENAMED[name] for name in ("RELP", "JWTR")})
    frame.insert(0, "RT", "P")
    for state, path in files.items():
        _write_csv(frame[frame["ST"] == int(STATES[state])], path)
    return files


def pokec_files(name: str, n: int, seed: int) -> tuple[Path, Path]:
    """User file and relationship file in FairGNN's format, drawn where they are missing.

    Parameters
    ----------
    name : "pokec_n" or "pokec_z"
    n : int
        Users.
    seed : int

    Returns
    -------
    users, relationships : Path
        The labels of all users stand beside them; see `hidden_labels`.
    """
    folder = _draw_folder(name, n, seed)
    users_name, lines_name = pokec_names(name)
    users_path = folder / users_name
    lines_path = folder / lines_name
    labels_path = folder / HIDDEN_LABELS
    if users_path.exists() and lines_path.exists() and labels_path.exists():
        return users_path, lines_path
    rng = np.random.default_rng(seed)
    users, label = _draw_users(name, n, rng)
    lines = _draw_lines(name, users, label, rng)
    _write_csv(users.astype(float), users_path)
    with paths.atomic_write(lines_path) as partial:
        pd.DataFrame(lines).to_csv(partial, sep="\t", header=False, index=False)
    with paths.atomic_write(labels_path) as partial:
        np.save(partial, label)
    return users_path, lines_path


def hidden_labels(name: str, n: int, seed: int) -> np.ndarray:
    """The labels of all users of a simulated Pokec, also of those who show none, (n,)."""
    users_path, _ = pokec_files(name, n, seed)
    return np.load(users_path.with_name(HIDDEN_LABELS))


def _draw_users(
    name: str, n: int, rng: np.random.Generator
) -> tuple[pd.DataFrame, np.ndarray]:
    """Users with their profiles, and the label of each, shown or not."""
    n_users = np.array(USERS[name])
    n_labelled = np.array(LABELLED[name])
    place = rng.choice(4, n, p=n_users.ravel() / n_users.sum())
    region = place // 2
    gender = place % 2
    label_shares = n_labelled / n_labelled.sum(axis=2, keepdims=True)
    share_up_to = label_shares.cumsum(axis=2)[region, gender]
    label = (rng.random(n)[:, None] > share_up_to[:, :-1]).sum(axis=1)
    shown_shares = n_labelled.sum(axis=2) / n_users
    is_shown = rng.random(n) < shown_shares[region, gender]
    liking = _liking(region, gender, label, n_labelled.shape[2])
    user_id = rng.permutation(20 * n)[:n] + 1
    percentage = rng.integers(12, 96, n)
    is_public = rng.random(n) < 0.6
    has_no_age = rng.random(n) < 0.3
    age = np.where(has_no_age, 0, np.round(15 + rng.gamma(2, 4.5, n)))
    columns = {
        "user_id": user_id,
        "public": is_public,
        "completion_percentage": percentage,
        "gender": gender,
        "region": region,
        "AGE": age,
        TARGET: np.where(is_shown, label, -1),
    }
    likes = rng.random(liking.shape) < expit(liking)
    for number, column in enumerate(likes.T):
        columns[f"interest_{number}"] = column
    return pd.DataFrame(columns), label


def _liking(
    region: np.ndarray, gender: np.ndarray, label: np.ndarray, n_classes: int
) -> np.ndarray:
    """The log odds that a user has each interest, (n, INTERESTS)."""
    taste = np.random.default_rng(TASTE_SEED)
    in_general = taste.normal(-1.8, 1, INTERESTS)
    by_label = taste.normal(0, 0.3, (n_classes, INTERESTS))
    by_gender = taste.normal(0, 0.4, (2, INTERESTS))
    by_region = taste.normal(0, 0.1, (2, INTERESTS))
    liking = in_general + by_label[label]
    liking += by_gender[gender] + by_region[region]
    return liking


def _draw_lines(
    name: str, users: pd.DataFrame, label: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """The lines of the relationship file: pairs of user ids, some in both directions."""
    all_users, all_lines = SIZES[name]
    n_lines = round(len(users) * all_lines / all_users)
    traits = [users["region"].to_numpy(), users["gender"].to_numpy(), label]
    edges = friendships(traits, round(n_lines / LINES_PER_EDGE), rng)
    n_edges = edges.shape[1]
    twice = rng.permutation(n_edges)[: n_lines - n_edges]
    pairs = np.concatenate([edges, edges[::-1, twice]], axis=1)
    order = rng.permutation(n_lines)
    return users["user_id"].to_numpy()[pairs[:, order].T]


def friendships(
    traits: list[np.ndarray], size: int, rng: np.random.Generator
) -> np.ndarray:
    """Distinct edges between users, some more popular than others.

    Random pairs are thinned until each trait is shared as often as `HOMOPHILY` says.

    Parameters
    ----------
    traits : list of (n,)
        Region, gender and label of every user.
    size : int
        How many edges.
    rng : Generator

    Returns
    -------
    int64 (2, size)

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> friendships([rng.integers(0, 2, 50) for _ in range(3)], 20, rng).shape
    (2, 20)
    """
    n = len(traits[0])
    edges = np.empty((2, 0), dtype=np.int64)
    popularity = np.cumsum(rng.lognormal(0, 1, n))
    while edges.shape[1] < size:
        pairs = np.searchsorted(popularity, rng.random((2, size)) * popularity[-1])
        weight = np.ones(size)
        for trait, share in zip(traits, HOMOPHILY.values(), strict=True):
            is_same = trait[pairs[0]] == trait[pairs[1]]
            weight_of_same = share / is_same.mean()
            weight_of_others = (1 - share) / (1 - is_same.mean())
            weight *= np.where(is_same, weight_of_same, weight_of_others)
        kept = pairs[:, rng.random(size) < weight / weight.max()]
        edges = undirected(np.concatenate([edges, kept], axis=1), n)
    chosen = np.sort(rng.permutation(edges.shape[1])[:size])
    return edges[:, chosen]


def _draw_folder(name: str, n: int, seed: int) -> Path:
    """Where one draw is kept.

    Its name changes with the code, so that old files are not taken for new ones.
    """
    code = source_digest(__name__)[:8]
    return paths.DATA / "simulated" / f"{name}_{n}_{seed}_{code}"


def _write_csv(frame: pd.DataFrame, path: Path) -> None:
    """A CSV like the raw files: a bare header, whole numbers, blanks."""
    whole = frame.copy(deep=False)
    for name in frame:
        if frame[name].dtype == float:
            whole[name] = frame[name].astype("Int64")
    header = ",".join(map(str, frame)) + "\n"
    options = pa.csv.WriteOptions(include_header=False, quoting_style="none")
    with paths.atomic_write(path) as partial, open(partial, "wb") as file:
        file.write(header.encode())
        pa.csv.write_csv(pa.Table.from_pandas(whole, preserve_index=False), file, options)

"""Simulated simulated of ACS and Pokec, written in the raw formats so that the same loaders read them.

Group shares, class balance and homophily are those of real records; the rest is made up, and known.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
from scipy.special import expit, ndtr

from cfhelpers import paths
from cfhelpers.datasets import acs, pokec
from cfhelpers.datasets._dataset import Dataset, undirected
from cfhelpers.datasets.populations import Truth

RACE_SHARES = (
    np.array([78286, 8545, 663, 41, 123, 5910, 174, 3807, 2451]) / 1e5
)  # of people at work in 2018
CLASS_SHARES = np.array(
    [0.0754, 0.2054, 0.0319, 0.3154, 0.2281, 0.1438]
)  # of their schooling
SCHOOLING = np.array(
    [0.0, -0.25, -0.5, -0.7, -0.4, 0.45, -0.35, -0.75, -0.05]
)  # by race, made up
EARNINGS = np.array(
    [0.0, -0.12, -0.15, -0.2, -0.15, 0.05, -0.1, -0.15, -0.05]
)  # by race, made up
ACS_STATES = {
    "CA": 0.12,
    "CO": 0.05,
    "NY": 0.08,
    "PR": -0.6,
    "TX": 0.0,
}  # log income, made up
SCHL_CODES = np.array(
    [[1, 15], [16, 16], [17, 17], [18, 20], [21, 21], [22, 24]]
)  # first and last of each class


def people(
    n: int, rng: np.random.Generator, shares: np.ndarray = RACE_SHARES
) -> pd.DataFrame:
    """n made-up persons who pass the income filter, with the PUMS columns of both tasks; NaN is a blank."""
    grid = np.linspace(-5, 5, 4001)
    cuts = np.interp(
        np.cumsum(CLASS_SHARES)[:-1], ndtr(grid[:, None] - SCHOOLING) @ RACE_SHARES, grid
    )
    race, sex, state = (
        rng.choice(9, n, p=shares),
        rng.integers(1, 3, n),
        rng.integers(0, len(ACS_STATES), n),
    )
    schooling = rng.normal(SCHOOLING[race], 1)
    first, last = SCHL_CODES[np.searchsorted(cuts, schooling)].T
    skill = 0.8 * schooling + 0.6 * rng.normal(size=n)
    age, hours = (
        17 + (70 * rng.beta(2, 3, n)).astype(int),
        np.clip(np.round(rng.normal(39, 11, n)), 1, 99),
    )
    log_income = (
        10.4
        + 0.3 * (schooling + skill)
        + 0.025 * (hours - 39)
        - 0.0006 * (age - 50) ** 2
        - 0.25 * (sex == 2)
    )
    log_income += (
        EARNINGS[race]
        + np.array(list(ACS_STATES.values()))[state]
        + rng.normal(0, 0.5, n)
    )
    income, at_home = (
        np.maximum(np.round(np.exp(log_income), -1), 110),
        rng.random(n) < 0.08,
    )
    noise = dict(
        PWGTP=200, PUMA=4000, POWPUMA=4000, COW=8, CIT=5, DIS=2, MIG=3, RELP=17, POBP=500
    )
    columns = {column: rng.integers(1, top + 1, n) for column, top in noise.items()} | {
        "ST": np.array([int(acs.STATES[s]) for s in ACS_STATES])[state],
        "AGEP": age,
        "SEX": sex,
        "RAC1P": race + 1,
        "MAR": np.where(rng.random(n) < np.clip((age - 18) / 40, 0, 0.75), 1, 5),
        "SCHL": rng.integers(first, last + 1),
        "ESP": np.full(n, np.nan),  # asked of children only
        "OCCP": np.round(9830 - 9820 * ndtr(skill)),
        "WKHP": hours,
        "JWTR": np.where(at_home, 11, rng.integers(1, 11, n)),
        "JWMNP": np.where(
            at_home,
            np.nan,
            np.clip(np.round(rng.gamma(2, 10 + 3 * ndtr(schooling), n)), 1, 160),
        ),
        "PINCP": income,
        "POVPIP": np.clip(np.round(income / 130 * rng.uniform(0.8, 1.6, n)), 0, 501),
    }
    return pd.DataFrame(columns).astype(float)


def acs_files(
    n: int, seed: int, year: int = 2018, horizon: str = "1-Year"
) -> dict[str, Path]:
    """Person files by state in folktables' layout, with n records that pass the income filter and n/20 that do not."""
    folder = _folder("acs", n, seed) / str(year) / horizon
    files = {state: folder / acs.csv_name(state, year) for state in ACS_STATES}
    if not all(path.exists() for path in files.values()):
        rng = np.random.default_rng(seed)
        frame = people(n + n // 20, rng)
        frame.loc[n:, "AGEP"] = rng.integers(0, 30, n // 20)
        frame.loc[n:, ["WKHP", "PINCP"]] = np.nan
        frame = frame.rename(
            columns={"RELP": "RELSHIPP", "JWTR": "JWTRNS"} if year >= 2019 else {}
        )
        frame.insert(0, "RT", "P")
        for state, path in files.items():
            _write(frame[frame["ST"] == int(acs.STATES[state])], path)
    return files


def acs_truth(
    dataset: Dataset,
    score: Callable[[pd.DataFrame], np.ndarray],
    n=1_000_000,
    seed: int = 1,
) -> Truth:
    """True coverage, where `dataset` was drawn from, of `score`: features → scores (n, K); from n fresh persons.

    Every race gets as many of them, where groups are by race.
    """
    shares = np.full(9, 1 / 9) if "race" in dataset.attribute else RACE_SHARES
    columns = dict(zip(acs.FEATURES[dataset.name], dataset.X.columns, strict=True))
    raw = people(n, np.random.default_rng(seed), shares)
    raw = raw[
        raw["ST"].isin(dataset.X["ST"] if dataset.cuts is None else dataset.cuts.index)
    ]
    fresh = acs.prepare(
        dataset.name,
        raw,
        columns,
        "simulated",
        dataset.attribute.split(" × "),
        dataset.cuts,
    )
    return _truth(score(fresh.X), fresh.y, fresh.groups, dataset.group_names)


HOMOPHILY = {
    "region": 0.953,
    "gender": 0.456,
    "label": 0.497,
}  # share of Pokec-n's friendships that stay within
USERS = {
    "pokec_n": [[24336, 23002], [9789, 9442]],
    "pokec_z": [[1315, 1095], [385, 424]],
}  # by region, gender
LABELLED = {  # by region, gender, field; of Pokec-z the first 3,219 users are known
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


def pokec_files(name: str, n: int, seed: int) -> list[Path]:
    """User file and relationship file of n made-up users in FairGNN's format; their hidden labels stand beside."""
    folder, stem = _folder(name, n, seed), pokec.STEMS[name]
    files = [
        folder / f"{stem}.csv",
        folder / f"{stem}_relationship.txt",
        folder / "hidden_labels.npy",
    ]
    if all(path.exists() for path in files):
        return files[:2]
    rng, taste = (
        np.random.default_rng(seed),
        np.random.default_rng(7),
    )  # taste belongs to the population
    shares, labelled = np.array(USERS[name]), np.array(LABELLED[name])
    region, gender = np.divmod(rng.choice(4, n, p=shares.ravel() / shares.sum()), 2)
    below = (labelled / labelled.sum(axis=2, keepdims=True)).cumsum(axis=2)[
        region, gender
    ]
    label = (rng.random(n)[:, None] > below[:, :-1]).sum(axis=1)
    shown = rng.random(n) < (labelled.sum(axis=2) / shares)[region, gender]
    liking = (
        taste.normal(-1.8, 1, INTERESTS)
        + taste.normal(0, 0.3, (labelled.shape[2], INTERESTS))[label]
    )
    liking += (
        taste.normal(0, 0.4, (2, INTERESTS))[gender]
        + taste.normal(0, 0.1, (2, INTERESTS))[region]
    )
    ids, percentage, public = (
        rng.permutation(20 * n)[:n] + 1,
        rng.integers(12, 96, n),
        rng.random(n) < 0.6,
    )
    age = np.where(rng.random(n) < 0.3, 0, np.round(15 + rng.gamma(2, 4.5, n)))
    users = {
        "user_id": ids,
        "public": public,
        "completion_percentage": percentage,
        "gender": gender,
        "region": region,
    }
    users |= {"AGE": age, pokec.TARGET: np.where(shown, label, -1)}
    users |= {
        f"interest_{i}": column
        for i, column in enumerate((rng.random(liking.shape) < expit(liking)).T)
    }
    total = round(n * pokec.SIZES[name][1] / pokec.SIZES[name][0])
    edges = friendships([region, gender, label], round(total / LINES_PER_EDGE), rng)
    back = edges[::-1, rng.permutation(edges.shape[1])[: total - edges.shape[1]]]
    lines = ids[np.concatenate([edges, back], axis=1)[:, rng.permutation(total)].T]
    _write(pd.DataFrame(users).astype(float), files[0])
    with paths.atomic_write(files[1]) as partial:
        pd.DataFrame(lines).to_csv(partial, sep="\t", header=False, index=False)
    with paths.atomic_write(files[2]) as partial:
        np.save(partial, label)
    return files[:2]


def friendships(
    traits: list[np.ndarray], size: int, rng: np.random.Generator
) -> np.ndarray:
    """`size` distinct edges (2, size) between popular users, thinned until each trait is shared at its homophily."""
    n, edges = len(traits[0]), np.empty((2, 0), dtype=np.int64)
    popularity = np.cumsum(rng.lognormal(0, 1, n))
    while edges.shape[1] < size:
        pairs = np.searchsorted(popularity, rng.random((2, size)) * popularity[-1])
        weight = np.ones(size)
        for trait, share in zip(traits, HOMOPHILY.values(), strict=True):
            same = trait[pairs[0]] == trait[pairs[1]]
            weight *= np.where(same, share / same.mean(), (1 - share) / (1 - same.mean()))
        kept = pairs[:, rng.random(size) < weight / weight.max()]
        edges = undirected(np.concatenate([edges, kept], axis=1), n)
    return edges[:, np.sort(rng.permutation(edges.shape[1])[:size])]


def pokec_truth(dataset: Dataset, scores: np.ndarray, seed: int = 0) -> Truth:
    """Coverage over all users of a simulated Pokec, the unlabelled too, of scores (n, K) that a model gave them."""
    hidden = np.load(_folder(dataset.name, len(dataset), seed) / "hidden_labels.npy")
    return _truth(scores, hidden, dataset.groups, dataset.group_names)


def _truth(scores, y, groups, names) -> Truth:
    return Truth.of(scores, y, pd.Index(names).get_indexer(groups), names)


def _folder(name: str, n: int, seed: int) -> Path:
    """Where one draw is kept; the name changes with this code, so that old files are not taken for new ones."""
    return (
        paths.DATA
        / "simulated"
        / f"{name}_{n}_{seed}_{hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]}"
    )


def _write(frame: pd.DataFrame, path: Path) -> None:
    """A CSV like the raw files: a bare header, whole numbers, blanks."""
    whole = frame.apply(
        lambda column: column.astype("Int64") if column.dtype == float else column
    )
    with paths.atomic_write(path) as partial, open(partial, "wb") as file:
        file.write((",".join(frame) + "\n").encode())
        options = pa.csv.WriteOptions(include_header=False, quoting_style="none")
        pa.csv.write_csv(pa.Table.from_pandas(whole, preserve_index=False), file, options)

"""ACS beyond the paper: weights, dollars, sizes of sets, one threshold per group.

`weights` audits one predictor of income on the people of the survey, and on those people
thinned by their survey weight PWGTP, which are a sample of the country; and searches
thresholds with and without the weights. `dollars` makes intervals for income itself.
`sizes` follows the gap in coverage and the gap in size along the threshold, and asks for
equal coverage, equal size and both. `mondrian` has one threshold for everyone, the
paper's rule, the guarantee, and one threshold per group and label beside each other, on
Credit and on ACS. Each writes a small table to results/beyond. All need the real records
of ACS (CFHELPERS_DATA).

    python tools/acs_beyond.py weights
    python tools/acs_beyond.py dollars
    python tools/acs_beyond.py sizes mondrian
"""

import argparse
import functools
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)

from cfhelpers import FairConformalRegressor, audit, load_dataset, mondrian
from cfhelpers.conformal import conformal_quantile, prediction_sets
from cfhelpers.control import find_threshold
from cfhelpers.datasets import acs, credit_probabilities
from cfhelpers.datasets._files import local_folders
from cfhelpers.fairness import disparity
from cfhelpers.groups import as_groups
from cfhelpers.paths import RESULTS
from cfhelpers.weights import thin

FOLDER = RESULTS / "beyond"
STATES = ("FL", "GA", "IL", "MI")
BOUND = 400.0  # larger weights are cut to it
N_TRAIN = 60_000
N_CALIBRATION = 60_000
N_TEST = 100_000
SIZE_CLOSENESS = 0.05
EVERYONE = "everyone"
FILES = {
    "weights": "acs_weights.csv",
    "dollars": "acs_dollars.csv",
    "sizes": "acs_sizes.csv",
    "mondrian": "mondrian.csv",
}
METRICS = (
    "demographic_parity",
    "disparate_impact",
    "equal_opportunity",
    "overall_accuracy_equality",
)


def survey(
    attribute: str, states: tuple[str, ...] = STATES
) -> tuple[acs.Dataset, np.ndarray]:
    """Workers of some states, and how many people each stands for."""
    year, files = acs.find(None, states, acs.PAPER_HORIZON)
    raw, columns = acs.read("acs_income", files)
    data = acs.prepare(
        "acs_income", raw, columns, attribute=attribute, citation=str(year)
    )
    is_kept, _ = acs.kept_rows("acs_income", raw)
    return data, np.minimum(raw["PWGTP"].to_numpy()[is_kept], BOUND)


def parts_of(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows for training, calibration and test."""
    order = np.random.default_rng(seed).permutation(n)
    cuts = [N_TRAIN, N_TRAIN + N_CALIBRATION]
    train, calibration, test = np.split(order, cuts)
    return train, calibration, test


def pooled(groups: np.ndarray) -> np.ndarray:
    """Groups with less than a hundredth of the people as one."""
    names, codes = np.unique(groups.astype(str), return_inverse=True)
    is_small = np.bincount(codes) < len(groups) / 100
    return np.where(is_small[codes], "any other", names[codes])


def verdict_rows(attribute: str, seed: int) -> list[dict]:
    """The audit of one predictor, on the survey's people and on the country's."""
    data, weights = survey(attribute)
    train, calibration, test = parts_of(len(data.y), seed)
    groups = pooled(np.asarray(data.groups))
    X = data.X.to_numpy()
    model = HistGradientBoostingClassifier(random_state=seed)
    scores = 1 - model.fit(X[train], data.y[train]).predict_proba(X)
    own = scores[calibration, data.y[calibration]]
    threshold = conformal_quantile(own, 0.1)
    kept = test[thin(weights[test], BOUND, seed)]
    rows = []
    for metric in METRICS:
        row = {"grouped by": attribute, "metric": metric}
        for name, people in (("survey", test), ("country", kept)):
            found = audit(
                scores[people],
                data.y[people],
                groups[people],
                metric,
                threshold=threshold,
            )
            row[f"{name}: people"] = len(people)
            row[f"{name}: disparity"] = found.disparities.loc[metric, "disparity"]
            row[f"{name}: verdict"] = found.verdicts[metric]
        args = (scores[calibration], data.y[calibration], groups[calibration])
        thresholds = {
            "survey, plain rule": find_threshold(*args, metric),
            "country, weighted counts": find_threshold(
                *args, metric, sample_weight=weights[calibration]
            ),
            "survey, guarantee": find_threshold(
                *args, metric, guarantee="fixed-sequence"
            ),
            "country, guarantee": find_threshold(
                *args,
                metric,
                guarantee="fixed-sequence",
                sample_weight=weights[calibration],
                weight_bound=BOUND,
                random_state=seed,
            ),
        }
        for name, found in thresholds.items():
            row[f"{name}: threshold"] = found.threshold[0]
            sets = prediction_sets(scores[test], found.threshold)
            row[f"{name}: set size"] = np.average(sets.sum(axis=1), weights=weights[test])
        row["points kept"] = thresholds["country, guarantee"].weighting.n_kept
        row["cost"] = thresholds["country, guarantee"].weighting.cost
        rows.append(row)
    return rows


def workers() -> pd.DataFrame:
    """Workers of 2018 with their income in dollars."""
    for folder in local_folders():
        for path in (folder / "acs", folder):
            found = Path(path) / "workers_2018.parquet"
            if found.exists():
                return pd.read_parquet(found)
    raise FileNotFoundError("workers_2018.parquet is in no local folder of data")


def dollar_rows(seed: int) -> list[dict]:
    """Intervals for income by race: equal coverage of dollars, and of regions."""
    people = workers()
    people = people[people["Income"] > 0].reset_index(drop=True)
    columns = ["Age", "Education", "Occupation", "Workclass", "Marital Status"]
    X = people[columns].copy()
    for column in columns[1:]:
        X[column] = pd.factorize(X[column].astype(str), sort=True)[0]
    y = people["Income"].to_numpy()
    groups = people["Race"].astype(str).to_numpy()
    train, calibration, _ = parts_of(len(y), seed)
    models = []
    for quantile in (0.15, 0.85):
        model = HistGradientBoostingRegressor(
            loss="quantile", quantile=quantile, random_state=seed
        )
        models.append(model.fit(X.iloc[train], y[train]))
    rows = []
    for metric, regions in (
        ("overall_accuracy_equality", None),
        ("equal_opportunity", [50_000]),
        ("equal_opportunity", [100_000]),
    ):
        fair = FairConformalRegressor(
            tuple(models),
            regions=regions,
            metric=metric,
            closeness=0.05,
            alpha=0.3,
            positive_regions=None if regions is None else [1],
            small_groups="leave out",
        )
        fair.fit(
            X.iloc[calibration],
            y[calibration],
            groups[calibration],
            training=(X.iloc[train], y[train]),
        )
        for name, row in fair.summary_.iterrows():
            rows.append(
                {
                    "metric": metric,
                    "regions": "" if regions is None else str(regions),
                    "groups left out": len(fair.promise_.left_out),
                    "intervals": name,
                    **row,
                }
            )
    return rows


@dataclass(frozen=True)
class Scored:
    """People with scores 1 - p: those of the calibration set, and those of the test."""

    name: str
    calibration: tuple[np.ndarray, np.ndarray, np.ndarray]  # scores, labels, groups
    test: tuple[np.ndarray, np.ndarray, np.ndarray]

    @property
    def base(self) -> float:
        """The conformal quantile q̂ at a coverage of 90%."""
        scores, y, _ = self.calibration
        return conformal_quantile(scores[np.arange(len(y)), y], 0.1)


@functools.cache
def acs_scored(attribute: str, seed: int) -> Scored:
    """Workers of ACS 2024 by their income in four classes."""
    data, _ = survey(attribute)
    train, calibration, test = parts_of(len(data.y), seed)
    groups = pooled(np.asarray(data.groups))
    X = data.X.to_numpy()
    model = HistGradientBoostingClassifier(random_state=seed)
    model.fit(X[train], data.y[train])
    parts = []
    for rows in (calibration, test[:N_TEST]):
        parts.append((1 - model.predict_proba(X[rows]), data.y[rows], groups[rows]))
    return Scored(f"ACS income 2024, by {attribute}", *parts)


def credit_scored() -> Scored:
    """Clients of Credit by age, with the bundled probabilities."""
    data = load_dataset("credit")
    probabilities, part_of = credit_probabilities()
    parts = []
    for part in ("calibration", "test"):
        rows = part_of == part
        parts.append((1 - probabilities[rows], data.y[rows], data.groups[rows]))
    return Scored("Credit, by age", *parts)


def size_row(people: Scored, asked: str, rule: str, threshold: float) -> dict:
    """Size, and gaps in coverage and in size, of one threshold on the test people."""
    scores, y, groups = people.test
    sets = scores <= threshold
    return {
        "data": people.name,
        "asked for": asked,
        "rule": rule,
        "threshold": threshold,
        "mean set size": sets.sum(axis=1).mean(),
        "gap in coverage": disparity(sets, y, groups, "equal_opportunity"),
        "gap in size": disparity(sets, y, groups, "set_size"),
    }


def size_rows(people: Scored) -> list[dict]:
    """Along the threshold, and what equal coverage, equal size and both ask for."""
    scores, y, groups = people.calibration
    rows = [size_row(people, "nothing", "one quantile", people.base)]
    for asked in ("equal_opportunity", "set_size", ("equal_opportunity", "set_size")):
        for guarantee in ("none", "fixed-sequence"):
            found = find_threshold(
                scores,
                y,
                groups,
                asked,
                SIZE_CLOSENESS,
                guarantee=guarantee,
                classwise=False,
            )
            told = asked if isinstance(asked, str) else "both"
            rows.append(size_row(people, told, guarantee, float(found.threshold[0])))
    for threshold in np.quantile(scores, np.linspace(0.3, 1, 40)):
        rows.append(size_row(people, "along the threshold", "", float(threshold)))
    return rows


def mondrian_rows(people: Scored) -> list[dict]:
    """Four predictors on the test people: each group, and everyone with the gap."""
    scores, y, names = people.calibration
    groups = as_groups(names, len(y))
    test_scores, test_y, test_names = people.test
    codes = mondrian.codes_of_known(test_names, groups.names, len(test_y))
    question = (scores, y, names, "equal_opportunity", 0.1)
    sets = {mondrian.BASE: test_scores <= people.base}
    for name, rule in (("the paper's rule", "none"), ("guarantee", "fixed-sequence")):
        found = find_threshold(*question, classwise=True, guarantee=rule)
        sets[name] = prediction_sets(test_scores, found.threshold)
    by_group = mondrian.cell_thresholds(scores, y, groups, 0.1)
    sets[mondrian.PER_GROUP] = mondrian.sets_by_group(test_scores, by_group, codes)
    rows = []
    for name, own in sets.items():
        covered = own[np.arange(len(test_y)), test_y]
        for code in (*range(len(groups)), None):
            is_in = np.ones(len(test_y), bool) if code is None else codes == code
            by_label = [
                covered[is_in & (test_y == label)].mean()
                for label in range(1, own.shape[1])
            ]
            rows.append(
                {
                    "data": people.name,
                    "predictor": name,
                    "asks for the group": name == mondrian.PER_GROUP,
                    "group": EVERYONE if code is None else groups.names[code],
                    "people": int(is_in.sum()),
                    "coverage": covered[is_in].mean(),
                    "lowest coverage of a label": min(by_label),
                    "mean set size": own[is_in].sum(axis=1).mean(),
                    "gap": np.nan,
                }
            )
        rows[-1]["gap"] = disparity(own, test_y, test_names, "equal_opportunity")
    return rows


def rows_of(table: str, seed: int) -> list[dict]:
    """The rows of one table."""
    if table == "weights":
        return verdict_rows("race", seed) + verdict_rows("sex", seed)
    if table == "dollars":
        return dollar_rows(seed)
    if table == "sizes":
        return size_rows(acs_scored("sex", seed)) + size_rows(acs_scored("race", seed))
    rows = mondrian_rows(credit_scored())
    for attribute in ("sex", "race"):
        rows += mondrian_rows(acs_scored(attribute, seed))
    return rows


def main() -> None:
    """Make some of the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tables", nargs="+", choices=tuple(FILES))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    for name in options.tables:
        table = pd.DataFrame(rows_of(name, options.seed))
        table.to_csv(FOLDER / FILES[name], index=False, float_format="%.4f")
        print(table.to_string())


if __name__ == "__main__":
    sys.exit(main())

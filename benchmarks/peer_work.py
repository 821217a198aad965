"""One library on one table of probabilities: the answers compared, then timed.

`benchmarks/peers.py` starts this file as a process of its own, so that a library that
takes too long, or too much memory, ends alone. Every finished work is a line of JSON.
"""

import json
import math
import resource
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cfhelpers import _ranking, _sweep, audit, conformal, control, scores
from cfhelpers.cells import CellCounts
from cfhelpers.groups import as_groups
from cfhelpers.metrics import get_metric

ALPHA = 0.1
PENALTY = 0.01
K_REG = 1
CLOSENESS = 0.1
CANDIDATES = 500  # which the authors' search tries, one after the other
CHECKED_ROWS = 2000
VALUES_OF_C = (1, 10, 100)  # as many are asked for at once
SET_WORK = ("TPS sets", "APS sets", "RAPS sets")
ENOUGH_SECONDS = 0.5  # of tries
MOST_TRIES = 25
FEWEST_TRIES = 3  # the first one meets memory that nobody has touched yet
PATIENCE = 20.0  # seconds, after which one try is enough
# The rates of fairlearn, and the metrics whose values they are.
METRIC_OF_RATE = {
    "selection_rate": "demographic_parity",
    "true_positive_rate": "equal_opportunity",
    "false_positive_rate": "predictive_equality",
    "precision_score": "predictive_parity",
}
Data = tuple[np.ndarray, np.ndarray, np.ndarray]  # probabilities, y, groups
Answer = tuple[float, np.ndarray]  # the threshold, and sets (n, K)


def our_scores(probs: np.ndarray, work: str, u: np.ndarray | None) -> np.ndarray:
    """Scores by the name of the work."""
    if work == "TPS sets":
        return scores.tps(probs)
    if work == "APS sets":
        return scores.aps(probs, u)
    return scores.raps(probs, u, PENALTY, K_REG)


def our_sets(data: Data, work: str, u: np.ndarray | None = None) -> Answer:
    """Scores of every label, the quantile, the sets."""
    probs, y, _ = data
    values = our_scores(probs, work, u)
    own_scores = conformal.true_label_scores(values, y)
    threshold = conformal.conformal_quantile(own_scores, ALPHA)
    return threshold, conformal.prediction_sets(values, threshold)


def our_timed_sets(data: Data, work: str) -> Answer:
    """The same; APS and RAPS with a random number for every point, drawn here too."""
    if work == "TPS sets":
        return our_sets(data, work)
    u = np.random.default_rng(2).random(len(data[1]), np.float32)
    return our_sets(data, work, u)


def torchcp_sets(data: Data, work: str) -> Answer:
    """As TorchCP documents it: calibrate, then predict. Not randomised.

    Its sets are 0 and 1 as int32, ours are Boolean; it does not look at its input, ours
    checks every probability.
    """
    import torch
    from torchcp.classification.predictor import SplitPredictor
    from torchcp.classification.score import APS, LAC, RAPS

    score = {
        "TPS sets": lambda: LAC(score_type="identity"),
        "APS sets": lambda: APS(score_type="identity", randomized=False),
        "RAPS sets": lambda: RAPS("identity", False, penalty=PENALTY, kreg=K_REG),
    }[work]()
    predictor = SplitPredictor(score, alpha=ALPHA)
    probs = torch.from_numpy(data[0])
    predictor.calculate_threshold(probs, torch.from_numpy(data[1]))
    return float(predictor.q_hat), predictor.predict_with_logits(probs).numpy()


def mapie_sets(data: Data, work: str) -> Answer:
    """As MAPIE documents it, for a model whose features are its probabilities.

    Its APS is randomised: u by the seed, the same for calibration and prediction.
    """
    from mapie.classification import SplitConformalClassifier

    probs, y, _ = data
    classifier = SplitConformalClassifier(
        ready_model(probs.shape[1]),
        confidence_level=1 - ALPHA,
        conformity_score="lac" if work == "TPS sets" else "aps",
        random_state=0,
    )
    classifier.conformalize(probs, y)
    options = None if work == "TPS sets" else {"include_last_label": "randomized"}
    _, sets = classifier.predict_set(probs, options)
    score = classifier._mapie_classifier.conformity_score_function_
    return float(score.quantiles_[0]), sets[:, :, 0]


def ready_model(n_classes: int) -> Any:
    """A fitted classifier that gives its input back as probabilities."""
    from sklearn.base import BaseEstimator, ClassifierMixin

    class Ready(ClassifierMixin, BaseEstimator):
        classes_ = np.arange(n_classes)

        def fit(self, X, y):
            return self

        def predict_proba(self, X):
            return X

        def predict(self, X):
            return X.argmax(axis=1)

        def __sklearn_is_fitted__(self):
            return True

    return Ready()


def crepes_sets(data: Data, work: str) -> Answer:
    """As crepes documents it: hinge scores, then sets by p-values without smoothing."""
    from crepes import ConformalClassifier
    from crepes.extras import hinge

    probs, y, _ = data
    classifier = ConformalClassifier()
    classifier.fit(hinge(probs, np.arange(probs.shape[1]), y))
    sets = classifier.predict_set(hinge(probs), confidence=1 - ALPHA, smoothing=False)
    return math.nan, sets


def puncc_sets(data: Data, work: str) -> Answer:
    """As puncc documents it, without its random term; sets are lists of labels."""
    from deel.puncc.api.prediction import BasePredictor
    from deel.puncc.classification import LAC, RAPS

    class Probabilities(BasePredictor):
        def predict(self, X, **_):
            return self.model.predict_proba(X)

    predictor = Probabilities(ready_model(data[0].shape[1]), is_trained=True)
    if work == "TPS sets":
        conformal_predictor = LAC(predictor, train=False)
    else:
        penalty = PENALTY if work == "RAPS sets" else 0
        conformal_predictor = RAPS(
            predictor, train=False, lambd=penalty, k_reg=K_REG, rand=False
        )
    conformal_predictor.fit(X_calib=data[0], y_calib=data[1])
    _, sets = conformal_predictor.predict(data[0], alpha=ALPHA)
    inner = conformal_predictor.conformal_predictor
    return inner, sets


def fairlearn_rates(data: Data, work: str) -> Any:
    """Four rates of every label by group, and their gaps: a MetricFrame per label."""
    import pandas as pd
    from fairlearn import metrics
    from sklearn.metrics import precision_score

    sets, y, groups = audited(data)
    functions = {rate: getattr(metrics, rate, precision_score) for rate in METRIC_OF_RATE}
    frames = {}
    gaps = {}
    for label in range(sets.shape[1]):
        frame = metrics.MetricFrame(
            metrics=functions,
            y_true=(y == label).astype(int),
            y_pred=sets[:, label].astype(int),
            sensitive_features=groups,
        )
        frames[label] = frame.by_group
        gaps[label] = frame.difference()
    return pd.concat(frames, axis=1), pd.concat(gaps, axis=1)


SETS: dict[int, np.ndarray] = {}  # of the data that is audited, made once


def audited(data: Data) -> Data:
    """Sets in place of probabilities."""
    _, y, groups = data
    if len(y) not in SETS:
        SETS[len(y)] = our_sets(data, "TPS sets")[1]
    return SETS[len(y)], y, groups


def our_rates(data: Data, work: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same numbers (labels, groups) and (labels,), from one count of every cell."""
    sets, y, groups = audited(data)
    counts = CellCounts.from_sets(sets, y, as_groups(groups, len(y)))
    rates = {}
    gaps = {}
    for rate, metric in METRIC_OF_RATE.items():
        shares = counts.shares(get_metric(metric))
        rates[rate] = shares.values[:, 0]
        gaps[rate] = shares.losses[:, 0]
    return rates, gaps


def our_audit(data: Data, work: str) -> Any:
    """Eight metrics with the interval of every cell and a verdict."""
    sets, y, groups = audited(data)
    return audit(sets, y, groups, positive_labels=list(range(sets.shape[1])))


SCORES: dict[int, np.ndarray] = {}  # TPS, made once for each table


def tps_of(probs: np.ndarray) -> np.ndarray:
    """TPS scores of a table."""
    if len(probs) not in SCORES:
        SCORES[len(probs)] = scores.tps(probs)
    return SCORES[len(probs)]


def our_frontier(data: Data, work: str) -> Any:
    """The exact answer for every c: demographic parity, TPS, one λ."""
    probs, y, groups = data
    return control.frontier(tps_of(probs), y, groups, "demographic_parity", alpha=ALPHA)


def authors_grid(data: Data, work: str, n_candidates: int = CANDIDATES) -> float:
    """The authors' search for one metric and one c, restated.

    Candidates are a sub-sample of the scores above q̂. For each of them, in a Python loop,
    the points of every label and group are counted afresh; all that pass are kept, and
    the smallest is the answer.
    """
    probs, y, groups = data
    values = tps_of(probs)
    n, n_classes = values.shape
    base = conformal.conformal_quantile(values[np.arange(n), y], ALPHA)
    tried = np.unique(values[values >= base])
    if len(tried) > n_candidates:
        tried = tried[np.linspace(0, len(tried) - 1, n_candidates).astype(int)]
    passing = []
    for threshold in tried:
        worst = 0.0
        for label in range(1, n_classes):
            lower = []
            upper = []
            for group in np.unique(groups):
                cell = values[groups == group, label]
                covered = np.sum(cell <= threshold)
                lower.append(covered / (len(cell) + 1))
                upper.append((covered + 1) / (len(cell) + 1))
            worst = max(worst, max(upper) - min(lower))
        if worst <= CLOSENESS:
            passing.append(float(threshold))
    return min(passing, default=math.inf)


def floor_sort(data: Data, work: str) -> Any:
    return np.sort(tps_of(data[0]), axis=None)


def floor_copy(data: Data, work: str) -> Any:
    return data[0].copy()


FOLDER = Path()


def floor_parquet(data: Data, work: str) -> Any:
    """Reading the probabilities from Parquet into memory, by Arrow, on one thread."""
    import pyarrow.parquet as pq

    file = FOLDER / "-".join(map(str, data[0].shape)) / "probs.parquet"
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        import pyarrow as pa

        columns = [pa.array(np.ascontiguousarray(column)) for column in data[0].T]
        names = [f"p_{label}" for label in range(len(columns))]
        pq.write_table(pa.table(columns, names=names), file)
    return pq.read_table(file, use_threads=False, memory_map=False)


WORK: dict[str, dict[str, Callable[[Data, str], Any]]] = {
    "cfhelpers": {
        **dict.fromkeys(SET_WORK, our_timed_sets),
        "thresholds": our_frontier,
        "group rates": our_rates,
        "audit": our_audit,
    },
    "TorchCP": dict.fromkeys(SET_WORK, torchcp_sets),
    "MAPIE": dict.fromkeys(SET_WORK[:2], mapie_sets),
    "crepes": {SET_WORK[0]: crepes_sets},
    "puncc": dict.fromkeys(SET_WORK, puncc_sets),
    "fairlearn": {"group rates": fairlearn_rates},
    "the authors' grid": {"thresholds": authors_grid},
    "floor": {"sort": floor_sort, "copy": floor_copy, "Parquet": floor_parquet},
}


def check(library: str, work: str, data: Data) -> str:
    """What stands in the way of a comparison; empty where the answers agree."""
    some = tuple(part[:CHECKED_ROWS] for part in data)
    if library in ("cfhelpers", "floor"):
        return ""
    if library == "fairlearn":
        return check_rates(some)
    if library == "the authors' grid":
        few = tuple(part[:300] for part in data)
        found = authors_grid(few, work, n_candidates=10**9)
        wanted = control.find_threshold(
            tps_of(few[0]), few[1], few[2], "demographic_parity", CLOSENESS, alpha=ALPHA
        ).threshold[0]
        return "" if found == wanted else f"threshold {found} and ours {wanted}"
    theirs = WORK[library][work](some, work)
    u = None
    if library == "MAPIE" and work == "APS sets":
        u = np.random.RandomState(0).uniform(size=len(some[1]))  # as its seed draws it
    ours = our_sets(some, work, u)
    if library == "puncc":
        theirs = puncc_as_ours(theirs, some, work)
    return compare_sets(our_scores(some[0], work, u), ours, theirs)


def compare_sets(values: np.ndarray, ours: Answer, theirs: Answer) -> str:
    """The same quantile and the same sets, but for scores within rounding of it."""
    threshold, sets = ours
    if not math.isnan(theirs[0]) and abs(theirs[0] - threshold) > 1e-5:
        return f"quantile {theirs[0]} and ours {threshold}"
    differ = np.asarray(theirs[1]).astype(bool) != sets
    far = np.abs(values[differ] - threshold) > 1e-5
    return f"{far.sum()} entries of the sets differ" if far.any() else ""


def puncc_as_ours(answer: Any, data: Data, work: str) -> Answer:
    """puncc's lists as a table. Where it does not draw at random, APS and RAPS keep the
    label that crosses the quantile; it is taken away here, if ours would not have it."""
    inner, lists = answer
    level = (1 - ALPHA) * (1 + 1 / len(data[1]))
    (own_scores,) = inner.get_nonconformity_scores().values()
    threshold = float(np.quantile(own_scores, level, method="inverted_cdf"))
    values = our_scores(data[0], work, None)
    sets = np.zeros(data[0].shape, bool)
    for row, labels in enumerate(lists):
        sets[row, labels] = True
        if work != "TPS sets" and values[row, labels[-1]] > threshold + 1e-5:
            sets[row, labels[-1]] = False
    return threshold, sets


def check_rates(data: Data) -> str:
    """fairlearn's rates and ours; it has 0 where a rate is not defined."""
    forget()
    their_rates, their_gaps = fairlearn_rates(data, "")
    rates, gaps = our_rates(data, "")
    for rate, own in rates.items():
        both = their_rates.xs(rate, axis=1, level=1).to_numpy(float).T
        if not np.allclose(np.nan_to_num(own), np.nan_to_num(both)):
            return f"{rate} differs"
        is_defined = ~np.isnan(own).any(axis=1)
        gap = their_gaps.loc[rate].to_numpy(float)
        if not np.allclose(gaps[rate][is_defined], gap[is_defined]):
            return f"the gap of {rate} differs"
    return ""


def least_times(work: Callable[[], Any]) -> tuple[float, float, int]:
    """The least wall and processor seconds of some tries, and how many they were."""
    walls = []
    processor = []
    while wants_another_try(len(walls), sum(processor)):
        wall = time.perf_counter()
        start = time.process_time()
        work()
        processor.append(time.process_time() - start)
        walls.append(time.perf_counter() - wall)
    return min(walls), min(processor), len(walls)


def wants_another_try(n_tries: int, seconds: float) -> bool:
    """A few tries of everything that does not take long, many of what is short."""
    if n_tries < FEWEST_TRIES:
        return seconds < PATIENCE
    return n_tries < MOST_TRIES and seconds < ENOUGH_SECONDS


def say(**row: Any) -> None:
    print(json.dumps(row), flush=True)


def run(library: str, items: list[list[Any]], most_gigabytes: float) -> None:
    """Items (n, K, work), one after the other, each with lines that say how it goes.

    It has begun; its answers agree with ours; it is done, or cannot be done.
    """
    at_start = peak_gigabytes()
    for n, n_classes, work in items:
        say(n=n, K=n_classes, work=work, status="started")
        if work == "scaling":
            scaling(load(library, n, n_classes))
            continue
        if expected_gigabytes(n, n_classes, work) > most_gigabytes:
            say(n=n, K=n_classes, work=work, status="memory")
            continue
        try:
            outcome = run_work(library, work, load(library, n, n_classes))
        except MemoryError:
            outcome = {"status": "memory"}
        except RuntimeError as error:  # as PyTorch says it
            if "allocate memory" not in str(error):
                raise
            outcome = {"status": "memory"}
        PEAKS[n_classes, work] = (n, peak_gigabytes() - at_start)
        say(n=n, K=n_classes, work=work, **outcome, peak=peak_gigabytes())


PEAKS: dict[tuple[int, str], tuple[int, float]] = {}  # n, and what was taken at most then


def expected_gigabytes(n: int, n_classes: int, work: str) -> float:
    """What a work would take, by what it took at a smaller n; 0 if that is not known."""
    if (n_classes, work) not in PEAKS:
        return 0.0
    smaller_n, taken = PEAKS[n_classes, work]
    return taken * n / smaller_n


def peak_gigabytes() -> float:
    """The most memory that this process has taken so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def run_work(library: str, work: str, data: Data) -> dict[str, Any]:
    """What came of one work: its least times, or how its answers differ."""
    wrong = check(library, work, data)
    if wrong:
        return {"status": "differs", "why": wrong}
    function = WORK[library][work]
    forget()
    function(tuple(part[:CHECKED_ROWS] for part in data), work)  # imports are made here
    forget()
    prepare(work, data)
    say(work=work, n=len(data[1]), K=data[0].shape[1], status="ready")
    wall, processor, tries = least_times(partial(function, data, work))
    return {"status": "ok", "wall": wall, "processor": processor, "tries": tries}


def forget() -> None:
    """Drop sets and scores that were made for a table of the same length."""
    SETS.clear()
    SCORES.clear()


LOADED: dict[tuple[int, int], Data] = {}  # the last table


def load(library: str, n: int, n_classes: int) -> Data:
    """Probabilities, true labels and groups."""
    if (n, n_classes) not in LOADED:
        LOADED.clear()
        forget()
        folder = FOLDER / f"{n}-{n_classes}"
        probs = np.load(folder / "probs.npy")
        if library == "puncc":  # which wants rows that sum to 1 within 1e-5
            probs = probs.astype(np.float64)
            probs /= probs.sum(axis=1, keepdims=True)
        y = np.load(folder / "y.npy")
        groups = np.load(folder / "groups.npy")
        LOADED[n, n_classes] = (probs, y, groups)
    return LOADED[n, n_classes]


def prepare(work: str, data: Data) -> None:
    """What is ready before the time is taken: sets, scores, or a file."""
    if work in ("group rates", "audit"):
        audited(data)
    elif work in ("thresholds", "sort"):
        tps_of(data[0])
    elif work == "Parquet":
        floor_parquet(data, work)


def scaling(data: Data) -> None:
    """The threshold search by number of groups, and by number of values of c."""
    values = tps_of(data[0])
    y = data[1]
    n, n_classes = data[0].shape
    rng = np.random.default_rng(3)
    metric = "demographic_parity"
    works = []
    for n_groups in (2, 8, 32, 128):
        groups = rng.integers(0, n_groups, n)
        search = partial(control.frontier, values, y, groups, metric)
        works.append(("groups", n_groups, search))
    for n_values in VALUES_OF_C:
        asked = np.linspace(0.01, 0.5, n_values).tolist()
        search = partial(control.find_threshold, values, y, data[2], metric, asked)
        works.append(("values of c", n_values, search))
    for work, size, search in works:
        search()
        wall, processor, tries = least_times(search)
        times = {"wall": wall, "processor": processor, "tries": tries}
        say(n=n, K=n_classes, work=work, size=size, status="ok", **times)


def main() -> None:
    global FOLDER
    order = json.loads(sys.argv[1])
    FOLDER = Path(order["folder"])
    most = int(order["gigabytes"] * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    warnings.simplefilter("ignore")
    if order["library"] == "TorchCP":
        import torch

        torch.set_num_threads(order["cores"])
    _sweep.warm_up()
    _ranking.compiled()
    run(order["library"], order["items"], order["gigabytes"])


if __name__ == "__main__":
    main()

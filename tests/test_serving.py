"""A person's set depends on that person alone: in any batch, order and process."""

import functools
import json
import pickle
import subprocess
import sys
from datetime import date
from pathlib import Path

import check_serving
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from cfhelpers import FairConformalClassifier
from cfhelpers.scores import aps, person_u, raps

N = 900
NEW = 29
SCORES = ["tps", "aps", "raps", "own"]
INPUTS = ["array", "frame", "text", "probabilities", "named probabilities"]


def own_score(probs, u):
    """A score of the user's own, by name so that it can be pickled."""
    return 0.5 * aps(probs, u) + 0.5 * (1 - probs)


@functools.cache
def people():
    """Features (some of them text), labels and groups, in three parts."""
    rng = np.random.default_rng(5)
    n = 2 * N + NEW
    y = rng.integers(0, 3, n)
    frame = pd.DataFrame(
        {
            "height": rng.normal(y == 1, 1.0).round(1),
            "weight": rng.normal(y == 2, 1.0).round(1),
            "town": rng.choice(["Köln", "Århus", "Łódź"], n),
        }
    )
    return frame, y, rng.choice(["a", "b"], n)


@functools.cache
def fitted(score, kind, with_ids):
    """A fitted classifier, new people in its form of input, and their ids."""
    frame, y, groups = people()
    if kind != "text":
        frame = frame[["height", "weight"]]
    model = make_pipeline(LogisticRegression())
    if kind == "text":
        words = make_column_transformer(
            (OneHotEncoder(), ["town"]), remainder="passthrough"
        )
        model = make_pipeline(words, LogisticRegression())
    X = frame.to_numpy() if kind in ("array", "probabilities") else frame
    model.fit(X[:N], y[:N])
    estimator = model
    if "probabilities" in kind:
        estimator = None
        X = model.predict_proba(X)
    if kind == "named probabilities":
        X = pd.DataFrame(X, columns=["p_0", "p_1", "p_2"])
    fair = FairConformalClassifier(
        estimator,
        own_score if score == "own" else score,
        closeness=0.4,
        random_state=3,
    )
    ids = [f"person {i}" for i in range(len(X))] if with_ids else None
    part = slice(N, 2 * N)
    fair.fit(X[part], y[part], groups[part], ids=ids[part] if ids else None)
    return fair, X[2 * N :], ids[2 * N :] if ids else None


def rows(X, places):
    return X.iloc[places] if isinstance(X, pd.DataFrame) else X[places]


def served(fair, X, ids, batches):
    """Sets in the order of the people, served batch by batch."""
    sets = np.empty((len(X), 3), bool)
    for batch in batches:
        some = None if ids is None else [ids[i] for i in batch]
        sets[batch] = fair.predict_set(rows(X, batch), ids=some)
    return sets


@pytest.mark.slow
@pytest.mark.parametrize("with_ids", [False, True])
@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("score", SCORES)
def test_sets_are_the_same_alone_in_any_batch_and_in_any_order(score, kind, with_ids):
    fair, X, ids = fitted(score, kind, with_ids)
    everyone = np.arange(NEW)
    wanted = fair.predict_set(X, ids=ids)
    assert 0 < wanted.mean() < 1
    shuffled = np.random.default_rng(0).permutation(NEW)
    ways = {
        "alone": [[i] for i in everyone],
        "shuffled": [shuffled],
        "sevens": np.array_split(shuffled, NEW // 7 + 1),
    }
    for name, batches in ways.items():
        sets = served(fair, X, ids, batches)
        np.testing.assert_array_equal(sets, wanted, err_msg=name)
    again = pickle.loads(pickle.dumps(fair))
    np.testing.assert_array_equal(again.predict_set(X, ids=ids), wanted)
    if score != "own":
        written = json.loads(json.dumps(fair.to_dict()))
        read = FairConformalClassifier.from_dict(written, estimator=fair.estimator)
        np.testing.assert_array_equal(read.predict_set(X, ids=ids), wanted)


@pytest.mark.slow
def test_sets_are_the_same_in_another_process(tmp_path):
    cases = []
    for score in SCORES:
        for kind in INPUTS:
            fair, X, ids = fitted(score, kind, with_ids=score == "aps")
            cases.append((fair, X, ids, fair.predict_set(X, ids=ids)))
    (tmp_path / "cases.pickle").write_bytes(pickle.dumps(cases))
    program = (
        "import pickle, pathlib, sys\n"
        "cases = pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())\n"
        "print(all((fair.predict_set(X, ids=ids) == sets).all()"
        " for fair, X, ids, sets in cases))"
    )
    here = Path(__file__).parent
    paths = [str(here), str(here.parent), str(here.parent / "tools")]
    found = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "cases.pickle")],
        env={"PYTHONPATH": ":".join(paths), "PYTHONHASHSEED": "12345"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == "True"


@pytest.mark.parametrize("kind", INPUTS)
def test_people_of_the_calibration_get_the_set_that_they_were_calibrated_with(kind):
    drawn = []

    def watched(probs, u):
        drawn.append(u)
        return aps(probs, u)

    fair, X, _ = fitted("aps", kind, False)
    again = FairConformalClassifier(fair.estimator, watched, random_state=3)
    again.set_params(closeness=0.7, guarantee="none")
    again.fit(X, np.arange(NEW) % 3, ["a"] * 14 + ["b"] * 15)
    again.predict_set(rows(X, [5]))
    assert drawn[1] == drawn[0][5]


def test_who_sets_the_threshold_stays_covered_when_the_last_bit_differs():
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(3), 500)
    y = rng.integers(0, 3, 500)
    groups = rng.choice(["a", "b"], 500)
    fair = FairConformalClassifier(closeness=0.5, guarantee="none", random_state=0)
    fair.fit(probs, y, groups)
    own = 1 - probs[np.arange(500), y]
    (person,) = np.flatnonzero(own == fair.result_.base_threshold)
    nudged = probs[[person]]
    nudged[0, y[person]] = np.nextafter(nudged[0, y[person]], 0)
    assert fair.predict_set(nudged)[0, y[person]]


def test_without_a_seed_one_is_drawn_and_kept():
    _, y, groups = people()
    probs = np.random.default_rng(0).dirichlet(np.ones(3), len(y))
    one = FairConformalClassifier(conformity_score="aps", closeness=0.4)
    one.fit(probs, y, groups)
    other = FairConformalClassifier(conformity_score="aps", closeness=0.4)
    other.fit(probs, y, groups)
    assert one.seed_ != other.seed_
    np.testing.assert_array_equal(one.predict_set(probs), one.predict_set(probs))
    read = FairConformalClassifier.from_dict(json.loads(json.dumps(one.to_dict())))
    assert read.seed_ == one.seed_


def test_unrandomised_scores_take_no_random_number():
    _, y, groups = people()
    probs = np.random.default_rng(0).dirichlet(np.ones(3), len(y))
    thresholds = []
    for seed in (0, 1):
        fair = FairConformalClassifier(
            conformity_score="aps", closeness=0.4, randomized=False, random_state=seed
        )
        thresholds.append(fair.fit(probs, y, groups).threshold_)
    np.testing.assert_array_equal(*thresholds)
    true_scores = aps(probs)[np.arange(len(y)), y]
    assert fair.result_.base_threshold in true_scores


def test_ids_belong_to_fit_and_predict_or_to_neither():
    fair, X, ids = fitted("aps", "array", True)
    with pytest.raises(ValueError, match="ids: found None; fit was given ids"):
        fair.predict_set(X)
    with pytest.raises(ValueError, match="ids: found 28 for 29 points"):
        fair.predict_set(X, ids=ids[1:])
    with pytest.raises(ValueError, match="ids: row 1 is missing"):
        fair.predict_set(X[:2], ids=["person 1", None])
    without, X, _ = fitted("aps", "array", False)
    with pytest.raises(ValueError, match="ids: found some; fit was given none"):
        without.predict_set(X, ids=ids)


def test_a_person_with_an_id_keeps_the_number_when_the_row_changes():
    fair, X, ids = fitted("aps", "array", True)
    changed = X + 1e-9
    near = fair.predict_set(changed, ids=ids) == fair.predict_set(X, ids=ids)
    assert near.mean() > 0.99
    other, X, _ = fitted("aps", "array", False)
    assert (other.predict_set(changed) == other.predict_set(X)).mean() < 0.99


def test_the_last_bit_of_a_probability_does_not_change_the_number():
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(3), 200)
    fair, _, _ = fitted("raps", "probabilities", False)
    noisy = np.nextafter(probs, 1)
    np.testing.assert_array_equal(fair.predict_set(noisy), fair.predict_set(probs))


@pytest.mark.parametrize("rows_per_group", check_serving.ROWS_PER_GROUP)
def test_few_distinct_rows_served_one_at_a_time_keep_the_promise(rows_per_group):
    fits = 15
    beyond, _ = check_serving.share_beyond(rows_per_group, fits)
    assert beyond <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / fits)


def test_options_of_a_score_are_served_from_json():
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(3), 600)
    y = rng.integers(0, 3, 600)
    score = functools.partial(raps, penalty=0.3, k_reg=2)
    fair = FairConformalClassifier(conformity_score=score, closeness=0.5)
    fair.fit(probs, y, rng.choice(["a", "b"], 600))
    written = fair.to_dict()
    assert written["conformity_score"] == {
        "name": "raps",
        "options": {"penalty": 0.3, "k_reg": 2},
    }
    read = FairConformalClassifier.from_dict(json.loads(json.dumps(written)))
    np.testing.assert_array_equal(read.predict_set(probs), fair.predict_set(probs))
    assert read.promise_ == fair.promise_


def test_json_has_infinite_thresholds_as_text_and_names_as_they_are():
    rng = np.random.default_rng(0)
    names = np.array(["deny", "approve"])
    probs = pd.DataFrame(rng.dirichlet(np.ones(2), 40), columns=names)
    groups = pd.DataFrame({"sex": ["f", "m"] * 20, "old": [True, False] * 20})
    fair = FairConformalClassifier(random_state=0)
    with pytest.warns(UserWarning):
        fair.fit(probs, names[rng.integers(0, 2, 40)], groups)
    text = json.dumps(fair.to_dict(), allow_nan=False)
    assert json.loads(text)["threshold"] == ["inf", "inf"]
    read = FairConformalClassifier.from_dict(json.loads(text))
    assert read.classes_.tolist() == ["deny", "approve"]
    assert read.promise_.groups == [("f", True), ("m", False)]
    assert read.predict_labels(probs[["approve", "deny"]][:1]) == [["deny", "approve"]]
    with pytest.raises(ValueError, match="wanted \\['deny', 'approve'\\]"):
        read.predict_set(probs.rename(columns={"deny": "no"}))


def test_json_needs_a_score_with_a_name_and_the_estimator_of_fit():
    own, _, _ = fitted("own", "array", False)
    with pytest.raises(ValueError, match=r"conformity_score: .*cannot be written"):
        own.to_dict()
    fair, _, _ = fitted("aps", "array", False)
    with pytest.raises(ValueError, match=r"estimator: found None; .*features"):
        FairConformalClassifier.from_dict(fair.to_dict())
    direct, _, _ = fitted("aps", "probabilities", False)
    with pytest.raises(ValueError, match=r"estimator: .*probabilities, so wanted None"):
        FairConformalClassifier.from_dict(direct.to_dict(), estimator=fair.estimator)
    with pytest.raises(ValueError, match="fitted: found class None"):
        FairConformalClassifier.from_dict({})


@pytest.mark.parametrize("names", [["0", "1", "2"], ["2", "0", "1"], [2, 0, 1]])
def test_labels_that_are_numbers_may_be_columns_named_by_text(names):
    """Polars and Arrow have no other names, and fit may have had an array."""
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(3), 600)
    y = rng.integers(0, 3, 600)
    fair = FairConformalClassifier(closeness=0.4, random_state=0)
    fair.fit(probs, y, rng.choice(["a", "b"], 600))
    served = FairConformalClassifier.from_dict(json.loads(json.dumps(fair.to_dict())))
    table = pd.DataFrame(probs[:, [int(name) for name in names]], columns=names)
    np.testing.assert_array_equal(served.predict_set(table), fair.predict_set(probs))
    with pytest.raises(ValueError, match="which fit did not have"):
        served.predict_set(table.set_axis(["0", "1", "3"], axis=1))


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_polars_and_arrow_tables_are_people(library):
    module = pytest.importorskip(library)
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(3), 600)
    y = rng.integers(0, 3, 600)
    groups = rng.choice(["a", "b"], 600)
    ids = [f"p{i}" for i in range(600)]
    columns = {"p_0": probs[:, 0], "p_1": probs[:, 1], "p_2": probs[:, 2]}
    if library == "polars":
        table = module.DataFrame(columns)
        column = module.Series
    else:
        table = module.table(columns)
        column = module.array
    options = {"conformity_score": "aps", "closeness": 0.4, "random_state": 0}
    fair = FairConformalClassifier(**options)
    fair.fit(table, column(y), column(groups), ids=column(ids))
    wanted = FairConformalClassifier(**options)
    wanted.fit(pd.DataFrame(columns), y, groups, ids=ids)
    np.testing.assert_array_equal(fair.threshold_, wanted.threshold_)
    sets = fair.predict_set(table.select(["p_2", "p_0", "p_1"]), ids=column(ids))
    np.testing.assert_array_equal(sets, wanted.predict_set(pd.DataFrame(columns), ids))
    both = module.DataFrame({"x": ids}) if library == "polars" else column(ids)
    assert len(person_u(both, 0)) == 600


class Constant:
    """A model that says the same of everyone."""

    def __init__(self, classes, share):
        self.classes_ = np.array(classes)
        self.share = np.array(share)

    def predict_proba(self, X):
        return np.tile(self.share, (len(X), 1))


def test_an_estimator_has_a_column_of_probabilities_for_each_class():
    y = np.arange(300) % 2
    for model in (Constant([0, 1], [0.2, 0.3, 0.5]), Constant([0, 1, 2], [0.2, 0.8])):
        fair = FairConformalClassifier(model, guarantee="none")
        with pytest.raises(ValueError, match=r"estimator: found \d columns of prob"):
            fair.fit(np.zeros((300, 1)), y, y // 2)


@pytest.mark.parametrize("classes", [[0, 1], [1, 2], [1]])
def test_a_model_with_other_classes_is_not_served(classes):
    X = np.zeros((400, 1))
    y = np.arange(400) % 2
    groups = np.arange(400) // 200
    fair = FairConformalClassifier(Constant([1, 0], [0.2, 0.8]), guarantee="none")
    written = json.loads(json.dumps(fair.fit(X, y, groups).to_dict()))
    other = Constant(classes, [1 / len(classes)] * len(classes))
    with pytest.raises(ValueError, match=r"estimator: .* classes are \[1, 0"):
        FairConformalClassifier.from_dict(written, estimator=other)


@pytest.mark.parametrize(
    "names",
    [[date(2025, 1, 1), date(2026, 1, 1)], [b"no", b"yes"], [("a", 1), ("a", 2)]],
    ids=["dates", "bytes", "tuples"],
)
def test_labels_that_json_cannot_hold_are_served_here_and_not_written(names):
    rng = np.random.default_rng(0)
    columns = pd.Index(names, tupleize_cols=False)
    probs = pd.DataFrame(rng.dirichlet(np.ones(2), 400), columns=columns)
    y = pd.Series([names[place] for place in rng.integers(0, 2, 400)])
    fair = FairConformalClassifier(guarantee="none")
    fair.fit(probs, y, rng.choice(["a", "b"], 400))
    served = {label for labels in fair.predict_labels(probs) for label in labels}
    assert served == set(names)
    with pytest.raises(
        ValueError, match=r"classes: found .* JSON holds text and numbers"
    ):
        fair.to_dict()


def test_half_precision_of_any_kind_is_taken():
    torch = pytest.importorskip("torch")
    probs = torch.tensor([[0.25, 0.75], [0.5, 0.5]] * 100)
    y = np.arange(200) % 2
    groups = np.arange(200) // 100
    wanted = FairConformalClassifier(guarantee="none").fit(probs, y, groups)
    for kind in (torch.float16, torch.bfloat16):
        fair = FairConformalClassifier(guarantee="none").fit(probs.to(kind), y, groups)
        assert fair.threshold_.tolist() == wanted.threshold_.tolist()

"""Generated cases: a stream of files finds what memory finds, number by number."""

import os
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_scale import assert_same

from cfhelpers import control, scale
from cfhelpers import scores as score_functions
from cfhelpers.auditing import audit
from cfhelpers.metrics import LABEL_METRICS

pytest.importorskip("pyarrow")
# Cases per test; more by hand: CFHELPERS_CASES=1000 pytest …
CASES = int(os.environ.get("CFHELPERS_CASES", "6"))
NAMES = ["north", "south", "east", "west"]


@dataclass(frozen=True)
class Case:
    """Predictions in memory, and how they lie in files."""

    frame: pd.DataFrame
    n_classes: int
    score: str
    seed: int | None
    by_id: bool
    cuts: list[int]
    declared: list[str]

    @property
    def groups(self) -> pd.Categorical:
        names = sorted(self.frame["group"].unique())
        return pd.Categorical(self.frame["group"], categories=[*names, *self.declared])

    @property
    def scores(self) -> np.ndarray:
        probs = self.frame.iloc[:, : self.n_classes].to_numpy()
        if self.score == "tps":
            return score_functions.tps(probs)
        u = None
        if self.seed is not None:
            who = np.round(probs.astype(np.float64), 6)
            if self.by_id:
                who = self.frame["id"]
            u = score_functions.person_u(who, self.seed)
        return getattr(score_functions, self.score)(probs, u)

    def reading(self) -> dict:
        """How the files are to be read."""
        options = {"score": self.score, "random_state": self.seed, "progress": False}
        if self.by_id:
            options["id"] = "id"
        return options | {"group_names": self.declared}

    def write(self, folder: Path) -> Path:
        """The rows in several files, of which some may be empty."""
        places = np.split(np.arange(len(self.frame)), sorted(self.cuts))
        for i, place in enumerate(places):
            self.frame.iloc[place].to_parquet(folder / f"part{i}.parquet")
        return folder


@st.composite
def cases(draw) -> Case:
    n_classes = draw(st.integers(2, 4))
    n = draw(st.integers(1, 150))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    probs = rng.dirichlet(np.full(n_classes, draw(st.sampled_from([0.2, 1.0]))), n)
    steps = draw(st.sampled_from([None, 2, 8]))  # few steps: many ties, and zeros
    if steps is not None:
        probs = np.round(probs * steps)
        probs[probs.sum(axis=1) == 0] = 1
        probs /= probs.sum(axis=1, keepdims=True)
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    frame = pd.DataFrame(probs.astype(dtype)).add_prefix("p_")
    frame["label"] = rng.integers(0, n_classes, n)
    is_sure = rng.random(n) < 0.7
    frame.loc[is_sure, "label"] = probs.argmax(axis=1)[is_sure]
    n_groups = draw(st.integers(1, len(NAMES)))
    frame["group"] = rng.choice(NAMES[:n_groups], n, p=rng.dirichlet(np.ones(n_groups)))
    frame["id"] = rng.integers(0, n, n)
    score = draw(st.sampled_from(["tps", "aps", "raps"]))
    return Case(
        frame=frame,
        n_classes=n_classes,
        score=score,
        seed=draw(st.sampled_from([None, 0, 7])),
        by_id=score != "tps" and draw(st.booleans()),
        cuts=draw(st.lists(st.integers(0, n), max_size=3)),
        declared=draw(st.sampled_from([[], [], ["nobody"]])),
    )


def questions():
    """The options of a search."""
    return st.fixed_dictionaries(
        {
            "alpha": st.sampled_from([0.05, 0.1, 0.3, 0.5]),
            "classwise": st.booleans(),
            "positive_labels": st.sampled_from([None, [0], [0, 1]]),
        }
    )


same_answers = settings(
    max_examples=CASES, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.parametrize("metric", LABEL_METRICS)
@pytest.mark.parametrize("guarantee", control.GUARANTEES)
@given(case=cases(), options=questions(), closeness=st.sampled_from([0.05, 0.2, 0.6]))
@same_answers
def test_files_and_memory_give_the_same(metric, guarantee, case, options, closeness):
    options["guarantee"] = str(guarantee)
    if guarantee != "none":
        options["delta"] = 0.4
        if case.score == "raps":
            options["grid"] = np.arange(64) / 50
    memory = (case.scores, case.frame["label"], case.groups, metric)
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (Path(name) / "data").mkdir()
        files = case.write(Path(name) / "data")
        common = options | case.reading() | {"metric": metric, "folder": f"{name}/kept"}
        found = scale.find_threshold_at_scale(files, closeness=closeness, **common)
        assert_same(found, control.find_threshold(*memory, closeness, **options))
        streamed = scale.frontier_at_scale(files, **common)
        points = control.frontier(*memory, **options)
    pd.testing.assert_frame_equal(streamed, points, check_exact=True)


@given(case=cases(), level=st.floats(0.01, 0.99), infinite=st.booleans())
@same_answers
def test_the_audit_of_files_is_that_of_memory(case, level, infinite):
    threshold = np.full(case.n_classes, np.quantile(case.scores, level))
    threshold[0] = np.inf if infinite else case.scores[0, 0]
    groups = case.groups
    if len(groups.categories) < 2:
        groups = pd.Categorical(groups, categories=[*groups.categories, "other"])
    options = case.reading() | {"group_names": list(groups.categories)}
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (Path(name) / "data").mkdir()
        found = scale.audit_at_scale(
            case.write(Path(name) / "data"),
            threshold=threshold,
            folder=f"{name}/kept",
            **options,
        )
        wanted = audit(case.scores, case.frame["label"], groups, threshold=threshold)
    pd.testing.assert_frame_equal(found.table, wanted.table)
    pd.testing.assert_frame_equal(found.disparities, wanted.disparities)
    pd.testing.assert_frame_equal(found.sizes, wanted.sizes)


@pytest.mark.parametrize(
    "names",
    [
        np.array([1, 2**63, 2**64 - 1], np.uint64),
        pd.Timestamp("2020-01-01") + pd.to_timedelta([0, 1, 2], "ns"),
        pd.date_range("2020-07-01", periods=3, tz="Europe/Berlin"),
        pd.to_timedelta([0, 1, 2], "ns"),
        pd.Series([False, True, None], dtype="boolean").array,
    ],
    ids=["large integers", "nanoseconds", "a time zone", "spans", "yes, no, none"],
)
def test_groups_of_any_type_are_the_same_when_they_were_kept(tmp_path, names):
    rng = np.random.default_rng(0)
    probs = rng.random(300)
    frame = pd.DataFrame({"p_0": probs, "p_1": 1 - probs})
    frame["label"] = rng.integers(0, 2, 300)
    frame["group"] = pd.Series(names)[rng.integers(0, 3, 300)].array
    frame.to_parquet(tmp_path / "rows.parquet")
    scores = score_functions.tps(frame[["p_0", "p_1"]])
    wanted = audit(scores, frame["label"], frame["group"], threshold=0.5)
    for _ in range(2):  # counted, and then read
        found = scale.audit_at_scale(tmp_path, threshold=0.5, folder=tmp_path / "kept")
        assert found.sizes.index.tolist() == wanted.sizes.index.tolist()
        assert found.sizes["count"].tolist() == wanted.sizes["count"].tolist()

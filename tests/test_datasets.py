"""The bundled Credit data, its splits and the simulated populations."""

import hashlib
import json
import os
import random
import subprocess
import sys
import time
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from cards import flat

from cfhelpers import paths
from cfhelpers._cache import reached_modules
from cfhelpers.cells import CellCounts
from cfhelpers.conformal import prediction_sets
from cfhelpers.datasets import (
    NAMES,
    Dataset,
    Source,
    credit_probabilities,
    load_dataset,
    resplit,
    simulated,
    split,
    tune_halves,
)
from cfhelpers.datasets.acs import RACES
from cfhelpers.datasets.credit import (
    GRAPHS,
    SCALED,
    derive,
    fit_probabilities,
    similarity_edges,
    uci_table,
)
from cfhelpers.datasets.populations import Truth, nine_groups, two_groups
from cfhelpers.fairness import disparity
from cfhelpers.groups import as_groups
from cfhelpers.metrics import LABEL_METRICS as FAIRNESS_METRICS

DERIVED_SHA256 = "9c5cbdd38f72905873199da7a92f4c984d2264548f97569252b5e2ef96619e14"


@pytest.fixture(scope="module")
def credit():
    return load_dataset("credit")


def make_dataset(groups, y, label_names=("no", "yes")):
    groups, y = np.array(groups), np.array(y)
    names = tuple(dict.fromkeys(groups))
    return Dataset(
        "toy", "simulated", pd.DataFrame({"x": y}), y, groups, names, label_names, "group"
    )


def test_the_bundled_credit_data_are_read_without_parquet():
    code = """
import sys
sys.modules["pyarrow"] = None
from cfhelpers import load_dataset
from cfhelpers.datasets import credit_probabilities
assert len(load_dataset("credit")) == len(credit_probabilities()[0]) == 30_000
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_uci_table_is_complete():
    table = uci_table()
    assert table.shape == (30_000, 25)
    assert table["ID"].tolist() == list(range(1, 30_001))


def test_derived_credit_table_has_the_known_checksum():
    derived = derive(uci_table())
    assert (
        hashlib.sha256(
            derived.to_csv(index=False, lineterminator="\n").encode()
        ).hexdigest()
        == DERIVED_SHA256
    )


def test_derived_credit_table_is_the_published_one(shared):
    published = pd.read_csv(shared / "data/credit/credit_nifty.csv")
    pd.testing.assert_frame_equal(derive(uci_table()), published)


def test_credit_has_the_papers_counts(credit):
    assert credit.X.shape == (30_000, 12)
    assert credit.counts().sum(axis=1).to_dict() == {
        "25 or older": 27_315,
        "under 25": 2_685,
    }
    assert credit.counts().sum(axis=0).tolist() == [468, 4_917, 14_030, 10_585]
    assert not {"EducationLevel", "Single", "NoDefaultNextMonth"} & set(credit.X)


def test_credit_card_says_what_was_loaded(credit):
    for fact in (
        "bundled",
        "30,000",
        "under 25 2,685",
        "university 14,030",
        "CC BY 4.0",
        "10.24432/C55S3H",
    ):
        assert fact in flat(credit)


def test_credit_groups_may_be_intersections():
    both = load_dataset("credit", attribute=("age", "sex"))
    assert both.attribute == "age × sex"
    assert set(both.group_names) == {
        "under 25, women",
        "under 25, men",
        "25 or older, women",
        "25 or older, men",
    }
    assert both.counts().to_numpy().sum() == 30_000


@pytest.fixture
def caches(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "ARTIFACTS", tmp_path / "artifacts")
    monkeypatch.setattr(paths, "DATA", tmp_path / "data")
    return tmp_path


@pytest.mark.slow
def test_the_credit_graph_is_the_published_one_in_time_and_memory_and_is_kept(
    caches, request
):
    tracemalloc.start()
    start = time.process_time()  # of this process: others may be busy on the same machine
    data = load_dataset("credit", graph="published")
    seconds, memory = time.process_time() - start, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seconds < 180 and memory < 4e9
    assert data.edge_index.shape == (2, 2 * 1_421_858) and "1,421,858 undirected" in flat(
        data
    )
    start = time.process_time()
    again = load_dataset("credit", graph="published")
    assert (
        time.process_time() - start < seconds / 2
        and (again.edge_index == data.edge_index).all()
    )
    low, high = data.edge_index[:, :1_421_858]
    edges = np.load(
        request.getfixturevalue("shared") / "data/credit/edges_undirected.npz"
    )
    known = np.sort(np.stack([edges["row"], edges["col"]]).astype(np.int64), axis=0)
    assert np.array_equal(
        np.unique(known[0] * 30_000 + known[1]), np.unique(low * 30_000 + high)
    )


def published_rule(table, left_out, share, most):
    """The rule of the graph as it is written down, one row at a time."""
    x = table.drop(columns=left_out).astype(float)
    x[SCALED] = (x[SCALED] - x[SCALED].mean()) / x[SCALED].std()
    similarity = 1 / (
        1 + np.sqrt(((x.to_numpy()[:, None] - x.to_numpy()[None]) ** 2).sum(axis=2))
    )
    edges = set()
    for i, row in enumerate(similarity):
        near = np.flatnonzero(row > share * np.sort(row)[-2])
        random.seed(912)
        random.shuffle(near)
        edges |= {(min(i, int(j)), max(i, int(j))) for j in near[:most] if j != i}
    return edges


@pytest.mark.parametrize("share, most", [(0.7, 200), (0.3, 20), (0.9, 3)])
def test_similarity_edges_follow_the_rule(share, most):
    table = derive(uci_table()).sample(600, random_state=1)
    table = pd.concat([table, table.head(5)])  # twins at distance 0
    edges = similarity_edges(table, GRAPHS["published"], share=share, most=most)
    assert set(map(tuple, edges.T.tolist())) == published_rule(
        table, GRAPHS["published"], share, most
    )


def test_the_graph_without_the_target_knows_nothing_of_the_target():
    table = derive(uci_table()).head(1_500)
    other = table.assign(
        EducationLevel=table["EducationLevel"].sample(frac=1, random_state=0).to_numpy()
    )
    honest, leaking = GRAPHS["without_target"], GRAPHS["published"]
    assert np.array_equal(
        similarity_edges(table, honest), similarity_edges(other, honest)
    )
    assert not np.array_equal(
        similarity_edges(table, leaking), similarity_edges(other, leaking)
    )


def test_credit_is_read_from_a_local_folder(caches, monkeypatch, credit):
    monkeypatch.setenv("CFHELPERS_DATA", str(caches))
    with pytest.raises(FileNotFoundError, match="credit: not found"):
        load_dataset("credit", "local")
    (caches / "credit").mkdir()
    uci_table().to_csv(caches / "credit/uci_credit_card.csv", index=False)
    local = load_dataset("credit", "local")
    pd.testing.assert_frame_equal(local.X, credit.X)
    assert local.source == "local"


@pytest.mark.slow
def test_no_dataset_needs_torch(tmp_path):
    code = "import sys; from cfhelpers.datasets import acs, credit, pokec, load_dataset;"
    code += "from cfhelpers.datasets import populations, simulated, truth;"
    code += "[load_dataset(name, n=500) for name in ('acs_income', 'pokec_z')];"
    code += "load_dataset('credit');"
    code += "print([m for m in sys.modules if m.split('.')[0] == 'torch'])"
    environment = os.environ | {"CFHELPERS_HOME": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
    )
    assert run.stdout.strip() == "[]", run.stderr


@pytest.mark.parametrize("name", NAMES)
def test_the_data_card_names_groups_classes_and_harms(root, caches, name):
    card = flat((root / f"docs/data/{name}.md").read_text())
    data = load_dataset(name) if name == "credit" else load_dataset(name, n=5_000)
    codes = {
        "acs": [*RACES, "men", "women"],
        "pokec": ["region 0", "region 1", "men", "women"],
    }
    named = [
        *data.label_names[:: data.n_classes - 1],
        *codes.get(name.split("_")[0], data.group_names),
    ]
    assert [text for text in named if f"`{text}`" not in card] == []
    assert all(
        f"**{part}" in card
        for part in (
            "What",
            "Where",
            "Features",
            "Classes",
            "Sensitive",
            "Known harms",
            "Cite",
        )
    )


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"name": "adult"}, "name: found 'adult'"),
        ({"name": "credit", "source": "web"}, "source: found 'web'"),
        ({"name": "credit", "attribute": "race"}, "attribute: found 'race'"),
        ({"name": "credit", "attribute": ()}, r"attribute: found \(\)"),
        ({"name": "credit", "graph": "all"}, "graph: found 'all'"),
    ],
)
def test_unknown_names_are_refused(arguments, named):
    with pytest.raises(ValueError, match=named):
        load_dataset(**arguments)


def test_a_source_is_its_plain_text_wherever_it_is_written(credit, tmp_path):
    assert credit.source is Source.BUNDLED and credit.source == "bundled"
    assert f"{credit.source} {credit.source!r}" == "bundled 'bundled'"
    assert json.dumps({"source": credit.source}) == '{"source": "bundled"}'
    table = pd.DataFrame({"n": [1, 2]}).assign(source=credit.source)
    plain = pd.DataFrame({"n": [1, 2]}).assign(source="bundled")
    assert table.to_csv() == plain.to_csv() and str(table) == str(plain)
    table.to_parquet(tmp_path / "rows.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "rows.parquet"), plain)


def test_the_folder_of_a_draw_changes_with_the_code_that_draws(caches, monkeypatch):
    module = "cfhelpers.datasets.simulated"
    reached = reached_modules(module)
    assert {module, "cfhelpers.datasets._formats"} <= set(reached)
    assert not {"cfhelpers.datasets.acs", "cfhelpers.datasets.pokec"} & set(reached)
    before = simulated.acs_files(100, 0)["CO"]
    monkeypatch.setattr(simulated, "source_digest", lambda name: "another code")
    assert before != simulated.acs_files(100, 0)["CO"]


SPLITS = {
    "split": "39cf0db3b3604339",
    "resplit": "d2f375811bb9b8c4",
    "tune_halves": "6be6580df747f629",
}


def test_splits_are_those_that_stored_rows_were_made_from(credit):
    parts = split(credit, 0)
    again = resplit(credit, parts, 1)
    drawn = {
        "split": parts,
        "resplit": again,
        "tune_halves": tune_halves(credit, again, 1),
    }
    for name, names in drawn.items():
        digest = hashlib.sha256("".join(names).encode()).hexdigest()
        assert digest[:16] == SPLITS[name], name


def test_split_gives_every_cell_its_shares(credit):
    table = pd.crosstab([credit.groups, credit.y], split(credit, 0))
    want = table.sum(axis=1).to_numpy()[:, None] * np.array([0.30, 0.20, 0.25, 0.25])
    assert (np.abs(table[["train", "valid", "calibration", "test"]] - want) < 1).all(
        axis=None
    )


def test_split_depends_on_the_seed_alone(credit):
    assert (split(credit, 3) == split(credit, 3)).all()
    assert (split(credit, 3) != split(credit, 4)).mean() > 0.5


def test_resplit_moves_only_calibration_and_test(credit):
    parts = split(credit, 0)
    again = resplit(credit, parts, 1)
    moved = parts != again
    assert set(parts[moved]) == {"calibration", "test"}
    assert 0.4 < moved.sum() / np.isin(parts, ["calibration", "test"]).sum() < 0.6
    halves = tune_halves(credit, again, 1)
    parts = again
    assert set(parts[halves == "tune"]) == {"calibration"}
    assert (halves == "tune").sum() == pytest.approx(
        (parts == "calibration").sum() / 2, abs=8
    )


def test_unlabelled_rows_stay_unlabelled():
    data = make_dataset(["a"] * 40, [0, 1, -1, -1] * 10)
    assert ((split(data, 0) == "unlabelled") == (data.y < 0)).all()


def test_random_numbers_from_the_seed_of_a_split_do_not_tell_the_parts(credit):
    u = np.random.default_rng(0).random(len(credit))
    means = pd.Series(u).groupby(split(credit, 0)).mean()
    assert (means - 0.5).abs().max() < 0.02  # five standard errors


def test_small_cells_are_named_and_still_split():
    data = make_dataset(["big"] * 40 + ["tiny"] * 3, [0, 1] * 20 + [1] * 3)
    with pytest.warns(UserWarning, match=r"tiny / yes \(3\)"):
        parts = split(data, 0)
    assert set(parts) == {"train", "valid", "calibration", "test"}


def test_a_row_of_a_small_cell_reaches_every_part_at_the_right_rate():
    data = make_dataset(["big"] * 40 + ["one"], [0, 1] * 20 + [1])
    with pytest.warns(UserWarning):
        shares = pd.Series([split(data, seed)[-1] for seed in range(1_000)]).value_counts(
            normalize=True
        )
    assert shares.to_dict() == pytest.approx(
        {"train": 0.3, "valid": 0.2, "calibration": 0.25, "test": 0.25}, abs=0.05
    )


def test_cached_probabilities_are_those_of_a_sound_model(credit):
    probs, parts = credit_probabilities()
    assert probs.shape == (30_000, 4) and probs.dtype == np.float32
    assert probs.min() > 0
    np.testing.assert_allclose(probs.sum(axis=1), 1, atol=1e-6)
    test = parts == "test"
    assert (probs[test].argmax(axis=1) == credit.y[test]).mean() >= 0.51


def test_cached_probabilities_come_from_the_code():
    assert np.abs(fit_probabilities() - credit_probabilities()[0]).mean() < 0.005


def test_population_has_the_stated_shares_and_logits():
    population = nine_groups()
    probs, y, groups = population.draw(400_000, np.random.default_rng(5))
    assert probs.dtype == np.float32 and probs.shape == (400_000, 4)
    np.testing.assert_allclose(probs.sum(axis=1), 1, atol=1e-6)
    shares = pd.Series(groups).value_counts(normalize=True).sort_index()
    np.testing.assert_allclose(
        shares, [0.78, 0.10, 0.06, 0.03, 0.015, 0.005, 0.004, 0.003, 0.003], atol=0.003
    )
    offsets = np.random.default_rng(0).normal(0, 0.6, (9, 4))
    contrast = np.log(probs[groups == "A", 0]) - np.log(probs[groups == "A", 1])
    assert contrast.mean() == pytest.approx(
        0.9 * (offsets[0, 0] - offsets[0, 1]), abs=0.02
    )
    assert contrast.std() == pytest.approx(
        np.sqrt(2 * (0.9**2 * 1.2**2 + 0.2**2)), abs=0.02
    )
    # labels follow the softmax of the logits: an independent draw by the Gumbel trick
    rng = np.random.default_rng(6)
    logits = rng.normal(offsets[0], 1.2, (400_000, 4))
    gumbel = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    np.testing.assert_allclose(
        np.bincount(y[groups == "A"]) / (groups == "A").sum(),
        np.bincount(gumbel) / 400_000,
        atol=0.005,
    )


def direct_values(sets, y, groups, metric, names):
    """The definition of each metric, cell by cell."""
    values = np.full((len(names), sets.shape[1]), np.nan)
    for a, name in enumerate(names):
        for k in range(sets.shape[1]):
            inside, member, prior = (
                groups == name,
                sets[:, k],
                (y[groups == name] == k).mean(),
            )
            match metric:
                case "demographic_parity" | "disparate_impact":
                    values[a, k] = member[inside].mean()
                case "equal_opportunity":
                    values[a, k] = member[inside & (y == k)].mean()
                case "predictive_equality":
                    values[a, k] = member[inside & (y != k)].mean()
                case "predictive_parity":
                    values[a, k] = (y[inside & member] == k).mean()
                case "predictive_parity_proxy":
                    values[a, k] = (y[inside & member] == k).mean() - prior
                case "overall_accuracy_equality":
                    values[a, k] = sets[inside, y[inside]].mean()
    return values


METRICS = [
    "demographic_parity",
    "equal_opportunity",
    "predictive_equality",
    "disparate_impact",
    "predictive_parity",
    "predictive_parity_proxy",
    "overall_accuracy_equality",
]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("threshold", [0.7, (0.6, 0.8, 0.75)])
def test_truth_is_the_definition_on_its_own_sample(metric, threshold):
    population = two_groups()
    probs, y, groups = population.draw(20_000, np.random.default_rng(1))
    truth = Truth.of(
        1 - probs, y, np.searchsorted(population.names, groups), population.names
    )
    want = direct_values(
        (1 - probs).astype(float) <= np.array(threshold),
        y,
        groups,
        metric,
        population.names,
    )
    np.testing.assert_allclose(truth.group_coverages(threshold, metric), want, atol=1e-12)
    high, low = want[:, 1:].max(axis=0), want[:, 1:].min(axis=0)
    disparity = (low / high).min() if metric == "disparate_impact" else (high - low).max()
    assert truth.disparity(threshold, metric) == pytest.approx(disparity)


def test_truth_compares_in_float64():
    scores = np.array([[0.1], [0.3]], dtype=np.float32)
    truth = Truth.of(scores, [0, 0], [0, 0], ["a"])
    assert float(scores[0, 0]) > 0.1
    assert truth.coverage(0.1)[0, 0, 0] == 0
    assert truth.coverage(float(scores[0, 0]))[0, 0, 0] == 0.5
    assert truth.coverage(np.inf)[0, 0, 0] == 1


def test_truth_agrees_with_a_fresh_draw():
    population = nine_groups()
    truth = population.truth(lambda p: 1 - p, n=900_000)
    probs, y, groups = population.draw(300_000, np.random.default_rng(8))
    want = direct_values(
        1 - probs <= 0.75, y, groups, "equal_opportunity", population.names[:3]
    )
    np.testing.assert_allclose(
        truth.group_coverages(0.75, "equal_opportunity")[:3], want, atol=0.02
    )
    odds = max(
        truth.disparity(0.75, m) for m in ("equal_opportunity", "predictive_equality")
    )
    assert truth.disparity(0.75, "equalized_odds") == odds
    with pytest.raises(ValueError, match="metric_name: found 'fairness'"):
        truth.disparity(0.75, "fairness")


@pytest.mark.parametrize("metric", FAIRNESS_METRICS)
@pytest.mark.parametrize("threshold", [0.7, (0.6, 0.8, 0.75)])
def test_truth_is_the_disparity_of_the_sets_of_its_own_sample(metric, threshold):
    population = two_groups()
    probs, y, names = population.draw(5_000, np.random.default_rng(1))
    scores = 1 - probs
    groups = as_groups(names, len(y))
    truth = Truth.of(scores, y, groups.codes, groups.names)
    counts = truth.counts_at(threshold)
    want = CellCounts.from_scores(scores, threshold, y, groups)
    np.testing.assert_array_equal(counts.covered, want.covered)
    np.testing.assert_array_equal(counts.sizes, want.sizes)
    sets = prediction_sets(scores, threshold)
    for labels in (None, [0, 2]):
        found = truth.disparity(threshold, metric, labels)
        assert found == disparity(sets, y, names, metric, labels)


def test_truth_of_equalized_odds_has_no_single_coverage():
    truth = two_groups().truth(lambda p: 1 - p, n=1_000)
    with pytest.raises(ValueError, match="metric_name: found 'equalized_odds', which"):
        truth.group_coverages(0.7, "equalized_odds")

"""Runs with the release's bugs: what is measured, on which rounds, and what is kept."""

from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from toy import toy

from cfhelpers import paths
from cfhelpers.datasets import split
from cfhelpers.study import (
    authors,
    batch_gcp,
    errata,
    errata_runs,
    experiments,
    models,
)
from cfhelpers.study.errata import Errata, score_split_as_released
from cfhelpers.study.models import BaseModel
from cfhelpers.study.scoring import score_split

LOOPS = Errata(self_loops=True)
KEYS = ["metric", "c", "classwise"]


@pytest.fixture(scope="module")
def data():
    return toy(600, unlabelled=0.1)


@pytest.fixture(scope="module")
def base(data):
    """What a model that knows the first feature would say."""
    distance = (data.X["a"].to_numpy()[:, None] - np.arange(data.n_classes)) ** 2
    weights = np.exp(-distance / 2)
    probs = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    parts = split(data, 0)
    return BaseModel("made up", {}, 0, probs, parts, {}, 0.0, pd.DataFrame())


@pytest.fixture
def folder(tmp_path):
    """What is cached and stored goes elsewhere."""
    with (
        patch.object(paths, "ARTIFACTS", tmp_path / "artifacts"),
        patch.object(paths, "RESULTS", tmp_path / "results"),
    ):
        yield tmp_path


# Names


def test_names_stand_for_switches():
    assert errata_runs.switches("none") == Errata()
    assert errata_runs.switches("early_gcp") == Errata(early_gcp=True)
    together = errata_runs.switches("together")
    assert together.names == list(errata_runs.DAPS_BUGS)
    tuning = errata_runs.switches("release_tuning")
    assert set(together.names) - set(tuning.names) == {"quantile"}


def test_an_unknown_name_is_told():
    with pytest.raises(ValueError, match="name: found 'loops'; wanted one of 'none'"):
        errata_runs.switches("loops")


def test_every_bug_but_those_that_cannot_touch_credit_is_run():
    names = {name for name, _ in errata_runs.bugs_and_scores()}
    assert names == {*errata_runs.DAPS_BUGS, *errata_runs.CFGNN_SWITCHES, "together"}


# Rounds


@pytest.mark.parametrize("score, errata", [("aps", LOOPS), ("daps", Errata())])
def test_scores_that_know_no_loops_are_measured_at_once(score, errata):
    ((place, asked),) = errata_runs.rounds(score, errata).items()
    assert place == 0 and list(asked) == list(experiments.GRID_METRICS)
    assert asked["disparate_impact"] == [0.8]
    assert asked["equalized_odds"] == list(experiments.CLOSENESS)


def test_with_loops_every_number_is_measured_once_after_the_rounds_before_it():
    found = errata_runs.rounds("daps", LOOPS)
    assert list(found) == [0, 1, 2, 3, 4]
    assert found[0]["disparate_impact"] == [0.8]
    assert [found[at]["demographic_parity"] for at in range(4)] == [
        [0.05],
        [0.1],
        [0.15],
        [0.2],
    ]
    proxy = [found[at].get(errata_runs.PROXY) for at in range(5)]
    assert proxy == [None, [0.05], [0.1], [0.15], [0.2]]
    n_numbers = sum(len(cs) for asked in found.values() for cs in asked.values())
    assert n_numbers == 5 * 4 + 1


def test_the_rounds_are_those_that_the_authors_base_efficiencies_show():
    stored = authors.runs().query("dataset == 'credit' and score == 'daps'")
    by_number = stored.groupby(["metric", "c"])["base_efficiency"].agg(["min", "max"])
    assert (by_number["min"] == by_number["max"]).all()
    by_round = []
    for asked in errata_runs.rounds("daps", LOOPS).values():
        sizes = {
            by_number.loc[(metric, c), "min"]
            for metric, values in asked.items()
            for c in values
            if metric != "disparate_impact"
        }
        by_round.append(sizes)
    assert [len(sizes) for sizes in by_round] == [1] * 5
    assert len(set.union(*by_round)) == 5
    printed = authors.reported_values().query(
        "table == 'tab:credit_di_all' and score == 'daps' and arm == 'base'"
    )
    efficiency = printed[printed["quantity"] == "efficiency"]["value"]
    assert efficiency.unique().tolist() == [round(min(by_round[0]), 3)]


def test_the_authors_re_splits_are_the_same_for_every_c():
    stored = authors.runs().query("dataset == 'credit' and score == 'tps'")
    assert stored["base_efficiency"].nunique() == 1


# Changes


def test_changes_are_counted_before_anything_is_measured(data, base):
    found = errata_runs.changes(data, base, "daps", "self_loops", 1)
    before = score_split(data, base.probs, base.parts, "daps", 1)
    after, quantile = score_split_as_released(
        data, base.probs, base.parts, "daps", 1, LOOPS
    )
    assert found["scores"] == len(data) * data.n_classes
    assert found["changed"] == np.count_nonzero(before.scores != after.scores) > 0
    assert found["quantile"] == quantile != found["quantile_before"]
    assert found["diffusion_before"] == before.chosen["diffusion"]
    assert found["diffusion"] == after.chosen["diffusion"]
    in_sets = after.scores[after.test] <= quantile
    in_sets_before = before.scores[before.test] <= found["quantile_before"]
    assert found["labels"] == (in_sets ^ in_sets_before).sum() > 0


def test_a_bug_that_cannot_touch_a_score_changes_nothing(data, base):
    found = errata_runs.changes(data, base, "aps", "composed_tuning")
    assert found["changed"] == 0 and found["quantile"] == found["quantile_before"]
    assert np.isnan(found["diffusion"]) and found["labels"] == 0


# A split


@pytest.mark.parametrize("score", ["aps", "daps"])
def test_without_bugs_a_split_has_what_experiments_report(data, base, score):
    rows = errata_runs.run_split(data, base, score, 1, Errata())
    wanted = experiments.run_split(data, base, score, 1, guarantees=["none"])
    wanted = wanted.set_index(KEYS)
    assert not rows.duplicated([*KEYS, "arm", "quantity"]).any()
    assert len(rows) == 4 * len(wanted)
    for row in rows.to_dict("records"):
        prefix = "base_" if row["arm"] == "base" else ""
        own = wanted.loc[row["metric"], row["c"], row["classwise"]]
        assert row["value"] == pytest.approx(own[prefix + row["quantity"]], nan_ok=True)


def test_loops_accumulate_over_the_rounds(data, base):
    rows = errata_runs.run_split(data, base, "daps", 2, LOOPS)
    for c, resplits in ((0.05, 3), (0.15, 23)):
        scored, quantile = score_split_as_released(
            data, base.probs, base.parts, "daps", 2, LOOPS, resplits=resplits
        )
        own = rows.query("metric == 'equal_opportunity' and arm == 'base'")
        own = own[own["c"] == c]
        size = (scored.scores[scored.test] <= quantile).sum(axis=1).mean()
        sizes = own[own["quantity"] == "efficiency"]["value"]
        assert sizes.tolist() == pytest.approx([size, size])
        assert set(own["diffusion"]) == {scored.chosen["diffusion"]}


def test_a_higher_quantile_makes_larger_base_sets_at_the_same_scores(data, base):
    sizes = []
    for name in ("none", "quantile"):
        rows = errata_runs.run_split(data, base, "aps", 0, errata_runs.switches(name))
        own = rows.query("arm == 'base' and quantity == 'efficiency'")["value"]
        assert own.nunique() == 1
        sizes.append(own.iloc[0])
    assert sizes[0] < sizes[1]


# Runs


def test_a_run_has_each_score_without_bugs_once(data, base, folder):
    pairs = [("quantile", "aps"), ("quantile", "daps"), ("self_loops", "daps")]
    rows = errata_runs.run(data, base, pairs, 2, progress=False)
    found = rows.groupby(["erratum", "score"])["split"].agg(["nunique", "size"])
    assert set(found.index) == {("none", "aps"), ("none", "daps"), *pairs}
    assert (found["nunique"] == 2).all() and found["size"].nunique() == 1


def test_a_run_goes_on_where_it_was_stopped(data, base, folder):
    pairs = [("quantile", "tps")]
    first = errata_runs.run(data, base, pairs, 1, progress=False)
    calls = []
    run_split = errata_runs.run_split

    def counted(*arguments):
        calls.append(arguments[3])
        return run_split(*arguments)

    with patch.object(errata_runs, "run_split", counted):
        both = errata_runs.run(data, base, pairs, 2, progress=False)
    assert calls == [1, 1]  # the second re-split, without the bug and with it
    again = both[both["split"] == 0].reset_index(drop=True)
    pd.testing.assert_frame_equal(first, again)


def test_batch_gcp_is_measured_at_its_optimum_and_stopped_early(data, base):
    rows = errata_runs.run_gcp(data, base, 2)
    assert set(rows["erratum"]) == {"none", "early_gcp"}
    scored = score_split(data, base.probs, base.parts, "aps", 0)
    calibration = scored.calibration
    true_scores = scored.scores[calibration, data.y[calibration]]
    gcp = batch_gcp.fit(true_scores, data.groups[calibration])
    sets = gcp.sets(scored.scores[scored.test], data.groups[scored.test])
    own = rows.query("erratum == 'none' and split == 0 and scored_on == 'fixed label'")
    assert own["efficiency"].tolist() == [sets.sum(axis=1).mean()] * 2
    early = rows.query("erratum == 'early_gcp' and split == 0")
    assert (early["efficiency"] < own["efficiency"].iloc[0]).any()


# CFGNN


@pytest.fixture
def quick_cfgnn():
    """Networks that are trained in no time; gives the options of each training."""
    asked = []
    cfgnn = errata.cfgnn

    def few_epochs(*arguments, **options):
        asked.append(options)
        options["parameters"] = {"layers": 1}
        epochs = {"epochs": 12, "warm_up": 2, "patience": 12}
        if options.get("epochs") == 900:
            epochs["epochs"] = 24
        return cfgnn(*arguments, **options | epochs)

    with patch.object(errata, "cfgnn", few_epochs):
        yield asked


NAMES = ("last_epoch", "trained_once")


def test_switches_of_cfgnn_are_stored_as_means_over_re_splits(
    data, base, folder, quick_cfgnn
):
    found = errata_runs.run_cfgnn(data, base, NAMES, 2, progress=False)
    assert list(dict.fromkeys(found["erratum"])) == ["none", *NAMES]
    assert found.groupby("erratum", sort=False).size().unique().tolist() == [168]
    values = []
    last = errata_runs.switches("last_epoch")
    chosen = "arm == 'cf' and metric == 'disparate_impact' and classwise"
    for at in range(2):
        rows = errata_runs.run_split(data, base, "cfgnn", at, last)
        values.append(rows.query(chosen).set_index("quantity")["value"])
    own = found[found["erratum"] == "last_epoch"].query(chosen).set_index("quantity")
    wanted = pd.concat(values, axis=1)
    for quantity in errata_runs.QUANTITIES:
        mean = wanted.loc[quantity].mean()
        assert own.loc[quantity, "value"] == pytest.approx(mean, abs=1e-6)
        sd = wanted.loc[quantity].std()
        assert own.loc[quantity, "sd"] == pytest.approx(sd, abs=1e-6)
    share = found.groupby("erratum")["changed_scores"].first()
    assert np.isnan(share["none"])
    assert share["last_epoch"] > 0.5
    assert 0.3 < share["trained_once"] <= 0.5  # on re-split 0 it is the same network


def test_unchanged_is_the_share_of_re_splits_that_cf_leaves_alone(
    data, base, folder, quick_cfgnn
):
    found = errata_runs.run_cfgnn(data, base, ["trained_once"], 2, progress=False)
    own = found.query("erratum == 'none' and quantity == 'efficiency' and arm == 'cf'")
    share = own.set_index(["metric", "c", "classwise"])["unchanged"]
    counted = pd.Series(0.0, share.index)
    for at in range(2):
        rows = errata_runs.run_split(data, base, "cfgnn", at, Errata())
        rows = rows[rows["quantity"] == "efficiency"]
        wide = rows.pivot(index=KEYS, columns="arm", values="value")
        counted += (wide["cf"] == wide["base"]).reindex(share.index)
    np.testing.assert_allclose(share, counted / 2, atol=1e-6)
    assert share.nunique() > 1


def test_switches_that_are_stored_are_not_trained_again(data, base, folder, quick_cfgnn):
    first = errata_runs.run_cfgnn(data, base, ["last_epoch"], 1, progress=False)
    n_before = len(quick_cfgnn)
    assert n_before > 0
    paths.ARTIFACTS.rename(folder / "gone")
    again = errata_runs.run_cfgnn(data, base, ["last_epoch"], 1, progress=False)
    assert len(quick_cfgnn) == n_before
    pd.testing.assert_frame_equal(first, again, check_dtype=False)
    errata_runs.run_cfgnn(data, base, ["shortcut"], 1, progress=False)
    assert len(quick_cfgnn) > n_before
    stored = pd.read_csv(Path(folder) / "results" / errata_runs.CFGNN_FILE)
    assert list(dict.fromkeys(stored["erratum"])) == ["none", "last_epoch", "shortcut"]


def test_another_preset_is_another_row(data, base, folder, quick_cfgnn):
    errata_runs.run_cfgnn(data, base, ["last_epoch"], 1, progress=False)
    n_before = len(quick_cfgnn)
    preset = {"kind": "gcn", "layers": 1, "hidden_channels": 4}
    with patch.object(errata_runs.presets, "preset", lambda dataset, model: preset):
        errata_runs.run_cfgnn(data, base, ["last_epoch"], 1, progress=False)
    assert len(quick_cfgnn) > n_before
    stored = pd.read_csv(Path(folder) / "results" / errata_runs.CFGNN_FILE)
    assert not stored.duplicated(["erratum", *errata_runs.NUMBER]).any()


def test_block_degrees_are_compared_with_batches_and_nothing_else_with_them(
    data, base, folder
):
    assert errata_runs.baseline("block_degrees") == "batches"
    others = [name for name in errata_runs.CFGNN_SWITCHES if name != "block_degrees"]
    assert {errata_runs.baseline(name) for name in others} == {"none"}
    scored = []

    def as_released(dataset, probs, parts, score, split, switch, *rest, **options):
        scored.append(str(switch))
        own = score_split(dataset, probs, parts, "aps", split)
        return own, 0.5

    with patch.object(errata_runs, "score_split_as_released", as_released):
        pairs = [("block_degrees", "cfgnn")]
        rows = errata_runs.run(data, base, pairs, 1, progress=False)
        errata_runs.changes(data, base, "cfgnn", "block_degrees")
    assert scored == ["batches", "block_degrees"] * 2
    assert set(rows["erratum"]) == {"batches", "block_degrees"}


# Training splits


@pytest.fixture
def fitted(data, base):
    """Models that need no training, one per seed; gives the seeds that were asked for."""
    asked = []

    def base_model(dataset, parts, model, *, seed, progress):
        asked.append(seed)
        rng = np.random.default_rng(seed)
        probs = base.probs + rng.random((len(dataset), 1)).astype(np.float32) / 10
        probs /= probs.sum(axis=1, keepdims=True)
        return BaseModel(model, {}, seed, probs, parts, {}, 0.0, pd.DataFrame())

    with (
        patch.object(models, "base_model", base_model),
        patch.object(errata_runs.presets, "preset", lambda dataset, model: {}),
    ):
        yield asked


def test_training_splits_that_are_stored_are_read(data, folder, fitted):
    two = errata_runs.run_training_splits(data, 2, 1, progress=False)
    assert fitted == [0, 1]
    three = errata_runs.run_training_splits(data, 3, 1, progress=False)
    assert fitted == [0, 1, 2]
    pd.testing.assert_frame_equal(two, three[three["training_split"] < 2])
    stored = pd.read_csv(Path(folder) / "results" / errata_runs.TRAINING_FILE)
    assert sorted(set(stored["training_split"])) == [0, 1, 2]
    assert len(stored) == len(three)


def test_rows_of_other_settings_are_not_mistaken_for_these(data, folder, fitted):
    errata_runs.run_training_splits(data, 1, 1, progress=False)
    longer = errata_runs.run_training_splits(data, 1, 2, progress=False)
    assert fitted == [0, 0]
    assert (longer["splits"] == 2).all()
    stored = pd.read_csv(Path(folder) / "results" / errata_runs.TRAINING_FILE)
    assert (stored["splits"] == 2).all() and len(stored) == len(longer)


def test_a_training_split_has_means_over_re_splits(data, folder, fitted):
    found = errata_runs.run_training_splits(data, 1, 2, progress=False)
    number = ["tuning", *errata_runs.NUMBER]
    assert not found.duplicated(number).any()
    # 17 pairs of metric and c, two quantities: base once, CF with both kinds of λ.
    assert found.groupby("tuning").size().to_dict() == {
        name: 17 * 2 * 3 for name in errata_runs.TUNINGS
    }
    own = models.base_model(data, split(data, 0), "xgboost", seed=0, progress=False)
    values = []
    for at in range(2):
        rows = errata_runs.run_split(data, own, "daps", at, Errata())
        chosen = rows.query(
            "arm == 'cf' and metric == 'disparate_impact' and classwise "
            "and quantity == 'efficiency'"
        )
        values.append(chosen["value"].item())
    row = found.query(
        "tuning == 'none' and arm == 'cf' and metric == 'disparate_impact' "
        "and classwise and quantity == 'efficiency'"
    )
    assert row["value"].item() == pytest.approx(np.mean(values), abs=1e-6)

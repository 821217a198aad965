"""The release's bugs: each changes what it should, by hand, and none changes nothing."""

import math
from itertools import islice
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from toy import EDGES, NODES, neighbours, toy

from cfhelpers import paths
from cfhelpers.conformal import conformal_quantile
from cfhelpers.datasets import resplit, split, tune_halves
from cfhelpers.graph_scores import daps, held_out_size, neighbour_mean
from cfhelpers.scores import aps
from cfhelpers.study import (
    batch_gcp,
    cfgnn_settings,
    errata,
    experiments,
    presets,
    spaces,
)
from cfhelpers.study.errata import (
    Errata,
    alone,
    cfgnn_options,
    composed_candidates,
    fit_gcp,
    fit_stopped_early,
    gradient_steps,
    quantile_one_rank_up,
    rows_of,
    score_split_as_released,
    scores_of_labels,
    size_by_index,
    tune_daps_as_released,
    tuning_size,
    unlabelled_at_minus_one,
    with_loops,
)
from cfhelpers.study.scoring import score_split

NAMES = [str(one) for one in alone()]
DAPS_SWITCHES = [
    "self_loops",
    "composed_tuning",
    "halves_by_index",
    "unlabelled_at_minus_one",
]
CFGNN_SWITCHES = [
    "shortcut",
    "last_epoch",
    "longer_training",
    "shorter_training",
    "trained_once",
    "batches",
    "block_degrees",
]
SMALL = {"kind": "gcn", "layers": 1, "lr": 0.02, "dropout": 0.3}


@pytest.fixture(scope="module")
def data():
    return toy(600, unlabelled=0.1)


@pytest.fixture(scope="module")
def parts(data):
    return split(data, 0)


@pytest.fixture(scope="module")
def probs(data):
    """What a model that knows the first feature would say."""
    distance = (data.X["a"].to_numpy()[:, None] - np.arange(data.n_classes)) ** 2
    weights = np.exp(-distance / 2)
    return (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)


# The switches


def test_all_switches_are_off_unless_one_asks_for_them():
    assert Errata().names == []
    assert str(Errata()) == "none"


def test_each_erratum_comes_alone():
    assert [one.names for one in alone()] == [[name] for name in NAMES]
    assert len(set(NAMES)) == 13


# The quantile


def test_the_quantile_is_one_order_statistic_too_high():
    scores = np.arange(1, 21) / 20
    assert conformal_quantile(scores, 0.1) == 0.95  # the 19th of 20
    assert quantile_one_rank_up(scores, 0.1) == 1.0
    assert quantile_one_rank_up(scores[::-1], 0.5) == 0.6  # the 12th, not the 11th


def test_the_quantile_is_never_infinite():
    assert conformal_quantile([0.1, 0.7], 0.1) == math.inf
    assert quantile_one_rank_up([0.1, 0.7], 0.1) == 0.7
    assert quantile_one_rank_up([0.1, 0.7, 0.2], 0.25) == 0.7  # the last has none above


@pytest.mark.parametrize("alpha", [0.1, 0.25, 0.5])
def test_the_quantile_is_that_of_the_level_k_by_n_or_higher(alpha):
    rng = np.random.default_rng(0)
    for n in range(1, 60):
        scores = rng.random(n)
        level = min(1, math.ceil((n + 1) * (1 - alpha) - 1e-9) / n)
        wanted = np.quantile(scores, level, method="higher")
        assert quantile_one_rank_up(scores, alpha) == wanted


def test_tied_scores_count_as_often_as_they_occur():
    assert quantile_one_rank_up([0.1, 0.3, 0.3, 0.9], 0.5) == 0.9
    assert quantile_one_rank_up([0.1, 0.2, 0.2, 0.2, 0.9], 0.5) == 0.2


# Self-loops


@pytest.mark.parametrize("loops", [1, 2, 7])
def test_a_node_is_among_its_own_neighbours_as_often_as_there_are_loops(loops):
    scores = np.random.default_rng(0).random((NODES, 2))
    means = with_loops(neighbour_mean(EDGES, NODES), loops) @ scores
    for node, near in enumerate(neighbours(EDGES, NODES)):
        members = [*near, *[node] * loops]
        np.testing.assert_allclose(means[node], scores[members].mean(axis=0))


def test_loops_draw_the_mean_towards_the_node_itself():
    edges = [[0], [1]]
    scores = np.array([[1.0], [0.0]])
    assert (neighbour_mean(edges, 2) @ scores).ravel().tolist() == [0, 1]
    once = with_loops(neighbour_mean(edges, 2), 1) @ scores
    assert once.ravel().tolist() == [0.5, 0.5]
    thrice = with_loops(neighbour_mean(edges, 2), 3) @ scores
    assert thrice.ravel().tolist() == [0.75, 0.25]


def test_no_loops_are_told():
    with pytest.raises(ValueError, match="loops: found 0; wanted an integer from 1"):
        with_loops(neighbour_mean([[0], [1]], 2), 0)


@pytest.mark.parametrize("seed", [0, 4])
def test_loops_are_added_at_loading_and_with_every_re_split(data, probs, parts, seed):
    switch = Errata(self_loops=True)
    scored, _ = score_split_as_released(data, probs, parts, "daps", seed, switch)
    plain = score_split(data, probs, parts, "aps", seed).scores
    averaging = neighbour_mean(data.edge_index, len(data))
    means = with_loops(averaging, seed + 2) @ plain
    diffusion = scored.chosen["diffusion"]
    wanted = (1 - diffusion) * plain + diffusion * means
    np.testing.assert_allclose(scored.scores, wanted)


def test_the_number_of_re_splits_may_be_told(data, probs, parts):
    def scores(**options):
        switch = Errata(self_loops=True)
        return score_split_as_released(data, probs, parts, "daps", 0, switch, **options)[
            0
        ].scores

    assert np.array_equal(scores(resplits=1), scores())
    assert not np.array_equal(scores(resplits=11), scores())


# Composed tuning


def test_each_candidate_diffuses_what_the_one_before_has_left():
    scores = np.random.default_rng(1).random((NODES, 3))
    tried = dict(composed_candidates(scores, neighbour_mean(EDGES, NODES), [0.2, 0.7]))
    once = daps(scores, EDGES, 0.2)
    np.testing.assert_allclose(tried[0.2], once)
    np.testing.assert_allclose(tried[0.7], daps(once, EDGES, 0.7))


def test_the_chosen_diffusion_is_applied_once_to_the_scores_as_they_were():
    rng = np.random.default_rng(2)
    scores = rng.random((NODES, 3))
    values, chosen = tune_daps_as_released(
        scores,
        rng.integers(0, 3, NODES),
        neighbour_mean(EDGES, NODES),
        np.arange(NODES),
        Errata(composed_tuning=True),
        alpha=0.5,
    )
    np.testing.assert_allclose(values, daps(scores, EDGES, **chosen))


def test_composed_tuning_judges_a_candidate_by_the_ones_before_it():
    # Two pairs; the mean of a pair is .5 for the true label 0 and 0 for label 1.
    scores = np.array([[1.0, 0.0], [0.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    averaging = neighbour_mean([[0, 2], [1, 3]], 4)
    y = np.zeros(4, int)
    found = {}
    for switch in (Errata(), Errata(composed_tuning=True)):
        _, chosen = tune_daps_as_released(
            scores, y, averaging, np.arange(4), switch, 0.5, diffusions=[0.5, 0.9]
        )
        found[str(switch)] = chosen["diffusion"]
    # At .5 both of a pair have .5: sets of 2. At .9 they have .1 and .9, and each half's
    # threshold is the other's score: sets of 1.5. Composed, .9 swaps equals: 2 again.
    assert found == {"none": 0.9, "composed_tuning": 0.5}


# Halves


def test_the_first_half_of_the_rows_gives_the_threshold_for_the_second():
    scores = np.array([[0.3, 0.9], [0.2, 0.9], [0.3, 0.2], [0.1, 0.9], [0.4, 0.5]])
    y = np.zeros(5, int)
    # Of three rows the second smallest, .3: sets of 1 and 0.
    assert size_by_index(scores, y, alpha=0.5) == 0.5
    # One rank up is the same here: .3 twice.
    assert size_by_index(scores, y, 0.5, is_one_rank_up=True) == 0.5
    # Even rows have the threshold .2, odd rows .3: 0, 1 and 0 labels, then 1 and 1.
    assert held_out_size(scores, y, alpha=0.5) == 0.6


def test_tuning_looks_at_the_halves_and_the_quantile_that_it_is_told():
    rng = np.random.default_rng(3)
    scores = rng.random((41, 3))
    y = rng.integers(0, 3, 41)
    assert tuning_size(scores, y, 0.2, Errata()) == held_out_size(scores, y, 0.2)
    by_index = tuning_size(scores, y, 0.2, Errata(halves_by_index=True))
    threshold = conformal_quantile(scores[np.arange(21), y[:21]], 0.2)
    assert by_index == (scores[21:] <= threshold).sum() / 20
    both = tuning_size(scores, y, 0.2, Errata(halves_by_index=True, quantile=True))
    threshold = quantile_one_rank_up(scores[np.arange(21), y[:21]], 0.2)
    assert both == (scores[21:] <= threshold).sum() / 20
    up = tuning_size(scores, y, 0.2, Errata(quantile=True))
    even = np.arange(0, 41, 2)
    odd = np.arange(1, 41, 2)
    sizes = (scores[even] <= quantile_one_rank_up(scores[odd, y[odd]], 0.2)).sum()
    sizes += (scores[odd] <= quantile_one_rank_up(scores[even, y[even]], 0.2)).sum()
    assert up == sizes / 41


# Unlabelled rows


def test_unlabelled_rows_have_the_aps_of_probabilities_of_minus_one():
    scores = np.full((3, 3), 0.5)
    u = np.array([0.5, 0.25, 1.0])
    changed = unlabelled_at_minus_one(scores, np.array([2, -1, -1]), u)
    # -1, -2 and -3 are the sums of one, two and three probabilities; u·(-1) is taken off.
    wanted = [[0.5, 0.5, 0.5], [-0.75, -1.75, -2.75], [0.0, -1.0, -2.0]]
    assert changed.tolist() == wanted
    assert (scores == 0.5).all()


def test_they_pull_down_the_scores_of_labelled_neighbours():
    scores = np.full((3, 2), 0.5)
    changed = unlabelled_at_minus_one(scores, np.array([0, -1, 1]), np.full(3, 0.5))
    mixed = daps(changed, [[0], [1]], 0.5)
    assert mixed[0].tolist() == [0, -0.5]  # half of .5, half of -.5 or -1.5
    assert mixed[2].tolist() == [0.5, 0.5]  # no neighbours


# BatchGCP


def test_a_step_moves_a_threshold_by_its_groups_share_of_the_points():
    scores = np.full(100, 0.9)
    groups = np.repeat(["few", "many"], [10, 90])
    gcp = fit_stopped_early(scores, groups, steps=1)
    # The learning rate .05, .9 as long as nobody is covered, and the momentum's half.
    assert gcp.thresholds["few"] == pytest.approx(0.05 * 0.9 * 1.5 * 0.1)
    assert gcp.thresholds["many"] == pytest.approx(0.05 * 0.9 * 1.5 * 0.9)
    assert fit_stopped_early(scores, groups, steps=0).thresholds["few"] == 0


def test_the_second_step_has_half_of_the_first_in_it():
    gcp = fit_stopped_early(np.full(10, 0.9), ["all"] * 10, steps=2)
    first = 0.045 * (1 + 0.5)
    second = 0.045 * (1 + 0.5 * (1 + 0.5))
    assert gcp.thresholds["all"] == pytest.approx(first + second)


def test_few_steps_leave_a_small_group_undercovered_and_many_do_not():
    rng = np.random.default_rng(4)
    groups = np.repeat(["few", "many"], [200, 9_800])
    scores = rng.random(10_000)
    exact = batch_gcp.fit(scores, groups)
    for steps, lowest, highest in ((150, 0.0, 0.5), (20_000, 0.88, 0.92)):
        early = fit_stopped_early(scores, groups, steps=steps)
        own = (scores <= early.threshold(groups))[groups == "few"]
        assert lowest <= own.mean() <= highest
        others = (scores <= early.threshold(groups))[groups == "many"]
        assert others.mean() == pytest.approx(0.9, abs=0.02)
    for name in ("few", "many"):
        assert early.thresholds[name] == pytest.approx(exact.thresholds[name], abs=0.02)
    assert early.base_threshold == exact.base_threshold


def test_the_solver_stops_when_fifty_epochs_have_brought_little():
    rng = np.random.default_rng(7)
    scores = rng.random(3_000)  # of which 2,400 make two batches, so two steps an epoch
    codes = (np.arange(3_000) < 300).astype(int)
    walk = list(islice(gradient_steps(scores, codes, 0.1), 0, 600, 2))
    losses = []
    for thresholds in walk[1:]:
        above = scores - thresholds[codes]
        losses.append(np.where(above > 0, 0.9 * above, -0.1 * above).mean())
    is_better = [loss < min(losses[:e]) - 0.001 for e, loss in enumerate(losses) if e]
    # The rule looks at the last 50 epochs; the first is always an improvement.
    epoch = 51
    while any(is_better[epoch - 51 : epoch - 1]):
        epoch += 1
    assert epoch > 60
    gcp = fit_stopped_early(scores, codes)
    assert list(gcp.thresholds.values()) == walk[epoch].tolist()


def test_a_group_that_hardly_counts_in_the_loss_is_left_behind():
    # A hundred of a hundred thousand: a step is .05·.9·.001 to .1·.9·.001.
    groups = np.repeat(["few", "many"], [100, 99_900])
    scores = np.random.default_rng(6).random(100_000)
    gcp = fit_stopped_early(scores, groups)
    steps = 40 * np.array([51, 60])  # forty batches in an epoch, few epochs more than 50
    assert gcp.thresholds["many"] == pytest.approx(0.9, abs=0.01)
    slowest, fastest = steps * 0.1 * 0.9 * 0.001
    assert 0.8 * slowest < gcp.thresholds["few"] < fastest
    own = scores[groups == "few"]
    assert (own <= gcp.thresholds["few"]).mean() < 0.3
    assert (own <= batch_gcp.fit(scores, groups).thresholds["few"]).mean() > 0.9


def test_with_groups_of_about_the_sizes_of_acs_races_4_5_and_7_are_undercovered():
    thousands = [1293, 147, 12, 0.9, 3.5, 99, 3, 55, 51]
    sizes = (250 * np.array(thousands)).astype(int)  # a quarter of the rows calibrates
    races = np.repeat(np.arange(1, 10), sizes)
    scores = np.random.default_rng(8).beta(3, 1, len(races))  # the same law for all
    gcp = fit_stopped_early(scores, races)
    is_covered = scores <= gcp.threshold(races)
    coverage = {race: is_covered[races == race].mean() for race in range(1, 10)}
    assert [race for race in coverage if coverage[race] < 0.89] == [4, 5, 7]
    assert min(coverage, key=coverage.get) == 4


def test_steps_below_zero_are_told():
    with pytest.raises(ValueError, match="steps: found -1; wanted an integer from 0"):
        fit_stopped_early([0.1], ["a"], steps=-1)


# CFGNN


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory):
    """What is trained is kept for the tests of this file."""
    with patch.object(paths, "ARTIFACTS", tmp_path_factory.mktemp("artifacts")):
        yield


@pytest.fixture
def small():
    """The preset is a small network."""
    with patch.object(presets, "preset", lambda dataset, model: dict(SMALL)):
        yield


def score_cfgnn(data, probs, parts, seed=1, **names):
    switch = Errata(**names)
    return score_split_as_released(data, probs, parts, "cfgnn", seed, switch)


def test_without_switches_cfgnn_is_as_published(artifacts, small, data, probs, parts):
    scored, quantile = score_cfgnn(data, probs, parts)
    right = score_split(data, probs, parts, "cfgnn", 1, parameters=SMALL, progress=False)
    for name in ("scores", "calibration", "test"):
        assert np.array_equal(getattr(scored, name), getattr(right, name))
    assert scored.chosen == right.chosen
    assert quantile == experiments.calibrate(data, right).base


@pytest.mark.parametrize("name", CFGNN_SWITCHES)
def test_each_switch_of_cfgnn_alone_changes_its_scores(
    artifacts, small, data, probs, parts, name
):
    before, _ = score_cfgnn(data, probs, parts)
    scored, quantile = score_cfgnn(data, probs, parts, **{name: True})
    for rows in ("calibration", "test"):
        assert np.array_equal(getattr(scored, rows), getattr(before, rows))
    is_changed = np.abs(scored.scores - before.scores) > 1e-6
    assert is_changed.mean() > 0.5
    true_scores = scores_of_labels(scored, data)
    assert quantile == conformal_quantile(true_scores, 0.1)


def test_block_degrees_change_what_batches_alone_do_not(
    artifacts, small, data, probs, parts
):
    right, _ = score_cfgnn(data, probs, parts, batches=True)
    wrong, _ = score_cfgnn(data, probs, parts, block_degrees=True)
    assert (np.abs(right.scores - wrong.scores) > 1e-6).mean() > 0.5


def test_trained_once_re_split_0_is_as_ever_and_the_others_have_its_network(
    artifacts, small, data, probs, parts
):
    first, _ = score_cfgnn(data, probs, parts, seed=0)
    once, _ = score_cfgnn(data, probs, parts, seed=0, trained_once=True)
    assert np.array_equal(first.scores, once.scores)
    later, _ = score_cfgnn(data, probs, parts, seed=3, trained_once=True)
    assert later.chosen == first.chosen
    tune = rows_of(data, parts, 0, "tune")
    assert len(np.intersect1d(tune, later.test)) > 0.1 * len(tune)
    assert len(np.intersect1d(tune, first.test)) == 0


def test_the_parts_of_a_re_split_are_those_of_the_scores(data, parts):
    new = tune_halves(data, resplit(data, parts, 2), 2)
    for part in ("tune", "calibration", "test"):
        assert np.array_equal(rows_of(data, parts, 2, part), np.flatnonzero(new == part))
    with pytest.raises(ValueError, match="part: found 'train'; wanted one of 'tune'"):
        rows_of(data, parts, 2, "train")


def test_switches_become_options_of_cfgnn(small, data):
    assert cfgnn_options(data, Errata()) == {"parameters": SMALL}
    assert cfgnn_options(data, Errata(trained_once=True)) == {"parameters": SMALL}
    both = cfgnn_options(data, Errata(shortcut=True, last_epoch=True))
    assert both == {"parameters": SMALL, "variant": "shortcut", "keep": "last"}
    longer = cfgnn_options(data, Errata(longer_training=True))
    assert (longer["epochs"], longer["patience"]) == (900, 900)
    wrong = cfgnn_options(data, Errata(block_degrees=True))
    assert wrong == {"parameters": SMALL, "block_degrees": True}
    right = cfgnn_options(data, Errata(batches=True))
    assert right == {"parameters": SMALL, "block_degrees": False}


def settings_of(data):
    """Stored settings in which the smallest sets are not a small GCN's."""
    drawn = spaces.draw(spaces.space("cfgnn", data), 30)
    rows = pd.DataFrame(drawn).assign(setting=range(30), variant="published")
    is_small = (rows["kind"] == "gcn") & (rows["layers"] <= 2)
    rows["held_out_size"] = 1 + rows.index / 100 + 0.5 * is_small
    return drawn, rows, rows.index[is_small]


def test_batches_have_the_best_small_gcn_where_the_preset_is_another(data):
    drawn, rows, small_places = settings_of(data)
    rows.loc[small_places[1], "held_out_size"] = 1.3  # larger than the best of others
    tuned = {"kind": "gat", "layers": 1}
    with (
        patch.object(presets, "preset", lambda dataset, model: tuned),
        patch.object(cfgnn_settings, "load", lambda name: rows),
    ):
        found = cfgnn_options(data, Errata(batches=True))["parameters"]
        assert found == drawn[small_places[1]] and found["layers"] <= 2
        assert cfgnn_options(data, Errata())["parameters"] == tuned
    three_layers = {"kind": "gcn", "layers": 3}
    with (
        patch.object(presets, "preset", lambda dataset, model: three_layers),
        patch.object(cfgnn_settings, "load", lambda name: rows[:0]),
    ):
        assert cfgnn_options(data, Errata(batches=True))["parameters"] == {}
    assert errata.CFGNN["kind"] == "gcn" and errata.CFGNN["layers"] == 2


def test_cfgnn_without_a_graph_is_told(probs, parts):
    data = toy(600, unlabelled=0.1, edges=False)
    with pytest.raises(ValueError, match="score: found 'cfgnn' for toy without edges"):
        score_cfgnn(data, probs, parts)


# A split, with and without


@pytest.mark.parametrize("score", ["tps", "aps", "raps", "daps"])
@pytest.mark.parametrize("seed", range(3))
def test_without_errata_a_split_is_scored_bit_for_bit_as_ever(
    data, probs, parts, score, seed
):
    right = score_split(data, probs, parts, score, seed)
    scored, quantile = score_split_as_released(data, probs, parts, score, seed, Errata())
    assert scored.scores.dtype == right.scores.dtype
    for name in ("scores", "calibration", "test"):
        assert np.array_equal(getattr(scored, name), getattr(right, name))
    assert (scored.score, scored.chosen) == (right.score, right.chosen)
    assert quantile == experiments.calibrate(data, right).base


@pytest.mark.parametrize("alpha", [0.05, 0.3])
def test_the_level_reaches_the_tuning_and_the_quantile(data, probs, parts, alpha):
    right = score_split(data, probs, parts, "daps", 0, alpha=alpha)
    scored, quantile = score_split_as_released(
        data, probs, parts, "daps", 0, Errata(), alpha
    )
    assert np.array_equal(scored.scores, right.scores)
    assert quantile == experiments.calibrate(data, right, alpha).base


@pytest.mark.parametrize("score", ["tps", "aps", "daps"])
def test_the_quantile_of_a_split_is_one_rank_up(data, probs, parts, score):
    switch = Errata(quantile=True)
    scored, quantile = score_split_as_released(data, probs, parts, score, 1, switch)
    rows = scored.calibration
    ordered = np.sort(scored.scores[rows, data.y[rows]])
    place = np.flatnonzero(ordered == conformal_quantile(ordered, 0.1))[0]
    assert quantile == ordered[place + 1] > ordered[place]


@pytest.mark.parametrize("name", DAPS_SWITCHES)
def test_each_switch_of_daps_alone_changes_its_scores(data, probs, parts, name):
    changed = []
    for seed in range(6):
        right = score_split(data, probs, parts, "daps", seed)
        scored, _ = score_split_as_released(
            data, probs, parts, "daps", seed, Errata(**{name: True})
        )
        assert np.array_equal(scored.calibration, right.calibration)
        changed.append(not np.array_equal(scored.scores, right.scores))
    assert any(changed)
    if name in ("self_loops", "unlabelled_at_minus_one"):
        assert all(changed)  # whatever δ is chosen


@pytest.mark.parametrize("name", [*DAPS_SWITCHES, *CFGNN_SWITCHES, "early_gcp"])
def test_other_scores_know_none_of_them(data, probs, parts, name):
    right = score_split(data, probs, parts, "aps", 0)
    switch = Errata(**{name: True})
    scored, quantile = score_split_as_released(data, probs, parts, "aps", 0, switch)
    assert np.array_equal(scored.scores, right.scores)
    assert quantile == experiments.calibrate(data, right).base


def test_unlabelled_rows_change_nothing_where_there_are_none():
    data = toy(300)
    parts = split(data, 0)
    probs = np.random.default_rng(5).dirichlet(np.ones(3), 300)
    switch = Errata(unlabelled_at_minus_one=True)
    scored, _ = score_split_as_released(data, probs, parts, "daps", 0, switch)
    right = score_split(data, probs, parts, "daps", 0)
    assert np.array_equal(scored.scores, right.scores)


def test_the_u_of_unlabelled_rows_is_the_one_that_aps_draws(data, probs, parts):
    switch = Errata(unlabelled_at_minus_one=True)
    scored, _ = score_split_as_released(data, probs, parts, "daps", 2, switch)
    plain = score_split(data, probs, parts, "aps", 2).scores
    certain = np.zeros_like(probs)
    certain[:, 0] = 1
    u = 1 - score_split(data, certain, parts, "aps", 2).scores[:, 0]
    assert np.array_equal(aps(certain, u)[:, 0], 1 - u)
    wanted = daps(
        unlabelled_at_minus_one(plain, data.y, u), data.edge_index, **scored.chosen
    )
    np.testing.assert_allclose(scored.scores, wanted, atol=1e-6)


def test_the_graph_of_another_dataset_is_not_mistaken_for_this_one(data, probs, parts):
    other = toy(600, unlabelled=0.1, seed=1)
    for own in (data, other, data):
        scored, _ = score_split_as_released(own, probs, parts, "daps", 0, Errata())
        plain = score_split(own, probs, parts, "aps", 0).scores
        wanted = daps(plain, own.edge_index, **scored.chosen)
        np.testing.assert_allclose(scored.scores, wanted, atol=1e-6)


def test_daps_without_a_graph_is_told(probs, parts):
    data = toy(600, unlabelled=0.1, edges=False)
    with pytest.raises(ValueError, match="score: found 'daps' for toy without edges"):
        score_split_as_released(data, probs, parts, "daps", 0, Errata())


@pytest.mark.parametrize("name", ["", "early_gcp"])
def test_batch_gcp_is_fitted_to_the_calibration_rows(data, probs, parts, name):
    scored = score_split(data, probs, parts, "aps", 0)
    rows = scored.calibration
    true_scores = scored.scores[rows, data.y[rows]]
    assert np.array_equal(scores_of_labels(scored, data), true_scores)
    if name:
        found = fit_gcp(data, scored, Errata(early_gcp=True), 0.2)
        wanted = fit_stopped_early(true_scores, data.groups[rows], 0.2)
    else:
        found = fit_gcp(data, scored, Errata(), 0.2)
        wanted = batch_gcp.fit(true_scores, data.groups[rows], 0.2)
    assert found == wanted

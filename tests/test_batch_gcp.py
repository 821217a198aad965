"""BatchGCP: at the optimum, each group covered by its law, scored in both ways."""

import math
from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from toy import toy

from cfhelpers import control, fairness, paths
from cfhelpers.conformal import conformal_quantile, prediction_sets
from cfhelpers.datasets import split
from cfhelpers.datasets.populations import nine_groups
from cfhelpers.scores import tps
from cfhelpers.study import batch_gcp, experiments, figures, models
from cfhelpers.study.batch_gcp import MEASURES, fit
from cfhelpers.study.scoring import score_split


def pinball(scores, thresholds, alpha):
    return np.maximum(
        (1 - alpha) * (scores - thresholds), alpha * (thresholds - scores)
    ).sum()


def least_loss(scores, members, alpha):
    """The optimum by brute force: a λ through as many points as the memberships' rank."""
    base, rank = (
        conformal_quantile(scores, alpha),
        np.linalg.matrix_rank(members.astype(float)),
    )
    losses = []
    for points in map(list, combinations(range(len(scores)), rank)):
        if np.linalg.matrix_rank(members[points].astype(float)) == rank:
            corrections = np.linalg.lstsq(
                members[points].astype(float), scores[points] - base
            )[0]
            losses.append(pinball(scores, base + members @ corrections, alpha))
    return min(losses)


def overlapping(n, n_groups, rng):
    """Memberships with somebody in each group and somebody in two."""
    while True:
        members = rng.random((n, n_groups)) < rng.uniform(0.2, 0.8)
        if members.any(axis=0).all() and members.sum(axis=1).max() > 1:
            return members


@pytest.mark.parametrize("seed", range(40))
def test_overlapping_groups_reach_the_least_pinball_loss(seed):
    rng = np.random.default_rng(seed)
    members = overlapping(int(rng.integers(10, 14)), int(rng.integers(2, 5)), rng)
    alpha, scores = rng.choice([0.1, 0.2, 0.35]), rng.random(len(members))
    scores = np.round(scores, 1) if seed % 2 else scores  # with ties, and without
    found = pinball(scores, fit(scores, members, alpha).threshold(members), alpha)
    assert found == pytest.approx(least_loss(scores, members, alpha), abs=1e-9)


def test_the_base_threshold_stays_for_points_in_no_group_and_corrections_add_up():
    rng = np.random.default_rng(0)
    members = overlapping(500, 3, rng)
    gcp = fit(rng.random(500), members)
    base = gcp.base_threshold
    corrections = np.array([gcp.thresholds[group] - base for group in range(3)])
    assert (gcp.threshold(np.zeros((4, 3), bool)) == base).all()
    assert np.allclose(gcp.threshold(members), base + members @ corrections)
    assert np.ptp(corrections) > 0


def people(n, rng):
    """Overlapping groups of very different sizes, by traits that move the scores."""
    race, sex, age = (
        rng.choice(9, n, p=np.array([600, 120, 10, 1, 3, 60, 2, 80, 124]) / 1000),
        *rng.integers(0, 2, (2, n)),
    )
    members = np.concatenate(
        [np.eye(m, dtype=bool)[codes] for m, codes in ((9, race), (2, sex), (2, age))],
        axis=1,
    )
    return members, rng.beta(3 + race, 2 + 2 * sex + age)


@pytest.mark.slow
def test_a_hundred_thousand_points_in_overlapping_groups_are_solved_to_the_optimum():
    alpha, (members, scores) = 0.1, people(100_000, np.random.default_rng(1))
    threshold = fit(scores, members, alpha).threshold(members)
    for member in members.T:  # what the least loss asks of every group, however small
        assert (scores[member] > threshold[member]).sum() <= alpha * member.sum()
        assert (scores[member] < threshold[member] - 1e-9).sum() <= (
            1 - alpha
        ) * member.sum()


def test_scores_of_single_precision_are_solved_in_double_precision():
    members, scores = people(2_000, np.random.default_rng(8))
    single = scores.astype(np.float32)
    assert (
        fit(single, members).thresholds
        == fit(single.astype(np.float64), members).thresholds
    )


def test_disjoint_groups_get_their_own_conformal_quantile_exactly():
    rng = np.random.default_rng(2)
    for _ in range(50):
        groups, scores = (
            rng.choice(["few", "many", "most"], 200, p=[0.1, 0.3, 0.6]),
            rng.random(200) ** 3,
        )
        gcp = fit(scores, groups, 0.15)
        threshold = gcp.threshold(groups)
        for name in ("few", "many", "most"):
            own = scores[groups == name]
            assert gcp.thresholds[name] == conformal_quantile(own, 0.15)
            assert (threshold[groups == name] == conformal_quantile(own, 0.15)).all()


def test_names_and_booleans_say_the_same():
    rng = np.random.default_rng(3)
    groups, scores = rng.choice(["a", "b"], 300), rng.random(300)
    table = pd.DataFrame({"b": groups == "b", "a": groups == "a"})
    by_name, by_column = fit(scores, groups), fit(scores, table)
    assert by_name.thresholds == by_column.thresholds
    assert (
        by_column.threshold(table[["a", "b"]]) == by_name.threshold(pd.Series(groups))
    ).all()
    assert (by_name.threshold(["b"]) == by_name.thresholds["b"]).all()


def test_groups_may_be_combinations():
    rng = np.random.default_rng(4)
    frame = pd.DataFrame(
        {"sex": rng.choice(["men", "women"], 400), "old": rng.integers(0, 2, 400)}
    )
    scores = rng.random(400)
    gcp = fit(scores, frame)
    own = (frame["sex"] == "men") & (frame["old"] == 1)
    assert gcp.thresholds["men", 1] == conformal_quantile(scores[own], 0.1)


def test_a_group_too_small_for_the_level_gets_the_full_set():
    scores, groups = np.linspace(0, 1, 40), np.array(["few"] * 8 + ["many"] * 32)
    gcp = fit(scores, groups)
    assert math.isinf(gcp.thresholds["few"]) and gcp.thresholds["many"] < 1
    sets = gcp.sets(np.full((2, 3), 1.0), ["few", "many"])
    assert sets.tolist() == [[True] * 3, [False] * 3]
    for few in (groups[:8], np.ones((8, 2), bool)):  # too few altogether
        assert np.isinf(fit(scores[:8], few).threshold(few)).all()


def test_each_point_has_its_own_threshold():
    rng = np.random.default_rng(5)
    groups, scores = rng.choice(["a", "b"], 100), rng.random((100, 4))
    gcp = fit(scores[:, 0], groups)
    for i, row in enumerate(gcp.sets(scores, groups)):
        assert row.tolist() == [bool(s <= gcp.thresholds[groups[i]]) for s in scores[i]]


def test_true_coverage_of_each_group_follows_its_beta_law():
    rng, sizes, draws = np.random.default_rng(6), {"few": 40, "many": 300}, 1500
    groups = np.repeat(list(sizes), list(sizes.values()))
    rate = np.where(groups == "few", 2.0, 1.0)
    fits = [fit(rng.exponential(rate), groups) for _ in range(draws)]
    for name, scale in (("few", 2.0), ("many", 1.0)):
        n, k = sizes[name], math.ceil((sizes[name] + 1) * 0.9 - 1e-9)
        covered = stats.expon(scale=scale).cdf([gcp.thresholds[name] for gcp in fits])
        assert stats.kstest(covered, stats.beta(k, n + 1 - k).cdf).pvalue > 0.01
    covered = stats.expon(scale=2.0).cdf([gcp.base_threshold for gcp in fits])
    assert covered.mean() < 0.75  # the base predictor does not cover the few


def test_equal_coverage_of_true_labels_is_no_demographic_parity():
    population, rng = nine_groups(), np.random.default_rng(7)
    (probs, y, groups), (new_probs, new_y, new_groups) = (
        population.draw(30_000, rng),
        population.draw(60_000, rng),
    )
    gcp = fit(tps(probs)[np.arange(len(y)), y], groups)
    sets = gcp.sets(tps(new_probs), new_groups)
    gaps = {
        scored_on: fairness.disparity(
            sets, new_y, new_groups, MEASURES["demographic_parity", scored_on]
        )
        for scored_on in ("true label", "fixed label")
    }
    assert gaps["true label"] < 0.1 < 2 * gaps["true label"] < gaps["fixed label"]


# What is reported


@pytest.fixture(scope="module")
def scored():
    """A toy dataset, what a model would say of it, and the rows of two splits."""
    data = toy(900)
    distance = (data.X["a"].to_numpy()[:, None] - np.arange(data.n_classes)) ** 2
    weights = np.exp(-distance / 2)
    probs = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    base = models.BaseModel(
        "made up", {}, 0, probs, split(data, 0), {"test": 0.5}, 0.0, pd.DataFrame()
    )
    rows = batch_gcp.run(data, base, splits=2, closeness=[0.1], progress=False)
    return data, base, rows


def test_a_run_has_a_row_for_every_arm_metric_scoring_and_split(scored):
    rows = scored[-1].query("metric != 'group_coverage'")
    counts = rows.groupby(["arm", "metric"]).size().to_dict()
    arms, metrics = (
        ("base", "batch_gcp", "cf", "cf_guarantee"),
        ("demographic_parity", "disparate_impact"),
    )
    assert counts == {(arm, metric): 4 for arm in arms for metric in metrics}
    assert not rows.duplicated(["arm", "metric", "scored_on", "split"]).any()


@pytest.mark.parametrize("at", range(2))
def test_a_run_reports_what_its_sets_give_on_the_test_rows_of_the_split(scored, at):
    data, base, rows = scored
    parts = score_split(data, base.probs, base.parts, "aps", at)
    y, groups = data.y[parts.test], data.groups[parts.test]
    true = parts.scores[parts.calibration, data.y[parts.calibration]]
    gcp = fit(true, data.groups[parts.calibration])
    base_threshold = conformal_quantile(true, 0.1)
    for row in rows.query("split == @at").to_dict("records"):
        if row["arm"] == "batch_gcp":
            found = gcp.sets(parts.scores[parts.test], groups)
        elif row["arm"] == "base":
            found = prediction_sets(parts.scores[parts.test], base_threshold)
        else:
            threshold = control.find_threshold(
                parts.scores[parts.calibration],
                data.y[parts.calibration],
                data.groups[parts.calibration],
                row["metric"],
                row["c"],
                classwise=True,
                guarantee={"cf": "none", "cf_guarantee": "fixed-sequence"}[row["arm"]],
                grid=control.default_grid(),
            ).threshold
            found = prediction_sets(parts.scores[parts.test], threshold)
        covered = found[np.arange(len(y)), y]
        assert row["efficiency"] == pytest.approx(found.sum() / len(y))
        if row["metric"] == "group_coverage":
            own = groups == row["group"]
            assert (row["n"], row["coverage"]) == (
                own.sum(),
                pytest.approx(covered[own].mean()),
            )
            continue
        assert row["coverage"] == pytest.approx(covered.mean())
        columns = (
            [covered] if row["scored_on"] == "true label" else [found[:, 1], found[:, 2]]
        )
        pairs = [
            (column[groups == "few"].mean(), column[groups == "many"].mean())
            for column in columns
        ]
        by_hand = {
            "demographic_parity": max(abs(a - b) for a, b in pairs),
            "disparate_impact": min(min(a, b) / max(a, b) for a, b in pairs),
        }
        assert row["disparity"] == pytest.approx(by_hand[row["metric"]])


def test_rows_are_saved_under_their_profile_and_dataset(scored, tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    path = batch_gcp.save_rows(scored[-1])
    assert path == tmp_path / "runs" / "quick" / "batch_gcp_toy.parquet"
    assert pd.read_parquet(path).equals(scored[-1])


@pytest.mark.slow
def test_conformal_fairness_is_what_the_grid_of_the_paper_has(
    scored, tmp_path, monkeypatch
):
    monkeypatch.setattr(paths, "ARTIFACTS", tmp_path)
    data, base, rows = scored
    grid = experiments.run(
        data, base, splits=2, scores=["aps"], closeness=[0.1], progress=False
    )
    setting = ["metric", "c", "split"]
    measured = ["coverage", "efficiency", "disparity"]
    arms = {"cf": "none", "cf_guarantee": "fixed-sequence"}
    for arm, guarantee in arms.items():
        is_own = (rows["arm"] == arm) & (rows["scored_on"] == "fixed label")
        ours = rows[is_own].set_index(setting)[measured].sort_index()
        is_theirs = grid["classwise"] & (grid["guarantee"] == guarantee)
        theirs = grid[is_theirs].set_index(setting)[measured].loc[ours.index]
        assert len(ours) == 4
        pd.testing.assert_frame_equal(ours, theirs, check_exact=True)
    names = ["dataset", "attribute", "source", "data", "records", "profile", "model"]
    assert set(map(tuple, rows[names].to_numpy())) == set(
        map(tuple, grid[names].to_numpy())
    )


def test_rows_hold_plain_text(scored):
    for name in ("arm", "metric", "scored_on", "data", "source"):
        assert {type(value) for value in scored[-1][name]} == {str}


# What is drawn


def middle(line):
    return float(np.mean(line.get_ydata()))


def test_the_bars_are_means_over_splits_and_the_lines_base_and_batch_gcp(scored):
    rows = scored[-1][scored[-1]["metric"] == "demographic_parity"]
    panels = [
        ("fixed label", "efficiency"),
        ("fixed label", "disparity"),
        ("true label", "disparity"),
    ]
    fig = figures.batch_gcp_bars(scored[-1])
    for ax, (scored_on, quantity) in zip(fig.axes, panels, strict=True):
        means = rows[rows["scored_on"] == scored_on].groupby("arm")[quantity].mean()
        first = ax.patches[0]
        assert first.get_y() + first.get_height() == pytest.approx(means["cf"])
        lines = {
            line.get_color(): middle(line)
            for line in ax.lines
            if len(set(line.get_ydata())) == 1
        }
        assert lines[figures.RED["color"]] == pytest.approx(means["batch_gcp"])
        assert pytest.approx(means["base"]) in [middle(line) for line in ax.lines]
    plt.close(fig)


def test_splits_beyond_c_are_counted_on_fixed_labels(scored):
    rows = scored[-1].copy()
    own = (
        (rows["arm"] == "cf")
        & (rows["scored_on"] == "fixed label")
        & (rows["metric"] == "demographic_parity")
    )
    rows.loc[own, "disparity"] = [0.3, 0.1 + 1e-15]
    rows.loc[rows["arm"] == "cf_guarantee", "disparity"] = 0.0
    fig = figures.batch_gcp_bars(rows)
    assert [label.get_text() for label in fig.axes[1].get_xticklabels()] == [
        "0.10\n1 of 2\n0 of 2"
    ]
    plt.close(fig)


def test_the_dots_are_the_groups_mean_coverages_from_large_to_small(scored):
    rows = scored[-1][scored[-1]["metric"] == "group_coverage"]
    fig = figures.group_coverage_dots(scored[-1])
    (ax,) = fig.axes
    assert [label.get_text().split()[0] for label in ax.get_xticklabels()] == [
        "many",
        "few",
    ]
    drawn = {
        container.get_label(): container.lines[0].get_ydata()
        for container in ax.containers[1:]
    }
    for arm, name in (("base", "base APS"), ("batch_gcp", "BatchGCP")):
        means = rows[rows["arm"] == arm].groupby("group")["coverage"].mean()
        assert drawn[name] == pytest.approx(means[["many", "few"]].to_numpy())
    plt.close(fig)


# Bad input


@pytest.mark.parametrize(
    "message, scores, groups",
    [
        ("scores: entry 1 is NaN", [0.1, np.nan], ["a", "b"]),
        ("groups: found 1 rows for 2 points", [0.1, 0.2], ["a"]),
        (
            r"groups: found shape \(3, 2\); wanted \(2, 2\)",
            [0.1, 0.2],
            np.ones((3, 2), bool),
        ),
        ("groups: row 1 is missing", [0.1, 0.2], ["a", None]),
        (
            "groups: found nobody in 1; wanted at least one",
            [0.1, 0.2],
            np.array([[True, False]] * 2),
        ),
        (
            "groups: found nobody in 'b'",
            [0.1, 0.2],
            pd.DataFrame({"a": [True, True], "b": [False, False]}),
        ),
        ("scores: found an infinite one", [0.1] * 30 + [np.inf], np.ones((31, 2), bool)),
    ],
)
def test_a_fit_on_bad_input_says_what_is_wrong(message, scores, groups):
    with pytest.raises(ValueError, match=message):
        fit(scores, groups)


def test_bad_levels_and_groups_that_were_not_fitted_are_told():
    scores, groups = np.linspace(0, 1, 40), np.array(["a", "b"] * 20)
    with pytest.raises(ValueError, match=r"alpha: found 1; wanted a number in \(0, 1\)"):
        fit(scores, groups, 1)
    gcp = fit(scores, groups)
    with pytest.raises(
        ValueError, match=r"groups: found 'c'; wanted those of the fit, \['a', 'b'\]"
    ):
        gcp.threshold(["a", "c"])
    with pytest.raises(
        ValueError, match=r"groups: found shape \(5, 3\); wanted \(5, 2\)"
    ):
        gcp.threshold(np.ones((5, 3), bool))
    with pytest.raises(ValueError, match="groups: found 2 rows for 3 points"):
        gcp.sets(np.ones((3, 4)), ["a", "b"])

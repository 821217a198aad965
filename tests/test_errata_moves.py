"""What the bugs move: the table, its counts, the yardstick and the figure."""

from unittest.mock import patch

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from cfhelpers import paths
from cfhelpers.study import authors, errata_moves, errata_runs, judging
from cfhelpers.study.errata_runs import NUMBER

BUGS = ["quantile", "self_loops", "composed_tuning", "halves_by_index", "together"]


def number(**changes):
    """A number of DAPS, as `errata_runs.run` has it."""
    own = {
        "erratum": "none",
        "score": "daps",
        "arm": "cf",
        "metric": "disparate_impact",
        "c": 0.8,
        "classwise": True,
        "quantity": "efficiency",
        "split": 0,
        "value": 2.0,
    }
    return own | changes


@pytest.fixture(scope="module")
def rows():
    """The paper's own numbers of DAPS without a bug, and 1% more with each."""
    paper = errata_moves.paper_values()
    paper = paper[paper["score"] == "daps"].rename(columns={"paper": "value"})
    parts = [paper.assign(erratum="none", split=0)]
    for name in BUGS:
        parts.append(paper.assign(erratum=name, split=0, value=1.01 * paper["value"]))
    return pd.concat(parts, ignore_index=True)


# The paper's numbers


def test_every_stored_mean_of_the_authors_is_there_once():
    paper = errata_moves.paper_values()
    assert not paper.duplicated(NUMBER).any() and paper["paper"].notna().all()
    # Four scores, 5 metrics with 4 c and one ratio, both kinds of λ, 2 arms, 2 numbers.
    assert len(paper) == 4 * (5 * 4 + 1) * 2 * 2 * 2
    assert set(paper["score"]) == {"tps", "aps", "daps", "cfgnn"}


def test_the_papers_numbers_are_taken_from_their_place():
    paper = errata_moves.paper_values().set_index(NUMBER)["paper"]
    printed = authors.reported_values().query("table == 'tab:credit_di_all'")
    assert paper["daps", "cf", "disparate_impact", 0.8, True, "efficiency"] == 2.526
    assert paper["daps", "cf", "disparate_impact", 0.8, False, "efficiency"] == 2.573
    assert 2.526 in printed["value"].tolist()
    stored = authors.runs().query(
        "dataset == 'credit' and score == 'aps' and metric == 'equal_opportunity' "
        "and c == 0.15 and not classwise"
    )
    own = paper["aps", :, "equal_opportunity", 0.15, False]
    assert own["base", "disparity"] == stored["base_disparity"].item()
    assert own["cf", "disparity"] == stored["disparity"].item()
    assert own["base", "efficiency"] == stored["base_efficiency"].item()
    assert own["cf", "efficiency"] == stored["efficiency"].item()


# The table


def test_a_move_is_from_the_mean_without_a_bug_to_the_mean_with_it():
    values = {("none", 0): 2.0, ("none", 1): 2.2, ("quantile", 0): 2.3}
    values["quantile", 1] = 2.5
    long = []
    for (name, at), value in values.items():
        long.append(number(erratum=name, split=at, value=value))
    (row,) = errata_moves.moves(pd.DataFrame(long)).to_dict("records")
    assert (row["before"], row["after"]) == pytest.approx((2.1, 2.4))
    assert row["paper"] == 2.526 and row["splits"] == 2
    assert row["row"] == "quantile/daps/cf/disparate_impact/0.8/classwise/efficiency"


def test_names_of_rows_are_unique_and_tell_the_number(rows):
    moved = errata_moves.moves(rows)
    assert moved["row"].is_unique
    assert len(moved) == len(BUGS) * 168
    for row in moved.sample(20, random_state=0).to_dict("records"):
        places = row["row"].split("/")
        kind = "classwise" if row["classwise"] else "single"
        own = [row["erratum"], row["score"], row["arm"], row["metric"]]
        assert places == [*own, f"{row['c']:g}", kind, row["quantity"]]


def test_the_same_measurement_counts_once():
    long = []
    for name, value in (("none", 2.0), ("quantile", 2.1)):
        for classwise in (False, True):
            own = {"erratum": name, "value": value, "classwise": classwise}
            long.append(number(arm="base", **own))
        long.append(number(erratum=name, value=value))
    moved = errata_moves.moves(pd.DataFrame(long))
    assert moved["arm"].tolist() == ["base", "base", "cf"]
    assert moved["distinct"].tolist() == [True, False, True]  # CF has another paper's


def test_the_summary_counts_what_moves_towards_the_paper(rows):
    moved = errata_moves.moves(rows)
    chosen = moved["erratum"] == "composed_tuning"
    moved.loc[chosen, "after"] = moved.loc[chosen, "paper"] + 0.25
    moved.loc[chosen, "before"] = moved.loc[chosen, "paper"] - 0.5
    moved.loc[moved["erratum"] == "self_loops", "after"] = moved["before"]
    found = errata_moves.summary(moved).xs("cf", level="arm")
    own = found.loc["composed_tuning"]
    assert (own["towards"] == own["numbers"]).all() and (own["away"] == 0).all()
    assert own["median_before"].tolist() == pytest.approx([0.5, 0.5])
    assert own["largest_after"].tolist() == pytest.approx([0.25, 0.25])
    loops = found.loc["self_loops"]
    assert (loops["unmoved"] == loops["numbers"]).all()
    assert (loops["towards"] + loops["away"] == 0).all()
    away = found.loc["quantile"]
    assert (away["away"] == away["numbers"]).all()


def test_batch_gcp_has_rows_without_a_number_of_the_papers():
    long = []
    for name, value in (("none", 0.5), ("early_gcp", 0.4)):
        for metric in ("demographic_parity", "disparate_impact", "group_coverage"):
            for scored_on in ("fixed label", "true label"):
                own = {"erratum": name, "arm": "batch_gcp", "metric": metric, "split": 0}
                measured = {"efficiency": value, "disparity": 2 * value}
                if scored_on == "true label":
                    measured["disparity"] = 3 * value
                long.append(own | measured | {"scored_on": scored_on})
    moved = errata_moves.gcp_moves(pd.DataFrame(long)).set_index("row")
    name = "early_gcp/aps/batch_gcp/disparate_impact/-/-/"
    assert moved.loc[name + "efficiency", "after"] == 0.4
    assert moved.loc[name + "disparity", "before"] == 1.0
    assert moved.loc[name + "disparity_true_label", "after"] == pytest.approx(1.2)
    assert len(moved) == 6 and moved["paper"].isna().all()


def test_the_file_is_what_is_read_again(rows, tmp_path):
    moved = errata_moves.moves(rows)
    with patch.object(paths, "RESULTS", tmp_path):
        path = errata_moves.save(moved)
    assert path == tmp_path / "errata.csv"
    read = pd.read_csv(path)
    pd.testing.assert_frame_equal(read, moved, atol=1e-6)


# The stored table


@pytest.fixture(scope="module")
def stored(root):
    return pd.read_csv(root / "results" / "errata.csv")


def test_the_stored_table_has_every_bug_and_score(stored):
    assert stored["row"].is_unique
    found = set(zip(stored["erratum"], stored["score"], strict=True))
    assert found == {*errata_runs.bugs_and_scores(), ("early_gcp", "aps")}
    is_cfgnn = stored["score"] == "cfgnn"
    assert (stored[~is_cfgnn]["splits"] == 10).all()
    assert stored[is_cfgnn]["splits"].nunique() == 1
    has_paper = stored["erratum"] != "early_gcp"
    assert stored["paper"].notna().equals(has_paper)
    paper = errata_moves.paper_values()
    own = stored[has_paper].astype({"classwise": bool})
    own = own.merge(paper, on=NUMBER, suffixes=("", "_now"))
    assert len(own) == has_paper.sum()
    np.testing.assert_allclose(own["paper"], own["paper_now"], atol=1e-6)


def test_before_is_what_the_rows_of_credit_say(stored, root):
    rows = pd.read_parquet(root / "results" / "runs" / "quick" / "credit_age.parquet")
    rows = rows[rows["guarantee"] == "none"]
    number_of = ["score", "metric", "c", "classwise"]
    numbers = ["efficiency", "disparity", "base_efficiency", "base_disparity"]
    for name in ("quantile", "together", "shortcut"):
        own = stored[stored["erratum"] == name]
        is_among = rows["split"] < own["splits"].max()
        means = rows[is_among].groupby(number_of)[numbers].mean()
        for row in own.to_dict("records"):
            prefix = "base_" if row["arm"] == "base" else ""
            key = tuple(row[name] for name in number_of[:3])
            mean = means.loc[(*key, row["classwise"] in (True, "True"))]
            wanted = mean[prefix + row["quantity"]]
            assert row["before"] == pytest.approx(wanted, abs=2e-6)


def test_alone_only_self_loops_let_the_base_sets_of_daps_end_larger(stored):
    own = stored.query("score == 'daps' and arm == 'base' and quantity == 'efficiency'")
    parity = own[own["metric"] == "demographic_parity"]
    first = parity[parity["c"] == 0.05].groupby("erratum")[["after", "paper"]].first()
    proxy = own[(own["metric"] == errata_runs.PROXY) & (own["c"] == 0.2)]
    last = proxy.groupby("erratum")[["after", "paper"]].first()
    is_larger = last > first
    assert set(is_larger.index[is_larger["after"]]) == {"self_loops", "together"}
    assert is_larger["paper"].all()


# The yardstick


def test_inside_is_what_the_prediction_interval_says():
    training = []
    for seed, value in enumerate([2.4, 2.5, 2.6]):
        own = number(value=value)
        for name in ("erratum", "split"):
            del own[name]
        training.append(own | {"training_split": seed, "tuning": "composed_tuning"})
        training.append(
            own | {"training_split": seed, "tuning": "none", "value": value - 2}
        )
    found = errata_moves.intervals(pd.DataFrame(training)).set_index("tuning")
    low, high = judging.prediction_interval([2.4, 2.5, 2.6])
    own = found.loc["composed_tuning"]
    assert (own["low"], own["high"], own["mean"]) == pytest.approx((low, high, 2.5))
    assert own["inside"] and not found.loc["none", "inside"]


# CFGNN's switches


CFGNN = ["shortcut", "last_epoch", "longer_training", "shorter_training", "trained_once"]


@pytest.fixture(scope="module")
def cfgnn_rows():
    """Means as `errata_runs.run_cfgnn` has them; batches have a baseline of their own."""
    paper = errata_moves.paper_values()
    paper = paper[paper["score"] == "daps"].rename(columns={"paper": "value"})
    paper = paper.assign(score="cfgnn", splits=10)
    shifts = {"none": 0.0, "batches": 1.0, "block_degrees": 1.5}
    shifts |= dict.fromkeys(CFGNN, 0.25)
    parts = []
    for name, shift in shifts.items():
        parts.append(paper.assign(erratum=name, value=paper["value"] + shift))
    return pd.concat(parts, ignore_index=True)


def test_block_degrees_move_from_batches_and_the_others_from_none(cfgnn_rows):
    moved = errata_moves.moves(cfgnn_rows)
    assert set(moved["erratum"]) == {*CFGNN, "block_degrees"}
    assert (moved["splits"] == 10).all()
    plain = cfgnn_rows[cfgnn_rows["erratum"] == "none"]
    assert len(moved) == 6 * len(plain)
    means = plain.set_index(NUMBER)["value"]
    own = moved.set_index(["erratum", *NUMBER])
    for name, before, step in (("block_degrees", 1.0, 0.5), ("shortcut", 0.0, 0.25)):
        found = own.loc[name]
        wanted = means.reindex(found.index)
        np.testing.assert_allclose(found["before"], wanted + before)
        np.testing.assert_allclose(found["after"] - found["before"], step)


def test_cfgnn_has_a_figure_of_its_own(cfgnn_rows):
    moved = errata_moves.moves(cfgnn_rows).assign(paper=2.0)
    fig = errata_moves.arrows(moved, "cfgnn")
    sizes = fig.axes[0]
    heads = [line for line in sizes.lines if line.get_marker() in ("<", ">", "o")]
    assert len(heads) == 13 * len(errata_moves.ARROWS["cfgnn"])
    assert {line.get_marker() for line in heads} == {">"}
    (legend,) = fig.legends
    shown = [text.get_text() for text in legend.get_texts()]
    assert shown[:2] == ["with the shortcut", "last epoch"]
    assert "block degrees" in shown and shown[-1] == "the paper's"
    plt.close(fig)


def test_every_switch_of_cfgnn_has_an_arrow_and_other_scores_are_told(cfgnn_rows):
    assert set(errata_moves.ARROWS["cfgnn"]) == set(errata_runs.CFGNN_SWITCHES)
    moved = errata_moves.moves(cfgnn_rows)
    with pytest.raises(ValueError, match="score: found 'tps'; wanted one of 'daps'"):
        errata_moves.arrows(moved, "tps")


# The figure


def test_each_number_of_the_figure_has_an_arrow_per_bug(rows):
    moved = errata_moves.moves(rows)
    fig = errata_moves.arrows(moved)
    sizes, gaps = fig.axes
    labels = [tick.get_text() for tick in sizes.get_yticklabels()]
    assert labels[:2] == ["base", "CF, single λ · DP"] and len(labels) == 13
    assert len(gaps.get_yticklabels()) == 12
    paper = moved.set_index("row")["paper"]
    name = "quantile/daps/cf/disparate_impact/0.8/classwise/efficiency"
    shown = [text.get_text() for text in sizes.texts]
    assert shown[labels.index("CF, classwise · DI")] == f"{paper[name]:.3f}"
    n_heads = sum(line.get_marker() in ("<", ">", "o") for line in sizes.lines)
    assert n_heads == 13 * len(BUGS)
    plt.close(fig)


def test_arrows_point_from_before_to_after(rows):
    moved = errata_moves.moves(rows)
    fig = errata_moves.arrows(moved)
    heads = [line for line in fig.axes[0].lines if line.get_marker() == ">"]
    # With 1% more every set is larger by .02 to .03, so all arrows point to the right.
    assert len(heads) == 13 * len(BUGS)
    ends = np.concatenate([line.get_xdata() for line in heads])
    assert (ends > 0.02).all() and (ends < 0.03).all()
    plt.close(fig)


# CFGNN's stored numbers


@pytest.fixture(scope="module")
def cfgnn_stored(root):
    return pd.read_csv(root / "results" / errata_runs.CFGNN_FILE)


def test_every_switch_of_cfgnn_is_stored_with_what_it_is_compared_with(cfgnn_stored):
    names = set(errata_runs.CFGNN_SWITCHES)
    assert set(cfgnn_stored["erratum"]) == {*names, "none", "batches"}
    assert not cfgnn_stored.duplicated(["erratum", *NUMBER]).any()
    assert cfgnn_stored["splits"].nunique() == 1
    changed = cfgnn_stored.groupby("erratum")["changed_scores"].first()
    assert (changed[list(names)] > 0).all()


def test_the_stored_moves_are_those_of_cfgnns_stored_numbers(stored, cfgnn_stored):
    moved = errata_moves.moves(cfgnn_stored).set_index("row")
    own = stored[stored["score"] == "cfgnn"].set_index("row")
    assert set(own.index) == set(moved.index)
    for name in ("before", "after", "paper", "splits"):
        found = own[name].reindex(moved.index)
        np.testing.assert_allclose(found, moved[name], atol=1e-6)


# The stored training splits


@pytest.fixture(scope="module")
def training(root):
    return pd.read_csv(root / "results" / errata_runs.TRAINING_FILE)


def test_ten_training_splits_are_stored_for_each_tuning(training):
    sizes = training.groupby(["training_split", "tuning"]).size()
    assert sorted(training["training_split"].unique()) == list(range(10))
    assert len(sizes) == 30 and sizes.nunique() == 1
    assert (training["splits"] == 10).all()


def test_with_the_right_tuning_they_are_what_the_rows_of_credit_say(training, root):
    folder = root / "results" / "runs" / "quick"
    files = {0: folder / "credit_age.parquet"}
    for seed in range(1, 10):
        path = folder / "training" / f"credit_age_{seed}.parquet"
        if path.exists():
            files[seed] = path
    keys = ["metric", "c", "classwise"]
    own = training[(training["tuning"] == "none") & (training["arm"] == "cf")]
    for seed, path in files.items():
        rows = pd.read_parquet(path)
        rows = rows[(rows["score"] == "daps") & (rows["guarantee"] == "none")]
        means = rows.groupby(keys)[["efficiency", "disparity"]].mean()
        for row in own[own["training_split"] == seed].to_dict("records"):
            wanted = means.loc[tuple(row[key] for key in keys), row["quantity"]]
            assert row["value"] == pytest.approx(wanted, abs=2e-6)


def test_the_papers_impact_is_inside_with_composed_tuning_and_outside_without(training):
    judged = errata_moves.intervals(training)
    impact = judged[judged["metric"] == "disparate_impact"]
    inside = impact.groupby(["tuning", "quantity"])["inside"].agg(["sum", "size"])
    assert inside.loc["composed_tuning", "sum"].tolist() == [3, 3]
    assert inside.loc[("none", "efficiency"), "sum"] == 0


def test_with_loops_and_halves_added_fewer_base_gaps_are_inside(training):
    judged = errata_moves.intervals(training)
    gaps = judged[(judged["arm"] == "base") & (judged["quantity"] == "disparity")]
    inside = gaps.groupby("tuning")["inside"].mean()
    assert inside["none"] < inside[errata_runs.RELEASE_TUNING]
    assert inside[errata_runs.RELEASE_TUNING] < inside["composed_tuning"] == 1

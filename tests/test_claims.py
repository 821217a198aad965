"""The paper's sentences: every rule can hold, fail and not tell; no quote is made up."""

import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cfhelpers import paths
from cfhelpers.study import (
    base_models,
    claim_statistics,
    claims,
    paper_claims,
    scorecard,
    stored_rows,
)
from cfhelpers.study.claims import Claim, Source, Verdict
from cfhelpers.study.judging import TIE

BY_ID = {claim.id: claim for claim in paper_claims.CLAIMS}
UNITS = range(4)
EXACT = (Source.PRINTED, Source.STORED, Source.COVERAGES)
EXACT += (Source.FULL_SETS, Source.ARITHMETIC, Source.AUTHORS_GROUPS)
LEFT_ALONE = {"efficiency": 2.0, "base_efficiency": 2.0, "coverage": 0.9}
LEFT_ALONE |= {"disparity": 0.1, "base_disparity": 0.2, "c": 0.1}


def bars(*lines):
    """Settings of one dataset, attribute, score and metric, but for what lines say."""
    names = ["dataset", "attribute", "classwise", "score", "metric"]
    return pd.DataFrame(
        [dict.fromkeys(names, "any") | LEFT_ALONE | line for line in lines]
    )


def by_score(**values):
    """A bar for each score."""
    return bars(*({"score": score} | line for score, line in values.items()))


def pokec_runs(n_of_n, n_of_z):
    """Coverages of two runs whose test splits have so many points."""
    parts = []
    for name, n in (("Pokec_n_region", n_of_n), ("Pokec_z_region", n_of_z)):
        coverages = np.round(np.arange(n) / n, 4)
        parts.append(pd.DataFrame({"run": name, "coverage": coverages}))
    return pd.concat(parts)


def single_and_classwise(single, classwise):
    return bars({"classwise": False} | single, {"classwise": True} | classwise)


SMALL = {"efficiency": 2.1}
LARGE = {"efficiency": 3.0}
AT_C = {"disparity": 0.1}
ABOVE_C = {"disparity": 0.15}
WORSE = {"disparity": 0.25}
STEPS_UP = ({"c": 0.05, "disparity": 0.05}, {"c": 0.1, "disparity": 0.1})
STEPS_DOWN = ({"c": 0.05, "disparity": 0.1}, {"c": 0.1, "disparity": 0.05})
RATIO = {"c": 0.8, "disparity": 0.8, "base_disparity": 0.5, "batch_gcp_disparity": 0.5}
BEST = {"base_efficiency": 2.0, "base_disparity": 0.9}
MADE_UP = {  # claim -> settings in which it holds, settings in which it fails
    "lemma": (
        pd.DataFrame({"n": [1], "p": [0.5]}),
        pd.DataFrame({"n": [100], "p": [0.5]}),
    ),
    "guarantee": (
        bars({"changed_runs": 10, "changed_beyond": 1}),
        bars({"changed_runs": 10, "changed_beyond": 5}),
    ),
    "coverage": (bars({"coverage": 0.9}), bars({"coverage": 0.91}, {"coverage": 0.88})),
    "arbitrary-c": (
        bars({"coverage": 1.0, "efficiency": 4.0, "disparity": 0.0}, ABOVE_C),
        bars({"coverage": 1.0, "efficiency": 4.0, "disparity": 0.08}, AT_C),
    ),
    "beats-base": (bars(AT_C), bars(AT_C, WORSE)),
    "beats-base-credit": (bars(AT_C), bars(AT_C, WORSE)),
    "gap-credit": (bars(AT_C, {"disparity": 0.09, "base_disparity": 0.05}), bars(WORSE)),
    "step-wise": (bars(*STEPS_UP), bars(*STEPS_DOWN)),
    "at-or-better": (bars(AT_C), bars(AT_C, ABOVE_C)),
    "classwise-smaller": (
        single_and_classwise(LARGE, SMALL),
        single_and_classwise(SMALL, LARGE),
    ),
    "single-fairer": (
        single_and_classwise(AT_C, ABOVE_C),
        single_and_classwise(ABOVE_C, AT_C),
    ),
    "single-fairer-income": (
        single_and_classwise(AT_C, ABOVE_C),
        single_and_classwise(AT_C, AT_C),
    ),
    "single-fairer-education": (
        single_and_classwise(AT_C, ABOVE_C),
        single_and_classwise(ABOVE_C, AT_C),
    ),
    "xgboost": (
        bars(
            {"model": "gcn", "settings": "scaled", "base_efficiency": 2.5},
            {"model": "xgboost", "settings": "", "base_efficiency": 2.2},
        ),
        bars(
            {"model": "gcn", "settings": "scaled", "base_efficiency": 2.1},
            {"model": "gcn", "settings": "as they are", "base_efficiency": 2.9},
            {"model": "xgboost", "settings": "", "base_efficiency": 2.2},
        ),
    ),
    "price-credit": (bars(SMALL), bars(SMALL, LARGE)),
    "four-fifths": (bars({"disparity": 0.78}), bars({"disparity": 0.6})),
    "price-four-fifths": (bars(SMALL), bars(SMALL, LARGE)),
    "a-priori-fair": (bars({"base_disparity": 0.9}), bars({"base_disparity": 0.7})),
    "best-efficiency": (
        by_score(cfgnn=BEST, aps={"base_efficiency": 2.2, "base_disparity": 0.7}),
        by_score(cfgnn=BEST, aps={"base_efficiency": 2.2, "base_disparity": 0.95}),
    ),
    "classwise-ratio": (bars({"disparity": 0.78}), bars({"disparity": 0.6})),
    "classwise-efficiency": (
        single_and_classwise(LARGE, SMALL),
        single_and_classwise(SMALL, SMALL),
    ),
    "one-attribute": (bars({"disparity": 0.78}), bars({"disparity": 0.6})),
    "guarantees-intersectional": (
        bars({"changed_runs": 10, "changed_beyond": 0}),
        bars({"changed_runs": 10, "changed_beyond": 6}),
    ),
    "graph-scores-closer": (
        by_score(cfgnn=AT_C, daps=AT_C, aps=ABOVE_C, tps=ABOVE_C),
        by_score(cfgnn=ABOVE_C, daps=ABOVE_C, aps=AT_C, tps=AT_C),
    ),
    "graph-scores-starker": (
        by_score(cfgnn=AT_C, daps=AT_C, aps=ABOVE_C, tps=ABOVE_C),
        by_score(cfgnn=ABOVE_C, daps=ABOVE_C, aps=AT_C, tps=AT_C),
    ),
    "price-gender": (bars(SMALL), bars(SMALL, LARGE)),
    "localities": (pokec_runs(220, 264), pokec_runs(220, 220)),
    "baselines-fair": (bars({"base_disparity": 0.1}), bars({"base_disparity": 0.2})),
    "proxy-below-c": (bars({"disparity": 0.09}), bars(AT_C, ABOVE_C)),
    "proxy-base": (
        bars({"base_disparity": 0.4}),
        bars({"base_disparity": 0.4}, {"base_disparity": 0.2}),
    ),
    "proxy-graph": (bars(AT_C), bars(AT_C, WORSE)),
    "batch-gcp-ratio": (bars(RATIO), bars(RATIO | {"disparity": 0.4})),
    "price-batch-gcp": (bars(SMALL), bars(SMALL, LARGE)),
    "batch-gcp-parity": (
        bars({"batch_gcp_disparity": 0.3}),
        bars({"batch_gcp_disparity": 0.05}),
    ),
    "desired-level": (bars(AT_C), bars(AT_C, ABOVE_C)),
    "others-miss": (
        bars({"batch_gcp_disparity": 0.3}),
        bars({"batch_gcp_disparity": 0.05}),
    ),
    "undercovered": (
        bars({"coverage": 0.8, "n": 10}, {"coverage": 0.9, "n": 5}),
        bars({"coverage": 0.8, "n": 5}, {"coverage": 0.92, "n": 100}),
    ),
}


def in_scope(claim: Claim, settings: pd.DataFrame) -> pd.DataFrame:
    """Settings that the claim is about: what it leaves open stays as it is."""
    source = claim.sources[0]
    wanted = claim.printed if source == Source.PRINTED else claim.where
    filled = settings.copy()
    for column, values in wanted.items():
        if column not in filled or filled[column].nunique() < 2:
            filled[column] = values[0]
    return filled


def verdict_on(claim: Claim, of_units: list[pd.DataFrame]) -> str:
    """The verdict by a frame for each training split; by the first, if that is exact."""
    source = claim.sources[0]
    own = {"over": "training splits", "data": "the paper's", "records": "some"}
    if source in EXACT:
        settings = in_scope(claim, of_units[0])
    else:
        parts = []
        for unit, frame in enumerate(of_units):
            parts.append(in_scope(claim, frame).assign(unit=unit, **own))
        settings = pd.concat(parts)
    numbers = {source: settings.iloc[:0].copy() for source in Source}
    for other in claim.sources[1:]:
        numbers[other] = in_scope(claim, settings).iloc[:0].assign(table="", attribute="")
    numbers[source] = settings
    return claims.evaluate([claim], numbers)["verdict"].item()


def test_every_claim_has_settings_in_which_the_answer_is_known():
    assert set(MADE_UP) == set(BY_ID)
    assert len(BY_ID) == len(paper_claims.CLAIMS)


@pytest.mark.parametrize("name", BY_ID)
def test_a_claim_holds_where_it_is_known_to_hold(name):
    holds, _ = MADE_UP[name]
    assert verdict_on(BY_ID[name], [holds for _ in UNITS]) == Verdict.HOLDS


@pytest.mark.parametrize("name", BY_ID)
def test_a_claim_fails_where_it_is_known_to_fail(name):
    _, fails = MADE_UP[name]
    assert verdict_on(BY_ID[name], [fails for _ in UNITS]) == Verdict.FAILS


@pytest.mark.parametrize("name", BY_ID)
def test_no_claim_can_be_told_without_rows(name):
    holds, _ = MADE_UP[name]
    assert verdict_on(BY_ID[name], [holds.iloc[:0] for _ in UNITS]) == Verdict.CANNOT_TELL


@pytest.mark.parametrize(
    "name", [name for name, claim in BY_ID.items() if claim.sources[0] not in EXACT]
)
def test_no_claim_can_be_told_where_training_splits_disagree(name):
    holds, fails = MADE_UP[name]
    assert verdict_on(BY_ID[name], [holds, fails] * 2) == Verdict.CANNOT_TELL


def plain(text: str) -> str:
    """A text without LaTeX markup, and with single spaces."""
    text = re.sub(r"(?<!\\)%.*", "", text)
    text = text.replace(r"\ref{fig:credit}", "2")
    text = text.replace(r"$\frac{1}{\abs{\calib} + 1}$", "1/(n+1)")
    text = text.replace(r"\lambda", "λ").replace(r"\alpha", "α").replace(r"\%", "%")
    text = re.sub(r"\\(?:textbf|textit|bf|it|small)\b", "", text)
    text = re.sub(r"[{}$\\]", "", text)
    return re.sub(r"\s+", " ", text)


def test_plain_removes_markup_and_comments():
    source = "our {\\bf best}  $c = 0.8$ is \\textit{near} 80\\% % a note\nof all"
    assert plain(source) == "our best c = 0.8 is near 80% of all"


@pytest.mark.parametrize("name", BY_ID)
def test_every_sentence_stands_in_the_paper(name):
    folder = os.environ.get("CFHELPERS_PAPER")
    if not folder:
        pytest.skip("the paper's LaTeX is not at hand: CFHELPERS_PAPER names its folder")
    source = "\n".join(file.read_text() for file in sorted(Path(folder).glob("*.tex")))
    assert plain(BY_ID[name].sentence) in plain(source)


def tidy(training_splits, data="the paper's", guarantee="none", splits=3):
    """Rows of one setting; training split t has sets of 2 + t labels."""
    lines = []
    for training_split in range(training_splits):
        for split in range(splits):
            line = dict.fromkeys(claims.RUN + claims.SETTING, "any") | LEFT_ALONE
            line |= {"data": data, "guarantee": guarantee, "split": split}
            line |= {"training_split": training_split, "base_coverage": 0.9}
            line |= {"efficiency": 2.0 + training_split + split / 100, "feasible": True}
            line |= {"beyond": split == 0, "c": 0.1}
            lines.append(line)
    return pd.DataFrame(lines)


def test_our_settings_are_means_over_re_splits_of_each_training_split():
    found = claims.our_settings(tidy(training_splits=3))
    assert found["unit"].tolist() == [0, 1, 2]
    assert found["efficiency"].tolist() == pytest.approx([2.01, 3.01, 4.01])
    assert set(found["over"]) == {"training splits"}
    assert found["changed_runs"].tolist() == [
        2,
        3,
        3,
    ]  # the first re-split changed nothing
    assert found["changed_beyond"].tolist() == [0, 1, 1]


def test_with_two_training_splits_the_interval_is_over_re_splits():
    found = claims.our_settings(tidy(training_splits=2))
    assert found["efficiency"].tolist() == pytest.approx([2.0, 2.01, 2.02])
    assert set(found["over"]) == {"re-splits of one model"}


def test_simulated_records_and_the_guarantee_decide_nothing():
    simulated = tidy(training_splits=3, data="simulated")
    with_guarantee = tidy(training_splits=3, guarantee="fixed-sequence")
    assert not len(claims.our_settings(pd.concat([simulated, with_guarantee])))


def test_rows_of_before_training_splits_are_those_of_the_first():
    rows = tidy(training_splits=1).drop(columns="training_split")
    assert claims.our_settings(rows)["unit"].tolist() == [0, 1, 2]


def test_rows_without_a_training_split_may_stand_beside_rows_with_one():
    before = tidy(training_splits=1).drop(columns="training_split")
    rows = pd.concat([before.assign(dataset="old"), tidy(training_splits=3)])
    assert set(claims.our_settings(rows)["dataset"]) == {"old", "any"}


def test_a_claim_about_two_datasets_takes_the_training_splits_that_both_have():
    claim = Claim("a", "", "", "the mean", pooled, (Source.OURS,), at_least=0.0)
    few = tidy(training_splits=3).assign(dataset="few")
    many = tidy(training_splits=5).assign(dataset="many")
    settings = claims.our_settings(pd.concat([few, many]))
    found = claims.measure(claim, Source.OURS, settings)
    assert found.over == "3 training splits"
    assert found.value == pytest.approx(3.01)


def pooled(settings):
    return float(settings["efficiency"].mean())


def test_the_interval_is_the_yardsticks():
    claim = Claim("a", "", "", "the mean", pooled, (Source.OURS,), at_least=0.0)
    settings = claims.our_settings(tidy(training_splits=3, splits=1))
    found = claims.measure(claim, Source.OURS, settings)
    half = 4.302652730 * 1.0 * np.sqrt(1 + 1 / 3)  # t(.975, 2) · sd · √(1 + 1/m)
    assert (found.low, found.high) == pytest.approx((3 - half, 3 + half))


def test_the_interval_of_a_share_ends_at_zero_and_one():
    claim = BY_ID["classwise-smaller"]
    holds, fails = MADE_UP[claim.id]
    own = {"over": "training splits", "data": "the paper's", "records": "some"}
    parts = []
    for unit, frame in enumerate([holds, fails, holds]):
        parts.append(in_scope(claim, frame).assign(unit=unit, **own))
    found = claims.measure(claim, Source.OURS, pd.concat(parts))
    assert (found.low, found.high) == (0, 1)


def test_a_claim_needs_one_bound():
    with pytest.raises(ValueError, match="claim a: found at_least None and at_most None"):
        Claim("a", "", "", "", pooled, (Source.OURS,))


def test_whether_xgboost_is_ahead_on_credit_depends_on_scaled_features():
    lines = claims.base_model_settings(base_models.load().query("dataset == 'credit'"))
    is_as_it_is = lines["settings"].str.contains("false")
    is_xgboost = lines["model"] == "xgboost"
    behind = claim_statistics.graph_models_behind
    assert behind(lines[is_xgboost | is_as_it_is]) > 0 > behind(lines[~is_as_it_is])


def test_base_models_give_a_line_per_score_and_training_split():
    row = dict.fromkeys(base_models.COLUMNS, "")
    row |= {"dataset": "credit", "source": "bundled", "model": "gcn"}
    rows = pd.DataFrame(
        [
            row | {"training_split": 0, "tps_size": 2.0, "aps_size": 2.5},
            row | {"training_split": 1, "tps_size": 2.1, "aps_size": 2.6},
            row | {"training_split": 0, "model": base_models.LARGEST_CLASS},
        ]
    )
    lines = claims.base_model_settings(rows)
    sizes = lines.set_index(["score", "unit"])["base_efficiency"].to_dict()
    assert sizes == {
        ("tps", 0): 2.0,
        ("tps", 1): 2.1,
        ("aps", 0): 2.5,
        ("aps", 1): 2.6,
    }
    assert set(lines["over"]) == {"training splits"}


def test_printed_settings_have_every_number_of_the_tables():
    printed = claims.printed_settings()
    four_fifths = printed[printed["table"] == "tab:disparate_impact"]
    credit = four_fifths[four_fifths["dataset"] == "credit"].set_index("score")
    assert credit.loc["tps", "base_disparity"] == 0.252
    assert credit.loc["tps", "efficiency"] == 2.558
    proxy = printed[printed["table"] == "tab:acs_educ_pred_par"].set_index(["score", "c"])
    assert proxy.loc[("raps", 0.05), ["disparity", "base_disparity"]].tolist() == [
        0.043,
        0.268,
    ]
    of_batch_gcp = printed[printed["table"] == "tab:disparate_gcp"].set_index("dataset")
    assert of_batch_gcp.loc["acs_income", "batch_gcp_disparity"] == 0.349


def test_fig_1_has_the_bars_above_c_that_are_known():
    fig_1 = claims.select(claims.stored_settings(), paper_claims.FIG_1)
    assert len(fig_1) == 32
    assert (fig_1["disparity"] > fig_1["c"]).sum() == 22


def test_full_sets_for_real_labels_have_no_gap_in_the_proxy():
    assert claim_statistics.largest_full_set_gap(claims.full_set_settings()) == 0


def test_a_sentence_gives_value_bound_and_interval():
    claim = BY_ID["a-priori-fair"]
    own = {"over": "training splits", "data": "the paper's", "records": "some"}
    parts = []
    for unit, ratio in enumerate([0.6, 0.7, 0.8]):
        frame = in_scope(claim, bars({"base_disparity": ratio}))
        parts.append(frame.assign(unit=unit, **own))
    printed = in_scope(claim, bars({"base_disparity": 0.9})).assign(
        table="tab:credit_di_all"
    )
    numbers = {Source.OURS: pd.concat(parts), Source.PRINTED: printed}
    found = claims.evaluate([claim], numbers).iloc[0]
    assert found["reason"].startswith("CFGNN's base ratio on Credit is 0.700 (95%: ")
    assert "at least 0.800 is needed, and the interval has both sides" in found["reason"]
    assert found["beside"] == "In the paper's tables it is 0.900."
    assert found["verdict_beside"] == Verdict.HOLDS


def test_cfgnn_has_to_be_best_in_both_halves_of_the_sentence():
    larger = by_score(cfgnn=BEST, aps={"base_efficiency": 1.9, "base_disparity": 0.7})
    assert claim_statistics.cfgnn_behind_the_best(larger) == pytest.approx(0.1)
    assert verdict_on(BY_ID["best-efficiency"], [larger for _ in UNITS]) == Verdict.FAILS


def test_what_the_authors_did_not_store_cannot_be_told_and_ours_stand_beside():
    claim = BY_ID["undercovered"]
    own = {"over": "re-splits of one model", "data": "other", "records": "some"}
    groups = in_scope(claim, MADE_UP[claim.id][1])
    parts = [groups.assign(unit=unit, **own) for unit in UNITS]
    numbers = {Source.GROUPS: pd.concat(parts), Source.AUTHORS_GROUPS: groups.iloc[:0]}
    found = claims.evaluate([claim], numbers).iloc[0]
    assert found["verdict"] == Verdict.CANNOT_TELL
    assert "are not stored" in found["reason"]
    assert found["verdict_beside"] == Verdict.FAILS


def test_a_note_follows_the_reason():
    claim = BY_ID["coverage"]
    frame = in_scope(claim, bars({"coverage": 0.95}))
    numbers = {source: frame for source in claim.sources}
    found = claims.evaluate([claim], numbers).iloc[0]
    assert found["reason"].endswith("is needed. " + claim.note)


def test_a_rule_that_allows_a_tie_says_so():
    with_tie = {
        claim_statistics.share_within_c,
        claim_statistics.share_not_worse,
        claim_statistics.share_not_worse_than_average,
        claim_statistics.share_not_farther_beyond,
        claim_statistics.share_of_steps_up,
        claim_statistics.share_smaller_classwise,
    }
    for claim in paper_claims.CLAIMS:
        assert (str(TIE) in claim.statistic) == (claim.compute in with_tie), claim.id


def test_fig_1_with_a_tie_has_more_bars_at_c_than_without():
    fig_1 = claims.select(claims.stored_settings(), paper_claims.FIG_1)
    assert claim_statistics.share_within_c(fig_1) == 18 / 32
    assert (fig_1["disparity"] <= fig_1["c"]).mean() == 10 / 32


def test_the_table_is_written_whole(tmp_path):
    table = claims.evaluate([BY_ID["lemma"]], {Source.ARITHMETIC: MADE_UP["lemma"][1]})
    path = claims.write(table, tmp_path / "claims.csv")
    assert pd.read_csv(path)["id"].tolist() == ["lemma"]
    assert [file.name for file in tmp_path.iterdir()] == ["claims.csv"]


def test_the_stored_table_is_what_the_stored_rows_say():
    _, batch_rows = scorecard.load()
    numbers = claims.evidence(stored_rows.load_training_rows(), batch_rows)
    found = claims.evaluate(paper_claims.CLAIMS, numbers)
    stored = pd.read_csv(paths.RESULTS / "claims.csv", keep_default_na=False)
    for name in ("id", "verdict", "reason", "beside", "revised"):
        assert stored[name].tolist() == found[name].tolist()


def test_rules_that_were_changed_after_a_look_say_so_in_the_table():
    changed = {"coverage", "arbitrary-c", "step-wise", "gap-credit"}
    changed |= {"guarantees-intersectional"}
    changed |= {"classwise-smaller", "single-fairer-income", "single-fairer-education"}
    changed |= {"four-fifths", "price-four-fifths", "best-efficiency"}
    changed |= {"classwise-efficiency", "proxy-below-c", "others-miss", "undercovered"}
    assert {name for name, claim in BY_ID.items() if claim.revised} == changed
    numbers = {source: pd.DataFrame() for source in Source}
    numbers[Source.FULL_SETS] = MADE_UP["arbitrary-c"][0].assign(metric=claims.PROXY)
    numbers[Source.STORED] = numbers[Source.FULL_SETS]
    found = claims.evaluate([BY_ID["arbitrary-c"]], numbers)
    assert "fails" in found["revised"].item()

"""The scorecard: one honest word for each of the paper's 402 numbers."""

import itertools

import numpy as np
import pandas as pd
import pytest

from cfhelpers import paths
from cfhelpers.study import authors, experiments, judging, scorecard
from cfhelpers.study.judging import STATUSES
from cfhelpers.study.scorecard import TABLES

PLACE = [
    "table",
    "dataset",
    "attribute",
    "classwise",
    "score",
    "arm",
    "metric",
    "c",
    "quantity",
]
GRAPH_SCORES = ("aps", "cfgnn", "daps", "raps", "tps")
NOTHING = pd.DataFrame()


@pytest.fixture(scope="module")
def reported(root):
    return pd.read_csv(root / "results" / "reported_values.csv")


def tidy(
    dataset="credit", attribute="age", score="aps", data="the paper's", splits=2, **values
):
    """Tidy rows of one setting; a value may be a list, one per split."""
    source = {"the paper's": "bundled", "simulated": "simulated"}.get(data, "local")
    setting = {
        "source": source,
        "records": "some",
        "profile": "quick",
        "model": "xgboost",
        "guarantee": "none",
    }
    setting |= {
        "metric": "disparate_impact",
        "classwise": True,
        "c": 0.8,
        "efficiency": 2.5,
        "disparity": 0.8,
    }
    setting |= {"base_efficiency": 2.3, "base_disparity": 0.6} | values
    return pd.DataFrame(
        {
            "dataset": dataset,
            "attribute": attribute,
            "score": score,
            "data": data,
            "split": range(splits),
        }
        | setting
    )


def like_the_paper(reported, table, data="the paper's", **changes):
    """Tidy rows that give the paper's numbers, but for columns that a factor changes."""
    printed = reported[reported["table"] == table]
    setting = [name for name in PLACE if name not in ("table", "arm", "quantity")]
    found = []
    for keys, numbers in printed.groupby(setting):
        values = {}
        for arm, quantity, value in numbers[["arm", "quantity", "value"]].itertuples(
            index=False
        ):
            column = ("base_" if arm == "base" else "") + quantity
            values[column] = value * changes.get(column, 1)
        named = dict(zip(setting, keys, strict=True))
        found.append(tidy(**{**named, "c": float(named["c"])}, data=data, **values))
    return pd.concat(found)


def training(rows, apart=0.01, m=3):
    """Rows of m training splits around some rows; neighbours are `apart` from each other.

    With m = 3 the interval reaches 4.303 · √(4/3) · apart = 4.968 · apart to both sides.
    """
    parts = []
    for seed in range(m):
        own = rows.assign(training_split=seed)
        for name in ("efficiency", "disparity", "base_efficiency", "base_disparity"):
            own[name] = own[name] + apart * (seed - (m - 1) / 2)
        parts.append(own)
    return pd.concat(parts)


def judged(reported, rows, apart=0.01, **options):
    """The card of some rows, with the intervals of training splits around them."""
    around = training(rows, apart)
    return scorecard.scorecard(reported, rows, NOTHING, around, **options)


def batch(dataset="acs_income", data="the paper's", **disparities):
    """BatchGCP rows of two splits, scored in both ways, and arms that are not taken."""
    common = {
        "dataset": dataset,
        "attribute": "race",
        "source": "local",
        "data": data,
        "records": "some",
    }
    common |= {
        "profile": "quick",
        "model": "xgboost",
        "score": "aps",
        "metric": "disparate_impact",
    }
    common |= {"efficiency": 2.2, "coverage": 0.9}
    disparities = {"fixed label": 0.4, "true label": 0.9} | {
        k.replace("_", " "): v for k, v in disparities.items()
    }
    return pd.DataFrame(
        common
        | {
            "arm": arm,
            "scored_on": scored,
            "split": split,
            "disparity": value + (arm != "batch_gcp"),
        }
        for (scored, value), split, arm in itertools.product(
            disparities.items(), range(2), ("batch_gcp", "base", "cf")
        )
    )


def one(card, **place):
    """The row of the card at a place."""
    chosen = card[
        np.logical_and.reduce([card[name] == value for name, value in place.items()])
    ]
    assert len(chosen) == 1, place
    return chosen.iloc[0]


CREDIT = {"id": "Tab 3", "dataset": "credit", "score": "aps"}


# what is on the card


def test_there_is_one_row_for_each_of_the_402_numbers_in_their_order(reported):
    for rows in (
        NOTHING,
        tidy(),
        like_the_paper(reported, "tab:credit_di_all").sample(frac=1, random_state=0),
    ):
        card = scorecard.scorecard(reported, rows, NOTHING)
        assert (
            len(card) == 402
            and card[PLACE].equals(reported[PLACE])
            and card["paper"].equals(reported["value"])
        )


def test_every_number_names_its_table_and_the_notebook_that_makes_it(reported):
    card = scorecard.scorecard(reported, NOTHING, NOTHING)
    named = card.groupby("id")[["dataset", "notebook"]].agg(
        lambda found: " ".join(map(str, sorted(set(found))))
    )
    assert named.T.to_dict("list") == {
        "Tab 3": ["acs_income credit", "10"],
        "Tab 4": ["acs_education", "11"],
        "Tab E1": ["acs_education", "10"],
        "Tab E2": ["acs_income", "10"],
        "Tab E3": ["credit", "10"],
        "Tab E4": ["pokec_n", "10"],
        "Tab E5": ["pokec_z", "10"],
        "Tab E6": ["acs_education acs_income", "12"],
    }


def test_ours_is_the_mean_over_splits_of_the_papers_rule_with_its_sd(reported):
    efficiencies = [2.4, 2.5, 2.9]
    rows = pd.concat(
        [
            tidy(efficiency=efficiencies, base_efficiency=[2.0, 2.1, 2.2], splits=3),
            tidy(
                guarantee="fixed-sequence", efficiency=4.0, base_efficiency=4.0, splits=9
            ),
            tidy(classwise=False, efficiency=3.0),
            tidy(metric="demographic_parity", c=0.2, efficiency=3.5),
        ]
    )
    card = scorecard.scorecard(reported, rows, NOTHING)
    cf = one(card, **CREDIT, arm="cf", quantity="efficiency")
    assert (cf["ours"], cf["sd"], cf["splits"]) == (
        2.6,
        pytest.approx(np.std(efficiencies, ddof=1), abs=1e-6),
        3,
    )
    assert one(card, **CREDIT, arm="base", quantity="efficiency")[
        "ours"
    ] == pytest.approx(2.1)
    assert (
        one(
            card,
            id="Tab E3",
            classwise=False,
            score="aps",
            arm="cf",
            quantity="efficiency",
        )["ours"]
        == 3.0
    )
    assert (card["ours"].notna() == (card["splits"] > 0)).all() and card[
        "ours"
    ].notna().sum() == 12


# the words


def test_without_rows_nothing_was_run(reported):
    card = scorecard.scorecard(reported, NOTHING, NOTHING)
    assert (card["status"] == "not run").all()
    assert card["reason"].str.contains("make paper makes them").all()
    empty = ["ours", "sd", "difference", "low", "high", "source", "data", "records"]
    assert card[empty].isna().all(axis=None)


def test_the_interval_is_students_for_one_more_mean():
    """By hand: mean 2.1, sd .1, t(.975, 2) = 4.302653."""
    low, high = judging.prediction_interval([2.0, 2.1, 2.2])
    half = 4.302653 * 0.1 * (1 + 1 / 3) ** 0.5
    assert (low, high) == (pytest.approx(2.1 - half), pytest.approx(2.1 + half))
    assert np.isnan(judging.prediction_interval([2.0, 2.1])).all()
    with pytest.raises(ValueError, match="means: "):
        judging.prediction_interval([2.0, np.nan])


def test_the_interval_holds_one_more_mean_as_often_as_it_says():
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(4000):
        *means, one_more = rng.normal(2.3, 0.05, 6)
        low, high = judging.prediction_interval(means)
        inside.append(low <= one_more <= high)
    assert abs(np.mean(inside) - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 4000)


def test_numbers_inside_a_narrow_interval_match(reported):
    rows = like_the_paper(reported, "tab:credit_di_all")
    card = judged(reported, rows, apart=0.001)
    credit = card[card["dataset"] == "credit"]  # Tab 3 prints Tab E3's classwise half
    assert len(credit) == 60
    width = 2 * 4.968 * 0.001
    np.testing.assert_allclose(credit["high"] - credit["low"], width, atol=1e-5)
    wanted = np.where(credit["effect"] > width, "match", "cannot tell")
    wanted = np.where(credit["score"] == "raps", "untraceable", wanted)
    assert (credit["status"] == wanted).all()
    assert set(wanted) == {"match", "cannot tell", "untraceable"}
    # In print CFGNN is as fair as asked before CF does anything: there is no effect.
    cfgnn = credit[credit["score"] == "cfgnn"]
    assert (cfgnn["effect"] == 0).all() and (cfgnn["status"] == "cannot tell").all()


def test_the_papers_effect_is_its_own_cf_against_its_own_base(reported):
    card = scorecard.scorecard(reported, tidy(), NOTHING)
    for arm in ("base", "cf"):  # in print 2.326 → 2.513, .646 → .821
        efficiency = one(card, **CREDIT, arm=arm, quantity="efficiency")["effect"]
        disparity = one(card, **CREDIT, arm=arm, quantity="disparity")["effect"]
        assert (efficiency, disparity) == (pytest.approx(0.187), pytest.approx(0.175))


@pytest.mark.parametrize(
    ("shift", "word"),
    [
        (0.0496, "match"),
        (-0.0496, "match"),
        (0.0498, "close"),
        (-0.0498, "differs"),
    ],
)
def test_the_edges_of_the_interval_decide(reported, shift, word):
    rows = tidy(disparity=0.821 + shift, base_disparity=0.646)
    assert 0.8 - judging.TIE > 0.821 - 0.0498  # so that less is on the other side of c
    found = one(judged(reported, rows), **CREDIT, arm="cf", quantity="disparity")
    assert found["status"] == word
    assert found["inside"] == (word == "match")


def test_inside_an_interval_wider_than_the_effect_nothing_is_proved(reported):
    """The paper's effect on APS is .187 labels; an interval of .2 holds both numbers."""
    rows = tidy(efficiency=2.5, base_efficiency=2.4)
    place = CREDIT | {"arm": "cf", "quantity": "efficiency"}
    for apart, word in ((0.018, "match"), (0.0195, "cannot tell")):
        found = one(judged(reported, rows, apart), **place)
        assert found["status"] == word
    assert found["reason"] == "the interval is wider than the paper's own effect"


def test_outside_of_a_wide_interval_a_number_still_differs(reported):
    rows = tidy(efficiency=4.0, base_efficiency=2.4, disparity=0.5)
    found = one(judged(reported, rows, 0.1), **CREDIT, arm="cf", quantity="efficiency")
    assert found["high"] - found["low"] > found["effect"]
    assert found["status"] == "differs"


@pytest.mark.parametrize("m", [0, 1, 2])
def test_fewer_than_three_training_splits_cannot_tell(reported, m):
    rows = tidy()
    others = training(rows, m=m) if m else NOTHING
    card = scorecard.scorecard(reported, rows, NOTHING, others)
    found = one(card, **CREDIT, arm="cf", quantity="efficiency")
    assert found["status"] == "cannot tell" and found["training_splits"] == m
    assert found["reason"] == "too few training splits for an interval"


@pytest.mark.parametrize(
    ("quantity", "ours", "within"),
    [
        ("efficiency", 2.513 * 1.0499, True),
        ("efficiency", 2.513 * 1.0501, False),
        ("disparity", 0.771, True),
        ("disparity", 0.7709, False),
    ],
)
def test_the_older_rule_stands_beside(reported, quantity, ours, within):
    card = scorecard.scorecard(reported, tidy(**{quantity: ours}), NOTHING)
    found = one(card, **CREDIT, arm="cf", quantity=quantity)
    assert found["within_tolerance"] == within
    wanted = 0.05 * 2.513 if quantity == "efficiency" else 0.05
    assert found["tolerance"] == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("why", "rows", "word"),
    [
        (
            "the same side of c, and above the base as in print",
            {"disparity": 0.9, "base_disparity": 0.6},
            "close",
        ),
        (
            "beyond c, where the paper is not",
            {"disparity": 0.7, "base_disparity": 0.6},
            "differs",
        ),
        (
            "below the base, where the paper is above it",
            {"disparity": 0.9, "base_disparity": 0.95},
            "differs",
        ),
        (
            "as good as equal to the base",
            {"disparity": 0.9, "base_disparity": 0.896},
            "differs",
        ),
        (
            "above the base by more than a tie",
            {"disparity": 0.9, "base_disparity": 0.894},
            "close",
        ),
    ],
)
def test_outside_of_the_interval_the_conclusion_decides(reported, why, rows, word):
    card = judged(reported, tidy(**rows), apart=0.001)
    found = one(card, **CREDIT, arm="cf", quantity="disparity")
    assert found["status"] == word and found["reason"] == "unexplained", why


def test_the_base_is_compared_with_cf(reported):
    place = CREDIT | {"arm": "base", "quantity": "disparity"}
    for disparity, word in (
        (0.75, "close"),
        (0.71, "differs"),
        (0.703, "differs"),
    ):  # print: base .646, CF .821
        rows = tidy(base_disparity=0.705, disparity=disparity)
        card = judged(reported, rows, apart=0.001)
        assert one(card, **place)["status"] == word


def test_a_mean_at_c_but_for_a_tie_is_not_beyond_it(reported):
    """CF's disparity lies at c by construction: its third digit is no conclusion."""
    place = CREDIT | {"arm": "cf", "quantity": "efficiency"}
    for disparity, word in ((0.796, "close"), (0.794, "differs")):
        rows = tidy(efficiency=2.7, disparity=disparity)
        assert one(judged(reported, rows, 0.001), **place)["status"] == word


def test_an_efficiency_is_close_by_its_arms_side_of_c_and_its_order_with_the_base(
    reported,
):
    place = CREDIT | {"arm": "cf", "quantity": "efficiency"}
    cases = {"close": {}, "differs": {"disparity": 0.7}}
    for word, change in cases.items():
        rows = tidy(**{"efficiency": 2.9, "disparity": 0.82} | change)
        assert one(judged(reported, rows), **place)["status"] == word
    rows = tidy(efficiency=2.9, base_efficiency=3.0, disparity=0.82)
    assert one(judged(reported, rows), **place)["status"] == "differs"


def test_a_difference_is_beyond_c_from_above_and_a_ratio_from_below(reported):
    proxy = {
        "dataset": "acs_education",
        "attribute": "race",
        "metric": "predictive_parity_proxy",
        "classwise": False,
        "base_disparity": 0.4,
    }
    place = {
        "id": "Tab 4",
        "score": "aps",
        "c": "0.1",
        "arm": "cf",
        "quantity": "disparity",
    }
    for disparity, word in ((0.02, "close"), (0.2, "differs")):
        parts = []
        for c in (0.05, 0.1, 0.15, 0.2):
            parts.append(tidy(**proxy, c=c, disparity=disparity))
        card = judged(reported, pd.concat(parts), apart=0.001)
        assert one(card, **place)["status"] == word


def test_other_records_stand_beside_the_paper_without_a_judgement(reported):
    rows = like_the_paper(reported, "tab:acsincome_di_all", data="other")
    rows = rows.assign(records="real, ACS 2024")
    card = judged(reported, rows).query("id == 'Tab E2' and score != 'raps'")
    assert (card["status"] == "other records").all()
    np.testing.assert_allclose(card["difference"], 0, atol=1e-6)
    assert (card["records"] == "real, ACS 2024").all()
    assert (card["reason"] == "would be within the interval").all()
    far = rows.assign(efficiency=rows["efficiency"] + 1)
    card = judged(reported, far).query("id == 'Tab E2' and score != 'raps'")
    moved = (card["arm"] == "cf") & (card["quantity"] == "efficiency")
    assert (card["reason"] == "would be outside the interval").equals(moved)


def test_simulated_numbers_are_shown_and_never_compared(reported):
    rows = pd.concat(
        like_the_paper(reported, table, data="simulated")
        for table in list(TABLES)
        if "di_all" in table
    )
    card = scorecard.scorecard(reported, rows, batch(data="simulated"))
    simulated = card[card["data"] == "simulated"]
    assert (
        len(simulated) > 300
        and (simulated["status"] == "simulated").all()
        and simulated["ours"].notna().all()
    )
    assert simulated[["difference", "low", "high", "inside"]].isna().all(axis=None)
    assert set(card["status"]) == {"simulated", "not run"}


def test_every_word_can_be_had_and_no_other(reported):
    rows = [
        like_the_paper(reported, "tab:credit_di_all"),
        tidy("acs_income", "race", data="other"),
        tidy("pokec_n", "gender", data="simulated"),
        tidy("pokec_n", "region", "tps", disparity=0.9),
        tidy("pokec_n", "region", "aps", disparity=0.7),
    ]
    card = judged(reported, pd.concat(rows), apart=0.001)
    assert set(card["status"]) == set(STATUSES)
    counts = scorecard.summary(card)
    assert list(counts.columns) == list(STATUSES)
    assert list(counts.index) == sorted(set(card["id"]))
    assert counts.to_numpy().sum() == 402 and counts.loc["Tab E3", "untraceable"] == 8
    assert counts.loc["Tab E5", "not run"] == 120


def test_a_number_that_is_printed_twice_is_one_measurement(reported):
    """Tab 3 repeats half of Tab E3, whose two halves have the same base."""
    rows = like_the_paper(reported, "tab:credit_di_all")
    card = judged(reported, rows).query("dataset == 'credit'")
    place = ["score", "arm", "quantity"]
    for key, cells in card.groupby([*place, "paper", "ours"]):
        assert cells["measurement"].nunique() == 1, key
    assert card["measurement"].nunique() < len(card) / 2
    distinct = scorecard.summary(card, distinct=True)
    assert distinct.to_numpy().sum() == card["measurement"].nunique()
    other = rows.assign(efficiency=rows["efficiency"].where(rows["classwise"], 3.0))
    apart = judged(reported, other).query("dataset == 'credit'")
    assert apart["measurement"].nunique() >= card["measurement"].nunique()


# which rows are taken


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ({"data": "other", "splits": 2}, {"data": "simulated", "splits": 10}),
        ({"data": "the paper's", "splits": 2}, {"data": "other", "splits": 10}),
        (
            {"data": "other", "splits": 10, "profile": "paper"},
            {"data": "other", "splits": 3},
        ),
        (
            {"data": "other", "splits": 3},
            {"data": "other", "splits": 3, "profile": "paper"},
        ),
    ],
    ids=[
        "real before simulated",
        "the paper's before other",
        "more splits before fewer",
        "quick before paper",
    ],
)
def test_of_several_runs_one_is_taken_whole(reported, better, worse):
    found = [tidy(efficiency=2.5, **better), tidy(efficiency=3.0, **worse)]
    for rows in (found, found[::-1]):
        cf = one(
            scorecard.scorecard(reported, pd.concat(rows), NOTHING),
            **CREDIT,
            arm="cf",
            quantity="efficiency",
        )
        assert (
            cf["ours"] == 2.5
            and cf["splits"] == better["splits"]
            and cf["data"] == better["data"]
        )


def test_two_base_models_are_not_averaged(reported):
    rows = pd.concat(
        [tidy(model="gcn", efficiency=2.0), tidy(model="sage", efficiency=3.0, splits=3)]
    )
    cf = one(
        scorecard.scorecard(reported, rows, NOTHING),
        **CREDIT,
        arm="cf",
        quantity="efficiency",
    )
    assert (cf["ours"], cf["splits"]) == (3.0, 3)


def test_tab_4_takes_disparities_of_a_single_threshold_and_efficiencies_of_classwise_ones(
    reported,
):
    common = {
        "dataset": "acs_education",
        "attribute": "race",
        "data": "other",
        "metric": "predictive_parity_proxy",
    }
    rows = pd.concat(
        tidy(
            **common,
            c=c,
            classwise=classwise,
            disparity=c + classwise,
            efficiency=c + 3 + classwise,
        )
        for c, classwise in itertools.product((0.05, 0.1, 0.15, 0.2), (False, True))
    )
    card = scorecard.scorecard(reported, rows, NOTHING).query(
        "id == 'Tab 4' and score == 'aps' and arm == 'cf'"
    )
    c = card["c"].astype(float)
    assert (
        np.allclose(card["ours"], np.where(card["quantity"] == "efficiency", c + 4, c))
        and len(card) == 8
    )
    assert (
        card["reason"]
        .str.contains(
            "single λ beside classwise efficiencies; ours likewise (erratum 4)",
            regex=False,
        )
        .all()
    )


def test_the_base_of_tab_4_is_an_average_over_c_and_needs_all_four(reported):
    values = {0.05: [0.1, 0.3], 0.1: [0.2, 0.4], 0.15: [0.3, 0.5], 0.2: [0.6, 0.8]}
    common = {
        "dataset": "acs_education",
        "attribute": "race",
        "data": "other",
        "metric": "predictive_parity_proxy",
    }
    parts = [
        tidy(**common, c=c, classwise=False, base_disparity=value)
        for c, value in values.items()
    ]
    place = {"id": "Tab 4", "score": "aps", "c": "avg", "quantity": "disparity"}
    base = one(scorecard.scorecard(reported, pd.concat(parts), NOTHING), **place)
    assert (base["ours"], base["splits"]) == (0.4, 2) and base["sd"] == pytest.approx(
        np.std([0.3, 0.5], ddof=1), abs=1e-6
    )
    base = one(scorecard.scorecard(reported, pd.concat(parts[1:]), NOTHING), **place)
    assert base["status"] == "not run"


def test_batch_gcp_is_scored_as_cf_is_and_the_other_score_is_told(reported):
    card = scorecard.scorecard(
        reported, NOTHING, batch(fixed_label=0.4, true_label=0.912)
    )
    gcp = (
        card[card["arm"] == "batch_gcp"]
        .query("dataset == 'acs_income'")
        .set_index("quantity")
    )
    assert (
        gcp["ours"].to_dict() == {"disparity": 0.4, "efficiency": 2.2}
        and (gcp["splits"] == 2).all()
    )
    assert gcp["reason"].str.contains("on the true label (erratum 8)", regex=False).all()
    assert gcp["reason"].str.contains(
        "(on the true label 0.912)", regex=False
    ).to_dict() == {
        "disparity": True,
        "efficiency": False,
    }
    assert (
        card["status"] != "not run"
    ).sum() == 2  # base and CF come from the tidy rows alone


# reasons


def test_what_is_known_of_a_number_is_said_where_it_applies_and_nowhere_else(reported):
    rows = like_the_paper(reported, "tab:credit_di_all", base_disparity=1.2)
    card = judged(reported, rows)
    reasons = card["reason"]
    assert reasons.str.contains("erratum 7").equals(card["status"] == "untraceable")
    assert reasons.str.contains("erratum 8").equals(card["arm"] == "batch_gcp")
    is_mixed = (card["id"] == "Tab 4") & (card["arm"] == "cf")
    assert reasons.str.contains("erratum 4").equals(is_mixed)
    assert reasons.str.contains("erratum 10").equals(card["dataset"] == "pokec_z")
    is_open = card["status"].isin(["close", "differs"])
    assert is_open.any()
    assert reasons.str.contains("unexplained").equals(is_open)


def errata_row(score="daps", **changes):
    """A line of results/errata.csv: a number of Tab 3 without and with an erratum."""
    line = {
        "erratum": "composed_tuning",
        "score": score,
        "arm": "cf",
        "metric": "disparate_impact",
        "c": 0.8,
        "classwise": True,
        "quantity": "efficiency",
        "before": 2.365,
        "after": 2.454,
        "row": f"composed_tuning/{score}",
        "with_low": np.nan,
        "with_high": np.nan,
    }
    return pd.DataFrame([line | changes])


def test_a_reason_cites_the_run_that_shows_it(reported):
    place = CREDIT | {"score": "daps", "arm": "cf", "quantity": "efficiency"}
    rows = tidy(score="daps", efficiency=2.365, disparity=0.783)  # in print 2.526
    found = one(judged(reported, rows, errata=errata_row()), **place)
    cause = "composed_tuning moves it 2.365 → 2.454 (errata.csv: composed_tuning/daps)"
    assert found["reason"] == cause
    told = {2.6: "to 2.600, holds the paper's", 2.5: "to 2.500, lacks the paper's"}
    for high, words in told.items():
        shown = errata_row(with_low=2.4, with_high=high)
        found = one(judged(reported, rows, errata=shown), **place)
        assert words in found["reason"]
    # What moves a number away from the paper's, or another score's, explains nothing.
    for other in (errata_row(after=2.3), errata_row("tps"), errata_row(arm="base")):
        found = one(judged(reported, rows, errata=other), **place)
        assert found["reason"] == "unexplained"


def test_pokec_z_says_which_numbers_are_pokec_ns_and_what_the_authors_runs_give(reported):
    card = scorecard.scorecard(reported, NOTHING, NOTHING)
    n, z = (
        card.query(f"dataset == '{name}' and attribute == 'gender'").reset_index()
        for name in ("pokec_n", "pokec_z")
    )
    same = z["paper"] == n["paper"]
    assert z[PLACE[3:]].equals(n[PLACE[3:]]) and same.sum() == 12
    assert (
        z["reason"]
        .str.contains("repeats Pokec-n's number (erratum 5)", regex=False)
        .equals(same)
    )
    authors = {
        "aps": ".751 → .790",
        "tps": ".716 → .790",
        "cfgnn": ".682 → .800",
        "daps": ".754 → .797",
    }
    for score, disparities in z[z["quantity"] == "disparity"].groupby("score")["reason"]:
        told = disparities.str.contains(
            f"the authors' runs give {authors.get(score, '')}", regex=False
        )
        assert told.all() == (score in authors) and len(told) == 4
    others = card[~((card["dataset"] == "pokec_z") & (card["attribute"] == "gender"))]
    assert not others["reason"].str.contains("erratum 5").any()


def test_the_errata_have_a_price_too(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    assert scorecard.load_errata().empty
    base = errata_row(arm="base", before=2.2, after=2.25, row="of the base")
    lines = pd.concat([errata_row(), base]).drop(columns=["with_low", "with_high"])
    lines.assign(paper=2.5).to_csv(tmp_path / "errata.csv", index=False)
    found = scorecard.load_errata()
    price = found[found["quantity"] == "price"].iloc[0]
    assert price["before"] == pytest.approx(0.165) and price["arm"] == "cf"
    assert price["after"] == pytest.approx(0.204) and price["paper"] == 0
    assert price["row"] == "composed_tuning/daps − of the base"


# what is missing


def test_splits_without_a_number_are_left_out_and_a_number_that_is_undefined_differs(
    reported,
):
    place = CREDIT | {"arm": "cf", "quantity": "disparity"}
    some = one(
        scorecard.scorecard(
            reported, tidy(disparity=[0.8, np.nan, 0.9], splits=3), NOTHING
        ),
        **place,
    )
    assert (some["ours"], some["splits"], some["status"]) == (0.85, 2, "cannot tell")
    none = one(scorecard.scorecard(reported, tidy(disparity=np.nan), NOTHING), **place)
    assert (
        none["splits"] == 0
        and none["status"] == "differs"
        and none["reason"] == "unexplained; ours is undefined on every split"
    )
    assert np.isnan(none["ours"]) and np.isnan(none["difference"])
    equal = CREDIT | {
        "score": "cfgnn",
        "arm": "cf",
        "quantity": "disparity",
    }  # in print, CF is equal to the base
    undefined = tidy(score="cfgnn", disparity=np.nan, base_disparity=np.nan)
    assert (
        one(scorecard.scorecard(reported, undefined, NOTHING), **equal)["status"]
        == "differs"
    )
    for data in ("other", "simulated"):
        shown = one(
            scorecard.scorecard(reported, tidy(disparity=np.nan, data=data), NOTHING),
            **place,
        )
        assert shown["status"] == {"other": "other records"}.get(data, data) and np.isnan(
            shown["difference"]
        )


def test_one_split_has_no_sd(reported):
    found = one(
        scorecard.scorecard(reported, tidy(splits=1), NOTHING),
        **CREDIT,
        arm="cf",
        quantity="disparity",
    )
    assert np.isnan(found["sd"]) and found["splits"] == 1


def test_unknown_tables_and_data_are_told(reported):
    with pytest.raises(
        ValueError,
        match="reported: found the table 'tab:other'; wanted some of tab:disparate",
    ):
        scorecard.scorecard(
            reported.replace("tab:disparate_impact", "tab:other"), NOTHING, NOTHING
        )
    with pytest.raises(
        ValueError,
        match="rows: found the data 'real'; wanted one of the paper's, other, former",
    ):
        scorecard.scorecard(reported, tidy().assign(data="real"), NOTHING)


def test_a_former_model_is_compared_with_nothing_and_its_number_is_told(reported):
    former = like_the_paper(reported, "tab:pokec_n_di_all", "former model")
    simulated = like_the_paper(reported, "tab:pokec_n_di_all", "simulated")
    rows = pd.concat([former, simulated])
    card = scorecard.scorecard(reported, rows, NOTHING)
    own = card[card["table"] == "tab:pokec_n_di_all"]
    assert set(own["status"]) == {"not run"}
    assert own[["ours", "sd", "difference", "low", "high"]].isna().all(axis=None)
    assert (own["splits"] == 0).all()
    first = own.iloc[0]
    told = f"the present model was not run; a former one gave {first['paper']:.3f}"
    assert first["reason"].startswith(told)
    assert "former" not in card


def test_runs_are_read_from_every_profile_as_far_as_they_were_made(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    assert [len(found) for found in scorecard.load()] == [0, 0]
    for profile in ("quick", "paper"):
        (tmp_path / "runs" / profile).mkdir(parents=True)
    tidy().to_parquet(tmp_path / "runs" / "quick" / "credit_age.parquet")
    tidy(splits=3).to_parquet(tmp_path / "runs" / "paper" / "credit_age.parquet")
    tidy().to_parquet(tmp_path / "runs" / "paper" / ".credit_age.1.partial.parquet")
    assert [len(found) for found in scorecard.load()] == [5, 0]
    batch().to_parquet(tmp_path / "runs" / "quick" / "batch_gcp_acs_income.parquet")
    rows, batch_rows = scorecard.load()
    assert (
        (len(rows), len(batch_rows)) == (5, 12)
        and rows.index.is_unique
        and batch_rows.index.is_unique
    )


# what is committed


def test_the_card_is_written_whole_and_read_back_the_same(
    reported, tmp_path, monkeypatch
):
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    card = scorecard.scorecard(reported, tidy(), batch())
    assert scorecard.write(card) == tmp_path / "scorecard.csv" and [
        *tmp_path.iterdir()
    ] == [tmp_path / "scorecard.csv"]
    pd.testing.assert_frame_equal(read(tmp_path / "scorecard.csv"), comparable(card))
    monkeypatch.setattr(pd.DataFrame, "to_csv", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        scorecard.write(card.head(3))
    assert len(read(tmp_path / "scorecard.csv")) == 402


def read(path):
    return comparable(pd.read_csv(path, dtype={"c": str}))


def comparable(card):
    """Texts as plain strings, empty where they are missing; truth values too."""
    texts = ["source", "data", "records", "profile", "model", "reason"]
    texts += ["inside", "within_tolerance"]
    texts = [name for name in texts if name in card]
    return card.assign(
        **card[texts].astype(object).fillna("").astype(str),
        c=card["c"].astype(str),
    )


def test_the_committed_card_is_what_the_committed_rows_give(root, reported):
    rows, batch_rows = scorecard.load()
    others = experiments.load_training_rows()
    errata = scorecard.load_errata()
    again = scorecard.scorecard(reported, rows, batch_rows, others, errata)
    bars = scorecard.bars(rows, others, errata=errata)
    for name, made in (("scorecard", again), ("bars", bars)):
        pd.testing.assert_frame_equal(
            read(root / "results" / f"{name}.csv"), comparable(made), atol=1e-5, rtol=0
        )


def test_no_number_of_the_paper_stands_beside_simulated_records(root):
    card = read(root / "results" / "scorecard.csv")
    assert "simulated" not in set(card["status"]) and "simulated" not in set(card["data"])


# bars, prices and placebos


def stored(**values):
    """One setting of the authors' summary."""
    setting = {
        "dataset": "credit",
        "attribute": "age",
        "classwise": True,
        "score": "aps",
        "metric": "demographic_parity",
        "c": 0.1,
        "efficiency": 2.6,
        "disparity": 0.1,
        "base_efficiency": 2.3,
        "base_disparity": 0.2,
    }
    return pd.DataFrame([setting | values])


DP = {"metric": "demographic_parity", "c": 0.1, "disparity": 0.1, "base_disparity": 0.2}


def test_a_bar_gets_three_words_and_the_price_keeps_its_sign():
    rows = tidy(**DP, efficiency=2.6, base_efficiency=2.5)
    card = scorecard.bars(rows, training(rows, 0.001), stored())
    words = card.set_index("quantity")["status"].to_dict()
    assert words == {"efficiency": "match", "disparity": "match", "price": "close"}
    price = one(card, quantity="price")
    assert (price["paper"], price["ours"]) == (pytest.approx(0.3), pytest.approx(0.1))
    dearer = tidy(**DP, efficiency=2.6, base_efficiency=2.7)
    card = scorecard.bars(dearer, training(dearer, 0.001), stored())
    assert one(card, quantity="price")["status"] == "differs"


def test_an_effect_is_that_of_the_same_c():
    """The authors' base is not the same for every c; a mean over c is another effect."""
    heights = pd.concat(
        [stored(base_efficiency=2.5), stored(c=0.2, base_efficiency=2.1, efficiency=2.2)]
    )
    card = scorecard.bars(NOTHING, NOTHING, heights)
    sizes = card[card["quantity"] == "efficiency"].set_index("c")["effect"]
    assert sizes.round(6).to_dict() == {0.1: 0.1, 0.2: 0.1}


def test_an_interval_of_other_records_or_another_model_is_not_taken():
    rows = tidy(**DP, efficiency=2.6, base_efficiency=2.3)
    for change in ({"data": "other"}, {"model": "gcn"}):
        others = training(rows, 0.001).assign(**change)
        card = scorecard.bars(rows, others, stored())
        assert card["low"].isna().all() and (card["status"] == "cannot tell").all()


def test_the_price_has_its_own_interval():
    """Models that are larger in both arms alike have one price."""
    rows = tidy(**DP, efficiency=2.6, base_efficiency=2.3)
    card = scorecard.bars(rows, training(rows, 0.05), stored())
    words = card.set_index("quantity")["status"].to_dict()
    assert words["efficiency"] == "cannot tell" and words["price"] == "match"


def test_the_prices_of_the_tables_are_cf_minus_base(reported):
    rows = like_the_paper(reported, "tab:credit_di_all")
    card = scorecard.prices(reported, rows, training(rows, 0.001))
    aps = card.query("table == 'tab:credit_di_all' and score == 'aps' and classwise")
    assert len(aps) == 1  # in print 2.325 → 2.513
    assert (aps["paper"] - 0.188).abs().max() < 1e-9 and (aps["status"] == "match").all()
    is_cf = (reported["arm"] == "cf") & (reported["quantity"] == "efficiency")
    assert len(card) == is_cf.sum()


def test_a_placebo_counts_how_often_another_score_would_match():
    """TPS lies where the paper's APS does; DAPS is far away."""
    rows = []
    for score, efficiency in (("aps", 2.6), ("tps", 2.6), ("daps", 3.5)):
        rows.append(tidy(score=score, **DP, efficiency=efficiency, base_efficiency=2.3))
    rows = pd.concat(rows)
    others = training(rows, 0.001)
    card = scorecard.bars(rows, others, stored())
    table = scorecard.placebo(card, others)
    sizes = table.loc[("cf", "efficiency")]
    assert sizes["pairs"].to_dict() == {"another score": 2, "own": 1}
    assert sizes["interval"].to_dict() == {"another score": 0.5, "own": 1.0}
    assert sizes["tolerance"].to_dict() == {"another score": 0.5, "own": 1.0}


def test_a_placebo_counts_simulated_records_with_the_width_of_real_ones():
    real = tidy(**DP, data="other", efficiency=2.6, base_efficiency=2.3)
    for efficiency, share in ((2.603, 1.0), (2.61, 0.0)):
        made_up = tidy(**DP, data="simulated", efficiency=efficiency, base_efficiency=2.3)
        others = training(real, 0.001)
        rows = pd.concat([real, made_up])
        card = scorecard.bars(rows, others, stored())
        table = scorecard.simulated_placebo(card, rows, others)
        sizes = table.loc[("cf", "efficiency")]["interval"]
        assert sizes.to_dict() == {"own": 1.0, "simulated records": share}


def test_the_summary_of_the_authors_runs_gives_160_bars_on_credit():
    heights = authors.runs()
    card = scorecard.bars(NOTHING, NOTHING)
    assert len(card) == 3 * len(heights)
    credit = card[(card["dataset"] == "credit") & (card["quantity"] == "efficiency")]
    assert len(credit) == 160 and (card["status"] == "not run").all()

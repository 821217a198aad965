"""The audit of prediction sets: counts, intervals, verdicts, and points needed."""

import itertools
import math
import time
from collections import Counter

import check_audit
import numpy as np
import oracle
import oracle_staircase
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

import cfhelpers
from cfhelpers import scores
from cfhelpers.auditing import audit
from cfhelpers.auditing.verdicts import with_more_points
from cfhelpers.control import MANY
from cfhelpers.datasets.populations import nine_groups, two_groups
from cfhelpers.fairness import METRICS, FairnessMetric, disparity
from cfhelpers.metrics import LABEL_METRICS

NAMES = sorted(METRICS)
PROXY = "predictive_parity_proxy"
shapes = st.tuples(
    st.integers(2, 60),
    st.integers(2, 4),
    st.integers(2, 3),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)


def draw(n, n_classes, n_groups, chosen, seed):
    rng = np.random.default_rng(seed)
    y, g = rng.integers(0, n_classes, n), rng.integers(0, n_groups, n)
    g[:2] = 0, 1
    _, g = np.unique(g, return_inverse=True)
    sets = rng.random((n, n_classes)) < rng.choice(
        [0, 0.3, 0.5, 0.8, 1], p=[0.05, 0.3, 0.3, 0.3, 0.05]
    )
    positive = (
        sorted(
            rng.choice(n_classes, rng.integers(1, n_classes + 1), replace=False).tolist()
        )
        if chosen
        else None
    )
    if rng.random() < 0.4:  # one group is far from the others
        sets[g == 0] = rng.random() < 0.5
    return sets, y, g, positive


def bounds(k, n, level):
    lower = 0.0 if k == 0 else stats.beta.ppf(level, k, n - k + 1)
    upper = 1.0 if k == n else stats.beta.ppf(1 - level, k + 1, n - k)
    return lower, upper


def families(sets, y, g, name, labels):
    """Per label and filter, for every group: points covered, points, and the prior's."""
    groups = range(g.max() + 1)
    for label in labels if name != oracle.OVERALL else [None]:
        held = sets[np.arange(len(y)), y] if label is None else sets[:, label]
        if name in oracle.PREDICTIVE:
            true, cells = y == label, [g == a for a in groups]
            yield (
                label,
                [
                    ((held & true & c).sum(), (held & c).sum(), (true & c).sum(), c.sum())
                    for c in cells
                ],
            )
        else:
            for keep in oracle.FILTERS[name]:
                cells = [keep(y, g, a, label) for a in groups]
                yield label, [((held & cell).sum(), cell.sum()) for cell in cells]


def interval(cell, level, name):
    """Bounds of one cell: the proxy halves the levels, as its bounds rest on two each."""
    if name != PROXY:
        return bounds(*cell[:2], level)
    (low, high), (least, most) = (
        bounds(*cell[:2], level / 2),
        bounds(*cell[2:], level / 2),
    )
    return low - most, high - least


def loss_of(high, low, name):
    """The difference, or the ratio with its sign turned."""
    if not METRICS[name].is_ratio:
        return high - low
    return -low / high if high > 0 else -1.0


def far_loss(cells, level, name):
    """The worst of all two different groups, every bound at this level."""
    ends = [interval(cell, level, name) for cell in cells]
    return max(loss_of(a[1], b[0], name) for a, b in itertools.permutations(ends, 2))


def near_loss(cells, level, name):
    """The same from the inside; a cell without points may be anywhere."""
    ends = []
    for cell in cells:
        if cell[1] > 0:
            ends.append(interval(cell, level, name))
        else:
            ends.append((-1.0, 1.0) if name == PROXY else (0.0, 1.0))
    return max(loss_of(a[0], b[1], name) for a, b in itertools.permutations(ends, 2))


def test_loss(cells, gamma, name):
    """By the staircase, for the proxy by bounds; without points nothing is known."""
    if any(cell[1] == 0 for cell in cells):
        return math.inf
    if name == PROXY:
        return far_loss(cells, gamma / 2, name)
    hits = [int(cell[0]) for cell in cells]
    sizes = [int(cell[1]) for cell in cells]
    return oracle_staircase.loss(hits, sizes, gamma, METRICS[name].is_ratio)


test_loss.__test__ = False


def by_hand(sets, y, g, name, labels, gamma, closeness):
    """Both ends, the verdict, and the cells: label, group, count, coverage, its ends."""
    found = list(families(sets, y, g, name, labels))
    n_cells = sum(len(cells) for _, cells in found)
    no_loss = METRICS[name].no_loss
    table = []
    for label, cells in found:
        for a, cell in enumerate(cells):
            value = math.nan
            if cell[1] > 0:
                value = cell[0] / cell[1] - (cell[2] / cell[3] if name == PROXY else 0)
            table.append((label, a, cell[1], value, *interval(cell, gamma / 2, name)))
    every = [cells for _, cells in found]
    far = max(far_loss(cells, gamma / 4, name) for cells in every)
    near = max(near_loss(cells, gamma / (4 * n_cells), name) for cells in every)
    surest = max(near_loss(cells, gamma / (2 * n_cells), name) for cells in every)
    worst = max(test_loss(cells, gamma, name) for cells in every)
    limit = METRICS[name].closeness(closeness) + 1e-12
    verdict = "cannot tell"
    if worst <= limit:
        verdict = "within"
    if surest > limit:
        verdict = "beyond"
    ends = sorted(METRICS[name].closeness(loss) for loss in (max(near, no_loss), far))
    return ends, verdict, table


@pytest.mark.slow
@pytest.mark.parametrize("name", LABEL_METRICS)
def test_counts_coverages_and_intervals_are_those_of_the_definition(name):
    tally = Counter()

    @settings(max_examples=150, deadline=None, derandomize=True, database=None)
    @given(
        shape=shapes,
        confidence=st.sampled_from([0.5, 0.9, 0.95]),
        closeness=st.sampled_from([None, 0.6, 0.99]),
    )
    # Large enough for "within", which random draws of up to 60 points seldom are.
    @example(shape=(4000, 2, 2, False, 1), confidence=0.5, closeness=None)
    @example(shape=(4000, 2, 2, False, 2), confidence=0.5, closeness=None)
    @example(shape=(4000, 2, 2, False, 3), confidence=0.5, closeness=None)
    @example(shape=(4000, 2, 2, False, 4), confidence=0.5, closeness=None)
    @example(shape=(4000, 2, 2, False, 5), confidence=0.5, closeness=None)
    @example(shape=(4000, 2, 2, False, 6), confidence=0.5, closeness=None)
    def run(shape, confidence, closeness):
        sets, y, g, positive = draw(*shape)
        labels = list(range(1, sets.shape[1])) if positive is None else positive
        found = audit(
            sets, y, g, name, closeness, confidence=confidence, positive_labels=positive
        )
        row = found.disparities.loc[name]
        ends, verdict, table = by_hand(
            sets, y, g, name, labels, 1 - confidence, row["closeness"]
        )
        assert (row["lower"], row["upper"]) == pytest.approx(ends, abs=1e-9)
        assert row["disparity"] == pytest.approx(
            oracle.disparity(sets, y, g, oracle.metric(name), labels),
            abs=1e-12,
            nan_ok=True,
        )
        assert found.table["count"].tolist() == [cell[2] for cell in table]
        assert found.table[["coverage", "lower", "upper"]].to_numpy() == pytest.approx(
            np.array([cell[3:] for cell in table]), abs=1e-9, nan_ok=True
        )
        label = ["the true label" if cell[0] is None else cell[0] for cell in table]
        assert found.table["label"].tolist() == label and found.table[
            "group"
        ].tolist() == [cell[1] for cell in table]
        assert row["verdict"] == verdict
        tally[verdict] += 1
        tally["empty"] += (found.table["count"] == 0).any()
        tally["full"] += (found.table["count"] > 0).all()

    run()
    assert tally["full"] >= 10 and (
        tally["empty"] >= 10 or name != "equal_opportunity"
    ), tally
    assert tally["within"] >= 2 and tally["cannot tell"] >= 2, tally
    assert tally["beyond"] >= 1 or METRICS[name].is_predictive, tally


@pytest.mark.parametrize("name", LABEL_METRICS)
def test_groups_that_are_worlds_apart_are_beyond_and_equal_ones_within(name):
    """Sets of group a hold the truth and nothing else, those of group b all but that."""
    groups = np.repeat(["a", "b"], 1000)
    y = np.tile(np.arange(10) > 0, 200).astype(int)
    y[groups == "b"] = np.tile([0, 1], 500)
    is_true = np.eye(2, dtype=bool)[y]
    sets = np.where((groups == "a")[:, None], is_true, ~is_true)
    assert audit(sets, y, groups, name).verdicts == {name: "beyond"}
    y[groups == "b"] = y[groups == "a"]
    assert audit(np.ones_like(sets), y, groups, name).verdicts == {name: "within"}


def test_where_the_disparity_lies():
    """Group a: labels 1 1 0 0, label 1 in the sets of the first three.

    Group b: labels 1 0 0 0, label 1 in the first set only.
    """
    sets = np.zeros((8, 2), bool)
    sets[[0, 1, 2, 4], 1] = True
    found = audit(
        sets,
        [1, 1, 0, 0, 1, 0, 0, 0],
        list("aaaabbbb"),
        ["demographic_parity", "disparate_impact"],
    )
    assert (
        found.disparities[["label", "highest", "lowest"]].to_numpy().tolist()
        == [[1, "a", "b"]] * 2
    )
    assert found.disparities["disparity"].tolist() == [0.5, pytest.approx(1 / 3)]
    assert found.sizes[["count", "mean set size", "coverage"]].to_numpy().tolist() == [
        [4, 0.75, 0.5],
        [4, 0.25, 0.25],
    ]


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(12, 9), (5, 40)])
@pytest.mark.parametrize("name", ["equal_opportunity", "disparate_impact"])
def test_each_end_misses_the_truth_no_more_often_than_half_the_error_exactly(name, sizes):
    """Two groups, one label: the probability of every pair of counts.

    It is summed over the pairs whose interval misses.
    """
    n1, n2 = sizes
    gamma = 0.4
    pairs = list(itertools.product(range(n1 + 1), range(n2 + 1)))
    ends = []
    for k1, k2 in pairs:
        sets = np.ones((n1 + n2, 2), bool)
        sets[:, 1] = np.concatenate([np.arange(n1) < k1, np.arange(n2) < k2])
        found = audit(
            sets,
            np.ones(n1 + n2, int),
            np.repeat([0, 1], sizes),
            name,
            confidence=1 - gamma,
        )
        ends.append(found.disparities.iloc[0][["lower", "upper"]].tolist())
    lower, upper = np.array(ends).T
    k1, k2 = np.array(pairs).T
    worst = 0
    for p1, p2 in itertools.product(np.linspace(0.02, 1, 25), repeat=2):
        truth = min(p1, p2) / max(p1, p2) if METRICS[name].is_ratio else abs(p1 - p2)
        weights = stats.binom.pmf(k1, n1, p1) * stats.binom.pmf(k2, n2, p2)
        misses = (
            weights[lower > truth + 1e-12].sum(),
            weights[upper < truth - 1e-12].sum(),
        )
        worst = max(worst, *misses)
        assert max(misses) <= gamma / 2 + 1e-9
    assert worst > 0.02  # and not by being as wide as can be


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:closeness:UserWarning")
@pytest.mark.parametrize(
    "people, n",
    [(two_groups(), 400), (nine_groups(), 3000)],
    ids=["two groups", "nine groups"],
)
def test_intervals_cover_and_verdicts_err_as_rarely_as_promised(people, n):
    """Draws from a population whose disparities are known, judged by a hard closeness."""
    threshold, gamma, draws = 0.8, 0.5, 120
    truth = people.truth(scores.tps, 1_000_000, np.random.default_rng(1))
    true = {name: truth.disparity(threshold, name) for name in LABEL_METRICS}
    misses, wrong = Counter(), Counter()
    for seed in range(draws):
        probs, y, groups = people.draw(n, np.random.default_rng([2, seed]))
        # A closeness just short of the truth makes "within" wrong, one just beyond it
        # "beyond".
        for side, word in ((-1, "within"), (1, "beyond")):
            hard = {
                c: min(
                    max(v + (-side if c == "disparate_impact" else side) * 1e-4, 1e-4), 1
                )
                for c, v in true.items()
            }
            found = audit(
                scores.tps(probs),
                y,
                groups,
                closeness=hard,
                threshold=threshold,
                confidence=1 - gamma,
            ).disparities
            wrong += Counter(
                {
                    (name, word): int(found["verdict"][name] == word)
                    for name in LABEL_METRICS
                }
            )
        for name, value in true.items():
            misses[name] += (
                not found["lower"][name] - 2e-3 <= value <= found["upper"][name] + 2e-3
            )
    limit = stats.binom.ppf(0.9999, draws, gamma)
    assert max(misses.values()) <= limit, misses
    assert max(wrong.values()) <= limit, wrong


def from_counts(k, n):
    """Sets of which equal opportunity sees k of n covered, arrays (labels, groups)."""
    sets, y, g = [], [], []
    for label, group in np.ndindex(n.shape):
        own = np.zeros((n[label, group], len(n) + 1), bool)
        own[: k[label, group], label + 1] = True
        sets, y, g = (
            [*sets, own],
            [*y, *[label + 1] * len(own)],
            [*g, *[f"g{group}"] * len(own)],
        )
    return np.concatenate(sets), y, g


@pytest.mark.parametrize(
    "rates, verdict",
    [
        ([[0.8, 0.82, 0.79], [0.9, 0.9, 0.88]], "within"),
        ([[0.9, 0.7, 0.8], [0.9, 0.9, 0.88]], "beyond"),
    ],
)
def test_the_points_that_would_settle_it_do_settle_it_and_fewer_do_not(rates, verdict):
    n = np.array([[40, 700, 25], [60, 50, 900]])
    k = np.rint(np.array(rates) * n).astype(int)
    found = audit(*from_counts(k, n), "equal_opportunity")
    assert found.verdicts == {"equal_opportunity": "cannot tell"}
    needed = found.needed
    assert (needed["more"] == needed["wanted"] - needed["count"]).all() and (
        needed["more"] > 0
    ).all()

    def settled(share):
        """Once more, with this share of the points that are said to be missing."""
        more = np.zeros_like(n)
        for row in needed.itertuples():
            more[row.label - 1, int(row.group[1])] = round(share * row.more)
        grown = np.where(more > 0, np.rint(k / n * (n + more)).astype(int), k)
        return audit(*from_counts(grown, n + more), "equal_opportunity").verdicts[
            "equal_opportunity"
        ]

    assert settled(1) == verdict and settled(0.9) == "cannot tell"
    for skipped in range(len(needed)):  # and every cell that is named is needed
        rest = needed.drop(index=needed.index[skipped])
        more = np.zeros_like(n)
        for row in rest.itertuples():
            more[row.label - 1, int(row.group[1])] = row.more
        grown = np.where(more > 0, np.rint(k / n * (n + more)).astype(int), k)
        assert (
            audit(*from_counts(grown, n + more), "equal_opportunity").verdicts[
                "equal_opportunity"
            ]
            == "cannot tell"
        )


@pytest.mark.parametrize("name", NAMES)
def test_what_would_settle_it_is_projected_for_every_metric(name):
    probs, y, groups = two_groups().draw(300, np.random.default_rng(0))
    value = (
        audit(scores.tps(probs), y, groups, name, threshold=0.8)
        .disparities["disparity"]
        .iloc[0]
    )
    allowed = value - 0.02 if name == "disparate_impact" else value + 0.02
    found = audit(scores.tps(probs), y, groups, name, allowed, threshold=0.8)
    assert (
        found.verdicts[name] == "cannot tell"
        and len(found.needed)
        and (found.needed["wanted"] < MANY).all()
    )

    def verdict_with(points):
        return found.judges[name].verdict(with_more_points(found.shares[name], points))

    wanted = int(found.needed["wanted"].iloc[0])
    assert verdict_with(wanted) == "within"
    assert verdict_with(wanted - 1) == "cannot tell"
    assert verdict_with(wanted * 4 // 5) == "cannot tell"


def test_an_empty_cell_makes_within_impossible_and_is_named_as_in_need_of_points():
    n = np.array([[5000, 5000, 0]])
    found = audit(*from_counts(n, n), "equal_opportunity")
    assert (
        found.verdicts["equal_opportunity"] == "within"
    )  # two groups: the third has no points at all
    sets, y, g = from_counts(n, n)
    sets, y, g = (
        np.vstack([sets, np.ones((50, 2), bool)]),
        [*y, *[0] * 50],
        [*g, *["g2"] * 50],
    )
    found = audit(sets, y, g, "equal_opportunity")
    assert found.verdicts["equal_opportunity"] == "cannot tell"
    assert (
        found.disparities["upper"].iloc[0] == 1
        and found.disparities["disparity"].iloc[0] == 0
    )
    assert found.needed[["label", "group", "count"]].to_numpy().tolist() == [[1, "g2", 0]]
    assert "no points of g2, 1" in str(found)


def test_no_number_of_points_tells_when_the_disparity_lies_on_what_is_allowed():
    n = np.array([[40, 40]])
    found = audit(
        *from_counts(np.array([[20, 24]]), n), "equal_opportunity", closeness=0.1
    )
    assert found.verdicts["equal_opportunity"] == "cannot tell" and len(found.needed) == 0
    assert "cannot tell" in str(found)


@pytest.mark.parametrize("absent", [None, math.nan, pd.NA, pd.NaT])
def test_points_without_a_group_are_a_row_of_their_own(absent):
    rng = np.random.default_rng(0)
    sets, y = rng.random((40, 3)) < 0.6, rng.integers(0, 3, 40)
    groups = ["b", "a", absent, "a"] * 10
    for given_as in (groups, pd.Series(groups), pd.DataFrame({"g": groups})):
        found = audit(sets, y, given_as)
        assert found.sizes.index.tolist() == ["a", "b", "missing"] and found.sizes[
            "count"
        ].tolist() == [20, 10, 10]
        assert set(found.table["group"]) == {"a", "b", "missing"}
        named = audit(sets, y, ["b", "a", "missing", "a"] * 10)
        pd.testing.assert_frame_equal(found.table, named.table)
        pd.testing.assert_frame_equal(found.disparities, named.disparities)


@pytest.mark.parametrize("as_given", [list, lambda groups: pd.array(groups, "Int64")])
def test_integers_stay_themselves_beside_points_without_a_group(as_given):
    """As floats the last two would be one group."""
    rng = np.random.default_rng(0)
    sets, y = rng.random((40, 3)) < 0.6, rng.integers(0, 3, 40)
    groups = [7, None, 2**53, 2**53 + 1]
    found = audit(sets, y, as_given(groups * 10))
    assert found.sizes.index.tolist() == [7, 2**53, 2**53 + 1, "missing"]
    assert found.sizes["count"].tolist() == [10] * 4
    pairs = [(7, "a"), (7, None), (2**53, "a"), (2**53 + 1, "a")] * 10
    assert len(audit(sets, y, pairs).sizes) == 4


def test_combinations_of_columns_keep_the_points_that_miss_one_of_them():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "sex": rng.choice(["f", "m"], 300),
            "age": rng.choice([20.0, 3.0, math.nan], 300),
        }
    )
    sets, y = rng.random((300, 3)) < 0.6, rng.integers(0, 3, 300)
    found = audit(sets, y, frame)
    assert found.sizes.index.tolist() == [
        (s, a) for s in "fm" for a in (3.0, 20.0, "missing")
    ]  # numbers as numbers
    assert found.sizes["count"].sum() == 300
    joined = frame["sex"] + " " + frame["age"].map({3.0: "1", 20.0: "2"}).fillna("3")
    alone = audit(sets, y, joined)
    assert found.disparities["upper"].tolist() == alone.disparities["upper"].tolist()
    assert found.table["coverage"].tolist() == pytest.approx(
        alone.table["coverage"].tolist(), nan_ok=True
    )


def test_any_number_of_groups_and_labels():
    rng = np.random.default_rng(0)
    sets, y, groups = (
        rng.random((5000, 40)) < 0.5,
        rng.integers(0, 40, 5000),
        rng.integers(0, 150, 5000),
    )
    found = audit(sets, y, groups, ["demographic_parity", "equalized_odds"])
    assert found.table.groupby("metric")["count"].size().tolist() == [
        39 * 150,
        2 * 39 * 150,
    ]
    assert found.disparities["disparity"]["demographic_parity"] == disparity(
        sets, y, groups, "demographic_parity"
    )


def test_labels_go_by_name():
    rng = np.random.default_rng(0)
    sets, y, groups = (
        rng.random((200, 3)) < 0.6,
        rng.integers(0, 3, 200),
        rng.choice(["f", "m"], 200),
    )
    names = ["no", "maybe", "yes"]
    plain = audit(sets, y, groups, positive_labels=[0, 1, 2])
    for found in (
        audit(sets, np.array(names)[y], groups, label_names=names),
        audit(sets, y, groups, label_names=names),
        audit(pd.DataFrame(sets, columns=names), pd.Series(np.array(names)[y]), groups),
    ):
        assert (
            found.table["label"].replace({"no": 0, "maybe": 1, "yes": 2}).tolist()
            == plain.table["label"].tolist()
        )
        assert found.table["coverage"].tolist() == plain.table["coverage"].tolist()
    chosen = audit(
        sets,
        y,
        groups,
        "equal_opportunity",
        label_names=names,
        positive_labels=["no", "yes"],
    )
    assert chosen.table["label"].unique().tolist() == ["no", "yes"]
    shifted = audit(pd.DataFrame(sets, columns=[5, 6, 7]), y + 5, groups)
    assert shifted.table["coverage"].tolist() == plain.table["coverage"].tolist()


def test_labels_with_names_are_all_compared_and_numbers_but_the_first():
    """Which name comes first in the alphabet says nothing about advantage."""

    def compared(columns, **options):
        sets = pd.DataFrame(np.ones((8, len(columns)), bool), columns=columns)
        y = np.array(columns, dtype=object)[np.arange(8) % len(columns)]
        found = audit(sets, y, list("aabbaabb"), "equal_opportunity", **options)
        return found.table["label"].unique().tolist()

    assert compared(["approve", "deny"]) == ["approve", "deny"]
    assert compared([0, 1, 2]) == [1, 2]
    assert compared([2, 0, 1]) == [2, 1]
    assert compared([5, 6]) == [5, 6]
    assert compared([False, True]) == [True]
    assert compared([False, True], positive_labels=[False]) == [False]
    assert compared(["approve", "deny"], positive_labels="deny") == ["deny"]


def test_scores_go_with_a_threshold():
    probs, y, groups = two_groups().draw(500, np.random.default_rng(0))
    values = scores.tps(probs)
    for threshold in (0.8, [0.7, 0.8, 0.9]):
        found, wanted = (
            audit(values, y, groups, threshold=threshold),
            audit(values <= threshold, y, groups),
        )
        pd.testing.assert_frame_equal(found.table, wanted.table)


def test_a_closeness_given_as_a_number_leaves_ratios_alone_beside_differences():
    probs, y, groups = two_groups().draw(500, np.random.default_rng(0))

    def closeness(metrics, value):
        return (
            audit(scores.tps(probs), y, groups, metrics, value, threshold=0.8)
            .disparities["closeness"]
            .tolist()
        )

    both = ["equal_opportunity", "disparate_impact"]
    assert closeness(both, None) == [0.1, 0.8] and closeness(both, 0.2) == [0.2, 0.8]
    assert closeness("disparate_impact", 0.9) == [0.9]
    assert closeness(both, {"disparate_impact": 0.9}) == [0.1, 0.9]


def test_the_users_own_metric_is_audited_too():
    rng = np.random.default_rng(0)
    sets, y, groups = (
        rng.random((300, 3)) < 0.6,
        rng.integers(0, 3, 300),
        rng.integers(0, 3, 300),
    )
    own = FairnessMetric("others", lambda y, g, a, label: (g != a) & (y == label))
    found = audit(sets, y, groups, [own, "equal_opportunity"])
    value = [
        (sets[(groups != a) & (y == label), label]).mean()
        for label in (1, 2)
        for a in range(3)
    ]
    table = found.table[found.table["metric"] == "others"]
    assert table["coverage"].tolist() == pytest.approx(value)
    twin = FairnessMetric("twin", lambda y, g, a, label: (g == a) & (y == label))
    pd.testing.assert_frame_equal(
        audit(sets, y, groups, twin)
        .disparities.reset_index(drop=True)
        .drop(columns="condition"),
        audit(sets, y, groups, "equal_opportunity")
        .disparities.reset_index(drop=True)
        .drop(columns="condition"),
    )


def test_the_users_own_filter_is_asked_about_the_labels_compared_and_no_others():
    rng = np.random.default_rng(0)
    sets = rng.random((60, 3)) < 0.6
    y = rng.integers(0, 3, 60)
    groups = rng.integers(0, 2, 60)
    asked = set()

    def own(y, g, a, label):
        asked.add(label)
        return (g == a) & (y == label)

    audit(sets, y, groups, FairnessMetric("own", own), positive_labels=[2])
    disparity(sets, y, groups, FairnessMetric("own", own), positive_labels=[2])
    assert asked == {2}


def test_cells_that_share_points_are_judged_by_bounds():
    """Everyone but a group: the counts of two groups are not independent."""
    rng = np.random.default_rng(0)
    groups = np.repeat(["a", "b", "c"], 100)
    sets = rng.random((300, 2)) < 0.95
    others = FairnessMetric("others", lambda y, g, a, label: g != a)
    found = audit(sets, np.ones(300, int), groups, [others, "demographic_parity"])
    assert found.judges["others"].is_overlapping
    assert not found.judges["demographic_parity"].is_overlapping
    gamma = 1 - found.confidence
    ends = []
    for name in "abc":
        held = sets[groups != name, 1]
        ends.append(bounds(held.sum(), len(held), gamma / 2))
    worst = max(a[1] - b[0] for a, b in itertools.permutations(ends, 2))
    shares = found.shares["others"]
    assert found.judges["others"].passes(shares).all() == (worst <= 0.1)
    assert shares.test_losses(gamma, True).max() == pytest.approx(worst)
    assert (found.verdicts["others"] == "within") == (worst <= 0.1)


def test_a_declared_group_without_points_blocks_within_and_is_named():
    n = np.array([[5000, 5000]])
    sets, y, g = from_counts(n, n)
    everyone = pd.Categorical(g, categories=["g0", "g1", "g2"])
    metrics = ["demographic_parity", "equal_opportunity", "disparate_impact"]
    found = audit(sets, y, everyone, metrics)
    assert set(found.verdicts.values()) == {"cannot tell"}
    assert str(found).count("no points of g2, 1\n") == len(metrics)
    assert (found.needed["group"] == "g2").all()


def test_a_declared_group_stays_declared_beside_points_without_a_group():
    groups = pd.Categorical(["a", "b", None] * 10, categories=["a", "b", "c"])
    found = audit(np.ones((30, 2), bool), np.ones(30, int), groups)
    counts = {"a": 10, "b": 10, "c": 0, "missing": 10}
    assert found.sizes["count"].to_dict() == counts


@pytest.mark.parametrize("name", NAMES)
def test_a_cell_without_points_never_causes_beyond(name):
    """Group b has no set that holds label 1, or no points at all."""
    y = np.tile([1, 1, 1, 0], 1000)
    groups = np.repeat(["a", "b"], 2000)
    y[groups == "b"] = 1
    sets = np.ones((4000, 2), bool)
    sets[groups == "b", 1] = False
    sets[(groups == "a") & (y == 0), 1] = False
    if not name.startswith("predictive_parity"):
        groups = pd.Categorical(np.full(4000, "a"), categories=["a", "b"])
    found = audit(sets, y, groups, name)
    assert found.verdicts[name] == "cannot tell"
    assert (found.table["count"] == 0).any()
    assert found.disparities["lower"].iloc[0] == 0 or METRICS[name].is_ratio


def test_unlabelled_points_count_where_no_label_is_looked_at():
    rng = np.random.default_rng(0)
    sets = rng.random((3000, 3)) < 0.9
    y = rng.integers(0, 3, 3000)
    groups = rng.choice(["f", "m"], 3000)
    every = audit(sets, y, groups)
    few = audit(sets[:200], y[:200], groups[:200])
    both = audit(sets[:200], y[:200], groups[:200], unlabelled=(sets[200:], groups[200:]))
    for name in LABEL_METRICS:
        needs_none = name in ("demographic_parity", "disparate_impact")
        wanted = every if needs_none else few
        pd.testing.assert_series_equal(
            both.disparities.loc[name], wanted.disparities.loc[name]
        )
    pd.testing.assert_frame_equal(both.sizes, few.sizes)
    assert "audit of 200 points and 2,800 without labels, 2 groups" in str(both)
    assert few.verdicts["demographic_parity"] == "cannot tell"
    assert both.verdicts["demographic_parity"] == "within"
    values = rng.random((20, 3))
    scored = audit(
        values, y[:20], groups[:20], threshold=0.5, unlabelled=(values, groups[:20])
    )
    assert scored.table["count"][scored.table["metric"] == "disparate_impact"].sum() == 80


def test_a_group_that_only_unlabelled_points_have_occurs():
    sets = np.ones((600, 2), bool)
    y = np.ones(200, int)
    groups = ["a", "b"] * 100
    found = audit(
        sets[:200],
        y,
        groups,
        ["demographic_parity", "equal_opportunity"],
        unlabelled=(sets[200:], [*groups, *["c", None] * 100]),
    )
    assert found.sizes.index.tolist() == ["a", "b", "c", "missing"]
    assert found.verdicts == {
        "demographic_parity": "within",
        "equal_opportunity": "cannot tell",
    }
    assert "no points of c, 1; missing, 1" in str(found)


def test_a_group_called_missing_is_not_that_of_points_without_a_group():
    sets = np.ones((40, 2), bool)
    y = np.ones(40, int)
    groups = ["missing", "a", None, "a"] * 10
    for given_as in (groups, pd.Series(groups), pd.Categorical(groups)):
        found = audit(sets, y, given_as)
        names = ["a", "missing", "missing (no value)"]
        assert found.sizes.index.tolist() == names
        assert found.sizes["count"].tolist() == [20, 10, 10]


def test_groups_come_as_anything_that_has_one_per_point():
    rng = np.random.default_rng(0)
    sets = rng.random((40, 2)) < 0.8
    y = rng.integers(0, 2, 40)
    groups = ["b", "a", None, "a"] * 10
    wanted = audit(sets, y, groups)
    by_person = dict(enumerate(groups))
    for given_as in (iter(groups), by_person.values(), np.array(groups, dtype=object)):
        pd.testing.assert_frame_equal(audit(sets, y, given_as).table, wanted.table)
    twice = pd.DataFrame({"g": groups, "h": groups}).set_axis(["g", "g"], axis=1)
    assert audit(sets, y, twice).sizes["count"].tolist() == [20, 10, 10]


def test_a_ratio_far_below_four_fifths_is_warned_about():
    sets = np.ones((40, 2), bool)
    y = np.ones(40, int)
    groups = ["a", "b"] * 20
    with pytest.warns(
        UserWarning, match=r"found 0\.1 for disparate_impact.*asks for 0\.8"
    ):
        audit(sets, y, groups, "disparate_impact", 0.1)


def test_verdicts_are_found_as_often_and_are_wrong_as_rarely_as_the_theory_says():
    """A twentieth of what `tools/check_audit.py` counts; limits leave room for chance."""
    power = check_audit.verdict_shares(0.84, 100, seed=0)
    assert power["within"] >= 0.85 and power["beyond"] == 0
    just_beyond = check_audit.verdict_shares(0.7999, 100, seed=0)
    limit = stats.binom.ppf(0.9999, 100, check_audit.GAMMA) / 100
    assert just_beyond["within"] <= limit
    assert check_audit.verdict_shares(0.8, 100, seed=0)["beyond"] <= limit


def test_what_the_check_counts_is_what_the_audit_says():
    rng = np.random.default_rng(0)
    for _ in range(3):
        shares = check_audit.draw(0.82, rng)
        found = audit(*from_counts(shares.hits[0], shares.trials[0]), "equal_opportunity")
        wanted = found.judges["equal_opportunity"].verdict(shares)
        assert found.verdicts["equal_opportunity"] == wanted


def test_a_hundred_groups_and_four_labels_are_audited_in_seconds():
    rng = np.random.default_rng(0)
    weights = 1 / np.arange(1, 101)
    groups = rng.choice(100, 50_000, p=weights / weights.sum())
    sets = rng.random((50_000, 5)) < 0.93
    y = rng.integers(0, 5, 50_000)
    start = time.perf_counter()
    found = audit(sets, y, groups, ["equal_opportunity", "disparate_impact"])
    assert len(found.needed) > 0
    assert time.perf_counter() - start < 20  # 2 s on an idle machine


def test_the_audit_reads_as_text():
    probs, y, groups = nine_groups().draw(2000, np.random.default_rng(0))
    text = str(cfhelpers.audit(scores.tps(probs), y, groups, threshold=0.8))
    for words in (
        "2,000 points, 9 groups, 95% confidence",
        *LABEL_METRICS,
        "allowed ≥ 0.8",
        "allowed ≤ 0.1",
        "cannot tell",
    ):
        assert words in text
    assert "mean set size: A: " in text and "more points would tell" in text
    assert text.count("not jointly") == 1 and text.count("firmer than the interval") == 1
    assert "wrong with probability at most 0.05" in text


N, K = 12, 3
SETS, Y, GROUPS = (
    np.random.default_rng(0).random((N, K)) < 0.6,
    np.arange(N) % K,
    np.array(["a", "b"] * 6),
)
BAD = {
    "scores without a threshold": (
        dict(sets_or_scores=SETS * 0.5),
        r"sets: found .*0\.5.* in row 0, .*or scores and a thr",
    ),
    "one label": (
        dict(sets_or_scores=SETS[:, :1], y=Y * 0),
        "sets: found 1 columns.*at least two",
    ),
    "a label that is not there": (dict(y=Y + 1), "y: found 3 in row 2"),
    "a name that is not there": (
        dict(y=["x"] * N, label_names=list("uvw")),
        r"y: found 'x' in row 0; wanted one of \['u', 'v', 'w'\]",
    ),
    "too few names": (
        dict(label_names=["u", "v"]),
        r"sets: found 3 columns for the labels \['u', 'v'\]",
    ),
    "one group": (
        dict(groups=["a"] * N),
        "groups: every point is in 'a'; wanted at least two",
    ),
    "no groups": (dict(groups=None), "groups: found None"),
    "too few groups": (dict(groups=GROUPS[:5]), "groups: found 5 rows for 12 points"),
    "an unknown metric": (dict(metrics="fairness"), "metric: found 'fairness'"),
    "no metric": (dict(metrics=[]), "metrics: found none"),
    "a closeness above 1": (dict(closeness=2), "closeness: found 2"),
    "a closeness for another metric": (
        dict(metrics="equal_opportunity", closeness={"disparate_impact": 0.8}),
        "closeness: found 'disparate_impact'",
    ),
    "a confidence of 95": (dict(confidence=95), "confidence: found 95"),
    "a positive label that is not there": (
        dict(positive_labels=[3]),
        "positive_labels: found 3",
    ),
    "a mask of positive labels": (
        dict(positive_labels=[False, True, True]),
        r"positive_labels: found the mask \[False, True, True\]; wanted labels",
    ),
    "two metrics of one name": (
        dict(metrics=["equal_opportunity", FairnessMetric("equal_opportunity", max)]),
        "metrics: found 'equal_opportunity' twice; wanted another name for each",
    ),
    "a label twice": (
        dict(label_names=["u", "v", "u"]),
        "sets: found the label 'u' twice; wanted one column per label",
    ),
    "groups by person": (
        dict(groups=dict(enumerate(GROUPS))),
        "groups: found a dict; wanted one group for each point",
    ),
    "a set of groups": (dict(groups=set(GROUPS)), "groups: found a set; wanted"),
    "a generator of too few groups": (
        dict(groups=(group for group in GROUPS[:5])),
        "groups: found 5 rows for 12 points",
    ),
    "a closeness as text": (dict(closeness="0.1"), "closeness: found '0.1'; wanted"),
    "unlabelled sets alone": (
        dict(unlabelled=SETS),
        r"unlabelled: found ndarray; wanted \(sets_or_scores, groups\)",
    ),
    "unlabelled points with other labels": (
        dict(unlabelled=(SETS[:, :2], GROUPS)),
        r"unlabelled: found 2 columns; wanted one per label, \[0, 1, 2\]",
    ),
    "unlabelled points with labels of other names": (
        dict(unlabelled=(pd.DataFrame(SETS, columns=list("uvw")), GROUPS)),
        r"unlabelled: found \['u', 'v', 'w'\]; wanted one per label, \[0, 1, 2\]",
    ),
    "unlabelled scores without a threshold": (
        dict(unlabelled=(SETS * 0.5, GROUPS)),
        r"unlabelled sets: found .*0\.5.* in row 0",
    ),
    "too few groups of unlabelled points": (
        dict(unlabelled=(SETS, GROUPS[:5])),
        "unlabelled groups: found 5 rows for 12 points",
    ),
}


@pytest.mark.parametrize("changes, message", BAD.values(), ids=BAD.keys())
def test_bad_input_is_named(changes, message):
    arguments = {"sets_or_scores": SETS, "y": Y, "groups": GROUPS}
    audit(**arguments)
    with pytest.raises(ValueError, match=message):
        audit(**arguments | changes)


def test_sizes_of_sets_are_means_and_shares_per_group():
    rng = np.random.default_rng(3)
    sets = rng.random((90, 4)) < 0.5
    groups = rng.choice(["a", "b", "c"], 90)
    found = audit(sets, rng.integers(0, 4, 90), groups, ["set_size", "singletons"])
    size = sets.sum(axis=1)
    values = {"set_size": size / 4, "singletons": size == 1}
    for name, value in values.items():
        rows = found.table[found.table["metric"] == name].set_index("group")
        by_hand = pd.Series(value).groupby(groups).agg(["size", "mean"])
        assert rows["count"].to_dict() == by_hand["size"].to_dict()
        assert rows["coverage"].to_dict() == pytest.approx(by_hand["mean"].to_dict())
        assert set(rows["label"]) == {"the whole set"}
        gap = by_hand["mean"].max() - by_hand["mean"].min()
        assert found.disparities.loc[name, "disparity"] == pytest.approx(gap)


def test_sizes_of_sets_are_judged_when_asked_for():
    groups = np.repeat(["a", "b"], 1000)
    y = np.tile([0, 1, 2], 667)[:2000]
    sets = np.ones((2000, 3), bool)
    sets[:1000, 1:] = False
    apart = audit(sets, y, groups, ["set_size", "singletons"])
    assert apart.verdicts == {"set_size": "beyond", "singletons": "beyond"}
    sets[:, 1:] = False
    alike = audit(sets, y, groups, ["set_size", "singletons"])
    assert alike.verdicts == {"set_size": "within", "singletons": "within"}


def test_groups_that_overlap_are_judged_by_bounds_and_refused_with_weights():
    rng = np.random.default_rng(0)
    sets = rng.random((3000, 3)) < 0.75
    y = rng.integers(0, 3, 3000)
    table = pd.DataFrame({"woman": rng.random(3000) < 0.5})
    table["elder"] = rng.random(3000) < 0.3
    table["both"] = table["woman"] & table["elder"]
    found = audit(sets, y, table, "equal_opportunity")
    judged = found.judges["equal_opportunity"]
    shares = found.shares["equal_opportunity"]
    lower, upper = shares.confidence_bounds(judged.gamma / 2)
    n_groups = shares.trials.shape[-1]
    losses = []
    for a in range(n_groups):
        for b in range(n_groups):
            if a != b:
                losses.append((upper[..., a] - lower[..., b]).max())
    is_within = max(losses) <= judged.closeness
    assert (found.verdicts["equal_opportunity"] == "within") == is_within
    wide = audit(sets, y, table, "equal_opportunity", closeness=max(losses) + 1e-6)
    narrow = audit(sets, y, table, "equal_opportunity", closeness=max(losses) - 1e-6)
    assert wide.verdicts["equal_opportunity"] == "within"
    assert narrow.verdicts["equal_opportunity"] != "within"
    with pytest.raises(ValueError, match="sample_weight: found groups that overlap"):
        audit(sets, y, table, "equal_opportunity", sample_weight=np.ones(3000))
    with pytest.raises(ValueError, match="sample_weight: set_size is not offered"):
        audit(sets, y, table["woman"], "set_size", sample_weight=np.ones(3000))

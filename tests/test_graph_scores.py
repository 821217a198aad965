"""RAPS, DAPS and CFGNN: against brute force, tuned apart, covering as they should."""

from dataclasses import replace

import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import EDGES, NODES, neighbours, toy

from cfhelpers import graph_scores, paths
from cfhelpers.conformal import conformal_quantile, coverage, efficiency, prediction_sets
from cfhelpers.datasets import load_dataset, resplit, split, tune_halves
from cfhelpers.graph_scores import cfgnn, daps, held_out_size
from cfhelpers.scores import aps, raps, tps
from cfhelpers.study import models, scoring
from cfhelpers.study.scoring import (
    DIFFUSIONS,
    PENALTIES,
    SCORES,
    score_split,
    tune_daps,
    tune_raps,
)

QUICK = {"epochs": 10, "warm_up": 3, "progress": False, "device": "cpu"}


@pytest.fixture
def artifacts(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "ARTIFACTS", tmp_path / "artifacts")
    return paths.ARTIFACTS


@pytest.fixture(scope="module")
def data():
    return toy(600, unlabelled=0.1)


@pytest.fixture(scope="module")
def parts(data):
    return split(data, 0)


@pytest.fixture(scope="module")
def probs(data):
    """What a model that knows the first feature would say."""
    return probabilities(data)


def probabilities(data):
    distance = (data.X["a"].to_numpy()[:, None] - np.arange(data.n_classes)) ** 2
    weights = np.exp(-distance / 2)
    return (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)


def fresh(monkeypatch, tmp_path, name):
    """From here on nothing is read that was stored before."""
    monkeypatch.setattr(paths, "ARTIFACTS", tmp_path / name)


# DAPS


def diffused(scores, edges, diffusion):
    """DAPS by its definition, node by node and label by label."""
    near, result = neighbours(edges, len(scores)), np.empty(scores.shape)
    for v, others in enumerate(near):
        for y in range(scores.shape[1]):
            mean = (
                sum(float(scores[u, y]) for u in others) / len(others)
                if others
                else float(scores[v, y])
            )
            result[v, y] = (1 - diffusion) * float(scores[v, y]) + diffusion * mean
    return result


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    n=st.integers(1, 12),
    size=st.integers(0, 30),
    diffusion=st.sampled_from([0.0, 0.05, 0.5, 0.85, 1.0]),
    single=st.booleans(),
    seed=st.integers(0, 999),
)
def test_daps_is_the_double_loop_on_any_list_of_edges(n, size, diffusion, single, seed):
    rng = np.random.default_rng(seed)
    scores, edges = (
        rng.random((n, 3)).astype(np.float32 if single else float),
        rng.integers(0, n, (2, size)),
    )
    np.testing.assert_allclose(
        daps(scores, edges, diffusion), diffused(scores, edges, diffusion), rtol=1e-6
    )


def test_daps_at_zero_is_the_score_and_at_one_the_neighbours_mean():
    scores = np.random.default_rng(0).random((NODES, 4))
    assert np.array_equal(daps(scores, EDGES, 0), scores)
    whole, near = daps(scores, EDGES, 1), neighbours(EDGES, NODES)
    for v in range(NODES):
        wanted = scores[list(near[v])].mean(axis=0) if near[v] else scores[v]
        np.testing.assert_allclose(whole[v], wanted, rtol=1e-12)


@pytest.mark.parametrize("diffusion", [0.3, 1.0])
def test_loops_repetitions_and_directions_change_nothing(diffusion):
    scores = np.random.default_rng(1).random((NODES, 4))
    loops, once = np.tile(np.arange(NODES), (2, 1)), daps(scores, EDGES, diffusion)
    for edges in (
        np.c_[EDGES, loops, loops],
        np.c_[EDGES, EDGES],
        EDGES[::-1],
        np.c_[EDGES, EDGES[::-1]],
    ):
        assert np.array_equal(daps(scores, edges, diffusion), once)


def test_a_node_without_neighbours_keeps_its_score():
    scores = np.random.default_rng(2).random((NODES, 4))
    for diffusion in (0.5, 1.0):
        assert np.array_equal(daps(scores, EDGES, diffusion)[8], scores[8])
        np.testing.assert_allclose(
            daps(scores, np.zeros((2, 0), int), diffusion), scores, rtol=1e-15
        )


@pytest.mark.parametrize("diffusion", [-0.1, 1.01, np.nan])
def test_a_diffusion_outside_the_unit_interval_is_told(diffusion):
    with pytest.raises(
        ValueError, match=r"diffusion: found .*; wanted a number in \[0, 1\]"
    ):
        daps(np.ones((NODES, 2)), EDGES, diffusion)


def test_scores_and_edges_that_are_none_are_told():
    with pytest.raises(ValueError, match="scores: row 1, column 0 is NaN"):
        daps([[0.1], [np.nan]], [[0], [1]], 0.5)
    with pytest.raises(
        ValueError, match="edge_index: found node 2; wanted nodes from 0 to 1"
    ):
        daps([[0.1], [0.2]], [[0], [2]], 0.5)


@pytest.mark.slow
def test_daps_on_the_real_pokec_graph_is_finite_for_every_candidate(shared):
    with np.load(shared / "data/pokec/pokec_n.npz") as arrays:
        edges, y = np.stack([arrays["row"], arrays["col"]]), arrays["label"]
    rng = np.random.default_rng(0)
    scores, tune = (
        aps(rng.dirichlet(np.ones(4), len(y)), rng.random(len(y))),
        np.flatnonzero(y >= 0)[::2],
    )
    for diffusion in DIFFUSIONS:
        found = daps(scores, edges, diffusion)
        assert np.isfinite(found).all() and found.min() >= 0 and found.max() <= 1 + 1e-9
    values, chosen = tune_daps(scores, y, edges, tune)
    assert values.shape == (66_569, 4) and np.array_equal(
        values, daps(scores, edges, **chosen)
    )


# tuning


def naive_size(scores, y, alpha):
    """Mean set size, each half by the other's threshold, one row at a time."""
    halves, sizes = [range(0, len(y), 2), range(1, len(y), 2)], []
    for rows, others in (halves, halves[::-1]):
        threshold = oracle.quantile([scores[i, y[i]] for i in others], alpha)
        sizes += [sum(float(s) <= threshold for s in scores[i]) for i in rows]
    return sum(sizes) / len(sizes)


@pytest.mark.parametrize("n", [2, 3, 9, 40, 41])
@pytest.mark.parametrize("alpha", [0.1, 0.3])
def test_the_held_out_size_is_counted_row_by_row(n, alpha):
    rng = np.random.default_rng(n)
    for kind in (np.float32, np.float64):
        scores, y = rng.random((n, 4)).astype(kind), rng.integers(0, 4, n)
        assert held_out_size(scores, y, alpha) == pytest.approx(
            naive_size(scores, y, alpha), abs=1e-12
        )


@pytest.mark.parametrize("seed", range(6))
def test_daps_takes_the_candidate_with_the_smallest_sets_each_from_undiffused_scores(
    data, probs, seed
):
    rng = np.random.default_rng(seed)
    scores, tune = (
        aps(probs, rng.random(len(data))),
        rng.choice(np.flatnonzero(data.y >= 0), 80, replace=False),
    )
    candidates = DIFFUSIONS if seed else (0.7, 0.1, 0.4)
    sizes = [
        naive_size(daps(scores, data.edge_index, d)[tune], data.y[tune], 0.1)
        for d in candidates
    ]
    values, chosen = tune_daps(scores, data.y, data.edge_index, tune, 0.1, candidates)
    assert chosen == {"diffusion": candidates[int(np.argmin(sizes))]}
    assert len(set(sizes)) > 1
    # erratum 9: one diffusion of the scores, not one more for each candidate tried
    assert np.array_equal(values, daps(scores, data.edge_index, chosen["diffusion"]))


def test_there_are_twenty_candidates_for_the_diffusion():
    assert list(DIFFUSIONS) == [k / 20 for k in range(1, 21)]


@pytest.mark.parametrize("seed", range(4))
def test_raps_takes_the_penalty_and_rank_with_the_smallest_sets(probs, data, seed):
    rng = np.random.default_rng(seed)
    rows = rng.choice(np.flatnonzero(data.y >= 0), 90, replace=False)
    mixed, y, u = probs[rows], data.y[rows], rng.random(90)
    candidates = [(penalty, k) for k in (1, 2) for penalty in PENALTIES]
    sizes = [
        naive_size(raps(mixed, u, penalty=penalty, k_reg=k), y, 0.1)
        for penalty, k in candidates
    ]
    best = candidates[int(np.argmin(sizes))]
    assert tune_raps(mixed, y, u, 0.1) == {"penalty": best[0], "k_reg": best[1]}
    assert len(set(sizes)) > 1


def change_labels(data, rows):
    """Other labels for these rows."""
    y = data.y.copy()
    y[rows] = (y[rows] + 1) % data.n_classes
    return y


def test_labels_outside_the_tuning_rows_have_no_influence_on_daps(data, probs):
    scores, tune = aps(probs, np.full(len(data), 0.5)), np.flatnonzero(data.y >= 0)[:100]
    outside = np.setdiff1d(np.arange(len(data)), tune)
    values, chosen = tune_daps(scores, data.y, data.edge_index, tune)
    other_values, other_chosen = tune_daps(
        scores, change_labels(data, outside), data.edge_index, tune
    )
    assert other_chosen == chosen and np.array_equal(other_values, values)
    # and those of the tuning rows do: with worthless labels some other δ is best
    assert any(
        tune_daps(scores, np.roll(data.y, k), data.edge_index, tune)[1] != chosen
        for k in range(1, 6)
    )


# the size loss of CFGNN


def hard_loss(probs, y, alpha, target):
    """Mean size above target over the second half, by the threshold of the first."""
    scores = [oracle.aps_row(row, 0.5) for row in np.asarray(probs, float).tolist()]
    n = len(scores) // 2
    true = [scores[i][y[i]] for i in range(n)]
    threshold = min(oracle.quantile(true, alpha), max(true))
    sizes = [sum(s <= threshold for s in row) for row in scores[n:]]
    return sum(max(size - target, 0) for size in sizes) / len(sizes)


@pytest.mark.parametrize("alpha", [0.1, 0.18, 0.3, 0.001])
@pytest.mark.parametrize(
    "n", [20, 41, 298]
)  # 298: (149 + 1)(1 − .18) is 123, not a float above it
@pytest.mark.parametrize("target", [0.0, 1.0, 1.5])
def test_the_size_loss_tends_to_the_size_above_target_as_its_temperature_falls(
    alpha, n, target
):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(n)
    probs, y = rng.dirichlet(np.ones(4), n), rng.integers(0, 4, n)
    wanted = hard_loss(probs, y, alpha, target)
    errors = []
    for temperature in (0.1, 0.01, 1e-7):
        found = graph_scores.size_loss(
            torch.tensor(probs), torch.tensor(y), alpha, temperature, target
        )
        errors.append(abs(float(found) - wanted))
    # the label that makes η lies in the first half: no score of the second equals it
    assert errors[-1] < 1e-6
    assert errors[-1] <= errors[0]


def test_the_size_loss_is_the_soft_size_at_any_temperature():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(5)
    probs, y = rng.dirichlet(np.ones(3), 30), rng.integers(0, 3, 30)
    scores = np.array([oracle.aps_row(row, 0.5) for row in probs.tolist()])
    threshold = oracle.quantile(scores[np.arange(15), y[:15]], 0.2)
    sizes = [
        sum(1 / (1 + np.exp(-(threshold - s) / 0.3)) for s in row) for row in scores[15:]
    ]
    for target in (0.0, 1.0):
        found = graph_scores.size_loss(
            torch.tensor(probs), torch.tensor(y), 0.2, 0.3, target
        )
        wanted = np.mean([max(size - target, 0) for size in sizes])
        assert float(found) == pytest.approx(wanted, rel=1e-9)
    plain = graph_scores.size_loss(torch.tensor(probs), torch.tensor(y), 0.2, 0.3)
    assert float(plain) == pytest.approx(np.mean(sizes), rel=1e-9)


def test_the_size_losss_gradient_is_that_of_finite_differences():
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(
        24, 4, dtype=torch.float64, generator=generator, requires_grad=True
    )
    y = torch.randint(0, 4, (24,), generator=generator)

    def loss(logits):
        return graph_scores.size_loss(torch.softmax(logits, dim=1), y, 0.2, 0.2)

    assert torch.autograd.gradcheck(loss, logits)
    loss(logits).backward()
    assert (
        logits.grad[:12].abs().max() > 0 and logits.grad[12:].abs().max() > 0
    )  # through η as well


# CFGNN


@pytest.fixture(scope="module")
def tune(data, parts):
    return np.flatnonzero(tune_halves(data, parts, 0) == "tune")


def adjust(data, probs, tune, y=None, **options):
    pytest.importorskip("torch_geometric")
    return cfgnn(
        probs, data.y if y is None else y, data.edge_index, tune, **QUICK | options
    )


def test_labels_outside_the_tuning_rows_have_no_influence_on_cfgnn(
    tmp_path, monkeypatch, data, probs, tune
):
    outside = np.setdiff1d(np.arange(len(data)), tune)
    found = []
    for name, y in {
        "as they are": data.y,
        "others outside": change_labels(data, outside),
        "none outside": np.where(np.isin(np.arange(len(data)), tune), data.y, -1),
        "others inside": change_labels(data, tune),
    }.items():
        fresh(monkeypatch, tmp_path, name)
        found.append(adjust(data, probs, tune, y))
    (first, how), (second, _), (third, _), (fourth, _) = found
    assert np.array_equal(first, second) and np.array_equal(first, third)
    assert not np.array_equal(first, fourth)
    assert how == found[1][1] == found[2][1]


def test_cfgnn_gives_probabilities_and_leaves_the_streams_of_others_as_they_were(
    artifacts, data, probs, tune
):
    torch = pytest.importorskip("torch")
    before = torch.get_rng_state()
    adjusted, chosen = adjust(data, probs, tune)
    assert torch.equal(torch.get_rng_state(), before)
    assert adjusted.shape == probs.shape and adjusted.dtype == np.float32
    np.testing.assert_allclose(adjusted.sum(axis=1), 1, atol=1e-6)
    assert not np.allclose(adjusted, probs, atol=1e-3)
    assert QUICK["warm_up"] <= chosen["epoch"] < QUICK["epochs"]


def test_cfgnn_computed_again_is_the_same_and_with_another_seed_is_not(
    tmp_path, monkeypatch, data, probs, tune
):
    found = []
    for name, seed in (("first", 1), ("again", 1), ("other", 2)):
        fresh(monkeypatch, tmp_path, name)
        found.append(adjust(data, probs, tune, seed=seed)[0])
    assert np.array_equal(found[0], found[1]) and not np.array_equal(found[0], found[2])


# the variants of CFGNN, one step at a time


def training(data, probs, tune, variant, warm_up=2, **options):
    """A network before its first step."""
    gnn = pytest.importorskip("cfhelpers.gnn")
    schedule = graph_scores._Schedule(0.2, 9, warm_up, 9, "best")
    settings = gnn.LAYERS | graph_scores.CFGNN | {"dropout": 0.0} | options
    with gnn.seeded(0, gnn.torch.device("cpu")):
        return graph_scores._Training(
            probs,
            data.y,
            gnn.Graph(data.edge_index, len(probs)),
            tune,
            settings,
            graph_scores.VARIANTS[variant],
            schedule,
            0,
        )


@pytest.mark.parametrize("kind", ["gcn", "sage", "gat"])
def test_of_the_base_nothing_goes_past_the_published_network_and_all_by_the_shortcut(
    data, probs, tune, kind
):
    torch = pytest.importorskip("torch")
    wanted = {"published": np.full_like(probs, 1 / 3), "shortcut": probs}
    for variant, values in wanted.items():
        network = training(data, probs, tune, variant, kind=kind)
        with torch.no_grad():
            for weights in network.model.parameters():
                weights.zero_()
            found = torch.softmax(network.logits(), dim=1).numpy()
        np.testing.assert_allclose(found, values, atol=2e-6)


def test_the_published_network_sees_probabilities_and_the_other_their_logarithms(
    data, probs, tune
):
    published = training(data, probs, tune, "published")
    assert np.array_equal(published.x.numpy(), probs)
    other = training(data, probs, tune, "shortcut")
    np.testing.assert_allclose(other.x.numpy(), np.log(probs), rtol=1e-5, atol=1e-6)


def parts_of_the_loss(network, probs, y, order):
    """Cross-entropy of the rows that train, and the soft size of their second half."""
    rows = probs[network.fit].astype(float)
    cross_entropy = -np.log(rows[np.arange(len(rows)), y[network.fit]]).mean()
    scores = [oracle.aps_row(row, 0.5) for row in probs[order].astype(float).tolist()]
    n = len(order) // 2
    true = [scores[i][y[order[i]]] for i in range(n)]
    threshold = oracle.quantile(true, 0.2)
    sizes = []
    for row in scores[n:]:
        soft = [1 / (1 + np.exp((s - threshold) / network.temperature)) for s in row]
        sizes.append(sum(soft))
    return cross_entropy, np.array(sizes)


def test_the_loss_after_the_warm_up_is_half_cross_entropy_and_half_size(
    data, probs, tune
):
    torch = pytest.importorskip("torch")
    for variant in graph_scores.VARIANTS:
        network = training(data, probs, tune, variant, temperature=0.3)
        for epoch in range(4):
            stream = np.random.default_rng()
            stream.bit_generator.state = network.rng.bit_generator.state
            order = stream.permutation(network.fit)
            with torch.no_grad():
                now = torch.softmax(network.logits(), dim=1).numpy()
            cross_entropy, sizes = parts_of_the_loss(network, now, data.y, order)
            after = {
                "published": 0.5 * cross_entropy + 0.5 * sizes.mean(),
                "shortcut": cross_entropy + 0.1 * np.maximum(sizes - 1, 0).mean(),
            }
            wanted = cross_entropy if epoch < 2 else after[variant]
            assert network.step() == pytest.approx(wanted, rel=1e-4), (variant, epoch)


def test_the_last_epoch_is_kept_on_request_after_all_of_them(
    artifacts, data, probs, tune
):
    fast = {"parameters": {"lr": 0.1}, "epochs": 40, "patience": 3}
    best, chosen = adjust(data, probs, tune, **fast)
    assert chosen["epoch"] + 3 == chosen["reached"] - 1 < 39  # it stopped early
    last, how = adjust(data, probs, tune, **fast, keep="last")
    assert how["epoch"] == 39 and how["reached"] == 40
    assert how["held_out_size"] > 0
    assert not np.array_equal(best, last)
    # the rows that choose have no say any more
    patient, again = adjust(data, probs, tune, **fast | {"patience": 9}, keep="last")
    assert np.array_equal(patient, last) and again == how


@pytest.mark.parametrize(
    "parameters",
    [
        {"kind": "sage", "aggr": "pool"},
        {"kind": "gat", "heads": 2, "layers": 1},
        {"temperature": 1.0},
    ],
)
def test_cfgnn_has_the_layers_and_the_temperature_it_is_given(
    artifacts, data, probs, tune, parameters
):
    plain, _ = adjust(data, probs, tune)
    found, _ = adjust(data, probs, tune, parameters=parameters)
    assert not np.array_equal(found, plain)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-6)


def test_cfgnn_is_read_for_the_same_key_and_trained_for_any_other(
    artifacts, data, probs, tune, monkeypatch
):
    gnn = pytest.importorskip("cfhelpers.gnn")

    trained = []

    class Fake:
        """In the place of a network in training."""

        def __init__(self, probs, *_):
            self.probs = probs

        def train(self, progress):
            trained.append(1)
            numbers = {name: np.array(1.0) for name in ("epoch", "size", "reached")}
            return numbers | {"probs": self.probs}

    monkeypatch.setattr(graph_scores, "_Training", Fake)

    def ask(probs=probs, y=data.y, edges=data.edge_index, tune=tune, **options):
        before = len(trained)
        cfgnn(probs, y, edges, tune, **QUICK | options)
        return len(trained) > before

    assert ask() and not ask()
    other = probs.copy()
    other[0] = other[0, ::-1]
    outside = np.setdiff1d(np.arange(len(data)), tune)
    alike = outside[data.y[outside] == data.y[tune[0]]][0]
    changes = {
        "probabilities": {"probs": other},
        "tuning labels": {"y": change_labels(data, tune[:1])},
        "edges": {"edges": data.edge_index[:, 2:]},
        "tuning rows": {"tune": tune[1:]},
        "a tuning row with the same label": {"tune": np.r_[alike, tune[1:]]},
        "alpha": {"alpha": 0.2},
        "a parameter": {"parameters": {"lr": 0.01}},
        "temperature": {"parameters": {"temperature": 0.1}},
        "seed": {"seed": 1},
        "epochs": {"epochs": 11},
        "warm-up": {"warm_up": 2},
        "patience": {"patience": 5},
        "variant": {"variant": "shortcut"},
        "the epoch that is kept": {"keep": "last"},
    }
    for what, change in changes.items():
        assert ask(**change) and not ask(**change), what
    assert not ask(y=change_labels(data, outside))
    published = graph_scores.VARIANTS["published"]
    for change in ({"size": 2.0}, {"target": 1.5}, {"cross_entropy": 0.6}):
        other = replace(published, **change)
        monkeypatch.setitem(graph_scores.VARIANTS, "published", other)
        assert ask(), change
    monkeypatch.setitem(gnn.LAYERS, "aggr", "pool")
    assert ask(), "defaults"
    monkeypatch.setattr(gnn.torch, "__version__", "9.9")
    assert ask(), "library"


def test_cfgnn_warms_up_then_minimises_size_and_keeps_the_epoch_of_the_smallest_sets(
    artifacts, data, probs, tune, monkeypatch
):
    pytest.importorskip("torch_geometric")
    losses = []
    judged = []
    real_loss = graph_scores.size_loss
    real_size = graph_scores.held_out_size

    def loss(soft, labels, alpha, temperature, target):
        losses.append((len(soft), alpha, temperature, target))
        return real_loss(soft, labels, alpha, temperature, target)

    def size(scores, y, alpha):
        judged.append(naive_size(scores, y, alpha))
        assert len(y) == len(tune) - 2 * len(tune) // 3
        return real_size(scores, y, alpha)

    monkeypatch.setattr(graph_scores, "size_loss", loss)
    monkeypatch.setattr(graph_scores, "held_out_size", size)
    options = {"epochs": 14, "warm_up": 4, "patience": 99, "alpha": 0.2}
    adjusted, chosen = adjust(
        data, probs, tune, parameters={"temperature": 0.3, "lr": 0.05}, **options
    )
    # not in the first four epochs, and every set costs
    assert losses == [(2 * len(tune) // 3, 0.2, 0.3, 0.0)] * 10
    assert len(judged) == 10
    assert chosen == {
        "epoch": 4 + int(np.argmin(judged)),
        "held_out_size": pytest.approx(min(judged)),
        "reached": 14,
    }
    assert len(set(judged)) > 1
    # trained no further than to that epoch, it is the same, whichever epoch is kept
    options["epochs"] = chosen["epoch"] + 1
    options["keep"] = "last"
    shorter, _ = adjust(
        data, probs, tune, parameters={"temperature": 0.3, "lr": 0.05}, **options
    )
    assert np.array_equal(shorter, adjusted)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"parameters": {"depth": 3}},
            "parameters: found 'depth'; wanted some of hidden_channels, .*temperature",
        ),
        (
            {"variant": "ours"},
            "variant: found 'ours'; wanted one of 'published', 'shortcut'",
        ),
        ({"keep": "first"}, "keep: found 'first'; wanted one of 'best', 'last'"),
        (
            {"parameters": {"kind": "gin"}},
            "kind: found 'gin'; wanted one of 'gcn', 'sage', 'gat'",
        ),
        ({"epochs": 3}, "epochs: found 3 with a warm-up of 3; wanted more"),
        ({"alpha": 1.5}, "alpha: found 1.5"),
    ],
)
def test_what_cfgnn_cannot_do_is_told(artifacts, data, probs, tune, options, message):
    with pytest.raises(ValueError, match=message):
        adjust(data, probs, tune, **options)


def test_probabilities_of_minus_one_are_no_probabilities(
    artifacts, data, parts, probs, tune
):
    """Erratum 9: unlabelled nodes have probabilities like all others."""
    wrong = np.where((data.y < 0)[:, None], -1, probs)
    with pytest.raises(
        ValueError, match=r"probabilities: row .* is -1; none may be below 0"
    ):
        adjust(data, wrong, tune)
    for score in SCORES:
        with pytest.raises(
            ValueError, match=r"probabilities: row .* is -1; none may be below 0"
        ):
            score_split(data, wrong, parts, score, 0)


# a split, scored


def score(data, probs, parts, name, seed, **options):
    if name == "cfgnn":
        pytest.importorskip("torch_geometric")
    return score_split(data, probs, parts, name, seed, **QUICK | options)


@pytest.mark.parametrize("name", SCORES)
def test_the_rows_that_tune_calibrate_and_test_are_disjoint(
    artifacts, data, probs, parts, name, monkeypatch
):
    seen, places = [], {"raps": "tune_raps", "daps": "tune_daps", "cfgnn": "cfgnn"}
    if name in places:
        real = getattr(scoring, places[name])

        def spy(*arguments, **options):
            seen.append(arguments)
            return real(*arguments, **options)

        monkeypatch.setattr(scoring, places[name], spy)
    pool = set(np.flatnonzero(np.isin(parts, ["calibration", "test"])).tolist())
    for seed in range(3):
        scored = score(data, probs, parts, name, seed)
        calibration, test = set(scored.calibration.tolist()), set(scored.test.tolist())
        assert not calibration & test and test == set(
            np.flatnonzero(resplit(data, parts, seed) == "test").tolist()
        )
        rest = pool - calibration - test
        if name in ("tps", "aps"):
            assert not rest
        elif name == "raps":  # its rows, by their probabilities
            assert np.array_equal(seen[-1][0], probs[sorted(rest)])
            assert np.array_equal(seen[-1][1], data.y[sorted(rest)])
            u = np.random.default_rng([seed, graph_scores.STREAM]).random(len(data))
            assert np.array_equal(seen[-1][2], u[sorted(rest)])
        else:
            assert set(seen[-1][{"daps": 3, "cfgnn": 3}[name]].tolist()) == rest
        assert (len(rest) == 0) == (name in ("tps", "aps"))
        assert (
            not rest or abs(len(rest) - len(calibration)) <= 6
        )  # halves of each cell of group and label


@pytest.mark.parametrize("name", SCORES)
def test_a_split_is_drawn_by_its_seed(
    artifacts, tmp_path, monkeypatch, data, probs, parts, name
):
    first = score(data, probs, parts, name, 1)
    fresh(monkeypatch, tmp_path, "again")
    again, other = score(data, probs, parts, name, 1), score(data, probs, parts, name, 2)
    assert first.score == name and first.scores.shape == probs.shape
    assert np.array_equal(first.scores, again.scores) and first.chosen == again.chosen
    assert np.array_equal(first.calibration, again.calibration) and np.array_equal(
        first.test, again.test
    )
    assert not np.array_equal(first.test, other.test)
    assert np.array_equal(first.scores, other.scores) == (
        name == "tps"
    )  # which has no u and nothing to choose


def test_scores_are_those_of_the_settings_that_were_chosen(artifacts, data, probs, parts):
    u = np.random.default_rng([7, graph_scores.STREAM]).random(len(data))
    assert np.array_equal(score(data, probs, parts, "tps", 7).scores, tps(probs))
    assert np.array_equal(score(data, probs, parts, "aps", 7).scores, aps(probs, u))
    tuned = score(data, probs, parts, "raps", 7)
    assert np.array_equal(tuned.scores, raps(probs, u, **tuned.chosen))
    tuned = score(data, probs, parts, "daps", 7)
    assert np.array_equal(
        tuned.scores, daps(aps(probs, u), data.edge_index, **tuned.chosen)
    )
    pytest.importorskip("torch_geometric")
    rows = np.flatnonzero(tune_halves(data, resplit(data, parts, 7), 7) == "tune")
    adjusted, chosen = adjust(data, probs, rows, seed=7)
    tuned = score(data, probs, parts, "cfgnn", 7)
    assert np.array_equal(tuned.scores, aps(adjusted, u)) and tuned.chosen == chosen


@pytest.mark.parametrize("name", SCORES)
def test_labels_of_calibration_and_test_rows_have_no_say_in_the_scores(
    tmp_path, monkeypatch, data, probs, parts, name
):
    fresh(monkeypatch, tmp_path, "as they are")
    first = score(data, probs, parts, name, 3)
    reported = np.r_[first.calibration, first.test]
    # the split is stratified by label, so it is held fixed while labels change
    divided = {
        "resplit": resplit(data, parts, 3),
        "tune_halves": tune_halves(data, resplit(data, parts, 3), 3),
    }
    for step, result in divided.items():
        monkeypatch.setattr(scoring, step, lambda *_, result=result: result)
    fresh(monkeypatch, tmp_path, "others")
    other = score(replace(data, y=change_labels(data, reported)), probs, parts, name, 3)
    assert np.array_equal(first.scores, other.scores) and first.chosen == other.chosen


def test_cfgnn_is_trained_anew_for_every_split(artifacts, data, probs, parts):
    chosen = [score(data, probs, parts, "cfgnn", seed) for seed in range(3)]
    assert len(list(artifacts.iterdir())) == 3
    assert len({found.scores.tobytes() for found in chosen}) == 3
    # its seed apart, other tuning rows alone give another model
    rows = [np.flatnonzero(tune_halves(data, parts, seed) == "tune") for seed in (0, 1)]
    first, second = (adjust(data, probs, which, seed=0)[0] for which in rows)
    assert not np.array_equal(first, second) and len(list(artifacts.iterdir())) == 5


@pytest.mark.parametrize(
    ("change", "name", "message"),
    [
        (
            {},
            "saps",
            "score: found 'saps'; wanted one of 'tps', 'aps', 'raps', 'daps', 'cfgnn'",
        ),
        (
            {"edge_index": None},
            "daps",
            "score: found 'daps' for toy without edges; load the dataset with its graph",
        ),
        ({"edge_index": None}, "cfgnn", "score: found 'cfgnn' for toy without edges"),
    ],
)
def test_a_score_that_cannot_be_had_is_told(data, probs, parts, change, name, message):
    with pytest.raises(ValueError, match=message):
        score_split(replace(data, **change), probs, parts, name, 0)


@pytest.mark.parametrize("name", SCORES)
def test_probabilities_of_other_rows_or_labels_are_told(data, probs, parts, name):
    for wrong in (probs[:-1], np.c_[probs, np.zeros(len(probs))]):
        with pytest.raises(
            ValueError, match=r"probabilities: found shape .*; toy wants \(600, 3\)"
        ):
            score_split(data, wrong, parts, name, 0)


# coverage


def assert_covers(coverages, n, m, alpha=0.1):
    """The mean coverage over splits lies within three standard errors of its law.

    Take the rows that are left without the tuning rows, and their scores, as given: a
    split divides them at random into n that calibrate and m that test. How many of the m
    lie at or below the k-th smallest of the n is then a matter of ranks alone:
    beta-binomial with (k, n + 1 − k), that is, a Beta coverage seen through m rows, of
    mean k/(n + 1). The law is the same for every pool of rows and scores, so splits that
    are drawn independently have independent coverages even though they share a pool, and
    their mean has the standard error sd/√splits. That splits are stratified by group and
    label makes the sd a little smaller still.
    """
    k = np.ceil((n + 1) * (1 - alpha) - 1e-9)
    mean = k / (n + 1)
    error = np.sqrt(mean * (1 - mean) * (n + 1 + m) / (m * (n + 2)) / len(coverages))
    assert abs(np.mean(coverages) - mean) <= 3 * error, (np.mean(coverages), mean, error)


def reported(data, scored, alpha=0.1):
    """Coverage and efficiency on the test rows."""
    threshold = conformal_quantile(
        scored.scores[scored.calibration, data.y[scored.calibration]], alpha
    )
    sets = prediction_sets(scored.scores[scored.test], threshold)
    return coverage(sets, data.y[scored.test]), efficiency(sets)


@pytest.fixture(scope="module")
def nodes():
    data = toy(1000, seed=4)
    return data, split(data, 0), probabilities(data)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCORES)
def test_every_score_covers_as_its_law_says_on_simulated_nodes(artifacts, nodes, name):
    data, parts, probs = nodes
    splits = [score(data, probs, parts, name, seed) for seed in range(100)]
    n, m = (
        np.mean([len(rows) for rows in part])
        for part in zip(*((s.calibration, s.test) for s in splits), strict=True)
    )
    assert_covers([reported(data, scored)[0] for scored in splits], round(n), round(m))


def test_a_model_that_saw_the_rows_that_calibrate_would_not_cover_as_the_law_says(nodes):
    data, parts, probs = nodes
    coverages = []
    for seed in range(100):
        scored = score(data, probs, parts, "aps", seed)
        seen = scored.calibration[::4]
        learnt = scored.scores.copy()
        learnt[seen, data.y[seen]] *= 0.8
        coverages.append(reported(data, replace(scored, scores=learnt))[0])
    with pytest.raises(AssertionError):
        assert_covers(coverages, len(scored.calibration), len(scored.test))


@pytest.fixture(scope="module")
def credit(tmp_path_factory):
    """Real Credit with the published graph, and its base model."""
    pytest.importorskip("xgboost"), pytest.importorskip("torch_geometric")
    data = load_dataset("credit", graph="published")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "ARTIFACTS", tmp_path_factory.mktemp("artifacts"))
        yield data, models.base_model(data, split(data, 0), "xgboost", progress=False)


@pytest.mark.slow
def test_real_credit_is_covered_by_every_score_and_the_shortcuts_sets_are_no_larger(
    credit,
):
    data, base = credit
    options = {"variant": "shortcut", "epochs": 90, "warm_up": 20, "progress": False}
    found = {}
    for name in SCORES:
        n_splits = 2 if name == "cfgnn" else 10
        scored = []
        for seed in range(n_splits):
            scored.append(
                score_split(data, base.probs, base.parts, name, seed, **options)
            )
        found[name] = np.array([reported(data, one) for one in scored])
        assert_covers(found[name][:, 0], len(scored[0].calibration), len(scored[0].test))
    # in so few epochs the network without a shortcut does not come that far
    assert found["cfgnn"][:, 1].mean() <= found["aps"][:2, 1].mean()

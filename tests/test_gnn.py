"""Graph layers against naive computations; training that is seeded and stops early."""

import subprocess
import sys

import numpy as np
import pytest
from toy import EDGES, NODES, neighbours, toy

from cfhelpers import paths
from cfhelpers._checks import as_adjacency
from cfhelpers.datasets import load_dataset, split

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")
from torch_geometric.nn import GATConv  # noqa: E402

from cfhelpers import gnn  # noqa: E402

MODELS = [("gcn", "mean"), ("gat", "mean"), *(("sage", aggr) for aggr in gnn.AGGREGATORS)]
NEAR = neighbours(EDGES, NODES)
SMALL = {"hidden_channels": 8, "heads": 2}


@pytest.fixture(scope="module")
def graph():
    return gnn.Graph(EDGES, NODES)


@pytest.fixture
def x():
    return torch.randn(NODES, 5, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def stream():
    """Weights of layers built in a test come from a seed."""
    with torch.random.fork_rng([]):
        torch.manual_seed(1)
        yield


def numbers(*tensors):
    return [tensor.detach().numpy().astype(np.float64) for tensor in tensors]


def close(found, wanted):
    np.testing.assert_allclose(found.detach().numpy(), wanted, rtol=1e-5, atol=1e-6)


# the graph


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor, np.ndarray.tolist])
def test_edges_count_once_in_either_direction_and_loops_never(kind):
    adjacency = as_adjacency(kind(EDGES), NODES).toarray()
    assert adjacency.tolist() == [
        [float(j in NEAR[i]) for j in range(NODES)] for i in range(NODES)
    ]


def test_a_graph_holds_its_edges_both_ways_in_the_order_of_the_nodes_they_lead_to(graph):
    assert graph.edges.tolist() == [
        [j for i in range(NODES) for j in sorted(NEAR[i])],
        [i for i in range(NODES) for _ in NEAR[i]],
    ]
    assert graph.degrees.tolist() == [len(near) for near in NEAR]
    loops = graph.edges_and_loops.T.tolist()
    assert sorted(loops) == sorted(
        graph.edges.T.tolist() + [[i, i] for i in range(NODES)]
    )


def test_a_graph_without_edges_is_a_graph(x):
    lonely = gnn.Graph(np.zeros((2, 0), int), NODES)
    for kind, aggr in MODELS[:-1]:  # lstm has nothing to read
        model = gnn.GNN(kind, 5, 3, aggr=aggr, **SMALL).eval()
        assert torch.isfinite(model(x, lonely)).all(), (kind, aggr)


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([[0, 1], [1, 9]], "found node 9; wanted nodes from 0 to 8"),
        ([[0, -1], [1, 0]], "found node -1; wanted nodes from 0 to 8"),
        (
            [[0.0, 1.0], [1.0, 2.0]],
            r"found shape \(2, 2\) of float64; wanted integers \(2, E\)",
        ),
        ([[0, 1], [1, 2], [2, 0]], r"found shape \(3, 2\) of int64"),
        ([0, 1], r"found shape \(2,\)"),
    ],
)
def test_edges_that_are_none_are_told(edges, message):
    with pytest.raises(ValueError, match=f"edge_index: {message}"):
        gnn.Graph(edges, NODES)


# the layers, from their definitions, one node at a time; node 8 has no neighbours


@pytest.mark.parametrize("widths", [(5, 3), (5, 8)], ids=["narrows", "widens"])
def test_gcn_weighs_a_node_and_its_neighbours_by_their_degrees(graph, x, widths):
    layer = gnn._GCN(*widths)
    torch.nn.init.normal_(layer.bias)
    h, weight, bias = numbers(x, layer.lin.weight, layer.bias)
    wanted = []
    for i in range(NODES):
        degree = len(NEAR[i]) + 1
        mixed = sum(h[j] / np.sqrt(degree * (len(NEAR[j]) + 1)) for j in [i, *NEAR[i]])
        wanted.append(weight @ mixed + bias)
    close(layer(x, graph), wanted)


def test_sage_mean_adds_the_neighbours_mean_to_the_node_each_with_its_weights(graph, x):
    layer = gnn._SAGE(5, 3, "mean")
    h, near, bias, own = numbers(
        x, layer.lin_l.weight, layer.lin_l.bias, layer.lin_r.weight
    )
    means = [
        np.mean([h[j] for j in NEAR[i]], axis=0) if NEAR[i] else np.zeros(5)
        for i in range(NODES)
    ]
    close(layer(x, graph), [near @ means[i] + bias + own @ h[i] for i in range(NODES)])


def test_sage_gcn_averages_a_node_with_its_neighbours_under_one_weight(graph, x):
    layer = gnn._SAGE(5, 3, "gcn")
    assert {name for name, _ in layer.named_parameters()} == {
        "lin_l.weight",
        "lin_l.bias",
    }
    h, weight, bias = numbers(x, layer.lin_l.weight, layer.lin_l.bias)
    sums = [h[i] + sum(h[j] for j in NEAR[i]) for i in range(NODES)]
    close(
        layer(x, graph),
        [weight @ sums[i] / (len(NEAR[i]) + 1) + bias for i in range(NODES)],
    )


def test_sage_pool_takes_the_largest_of_the_projected_neighbours(graph, x):
    layer = gnn._SAGE(5, 3, "pool")
    h, project, shift = numbers(x, layer.lin.weight, layer.lin.bias)
    near, bias, own = numbers(layer.lin_l.weight, layer.lin_l.bias, layer.lin_r.weight)
    pooled = []
    for i in range(NODES):
        projected = [np.maximum(project @ h[j] + shift, 0) for j in NEAR[i]]
        pooled.append(np.max(projected, axis=0) if projected else np.zeros(5))
    close(layer(x, graph), [near @ pooled[i] + bias + own @ h[i] for i in range(NODES)])


@pytest.mark.parametrize("heads", [1, 2])
def test_gat_is_that_of_pyg_with_loops(graph, x, heads):
    ours, theirs = (
        gnn._GAT(5, 6, heads),
        GATConv(5, 6 // heads, heads=heads, add_self_loops=True),
    )
    theirs.load_state_dict(ours.state_dict())
    close(ours(x, graph), theirs(x, graph.edges).detach().numpy())


def test_gat_averages_by_a_softmax_over_a_node_and_its_neighbours(graph, x):
    layer = gnn._GAT(5, 4, 1)
    torch.nn.init.normal_(layer.bias)
    h, weight, bias = numbers(x, layer.lin.weight, layer.bias)
    (source,), (target,) = (vector[0] for vector in numbers(layer.att_src, layer.att_dst))
    h = h @ weight.T
    wanted = []
    for i in range(NODES):
        among = [i, *NEAR[i]]
        logits = np.array([source @ h[j] + target @ h[i] for j in among])
        attention = np.exp(np.where(logits > 0, logits, 0.2 * logits))
        wanted.append(attention / attention.sum() @ h[among] + bias)
    close(layer(x, graph), wanted)


def test_layers_follow_one_another_with_relu_between_and_nothing_after(graph, x):
    model = gnn.GNN("gcn", 5, 3, hidden_channels=7, layers=3, dropout=0.9).eval()
    first, second, third = model.convolutions
    close(
        model(x, graph),
        third(second(first(x, graph).relu(), graph).relu(), graph).detach().numpy(),
    )
    assert [(c.in_channels, c.out_channels) for c in model.convolutions] == [
        (5, 7),
        (7, 7),
        (7, 3),
    ]
    assert len(gnn.GNN("sage", 5, 3, layers=1).convolutions) == 1


def test_the_heads_share_the_channels_and_one_decides(graph, x):
    model = gnn.GNN("gat", 5, 3, hidden_channels=8, layers=2, heads=4).eval()
    assert [(c.heads, c.out_channels) for c in model.convolutions] == [(4, 2), (1, 3)]
    assert model(x, graph).shape == (NODES, 3)


@pytest.mark.parametrize(("kind", "aggr"), MODELS)
def test_dropout_is_for_training_alone(graph, x, kind, aggr):
    model = gnn.GNN(kind, 5, 3, aggr=aggr, **SMALL)
    assert torch.equal(model.eval()(x, graph), model(x, graph))
    assert not torch.equal(model.train()(x, graph), model(x, graph))


# gradients


def test_the_symmetric_products_gradient_is_that_of_finite_differences(graph):
    x = torch.randn(NODES, 2, dtype=torch.float64, requires_grad=True)
    for matrix in (graph.normalised.to(torch.float64), graph.adjacency.to(torch.float64)):
        assert torch.autograd.gradcheck(
            lambda x, matrix=matrix: gnn._SymmetricProduct.apply(matrix, x), x
        )


@pytest.mark.parametrize(
    ("kind", "aggr"), [("gcn", "mean"), ("sage", "mean"), ("sage", "gcn")]
)
def test_gradients_are_those_of_dense_matrices(graph, x, kind, aggr, monkeypatch):
    model = gnn.GNN(kind, 5, 3, aggr=aggr, layers=3, dropout=0.0, **SMALL)

    def gradients():
        model.zero_grad()
        torch.nn.functional.cross_entropy(
            model(x, graph), torch.arange(NODES) % 3
        ).backward()
        return [weights.grad.clone() for weights in model.parameters()]

    found = gradients()
    dense = type(
        "Dense", (), {"apply": staticmethod(lambda matrix, x: matrix.to_dense() @ x)}
    )
    monkeypatch.setattr(gnn, "_SymmetricProduct", dense)
    for ours, theirs in zip(found, gradients(), strict=True):
        close(ours, theirs.numpy())
        assert ours.abs().max() > 0


# lstm


def test_lstm_runs_where_it_fits_and_is_refused_where_it_does_not(graph, x, monkeypatch):
    model = gnn.GNN("sage", 5, 3, aggr="lstm", **SMALL).eval()
    limit = (
        NODES * max(map(len, NEAR)) * 8
    )  # eight hidden channels are more than five features
    monkeypatch.setattr(gnn, "LSTM_LIMIT", limit)
    assert torch.isfinite(model(x, graph)).all()
    monkeypatch.setattr(gnn, "LSTM_LIMIT", limit - 1)
    with pytest.raises(
        ValueError,
        match="aggr: found 'lstm' for a graph of 9 nodes with up to 2 neighbours",
    ):
        model(x, graph)


@pytest.mark.parametrize(
    "n", [20_000, 92_683]
)  # 92,683² · 8 would wrap to little in 32 bits
def test_lstm_is_refused_on_a_large_graph_before_it_takes_any_memory(n):
    star = gnn.Graph(np.stack([np.zeros(n - 1, int), np.arange(1, n)]), n)
    with pytest.raises(
        ValueError,
        match=f"aggr: found 'lstm' for a graph of {n:,} nodes.*wanted mean, gcn or pool",
    ):
        gnn.GNN("sage", 1, 2, aggr="lstm", **SMALL)(torch.zeros(n, 1), star)


# features


def test_features_are_standardised_by_the_training_rows_alone():
    rng = np.random.default_rng(0)
    X, train = rng.normal(3, 2, (50, 4)), np.arange(0, 50, 3)
    X[:, 2] = 7.0
    found = gnn.standardise(X, train)
    wanted = [
        [
            (row[j] - X[train, j].mean()) / (X[train, j].std() if j != 2 else 1)
            for j in range(4)
        ]
        for row in X.tolist()
    ]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    changed = X.copy()
    changed[np.setdiff1d(np.arange(50), train)] += 1000
    assert np.array_equal(gnn.standardise(changed, train)[train], found[train])


def test_large_features_keep_their_differences():
    X = 1e9 + np.arange(10.0)[:, None]  # as float32 these would all be equal
    np.testing.assert_allclose(gnn.standardise(X, np.arange(10)).std(), 1, rtol=1e-5)


# the best epoch


def scripted(values, ties, patience, first=0, epochs=None):
    """`best_epoch` with a weight that counts steps and a judge that reads from a list."""
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)

    def step():
        with torch.no_grad():
            model.weight += 1
        return model.weight.item()

    def judge():
        epoch = int(model.weight.item()) - 1
        assert not model.training and epoch >= first
        return values[epoch], ties[epoch]

    best, history = gnn.best_epoch(
        model, step, judge, epochs or len(values), patience, False, "", first
    )
    assert not best.training
    return int(best.weight.item()) - 1, history


@pytest.mark.parametrize("seed", range(40))
def test_the_best_epoch_is_kept_and_training_stops_when_nothing_is_better_for_a_while(
    seed,
):
    rng = np.random.default_rng(seed)
    values, ties = rng.integers(0, 5, 60) / 5, rng.integers(0, 3, 60) / 3
    patience, first = int(rng.integers(1, 12)), int(rng.integers(0, 4))
    best, stop = first, 59
    for epoch in range(first, 60):  # by hand
        if (
            epoch == first
            or values[epoch] > values[best]
            or (values[epoch] == values[best] and ties[epoch] < ties[best])
        ):
            best = epoch
        elif epoch - best == patience:
            stop = epoch
            break
    kept, history = scripted(values, ties, patience, first)
    assert kept == best
    assert history["epoch"].tolist() == list(range(first, stop + 1))
    assert history["held_out"].tolist() == values[first : stop + 1].tolist()
    assert history["loss"].tolist() == list(range(first + 1, stop + 2))


def test_an_epoch_without_a_number_is_never_the_best():
    values = [0.2, np.nan, 0.5, np.nan, 0.4]
    assert scripted(values, [0.0] * 5, 9)[0] == 2


# training


@pytest.fixture(scope="module")
def data():
    return toy(240, unlabelled=0.2)


@pytest.fixture(scope="module")
def parts(data):
    return split(data, 0)


def fit(data, parts, kind="gcn", aggr="mean", y=None, **options):
    y = data.y if y is None else y
    options = {"epochs": 15, "progress": False} | options
    return gnn.fit(
        data.X,
        y,
        data.edge_index,
        parts,
        data.n_classes,
        kind,
        SMALL | {"aggr": aggr},
        **options,
    )


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "aggr"), MODELS)
def test_the_same_seed_gives_the_same_probabilities_and_another_seed_others(
    data, parts, kind, aggr
):
    probs, history = fit(data, parts, kind, aggr, seed=3)
    torch.manual_seed(77)  # whatever was drawn before
    again, history_again = fit(data, parts, kind, aggr, seed=3)
    assert np.array_equal(probs, again) and np.array_equal(
        history["loss"], history_again["loss"]
    )
    assert not np.array_equal(probs, fit(data, parts, kind, aggr, seed=4)[0])
    assert probs.shape == (240, 3) and probs.dtype == np.float32
    np.testing.assert_allclose(probs.sum(axis=1), 1, atol=1e-6)


def test_training_leaves_the_streams_of_others_as_they_were(data, parts):
    torch.manual_seed(5), np.random.seed(5)  # noqa: NPY002
    before, before_numpy = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    fit(data, parts, epochs=3)
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(np.random.get_state()[1], before_numpy)  # noqa: NPY002


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "aggr"), MODELS[:4])
def test_the_probabilities_are_those_of_the_best_epoch(data, parts, kind, aggr):
    probs, history = fit(data, parts, kind, aggr, epochs=40)
    valid = parts == "valid"
    accuracy = (probs.argmax(axis=1) == data.y)[valid].mean()
    assert accuracy == pytest.approx(history["held_out"].max(), abs=1e-6)
    # trained no further than to one of the most accurate epochs, the model is the same
    for best in np.flatnonzero(history["held_out"] == history["held_out"].max()):
        if np.array_equal(fit(data, parts, kind, aggr, epochs=int(best) + 1)[0], probs):
            break
    else:
        pytest.fail("the probabilities belong to none of the best epochs")


def test_training_stops_after_patience(data, parts):
    epochs = [
        len(fit(data, parts, epochs=300, patience=patience)[1]["epoch"])
        for patience in (1, 5, 20)
    ]
    assert epochs[0] <= epochs[1] <= epochs[2] < 300
    assert epochs[0] < epochs[2]


@pytest.mark.parametrize(("kind", "aggr"), MODELS)
def test_labels_outside_train_and_valid_have_no_influence(data, parts, kind, aggr):
    probs = fit(data, parts, kind, aggr, epochs=8)[0]
    y = data.y.copy()
    outside = np.isin(parts, ["calibration", "test"])
    y[outside] = (y[outside] + 1) % 3
    y[parts == "unlabelled"] = 2  # were they learnt from, this would show
    assert np.array_equal(fit(data, parts, kind, aggr, y=y, epochs=8)[0], probs)
    y[np.flatnonzero(parts == "train")[:20]] = 0
    assert not np.array_equal(fit(data, parts, kind, aggr, y=y, epochs=8)[0], probs)


def test_labels_of_valid_choose_the_epoch_and_nothing_else(data, parts):
    y = data.y.copy()
    y[parts == "valid"] = (y[parts == "valid"] + 1) % 3
    first, other = fit(data, parts), fit(data, parts, y=y)
    assert np.array_equal(first[1]["loss"], other[1]["loss"])
    assert not np.array_equal(first[1]["held_out"], other[1]["held_out"])
    assert np.array_equal(
        fit(data, parts, epochs=1)[0], fit(data, parts, y=y, epochs=1)[0]
    )


def test_unlabelled_nodes_pass_on_their_features(data, parts):
    X = data.X.copy()
    X.loc[parts == "unlabelled", "a"] += 5
    moved = gnn.fit(
        X, data.y, data.edge_index, parts, 3, "gcn", SMALL, epochs=15, progress=False
    )[0]
    assert not np.array_equal(
        moved[parts == "test"], fit(data, parts)[0][parts == "test"]
    )


@pytest.mark.parametrize("kind", gnn.KINDS)
def test_every_kind_learns_what_features_and_neighbours_tell(data, parts, kind):
    probs, _ = fit(data, parts, kind, epochs=60)
    held_out = np.isin(parts, ["calibration", "test"])
    assert (probs.argmax(axis=1) == data.y)[
        held_out
    ].mean() > 0.75  # each class is a third of the nodes


@pytest.fixture(scope="module")
def pokec(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "DATA", tmp_path_factory.mktemp("data"))
        return load_dataset("pokec_n", n=6000)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gcn", "sage"])
def test_the_majority_is_beaten_on_simulated_pokec(pokec, kind):
    parts, parameters = split(pokec, 0), {"hidden_channels": 16}
    options = {"epochs": 60, "patience": 15, "progress": False}
    probs, _ = gnn.fit(
        pokec.X,
        pokec.y,
        pokec.edge_index,
        parts,
        pokec.n_classes,
        kind,
        parameters,
        **options,
    )
    right, majority = (
        probs.argmax(axis=1) == pokec.y,
        pokec.y == np.bincount(pokec.y[parts == "train"]).argmax(),
    )
    for held_out in (parts == "valid", np.isin(parts, ["calibration", "test"])):
        assert right[held_out].mean() > majority[held_out].mean() + 0.02


@pytest.mark.parametrize(
    ("kind", "parameters", "message"),
    [
        ("gin", {}, "kind: found 'gin'; wanted one of 'gcn', 'sage', 'gat'"),
        (
            "sage",
            {"aggr": "max"},
            "aggr: found 'max'; wanted one of 'mean', 'gcn', 'pool', 'lstm'",
        ),
        (
            "gat",
            {"hidden_channels": 10, "heads": 4},
            "heads: found 4 for 10 channels; wanted a divisor",
        ),
        (
            "gcn",
            {"depth": 3},
            "parameters: found 'depth'; wanted some of lr, hidden_channels",
        ),
    ],
)
def test_what_no_model_has_is_told(data, parts, kind, parameters, message):
    with pytest.raises(ValueError, match=message):
        gnn.fit(
            data.X,
            data.y,
            data.edge_index,
            parts,
            3,
            kind,
            parameters,
            epochs=1,
            progress=False,
        )


def test_a_gpu_is_used_when_there_is_one_and_none_is_named(monkeypatch):
    for there in (True, False):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert gnn.choose_device().type == ("cuda" if there else "cpu")
        assert gnn.choose_device("cpu").type == "cpu"


def test_nothing_of_torch_is_imported_before_a_graph_model_is_asked_for():
    lines = """
        import sys
        sys.modules["torch"] = sys.modules["torch_geometric"] = None  # not to be imported
        sys.modules["ray"] = None
        import cfhelpers, numpy as np
        from cfhelpers import _cache, graph_scores
        from cfhelpers.study import models, presets, scoring
        from cfhelpers.datasets import credit_probabilities, load_dataset
        credit, (probs, parts) = load_dataset("credit"), credit_probabilities()
        assert presets.preset(credit)["max_depth"] == 4
        for score in ("tps", "aps", "raps"):
            scoring.score_split(credit, probs, parts, score, seed=0)
        edges = np.array([[0, 1], [1, 2]])
        scoring.tune_daps(probs[:9], credit.y[:9], edges, np.arange(9))
    """
    code = "\n".join(
        line.strip() if "score_split" not in line else "    " + line.strip()
        for line in lines.splitlines()
    )
    subprocess.run([sys.executable, "-c", code], cwd=paths.ROOT, check=True)

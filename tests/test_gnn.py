"""Graph layers against naive computations and PyG's own; training that is seeded."""

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
from torch_geometric.nn import GATConv, GCNConv, SAGEConv  # noqa: E402

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


def test_every_entry_of_the_normalised_matrix_knows_its_row_and_its_mirror(graph):
    entries = entries_of(graph)
    loops = [[i, i] for i in range(NODES)]
    both_ways = graph.edges.flip(0).T.tolist()
    assert entries == sorted(both_ways + loops)
    mirrored = [entries[place] for place in graph.reversed_entries.tolist()]
    assert mirrored == [[j, i] for i, j in entries]


def entries_of(graph):
    """Rows and columns of the normalised matrix, in the order of its values."""
    rows = graph.targets.tolist()
    columns = graph.normalised.col_indices().tolist()
    return [list(entry) for entry in zip(rows, columns, strict=True)]


def test_weights_take_the_places_of_the_normalised_matrixs_values(graph):
    weights = torch.arange(1.0, len(graph.targets) + 1)
    dense = torch.zeros(NODES, NODES)
    for (i, j), weight in zip(entries_of(graph), weights, strict=True):
        dense[i, j] = weight
    assert torch.equal(graph.with_weights(weights).to_dense(), dense)


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


# the layers beside PyG's own: values, and gradients of weights and of what goes in


def double_graph(edges):
    """A graph whose matrices hold double numbers, so that little is rounded."""
    graph = gnn.Graph(edges, NODES)
    graph.adjacency = graph.adjacency_back = graph.adjacency.double()
    graph.counts = graph.counts.double()
    exact = 1 / (graph.degrees + 1)
    entries = entries_of(graph)
    weights = [np.sqrt(exact[i] * exact[j]) for i, j in entries]
    graph.normalised = graph.normalised_back = graph.with_weights(torch.tensor(weights))
    return graph


LISTS = {"some edges": EDGES, "no edges": np.zeros((2, 0), int)}
WIDTHS = [(5, 16), (5, 4), (24, 4)]  # a head of (5, 4) may be narrower than its input


def gradients(layer, x, edges):
    """What a layer gives, then the gradients of a sum that tells all entries apart."""
    x = x.clone().requires_grad_()
    found = layer(x, edges)
    weights = torch.linspace(-1, 2, found.numel(), dtype=x.dtype).view_as(found)
    wanted = [*layer.parameters(), x]
    return [found, *torch.autograd.grad((found * weights).sum(), wanted)]


def assert_same(ours, theirs, x, graph):
    """The same values and gradients, which are not all zero."""
    ours = ours.double()
    theirs = theirs.double()
    theirs.load_state_dict(ours.state_dict())
    found = gradients(ours, x, graph)
    wanted = gradients(theirs, x, graph.edges)
    for own, other in zip(found, wanted, strict=True):
        close(own, other.detach().numpy())
    assert found[-1].abs().max() > 0


def features(n_in):
    generator = torch.Generator().manual_seed(n_in)
    return torch.randn(NODES, n_in, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("which", LISTS)
@pytest.mark.parametrize("widths", WIDTHS, ids=str)
@pytest.mark.parametrize("heads", [1, 2, 4])
def test_gat_is_that_of_pyg_with_loops(which, widths, heads):
    n_in, n_out = widths
    ours = gnn._GAT(n_in, n_out, heads)
    torch.nn.init.normal_(ours.bias)
    theirs = GATConv(n_in, n_out // heads, heads=heads, add_self_loops=True)
    assert_same(ours, theirs, features(n_in), double_graph(LISTS[which]))


@pytest.mark.parametrize("which", LISTS)
@pytest.mark.parametrize("widths", WIDTHS, ids=str)
@pytest.mark.parametrize(
    ("aggr", "options"),
    [("mean", {}), ("pool", {"aggr": "max", "project": True})],
    ids=["mean", "pool"],
)
def test_sage_is_that_of_pyg(which, widths, aggr, options):
    ours = gnn._SAGE(*widths, aggr)
    assert_same(
        ours,
        SAGEConv(*widths, **options),
        features(widths[0]),
        double_graph(LISTS[which]),
    )


@pytest.mark.parametrize("which", LISTS)
@pytest.mark.parametrize("widths", WIDTHS, ids=str)
def test_gcn_is_that_of_pyg(which, widths):
    assert_same(
        gnn._GCN(*widths),
        GCNConv(*widths),
        features(widths[0]),
        double_graph(LISTS[which]),
    )


def test_attention_that_is_far_apart_stays_a_number():
    layer = gnn._GAT(5, 4, 2)
    theirs = GATConv(5, 2, heads=2, add_self_loops=True)
    with torch.no_grad():
        layer.att_src *= 2000  # exp of these would be infinite
    assert_same(layer, theirs, features(5), double_graph(EDGES))


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


# some nodes alone

MANY = 60
SPARSE = np.random.default_rng(0).integers(0, MANY, (2, 50))
FEW = np.array([7, 3, 41])  # in the order asked for, which is not that of the graph


def ball(edges, n, nodes, layers):
    """The nodes within so many steps, by walking."""
    near = neighbours(edges, n)
    found = set(nodes.tolist())
    for _ in range(layers):
        found |= {j for i in found for j in near[i]}
    return sorted(found)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_a_reach_holds_the_nodes_within_as_many_steps_as_there_are_layers(layers):
    graph = gnn.Graph(SPARSE, MANY)
    assert len(neighbours(SPARSE, MANY)[7]) > 0
    reach = graph.reach(FEW, layers)
    assert reach.nodes.tolist() == ball(SPARSE, MANY, FEW, layers)
    assert len(reach.nodes) < MANY / 2 and len(reach.parts) == layers


def test_where_little_can_be_left_out_the_whole_graph_is_taken():
    graph = gnn.Graph(SPARSE, MANY)
    everyone = graph.reach(np.arange(MANY), 2)
    assert everyone.nodes.tolist() == list(range(MANY))
    assert all(part is graph for part in everyone.parts)
    near = neighbours(SPARSE, MANY)
    some = np.array([i for i in range(MANY) if near[i]])[:10]
    within = [len(ball(SPARSE, MANY, some, layers)) for layers in (1, 2)]
    assert within[0] <= MANY / 2 < within[1]  # the last layer alone leaves nodes out
    mixed = graph.reach(some, 3)
    assert [part is graph for part in mixed.parts] == [True, False, False]
    assert len(mixed.nodes) == MANY


@pytest.mark.parametrize("n_nodes", [3, 15, 40])
@pytest.mark.parametrize("layers", [1, 2, 4])
@pytest.mark.parametrize(("kind", "aggr"), MODELS)
def test_of_some_nodes_alone_a_network_gives_what_it_gives_of_them_among_all(
    kind, aggr, layers, n_nodes
):
    graph = gnn.Graph(SPARSE, MANY)
    nodes = np.random.default_rng(1).permutation(MANY)[:n_nodes]
    x = torch.randn(MANY, 5, generator=torch.Generator().manual_seed(2))
    for hidden in (4, 8):  # fewer and more columns than go in
        options = {"hidden_channels": hidden, "heads": 2, "layers": layers}
        model = gnn.GNN(kind, 5, 3, aggr=aggr, dropout=0.0, **options)
        found = []
        for logits in (model.at(x, model.reach(graph, nodes)), model(x, graph)[nodes]):
            weights = torch.linspace(-1, 2, logits.numel()).view_as(logits)
            wanted = list(model.parameters())
            own = torch.autograd.grad((logits * weights).sum(), wanted, allow_unused=True)
            found.append([logits, *(each for each in own if each is not None)])
        assert len(found[0]) == len(found[1]) > 1
        for own, other in zip(*found, strict=True):
            close(own, other.detach().numpy())


def test_a_model_learns_from_the_same_nodes_whether_or_not_the_others_are_computed(
    monkeypatch,
):
    data = toy(400, seed=1)
    parts = split(data, 0)
    few = np.where(np.arange(len(parts)) < 40, parts, "unlabelled")  # a corner of it
    options = {"dropout": 0.0, "layers": 1}
    arguments = (data.X, data.y, data.edge_index, few, 3, "gcn", options)
    alone, _ = gnn.fit(*arguments, epochs=5, progress=False)
    reached = gnn.Graph(data.edge_index, len(few)).reach(
        np.flatnonzero(few == "train"), 1
    )
    assert len(reached.nodes) < len(few) / 2
    monkeypatch.setattr(gnn, "LARGE_SHARE", 0.0)
    among_all, _ = gnn.fit(*arguments, epochs=5, progress=False)
    np.testing.assert_allclose(alone, among_all, atol=1e-5)


# gradients


def test_the_weighted_sums_gradients_are_those_of_finite_differences(graph):
    x = torch.randn(NODES, 2, dtype=torch.float64, requires_grad=True)
    weights = torch.rand(
        len(graph.targets), dtype=torch.float64, requires_grad=True
    )  # not symmetric: that of (i, j) is not that of (j, i)

    def weighted_sum(weights, x):
        return gnn._WeightedSum.apply(weights, x, graph)

    assert torch.autograd.gradcheck(weighted_sum, (weights, x))


def test_the_sparse_products_gradient_is_that_of_finite_differences(graph):
    part = graph.reach(np.array([3]), 1).parts[0]
    for source, matrix, back in (
        (NODES, graph.normalised, graph.normalised_back),
        (NODES, graph.adjacency, graph.adjacency_back),
        (part.adjacency.shape[1], part.normalised, part.normalised_back),
        (part.adjacency.shape[1], part.adjacency, part.adjacency_back),
    ):
        x = torch.randn(source, 2, dtype=torch.float64, requires_grad=True)
        both = matrix.to(torch.float64), back.to(torch.float64)
        assert torch.autograd.gradcheck(
            lambda x, both=both: gnn._SparseProduct.apply(*both, x), x
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
        "Dense", (), {"apply": staticmethod(lambda matrix, _, x: matrix.to_dense() @ x)}
    )
    monkeypatch.setattr(gnn, "_SparseProduct", dense)
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


def test_features_that_are_not_scaled_are_taken_as_they_are(data, parts, monkeypatch):
    usual, _ = fit(data, parts, epochs=3)
    by_default, _ = fit(data, parts, epochs=3, scaled=True)
    assert np.array_equal(usual, by_default)
    seen = []
    forward = gnn.GNN.forward

    def spy(model, x, graph):
        seen.append(x.numpy().copy())
        return forward(model, x, graph)

    monkeypatch.setattr(gnn.GNN, "forward", spy)
    unscaled, _ = fit(data, parts, epochs=3, scaled=False)
    assert all(np.array_equal(x, data.X.to_numpy(np.float32)) for x in seen)
    assert not np.array_equal(unscaled, usual)
    seen.clear()
    fit(data, parts, epochs=1)
    assert np.array_equal(seen[0], gnn.standardise(data.X, parts == "train"))


def test_large_features_keep_their_differences():
    X = 1e9 + np.arange(10.0)[:, None]  # as float32 these would all be equal
    np.testing.assert_allclose(gnn.standardise(X, np.arange(10)).std(), 1, rtol=1e-5)


# the best epoch


def scripted(values, patience, first=0, **options):
    """`best_epoch` with a weight that counts steps and a judge that reads from a list."""
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)

    def step():
        assert model.training
        with torch.no_grad():
            model.weight += 1
        return model.weight.item()

    def judge():
        epoch = int(model.weight.item()) - 1
        assert not model.training and epoch >= first
        return {"judged": values[epoch], "other": -values[epoch]}

    best, history = gnn.best_epoch(
        model, step, judge, len(values), patience, False, "", first, **options
    )
    assert not best.training
    return int(best.weight.item()) - 1, history


@pytest.mark.parametrize("seed", range(40))
def test_the_best_epoch_is_kept_and_training_stops_when_nothing_is_better_for_a_while(
    seed,
):
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 15, 60) / 15
    patience = int(rng.integers(1, 12))
    first = int(rng.integers(0, 4))
    best = first
    stop = 59
    for epoch in range(first + 1, 60):  # by hand; the first of equals is the best
        if values[epoch] < values[best]:
            best = epoch
        elif epoch - best == patience:
            stop = epoch
            break
    kept, history = scripted(values, patience, first)
    assert kept == best
    assert history["epoch"].tolist() == list(range(first, stop + 1))
    assert history["judged"].tolist() == values[first : stop + 1].tolist()
    assert history["other"].tolist() == (-values[first : stop + 1]).tolist()
    assert history["loss"].tolist() == list(range(first + 1, stop + 2))


def test_the_last_epoch_is_kept_on_request_and_all_epochs_are_run():
    values = [0.1, *np.linspace(0.5, 0.9, 9)]
    assert scripted(values, 2)[0] == 0
    kept, history = scripted(values, 2, keep="last")
    assert kept == 9
    assert history["epoch"].tolist() == list(range(10))


def test_an_epoch_without_a_number_is_never_the_best():
    values = [0.5, np.nan, 0.2, np.nan, 0.4]
    assert scripted(values, 9)[0] == 2


# training


@pytest.fixture(scope="module")
def data():
    return toy(240, unlabelled=0.2)


@pytest.fixture(scope="module")
def parts(data):
    return split(data, 0)


def fit(data, parts, kind="gcn", aggr="mean", y=None, scaled=None, **options):
    y = data.y if y is None else y
    options = {"epochs": 15, "progress": False} | options
    parameters = SMALL | {"aggr": aggr}
    if scaled is not None:
        parameters["scaled"] = scaled
    return gnn.fit(
        data.X,
        y,
        data.edge_index,
        parts,
        data.n_classes,
        kind,
        parameters,
        **options,
    )


def gradient_with(n_threads, graph, x):
    """Of every weight of an attention layer, computed by so many threads."""
    torch.manual_seed(0)
    layer = gnn._GAT(x.shape[1], 32, 4)
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        layer(x, graph).square().sum().backward()
    finally:
        torch.set_num_threads(before)
    return torch.cat([weights.grad.ravel() for weights in layer.parameters()])


def test_the_number_of_threads_changes_no_bit_of_attention():
    rng = np.random.default_rng(0)
    graph = gnn.Graph(rng.integers(0, 4000, (2, 60_000)), 4000)
    x = torch.tensor(rng.normal(size=(4000, 8)), dtype=torch.float32)
    wanted = gradient_with(1, graph, x)
    for _ in range(5):
        assert torch.equal(gradient_with(2, graph, x), wanted)


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
def test_the_probabilities_are_those_of_the_lowest_validation_loss(
    data, parts, kind, aggr
):
    probs, history = fit(data, parts, kind, aggr, epochs=40)
    valid = np.flatnonzero(parts == "valid")
    true = probs[valid, data.y[valid]].astype(float)
    best = int(history["valid_loss"].argmin())
    assert -np.log(true).mean() == pytest.approx(history["valid_loss"][best], rel=1e-4)
    is_right = probs[valid].argmax(axis=1) == data.y[valid]
    assert is_right.mean() == pytest.approx(history["held_out"][best], abs=1e-6)
    # trained no further than to that epoch, the model is the same
    shorter, _ = fit(data, parts, kind, aggr, epochs=best + 1)
    assert np.array_equal(shorter, probs)


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
    assert not np.array_equal(first[1]["valid_loss"], other[1]["valid_loss"])
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
            "parameters: found 'depth'; wanted some of lr, scaled, hidden_channels",
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

"""CFGNN in batches: what a batch holds, and that block degrees are what changes it."""

from unittest.mock import patch

import numpy as np
import pytest
import torch
from toy import EDGES, NODES, neighbours, toy

from cfhelpers import gnn, paths
from cfhelpers.datasets import split, tune_halves
from cfhelpers.study import errata_cfgnn
from cfhelpers.study.errata_cfgnn import Batches, batch_logits, cfgnn_in_batches

CPU = torch.device("cpu")
SMALL = {"hidden_channels": 8, "layers": 2, "lr": 0.05}


@pytest.fixture(scope="module")
def data():
    return toy(300)


@pytest.fixture(scope="module")
def probs(data):
    """What a model that knows the first feature would say."""
    distance = (data.X["a"].to_numpy()[:, None] - np.arange(data.n_classes)) ** 2
    weights = np.exp(-distance / 2)
    return (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def tune(data):
    parts = tune_halves(data, split(data, 0), 0)
    return np.flatnonzero(np.isin(parts, ["tune", "valid"]))


@pytest.fixture
def artifacts(tmp_path):
    with patch.object(paths, "ARTIFACTS", tmp_path):
        yield tmp_path


def network(layers, n_in=3):
    """A GCN that is ready to predict."""
    with gnn.seeded(1, CPU):
        return gnn.GNN("gcn", n_in, 4, hidden_channels=8, layers=layers).eval()


def features(data):
    return torch.tensor(data.X.to_numpy(np.float32))


# What a batch holds


def test_a_block_divides_by_the_degrees_that_it_is_told():
    near = neighbours(EDGES, NODES)
    for node in range(NODES):
        near[node].add(node)  # the loop
    nodes = np.array([4, 0, 8])
    for block_degrees in (False, True):
        batch = Batches(EDGES, NODES, 1, block_degrees).batch(nodes)
        found = batch.blocks[0].toarray()
        assert found.shape == (3, NODES)
        for row, receiver in enumerate(nodes):
            for sender in range(NODES):
                wanted = 0.0
                if sender in near[receiver]:
                    reached = near[sender]
                    if block_degrees:
                        reached = reached & set(nodes.tolist())
                    wanted = 1 / np.sqrt(len(near[receiver]) * len(reached))
                assert found[row, sender] == pytest.approx(wanted)


def test_the_layers_of_a_batch_are_built_from_the_nodes_outwards(data):
    near = neighbours(data.edge_index, len(data))
    nodes = np.array([200, 17])
    batch = Batches(data.edge_index, len(data), 2).batch(nodes)
    first, second = (block.toarray() for block in batch.blocks)
    one_away = set(nodes.tolist()).union(*(near[node] for node in nodes))
    two_away = one_away.union(*(near[node] for node in one_away))
    assert second.shape == (2, len(one_away))
    assert first.shape == (len(one_away), len(data))
    assert set(np.flatnonzero(first.any(axis=0))) == two_away


def test_batches_have_64_nodes_in_their_order_and_the_last_the_rest(data):
    rows = np.arange(130)[::-1]
    found = [batch.nodes for batch in Batches(data.edge_index, 300, 1).over(rows)]
    assert [len(nodes) for nodes in found] == [64, 64, 2]
    assert np.array_equal(np.concatenate(found), rows)


# What a batch gives


@pytest.mark.parametrize("layers", [1, 2])
def test_with_the_graphs_degrees_batches_give_what_the_whole_graph_gives(data, layers):
    model = network(layers)
    x = features(data)
    whole = model(x, gnn.Graph(data.edge_index, len(data)))
    batches = Batches(data.edge_index, len(data), layers)
    rows = np.random.default_rng(0).permutation(len(data))
    for batch in batches.over(rows):
        logits = batch_logits(model, x, batch)
        torch.testing.assert_close(logits, whole[batch.nodes], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("layers", [1, 2])
def test_its_gradient_is_that_of_the_whole_graph(data, layers):
    model = network(layers)
    x = features(data)
    nodes = np.arange(50, 90)
    batch = Batches(data.edge_index, len(data), layers).batch(nodes)
    found = []
    for logits in (
        batch_logits(model, x, batch),
        model(x, gnn.Graph(data.edge_index, len(data)))[nodes],
    ):
        model.zero_grad()
        (logits**2).sum().backward()
        found.append([weight.grad.clone() for weight in model.parameters()])
    for own, wanted in zip(*found, strict=True):
        assert wanted.abs().max() > 0
        torch.testing.assert_close(own, wanted, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("layers", [1, 2])
def test_with_block_degrees_a_nodes_scores_depend_on_who_shares_its_batch(data, layers):
    model = network(layers)
    x = features(data)
    near = neighbours(data.edge_index, len(data))
    node = 100
    other = next(iter(near[node]))  # reaches both of them
    for block_degrees in (False, True):
        batches = Batches(data.edge_index, len(data), layers, block_degrees)
        alone = batch_logits(model, x, batches.batch(np.array([node])))[0]
        pair = batch_logits(model, x, batches.batch(np.array([node, other])))[0]
        assert torch.allclose(alone, pair, atol=1e-5) != block_degrees


def test_a_batch_of_all_nodes_has_the_graphs_degrees_either_way(data):
    nodes = np.arange(len(data))
    blocks = []
    for block_degrees in (False, True):
        batches = Batches(data.edge_index, len(data), 1, block_degrees)
        blocks.append(batches.batch(nodes).blocks[0].toarray())
    np.testing.assert_allclose(*blocks)


# CFGNN


def run(data, probs, tune, y=None, **options):
    own = {"parameters": SMALL, "epochs": 9, "block_degrees": True} | options
    labels = data.y if y is None else y
    return cfgnn_in_batches(probs, labels, data.edge_index, tune, progress=False, **own)


def test_block_degrees_change_the_probabilities_of_nearly_all_nodes(
    artifacts, data, probs, tune
):
    right, _ = run(data, probs, tune, block_degrees=False)
    wrong, how = run(data, probs, tune)
    for found in (right, wrong):
        np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-5)
    assert (np.abs(right - wrong).max(axis=1) > 1e-3).mean() > 0.9
    assert 3 <= how["epoch"] < how["reached"] <= 9  # a third warms up
    assert 1 <= how["held_out_size"] <= data.n_classes


def test_an_epoch_takes_a_step_with_every_batch_and_learns(artifacts, data, probs, tune):
    steps = []
    batch_step = errata_cfgnn._TrainingInBatches._batch_step

    def counted(self, batch):
        steps.append(batch.nodes)
        return batch_step(self, batch)

    with patch.object(errata_cfgnn._TrainingInBatches, "_batch_step", counted):
        adjusted, how = run(data, probs, tune, block_degrees=False)
    n_train = 2 * len(tune) // 3
    per_epoch = int(np.ceil(n_train / errata_cfgnn.SIZE))
    assert len(steps) == per_epoch * how["reached"]
    first = np.concatenate(steps[:per_epoch])
    second = np.concatenate(steps[per_epoch : 2 * per_epoch])
    assert len(first) == n_train and set(first) <= set(tune)
    assert not np.array_equal(first, second) and set(first) == set(second)
    others = np.setdiff1d(np.arange(len(data)), tune)
    by_chance = np.bincount(data.y[others]).max() / len(others)
    accuracy = (adjusted.argmax(axis=1) == data.y)[others].mean()
    assert accuracy > by_chance + 0.1


def test_labels_outside_the_tuning_rows_have_no_influence(artifacts, data, probs, tune):
    changed = (data.y + 1) % data.n_classes
    changed[tune] = data.y[tune]
    with patch.object(paths, "ARTIFACTS", artifacts / "elsewhere"):
        other, _ = run(data, probs, tune, y=changed)
    assert np.array_equal(run(data, probs, tune)[0], other)


def test_what_was_trained_is_read_for_the_same_key_alone(artifacts, data, probs, tune):
    first, how = run(data, probs, tune)
    with patch.object(errata_cfgnn, "Batches", side_effect=AssertionError("trained")):
        again, how_again = run(data, probs, tune)
        assert np.array_equal(first, again) and how == how_again
        for change in ({"block_degrees": False}, {"epochs": 12}, {"seed": 1}):
            with pytest.raises(AssertionError, match="trained"):
                run(data, probs, tune, **change)


@pytest.mark.parametrize(
    "parameters, message",
    [
        ({"kind": "gat"}, "parameters: found kind 'gat'; wanted 'gcn'"),
        ({"layers": 3}, "parameters: found 3 layers; wanted 1 or 2"),
        ({"layers": 0}, "parameters: found 0 layers; wanted 1 or 2"),
        ({"depth": 2}, "parameters: found 'depth'"),
    ],
)
def test_networks_that_have_no_batches_here_are_told(
    data, probs, tune, parameters, message
):
    with pytest.raises(ValueError, match=message):
        run(data, probs, tune, parameters=parameters)


def test_too_few_epochs_are_told(data, probs, tune):
    with pytest.raises(ValueError, match="epochs: found 1; wanted at least 2"):
        run(data, probs, tune, epochs=1)

"""Search spaces: those of the paper, what applies of them, and settings drawn."""

import re
from dataclasses import replace

import numpy as np
import pytest
from toy import toy

from cfhelpers.study import spaces


@pytest.fixture(scope="module")
def data():
    return toy(300)


@pytest.mark.parametrize(
    ("name", "label"), [("gnn", "base_gnn"), ("xgboost", "base_xgb"), ("cfgnn", "cf_gnn")]
)
def test_the_spaces_are_those_of_the_paper(shared, name, label):
    text = (shared / "paper" / "conformal_fairness_iclr2025.tex").read_text(
        encoding="utf-8"
    )
    body = text.split(rf"\label{{tab:{label}:hpt}}")[1].split(r"\end{tabular}")[0]
    names = {"aggr_fn": "aggr", r"$\tau$": "temperature"} | (
        {"lr": "learning_rate"} if name == "xgboost" else {}
    )
    printed = {}
    for row in body.replace(r"\_", "_").replace(r"\midrule", "").split(r"\\")[1:-1]:
        parameter, cell = (part.strip() for part in row.split("&"))
        numbers = [
            float(f"1e{a}") if a else float(b)
            for a, b in re.findall(r"10\^\{(-?\d+)\}|(\d+\.?\d*)", cell)
        ]
        words = [word for word in re.findall("[a-z]+", cell) if word != "dots"]
        printed[names.get(parameter, parameter)] = {*numbers, *words}
    printed.pop("batch_size", None)  # a batch is the whole graph
    searched = {
        key: set(row) - {"choice", "integers"} for key, row in spaces.SPACES[name].items()
    }
    searched.pop("kind", None)  # the paper tunes CFGNN for each kind of layer
    assert printed == searched
    assert list(spaces.table(name)["hyperparameter"]) == list(spaces.SPACES[name])


def test_a_row_of_one_kind_of_layer_is_searched_for_that_kind_alone(data):
    names = {}
    for model in ("gcn", "sage", "gat", "cfgnn"):
        names[model] = set(spaces.space(model, data))
    shared = {"lr", "hidden_channels", "dropout", "layers"}
    assert names["gcn"] == shared
    assert names["sage"] == shared | {"aggr"}
    assert names["gat"] == shared | {"heads"}
    assert names["cfgnn"] == shared | {"aggr", "heads", "kind", "temperature"}


def test_lstm_is_left_out_where_the_graph_is_too_large(data, monkeypatch):
    gnn = pytest.importorskip("cfhelpers.gnn")
    limit = 300 * np.bincount(data.edge_index[0]).max() * 128
    monkeypatch.setattr(gnn, "LSTM_LIMIT", limit)
    assert "lstm" in spaces.space("sage", data)["aggr"]
    monkeypatch.setattr(gnn, "LSTM_LIMIT", limit - 1)
    assert spaces.space("sage", data)["aggr"] == ("choice", "mean", "gcn", "pool")
    assert "lstm" in spaces.SPACES["gnn"]["aggr"]


def test_a_graph_without_edges_has_a_space(data):
    pytest.importorskip("torch_geometric")
    lonely = replace(data, edge_index=np.zeros((2, 0), int))
    assert "lstm" in spaces.space("sage", lonely)["aggr"]


def test_what_has_no_space_is_told(data):
    with pytest.raises(ValueError, match="name: found 'gcn'; wanted one of 'gnn', 'xgb"):
        spaces.table("gcn")
    with pytest.raises(ValueError, match="model: found 'forest'; wanted one of"):
        spaces.space("forest", data)
    with pytest.raises(ValueError, match="model: found 'sage' for toy without edges"):
        spaces.space("sage", replace(data, edge_index=None))


# settings drawn


@pytest.mark.parametrize("name", list(spaces.SPACES))
def test_every_drawn_value_lies_in_its_space_and_has_four_digits(name):
    rows = spaces.SPACES[name]
    for setting in spaces.draw(rows, 200):
        for parameter, value in setting.items():
            law, *values = rows[parameter]
            if law == "choice":
                assert value in values
                continue
            low, high = values
            assert low <= value <= high
            assert float(f"{value:.4g}") == value
            assert type(value) is (int if law == "integers" else float)


def test_the_ith_setting_is_the_same_for_every_n():
    rows = spaces.SPACES["cfgnn"]
    many = spaces.draw(rows, 20, 7)
    for n in (0, 1, 5, 19):
        assert spaces.draw(rows, n, 7) == many[:n]
    assert len({str(setting) for setting in many}) == 20


def test_another_seed_draws_others():
    rows = spaces.SPACES["xgboost"]
    first = [str(setting) for setting in spaces.draw(rows, 20, 0)]
    second = [str(setting) for setting in spaces.draw(rows, 20, 1)]
    assert not set(first) & set(second)


def test_a_drawn_cfgnn_has_what_its_kind_of_layer_has():
    shared = {"lr", "hidden_channels", "dropout", "layers", "temperature", "kind"}
    own = {"gcn": set(), "sage": {"aggr"}, "gat": {"heads"}}
    kinds = set()
    for setting in spaces.draw(spaces.SPACES["cfgnn"], 40):
        assert set(setting) == shared | own[setting["kind"]]
        kinds.add(setting["kind"])
    assert kinds == set(own)


def values_drawn(law, n=1200):
    return np.array([setting["x"] for setting in spaces.draw({"x": law}, n, 3)])


def assert_uniform(shares):
    """By Kolmogorov and Smirnov, at a level of about .001."""
    steps = np.arange(1, len(shares) + 1) / len(shares)
    assert np.abs(np.sort(shares) - steps).max() < 1.95 / np.sqrt(len(shares))


def test_values_follow_their_laws():
    assert_uniform((values_drawn(("uniform", 0.1, 0.8)) - 0.1) / 0.7)
    exponents = np.log10(values_drawn(("loguniform", 1e-4, 1e-1)))
    assert_uniform((exponents + 4) / 3)
    for law in (("integers", 2, 5), ("choice", 2, 3, 4, 5)):
        values, counts = np.unique(values_drawn(law), return_counts=True)
        assert values.tolist() == [2, 3, 4, 5]  # both ends too
        assert np.abs(counts - 300).max() < 4 * np.sqrt(1200 * 0.25 * 0.75)

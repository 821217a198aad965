"""The move to one cache: former results are checked, moved, and found again."""

import hashlib
import json

import move_cache
import numpy as np
import pandas as pd
import pytest

from cfhelpers import paths
from cfhelpers._cache import fingerprint
from cfhelpers.datasets import load_dataset, split
from cfhelpers.datasets._dataset import symmetric
from cfhelpers.study import models, training

pytest.importorskip("xgboost")

FAST = {"learning_rate": 0.3, "n_estimators": 3, "max_depth": 2}


@pytest.fixture
def artifacts(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "ARTIFACTS", tmp_path / "artifacts")
    paths.ARTIFACTS.mkdir()
    return paths.ARTIFACTS


def write_former(name, key, arrays):
    """A file as the former cache wrote it: a key without code, a digest in the name."""
    text = json.dumps({"name": name} | key, sort_keys=True)
    digest = hashlib.blake2b(text.encode(), digest_size=10).hexdigest()
    path = paths.ARTIFACTS / f"{name}-{digest}.npz"
    np.savez(path, key=[text, *arrays], **arrays)
    return path


@pytest.fixture(scope="module")
def credit():
    return load_dataset("credit")


def former_model(credit, seed=0, change=0.0):
    """A base model of Credit as it was stored before."""
    parts = split(credit, seed)
    probs, history = training.train(credit, parts, "xgboost", FAST, seed=seed)
    key = {
        "data": "credit",
        "source": "bundled",
        "content": fingerprint(credit.X, credit.y),
        "parts": fingerprint(parts),
        "model": "xgboost",
        "parameters": {"patience": 20} | FAST,
        "seed": seed,
        "device": "cpu",
        "xgboost": models.version("xgboost"),
    }
    arrays = {"probs": probs + np.float32(change), "duration": np.array(7.5)} | history
    return write_former("credit-xgboost", key, arrays), probs


def test_a_base_model_is_computed_anew_moved_and_found_again(
    artifacts, credit, monkeypatch, capsys
):
    stored = [former_model(credit, seed) for seed in (0, 1)]
    (artifacts / "runs").mkdir()
    (artifacts / "runs" / "0123.parquet").touch()
    (artifacts / "foreign.npz").write_bytes(b"not ours")
    move_cache.main([])
    told = capsys.readouterr().out
    assert "2 of 2 results computed anew" in told and "NOT" not in told
    assert "1 files of rows are of no more use" in told
    assert not any(path.exists() for path, _ in stored)
    assert (artifacts / "foreign.npz").exists()
    monkeypatch.setattr(models, "train", None)  # nothing is trained
    for seed, (_, probs) in enumerate(stored):
        found = models.base_model(
            credit,
            split(credit, seed),
            "xgboost",
            parameters=FAST,
            seed=seed,
            device="cpu",
        )
        assert np.array_equal(found.probs, probs) and found.seconds == 7.5
    move_cache.main([])  # what was moved stays
    assert "0 of 0 results" in capsys.readouterr().out


def test_a_result_that_comes_out_differently_keeps_all_from_moving(
    artifacts, credit, capsys
):
    former_model(credit, seed=0)
    former_model(credit, seed=1, change=1e-3)
    before = sorted(artifacts.iterdir())
    with pytest.raises(SystemExit, match="nothing was moved"):
        move_cache.main(["--check", "-1"])
    assert "NOT the same; at most 0.001 apart" in capsys.readouterr().out
    assert sorted(artifacts.iterdir()) == before


def test_graph_models_and_cfgnn_stay_where_they_are(artifacts, capsys):
    probs = np.full((200, 3), 1 / 3, np.float32)
    arrays = {"probs": probs, "epoch": np.array(70.0), "size": np.array(1.25)}
    former = [
        write_former("cfgnn", {"content": "abc", "seed": 0}, arrays),
        write_former("pokec_n-gcn", {"model": "gcn", "seed": 0}, {"probs": probs}),
    ]
    move_cache.main([])
    assert "0 of 0 results" in capsys.readouterr().out
    assert all(path.exists() for path in former)


def test_the_edges_of_credit_are_moved_if_they_belong_to_its_table(artifacts):
    edges = np.array([[0, 1], [1, 2]], np.int32)  # not those that the rule gives
    table = move_cache.credit_table()
    hashes = pd.util.hash_pandas_object(table, index=False).to_numpy()
    digest = hashlib.sha256(hashes.tobytes()).hexdigest()[:12]
    former = artifacts / f"credit_edges_published_{digest}.npy"
    other = artifacts / "credit_edges_published_000000000000.npy"
    np.save(former, edges)
    np.save(other, edges)
    move_cache.main(["--check", "0"])
    assert other.exists() and not former.exists()
    found = load_dataset("credit", graph="published").edge_index
    assert np.array_equal(found, symmetric(edges))

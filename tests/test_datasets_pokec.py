"""Pokec in FairGNN's raw format, the real graph without profiles, simulated users."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from cards import flat

from cfhelpers.datasets import load_dataset, pokec, simulated, split
from cfhelpers.datasets.truth import pokec_truth

pytestmark = pytest.mark.usefixtures("home")


def put(home, frame, pairs, stem="region_job_2", place="pokec"):
    (home / place).mkdir(parents=True, exist_ok=True)
    frame.to_csv(home / place / f"{stem}.csv", index=False)
    text = "".join(f"{a}\t{b}\n" for a, b in pairs)
    (home / place / f"{stem}_relationship.txt").write_text(text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, rows, columns, classes",
    [("pokec_n", 3_341, 268, 4), ("pokec_z", 3_219, 279, 5)],
)
def test_the_true_raw_format_is_read(shared, home, name, rows, columns, classes):
    stem = pokec.STEMS[name]
    frame = pd.read_csv(shared / f"data/pokec/{stem}_first_rows.csv")
    ids = frame["user_id"].to_numpy()
    put(
        home,
        frame,
        [
            (ids[0], ids[1]),
            (ids[1], ids[0]),
            (ids[2], ids[5]),
            (ids[3], ids[3]),
            (ids[4], -7),
        ],
        stem,
    )
    data = load_dataset(name, "local", attribute="gender")
    assert data.X.shape == (rows, columns - 3) and len(data.label_names) == classes
    assert not {"user_id", pokec.TARGET, "gender"} & set(data.X) and "region" in data.X
    np.testing.assert_array_equal(data.y, frame[pokec.TARGET])
    np.testing.assert_array_equal(data.groups == "men", frame["gender"] == 1)
    assert data.edge_index.T.tolist() == [[0, 1], [2, 5], [1, 0], [5, 2]]
    assert list(data.dropped.values()) == [1, 1, 1]
    assert ("fields of work" in flat(data)) == (classes != 4)


def test_fairgnns_own_folder_is_found(home):
    frame = pd.DataFrame(
        {
            "user_id": [5, 9],
            "region": [0, 1],
            "gender": [1.0, 0.0],
            pokec.TARGET: [3, -1],
            "a": [1, 2],
        }
    )
    put(home, frame, [(5, 9)], place="dataset/pokec")
    data = load_dataset("pokec_n", "local", attribute=("region", "gender"))
    assert data.groups.tolist() == ["region 0, men", "region 1, women"] and list(
        data.X
    ) == ["a"]
    assert data.y.tolist() == [3, -1] and data.edge_index.tolist() == [[0, 1], [1, 0]]


def test_unlabelled_users_stay_unlabelled():
    data = load_dataset("pokec_n", n=2_000)
    assert (data.y == -1).sum() > 1_500 and data.counts().to_numpy().sum() == (
        data.y >= 0
    ).sum()
    assert ((split(data, 0) == "unlabelled") == (data.y < 0)).all()
    assert f"{(data.y >= 0).sum():,} labelled" in flat(data)


def test_a_bad_user_file_is_named(home):
    good = {"user_id": [5, 5], "region": [0, 1], "gender": [1, 0], pokec.TARGET: [0, 1]}
    put(home, pd.DataFrame(good), [(5, 5)])
    with pytest.raises(ValueError, match="user file: 2 rows, 1 users; wanted each once"):
        load_dataset("pokec_n", "local")
    put(home, pd.DataFrame(good).drop(columns="gender"), [(5, 5)])
    with pytest.raises(ValueError, match="user file: no column gender"):
        load_dataset("pokec_n", "local")
    with pytest.raises(FileNotFoundError, match="pokec_z: not found; set CFHELPERS_DATA"):
        load_dataset("pokec_z", "local")
    with pytest.raises(ValueError, match="attribute: found 'age'"):
        load_dataset("pokec_n", attribute="age")
    with pytest.raises(ValueError, match="source: found 'web'"):
        load_dataset("pokec_n", "web")


@pytest.mark.slow
def test_the_real_graph_has_the_known_counts_and_features_without_the_attributes(
    shared, monkeypatch
):
    monkeypatch.setenv("CFHELPERS_DATA", str(shared / "data"))
    data = load_dataset("pokec_n", "local", attribute=("region", "gender"))
    assert data.edge_index.shape == (2, 2 * 517_047) and len(data) == 66_569
    assert data.counts().sum(axis=0).tolist() == [4_510, 1_789, 1_353, 1_145]
    assert not [
        c for c in data.X if "region" in c or "gender" in c
    ] and "most profile features" in flat(data)
    assert np.isfinite(data.X).all(axis=None)
    degree = np.bincount(data.edge_index[0], minlength=len(data))
    np.testing.assert_array_equal(data.X["degree"], degree)
    i = int(degree.argmax())
    around = data.edge_index[1][data.edge_index[0] == i]
    assert data.X["neighbours_AGE"][i] == pytest.approx(
        data.X["AGE"][around].mean(), rel=1e-5
    )
    assert data.X["neighbours_degree"][i] == pytest.approx(
        degree[around].mean(), rel=1e-5
    )


def test_structural_features_know_nothing_of_the_labels(home):
    rng = np.random.default_rng(0)
    arrays = {
        "region": rng.integers(0, 2, 200),
        "gender": rng.integers(0, 2, 200),
        "AGE": rng.integers(0, 60, 200),
    }
    row, col = np.array(
        [(i, j) for i in range(200) for j in range(i + 1, 200) if rng.random() < 0.1]
    ).T
    features = []
    for label in (rng.integers(-1, 4, 200), rng.integers(-1, 4, 200)):
        (home / "pokec").mkdir(parents=True, exist_ok=True)
        np.savez(home / "pokec/pokec_n.npz", row=row, col=col, label=label, **arrays)
        features.append(load_dataset("pokec_n", "local").X)
    pd.testing.assert_frame_equal(*features)
    assert {"gender", "neighbours_gender", "coordinate_31"} <= set(features[0])


def two_communities(size=60):
    """Two circles with chords, one friendship between them, and a user without any."""
    rng = np.random.default_rng(0)
    chords = rng.integers(0, size, (2, 4 * size))
    around = np.stack([np.arange(size), np.roll(np.arange(size), 1)])
    circle = np.hstack([around, chords])
    edges = np.hstack([circle, circle + size, [[0], [size]]])
    ones = np.ones(edges.shape[1])
    one_way = sp.coo_array((ones, edges), (2 * size + 1, 2 * size + 1))
    adjacency = (one_way + one_way.T).tocsr()
    adjacency.setdiag(0)
    adjacency.eliminate_zeros()
    adjacency.data[:] = 1
    return adjacency


def test_coordinates_are_alike_within_a_community():
    at = pokec._coordinates(two_communities(), 32)
    alike = at[:-1] @ at[:-1].T
    within = np.mean([alike[:60, :60].mean(), alike[60:, 60:].mean()])
    assert within > 0.9
    assert alike[:60, 60:].mean() < 0


def test_coordinates_of_a_user_without_friends_are_zero():
    at = pokec._coordinates(two_communities(), 8)
    assert not at[-1].any()
    np.testing.assert_allclose(np.linalg.norm(at[:-1], axis=1), 1, atol=1e-3)


@pytest.mark.parametrize("kernel", ["Prescott", "Haswell"])
def test_coordinates_do_not_depend_on_the_processor(kernel):
    code = (
        "import hashlib, sys; sys.path.insert(0, 'tests');"
        "from test_datasets_pokec import two_communities;"
        "from cfhelpers.datasets import pokec;"
        "at = pokec._coordinates(two_communities(), 32);"
        "print(hashlib.sha256(at.tobytes()).hexdigest())"
    )
    here = pokec._coordinates(two_communities(), 32)
    there = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[1],
        env=os.environ | {"OPENBLAS_CORETYPE": kernel},
        check=True,
        capture_output=True,
        text=True,
    )
    assert there.stdout.strip() == hashlib.sha256(here.tobytes()).hexdigest()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pokec_n", "pokec_z"])
def test_the_twin_has_the_published_size_shares_and_homophily(name):
    users, total = pokec.SIZES[name]
    data = load_dataset(name, n=users, attribute=("region", "gender"))
    files = simulated.pokec_files(name, users, 0)
    assert len(data) == users and len(files[1].read_text().splitlines()) == total
    region, gender = (np.array([g.split(", ")[i] for g in data.groups]) for i in (0, 1))
    hidden = np.load(files[0].with_name("hidden_labels.npy"))
    first, second = data.edge_index
    for trait, share in zip(
        (region, gender, hidden), simulated.HOMOPHILY.values(), strict=True
    ):
        assert (trait[first] == trait[second]).mean() == pytest.approx(share, abs=0.02)
    shares, labelled = np.array(simulated.USERS[name]), np.array(simulated.LABELLED[name])
    assert (region == "region 0").mean() == pytest.approx(
        shares[0].sum() / shares.sum(), abs=0.01
    )
    assert (data.y >= 0).mean() == pytest.approx(labelled.sum() / shares.sum(), abs=0.01)
    balance = data.counts().sum(axis=0) / (data.y >= 0).sum()
    np.testing.assert_allclose(
        balance, labelled.sum(axis=(0, 1)) / labelled.sum(), atol=0.015
    )
    if name == "pokec_n":
        assert data.edge_index.shape[1] // 2 == 517_047


@pytest.mark.slow
def test_true_coverage_of_the_twin_counts_the_hidden_labels_too():
    data = load_dataset("pokec_n", n=4_000)
    scores = np.random.default_rng(0).random((4_000, 4))
    truth = pokec_truth(data, scores)
    assert truth.counts.sum() == 4_000
    hidden = np.load(
        simulated.pokec_files("pokec_n", 4_000, 0)[0].with_name("hidden_labels.npy")
    )
    assert ((data.y == -1) | (data.y == hidden)).all()
    cell = (data.groups == data.group_names[0]) & (hidden == 2)
    assert truth.coverage(0.3)[0, 1, 2] == pytest.approx((scores[cell, 1] <= 0.3).mean())


def test_friends_are_distinct_and_nobody_is_his_own():
    rng = np.random.default_rng(1)
    traits = [rng.integers(0, 2, 300), rng.integers(0, 2, 300), rng.integers(0, 3, 300)]
    edges = simulated.friendships(traits, 2_000, rng)
    assert edges.shape == (2, 2_000) and (edges[0] < edges[1]).all()
    assert len(np.unique(edges[0] * 300 + edges[1])) == 2_000

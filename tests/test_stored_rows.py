"""Rows in CSV files: found by their key, replaced by what they are about."""

import numpy as np
import pandas as pd
import pytest

from cfhelpers import paths
from cfhelpers.study import stored_rows
from cfhelpers.study.stored_rows import add_rows, own_rows

COLUMNS = ["model", "split", "heads", "value", "key"]
# hard to read back: many digits, very small, and one that is 17 digits long
VALUES = [0.1 + 0.2, 5e-324, 2.2857142857142856, 1 / 3, 1.0000000000000002]


def rows_of(model, n=5, key="00123", heads=None):
    return pd.DataFrame(
        {
            "model": model,
            "split": np.arange(n),
            "heads": heads,
            "value": VALUES[:n],
            "key": key,
        },
        columns=COLUMNS,
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "new folder" / "rows.csv"


def test_where_there_is_no_file_there_are_no_rows(path):
    found = own_rows(path, COLUMNS, "00123")
    assert found.empty and list(found) == COLUMNS
    assert not path.parent.exists()


def test_rows_are_found_by_their_key_bit_for_bit(path):
    add_rows(path, rows_of("gcn"), ["model", "split"])
    add_rows(path, rows_of("gat", key="123"), ["model", "split"])
    add_rows(path, rows_of("sage", key="1e5"), ["model", "split"])
    for model, key in (("gcn", "00123"), ("gat", "123"), ("sage", "1e5")):
        found = own_rows(path, COLUMNS, key)
        assert found["model"].tolist() == [model] * 5
        assert found["value"].tolist() == VALUES
        assert found.index.tolist() == list(range(5))
    assert own_rows(path, COLUMNS, "100000.0").empty
    assert own_rows(path, COLUMNS, "").empty


def test_rows_about_the_same_things_are_replaced_and_the_others_stay_to_the_letter(path):
    add_rows(path, rows_of("gat", heads=4), ["model", "split"])
    add_rows(path, rows_of("gcn"), ["model", "split"])
    before = path.read_text().splitlines()
    new = rows_of("gcn", n=2, key="other").assign(value=[8.5, 9.5])
    add_rows(path, new, ["model", "split"])
    after = path.read_text().splitlines()
    assert after[:-2] == [
        line for line in before if not line.startswith(("gcn,0", "gcn,1"))
    ]
    assert after[-2:] == ["gcn,0,,8.5,other", "gcn,1,,9.5,other"]


def test_many_rows_may_be_about_one_thing(path):
    add_rows(path, rows_of("gcn"), ["model"])
    add_rows(path, rows_of("gat"), ["model"])
    add_rows(path, rows_of("gcn", n=1, key="new"), ["model"])
    stored = pd.read_csv(path, dtype=str)
    assert stored["model"].tolist() == ["gat"] * 5 + ["gcn"]


@pytest.mark.parametrize("name", ["", "NA", "nan", "None", "{}", '{"a": 1, "b": "x,y"}'])
def test_things_may_have_any_name(path, name):
    add_rows(path, rows_of(name, n=1), ["model"])
    add_rows(path, rows_of("gcn", n=1), ["model"])
    add_rows(path, rows_of(name, n=1, key="new"), ["model"])
    stored = pd.read_csv(path, dtype=str, keep_default_na=False)
    assert stored["model"].tolist() == ["gcn", name]
    assert stored["key"].tolist() == ["00123", "new"]


def test_a_new_column_is_empty_in_older_rows(path):
    add_rows(path, rows_of("gcn", n=1), ["model"])
    add_rows(path, rows_of("gat", n=1).assign(extra="new"), ["model"])
    stored = pd.read_csv(path, dtype=str, keep_default_na=False)
    assert stored["extra"].tolist() == ["", "new"]


def test_a_failed_write_leaves_the_file(path, monkeypatch):
    add_rows(path, rows_of("gcn"), ["model"])
    before = path.read_bytes()

    def fails(*_, **__):
        raise OSError("no space")

    monkeypatch.setattr(pd.DataFrame, "to_csv", fails)
    with pytest.raises(OSError, match="no space"):
        add_rows(path, rows_of("gat"), ["model"])
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_rows_of_a_former_model_are_told_apart_until_they_are_run_again(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    rows = pd.DataFrame(
        {
            "dataset": "pokec_n",
            "attribute": "region",
            "data": "other",
            "records": "real, 66,569 rows",
            "profile": "paper",
            "model": "gcn",
            "parameters": "{}",
            "guarantee": "none",
            "training_split": [0],
            "key": "0123456789abcdef0123",
        }
    )
    stored_rows.save_rows(rows)
    stored_rows.save_rows(rows.assign(training_split=1))
    assert stored_rows.former_keys() == frozenset()
    assert len(stored_rows.load_training_rows()) == 2

    former = pd.DataFrame({"rows": ["one"], "key": rows["key"], "why": ["settings"]})
    former.to_csv(tmp_path / stored_rows.FORMER_FILE, index=False)
    found = stored_rows.load_rows()
    assert found["data"].tolist() == ["former model"]
    assert found["records"].tolist() == ["real, 66,569 rows, a former model"]
    assert stored_rows.load_training_rows().empty

    stored_rows.save_rows(rows.assign(key="another"))
    assert stored_rows.load_rows()["data"].tolist() == ["other"]
    with pytest.warns(UserWarning, match="pokec_n_region_1.parquet: left out"):
        assert len(stored_rows.load_training_rows()) == 1


def test_every_row_that_is_named_as_former_says_why():
    former = pd.read_csv(paths.RESULTS / stored_rows.FORMER_FILE, dtype=str)
    assert list(former) == ["rows", "key", "why"]
    assert former["why"].str.len().gt(20).all()
    assert former["key"].str.fullmatch("[0-9a-f]{20}").all()

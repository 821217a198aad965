"""The JSON document of an audit: plain, complete, documented, and true to the file."""

import json
import re

import pandas as pd
import pytest
from audit_files import ALL_METRICS, education, fair, incomes

from cfhelpers import paths
from cfhelpers.auditing import audit_file, document, report

PAGE = (paths.ROOT / "docs" / "audit_json.md").read_text(encoding="utf-8")
OPTIONS = {"label": "income", "groups": "sex,age"}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("incomes") / "my.csv"
    incomes().to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def found(file):
    return audit_file(file, **OPTIONS)


@pytest.fixture(scope="module")
def made(found):
    return report.document(found)


@pytest.fixture(scope="module")
def education_document(tmp_path_factory):
    path = tmp_path_factory.mktemp("education") / "sets.csv"
    education().to_csv(path, index=False)
    return report.document(audit_file(path, groups="region", metrics=ALL_METRICS))


def test_the_document_survives_json_without_special_numbers(made):
    assert json.loads(json.dumps(made, allow_nan=False)) == made


def field_names(value):
    """Every key at any depth; the names of options are the user's."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            if key != "options":
                yield from field_names(item)
    elif isinstance(value, list):
        for item in value[:50]:
            yield from field_names(item)


def test_every_field_is_documented(made, education_document):
    words = set(re.findall(r"`([\w.\[\]]+)`", PAGE))
    names = {*field_names(made), *field_names(education_document)}
    assert {name for name in names if name not in words} == set()


def test_every_table_row_of_the_page_names_a_field(made):
    """No field is documented that does not exist."""
    words = set()
    for row in re.findall(r"^\| (`.*?) \|", PAGE, flags=re.MULTILINE):
        words |= set(re.findall(r"`(\w+)`", row))
    comparison = {"earlier", "n_cells", "only_now", "only_earlier", "notes"}
    assert words - set(field_names(made)) - comparison == set()


def test_the_version_of_the_document_is_that_of_the_page(made):
    assert made["schema"] == "cfhelpers.audit" and f"`{made['schema']}`" in PAGE
    versions = re.findall(r"^\| (\d+) \|", PAGE, flags=re.MULTILINE)
    assert made["schema_version"] == int(versions[-1])


def test_the_stamp_is_complete(made, file):
    assert re.fullmatch(r"[0-9a-f]{64}", made["file"]["sha256"])
    assert made["file"]["name"] == "my.csv" and made["file"]["rows"] == 3000
    assert made["file"]["rows_audited"] + made["file"]["rows_calibration"] == 3000
    assert {"label", "groups", "alpha", "confidence", "seed"} <= set(made["options"])
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d", made["date"])
    assert str(file.parent) not in json.dumps(made)


def test_the_sentence_is_about_people_of_the_file(file, found, made):
    """Counted again in pandas: women with a high income who are missed."""
    entry = made["verdicts"][0]
    assert (entry["metric"], entry["grouping"]) == ("equal_opportunity", "sex")
    assert entry["verdict"] == "beyond" and entry["label"] == ">50K"
    rows = pd.read_csv(file)[found.audited]
    cutoff = found.cutoffs[">50K"]
    high = rows[rows["income"] == ">50K"]
    missed = (high["p_>50K"] < cutoff - 1e-9).groupby(high["sex"]).agg(["sum", "size"])
    women = missed.loc["women"]
    men = missed.loc["men"]
    fewer = round(women["sum"] - women["size"] * men["sum"] / men["size"])
    share = women["sum"] / women["size"]
    said = f"Of {women['size']:,} people in “women” whose true label is “>50K”, "
    assert entry["sentence"].startswith(
        f"{said}{women['sum']:,} ({share:.0%}) are missed"
    )
    assert f"{fewer:,} fewer people" in entry["sentence"]


def test_sentences_are_said_only_of_what_is_beyond(made, education_document):
    for entry in [*made["verdicts"], *education_document["verdicts"]]:
        assert bool(entry["sentence"]) == (entry["verdict"] == "beyond")
        assert entry["next_steps"]


def test_cells_are_those_of_the_audit(found, made):
    for by, audited in found.audits.items():
        cells = [cell for cell in made["cells"] if cell["grouping"] == by]
        assert [cell["n"] for cell in cells] == audited.table["count"].tolist()
        shares = [cell["share"] for cell in cells]
        wanted = audited.table["coverage"].astype(object)
        assert shares == wanted.where(audited.table["count"] > 0, None).tolist()
        for cell in cells:
            if cell["metric"] != "predictive_parity_proxy" and cell["n"]:
                assert cell["share"] == pytest.approx(cell["covered"] / cell["n"])


def test_what_is_not_within_has_fixes_measured_on_the_same_rows(made):
    for entry in made["verdicts"]:
        assert bool(entry["fixes"]) == (entry["verdict"] != "within")
        assert len({fix["rows"] for fix in entry["fixes"]}) <= 1
        for fix in entry["fixes"]:
            assert [item["label"] for item in fix["by_label"]] == made["labels"]


def test_sets_have_no_thresholds_and_no_fixes(education_document):
    assert education_document["thresholds"] is None
    assert all(entry["fixes"] == [] for entry in education_document["verdicts"])


def test_where_all_is_within_nothing_is_to_be_done(tmp_path):
    fair().to_csv(tmp_path / "fair.csv", index=False)
    metrics = "equal_opportunity,overall_accuracy_equality"
    made = report.document(audit_file(tmp_path / "fair.csv", metrics=metrics))
    for entry in made["verdicts"]:
        assert entry["verdict"] == "within" and entry["sentence"] == ""
        assert [step["step"] for step in entry["next_steps"]] == ["nothing"]


BAD = {
    "nothing there": (None, "there is no such file"),
    "no JSON": ("<html>", "last.json is not a JSON file"),
    "a list": ("[]", "last.json is not the JSON document of an audit"),
    "another document": ('{"schema": "x"}', "is not the JSON document of an audit"),
    "another version": (
        '{"schema": "cfhelpers.audit", "schema_version": 99}',
        "has version 99 of the document; this program reads version 1",
    ),
    "half a document": (
        '{"schema": "cfhelpers.audit", "schema_version": 1, "cells": []}',
        "last.json lacks verdicts, file",
    ),
}


@pytest.mark.parametrize("text, message", BAD.values(), ids=BAD.keys())
def test_what_is_no_document_is_refused_in_one_sentence(tmp_path, text, message):
    path = tmp_path / "last.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        report.read_document(path)


def test_a_document_is_read_as_it_was_written(tmp_path, made):
    path = tmp_path / "last.json"
    path.write_text(json.dumps(made), encoding="utf-8")
    assert report.read_document(path) == made


def test_two_audits_are_compared_in_the_document(file, made, tmp_path):
    better = incomes()
    better["p_>50K"] = better["p_>50K"].where(
        better["sex"] == "men", (better["p_>50K"] + 0.25).clip(upper=1)
    )
    better["p_<=50K"] = 1 - better["p_>50K"]
    better.to_csv(tmp_path / "new.csv", index=False)
    now = report.document(audit_file(tmp_path / "new.csv", **OPTIONS), made)
    compared = now["compared"]
    assert compared["earlier"]["file"] == "my.csv"
    assert compared["cells"] and compared["n_cells"] > 10
    assert set(field_names(compared)) <= set(re.findall(r"`(\w+)`", PAGE)) | {
        f"{field}_{when}"
        for field in ("verdict", "estimate", "lower", "upper", "closeness")
        for when in ("now", "then")
    }
    assert report.compared(now, made)[0].startswith("Compared with the audit of “my.csv”")
    assert json.loads(json.dumps(now, allow_nan=False)) == now


def test_values_that_json_does_not_know_become_text_or_none():
    assert document.plain_value(float("nan")) is None
    assert document.plain_value({"a": (1, {2})}) == {"a": [1, "{2}"]}


def test_least_people_is_where_the_test_begins_to_pass(found):
    audited = found.audits["sex"]
    judge = audited.judges["equal_opportunity"]
    metric = audited.shares["equal_opportunity"].metric
    least = document.least_people(metric, judge)
    assert 20 <= least <= 40  # two bounds at γ/2 each would need 36


def test_people_are_whole_numbers_beside_a_size_of_sets_which_counts_labels(tmp_path):
    path = tmp_path / "incomes.csv"
    incomes(400).to_csv(path, index=False)
    metrics = "equal_opportunity,set_size,singletons"
    found = audit_file(path, label="income", groups="sex", metrics=metrics)
    made = report.document(found)
    for cell in made["cells"]:
        wanted = type(None) if cell["metric"] == "set_size" else int
        assert isinstance(cell["covered"], wanted)
    for entry in made["verdicts"]:
        is_size = entry["metric"] == "set_size"
        assert (entry["lowest"]["covered"] is None) == is_size
        assert ".0 (" not in entry["sentence"]

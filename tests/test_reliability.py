"""docs/reliability.md is what was noted, and names tests and bugs that there are."""

import re

import pytest
import stress


@pytest.fixture(scope="module")
def kept():
    return stress.read_kept()


def test_the_page_is_written_from_the_notes(kept):
    assert stress.PAGE.read_text(encoding="utf-8") == stress.page(kept)


def test_the_page_does_not_depend_on_which_test_was_run_last(kept, tmp_path, monkeypatch):
    monkeypatch.setattr(stress, "KEPT", tmp_path / "notes.json")
    monkeypatch.setattr(stress, "PAGE", tmp_path / "page.md")
    last_first = dict(reversed(kept["tests"].items()))
    stress.write_kept(kept | {"tests": last_first})
    assert stress.PAGE.read_text(encoding="utf-8") == stress.page(kept)


def test_every_part_was_run_and_nothing_failed(kept):
    assert {test["part"] for test in kept["tests"].values()} == set(stress.PARTS)
    failed = [name for name, test in kept["tests"].items() if test["outcome"] == "failed"]
    assert not failed


def test_every_test_that_was_run_is_still_there(root, kept):
    names = [*kept["tests"], *(defect["test"] for defect in stress.read_defects())]
    for file, name in {(n.partition("::")[0], stress.function_of(n)) for n in names}:
        assert f"def {name}(" in (root / file).read_text(encoding="utf-8"), name


def test_every_part_has_a_bug_that_it_noticed(kept):
    noticed = {name for name, entry in kept["bugs"].items() if entry["noticed"]}
    bugs = stress.stress_bugs()
    assert all(entry["noticed"] for entry in kept["bugs"].values())
    for part in stress.PARTS:
        file = f"tests/stress/test_stress_{part}.py::"
        own = {bug.name for bug in bugs if bug.tests[0].startswith(file)}
        assert own & noticed, part


def test_the_statistics_fail_by_chance_at_most_once_in_a_million(kept):
    chances = [test.get("by_chance", 0) for test in kept["tests"].values()]
    assert 0 < sum(chances) <= 1e-6


def test_the_makefile_has_every_part(root):
    text = (root / "Makefile").read_text(encoding="utf-8")
    parts = re.search(r"^STRESS := (.*)$", text, re.MULTILINE)[1]
    assert parts.split() == list(stress.PARTS)


def test_a_row_counts_every_form_of_a_test():
    tests = [
        {"count": 20, "unit": "files", "outcome": "passed", "seconds": 1.6, "date": "b"},
        {"count": 20, "unit": "files", "outcome": "passed", "seconds": 2, "date": "a"},
    ]
    assert stress.row(tests, "test_it_holds") == (
        "| it holds | 2 × 20 files | passed | 4 |  | b |"
    )
    tests[1]["outcome"] = "failed"
    assert "| failed |" in stress.row(tests, "test_it_holds")
    skipped = [{"outcome": "skipped", "reason": "no network", "date": "a"}]
    assert "not run: no network" in stress.row(skipped, "test_it_holds")

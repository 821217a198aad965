"""How the repository is kept: scientific Python's review, workflows, versions."""

import re
import tomllib

import lite
import pytest
import versions
import yaml
from packaging.version import Version
from repo_review.processor import process

ACTION = re.compile(r"uses: (\S+)@(\S+)")


@pytest.fixture(scope="module")
def review(root):
    return process(root).results


@pytest.fixture(scope="module")
def workflows(root):
    return sorted((root / ".github" / "workflows").glob("*.yml"))


def test_scientific_pythons_review_finds_no_fault(review):
    failed = [check.name for check in review if check.result is False]
    assert not failed
    assert sum(check.result is True for check in review) >= 50


def test_every_exception_of_the_review_has_a_reason(root):
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    exceptions = settings["tool"]["repo-review"]["ignore"]
    assert len(exceptions) <= 2
    assert all(len(reason.split()) > 5 for reason in exceptions.values())


def test_actions_are_pinned_to_commits_and_named_by_version(workflows):
    for workflow in workflows:
        text = workflow.read_text(encoding="utf-8")
        used = ACTION.findall(text)
        assert used
        assert all(re.fullmatch(r"[0-9a-f]{40}", commit) for _, commit in used)
        assert len(re.findall(r"uses: \S+@[0-9a-f]{40} # v[\d.]+$", text, re.M)) == len(
            used
        )


def test_workflows_may_read_and_no_more(workflows):
    for workflow in workflows:
        assert yaml.safe_load(workflow.read_text(encoding="utf-8"))["permissions"] == {
            "contents": "read"
        }


def test_the_lessons_of_the_site_are_run_by_a_workflow(root):
    text = (root / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    for number in lite.LESSONS:
        [path] = (root / "notebooks").glob(f"{number}_*.ipynb")
        assert f"notebooks/{path.name}" in text


def test_the_lowest_versions_are_those_that_pyproject_names():
    limits = dict(line.split("==") for line in versions.lowest())
    assert Version(limits["numpy"]) == Version("2.0")
    assert {"scipy", "pandas", "scikit-learn", "numba", "pyarrow"} <= set(limits)


def test_the_tests_of_the_method_exist_and_need_neither_torch_nor_ray(root):
    for name in versions.METHOD_TESTS:
        text = (root / name).read_text(encoding="utf-8")
        assert not re.search(r"^(import|from) (torch|ray|xgboost|nbformat)\b", text, re.M)


def test_the_changelog_begins_with_what_is_not_released_yet(root):
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## (.+)$", text, re.M)
    assert sections[0] == "Unreleased" and "0.1.0" in sections


@pytest.mark.parametrize(
    "name", ["CONTRIBUTING.md", "CHANGELOG.md", "docs/stability.md", "CODE_OF_CONDUCT.md"]
)
def test_links_of_the_pages_for_contributors_resolve(root, name):
    page = root / name
    links = re.findall(r"\]\(([^)#]+?)\)", page.read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link]
    assert not [link for link in local if not (page.parent / link).exists()]

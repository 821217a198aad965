"""The list of bugs fits the code, and the script tells those that a test notices."""

import mutations
import pytest

LISTED = mutations.read_mutations()
CODE = "def smaller(a, b):\n    return a if a < b else b\n"
TESTS = """from code_of_project import smaller


def test_of_two():
    assert smaller(1, 2) == 1
"""


def test_there_are_at_least_twenty_bugs():
    assert len(LISTED) >= 20


@pytest.mark.parametrize("bug", LISTED, ids=lambda bug: bug.name)
def test_a_listed_bug_can_be_put_in(root, bug):
    text = (root / bug.file).read_text(encoding="utf-8")
    changed = mutations.mutated(text, bug)
    assert changed != text
    compile(changed, bug.file, "exec")
    for test in bug.tests:
        file, _, name = test.partition("::")
        tests = (root / file).read_text(encoding="utf-8")
        assert f"def {name.partition('[')[0]}(" in tests


@pytest.mark.stress
def test_a_bug_is_noticed_or_not(tmp_path, capsys):
    root = tmp_path / "small"
    (root / "tests").mkdir(parents=True)
    (root / "code_of_project.py").write_text(CODE)
    (root / "tests" / "test_code.py").write_text(TESTS)
    file = "code_of_project.py"
    tests = ["tests/test_code.py::test_of_two"]
    listed = [
        mutations.Mutation("the larger", file, "a < b", "a > b", tests),
        mutations.Mutation("ties", file, "a < b", "a <= b", tests),
    ]
    assert mutations.check(root, listed) == ["ties"]
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[-3] for line in printed] == [tests[0], "NOBODY"]
    assert (root / file).read_text() == CODE  # only the copy is changed
    gone = mutations.Mutation("gone", file, "no such text", "", tests)
    with pytest.raises(ValueError, match="gone: found the text 0 times"):
        mutations.check(root, [gone])
    broken = mutations.Mutation("broken", file, "return", "retrun", tests)
    with pytest.raises(RuntimeError, match="broken: pytest could not run"):
        mutations.check(root, [broken])


@pytest.mark.slow
def test_tests_that_fail_without_a_bug_are_told(tmp_path):
    root = tmp_path / "small"
    (root / "tests").mkdir(parents=True)
    (root / "code_of_project.py").write_text(CODE.replace("<", ">"))
    (root / "tests" / "test_code.py").write_text(TESTS)
    tests = ["tests/test_code.py::test_of_two"]
    bug = mutations.Mutation("bug", "code_of_project.py", "a > b", "a < b", tests)
    with pytest.raises(RuntimeError, match="tests fail before any bug is put in"):
        mutations.check(root, [bug])

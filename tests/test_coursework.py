"""nbgrader makes the exercises from the solutions.

Their checks pass right answers and name what is wrong in others.
"""

import copy
import functools
import re
from pathlib import Path

import coursework
import nbformat
import pytest
from nbformat.v4 import new_markdown_cell

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
NAMES = sorted(path.stem for path in (FOLDER / "solutions").glob("*.ipynb"))
HIDDEN = "### BEGIN HIDDEN TESTS"
CARELESS = (
    "def prediction_sets(scores, threshold):\n    return np.asarray(scores) < threshold"
)
BLANK = "# YOUR CODE HERE\n    raise NotImplementedError()"


@functools.cache
def read(kind, name):
    return nbformat.read(FOLDER / kind / f"{name}.ipynb", as_version=4)


def mark(cell):
    return cell.metadata["nbgrader"]


def coded(notebook, part):
    """Code cells by grade id: the answers, or (part "grade") the checks."""
    cells = [
        cell for cell in notebook.cells if cell.cell_type == "code" and mark(cell)[part]
    ]
    return {mark(cell)["grade_id"]: cell for cell in cells}


def play(name, answer_id, instead=(), kind="exercises"):
    """Run the notebook up to the check of one answer, with right answers; the namespace.

    The checks are those that students see (kind "exercises"), or all of them
    ("solutions"). After an answer something else may be run.
    """
    space = {}
    for right, shown in zip(
        read("solutions", name).cells, read(kind, name).cells, strict=True
    ):
        if right.cell_type == "code":
            exec(right.source if mark(right)["solution"] else shown.source, space)
            if mark(right)["grade_id"] == answer_id:
                for step in instead:
                    step(space) if callable(step) else exec(step, space)
            if mark(right)["grade_id"] == f"{answer_id}-check":
                return space
    raise LookupError(f"{name} has no check for {answer_id}")


def wrong_answers():
    """(exercise, mistake, hint, [code]) from wrong_answers.txt."""
    text = Path(__file__).with_name("wrong_answers.txt").read_text(encoding="utf-8")
    shared, cases = {}, []
    for part in text.split("\n=== ")[3:]:
        head, _, code = part.partition("\n")
        exercise, *rest = head.split(" | ")
        if rest:
            cases.append((exercise, *rest, [shared.get(exercise, ""), code]))
        else:
            shared[exercise] = code
    return cases


EXERCISES = {
    answer_id: name
    for name in NAMES
    for answer_id in coded(read("solutions", name), "solution")
}
CASES = wrong_answers()


def test_every_exercise_is_tried_with_wrong_answers():
    tried = [exercise for exercise, *_ in CASES]
    assert (
        set(tried) == set(EXERCISES)
        and min(tried.count(exercise) for exercise in EXERCISES) >= 3
    )


@pytest.mark.parametrize(
    "exercise, mistake, hint, code",
    CASES,
    ids=[f"{case[0]}: {case[1]}" for case in CASES],
)
def test_a_wrong_answer_fails_with_its_hint(exercise, mistake, hint, code):
    with pytest.raises(AssertionError, match=hint):
        play(EXERCISES[exercise], exercise, code)


@pytest.mark.slow
@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_solution_passes_what_students_see_and_what_they_do_not(exercise, capsys):
    for kind in ("exercises", "solutions"):
        play(EXERCISES[exercise], exercise, kind=kind)
        assert capsys.readouterr().out.endswith(": passes\n")


@pytest.mark.parametrize("exercise", EXERCISES)
def test_a_blank_answer_fails(exercise):
    blank = coded(read("exercises", EXERCISES[exercise]), "solution")[exercise].source
    assert BLANK in blank
    with pytest.raises(NotImplementedError):
        play(EXERCISES[exercise], exercise, [blank])


def has_hidden_checks(exercise):
    return (
        HIDDEN
        in coded(read("solutions", EXERCISES[exercise]), "grade")[
            f"{exercise}-check"
        ].source
    )


@pytest.mark.slow
@pytest.mark.parametrize("exercise", list(filter(has_hidden_checks, EXERCISES)))
def test_learning_the_visible_numbers_by_heart_fails_the_hidden_checks(exercise):
    name = EXERCISES[exercise]
    function = re.findall(
        r"def (\w+)\(", coded(read("solutions", name), "solution")[exercise].source
    )[-1]
    learnt = []

    def record(space):
        right = space[function]
        space[function] = lambda *a, **k: learnt.append(right(*a, **k)) or learnt[-1]

    def recite(space):
        rest = iter(learnt)
        space[function] = lambda *a, **k: next(rest, learnt[-1])

    play(name, exercise, [record])
    play(name, exercise, [recite])
    with pytest.raises(
        (AssertionError, ValueError)
    ):  # ValueError: an array of another shape
        play(name, exercise, [recite], kind="solutions")


@pytest.mark.parametrize("name", NAMES)
def test_an_exercise_shows_no_solution_and_adds_up(name):
    solved, released = read("solutions", name), read("exercises", name)
    text = "\n".join(cell.source for cell in released.cells)
    assert not re.search("SOLUTION|HIDDEN|MARK SCHEME|Marking:", text)
    assert all(not cell.outputs for cell in released.cells if cell.cell_type == "code")
    points = sum(mark(cell).get("points", 0) for cell in released.cells)
    assert f"· {points} points ·" in released.cells[0].source
    ids = [mark(cell)["grade_id"] for cell in solved.cells]
    assert (
        len(set(ids)) == len(ids)
        and [mark(cell)["grade_id"] for cell in released.cells] == ids
    )
    written = [
        cell
        for cell in released.cells
        if cell.cell_type == "markdown" and mark(cell)["solution"]
    ]
    assert len(written) == 1 and "YOUR ANSWER HERE" in written[0].source


@pytest.mark.parametrize("name", NAMES)
def test_links_of_exercises_and_solutions_lead_to_files(name):
    for kind in ("exercises", "solutions"):
        text = "\n".join(
            cell.source for cell in read(kind, name).cells if cell.cell_type == "markdown"
        )
        links = re.findall(r"\]\(([^)\s#]+)\)", text)
        assert len(links) >= 3 and not [
            link for link in links if not (FOLDER / kind / link).is_file()
        ]


@pytest.mark.parametrize("name", NAMES)
def test_solutions_are_stored_as_they_ran(name):
    cells = [cell for cell in read("solutions", name).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert all(
        cell.outputs[0].text.endswith(": passes\n")
        for cell in cells
        if mark(cell)["grade"]
    )


def test_the_page_for_instructors_has_the_points_right():
    page = (FOLDER.parent / "docs" / "teaching.md").read_text(encoding="utf-8")
    auto = written = 0
    for name in NAMES:
        graded = [cell for cell in read("solutions", name).cells if mark(cell)["grade"]]
        by_kind = {
            kind: sum(mark(c)["points"] for c in graded if c.cell_type == kind)
            for kind in ("code", "markdown")
        }
        assert f"exercises/{name}.ipynb) | {sum(by_kind.values())} |" in page
        auto, written = auto + by_kind["code"], written + by_kind["markdown"]
    assert f"Checks give {auto} points by machine; ten more" in page and written == 10


# With nbgrader itself.


def hand_in(folder, grader, student, fill_in):
    """The points by grade id of a student's copy of the first assignment.

    Its sources are `fill_in(id, cell)`.
    """
    name = NAMES[0]
    notebook = nbformat.read(folder / "release" / name / f"{name}.ipynb", as_version=4)
    for cell in notebook.cells:
        cell.source = fill_in(mark(cell)["grade_id"], cell)
    target = folder / "submitted" / student / name
    target.mkdir(parents=True)
    nbformat.write(notebook, target / f"{name}.ipynb")
    coursework.succeed(grader.autograde(name, student))
    with grader.gradebook as book:
        return {
            grade.name: grade.auto_score
            for grade in book.find_submission_notebook(name, name, student).grades
        }


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Object of type")  # nbgrader's, about its own database
def test_the_exercises_are_what_nbgrader_makes_of_the_solutions_and_it_grades_them(
    tmp_path,
):
    pytest.importorskip("nbgrader")
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "old.ipynb").touch()
    written = coursework.exercises(tmp_path / "course", tmp_path / "made")
    assert [path.name for path in written] == [f"{name}.ipynb" for name in NAMES] and len(
        written
    ) == 5
    assert sorted((tmp_path / "made").iterdir()) == written
    for path in written:
        assert path.read_text(encoding="utf-8") == (
            FOLDER / "exercises" / path.name
        ).read_text(encoding="utf-8")

    room = tmp_path / "course", coursework.grader(tmp_path / "course")
    checks = coded(read("solutions", NAMES[0]), "grade")
    full = {grade_id: mark(cell)["points"] for grade_id, cell in checks.items()}

    def right(grade_id, cell):
        return coded(read("solutions", NAMES[0]), "solution").get(grade_id, cell).source

    def careless_and_cheating(grade_id, cell):
        changed = {"ex01-quantile": cell.source, "ex01-sets": CARELESS} | dict.fromkeys(
            checks, "pass"
        )
        return changed.get(grade_id) or right(grade_id, cell)

    assert hand_in(*room, "ada", right).items() >= full.items()
    some = hand_in(*room, "bob", careless_and_cheating)  # nbgrader puts the checks back
    assert {name: some[name] for name in full} == full | {
        "ex01-quantile-check": 0,
        "ex01-sets-check": 0,
    }


@pytest.mark.slow
def test_the_release_version_validates_once_it_is_filled_in(tmp_path):
    pytest.importorskip("nbgrader")
    from nbgrader.validator import Validator

    notebook = copy.deepcopy(read("exercises", NAMES[-1]))
    solutions = coded(read("solutions", NAMES[-1]), "solution")
    for cell in notebook.cells:
        if mark(cell)["solution"]:
            cell.source = solutions.get(
                mark(cell)["grade_id"], new_markdown_cell("My answer.")
            ).source
    nbformat.write(notebook, tmp_path / "done.ipynb")
    assert Validator().validate(str(tmp_path / "done.ipynb")) == {}


def test_a_course_is_not_started_over_another(tmp_path, capsys):
    coursework.main(["course", str(tmp_path / "new")])
    assert len(capsys.readouterr().out.splitlines()) == len(NAMES)
    with pytest.raises(ValueError, match=r"folder: .* is not empty"):
        coursework.course(tmp_path / "new")

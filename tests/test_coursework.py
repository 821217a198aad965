"""nbgrader makes the exercises from the solutions.

Their checks pass right answers and name what is wrong in others.
"""

import ast
import copy
import functools
import itertools
import re
from pathlib import Path

import coursework
import nbformat
import pytest
from matplotlib import pyplot
from nbformat.v4 import new_markdown_cell

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
NAMES = sorted(path.stem for path in (FOLDER / "solutions").glob("*.ipynb"))
HIDDEN = "### BEGIN HIDDEN TESTS"
CARELESS = "def keep(kinds, before, coming, v):\n    return np.full(len(kinds), True)"
BLANK = "# YOUR CODE HERE\n    raise NotImplementedError()"


@pytest.fixture(autouse=True)
def no_figure_is_left_open():
    yield
    pyplot.close("all")


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


def is_needed(grade_id, answer_id):
    """Whether the check of an answer needs a cell: not other checks or other figures."""
    if grade_id == answer_id or grade_id.startswith(f"{answer_id}-"):
        return True
    return not re.search("-check$|-figure-code$", grade_id)


def play(name, answer_id, instead=(), kind="exercises"):
    """Run what the check of one answer needs, with right answers; the namespace.

    The checks are those that students see (kind "exercises"), or all of them
    ("solutions"). After an answer something else may be run.
    """
    space = {}
    for right, shown in zip(
        read("solutions", name).cells, read(kind, name).cells, strict=True
    ):
        grade_id = mark(right)["grade_id"]
        if right.cell_type == "code" and is_needed(grade_id, answer_id):
            exec(right.source if mark(right)["solution"] else shown.source, space)
            if grade_id == answer_id:
                for step in instead:
                    step(space) if callable(step) else exec(step, space)
            if grade_id == f"{answer_id}-check":
                return space
    raise LookupError(f"{name} has no check for {answer_id}")


def answers_in(file):
    """(exercise, …, [code]) from a file of answers, with what an exercise's share."""
    text = Path(__file__).with_name(file).read_text(encoding="utf-8")
    shared, cases = {}, []
    for part in text.split("\n=== ")[1:]:
        head, _, code = part.partition("\n")
        exercise, *rest = head.split(" | ")
        if not exercise.startswith("ex0"):
            continue  # the description at the top
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
CASES = answers_in("wrong_answers.txt")
OTHER_WAYS = answers_in("right_answers.txt")


def test_every_exercise_is_tried_with_wrong_answers_and_with_another_right_one():
    tried = [exercise for exercise, *_ in CASES]
    assert set(tried) == set(EXERCISES)
    assert min(tried.count(exercise) for exercise in EXERCISES) >= 5
    assert len(CASES) >= 300
    assert {exercise for exercise, *_ in OTHER_WAYS} == set(EXERCISES)


@pytest.mark.parametrize(
    "exercise, mistake, hint, code",
    CASES,
    ids=[f"{case[0]}: {case[1]}" for case in CASES],
)
def test_a_wrong_answer_fails_with_its_hint(exercise, mistake, hint, code):
    with pytest.raises(AssertionError, match=hint):
        play(EXERCISES[exercise], exercise, code)


@pytest.mark.parametrize(
    "exercise, way, code",
    OTHER_WAYS,
    ids=[f"{case[0]}: {case[1]}" for case in OTHER_WAYS],
)
def test_a_right_answer_in_another_way_passes(exercise, way, code, capsys):
    play(EXERCISES[exercise], exercise, code, kind="solutions")
    assert capsys.readouterr().out.endswith(": passes\n")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_solution_passes_what_students_see_from_top_to_bottom(name, capsys):
    space = {}
    for right, shown in zip(
        read("solutions", name).cells, read("exercises", name).cells, strict=True
    ):
        if right.cell_type == "code":
            exec(right.source if mark(right)["solution"] else shown.source, space)
        if right.cell_type == "code" and mark(right)["grade"]:
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
    answer = coded(read("solutions", name), "solution")[exercise].source
    function = re.findall(r"^def (\w+)\(", answer, flags=re.MULTILINE)[-1]
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


def check_points_and_minutes_beside_the_titles(released):
    """Each title says what its exercise is worth; the whole takes 30 to 45 minutes."""
    text = "\n".join(c.source for c in released.cells if c.cell_type == "markdown")
    beside = re.findall(r"^## \d\. .+ \((\d) points?, (\d+) minutes\)$", text, flags=re.M)
    assert len(beside) == len(re.findall("^## ", text, flags=re.M)) == 7
    graded = [mark(cell)["points"] for cell in released.cells if mark(cell)["grade"]]
    assert [int(points) for points, _ in beside] == graded
    assert 30 <= sum(int(minutes) for _, minutes in beside) <= 45
    assert "· 45 minutes ·" in released.cells[0].source


@pytest.mark.parametrize("name", NAMES)
def test_the_lines_of_an_exercise_are_short(name):
    cells = [cell for cell in read("solutions", name).cells if cell.cell_type == "code"]
    lines = [line for cell in cells for line in cell.source.splitlines()]
    assert [line for line in lines if len(line) > 90] == []


@pytest.mark.parametrize("kind", ["exercises", "solutions"])
@pytest.mark.parametrize("name", NAMES)
def test_who_unfolds_a_cell_meets_no_wall(name, kind):
    cells = read(kind, name).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert max(len(cell.source.splitlines()) for cell in code) <= 30
    assert len(cells) - len(code) >= 0.8 * len(code)


@pytest.mark.parametrize("name", NAMES)
def test_every_check_is_announced_folded_and_kept_from_students(name):
    """A sentence says how many cells it has; all but the last only define things."""
    counts = {
        1: "Run the folded cell.",
        2: "Run both folded cells.",
        3: "Run the three folded cells.",
        4: "Run the four folded cells.",
    }
    cells = read("exercises", name).cells
    places = [place for place, cell in enumerate(cells) if mark(cell)["grade"]]
    for place in places:
        if cells[place].cell_type != "code":
            continue
        first = place
        while cells[first - 1].cell_type == "code":
            first -= 1
        said = cells[first - 1].source
        assert said.startswith("**Check.** ")
        assert said.endswith(counts[place + 1 - first])
        assert mark(cells[first - 2])["solution"]
        for cell in cells[first : place + 1]:
            assert cell.metadata["jupyter"] == {"source_hidden": True}
            assert mark(cell)["locked"]


def names_bound(source):
    """What a cell's own level defines or assigns."""
    names = set()
    pending = list(ast.parse(source).body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif not isinstance(node, ast.Lambda | ast.GeneratorExp | ast.ListComp):
            pending += ast.iter_child_nodes(node)
    return names


@pytest.mark.parametrize("name", NAMES)
def test_a_check_that_is_run_again_alone_finds_what_the_cells_above_it_prepared(name):
    """No other cell gives a name of theirs to something else."""
    cells = [cell for cell in read("solutions", name).cells if cell.cell_type == "code"]
    prepared = []
    for cell in cells:
        if "jupyter" in cell.metadata and not mark(cell)["grade"]:
            prepared.append(cell)
    assert len(prepared) >= 4
    for cell, other in itertools.product(prepared, cells):
        if other is not cell:
            assert not names_bound(cell.source) & names_bound(other.source)


@pytest.mark.parametrize("name", NAMES)
def test_an_exercise_shows_no_solution_and_adds_up(name):
    solved, released = read("solutions", name), read("exercises", name)
    text = "\n".join(cell.source for cell in released.cells)
    assert not re.search("SOLUTION|HIDDEN|MARK SCHEME|Marking:", text)
    assert all(not cell.outputs for cell in released.cells if cell.cell_type == "code")
    points = sum(mark(cell).get("points", 0) for cell in released.cells)
    assert f"· {points} points ·" in released.cells[0].source
    check_points_and_minutes_beside_the_titles(released)
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
        assert f"exercises/{name}.ipynb) | 45 | {sum(by_kind.values())} |" in page
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
        changed = {"ex01-pvalue": cell.source, "ex01-shift": CARELESS}
        if "jupyter" in cell.metadata:  # a check, or what it needs
            return "pass"
        return changed.get(grade_id) or right(grade_id, cell)

    assert hand_in(*room, "ada", right).items() >= full.items()
    some = hand_in(*room, "bob", careless_and_cheating)  # nbgrader puts the checks back
    assert {name: some[name] for name in full} == full | {
        "ex01-pvalue-check": 0,
        "ex01-shift-check": 0,
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

"""Exercises from solutions, by nbgrader.

`exercises` renews notebooks/exercises, `course FOLDER` starts a course. The notebooks in
notebooks/solutions are the one source: nbgrader takes the answers and the hidden checks
out of them.
"""

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOLUTIONS = ROOT / "notebooks" / "solutions"
EXERCISES = ROOT / "notebooks" / "exercises"
CONFIG = """c = get_config()
c.CourseDirectory.course_id = "conformal_fairness"
c.ExecutePreprocessor.timeout = 300  # seconds per cell of a submission
"""


def course(folder: Path, solutions: Path = SOLUTIONS) -> list[str]:
    """Start an nbgrader course in a new or empty folder, one assignment per notebook.

    Returns the assignments' names.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(
            f"folder: {folder} is not empty; wanted a new one for the course"
        )
    names = sorted(path.stem for path in solutions.glob("*.ipynb"))
    for name in names:
        source = folder / "source" / name
        source.mkdir(parents=True)
        shutil.copyfile(solutions / f"{name}.ipynb", source / f"{name}.ipynb")
    (folder / "nbgrader_config.py").write_text(CONFIG, encoding="utf-8")
    return names


def grader(folder: Path):
    """nbgrader's interface to the course in a folder."""
    from nbgrader.apps import NbGraderAPI
    from nbgrader.coursedir import CourseDirectory
    from traitlets.config import Config

    here = str(Path(sys.executable).parent)
    # nbgrader calls alembic by its name.
    if here not in os.environ["PATH"].split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join([here, os.environ["PATH"]])
    config = Config()
    config.CourseDirectory.root = str(folder)
    config.CourseDirectory.course_id = "conformal_fairness"
    config.ExecutePreprocessor.timeout = 300
    return NbGraderAPI(CourseDirectory(config=config), config=config)


def succeed(result: dict) -> None:
    """Raise what nbgrader reported, if it failed."""
    if not result["success"]:
        raise RuntimeError(f"nbgrader: {result.get('error') or result.get('log')}")


def release(folder: Path, name: str) -> Path:
    """nbgrader's release version of an assignment of the course."""
    succeed(grader(folder).generate_assignment(name))
    return folder / "release" / name / f"{name}.ipynb"


def exercises(
    folder: Path, target: Path = EXERCISES, solutions: Path = SOLUTIONS
) -> list[Path]:
    """Write the release version of every solution notebook.

    It has no more metadata than the solution. nbgrader works in `folder`, where it leaves
    its course.
    """
    import nbformat

    target.mkdir(parents=True, exist_ok=True)
    written = []
    for name in course(folder, solutions):
        notebook = nbformat.read(release(folder, name), as_version=4)
        source = nbformat.read(solutions / f"{name}.ipynb", as_version=4)
        notebook.metadata = source.metadata
        for cell, original in zip(notebook.cells, source.cells, strict=True):
            cell["id"] = original["id"]
        nbformat.write(notebook, target / f"{name}.ipynb")
        written.append(target / f"{name}.ipynb")
    for path in set(target.glob("*.ipynb")) - set(written):
        path.unlink()
    return written


def main(arguments=None) -> None:
    """Command line: `exercises`, or `course FOLDER`."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("exercises")
    commands.add_parser("course").add_argument("folder", type=Path)
    options = parser.parse_args(arguments)
    if options.command == "exercises":
        with tempfile.TemporaryDirectory() as folder:
            for path in exercises(Path(folder)):
                print(path.relative_to(ROOT))
    else:
        for name in course(options.folder):
            print(f"cd {options.folder} && nbgrader generate_assignment {name}")


if __name__ == "__main__":
    main()

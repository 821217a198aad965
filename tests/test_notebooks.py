"""The notebooks' contract.

Each check gives a list of complaints, and is shown to fail on a broken notebook.
"""

import ast
import json
import re
import statistics
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

import notebooks as tool

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
FILES = sorted(FOLDER.glob("[0-9][0-9]_*.ipynb"))
MAX_BYTES = 1_500_000
MAX_LINES, MEDIAN_LINES = 30, 10
TEXT_PER_CODE = 0.8
CHECKED_CELLS = 3


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def texts(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "markdown"]


def tagged(notebook, tag):
    return [cell for cell in notebook.cells if tag in cell.metadata.get("tags", [])]


def printed(cell) -> str:
    """The text that nbval compares for this cell."""
    return "".join(
        output.get("text") or output.get("data", {}).get("text/plain", "")
        for output in cell.outputs
    )


def check_format(notebook, path):
    try:
        nbformat.validate(notebook)
    except nbformat.ValidationError as error:
        return [f"not a valid notebook: {error.message}"]
    kernel = notebook.metadata.get("kernelspec", {}).get("name")
    return [] if kernel == "python3" else [f"kernelspec is {kernel!r}; wanted 'python3'"]


def check_size(notebook, path):
    size = len(nbformat.writes(notebook).encode())
    return [f"{size:,} bytes; at most {MAX_BYTES:,}"] if size >= MAX_BYTES else []


def check_title(notebook, path):
    first = notebook.cells[0] if notebook.cells else new_markdown_cell("")
    wanted = rf"# {path.name[:2]} · \S"
    if first.cell_type == "markdown" and re.match(wanted, first.source):
        return []
    return [f"first cell starts {first.source[:30]!r}; wanted '# {path.name[:2]} · …'"]


def check_links(notebook, path, names=None):
    """Links to the previous notebook, the contents (00) and the next.

    Every relative link leads to a file.
    """
    names = (
        sorted(file.name for file in path.parent.glob("[0-9][0-9]_*.ipynb"))
        if names is None
        else names
    )
    targets = re.findall(
        r"\]\(([^)\s#]+)", "\n".join(cell.source for cell in texts(notebook))
    )
    local = [
        target
        for target in targets
        if "://" not in target and not target.startswith(("mailto:", "attachment:"))
    ]
    place = names.index(path.name)
    neighbours = {names[0], *names[max(place - 1, 0) : place + 2]} - {path.name}
    missing = [f"no link to {name}" for name in sorted(neighbours - set(local))]
    return missing + [
        f"link to {link}, which is not there"
        for link in local
        if not (path.parent / link).exists()
    ]


def check_parameters_cell(notebook, path):
    cells = tagged(notebook, "parameters")
    if (
        len(cells) != 1
        or not code_cells(notebook)
        or cells[0] is not code_cells(notebook)[0]
    ):
        return [f"{len(cells)} cells tagged parameters; wanted one, the first code cell"]
    lines, complaints = cells[0].source.splitlines(), []
    for node in ast.parse(cells[0].source).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            complaints.append(f"parameters: line {node.lineno} is no assignment")
            continue
        try:
            value = ast.literal_eval(node.value)
        except (ValueError, TypeError):
            complaints.append(
                f"parameters: line {node.lineno} is derived from another value; "
                "wanted a literal"
            )
            continue
        if not isinstance(value, str | int | float | bool | None):
            complaints.append(
                f"parameters: line {node.lineno} is a {type(value).__name__}; "
                "wanted a scalar"
            )
        if isinstance(node, ast.Assign) and "#" not in lines[node.end_lineno - 1]:
            complaints.append(
                f"parameters: line {node.lineno} has neither annotation nor comment"
            )
    return (
        complaints
        if tool.parameter_names(notebook)
        else [*complaints, "parameters: the cell assigns nothing"]
    )


def check_execution(notebook, path):
    counts = [cell.execution_count for cell in code_cells(notebook)]
    if counts != list(range(1, len(counts) + 1)):
        return [f"execution counts {counts}; wanted 1 to {len(counts)} in order"]
    outputs = [
        (number, output)
        for number, cell in enumerate(code_cells(notebook), 1)
        for output in cell.outputs
    ]
    errors = [
        f"cell [{number}] stored an error"
        for number, output in outputs
        if output.output_type == "error"
    ]
    return errors + [
        f"cell [{number}] wrote to stderr"
        for number, output in outputs
        if output.get("name") == "stderr"
    ]


def check_paths(notebook, path):
    """No path of the machine that ran it; image data, which is base64, is left out."""
    pattern = re.compile(r"(?<![\w.:/])/(?:home|root|Users|tmp)/|\bC:\\{1,2}\w")
    complaints = []
    for number, cell in enumerate(notebook.cells):
        shown = [cell.source]
        for output in cell.get("outputs", []):
            data = {
                kind: value
                for kind, value in output.get("data", {}).items()
                if not kind.startswith("image/")
            }
            shown += [
                output.get("text", ""),
                json.dumps(data, ensure_ascii=False),
                *output.get("traceback", []),
            ]
        complaints += [
            f"cell {number} holds a machine path {m[0]!r}"
            for m in pattern.finditer("\n".join(shown))
        ]
    return complaints


def check_rhythm(notebook, path):
    code, complaints = code_cells(notebook), []
    lengths = [len(cell.source.splitlines()) for cell in code] or [0]
    # The cell that fetches the project on Colab, where there are badges, is no lesson.
    taught = [cell for cell in code if "colab" not in cell.metadata.get("tags", [])]
    if len(texts(notebook)) < TEXT_PER_CODE * len(taught):
        complaints.append(
            f"{len(texts(notebook))} text cells for {len(taught)} code cells; "
            f"wanted {TEXT_PER_CODE} per cell"
        )
    if max(lengths) > MAX_LINES:
        complaints.append(f"a code cell of {max(lengths)} lines; at most {MAX_LINES}")
    if statistics.median(lengths) > MEDIAN_LINES:
        complaints.append(
            f"median code cell of {statistics.median(lengths)} lines; "
            f"at most {MEDIAN_LINES}"
        )
    return complaints


def check_comparison(notebook, path):
    """nbval has something to compare.

    The last cell, with versions and times, is not compared.
    """
    complaints, checked = [], tagged(notebook, "nbval-check-output")
    if len(checked) < CHECKED_CELLS:
        complaints.append(
            f"{len(checked)} cells tagged nbval-check-output; wanted {CHECKED_CELLS}"
        )
    complaints += [
        f"checked cell prints nothing: {c.source[:40]!r}"
        for c in checked
        if not printed(c).strip()
    ]
    if not code_cells(notebook) or code_cells(notebook)[-1] not in tagged(
        notebook, "nbval-ignore-output"
    ):
        complaints.append("last code cell is not tagged nbval-ignore-output")
    return complaints


def check_alt_text(notebook, path):
    source = "\n".join(cell.source for cell in texts(notebook))
    images = [
        image for image in re.findall(r"!\[([^\]]*)\]\(", source) if not image.strip()
    ]
    images += [
        tag
        for tag in re.findall(r"<img\b[^>]*>", source)
        if not re.search(r"""\balt=["']\s*[^"'\s]""", tag)
    ]
    return [f"{len(images)} images without alt text"] if images else []


CHECKS = [
    check_format,
    check_size,
    check_title,
    check_links,
    check_parameters_cell,
    check_execution,
    check_paths,
    check_rhythm,
    check_comparison,
    check_alt_text,
]


def check_numbering(names):
    """Consecutive from 00, one notebook per number."""
    numbers = [name[:2] for name in sorted(names)]
    wanted = list(map("{:02d}".format, range(len(numbers))))
    return (
        [] if numbers == wanted else [f"notebooks are {sorted(names)}; wanted {wanted}"]
    )


def test_notebooks_are_numbered_consecutively_from_00():
    assert FILES and check_numbering([file.name for file in FILES]) == []


@pytest.mark.parametrize(
    "check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_")
)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_notebook_keeps_the_contract(path, check):
    assert check(nbformat.read(path, as_version=4), path) == []


# A good notebook, and one way to break it for every sentence of the contract.


def code(source, *tags, text=None, count=None):
    outputs = [] if text is None else [new_output("stream", name="stdout", text=text)]
    return new_code_cell(
        source,
        execution_count=count,
        outputs=outputs,
        metadata={"tags": list(tags)} if tags else {},
    )


@pytest.fixture
def good(tmp_path):
    """Notebook 01 of three that keeps the contract, and its path."""
    for name in ("00_a.ipynb", "01_b.ipynb", "02_c.ipynb", "picture.png"):
        (tmp_path / name).touch()
    cells = [
        new_markdown_cell(
            "# 01 · Title\n\n[previous](00_a.ipynb) · "
            "[contents](00_a.ipynb) · [next](02_c.ipynb)"
        ),
        code(
            "alpha: float = 0.1  # miscoverage\nseed = 0  # of the splits", "parameters"
        ),
        new_markdown_cell("![a line that falls](picture.png)"),
        code("print(1)", "nbval-check-output", text="1\n"),
        new_markdown_cell("A claim."),
        code("print(2)", "nbval-check-output", text="2\n"),
        new_markdown_cell("A claim."),
        code("print(3)", "nbval-check-output", text="3\n"),
        new_markdown_cell("The end."),
        code("print('versions')", "nbval-ignore-output", text="versions\n"),
    ]
    notebook = new_notebook(cells=cells, metadata={"kernelspec": tool.KERNELSPEC})
    for number, cell in enumerate(code_cells(notebook), 1):
        cell.execution_count = number
    return notebook, tmp_path / "01_b.ipynb"


def source(number, text):
    def breaks(notebook):
        notebook.cells[number].source = text

    return breaks


def output(number, **content):
    def breaks(notebook):
        kind = content.pop("kind", "stream")
        notebook.cells[number].outputs = [new_output(kind, **content)]

    return breaks


def tags(number, *names):
    def breaks(notebook):
        notebook.cells[number].metadata["tags"] = list(names)

    return breaks


def drop(*numbers):
    def breaks(notebook):
        notebook.cells = [
            cell for number, cell in enumerate(notebook.cells) if number not in numbers
        ]

    return breaks


def count(number, value):
    def breaks(notebook):
        notebook.cells[number].execution_count = value

    return breaks


def kernel(name):
    def breaks(notebook):
        notebook.metadata.kernelspec = {"name": name, "display_name": name}

    return breaks


def long_cells(notebook):
    for cell in code_cells(notebook)[1:]:
        cell.source = "\n".join(["x = 1"] * (MEDIAN_LINES + 1))


def invalid(notebook):
    notebook.cells[3].outputs = [nbformat.from_dict({"output_type": "nonsense"})]


PNG = "/home/" + "A" * MAX_BYTES
BROKEN = {
    "an output type that does not exist": (check_format, invalid),
    "another kernel": (check_format, kernel("conda-env-py")),
    "a large picture": (
        check_size,
        output(3, kind="display_data", data={"image/png": PNG}),
    ),
    "a title without its number": (check_title, source(0, "# Title")),
    "a title with another number": (check_title, source(0, "# 02 · Title")),
    "no title": (check_title, drop(0)),
    "no links": (check_links, source(0, "# 01 · Title")),
    "no link to the next": (
        check_links,
        source(0, "# 01 · Title [previous and contents](00_a.ipynb)"),
    ),
    "no link to the previous": (
        check_links,
        source(0, "# 01 · Title [next](02_c.ipynb)"),
    ),
    "a link to nowhere": (check_links, source(4, "See [more](03_d.ipynb).")),
    "an image that is not there": (check_links, source(2, "![a line](gone.png)")),
    "no parameters": (check_parameters_cell, tags(1)),
    "two parameters cells": (
        check_parameters_cell,
        tags(3, "parameters", "nbval-check-output"),
    ),
    "parameters not first": (
        check_parameters_cell,
        lambda nb: (tags(1)(nb), tags(3, "parameters")(nb)),
    ),
    "an empty parameters cell": (check_parameters_cell, source(1, "# nothing")),
    "a derived parameter": (
        check_parameters_cell,
        source(1, "n: int = 10\nhalf: int = n // 2"),
    ),
    "a computed parameter": (check_parameters_cell, source(1, "n: int = int('3')")),
    "a list as parameter": (check_parameters_cell, source(1, "cs: list = [0.1, 0.2]")),
    "a bare parameter": (check_parameters_cell, source(1, "n = 10")),
    "an import among the parameters": (
        check_parameters_cell,
        source(1, "import os\nn: int = 1"),
    ),
    "a cell not run": (check_execution, count(5, None)),
    "cells run out of order": (
        check_execution,
        lambda nb: (count(3, 3)(nb), count(5, 2)(nb)),
    ),
    "cells run twice": (check_execution, count(9, 9)),
    "a stored error": (
        check_execution,
        output(5, kind="error", ename="E", evalue="", traceback=[]),
    ),
    "a warning on stderr": (check_execution, output(5, name="stderr", text="careful")),
    "a home folder in the source": (check_paths, source(5, "open('/home/me/data.csv')")),
    "a root folder in the text": (check_paths, source(4, "Saved to `/root/data`.")),
    "a temporary folder printed": (
        check_paths,
        output(3, name="stdout", text="saved /tmp/x.csv"),
    ),
    "a Mac's folder shown": (
        check_paths,
        output(3, kind="display_data", data={"text/html": "<b>/Users/me/x</b>"}),
    ),
    "a Windows folder": (check_paths, source(5, r"open('C:\Users\me\x.csv')")),
    "too little text": (check_rhythm, drop(4, 6)),
    "a long cell": (check_rhythm, source(5, "\n".join(["x = 1"] * (MAX_LINES + 1)))),
    "cells that are long on the whole": (check_rhythm, long_cells),
    "too few compared cells": (check_comparison, tags(5)),
    "a compared cell that prints nothing": (
        check_comparison,
        output(5, name="stdout", text=" \n"),
    ),
    "a compared cell with only a picture": (
        check_comparison,
        output(5, kind="display_data", data={"image/png": "AA"}),
    ),
    "a last cell that is compared": (check_comparison, tags(9)),
    "an image without alt text": (check_alt_text, source(2, "![](picture.png)")),
    "an HTML image without alt text": (
        check_alt_text,
        source(2, '<img src="picture.png" alt="">'),
    ),
}


def test_a_good_notebook_passes_every_check(good):
    notebook, path = good
    assert [complaint for check in CHECKS for complaint in check(notebook, path)] == []


@pytest.mark.parametrize("check, breaks", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_notebook_is_caught(good, check, breaks):
    notebook, path = good
    breaks(notebook)
    assert check(notebook, path) != []


def test_every_check_is_shown_to_fail():
    assert {check for check, _ in BROKEN.values()} == set(CHECKS)


@pytest.mark.parametrize("names", [["01_a"], ["00_a", "02_b"], ["00_a", "00_b"]])
def test_a_gap_in_the_numbering_is_caught(names):
    assert check_numbering(names) != []


def test_first_and_last_notebook_need_no_link_beyond_the_ends(good):
    notebook, path = good
    notebook.cells[0].source = "# 00 · Title [next](01_b.ipynb)"
    assert check_links(notebook, path.with_name("00_a.ipynb")) == []
    notebook.cells[
        0
    ].source = "# 02 · Title [previous](01_b.ipynb) [contents](00_a.ipynb)"
    assert check_links(notebook, path.with_name("02_c.ipynb")) == []


def test_a_misspelt_papermill_parameter_is_refused(good, tmp_path):
    notebook, path = good
    assert tool.parameter_names(notebook) == ["alpha", "seed"]
    tool.check_parameters(notebook, {"alpha": 0.2, "seed": 1})
    nbformat.write(notebook, path)
    with pytest.raises(ValueError, match=r"01_b.ipynb has no alhpa; it has alpha, seed"):
        tool.run(path, tmp_path / "out.ipynb", {"alhpa": 0.2})
    assert not (tmp_path / "out.ipynb").exists()


@pytest.mark.slow
def test_refreshing_twice_stores_the_same_bytes_and_keeps_the_shown_widget_only(tmp_path):
    cells = [
        new_code_cell(
            "n: int = 3  # steps", metadata={"tags": ["parameters"], "collapsed": True}
        ),
        new_code_cell(
            "from tqdm.notebook import tqdm\n\nfor _ in tqdm(range(n)):\n    pass"
        ),
        new_code_cell("import ipywidgets\n\nipywidgets.IntSlider(description='level')"),
    ]
    path = tmp_path / "00_a.ipynb"
    nbformat.write(new_notebook(cells=cells), path)
    stored = []
    for _ in range(2):
        tool.refresh(path)
        stored.append(path.read_bytes())
    notebook = nbformat.read(path, as_version=4)
    assert stored[0] == stored[1] and list(tmp_path.iterdir()) == [path]
    assert check_format(notebook, path) == [] and check_execution(notebook, path) == []
    assert [cell.metadata for cell in notebook.cells] == [
        {"tags": ["parameters"]},
        {},
        {},
    ]
    assert [len(cell.outputs) for cell in notebook.cells] == [
        0,
        0,
        1,
    ]  # the progress bar is gone
    state = notebook.metadata.widgets[tool.WIDGET_STATE]["state"]
    assert sorted(model["model_name"] for model in state.values()) == [
        "IntSliderModel",
        "LayoutModel",
        "SliderStyleModel",
    ]


@pytest.mark.slow
def test_a_run_writes_its_copy_with_the_parameters_and_leaves_the_source_alone(tmp_path):
    path, target = tmp_path / "00_a.ipynb", tmp_path / "results" / "00_a.ipynb"
    cells = [
        new_code_cell("n: int = 3  # steps", metadata={"tags": ["parameters"]}),
        new_code_cell("print(n, 1 // n)"),
    ]
    nbformat.write(
        new_notebook(cells=cells, metadata={"kernelspec": tool.KERNELSPEC}), path
    )
    before = path.read_bytes()
    tool.main(["run", str(path), str(target), "n=1"])
    assert (
        printed(nbformat.read(target, as_version=4).cells[-1]) == "1 1\n"
        and path.read_bytes() == before
    )
    target.unlink()
    with pytest.raises(Exception, match="ZeroDivisionError"):
        tool.main(["run", str(path), str(target), "n=0"])
    assert not target.exists()

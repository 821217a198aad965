"""Results kept by their inputs and their code; never half written, never pickled."""

import gc
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cfhelpers import _cache, paths
from cfhelpers._cache import cached_frame, fingerprint, reached_modules, source_digest

ARRAYS = {"probs": np.arange(6, dtype=np.float32).reshape(2, 3), "seconds": np.array(1.5)}
KEY = {
    "data": "toy",
    "parameters": {"lr": 0.1, "layers": 2},
    "seed": 0,
    "schedule": [0.1, 200],
}


CODE = "cfhelpers.scores"  # any module will do


def cached(name, key, compute):
    return _cache.cached(name, key, compute, code=CODE)


@pytest.fixture
def artifacts(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "ARTIFACTS", tmp_path / "artifacts")
    return paths.ARTIFACTS


class Counter:
    """Gives ARRAYS and counts how often it was asked."""

    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return {name: values.copy() for name, values in ARRAYS.items()}


def assert_same(found, wanted=ARRAYS):
    assert set(found) == set(wanted)
    for name, values in wanted.items():
        assert found[name].dtype == values.dtype and np.array_equal(
            found[name], values
        ), name


def test_the_same_key_reads_the_file_and_computes_nothing(artifacts):
    compute = Counter()
    for _ in range(3):
        assert_same(cached("toy", KEY, compute))
    assert_same(
        cached("toy", dict(reversed(KEY.items())), compute)
    )  # the order of the key's parts says nothing
    assert compute.calls == 1
    assert len(list(artifacts.iterdir())) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"data": "other"},
        {"parameters": {"lr": 0.1, "layers": 3}},
        {"parameters": {"lr": 0.1000001, "layers": 2}},
        {"parameters": {"lr": 0.1}},
        {"parameters": {"lr": 0.1, "layers": 2, "dropout": None}},
        {"seed": 1},
        {"schedule": [200, 0.1]},
        {"device": "cpu"},
    ],
    ids=str,
)
def test_a_change_of_any_part_of_the_key_computes_anew_and_keeps_both(artifacts, change):
    compute = Counter()
    cached("toy", KEY, compute), cached("toy", KEY | change, compute)
    assert compute.calls == 2
    cached("toy", KEY, compute), cached("toy", KEY | change, compute)
    assert compute.calls == 2
    assert len(list(artifacts.iterdir())) == 2


def test_another_name_computes_anew(artifacts):
    compute = Counter()
    cached("toy", KEY, compute), cached("toys", KEY, compute)
    assert compute.calls == 2


def test_a_long_array_in_the_key_counts_in_every_entry(artifacts):
    compute, rows = Counter(), np.arange(5000)
    other = np.where(rows == 2500, -1, rows)  # printed, the two look the same
    assert str(rows) == str(other)
    cached("toy", {"rows": rows}, compute), cached("toy", {"rows": other}, compute)
    assert compute.calls == 2
    cached("toy", {"rows": rows.copy()}, compute)
    assert compute.calls == 2


def test_a_file_that_holds_another_key_is_not_read(artifacts):
    compute = Counter()
    cached("toy", KEY, compute), cached("toy", KEY | {"seed": 1}, compute)
    one, other = artifacts.iterdir()
    one.write_bytes(other.read_bytes())  # as if two keys shared a name
    cached("toy", KEY, compute), cached("toy", KEY | {"seed": 1}, compute)
    assert compute.calls == 3


@pytest.fixture
def stored(artifacts):
    """The path of a stored file, and its content."""
    cached("toy", {}, Counter())
    (path,) = artifacts.iterdir()
    return path, path.read_bytes()


def mend(path, content) -> int:
    """How often a file with this content is computed until it gives the right arrays."""
    path.write_bytes(content)
    compute = Counter()
    assert_same(cached("toy", {}, compute))
    return compute.calls


def test_an_empty_a_cut_and_a_foreign_file_are_computed_again_and_replaced(stored):
    path, good = stored
    pieces = [good[: len(good) * k // 9] for k in range(9)]
    for content in (b"PK", b"not a zip at all", np.zeros(9).tobytes(), *pieces):
        assert mend(path, content) == 1
        assert mend(path, path.read_bytes()) == 0
        assert list(path.parent.iterdir()) == [path]


@pytest.mark.filterwarnings("error::ResourceWarning")
@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_a_damaged_file_is_closed(stored):
    path, good = stored
    path.write_bytes(good[:-30])
    assert _cache.read(path, "any") is None
    gc.collect()


@pytest.mark.slow
def test_a_damaged_byte_anywhere_never_gives_other_arrays(stored):
    path, good = stored
    calls = sum(
        mend(path, good[:k] + bytes([good[k] ^ 1]) + good[k + 1 :])
        for k in range(len(good))
    )
    assert (
        calls > len(good) / 2
    )  # the others are bytes on which nothing depends, such as dates


def test_a_pickle_in_the_place_of_a_file_is_not_opened(stored):
    path, _ = stored
    np.savez(
        path,
        key=np.array([_cache.key_text("toy", {}, CODE), "probs"], dtype=object),
        probs=np.array([print], dtype=object),
    )
    assert mend(path, path.read_bytes()) == 1
    with np.load(path, allow_pickle=False) as arrays:
        assert_same({name: arrays[name] for name in ARRAYS})


def test_a_failure_while_computing_stores_nothing_and_is_told(artifacts):
    def fail():
        raise RuntimeError("no luck")

    with pytest.raises(RuntimeError, match="no luck"):
        cached("toy", KEY, fail)
    assert not artifacts.exists() or not list(artifacts.iterdir())
    assert_same(cached("toy", KEY, Counter()))


def test_a_failure_while_writing_leaves_nothing_behind(artifacts, monkeypatch):
    def half(path, **arrays):
        path.write_bytes(b"half a file")
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez", half)
    with pytest.raises(OSError, match="no space left"):
        cached("toy", KEY, Counter())
    assert not list(artifacts.iterdir())


def script(artifacts, body: str) -> list[str]:
    """A Python command whose artifacts live in the test's folder."""
    head = "import os, time\nimport numpy as np\nfrom pathlib import Path\n"
    head += "from cfhelpers import _cache, paths\n"
    head += f"paths.ARTIFACTS = Path({str(artifacts)!r})\nCODE = {CODE!r}\n"
    return [sys.executable, "-c", head + textwrap.dedent(body)]


def test_a_process_killed_while_writing_leaves_no_file_under_the_final_name(artifacts):
    body = """
        savez = np.savez
        def slow(path, **arrays):
            savez(path, **arrays)
            os._exit(9)  # between the last byte and the renaming
        np.savez = slow
        _cache.cached("toy", {"seed": 0}, lambda: {"probs": np.zeros(3)}, code=CODE)
    """
    assert subprocess.run(script(artifacts, body), cwd=paths.ROOT).returncode == 9
    left = [path.name for path in artifacts.iterdir()]
    assert len(left) == 1 and left[0].startswith(".") and ".partial" in left[0]
    compute = Counter()
    assert_same(cached("toy", {"seed": 0}, compute))
    assert compute.calls == 1


@pytest.mark.slow
def test_two_processes_at_once_leave_one_good_file(artifacts):
    artifacts.mkdir()
    body = """
        def compute():
            me = _cache.paths.ARTIFACTS.parent / f"here-{os.getpid()}"
            me.touch()
            for _ in range(2000):  # both are computing before either writes
                if len(list(me.parent.glob("here-*"))) == 2:
                    break
                time.sleep(0.01)
            return {"probs": np.arange(200_000.0)}
        found = _cache.cached("toy", {"seed": 0}, compute, code=CODE)
        assert np.array_equal(found["probs"], np.arange(200_000.0))
        print("computed")
    """
    both = [
        subprocess.Popen(script(artifacts, body), cwd=paths.ROOT, stdout=-1, text=True)
        for _ in range(2)
    ]
    assert [process.communicate()[0] for process in both] == ["computed\n"] * 2
    assert len(list(artifacts.iterdir())) == 1
    compute = Counter()
    assert_same(cached("toy", {"seed": 0}, compute), {"probs": np.arange(200_000.0)})
    assert compute.calls == 0


# data frames


def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "metric": ["a", "b"],
            "c": [0.1, np.nan],
            "threshold": [[0.5, np.inf], [1.0, 1.0]],
        }
    )


class FrameCounter:
    """Gives `frame` and counts how often it was asked."""

    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return frame()


def test_a_frame_is_read_again_as_it_was_the_first_time(artifacts):
    compute = FrameCounter()
    first = cached_frame("runs/toy", KEY, compute, code=CODE)
    again = cached_frame("runs/toy", KEY, compute, code=CODE)
    assert compute.calls == 1
    pd.testing.assert_frame_equal(first, again)
    pd.testing.assert_frame_equal(
        first.drop(columns="threshold"), frame().drop(columns="threshold")
    )
    assert [list(values) for values in first["threshold"]] == [[0.5, np.inf], [1.0, 1.0]]
    assert not first.attrs  # nothing of the cache goes on with the rows
    cached_frame("runs/toy", KEY | {"seed": 1}, compute, code=CODE)
    assert compute.calls == 2
    assert len(list((artifacts / "runs").iterdir())) == 2


@pytest.mark.slow
def test_a_damaged_byte_never_gives_another_frame(artifacts):
    good_frame = cached_frame("toy", KEY, frame, code=CODE)
    (path,) = artifacts.iterdir()
    good = path.read_bytes()
    compute = FrameCounter()
    places = range(0, len(good), 31)
    for k in places:
        path.write_bytes(good[:k] + bytes([good[k] ^ 1]) + good[k + 1 :])
        found = cached_frame("toy", KEY, compute, code=CODE)
        pd.testing.assert_frame_equal(found, good_frame)
    assert compute.calls > len(places) / 2


# the code


def write_package(folder, **sources):
    """A small package "house" in `folder`; a module's name has __ for a dot."""
    for name, text in ({"__init__": "", "inner____init__": ""} | sources).items():
        path = folder.joinpath("house", *name.replace("inner__", "inner/").split("/"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".py").write_text(textwrap.dedent(text), encoding="utf-8")


HOUSE = {
    "compute": """
        import os

        import house.far
        from house import near
        from house.inner import CONSTANT
        from house.inner.deep import deepest as deep


        def compute():
            from . import lazy
            return near.one() + lazy.two()
    """,
    "near": "def one():\n    return 1\n",
    "lazy": "from .below import three\n\ndef two():\n    return three()\n",
    "below": "def three():\n    return 3\n",
    "far": "X = 1\n",
    "inner____init__": "from house.compute import compute\nCONSTANT = 4\n",  # a circle
    "inner__deep": "from .. import above\ndeepest = 5\n",
    "inner__beside": "X = 1\n",
    "above": "X = 1\n",
    "unrelated": "from house import compute\n",
    "__init__": "X = 1\n",
}
REACHED = ("compute", "near", "lazy", "below", "far", "inner", "inner.deep", "above")


def test_every_module_that_the_code_imports_is_reached_and_no_other(tmp_path):
    write_package(tmp_path, **HOUSE)
    found = reached_modules("house.compute", tmp_path)
    assert set(found) == {f"house.{name}" for name in REACHED}


def house_digest(folder, name, old="", new="") -> str:
    """The digest of "house.compute" with one text in one module replaced."""
    shutil.rmtree(folder, ignore_errors=True)
    assert old in HOUSE[name]
    write_package(folder, **HOUSE | {name: HOUSE[name].replace(old, new)})
    source_digest.cache_clear()
    return source_digest("house.compute", folder)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("compute", "near.one()", "near.one() + 0"),
        ("near", "return 1", "return 2"),
        ("lazy", "return three()", "return -three()"),
        ("below", "return 3", "return 4"),
        ("far", "X = 1", "X = 2"),
        ("inner____init__", "CONSTANT = 4", "CONSTANT = 5"),
        ("inner__deep", "deepest = 5", "deepest = 6"),
        ("above", "X = 1", "X = '1'"),
    ],
)
def test_a_change_of_any_code_that_is_reached_changes_the_digest(
    tmp_path, name, old, new
):
    before = house_digest(tmp_path / "before", name)
    assert house_digest(tmp_path / "after", name, old, new) != before


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("unrelated", "from", "import os\nfrom"),
        ("inner__beside", "X = 1", "X = 2"),
        ("__init__", "X = 1", "X = 2"),  # nothing is taken from it
        ("near", "return 1", "return 1  # one"),
        ("near", "def one():", "# a comment\n\n\ndef one( ):"),
        ("near", "def one():", 'def one():\n    """One."""'),
        ("near", "def one", '"""A module."""\n\ndef one'),
    ],
)
def test_comments_docstrings_form_and_other_modules_change_nothing(
    tmp_path, name, old, new
):
    before = house_digest(tmp_path / "before", name)
    assert house_digest(tmp_path / "after", name, old, new) == before


def test_a_module_that_is_not_there_is_told(artifacts):
    with pytest.raises(ValueError, match=r"code: found 'cfhelpers\.nowhere'; wanted"):
        _cache.cached("toy", {}, Counter(), code="cfhelpers.nowhere")


def test_other_code_computes_anew_and_keeps_both(artifacts, monkeypatch):
    compute = Counter()
    cached("toy", KEY, compute)
    monkeypatch.setattr(_cache, "source_digest", lambda module: "newer")
    cached("toy", KEY, compute)
    assert compute.calls == 2
    assert len(list(artifacts.iterdir())) == 2


ROWS = "cfhelpers.study.experiments"
TRAINING = "cfhelpers.study.training"
CFGNN = "cfhelpers.graph_scores"


def digests(folder) -> dict[str, str]:
    """Of the code of rows, base models and CFGNN in a copy of the package."""
    source_digest.cache_clear()
    return {module: source_digest(module, folder) for module in (ROWS, TRAINING, CFGNN)}


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A copy of the package, to be changed and changed back, and its digests."""
    folder = tmp_path_factory.mktemp("package")
    ignored = shutil.ignore_patterns("__pycache__", "*.parquet")
    shutil.copytree(Path(_cache.__file__).parent, folder / "cfhelpers", ignore=ignored)
    return folder, digests(folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "old", "new", "changed"),
    [
        ("datasets/_dataset.py", "STREAM = 0x5911", "STREAM = 0x5912", [ROWS, TRAINING]),
        ("datasets/_dataset.py", "STREAM = 0x5911", "STREAM = 0x5911  # a word", []),
        ("gnn.py", "WEIGHT_DECAY = 5e-4", "WEIGHT_DECAY = 4e-4", [ROWS, TRAINING, CFGNN]),
        ("graph_scores.py", "size=0.5", "size=0.4", [ROWS, CFGNN]),
        ("plots.py", "\nimport", "\nX = 1\nimport", []),
        ("paths.py", "\nimport", "\nX = 1\nimport", []),
        ("study/figures.py", "\nimport", "\nX = 1\nimport", []),
        ("study/presets.py", "0.054671586", "0.06", [ROWS]),
    ],
)
def test_rows_models_and_cfgnn_know_their_own_code(package, file, old, new, changed):
    folder, before = package
    path = folder / "cfhelpers" / file
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    after = digests(folder)
    path.write_text(text, encoding="utf-8")
    assert [module for module in before if before[module] != after[module]] == changed


# fingerprints


def test_a_fingerprint_changes_with_every_entry_type_shape_order_and_column_name():
    numbers, frame = (
        np.arange(12.0).reshape(3, 4),
        pd.DataFrame({"a": [1, 2], "b": [3, 4]}),
    )
    changed = numbers.copy()
    changed[1, 2] = np.nextafter(changed[1, 2], 9)
    contents = [
        (numbers,),
        (changed,),
        (numbers.T,),
        (numbers.reshape(4, 3),),
        (numbers.astype(np.float32),),
        (numbers.astype(int),),
        (numbers[:, :2], numbers[:, 2:]),
        (numbers[:, 2:], numbers[:, :2]),
        (numbers, numbers),
        (),
        (frame,),
        (frame.to_numpy(),),
        (frame.rename(columns={"a": "c"}),),
        (frame[["b", "a"]],),
        (frame.assign(b=[3, 5]),),
        (frame.astype(float),),
        (["ab", "c"],),
        (["a", "bc"],),
        (["a", "b"],),
        (None,),
        ("None",),
    ]
    assert len({fingerprint(*content) for content in contents}) == len(contents)


def test_a_fingerprint_tells_objects_apart_that_print_alike():
    entries = [1, "1", 1.0, True, "True", None, "None", np.nan, "nan", "a, b", ("a", "b")]
    arrays = []
    for entry in entries:
        array = np.empty(2, dtype=object)
        array[0], array[1] = "first", entry
        arrays.append(array)
    assert len({fingerprint(array) for array in arrays}) == len(entries)
    assert fingerprint(arrays[0]) == fingerprint(arrays[0].copy())


def test_a_fingerprint_is_of_the_content_not_of_its_place_in_memory():
    numbers = np.arange(12.0).reshape(3, 4)
    same = [
        numbers.copy(),
        np.asfortranarray(numbers),
        np.arange(24.0)[:12].reshape(3, 4),
        numbers.tolist(),
    ]
    assert {fingerprint(content) for content in same} == {fingerprint(numbers)}
    mixed = pd.DataFrame({"a": [1, 2], "b": ["x", None]})
    assert (
        fingerprint(mixed)
        == fingerprint(mixed.copy())
        != fingerprint(mixed.assign(b=["x", "None"]))
    )

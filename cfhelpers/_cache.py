"""One cache for whatever takes long: edges, base models, CFGNN, rows.

A result is read again for the same inputs and the same code alone. Its file lies under
artifacts/; it is written whole or not at all, holds the key it was stored for, and is
computed again when it is damaged or belongs to something else.
"""

import ast
import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cfhelpers import paths

Arrays = dict[str, np.ndarray]
PACKAGES = Path(__file__).resolve().parents[1]  # the folder that holds this package
STORAGE = ("cfhelpers._cache", "cfhelpers.paths")  # where things lie, not what they are


def cached(
    name: str, key: Mapping[str, object], compute: Callable[[], Arrays], *, code: str
) -> Arrays:
    """Arrays that take long to compute, read from artifacts/ if they are there.

    Parameters
    ----------
    name : str
        How the file's name begins; it may name a folder, as in "runs/credit".
    key : mapping
        Every input that the arrays depend on: texts, numbers, lists, dictionaries. Of
        arrays and data frames in it the `fingerprint` counts.
    compute : function without arguments
        Gives the arrays by name; called only when they are not stored.
    code : str
        The module that computes them. A change of its code, or of any module of this
        package that it imports, makes the arrays be computed anew; see `source_digest`.

    Returns
    -------
    dict of str to array
        What `compute` gives, or gave.

    Examples
    --------
    >>> import tempfile
    >>> from unittest.mock import patch
    >>> def square():
    ...     print("computed")
    ...     return {"square": np.array([0, 1, 4])}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with patch.object(paths, "ARTIFACTS", Path(folder)):
    ...         for _ in range(2):
    ...             found = cached("toy", {"n": 3}, square, code="cfhelpers.scores")
    ...             print(found["square"])
    computed
    [0 1 4]
    [0 1 4]
    """
    text = key_text(name, key, code)
    path = cache_path(name, text)
    stored = read(path, text)
    if stored is not None:
        return stored
    arrays = compute()
    store(path, text, arrays)
    return arrays


def cached_frame(
    name: str,
    key: Mapping[str, object],
    compute: Callable[[], pd.DataFrame],
    *,
    code: str,
) -> pd.DataFrame:
    """A data frame that takes long to compute, read from artifacts/ if it is there.

    Parameters and rules are those of `cached`. The frame is kept as Parquet, so lists in
    its cells come back as arrays, the first time too, and its index is not kept.

    Examples
    --------
    >>> import tempfile
    >>> from unittest.mock import patch
    >>> rows = pd.DataFrame({"c": [0.1, 0.2]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with patch.object(paths, "ARTIFACTS", Path(folder)):
    ...         found = cached_frame("toy", {}, lambda: rows, code="cfhelpers.scores")
    >>> found.equals(rows)
    True
    """

    def compute_bytes() -> Arrays:
        buffer = io.BytesIO()
        compute().to_parquet(buffer, index=False)
        return {"parquet": np.frombuffer(buffer.getvalue(), np.uint8)}

    # Inside an .npz file Parquet has the checksum that it lacks.
    stored = cached(name, key, compute_bytes, code=code)
    return pd.read_parquet(io.BytesIO(stored["parquet"].tobytes()))


def key_text(name: str, key: Mapping[str, object], code: str) -> str:
    """All that a result depends on, as JSON: its name, its inputs and its code."""
    whole = {"name": name, "code": source_digest(code)} | dict(key)
    return json.dumps(whole, sort_keys=True, default=fingerprint)


def cache_path(name: str, text: str) -> Path:
    """Where the result of this name and key is kept."""
    digest = hashlib.blake2b(text.encode(), digest_size=10).hexdigest()
    return paths.ARTIFACTS / f"{name}-{digest}.npz"


def store(path: Path, text: str, arrays: Arrays) -> None:
    """Write arrays and the key they belong to, whole or not at all."""
    contents: dict[str, Any] = {"key": np.array([text, *arrays]), **arrays}
    with paths.atomic_write(path) as partial:
        np.savez(partial, **contents)


def read(path: Path, text: str) -> Arrays | None:
    """The arrays that are stored for this key; None where there are none."""
    try:
        # NumPy leaves a damaged file open where it opened the file itself.
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
            found, *names = stored["key"].tolist()
            if found != text:
                return None
            return {name: stored[name] for name in names}
    except Exception:  # absent or damaged, in whatever way: computed again
        return None


def fingerprint(*contents: object) -> str:
    """A short text that changes whenever an entry of the contents does.

    Parameters
    ----------
    *contents
        Arrays, data frames, or what NumPy makes an array of. Entries, types, shapes and
        the names of columns count; the place in memory does not.

    Returns
    -------
    str
        Twenty hexadecimal digits.

    Examples
    --------
    >>> fingerprint([1, 2]) == fingerprint(np.array([1, 2]))
    True
    >>> fingerprint([1, 2]) == fingerprint([1.0, 2.0])
    False
    """
    digest = hashlib.blake2b(digest_size=10)
    for content in contents:
        if isinstance(content, pd.DataFrame):
            names = [str(column) for column in content.columns]
            digest.update(json.dumps(names).encode())
        array = np.asarray(content)
        digest.update(f"{array.dtype}{array.shape}".encode())
        if array.dtype == object:
            digest.update(repr(array.tolist()).encode())
        else:
            digest.update(array.tobytes())
    return digest.hexdigest()


@cache
def source_digest(module: str, folder: Path = PACKAGES) -> str:
    """A short text that changes with the code that a module reaches.

    That is its own code and that of every module of its package that it imports, directly
    or through others, at the top or inside a function. Comments, docstrings and the form
    of the text do not count, nor do the modules that only say where things are stored.
    Modules imported by a name that is put together at run time are not seen.

    Parameters
    ----------
    module : str
        Its full name, such as "cfhelpers.study.experiments".
    folder : Path
        The folder that holds the package.

    Returns
    -------
    str
        Twenty hexadecimal digits, the same for as long as this process runs.

    Examples
    --------
    >>> source_digest("cfhelpers.scores") == source_digest("cfhelpers.conformal")
    False
    """
    digest = hashlib.blake2b(digest_size=10)
    for name, tree in sorted(reached_modules(module, folder).items()):
        _drop_docstrings(tree)
        digest.update(f"{name}\n{ast.dump(tree)}\n".encode())
    return digest.hexdigest()


def reached_modules(module: str, folder: Path = PACKAGES) -> dict[str, ast.Module]:
    """The parsed source of a module and of all that it imports from its own package.

    Parameters
    ----------
    module : str
        Its full name, such as "cfhelpers.scores".
    folder : Path
        The folder that holds the package.

    Returns
    -------
    dict of str to ast.Module
        By full name. A package's `__init__` is among them where a name is taken from it.

    Examples
    --------
    >>> found = reached_modules("cfhelpers.scores")
    >>> "cfhelpers._checks" in found, "cfhelpers.plots" in found
    (True, False)
    """
    found: dict[str, ast.Module] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in found or name in STORAGE:
            continue
        file = _module_file(name, folder)
        if file is None:
            raise ValueError(f"code: found {name!r}; wanted a module below {folder}")
        found[name] = ast.parse(file.read_text(encoding="utf-8"))
        package = name.split(".") if file.name == "__init__.py" else name.split(".")[:-1]
        waiting += _imported_modules(found[name], package, folder)
    return found


def _module_file(name: str, folder: Path) -> Path | None:
    """The source file of a module or package; None where `folder` has none."""
    base = folder.joinpath(*name.split("."))
    for file in (base / "__init__.py", base.with_suffix(".py")):
        if file.is_file():
            return file
    return None


def _imported_modules(
    tree: ast.Module, package: list[str], folder: Path
) -> Iterator[str]:
    """The modules of its own package that a module of `package` imports, anywhere."""
    for name in _imported_names(tree, package):
        if name.split(".")[0] != package[0]:
            continue
        if _module_file(name, folder):
            yield name
        else:  # a name that is defined in a module
            yield name.rpartition(".")[0]


def _imported_names(tree: ast.Module, package: list[str]) -> Iterator[str]:
    """The full names of the modules that are imported, and of what is taken from them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            parent = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                yield f"{parent}.{alias.name}"


def _drop_docstrings(tree: ast.Module) -> None:
    """Remove the docstrings of a module, its classes and its functions."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            del node.body[0]

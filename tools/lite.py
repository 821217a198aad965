"""Build the lessons as a JupyterLite site: Python runs in the reader's browser.

`python tools/lite.py BUNDLE` writes build/lite, which any web server can offer; nothing
is then fetched from elsewhere. BUNDLE is a Pyodide distribution: a folder, an archive,
the address of an archive, or an address ending in / below which its files are. With
--core it may lack the compiled packages, as the one from npm does: Python starts, lessons
do not run. `make lite` has the environment for it.
"""

import argparse
import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LESSONS = ("00", "01", "02", "03", "04", "05", "13")
CORE = "https://registry.npmjs.org/pyodide/-/pyodide-314.0.6.tgz"
CORE_SHA512 = (
    "BKDTJyIqFxC4BExLqeRS3f5xvXZIjOt8C3zGLN/C"
    "c7tFxSwvKVhVkchQQ2AGLOtR4YrVOIFxbV8poyDOOmWwxQ=="
)
LOCK = "pyodide-lock.json"
RUNTIME = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip")
KERNEL = ("micropip", "ipython", "jedi", "packaging")  # what the kernel starts with
METHOD = ("numpy", "scipy", "pandas", "scikit-learn", "threadpoolctl")
PICTURES = ("matplotlib", "seaborn", "ipywidgets", "jinja2")
# Wheels that no Pyodide has, and what each of them needs of it.
FROM_PYPI = {
    "comm": (),
    "jupyterlab-widgets": (),
    "ipywidgets": ("comm", "ipython", "jupyterlab-widgets"),
    "seaborn": ("numpy", "pandas", "matplotlib"),
}
EXTENSIONS = (
    "@jupyter-widgets/jupyterlab-manager",
    "@jupyterlite/pyodide-kernel-extension",
)
LESSON_DATA = ("results/reported_values.csv",)  # what lessons read beside the wheel
DATA_PACKAGE = "cfhelpers_lessons"
KERNELSPEC = {"display_name": "Python (Pyodide)", "language": "python", "name": "python"}
# Compiled code is about ten times as quick as the same loop in a browser.
SMALLER = {
    "02": {"n_calibration": 20_000, "n_test": 50_000, "n_resplits": 3},
    "03": {"n_draws": 2_000, "n_calibrations": 20, "n_points": 1_000},
    "05": {"n_calibrations": 5, "n_points": 10_000, "n_resplits": 3},
}


@dataclass(frozen=True)
class Bundle:
    """A Pyodide distribution: the files of a folder, or those below an address."""

    place: Path | str

    def read(self, name: str) -> bytes | None:
        """The bytes of a file; None if there is none of that name."""
        if isinstance(self.place, Path):
            file = self.place / name
            return file.read_bytes() if file.is_file() else None
        try:
            return fetch(self.place + name)
        except urllib.error.HTTPError as error:
            if error.code in (403, 404):
                return None
            raise


def fetch(address: str) -> bytes:
    """What is at an address."""
    with urllib.request.urlopen(address, timeout=300) as answer:
        return answer.read()


def open_bundle(place: str, scratch: Path) -> Bundle:
    """The distribution that is meant, unpacked into `scratch` if it is an archive."""
    is_address = re.match(r"https?://", place) is not None
    if is_address and place.endswith("/"):
        return Bundle(place)
    if is_address:
        archive = scratch / place.rpartition("/")[2]
        archive.write_bytes(fetch(place))
        if place == CORE:
            check_sha512(archive.read_bytes())
    else:
        archive = Path(place).resolve()
    if not archive.exists():
        raise ValueError(f"bundle: {place}: there is no such file, folder or address")
    folder = archive
    if archive.is_file():
        folder = scratch / "unpacked"
        try:
            with tarfile.open(archive) as files:
                files.extractall(folder, filter="data")
        except (tarfile.TarError, EOFError, zlib.error) as error:
            reason = str(error).partition("\n")[0]
            raise ValueError(f"bundle: {place} is no whole archive: {reason}") from error
    for lock in sorted(folder.rglob(LOCK)):
        if all((lock.parent / name).is_file() for name in RUNTIME):
            return Bundle(lock.parent)
    raise ValueError(
        f"bundle: {place} holds no {LOCK} with {', '.join(RUNTIME)} beside it"
    )


def check_sha512(data: bytes) -> None:
    """An error if these are not the bytes of the core that is pinned here."""
    found = base64.b64encode(hashlib.sha512(data).digest()).decode()
    if found != CORE_SHA512:
        raise ValueError(f"{CORE}: its SHA-512 is {found}; wanted {CORE_SHA512}")


class Packages:
    """The packages of a site: their wheels in a folder, and the lock that lists them."""

    def __init__(self, bundle: Bundle, folder: Path) -> None:
        listed = bundle.read(LOCK)
        if listed is None:
            raise ValueError(f"bundle: {bundle.place} has no {LOCK}")
        lock = json.loads(listed)
        self.bundle = bundle
        self.folder = folder
        self.info: dict = lock["info"]
        self.known: dict[str, dict] = lock["packages"]
        self.chosen: dict[str, dict] = {}
        self.missing: list[str] = []

    @property
    def site_packages(self) -> str:
        """Where Pyodide puts the packages of this version of Python."""
        version = self.info["python"].rpartition(".")[0]
        return f"/lib/python{version}/site-packages"

    def add(self, name: str) -> None:
        """Put a package and what it needs into the site, unless it is there."""
        if name in self.chosen or name in self.missing:
            return
        if name in self.known:
            self._add_known(name)
        else:
            [wheel] = download([name], self.folder)
            self.add_wheel(wheel, FROM_PYPI[name])

    def _add_known(self, name: str) -> None:
        """A package of the lock: from the bundle, or if it is pure from PyPI."""
        entry = dict(self.known[name])
        data = self.bundle.read(entry["file_name"])
        if data is not None:
            if hashlib.sha256(data).hexdigest() != entry["sha256"]:
                raise ValueError(f"bundle: {entry['file_name']} is not what {LOCK} says")
            (self.folder / entry["file_name"]).write_bytes(data)
            self.chosen[name] = entry
        elif entry["file_name"].endswith("-none-any.whl"):
            [wheel] = download([f"{name}=={entry['version']}"], self.folder)
            self.add_wheel(wheel, tuple(entry["depends"]), tuple(entry["imports"]))
            return
        else:
            self.missing.append(name)
        for other in entry["depends"]:
            self.add(normal(other))

    def add_wheel(
        self, wheel: Path, depends: tuple[str, ...], imports: tuple[str, ...] = ()
    ) -> None:
        """Put a wheel that lies in the folder into the lock."""
        name, version = wheel.name.split("-")[:2]
        self.chosen[normal(name)] = {
            "depends": list(depends),
            "file_name": wheel.name,
            "imports": list(imports or (name.lower(),)),
            "install_dir": "site",
            "name": normal(name),
            "package_type": "package",
            "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
            "unvendored_tests": False,
            "version": version,
        }
        for other in depends:
            self.add(normal(other))

    def write_lock(self) -> None:
        """Write the lock; it lists what the site holds and nothing else."""
        for entry in self.chosen.values():
            here = [name for name in entry["depends"] if normal(name) in self.chosen]
            entry["depends"] = here
        lock = {"info": self.info, "packages": self.chosen}
        (self.folder / LOCK).write_text(json.dumps(lock, indent=1), encoding="utf-8")


def normal(name: str) -> str:
    """A package's name as the index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def download(requirements: list[str], folder: Path) -> list[Path]:
    """Pure wheels from PyPI, in the versions of constraints.txt unless one is named."""
    before = set(folder.glob("*.whl"))
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    options = ["--only-binary", ":all:", "--implementation", "py", "--abi", "none"]
    platform = ["--platform", "any", "--python-version", "3.14", "--dest", str(folder)]
    limits = pinned()
    wanted = []
    for name in requirements:
        version = limits.get(normal(name))
        wanted.append(f"{name}=={version}" if version else name)
    environment = {"PIP_CONSTRAINT": "", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    run([*command, *options, *platform, *wanted], environment)
    return sorted(set(folder.glob("*.whl")) - before)


def pinned(root: Path = ROOT) -> dict[str, str]:
    """The versions of constraints.txt, by normalised name."""
    versions = {}
    for line in (root / "constraints.txt").read_text(encoding="utf-8").splitlines():
        name, is_pin, version = line.partition("==")
        if is_pin and not line.startswith("#"):
            versions[normal(name)] = version
    return versions


def our_wheel(folder: Path, scratch: Path, root: Path = ROOT) -> Path:
    """The wheel of this repository, built from a copy so that nothing is left in it."""
    source = scratch / "source"
    shutil.copytree(
        root / "cfhelpers",
        source / "cfhelpers",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(root / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    run([*command, "--wheel-dir", str(folder), str(source)])
    [wheel] = folder.glob("cfhelpers-*.whl")
    return wheel


def data_wheel(folder: Path, root: Path = ROOT) -> Path:
    """A wheel with the files of the repository that lessons read."""
    info = f"{DATA_PACKAGE}-0.dist-info"
    text = {
        f"{DATA_PACKAGE}/__init__.py": "",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {DATA_PACKAGE}\nVersion: 0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    wheel = folder / f"{DATA_PACKAGE}-0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in text.items():
            archive.writestr(name, content)
        for name in LESSON_DATA:
            archive.write(root / name, f"{DATA_PACKAGE}/{name}")
        listed = [*archive.namelist(), f"{info}/RECORD"]
        archive.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in listed))
    return wheel


def add_packages(packages: Packages, scratch: Path) -> None:
    """Everything that the kernel and the lessons import; cfhelpers brings it along."""
    for name in KERNEL:
        packages.add(name)
    data = data_wheel(packages.folder)
    packages.add_wheel(data, (), (DATA_PACKAGE,))
    wheel = our_wheel(packages.folder, scratch)
    needed = (*METHOD, *PICTURES, normal(DATA_PACKAGE))
    packages.add_wheel(wheel, needed, ("cfhelpers",))


def lesson(path: Path, smaller: dict[str, int]) -> str:
    """A notebook for the browser's kernel.

    Where it gets smaller parameters, its old outputs are left out.
    """
    notebook = json.loads(path.read_text(encoding="utf-8"))
    notebook["metadata"]["kernelspec"] = KERNELSPEC
    for cell in notebook["cells"]:
        if "parameters" in cell["metadata"].get("tags", []):
            source = "".join(cell["source"])
            cell["source"] = with_values(source, smaller, path.name)
        if smaller and cell["cell_type"] == "code":
            cell["outputs"] = []
            cell["execution_count"] = None
    return json.dumps(notebook, ensure_ascii=False, indent=1)


def with_values(source: str, values: dict[str, int], name: str) -> str:
    """The code of a cell of parameters, with other values."""
    for parameter, value in values.items():
        pattern = rf"^({parameter}: int = )[\d_]+"
        source, count = re.subn(pattern, rf"\g<1>{value:_}", source, flags=re.MULTILINE)
        if count != 1:
            raise ValueError(f"{name}: parameters: found no {parameter}: int")
    return source


def write_contents(folder: Path, root: Path = ROOT) -> None:
    """The lessons, and the pages and pictures that they link to."""
    (folder / "notebooks").mkdir(parents=True)
    for number in LESSONS:
        [path] = (root / "notebooks").glob(f"{number}_*.ipynb")
        text = lesson(path, SMALLER.get(number, {}))
        (folder / "notebooks" / path.name).write_text(text, encoding="utf-8")
        for link in set(re.findall(r"\]\(\.\./([^)#\s]+)", text)):
            source = root / link
            if source.is_file() and source.suffix in (".md", ".png", ".csv", ".cff"):
                (folder / link).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, folder / link)


def settings(packages: Packages) -> dict:
    """What the site tells its kernel: where Python is, and that nothing is elsewhere."""
    home = f"{packages.site_packages}/{DATA_PACKAGE}"
    kernel = {
        "pyodideUrl": "./static/pyodide/pyodide.mjs",
        "disablePyPIFallback": True,
        "loadPyodideOptions": {"env": {"HOME": "/home/pyodide", "CFHELPERS_HOME": home}},
    }
    return {
        "jupyter-lite-schema-version": 0,
        "jupyter-config-data": {
            "appName": "Conformal fairness",
            "exposeAppInBrowser": True,
            "litePluginSettings": {
                "@jupyterlite/pyodide-kernel-extension:kernel": kernel
            },
        },
    }


def build(place: str, output: Path, is_core: bool = False) -> Packages:
    """Build the site into a folder, which is replaced.

    An error names the compiled packages that the distribution lacks, unless `is_core`.
    """
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        bundle = open_bundle(place, scratch)
        static = scratch / "site" / "static" / "pyodide"
        static.mkdir(parents=True)
        packages = Packages(bundle, static)
        add_packages(packages, scratch)
        if packages.missing and not is_core:
            raise ValueError(
                f"bundle: {place} lacks {', '.join(sorted(packages.missing))}; "
                "the lessons need a full distribution, such as pyodide-314.0.6.tar.bz2"
            )
        packages.write_lock()
        for file in RUNTIME:
            data = bundle.read(file)
            if data is None:
                raise ValueError(f"bundle: {place} has no {file}")
            (static / file).write_bytes(data)
        write_contents(scratch / "site" / "files")
        told = json.dumps(settings(packages), indent=1)
        (scratch / "site" / "jupyter-lite.json").write_text(told, encoding="utf-8")
        shutil.rmtree(output, ignore_errors=True)
        program = [str(Path(sys.executable).with_name("jupyter-lite")), "build"]
        words = [
            "--contents",
            "files",
            "--no-sourcemaps",
            "--output-dir",
            str(output.resolve()),
        ]
        run([*program, *words], cwd=scratch / "site")
    absent = [name for name in EXTENSIONS if not (output / "extensions" / name).is_dir()]
    if absent:
        raise RuntimeError(f"the site has no {', '.join(absent)}")
    return packages


def run(command: list[str], environment: dict[str, str] | None = None, cwd=None) -> None:
    """Run a command; an error with what it printed if it fails."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def main(arguments: list[str] | None = None) -> int:
    """Build the site, and say how large it is and what it lacks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", help="a folder, an archive, or an address")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "lite")
    parser.add_argument("--core", action="store_true", help="compiled packages may lack")
    options = parser.parse_args(arguments)
    try:
        packages = build(options.bundle, options.output, options.core)
    except urllib.error.URLError as error:
        print(f"lite: bundle: {options.bundle}: {error.reason}", file=sys.stderr)
        return 1
    except (ValueError, RuntimeError, OSError) as error:
        print(f"lite: {error}", file=sys.stderr)
        return 1
    size = sum(
        file.stat().st_size for file in options.output.rglob("*") if file.is_file()
    )
    print(f"{options.output}: {size / 1e6:.0f} MB, {len(packages.chosen)} packages")
    if packages.missing:
        print(f"lacking, so that lessons do not run: {', '.join(packages.missing)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

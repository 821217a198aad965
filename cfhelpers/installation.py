"""What is installed: versions, and whether each extra works."""

import argparse
import importlib
import platform
import re
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any

import cfhelpers

METHOD = "the method"
REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)(\[(?P<extras>[\w,-]+)\])?(>=(?P<lowest>[\w.]+))?"
)


@dataclass(frozen=True)
class Package:
    """A package that is wanted, and what was found of it."""

    name: str
    lowest: str
    version: str
    fault: str

    def __str__(self) -> str:
        wanted = f" (wanted {self.lowest} or later)" if self.fault else ""
        return f"{self.name} {self.version or 'missing'}{wanted}"


def wanted() -> dict[str, list[tuple[str, str]]]:
    """Packages and their lowest versions, for the method and for every extra.

    Returns
    -------
    dict
        Pairs of name and lowest version, by extra.

    Examples
    --------
    >>> [name for name, _ in wanted()["plots"]]
    ['matplotlib', 'seaborn']
    """
    named: dict[str, list[tuple[str, str]]] = {METHOD: []}
    includes: dict[str, list[str]] = {}
    for line in metadata.requires("cfhelpers") or []:
        text, _, marker = line.partition(";")
        found = REQUIREMENT.match(text.strip())
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", marker)
        if found is None:
            continue
        name = extra[1] if extra else METHOD
        named.setdefault(name, [])
        if found["name"] == "cfhelpers":
            includes.setdefault(name, []).extend(found["extras"].split(","))
        else:
            named[name].append((found["name"].lower(), found["lowest"] or ""))
    return {name: _with_included(name, named, includes) for name in named}


def _with_included(
    name: str, named: dict[str, list[tuple[str, str]]], includes: dict[str, list[str]]
) -> list[tuple[str, str]]:
    """The packages of an extra and of the extras that it names."""
    packages = list(named.get(name, []))
    for other in includes.get(name, []):
        for package in _with_included(other, named, includes):
            if package not in packages:
                packages.append(package)
    return packages


def look_at(name: str, lowest: str = "") -> Package:
    """Whether a package is there, recent enough, and can be imported.

    Parameters
    ----------
    name : str
    lowest : str
        The lowest version that will do; empty: any.

    Returns
    -------
    Package

    Examples
    --------
    >>> look_at("no-such-package", "1.0").fault
    'missing'
    """
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Package(name, lowest, "", "missing")
    if lowest and _numbers(version) < _numbers(lowest):
        return Package(name, lowest, version, "too old")
    for module in _modules().get(_normal(name), [])[:1]:  # stubs have none
        try:
            importlib.import_module(module)
        except Exception as error:
            reason = f"cannot be imported: {type(error).__name__}: {error}"
            return Package(name, lowest, version, reason)
    return Package(name, lowest, version, "")


@cache
def _modules() -> dict[str, list[str]]:
    """The modules that each installed package gives, that of its own name first."""
    modules: dict[str, list[str]] = {}
    for module, packages in metadata.packages_distributions().items():
        if module.isidentifier() and not module.startswith("_"):
            for package in packages:
                modules.setdefault(_normal(package), []).append(module)
    for package, names in modules.items():
        names.sort(key=lambda name: (_normal(name) != package, name))
    return modules


def _normal(name: str) -> str:
    """A package's name as the index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _numbers(version: str) -> list[int]:
    """A version as numbers that can be compared."""
    return [int(part) for part in re.findall(r"\d+", version.split("+")[0])]


def report(extras: list[str] | None = None) -> tuple[str, bool]:
    """Versions, and whether each extra works, as text.

    Parameters
    ----------
    extras : list of str, optional
        Which; by default all that pyproject.toml names.

    Returns
    -------
    text : str
    works : bool
        Whether the method works: what `pip install .` gives.

    Examples
    --------
    >>> text, works = report(["plots"])
    >>> works
    True
    >>> print(text.splitlines()[-1])
    plots: works
    """
    by_extra = wanted()
    chosen = [METHOD, *(sorted(set(by_extra) - {METHOD}) if extras is None else extras)]
    unknown = [name for name in chosen if name not in by_extra]
    if unknown:
        known = ", ".join(sorted(set(by_extra) - {METHOD}))
        raise ValueError(f"extras: found {', '.join(unknown)}; wanted some of {known}")
    lines = [
        f"cfhelpers {cfhelpers.__version__}",
        f"Python {platform.python_version()} on {platform.system()} {platform.machine()}",
    ]
    is_working = True
    for name in chosen:
        packages = [look_at(*pair) for pair in by_extra[name]]
        faults = [package for package in packages if package.fault]
        if name == METHOD:
            lines += [f"  {package}" for package in packages]
            is_working = not faults
        lines.append(_verdict(name, faults))
    return "\n".join(lines), is_working


def _verdict(name: str, faults: list[Package]) -> str:
    """One line on an extra: works, or what is missing and how it comes."""
    if not faults:
        return f"{name}: works"
    told = "; ".join(f"{fault.name} {fault.fault}" for fault in faults)
    if name == METHOD:
        return f"{name}: does not work: {told}"
    return f'{name}: not installed ({told}); pip install "cfhelpers[{name}]"'


def add_parser(commands: Any) -> None:
    """Add `cfhelpers check` to the commands of the command line."""
    command = commands.add_parser(
        "check",
        help="versions, and whether each extra works",
        description="Print versions, and whether each extra works.",
        allow_abbrev=False,
    )
    command.add_argument("extras", nargs="*", help="which extras; by default all")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the report; 0 if the method works, 1 if not."""
    text, works = report(options.extras or None)
    print(text)
    return 0 if works else 1

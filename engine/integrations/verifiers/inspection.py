"""Finds the module of a package or folder that is an environment, and its API, by reading its
source text without running it."""

import ast
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from engine.protocol.problems import ConfigError

Kind = Literal["environment", "taskset"]
"""`environment`: a module with `load_environment`; `taskset`: one that exports a `Taskset`."""
LOADER = "load_environment"
TASKSET = re.compile(r"^class \w+\([^)]*Taskset\b", re.MULTILINE)
V1 = "verifiers.v1"
LEFT_OUT = ("tests", "test", "docs", "examples", ".git", ".venv", "venv", "build", "dist")
MOST_SOURCE_BYTES = 2**24


class FoundModule(NamedTuple):
    name: str
    """Dotted name by which the module is imported."""
    kind: Kind


def find_module(sources: Mapping[str, str], name: str, wanted: str = "") -> FoundModule:
    """Return the module that is the environment. `sources`: path relative to the import folder →
    text of each Python file; `name`: of the package; `wanted`: dotted name if the person chose one.
    Raises ConfigError if there is none, or the choice is not clear."""
    usual = wanted or re.sub(r"[-.]+", "_", name).lower()
    if (kind := _kind(sources, usual)) is not None:
        return FoundModule(usual, kind)
    found = {one: kind for one in _modules(sources) if (kind := _kind(sources, one)) is not None}
    whole = [one for one in found if not any(one.startswith(f"{other}.") for other in found)]
    if wanted or len(whole) != 1:
        others = f" Modules that are environments: {', '.join(sorted(found))}." if found else ""
        raise ConfigError.of(
            "verifiers.no_module",
            f"{wanted or name} is no environment of verifiers: it has neither {LOADER}() nor a "
            f"Taskset.{others}",
            f"Name the module after a colon: {name}:{min(found)}."
            if found
            else f"Check the name; an environment is a package with {LOADER}() or a Taskset.",
        )
    return FoundModule(whole[0], found[whole[0]])


def sources_of_wheel(file: Path) -> dict[str, str]:
    """Python files of a wheel: path → text. Raises ConfigError for files that are too large."""
    with zipfile.ZipFile(file) as wheel:
        infos = [info for info in wheel.infolist() if info.filename.endswith(".py")]
        _check_size(sum(info.file_size for info in infos), file.name)
        return {info.filename: wheel.read(info).decode(errors="replace") for info in infos}


def sources_of_folder(folder: Path) -> dict[str, str]:
    """Python files below an import folder: relative path → text. Raises ConfigError for files that
    are too large."""
    files = [
        file
        for file in sorted(folder.rglob("*.py"))
        if file.is_file() and not set(file.relative_to(folder).parts[:-1]) & set(LEFT_OUT)
    ]
    _check_size(sum(file.stat().st_size for file in files), folder.name)
    return {
        file.relative_to(folder).as_posix(): file.read_text(encoding="utf-8", errors="replace")
        for file in files
    }


def _check_size(size: int, name: str) -> None:
    if size > MOST_SOURCE_BYTES:
        raise ConfigError.of(
            "verifiers.too_large",
            f"{name} has more than {MOST_SOURCE_BYTES >> 20} MB of Python files.",
            "Choose the folder of the environment alone.",
        )


def _modules(sources: Mapping[str, str]) -> list[str]:
    names = [path.removesuffix(".py").removesuffix("/__init__") for path in sources]
    return [name.replace("/", ".") for name in names]


def _kind(sources: Mapping[str, str], module: str) -> Kind | None:
    path = module.replace(".", "/")
    text = sources.get(f"{path}.py", sources.get(f"{path}/__init__.py"))
    if text is None:
        return None
    package = [one for file, one in sources.items() if file.startswith(f"{path}/")] or [text]
    if "__all__" in text and any(V1 in one and TASKSET.search(one) for one in package):
        return "taskset"
    return "environment" if LOADER in top_level_names(text) else None


def top_level_names(text: str) -> set[str]:
    """Names that a module's text defines or imports at its top level."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError):
        return set()
    found: set[str] = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            found |= {one.asname or one.name for one in node.names}
        elif isinstance(node, ast.Assign):
            found |= {one.id for one in node.targets if isinstance(one, ast.Name)}
    return found

"""Finds the module of a package or folder that is an environment, and its API, by reading its
source text without running it."""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from engine.integrations.packaged_tasks.wheels import top_level_names
from engine.protocol.problems import ConfigError

Kind = Literal["environment", "taskset"]
"""`environment`: a module with `load_environment`; `taskset`: one that exports a `Taskset`."""
LOADER = "load_environment"
TASKSET = re.compile(r"^class \w+\([^)]*Taskset\b", re.MULTILINE)
V1 = "verifiers.v1"


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

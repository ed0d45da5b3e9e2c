"""Vocabulary and structure: docstrings name their object, classes have roles, rooms are small."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OPENERS = re.compile(
    r"(What|Who|Whom|Whose|Of|It|Its|That|Those|They|One|Ones|So|Where|Which|How|Anew|Whoever|Whatever"
    r"|Nobody)\b"
)
"""First words that leave the object of a docstring open."""
ROLES = re.compile(
    r"(Desk|House|Hall|Seat|Door|Purse|Letter|Book|Gate|Errand|Errands|Living|Told|Heard)$"
)
"""Endings of class names that are no roles of software."""
EMPTY = {
    "told", "heard", "said", "asked", "looked", "spared", "whom", "handed", "begun", "lives",
    "looking", "lent", "desk", "errand", "errands", "speaker", "hall", "seat", "door", "purse",
    "book", "gate",
}  # fmt: skip
"""Words that say nothing of a value; fields of stored records have some of them."""
MOST_ROOMS = {"engine": 22, "studio": 12}
MOST_FILES = 16
CROWDED = {"engine/cli/commands"}
"""One file per command."""


def sources(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    for folder in folders:
        for file in sorted((ROOT / folder).rglob("*.py")):
            yield str(file.relative_to(ROOT)), ast.parse(file.read_text())


def test_docstrings_of_the_engine_name_their_object() -> None:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [
        f"{file}:{getattr(node, 'name', '')}: {text.splitlines()[0]}"
        for file, tree in sources("engine")
        for node in ast.walk(tree)
        if isinstance(node, kinds) and (text := ast.get_docstring(node)) and OPENERS.match(text)
    ]
    assert found == []


def test_names_say_what_a_value_is() -> None:
    found = [
        f"{file}:{node.lineno}: {name}"
        for file, tree in sources("engine", "studio")
        for node in ast.walk(tree)
        for name in names_bound(node)
        if EMPTY & set(name.lower().split("_"))
    ]
    assert found == []


def names_bound(node: ast.AST) -> list[str]:
    """Return the names of a function with its arguments, or of an assigned variable."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        return [node.name, *(argument.arg for argument in given)]
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return [node.id]
    return []


def test_classes_have_the_roles_of_software() -> None:
    found = [
        f"{file}:{node.name}"
        for file, tree in sources("engine", "studio")
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and ROLES.search(node.name)
    ]
    assert found == []


@pytest.mark.parametrize("package", ["engine", "studio"])
def test_rooms_are_few_and_not_crowded(package: str) -> None:
    folders = [f for f in (ROOT / package).rglob("*") if f.is_dir() and list(f.glob("*.py"))]
    assert len([f for f in folders if f.parent.name == package]) <= MOST_ROOMS[package]
    crowded = {
        str(folder.relative_to(ROOT))
        for folder in folders
        if len(list(folder.glob("*.py"))) - 1 > MOST_FILES
    }
    assert crowded <= CROWDED


@pytest.mark.parametrize("package", ["engine", "studio"])
def test_every_room_says_its_purpose_and_who_may_import_it(package: str) -> None:
    silent = []
    for file in sorted((ROOT / package).rglob("__init__.py")):
        text = ast.get_docstring(ast.parse(file.read_text())) or ""
        if file.parent.name != package and len(re.findall(r"[.!?](?:\s|$)", text)) < 2:
            silent.append(str(file.relative_to(ROOT)))
    assert silent == []

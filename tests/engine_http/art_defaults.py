"""Print the trainer defaults of the package openpipe-art as JSON.

Run by the Python of an environment with the package; not a test itself. Its trainer needs torch
and a GPU, so its source code is parsed instead.
"""

import ast
import importlib.util
import json
from pathlib import Path
from typing import Any

from art.dev import model as typed

PACKAGE = Path(importlib.util.find_spec("art").submodule_search_locations[0])  # type: ignore[union-attr, index]


def keywords_of(file: str, called: str) -> dict[str, Any]:
    """Return the literal keyword arguments of the first call of a class in a file."""
    for node in ast.walk(ast.parse((PACKAGE / file).read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == called:
            return {
                one.arg: one.value.value
                for one in node.keywords
                if one.arg and isinstance(one.value, ast.Constant)
            }
    raise LookupError(called)


def weight_decays(file: str, name: str) -> list[Any]:
    """Return the literals that a function assigns to weight decays of its optimizer."""
    function = next(
        node for node in ast.walk(ast.parse((PACKAGE / file).read_text()))
        if isinstance(node, ast.AsyncFunctionDef) and node.name == name
    )  # fmt: skip
    return [
        node.value.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and "weight_decay" in ast.unparse(node.targets[0])
    ]


def arguments_of(file: str, owner: str, name: str) -> dict[str, Any]:
    """Return the keyword-only arguments of a method with their defaults."""
    tree = ast.parse((PACKAGE / file).read_text())
    kind = next(n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == owner)
    method = next(n for n in kind.body if getattr(n, "name", "") == name)
    assert isinstance(method, ast.AsyncFunctionDef)
    arguments = zip(method.args.kwonlyargs, method.args.kw_defaults, strict=True)
    return {one.arg: ast.literal_eval(default) for one, default in arguments if default is not None}


print(
    json.dumps(
        {
            "trainer": keywords_of("dev/get_model_config.py", "TrainerArgs"),
            "peft": keywords_of("dev/get_model_config.py", "PeftArgs"),
            "decays": weight_decays("unsloth/train.py", "run_unsloth_rl_training"),
            "keys": {
                "": sorted(typed.InternalModelConfig.__annotations__),
                "init_args": sorted(typed.InitArgs.__annotations__),
                "peft_args": sorted(typed.PeftArgs.__annotations__),
            },
            "train": arguments_of("local/backend.py", "LocalBackend", "train"),
        }
    )
)

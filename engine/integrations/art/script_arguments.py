"""Look ahead: arguments that a script's own text gives to `train()`, before a rollout is paid for.

`train()` is called after rollouts and judges. What it could not follow is therefore looked for when
the model is registered, in the file that makes the backend: keyword arguments that are written out.
Values that are only known at run time are checked by `train()` itself, before anything else.
"""

import ast
from pathlib import Path
from typing import Any

BACKEND = "AtelierBackend"


def train_arguments(file: str | None) -> list[dict[str, Any]]:
    """Keyword arguments with literal values of each call of a backend's `train` in a file.

    Empty where there is no such file (a notebook, say) or it cannot be parsed.
    """
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8")) if file else ast.Module([], [])
    except (OSError, ValueError, SyntaxError, RecursionError):
        return []
    names = _backends(tree)
    return [_literals(node) for node in ast.walk(tree) if _trains(node, names)]


def _backends(tree: ast.Module) -> set[str]:
    """Names to which a backend is assigned."""
    found: set[str] = set()
    for node in ast.walk(tree):
        targets: list[ast.expr | None] = []
        if isinstance(node, ast.Assign) and _makes(node.value):
            targets = list(node.targets)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and _makes(node.value):
            targets = [node.target]
        elif isinstance(node, ast.withitem) and _makes(node.context_expr):
            targets = [node.optional_vars]
        found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def _makes(value: ast.expr | None) -> bool:
    called = value.func if isinstance(value, ast.Call) else None
    return getattr(called, "id", getattr(called, "attr", "")) == BACKEND


def _trains(node: ast.AST, names: set[str]) -> bool:
    called = node.func if isinstance(node, ast.Call) else None
    if not isinstance(called, ast.Attribute) or called.attr != "train":
        return False
    return isinstance(called.value, ast.Name) and called.value.id in names


def _literals(call: ast.AST) -> dict[str, Any]:
    found = {}
    for keyword in call.keywords if isinstance(call, ast.Call) else ():
        try:
            value = ast.literal_eval(keyword.value)
        except ValueError:  # known at run time
            continue
        if keyword.arg:
            found[keyword.arg] = value
    return found

"""Bugs: small changes of correct source code, each of a named kind.

`bugs(source)` lists (kind, changed source). Only the changed part is replaced, so that comments and layout stay. A change
may have no effect on any result; who uses it has to run both versions.
"""

import ast

COMPARISONS = {
    ast.Gt: (ast.GtE, ast.Lt), ast.GtE: (ast.Gt, ast.LtE), ast.Lt: (ast.LtE, ast.Gt), ast.LtE: (ast.Lt, ast.GtE),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
OPERATORS = {
    ast.Add: (ast.Sub,), ast.Sub: (ast.Add,), ast.Mult: (ast.Add, ast.FloorDiv), ast.FloorDiv: (ast.Mult, ast.Mod),
    ast.Mod: (ast.FloorDiv,), ast.Div: (ast.Mult,),
}  # fmt: skip
OTHER_NAMES = {
    "max": "min", "min": "max", "sum": "len", "any": "all", "all": "any", "upper": "lower", "lower": "upper",
    "startswith": "endswith", "endswith": "startswith", "append": "extend", "strip": "split", "abs": "int",
}  # fmt: skip
SWAPPED = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod)


def bugs(source):
    """(kind, source with this bug), for every place where a bug of a kind can be put."""
    found = []
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef):
            arguments = [one.arg for one in function.args.args]
            for node in ast.walk(function):
                found += [(kind, put(source, node, text)) for kind, text in changes(node, function, arguments)]
    unique = {text: kind for kind, text in reversed(found) if text != source and compiles(text)}
    return [(kind, text) for text, kind in reversed(unique.items())]


def changes(node, function, arguments):
    """(kind, text that replaces the node); the text None removes its lines."""
    text = ast.unparse
    match node:
        case ast.Compare(ops=operators):
            for place, operator in enumerate(operators):
                for other in COMPARISONS.get(type(operator), ()):
                    changed = [*operators[:place], other(), *operators[place + 1 :]]
                    yield "wrong comparison", text(ast.Compare(node.left, changed, node.comparators))
        case ast.BinOp(left=left, op=operator, right=right):
            for other in OPERATORS.get(type(operator), ()):
                yield "wrong operator", text(ast.BinOp(left, other(), right))
            if isinstance(operator, SWAPPED) or isinstance(operator, ast.Add) and is_text(node):
                yield "swapped arguments", text(ast.BinOp(right, operator, left))
        case ast.BoolOp(op=operator, values=values):
            yield "wrong operator", text(ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "missing not", text(operand)
        case ast.Call(func=ast.Name(id="range"), args=[only]):
            yield "off by one", f"range({text(only)} - 1)"
            yield "off by one", f"range(1, {text(only)})"
        case ast.Call(args=[first, second], keywords=[]) if not isinstance(node.func, ast.Attribute):
            yield "swapped arguments", text(ast.Call(node.func, [second, first], []))
        case ast.Name(id=name) if name in OTHER_NAMES and name not in arguments:
            yield "wrong function", OTHER_NAMES[name]
        case ast.Name(id=name, ctx=ast.Load()) if name in arguments:
            for other in arguments:
                if other != name:
                    yield "wrong variable", other
        case ast.Attribute(value=value, attr=name) if name in OTHER_NAMES:
            yield "wrong function", f"{text(value)}.{OTHER_NAMES[name]}"
        case ast.Subscript(value=value, slice=ast.Slice(lower, upper, None)) if (lower is None) != (upper is None):
            yield "wrong slice", text(ast.Subscript(value, ast.Slice(upper, lower), ast.Load()))
        case ast.Constant(value=bool()):
            yield "wrong constant", str(not node.value)
        case ast.Constant(value=int()):
            kind = "wrong default" if node in function.args.defaults else "wrong constant"
            yield kind, str(node.value + 1)
            if node.value > 0:
                yield kind, str(node.value - 1)
        case ast.Return(value=ast.expr()):
            yield "missing return", text(node.value)
        case ast.IfExp(body=body):
            yield "missing edge case", text(body)
        case ast.If(body=[ast.Return() | ast.Continue()], orelse=[]):
            yield "missing edge case", None


def is_text(node):
    return any(isinstance(one, ast.Constant) and isinstance(one.value, str) for one in ast.walk(node))


def put(source, node, text):
    """Source in which the text stands in place of the node."""
    lines = source.splitlines(keepends=True)
    first, last = node.lineno - 1, node.end_lineno - 1
    if text is None:
        return "".join(lines[:first] + lines[last + 1 :])
    before, after = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
    return "".join(lines[:first]) + before + text + after + "".join(lines[last + 1 :])


def compiles(source):
    try:
        compile(source, "bug", "exec")
    except SyntaxError:
        return False
    return True

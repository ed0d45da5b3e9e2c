"""SQL of queries and filter expressions over trajectories: text with placeholders, and values.

Conditions on numeric fields are NULL where the value is missing; all others are 0 or 1. So `NOT`,
`AND` and `OR` of SQL have the meaning that `engine.protocol.requests.filters` gives them."""

import re

from engine.protocol.requests.filters import (
    And,
    Comparison,
    Match,
    Node,
    Not,
    TextSearch,
    parse_filter,
)
from engine.protocol.requests.runs import TrajectoryQuery

MOST_WORDS = 40
"""Maximum number of words in a search; each costs a pass over the index."""

UNSCORED = "reward IS NULL AND NOT coalesce(summary ->> '$.awaits_judge', 0)"

Condition = tuple[str, list[object]]

_FIGURES = {
    "reward": "reward",
    "advantage": "advantage",
    "step": "step",
    "group": "grp + 1",
    "turns": "turns",
    "tokens": "tokens",
    "duration": "duration",
    "latency": "facts ->> '$.latency_s'",
    "tool_calls": "facts ->> '$.tool_calls'",
    "tool_errors": "facts ->> '$.tool_errors'",
    "cost": "summary ->> '$.cost_usd'",
    "part": "(SELECT value FROM json_each(summary, '$.parts') WHERE key = ?)",
    "metric": "(SELECT value FROM json_each(facts, '$.metrics') WHERE key = ?)",
}
_STATES = {
    "unscored": UNSCORED,
    "scored": "reward IS NOT NULL",
    "waiting": "reward IS NULL AND coalesce(summary ->> '$.awaits_judge', 0)",
    "truncated": "truncated",
    "marked": "marked",
    "labelled": "labelled",
    "signal": "(split, step, grp) IN (SELECT split, step, grp FROM groups WHERE signal)",
}
_MATCHES = {
    "tool": "EXISTS (SELECT 1 FROM json_each(facts, '$.tools') WHERE key = ? COLLATE NOCASE)",
    "label": "labelled AND EXISTS (SELECT 1 FROM json_each(summary, '$.labels') "
    "WHERE value = ? COLLATE NOCASE)",
    "model": "? IN (coalesce(summary ->> '$.contestant', ''), "
    "coalesce(summary ->> '$.provider', ''))",
    "split": "split = ?",
}


def query_sql(query: TrajectoryQuery) -> tuple[str, tuple[object, ...]]:
    """WHERE clause of a query and its values; empty if the query selects everything."""
    tests: list[str] = []
    values: list[object] = []
    for column, value in (
        ("split", query.split),
        ("grp", query.group),
        ("scenario_id", query.scenario_id),
        ("json_extract(summary, '$.contestant')", query.contestant),
    ):
        if value is not None:
            tests.append(f"{column} = ?")
            values.append(value)
    if query.step is not None:
        tests.append("step BETWEEN ? AND ?")
        values += [query.step, query.step if query.step_to is None else query.step_to]
    state = {
        "scored": "reward IS NOT NULL",
        "unscored": UNSCORED,
        "truncated": "truncated",
        "marked": "marked",
    }
    if query.state in state:
        tests.append(state[query.state])
    if query.labelled is not None:
        tests.append("labelled" if query.labelled else "NOT labelled")
    if query.signal is not None:
        tests.append("(split, step, grp) IN (SELECT split, step, grp FROM groups WHERE signal = ?)")
        values.append(int(query.signal))
    if condition := filter_sql(query.filter):
        tests.append(f"({condition[0]})")
        values += condition[1]
    return ("WHERE " + " AND ".join(tests) if tests else ""), tuple(values)


def filter_sql(text: str) -> Condition | None:
    """Convert a filter expression to an SQL condition on trajectories; None if it is empty. Raises
    Refused if it is invalid."""
    node = parse_filter(text)
    return None if node is None else _sql(node)


def _sql(node: Node) -> Condition:
    if isinstance(node, Comparison):
        values: list[object] = [node.name] if node.name else []
        return f"{_FIGURES[node.field]} {node.operator} ?", [*values, node.figure]
    if isinstance(node, Match):
        return _match(node)
    if isinstance(node, TextSearch):
        sql = "number IN (SELECT rowid FROM transcripts WHERE transcripts MATCH ?)"
        return sql, [_match_expression(node)]
    if isinstance(node, Not):
        sql, values = _sql(node.condition)
        return f"NOT ({sql})", values
    word = " AND " if isinstance(node, And) else " OR "
    parts = [_sql(one) for one in node.conditions]
    joined = word.join(f"({sql})" for sql, _ in parts)
    return joined, [value for _, found in parts for value in found]


def _match(node: Match) -> Condition:
    if node.field == "is":
        return _STATES[node.value], []
    if node.field == "scenario":
        title = re.sub(r"([\\%_])", r"\\\1", node.value)
        return "scenario_id = ? OR title LIKE ? ESCAPE '\\'", [node.value, f"%{title}%"]
    return _MATCHES[node.field], [node.value]


def _match_expression(search: TextSearch) -> str:
    """Return the FTS5 query of a text search."""
    words = search.words.replace("\0", " ").replace('"', " ")
    found = f'"{words}"' if search.phrase else search_phrase(words)
    return found if search.field == "text" else f"{search.field} : ({found})"


def search_phrase(words: str) -> str:
    """Convert typed words to an FTS5 query: all words must occur, the last one at least as the
    beginning of a word. Without words the query matches nothing."""
    found = [f'"{word}"' for word in re.findall(r"\w+", words)[:MOST_WORDS]]
    return " ".join(found) + "*" if found else '""'

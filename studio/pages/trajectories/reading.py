"""A stored trajectory as rows of a transcript; where siblings part. Pure: values in, values out."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.protocol.records import Branch, GroupSummary, Trajectory
from engine.protocol.records import Message as ChatMessage
from studio import figures
from studio.pages.run.charts import part_token
from studio.widgets.parts_bar import Part
from studio.widgets.transcript_items import Item, Message, Note, Outcome, Token, ToolCall

ICONS = {"search": "search", "find": "search", "read": "file-text", "mail": "mail", "email": "mail"}


@dataclass(frozen=True)
class Heading:
    """A line of the outline: words, a fact, the row it leads to, and how deep it lies."""

    words: str
    fact: str
    row: int
    icon: str
    deep: bool = False


def parts_of(trajectory: Trajectory) -> list[Part]:
    names = list(trajectory.parts)
    return [Part(name, value, part_token(name, names)) for name, value in trajectory.parts.items()]


def completions(trajectory: Trajectory) -> list[list[Token]]:
    """The sampled tokens of each model call, in order over all branches."""
    return [
        tokens for branch in trajectory.branches for tokens in _spans(branch, trajectory.advantage)
    ]


def _spans(branch: Branch, advantage: float | None) -> Iterator[list[Token]]:
    used = 0
    for start, end in branch.spans:
        logprobs = branch.logprobs[used : used + end - start]
        used += end - start
        pieces = branch.pieces[start:end] if branch.pieces else []
        yield [
            Token(piece, advantage, logprobs[i] if i < len(logprobs) else None, place=start + i)
            for i, piece in enumerate(pieces)
        ]


def items_of(trajectory: Trajectory, shared: bool = False) -> list[Item]:
    """Rows of the transcript. With `shared` the messages before the first turn are left out."""
    sampled = completions(trajectory)
    turns = [message for message in trajectory.messages if message.role == "assistant"]
    aligned = len(sampled) == len(turns)
    results = {m.tool_call_id: m.content for m in trajectory.messages if m.role == "tool"}
    items: list[Item] = []
    turn = 0
    for message in trajectory.messages:
        if message.role == "assistant":
            turn += 1
            tokens = sampled[turn - 1] if aligned else []
            last = turn == len(turns)
            row = _turn(message, turn, last, tokens, trajectory.advantage, results)
            items += [replace(row[0], facts="", advantage=None), *row[1:]] if shared else row
        elif message.role != "tool" and not (shared and turn == 0):
            items.append(Message(message.role, message.content, _role_title(message.role)))
    for place in range(1, len(trajectory.branches)):
        items.append(Note(f"Branch {place + 1}", "the template rewrote what came before", "split"))
    end = outcome(trajectory)
    return [*items, replace(end, facts="") if shared else end]


def _role_title(role: str) -> str:
    return {"system": "System", "user": "Question"}.get(role, role.capitalize())


def _turn(
    message: ChatMessage,
    turn: int,
    last: bool,
    tokens: list[Token],
    advantage: float | None,
    results: dict[str | None, str],
) -> "tuple[Message, *tuple[Item, ...]]":
    answer = last and not message.tool_calls
    title = f"Turn {turn}, answer" if answer else f"Turn {turn}"
    facts = f"{len(tokens)} tokens" if tokens else ""
    row = Message("assistant", message.content, title, facts, advantage, tokens)
    return (row, *(_call(call, results) for call in message.tool_calls))


def _call(call: dict[str, Any], results: dict[str | None, str]) -> ToolCall:
    function = call.get("function") or {}
    name = str(function.get("name", "tool"))
    result = results.get(call.get("id"), "")
    icon = next((icon for word, icon in ICONS.items() if word in name.lower()), "wrench")
    state = "error" if is_error(result) else "ok"
    return ToolCall(name, _arguments(function.get("arguments")), result, state, icon=icon)


def _arguments(raw: Any) -> str:
    """keywords=["TP 1041"], as one would write the call."""
    try:
        values = json.loads(raw) if isinstance(raw, str) else raw
    except ValueError:
        return str(raw)
    if not isinstance(values, dict):
        return "" if values is None else str(raw)
    return ", ".join(f"{k}={json.dumps(v, ensure_ascii=False)}" for k, v in values.items())


def is_error(result: str) -> bool:
    start = result.lstrip()[:40].lower()
    return start.startswith(("error", '{"error', "traceback", "exception"))


def outcome(trajectory: Trajectory) -> Outcome:
    facts = figures.plural(trajectory.turns, "turn")
    if trajectory.duration_s:  # nobody measured an imported attempt
        facts = f"{figures.duration(trajectory.duration_s)}, {facts}"
    if trajectory.reward is None:
        why = trajectory.problem.message if trajectory.problem else "no reward was given"
        return Outcome(f"Unscored · {why}", facts, [], figures.ABSENT)
    title = "Cut at the token limit" if trajectory.truncated else "Ended with an answer"
    return Outcome(title, facts, parts_of(trajectory), figures.number(trajectory.reward))


def outline_of(items: Sequence[Item]) -> list[Heading]:
    headings = []
    for row, item in enumerate(items):
        if isinstance(item, Message):
            icon = {"system": "message-square-text", "user": "user-round"}.get(item.role, "bot")
            headings.append(Heading(item.title, item.facts.replace("tokens", "tok"), row, icon))
        elif isinstance(item, ToolCall):
            fact = "error" if item.state == "error" else ""
            headings.append(Heading(item.name, fact, row, item.icon, deep=True))
    return headings


def ranks(group: GroupSummary) -> dict[int, int]:
    """Sibling → place by reward, 1 is best; ties share a place; unscored have none."""
    scored = [(reward, i) for i, reward in enumerate(group.rewards) if reward is not None]
    return {i: 1 + sum(other > reward for other, _ in scored) for reward, i in scored}


def partings(siblings: Sequence[Trajectory]) -> list[str]:
    """For each sibling, where it leaves the one it walks with longest."""
    paths = [_path(trajectory) for trajectory in siblings]
    return [_parting(place, paths, siblings) for place in range(len(paths))]


def _path(trajectory: Trajectory) -> list[str]:
    return [
        f"{message.content}{json.dumps([c.get('function') for c in message.tool_calls])}"
        for message in trajectory.messages
        if message.role == "assistant"
    ]


def _parting(place: int, paths: list[list[str]], siblings: Sequence[Trajectory]) -> str:
    mine = paths[place]
    best, companion = 0, -1
    for other, path in enumerate(paths):
        common = next(
            (i for i, (a, b) in enumerate(zip(mine, path, strict=False)) if a != b),
            min(len(mine), len(path)),
        )
        if other != place and common > best:
            best, companion = common, other
    if companion < 0:
        return "Turn 1, alone from here"
    with_whom = siblings[companion].index + 1
    if best >= len(mine):
        return f"The same as {with_whom} to the end"
    return f"Turn {best + 1}, with {with_whom} until turn {best}"


def shared_words(trajectory: Trajectory) -> str:
    """What all siblings begin with, in one line."""
    start = []
    for message in trajectory.messages:
        if message.role == "assistant":
            break
        start.append(message.content.replace("\n", " ").strip())
    return " · ".join(text[:120] for text in start if text)

"""Conversion of a trajectory to transcript rows; divergences in a group (pure functions)."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from engine.protocol.records.conversations import IMAGE, Branch
from engine.protocol.records.conversations import Message as ChatMessage
from engine.protocol.records.judging import PART as RULER
from engine.protocol.records.labels import PART as LABEL
from engine.protocol.records.runs import GroupSummary, Trajectory
from engine.protocol.requests.filters import is_error_result
from studio.models.trajectories import PART_WORDS
from studio.pages.run.charts.main import part_token
from studio.text import formatting
from studio.widgets.tables.reward_bar import Part
from studio.widgets.transcript.items import (
    ImageRef,
    Item,
    Message,
    Note,
    Outcome,
    Token,
    ToolCall,
    plain,
)
from studio.widgets.transcript.passage import pattern_of

END_MARK = re.compile(r"\s*</[a-z_]+>\s*")
"""Closing tag of reasoning, such as </think>."""
ICONS = {"search": "search", "find": "search", "read": "file-text", "mail": "mail", "email": "mail"}


@dataclass(frozen=True)
class Heading:
    """Heading of the outline: text, fact beside it, transcript row, icon; indented if `deep`."""

    words: str
    fact: str
    row: int
    icon: str
    deep: bool = False


Weights = Mapping[str, float]
"""Weights of reward parts by part name; missing ones are 1."""
EVEN: Weights = {}
Results = Mapping[str | None, tuple[str, Sequence[ImageRef]]]
"""Results of tool calls with their images, by id of the call."""


def parts_of(trajectory: Trajectory, weights: Weights = EVEN) -> list[Part]:
    """Return the reward parts with weighted values and colours. `weights`: part name → weight."""
    names = list(trajectory.parts)
    return [
        Part(PART_WORDS.get(name, name), value * weight_of(name, weights), part_token(name, names))
        for name, value in trajectory.parts.items()
    ]


def weight_of(name: str, weights: Weights) -> float:
    """Return the weight of a reward part from `weights` (part name → weight), 1 if missing. A label
    without a weight has that of the judge; a custom label field, that of the part with its name."""
    usual = weights.get(RULER, 1.0) if name == LABEL else 1.0
    return weights.get(name, weights.get(name.removeprefix(f"{LABEL}/"), usual))


def image_refs(messages: Sequence[ChatMessage]) -> list[list[ImageRef]]:
    """Images of each message, numbered from 1; one that comes again keeps its number."""
    numbers: dict[str, int] = {}
    return [
        [ImageRef(numbers.setdefault(image, len(numbers) + 1), image) for image in message.images]
        for message in messages
    ]


def _turns(branch: Branch, advantage: float | None, trained: bool) -> Iterator[list[Token]]:
    """Tokens of each model call: the sampled ones, and those that closed the reasoning."""
    logprobs = iter(branch.logprobs)
    forced = {place for start, end in branch.forced for place in range(start, end)}
    for start, end in branch.turns:
        pieces = branch.pieces[start:end] if branch.pieces else []
        yield [
            Token(piece, trained=False, place=place, forced=True)
            if place in forced
            else Token(piece, advantage, next(logprobs, None), trained=trained, place=place)
            for place, piece in enumerate(pieces, start)
        ]


def items_of(
    trajectory: Trajectory, shared: bool = False, weights: Weights = EVEN, blind: bool = False
) -> list[Item]:
    """Return the transcript rows of a trajectory: its main conversation, then the others, each
    behind a heading. `weights`: reward part → weight.

    `shared` omits the messages before the first turn; `blind` omits all rewards."""
    items = _conversation_items(trajectory, 0, trajectory.messages, shared, blind)
    for number, one in enumerate(trajectory.conversations[1:], 1):
        items.append(conversation_heading(trajectory, number))
        items += _conversation_items(trajectory, number, one.messages, False, blind)
    if blind:
        return items
    end = outcome(trajectory, weights)
    return [*items, replace(end, facts="") if shared else end]


def conversation_heading(trajectory: Trajectory, number: int) -> Note:
    """Heading of the conversation with this index: "Conversation 2 of 3: title"."""
    one, count = trajectory.conversations[number], len(trajectory.conversations)
    facts = formatting.plural(one.answers, "response")
    started = next(
        (b.times[0][0] for b in trajectory.branches if b.conversation == number and b.times), None
    )
    if started is not None:
        facts = f"{facts}, from {formatting.duration(started)} on"
    if not one.trained:
        facts = f"{facts}, not trained"
    title = f"Conversation {number + 1} of {count}: {one.name}"
    return Note(title, facts, "git-fork", heading=True)


def _conversation_items(
    trajectory: Trajectory, number: int, messages: Sequence[ChatMessage], shared: bool, blind: bool
) -> list[Item]:
    """Rows of the conversation with this index. Its turns follow those of the ones before."""
    branches = [one for one in trajectory.branches if one.conversation == number]
    before = sum(len(_answers(one)) for one in _messages_of(trajectory)[:number])
    known = trajectory.conversations
    trained = not known or known[number].trained
    advantage = trajectory.advantage if trained else None
    sampled = [tokens for branch in branches for tokens in _turns(branch, advantage, trained)]
    turns = _answers(messages)
    aligned = len(sampled) == len(turns)
    worth = [reward for branch in branches for reward in branch.rewards]
    images = image_refs(messages)
    results = {
        message.tool_call_id: (message.content, refs)
        for message, refs in zip(messages, images, strict=True)
        if message.role == "tool"
    }
    items: list[Item] = []
    turn = 0
    starts = _branch_starts(branches) if aligned else {}
    for message, refs in zip(messages, images, strict=True):
        if message.role == "assistant":
            turn += 1
            if turn in starts:
                items.append(starts[turn])
            tokens = sampled[turn - 1] if aligned else []
            last = turn == len(turns)
            row = _turn(message, before + turn, last, tokens, advantage, results)
            own = worth_words(worth[turn - 1]) if len(worth) == len(turns) and not blind else ""
            facts = own if shared else ", ".join(filter(None, (row[0].facts, own)))
            head = replace(row[0], facts=facts, advantage=None if shared else row[0].advantage)
            items += [head, *row[1:]]
        elif message.role != "tool" and not (shared and turn == 0):
            title = _role_title(message.role)
            items.append(Message(message.role, message.content, title, images=refs))
    if not aligned:
        items += [_branch_note(branch) for branch in branches[1:]]
    return items


def _messages_of(trajectory: Trajectory) -> list[Sequence[ChatMessage]]:
    """Messages of each conversation, the main one first."""
    return [trajectory.messages, *(one.messages for one in trajectory.conversations[1:])]


def _answers(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    return [message for message in messages if message.role == "assistant"]


def _branch_starts(branches: Sequence[Branch]) -> dict[int, Note]:
    """Notes of new branches by the turn of the conversation (from 1) that each begins with."""
    found, turn = {}, 1
    for place, branch in enumerate(branches):
        if place and branch.spans:
            found[turn] = _branch_note(branch)
        turn += len(branch.turns)
    return found


def _branch_note(branch: Branch) -> Note:
    return Note("New branch", branch_words(branch), "split")


def branch_words(branch: Branch) -> str:
    """Describe why a token sequence (branch) of a trajectory was started."""
    if branch.choice:
        return f"choice {branch.choice + 1} of one request (n > 1); all choices are trained on"
    return branch.reason or "the prompt does not continue an earlier one"


def worth_words(reward: float) -> str:
    """Describe the reward of a single turn: "reward +0.20"."""
    return f"reward {formatting.signed(reward)}"


def _role_title(role: str) -> str:
    return {"system": "System", "user": "User"}.get(role, role.capitalize())


def _turn(
    message: ChatMessage,
    turn: int,
    last: bool,
    tokens: list[Token],
    advantage: float | None,
    results: Results,
) -> "tuple[Message, *tuple[Item, ...]]":
    answer = last and not message.tool_calls
    title = f"Turn {turn}, response" if answer else f"Turn {turn}"
    facts = f"{len(tokens)} tokens" if tokens else ""
    thoughts, answer_tokens = split_reasoning(tokens, message.reasoning, message.content)
    reasoning = "" if tokens and not thoughts else message.reasoning
    row = Message(
        "assistant", message.content, title, facts, advantage, answer_tokens, reasoning, thoughts
    )
    return (row, *(_call(call, results) for call in message.tool_calls))


def split_reasoning(
    tokens: Sequence[Token], reasoning: str, content: str
) -> tuple[list[Token], list[Token]]:
    """Split the tokens of a response into those of its reasoning, with the marks around it, and the
    rest. The first list is empty if the reasoning is not in their text."""
    text, wanted = "".join(token.text for token in tokens), reasoning.strip()
    start = text.find(wanted) if wanted else -1
    if start < 0:
        return [], list(tokens)
    end = start + len(wanted)
    answer = text.find(content.strip()[:200], end) if content.strip() else -1
    mark = END_MARK.match(text, end)
    cut = answer if answer >= 0 else mark.end() if mark else end
    at = place = 0
    while place < len(tokens) and at + len(tokens[place].text) <= cut:
        at, place = at + len(tokens[place].text), place + 1
    thoughts = list(tokens[:place])
    thoughts[-1:] = [replace(last, text=last.text.rstrip("\n")) for last in thoughts[-1:]]
    return thoughts, list(tokens[place:])


def _call(call: dict[str, Any], results: Results) -> ToolCall:
    name, arguments = call_words(call)
    result, images = results.get(call.get("id"), ("", ()))
    icon = next((icon for word, icon in ICONS.items() if word in name.lower()), "wrench")
    state = "error" if is_error_result(result) else "ok"
    return ToolCall(name, arguments, result, state, icon=icon, images=images)


def call_words(call: dict[str, Any]) -> tuple[str, str]:
    """Return tool name and arguments, in call syntax, of a tool call in the OpenAI format."""
    function = call.get("function") or {}
    return str(function.get("name", "tool")), _arguments(function.get("arguments"))


def _arguments(raw: Any) -> str:
    """Format arguments in call syntax: keywords=["TP 1041"]"""
    try:
        values = json.loads(raw) if isinstance(raw, str) else raw
    except ValueError:
        return str(raw)
    if not isinstance(values, dict):
        return "" if values is None else str(raw)
    return ", ".join(f"{k}={json.dumps(v, ensure_ascii=False)}" for k, v in values.items())


def outcome(trajectory: Trajectory, weights: Weights = EVEN) -> Outcome:
    """Return the last transcript row: how the trajectory ended, duration, turns and reward.
    `weights`: reward part → weight."""
    facts = formatting.plural(trajectory.turns, "turn")
    if trajectory.duration_s:  # imported trajectories have no duration
        facts = f"{formatting.duration(trajectory.duration_s)}, {facts}"
    if trajectory.reward is None:
        why = trajectory.problem.message if trajectory.problem else "no reward was given"
        return Outcome(f"Unscored · {why}", facts, [], formatting.ABSENT)
    title = "Truncated at the token limit" if trajectory.truncated else "Finished with a response"
    return Outcome(
        title, facts, parts_of(trajectory, weights), formatting.number(trajectory.reward)
    )


def outline_of(items: Sequence[Item]) -> list[Heading]:
    """Return a heading for each message, and indented ones for tool calls."""
    headings = []
    for row, item in enumerate(items):
        if isinstance(item, Message):
            icon = {"system": "message-square-text", "user": "user-round"}.get(item.role, "bot")
            fact = item.facts.partition(", ")[0].replace("tokens", "tok")
            headings.append(Heading(item.title, fact, row, icon))
        elif isinstance(item, ToolCall):
            fact = "error" if item.state == "error" else ""
            headings.append(Heading(item.name, fact, row, item.icon, deep=True))
        elif isinstance(item, Note) and item.heading:
            fact = item.facts.rpartition(", ")[2] if "not trained" in item.facts else ""
            headings.append(Heading(item.title.partition(": ")[2], fact, row, item.icon))
    return headings


def turn_at(items: Sequence[Item], row: int) -> int:
    """Return the turn (from 1) of a transcript row: its own, or the next one for a row before a
    response; the last one for the outcome or no row (-1); 0 if there are no turns."""
    rows = turn_rows(items)
    if row < 0 or not rows:
        return len(rows)
    item = items[row]
    following = isinstance(item, Message) and item.role != "assistant"
    passed = sum(place <= row for place in rows)
    return min(len(rows), passed + 1) if following else max(1, passed)


def ranks(group: GroupSummary) -> dict[int, int]:
    """Map trajectory numbers (from 0) to ranks by reward: 1 is best, ties share a rank, unscored
    trajectories are absent."""
    scored = [(reward, i) for i, reward in enumerate(group.rewards) if reward is not None]
    return {i: 1 + sum(other > reward for other, _ in scored) for reward, i in scored}


def largest_advantage(group: GroupSummary) -> float:
    """Return the largest absolute advantage of a group; 0 if none is known."""
    return max((abs(one) for one in group.advantages if one is not None), default=0.0)


def divergence_texts(siblings: Sequence[Trajectory]) -> list[str]:
    """Describe for each trajectory of a group until which turn it is identical to the one that
    shares its longest start; a single empty text for a group of one."""
    if len(siblings) == 1:
        return [""]
    paths = [_path(trajectory) for trajectory in siblings]
    return [_divergence_text(place, paths, siblings) for place in range(len(paths))]


def _path(trajectory: Trajectory) -> list[str]:
    return [
        f"{message.content}{json.dumps([c.get('function') for c in message.tool_calls])}"
        for message in trajectory.messages
        if message.role == "assistant"
    ]


def _common(first: list[str], second: list[str]) -> int:
    """Return the number of common turns at the start of two paths."""
    differ = (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    return next(differ, min(len(first), len(second)))


def _divergence_text(place: int, paths: list[list[str]], siblings: Sequence[Trajectory]) -> str:
    mine = paths[place]
    best, companion = 0, -1
    for other, path in enumerate(paths):
        common = _common(mine, path)
        if other != place and common > best:
            best, companion = common, other
    if companion < 0:
        return "Differs from all others from turn 1 on"
    number = siblings[companion].index + 1
    if best >= len(mine):
        return f"Identical to trajectory {number}"
    return f"Identical to trajectory {number} until turn {best}"


def question_of(trajectory: Trajectory) -> str:
    """Return the last user message before the first turn, as one line."""
    start = list(takewhile(lambda m: m.role != "assistant", trajectory.messages))
    prompts = [m.content for m in start if m.role == "user"] or [m.content for m in start]
    words = prompts[-1][:400].replace(IMAGE, " [image] ") if prompts else ""
    return " ".join(words.split())


def shared_words(trajectory: Trajectory) -> str:
    """Name the messages before the first turn: "system prompt, question"."""
    start = takewhile(lambda m: m.role != "assistant", trajectory.messages)
    names = {"system": "system prompt", "user": "question"}
    return ", ".join(names.get(message.role, message.role) for message in start)


def divergences(siblings: Sequence[Trajectory], place: int) -> list[int]:
    """Return the turns (from 1) at which the trajectory at index `place` diverges from others."""
    paths = [_path(trajectory) for trajectory in siblings]
    mine = paths[place]
    turns = {
        1 + _common(mine, path)
        for other, path in enumerate(paths)
        if other != place and _common(mine, path) < len(mine)
    }
    return sorted(turns)


def turn_rows(items: Sequence[Item]) -> list[int]:
    """Return the indices of the rows with responses of the policy."""
    return [
        row
        for row, item in enumerate(items)
        if isinstance(item, Message) and item.role == "assistant"
    ]


def shared_tokens(siblings: Sequence[Trajectory]) -> int:
    """Return the length in tokens of the prefix shared by all trajectories of a group; 0 if one of
    them has no tokens."""
    starts = [one.branches[0].tokens for one in siblings if one.branches]
    if len(starts) < len(siblings) or not starts:
        return 0
    least, most = min(starts), max(starts)  # the prefix of the extremes is shared by all
    differ = (i for i, (a, b) in enumerate(zip(least, most, strict=False)) if a != b)
    return next(differ, min(len(least), len(most)))


def row_of_passage(trajectory: Trajectory, items: Sequence[Item], quote: str) -> int:
    """Return the transcript row of the turn that contains a quote of the judge, in its text or tool
    arguments; -1 if none does."""
    pattern = pattern_of(quote)
    turn, rows = 0, turn_rows(items)
    if pattern is None:
        return -1
    for message in trajectory.messages:
        turn += message.role == "assistant"
        calls = (
            str((call.get("function") or {}).get("arguments", "")) for call in message.tool_calls
        )
        if any(pattern.search(plain(text)) for text in (message.content, *calls)):
            return rows[turn - 1] if 0 < turn <= len(rows) else 0
    return -1

"""Continuation of recorded tokens by a prompt: the template decides, by what it renders.

A recorded answer is never tokenised again. If the rendering of the whole conversation begins with
the recorded text, the rest of it is the continuation. If it does not only because the template
formats the answer differently (spaces of a tool call's JSON, say), the text behind the answer is
the continuation. If the template leaves out or changes what was sampled, the prompt does not
continue it: a server that renders with this template would show the model other tokens.

Used in the renderer process alone.
"""

import re
import secrets
from typing import Any, NamedTuple

from engine.rollout.rendering.template import Messages, Template


class Recorded(NamedTuple):
    """Recorded tokens that a prompt may continue."""

    text: str
    """Text of all recorded tokens, special ones included."""
    messages: int
    """Number of messages that they hold; the last is the answer."""
    ended: bool
    """Whether the answer ended with a stop token."""
    reasoning: str
    content: str
    """Text of the answer; the template must show it and the reasoning."""
    same_settings: bool
    """Whether they were rendered with the same tools and template variables."""


class Continuation(NamedTuple):
    text: str
    """Text to add to the recorded tokens, or the whole prompt."""
    extends: bool
    reason: str = ""
    """Why the prompt does not continue the recorded tokens."""


class Tokens(NamedTuple):
    """Special tokens of a model, as text."""

    stops: list[str]
    """Tokens that end an answer."""
    special: list[str]


def continue_recorded(
    template: Template,
    messages: Messages,
    tools: Messages,
    variables: dict[str, Any],
    recorded: Recorded | None,
    tokens: Tokens,
    keep_reasoning: bool,
) -> Continuation:
    """Render a prompt, as the continuation of `recorded` where the template allows it. With
    `keep_reasoning`, an answer is also continued if the template leaves out its reasoning. Raises
    what `Template.render` raises."""
    whole = template.render(messages, tools, True, variables).text
    if recorded is None:
        return Continuation(whole, extends=False)
    if whole.startswith(recorded.text):
        return Continuation(whole[len(recorded.text) :], extends=True)
    if (end := _end_without_blanks(whole, recorded.text)) is not None:
        return Continuation(whole[end:], extends=True)
    if not recorded.same_settings:
        reason = "the agent changed its tools or template variables"
        return Continuation(whole, extends=False, reason=reason)
    try:
        rest, reason = _behind_answer(template, messages, tools, variables, recorded, tokens, whole)
        if rest is None and keep_reasoning:
            rest = _behind_mark(template, messages, tools, variables, recorded, tokens)
    except Exception as error:  # noqa: BLE001 - foreign code may raise anything: it is said
        rest, reason = None, f"the chat template cannot render a part of the conversation: {error}"
    if rest is None:
        return Continuation(whole, extends=False, reason=reason)
    return Continuation(rest, extends=True)


def _end_without_blanks(whole: str, recorded: str) -> int | None:
    """Offset in `whole` behind the recorded text, if `whole` begins with it but for blanks."""
    count = len("".join(recorded.split()))
    if not "".join(whole.split()).startswith("".join(recorded.split())):
        return None
    for word in WORDS.finditer(whole):
        if count <= word.end() - word.start():
            end = word.start() + count
            blanks = len(recorded) - len(recorded.rstrip())
            return end + min(blanks, len(whole[end:]) - len(whole[end:].lstrip()))
        count -= word.end() - word.start()
    return None


WORDS = re.compile(r"\S+")


def _behind_answer(
    template: Template,
    messages: Messages,
    tools: Messages,
    variables: dict[str, Any],
    recorded: Recorded,
    tokens: Tokens,
    whole: str,
) -> tuple[str | None, str]:
    """Text behind the recorded answer in the rendering `whole`, or None and the reason why the
    template changes the answer when these messages follow it."""
    count = recorded.messages
    alone = template.render(messages[:count], tools, False, variables).text
    before = template.render(messages[: count - 1], tools, True, variables).text
    end, close = _answer_end(alone, tokens.stops)
    shown = whole[_same(before, alone) :]
    if recorded.reasoning.strip() not in shown:
        return None, "the chat template leaves out the reasoning of earlier answers"
    if recorded.content.strip() not in shown or whole[:end] != alone[:end]:
        return None, "the chat template changes earlier messages when new ones follow"
    rest = whole[end:]
    if close is None:
        follower = next((s for s in tokens.stops if rest.lstrip().startswith(s)), None)
        if not recorded.ended:
            return rest, ""
        if follower is None or not recorded.text.endswith(follower):
            return None, "the chat template does not show the token that ended the answer"
        return rest[rest.index(follower) + len(follower) :], ""
    follower = next((s for s in tokens.special if rest.startswith(s)), None)
    if follower is not None and follower not in tokens.stops:  # gpt-oss: <|end|> for <|return|>
        before_answer = template.render(messages[: count - 1], tools, False, variables).text
        follower = follower if before_answer.rstrip().endswith(follower) else None
    if follower is None:
        return None, "the chat template ends earlier answers differently from the last one"
    return rest[len(follower) :] if recorded.ended else rest, ""


def _behind_mark(
    template: Template,
    messages: Messages,
    tools: Messages,
    variables: dict[str, Any],
    recorded: Recorded,
    tokens: Tokens,
) -> str | None:
    """Text behind the recorded answer, found by rendering a mark in its place; None if the template
    does not show the mark or no stop token behind it."""
    mark, place = f"mark{secrets.token_hex(8)}", recorded.messages - 1
    shown = {k: v for k, v in messages[place].items() if k in ("role", "tool_calls")}
    marked = [*messages[:place], {**shown, "content": mark}, *messages[place + 1 :]]
    _, found, rest = template.render(marked, tools, True, variables).text.rpartition(mark)
    places = [(rest.find(stop), stop) for stop in tokens.stops if stop in rest]
    if not found or not places:
        return None
    start, stop = min(places)
    return rest[start + len(stop) :] if recorded.ended else rest[start:]


def _same(one: str, other: str) -> int:
    """Number of characters with which two texts begin alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


def _answer_end(text: str, stops: list[str]) -> tuple[int, str | None]:
    """Offset in a rendering at which its last answer ends, without the stop tokens that end it, and
    the first of these tokens if there is one."""
    bare, close = text.rstrip(), None
    while stop := next((stop for stop in stops if bare.rstrip().endswith(stop)), None):
        bare, close = bare.rstrip().removesuffix(stop), stop
    return len(bare), close

"""One rollout's exchange with the policy, recorded as token sequences: tokens in, tokens out.

The sampled ids and log-probs are kept exactly as they were sampled. When the agent sends back what
it was given, our assistant messages are put into the template as the raw text they were, so a
prompt that extends the exchange extends the recorded tokens: nothing is re-tokenised, and the
trajectory stays one branch. A prompt that does not extend anything starts a new branch; one that
forks from an earlier turn starts one whose shared tokens are context, not trained again.
"""

import json
import time
from dataclasses import dataclass, field
from typing import Any

from engine.policy.base import SampledToken
from engine.protocol.records import Branch
from engine.rollout.chat import ChatFormat, Completion, text_of

SENTINEL = "\u2402turn{}\u2403"


@dataclass
class Turn:
    """One model call: what was asked and what was sampled."""

    asked: list[str]
    """The request's messages, normalised."""
    returned: str
    """The assistant message we gave back, normalised."""
    raw: str
    """Its text exactly as sampled, without the end token."""
    branch: int
    text: str
    """Text of the branch up to the end of this turn, special tokens included."""
    length: int
    """Tokens of the branch up to the end of this turn."""
    id: str = ""
    """Its name, where completions are handed in one by one."""


@dataclass
class OpenBranch:
    tokens: list[int] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    times: list[tuple[float, float]] = field(default_factory=list)


@dataclass(frozen=True)
class Prompt:
    """Tokens to sample from, and where the result will be recorded."""

    tokens: list[int]
    text: str
    asked: list[str]
    parent: Turn | None
    call: int
    """Which model call of the rollout this is, from 1."""
    asked_s: float = 0.0
    """Seconds from the beginning of the conversation."""


class Conversation:
    """All model calls of one rollout."""

    def __init__(self, chat: ChatFormat) -> None:
        self._chat = chat
        self._branches: list[OpenBranch] = []
        self.turns: list[Turn] = []
        self.messages: list[dict[str, Any]] = []
        """The longest exchange so far, for reading."""
        self.tools: list[dict[str, Any]] = []
        self.truncated = False
        self._begun = time.monotonic()

    def prompt(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], call: int = 1
    ) -> Prompt:
        """Turn a request into tokens that extend what is recorded, where they do."""
        asked, at = [_normal(message) for message in messages], self._seconds()
        shown: list[dict[str, Any]] = []
        raws: list[str] = []
        parent: Turn | None = None
        for place, message in enumerate(messages):
            turn = self._turn(asked[:place], asked[place])
            if turn is None:
                shown.append(message)
                continue
            parent = turn
            shown.append({"role": "assistant", "content": SENTINEL.format(len(raws))})
            raws.append(turn.raw)
        text = self._chat.render(shown, tools)
        for number, raw in enumerate(raws):
            text = text.replace(SENTINEL.format(number), raw, 1)
        if parent and text.startswith(parent.text):
            known = self._branches[parent.branch].tokens[: parent.length]
            tokens = known + self._chat.encode(text[len(parent.text) :])
            return Prompt(tokens, text, asked, parent, call, at)
        return Prompt(self._chat.encode(text), text, asked, None, call, at)

    def record(
        self,
        prompt: Prompt,
        messages: list[dict[str, Any]],
        sampled: list[SampledToken],
        raw: str,
        completion: Completion,
    ) -> dict[str, Any]:
        """Keep what was sampled; returns the assistant message for the agent."""
        number = self._branch_for(prompt)
        branch = self._branches[number]
        start = len(branch.tokens)
        branch.tokens += [token.token for token in sampled]
        branch.logprobs += [token.logprob for token in sampled]
        branch.spans.append((start, len(branch.tokens)))
        branch.times.append((prompt.asked_s, self._seconds()))
        message: dict[str, Any] = {"role": "assistant", "content": completion.content}
        if completion.tool_calls:
            message["tool_calls"] = completion.tool_calls
        ended = self._chat.decode([t.token for t in sampled])
        self.turns.append(
            Turn(
                asked=prompt.asked,
                returned=_normal(message),
                raw=raw,
                branch=number,
                text=prompt.text + ended,
                length=len(branch.tokens),
            )
        )
        if len(messages) >= len(self.messages):
            self.messages = [*messages, message]
        return message

    def branches(self) -> list[Branch]:
        return [
            Branch(
                tokens=branch.tokens,
                spans=branch.spans,
                logprobs=branch.logprobs,
                pieces=self._chat.pieces(branch.tokens),
                times=branch.times,
            )
            for branch in self._branches
            if branch.spans
        ]

    def _seconds(self) -> float:
        return time.monotonic() - self._begun

    def _turn(self, before: list[str], message: str) -> Turn | None:
        return next(
            (t for t in reversed(self.turns) if t.returned == message and t.asked == before), None
        )

    def _branch_for(self, prompt: Prompt) -> int:
        parent = prompt.parent
        if parent and len(self._branches[parent.branch].tokens) == parent.length:
            branch = self._branches[parent.branch]
            branch.tokens += prompt.tokens[parent.length :]
            return parent.branch
        self._branches.append(OpenBranch(tokens=list(prompt.tokens)))
        return len(self._branches) - 1


def _normal(message: dict[str, Any]) -> str:
    """What makes two messages the same, whatever a client library adds to them."""
    calls = [
        (call.get("function", {}).get("name"), _meaning(call.get("function", {}).get("arguments")))
        for call in message.get("tool_calls") or []
    ]
    content = text_of(message.get("content"))
    return json.dumps([message.get("role"), content, calls, message.get("tool_call_id")])


def _meaning(arguments: Any) -> Any:
    """Of a call's arguments: client libraries write the same JSON in other ways."""
    try:
        return json.loads(arguments)
    except (TypeError, ValueError):
        return arguments

"""Recording of the model calls of one rollout with the policy, as token sequences.

Token ids and log-probs are kept exactly as sampled. When the agent sends earlier messages again and
the chat template continues them, the prompt is the recorded tokens and the new ones behind them,
without re-tokenisation, and the trajectory stays one branch. A prompt that continues nothing, or
whose template rewrites what was sampled, starts a new branch, with the reason. A prompt that forks
from an earlier turn starts a branch whose shared tokens are context and are not trained twice.
Tokens that close the reasoning at the thinking budget are context too: they were not sampled.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from engine.policy.base import ImageInput, SampledToken
from engine.protocol.records.conversations import Branch, ImageSpan
from engine.protocol.records.runs import CutBy
from engine.rollout.conversations import Conversations, canonical
from engine.rollout.images import RunImages
from engine.rollout.rendering.chat import ChatFormat, reasoning_of, tool_calls_of
from engine.rollout.rendering.continuation import Recorded
from engine.rollout.rendering.images import ReadImage, images_of
from engine.rollout.rendering.syntaxes import Reply


class Part(NamedTuple):
    """Consecutive sampled tokens of an answer. An answer has one part, or two if its reasoning was
    closed by forced tokens."""

    sampled: list[SampledToken]
    grammar: str | None = None
    """Grammar that they were sampled under."""
    forced: Sequence[int] = ()
    """Token ids before them that close the reasoning."""

    @property
    def tokens(self) -> list[int]:
        """Token ids, with the forced ones."""
        return [*self.forced, *(token.token for token in self.sampled)]


@dataclass
class Turn:
    """Model call: the prompt and the sampled completion."""

    messages: list[str]
    """Messages of the request in canonical form."""
    returned: str
    """Assistant message returned to the agent, in canonical form."""
    reasoning: str
    content: str
    settings: str
    """Tools and template variables of the request, in canonical form."""
    ended: bool
    """Whether the answer ended with a stop token."""
    branch: int
    text: str
    """Text of the branch up to the end of this turn, special tokens included."""
    length: int
    """Tokens of the branch up to the end of this turn."""
    id: str = ""
    """Id of the completion, if completions are submitted separately."""


@dataclass
class OpenBranch:
    tokens: list[int] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    forced: list[tuple[int, int]] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    times: list[tuple[float, float]] = field(default_factory=list)
    choice: int = 0
    reason: str = ""
    """Why it did not continue the branch before."""
    grammars: list[tuple[int, str]] = field(default_factory=list)
    images: list[ImageSpan] = field(default_factory=list)
    conversation: int = 0
    """Index of its conversation in `Conversations`."""

    def append(self, part: Part) -> None:
        """Append a part of an answer."""
        if part.forced:
            self.forced.append((len(self.tokens), len(self.tokens) + len(part.forced)))
        if part.grammar is not None:
            self.grammars.append((len(self.spans), part.grammar))
        start = len(self.tokens) + len(part.forced)
        self.tokens += part.tokens
        self.logprobs += [token.logprob for token in part.sampled]
        self.spans.append((start, len(self.tokens)))

    def record(self, chat: ChatFormat, conversation: int = 0) -> Branch:
        """Return the branch as it is stored, with the text of each token and the index of its
        conversation in the trajectory's record."""
        return Branch(
            tokens=self.tokens,
            spans=self.spans,
            forced=self.forced,
            logprobs=self.logprobs,
            pieces=self._pieces(chat),
            times=self.times,
            choice=self.choice,
            reason=self.reason,
            grammars=self.grammars,
            images=self.images,
            conversation=conversation,
        )

    def _pieces(self, chat: ChatFormat) -> list[str]:
        """Text of each token. A character that is incomplete when forced tokens begin ends there;
        the first placeholder of an image stands for all."""
        cuts = [(start, 0) for start, _ in self.forced]
        cuts += [(image.start + 1, image.count - 1) for image in self.images]
        pieces, at = list[str](), 0
        for end, silent in sorted(cuts):
            pieces += [*chat.pieces(self.tokens[at:end]), *[""] * silent]
            at = end + silent
        return pieces + chat.pieces(self.tokens[at:])


@dataclass(frozen=True)
class Prompt:
    """Tokens to sample from, and where the result will be recorded."""

    tokens: list[int]
    text: str
    messages: list[str]
    settings: str
    """Tools and template variables of the request, in canonical form."""
    parent: Turn | None
    call: int
    """Number of the model call in the rollout, from 1."""
    conversation: int
    """Index of its conversation."""
    tools: list[dict[str, Any]]
    start_s: float = 0.0
    """Seconds from the beginning of the rollout."""
    reason: str = ""
    """Why the prompt does not continue the recorded tokens, if its messages do."""
    images: list[ImageInput] = field(default_factory=list)
    """Images among the tokens, in order."""


class Recording:
    """All model calls of one rollout."""

    def __init__(self, chat: ChatFormat, images: RunImages | None = None) -> None:
        """`images`: those of the messages; None if no message can have any."""
        self._chat, self._images = chat, images
        self._branches: list[OpenBranch] = []
        self.turns: list[Turn] = []
        self.conversations = Conversations()
        self.truncated = False
        self.cut_by: CutBy = ""
        """The limit that cut the last truncated completion."""
        self.malformed_calls = 0
        """Number of tool calls that could not be parsed."""
        self.reasoning_tokens = 0
        self.reasoning_closed = 0
        """Number of answers whose reasoning was closed by the thinking budget."""
        self._start_s = time.monotonic()

    async def prompt(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]],
        most_tokens: int,
        call: int = 1,
        variables: dict[str, Any] | None = None,
    ) -> Prompt:
        """Convert a request into tokens. If its messages extend a recorded conversation and the
        template continues it, the tokens extend the recorded ones. `call` is the number of the
        model call, from 1; `variables` are further values for the template. Raises RolloutError if
        the template refuses the messages, or the prompt exceeds `most_tokens`."""
        known, at = [canonical(message) for message in messages], self._seconds()
        number = self.conversations.find(messages)
        places = reversed(range(len(messages)))
        parent = next((turn for n in places if (turn := self._turn(known, n))), None)
        settings = json.dumps([tools, variables or {}], sort_keys=True)
        recorded = None
        if parent:
            recorded = Recorded(
                text=parent.text,
                messages=len(parent.messages) + 1,
                ended=parent.ended,
                reasoning=parent.reasoning,
                content=parent.content,
                same_settings=parent.settings == settings,
            )
        images = await self._images.read(images_of(messages)) if self._images else []
        found = await self._chat.prompt(messages, tools, most_tokens, recorded, variables)
        if parent and found.extends:
            branch = self._branches[parent.branch]
            before = branch.tokens[: parent.length]
            shown = [span for span in branch.images if span.start < parent.length]
            rest, spans = self._expanded(found.tokens, parent.length, images[len(shown) :])
            text, inputs = parent.text + found.text, _inputs([*shown, *spans], images)
            return Prompt(
                before + rest, text, known, settings, parent, call, number, tools, at, images=inputs
            )
        reason = found.reason
        if parent and parent.reasoning and not reasoning_of(messages[len(parent.messages)]):
            reason = "the agent left out the reasoning of an earlier answer"
        tokens, spans = self._expanded(found.tokens, 0, images)
        inputs = _inputs(spans, images)
        return Prompt(
            tokens, found.text, known, settings, None, call, number, tools, at, reason, inputs
        )

    def _expanded(
        self, tokens: list[int], start: int, images: list[ReadImage]
    ) -> tuple[list[int], list[ImageSpan]]:
        """Prompt tokens with each placeholder repeated, from position `start` of a sequence, and
        the spans of the images."""
        vision = self._chat.vision
        return (tokens, []) if vision is None else vision.expand(tokens, start, images)

    def record(
        self,
        prompt: Prompt,
        messages: list[dict[str, Any]],
        parts: list[Part],
        reply: Reply,
        choice: int = 0,
    ) -> dict[str, Any]:
        """Record a completion of `prompt`: its tokens (`parts`) and their parsed form. `messages`
        are those of the request, `choice` is the index of the completion in its model call. Returns
        the assistant message for the agent."""
        self.malformed_calls += reply.malformed
        self.reasoning_tokens += reply.reasoning_tokens
        self.reasoning_closed += len(parts) > 1
        number = self._branch_for(prompt)
        branch = self._branches[number]
        if not branch.spans:
            branch.choice = choice
        for part in parts:
            branch.append(part)
        branch.times.append((prompt.start_s, self._seconds()))
        tokens = [token for part in parts for token in part.tokens]
        message: dict[str, Any] = {"role": "assistant", "content": reply.content}
        if reply.reasoning:
            message["reasoning_content"] = reply.reasoning
        if reply.calls:
            message["tool_calls"] = tool_calls_of(reply)
        self.turns.append(
            Turn(
                messages=prompt.messages,
                returned=canonical(message),
                reasoning=reply.reasoning or "",
                content=reply.content,
                settings=prompt.settings,
                ended=bool(tokens) and tokens[-1] in self._chat.stops,
                branch=number,
                text=prompt.text + self._chat.decode(tokens),
                length=len(branch.tokens),
            )
        )
        self.conversations.record(prompt.conversation, messages, prompt.tools, message)
        return message

    def branches(self, places: Mapping[int, int] | None = None) -> list[Branch]:
        """Recorded branches. `places`: index of each conversation in the trajectory's record by its
        index here; None if all are one."""
        return [
            branch.record(self._chat, places[branch.conversation] if places else 0)
            for branch in self._branches
            if branch.spans
        ]

    def places(self) -> list[list[int]]:
        """Indices (from 0) of the turns of each branch, which is a recorded token sequence."""
        found: dict[int, list[int]] = {}
        for place, turn in enumerate(self.turns):
            found.setdefault(turn.branch, []).append(place)
        return [found[number] for number in sorted(found)]

    def _seconds(self) -> float:
        return time.monotonic() - self._start_s

    def _turn(self, messages: list[str], place: int) -> Turn | None:
        """Turn whose prompt and response equal the messages up to and including `place`."""
        for turn in reversed(self.turns):
            same = turn.returned == messages[place] and len(turn.messages) == place
            if same and turn.messages == messages[:place]:
                return turn
        return None

    def _branch_for(self, prompt: Prompt) -> int:
        parent = prompt.parent
        if parent and len(self._branches[parent.branch].tokens) == parent.length:
            branch = self._branches[parent.branch]
            branch.tokens += prompt.tokens[parent.length :]
            branch.images = spans_of(prompt.images)
            return parent.branch
        self._branches.append(
            OpenBranch(
                tokens=list(prompt.tokens),
                reason=prompt.reason,
                images=spans_of(prompt.images),
                conversation=prompt.conversation,
            )
        )
        return len(self._branches) - 1


def spans_of(images: list[ImageInput]) -> list[ImageSpan]:
    """Images of a token sequence without the files of their inputs."""
    return [ImageSpan(start=one.start, count=one.count, id=one.id) for one in images]


def _inputs(spans: list[ImageSpan], images: list[ReadImage]) -> list[ImageInput]:
    return [
        ImageInput(start=span.start, count=span.count, id=span.id, file=image.file)
        for span, image in zip(spans, images, strict=True)
    ]

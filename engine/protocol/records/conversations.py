"""Records of messages and of the token sequences that the policy sampled."""

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from engine.protocol.base import Value

IMAGE = "\ufffc"
"""Character that stands for an image in a message's content (Unicode: object replacement)."""


class Message(Value):
    """Chat message in the OpenAI format."""

    role: str
    content: str = ""
    """Text; each image in it is the character `IMAGE`."""
    images: list[str] = Field(default_factory=list)
    """Ids (SHA-256) of the images in the content, in order."""
    reasoning: str = ""
    """Reasoning of the model before its answer."""
    tool_calls: list[dict[str, Any]] = Field(default_factory=list)
    tool_call_id: str | None = None
    name: str | None = None


def in_text(messages: Sequence[Message]) -> list[Message]:
    """Messages with "[image 1]" in the place of each image, numbered from 1; an image that comes
    again keeps its number."""
    numbers: dict[str, int] = {}
    return [_in_text(message, numbers) for message in messages]


def _in_text(message: Message, numbers: dict[str, int]) -> Message:
    if not message.images:
        return message
    first, *rest = message.content.split(IMAGE)
    marks = [f"[image {numbers.setdefault(one, len(numbers) + 1)}]" for one in message.images]
    content = first + "".join(mark + text for mark, text in zip(marks, rest, strict=False))
    return message.model_copy(update={"content": content, "images": []})


class ImageSpan(Value):
    """Placeholder tokens of one image in a token sequence."""

    start: int
    count: int
    id: str
    """SHA-256 of the image file, as hexadecimal digits."""


class AgentConversation(Value):
    """Conversation of an agent with the model: calls with the same beginning. A rollout has several
    if its agent uses sub-agents or makes side calls, such as for a title."""

    name: str
    """Name of its rule in `[agent.conversations.rules]`; else `main`, or `other` if its system
    message or its tools differ from those of the main one."""
    trained: bool = True
    """False if the project's settings ignore it."""
    answers: int
    messages: list[Message] = Field(default_factory=list)
    """Empty for the first, the main one: the trajectory has its messages and tools."""
    tools: list[dict[str, Any]] = Field(default_factory=list)


class Branch(Value):
    """Contiguous token sequence of a trajectory: prompts, completions and tokens between them.

    A turn whose prompt extends the tokens so far stays in the branch; a chat template that rewrites
    history starts the next branch. An answer whose reasoning was closed by `model.thinking_budget`
    has two spans, and forced tokens between them.
    """

    tokens: list[int]
    spans: list[tuple[int, int]]
    """Half-open token ranges sampled by the policy, in order; only these are trained."""
    forced: list[tuple[int, int]] = Field(default_factory=list)
    """Half-open token ranges that closed the reasoning of an answer, each between two of its spans;
    they were not sampled, have no log-probs and are not trained."""
    logprobs: list[float]
    """Natural log-probabilities recorded at sampling, one per sampled token, over all spans."""
    pieces: list[str] = Field(default_factory=list)
    """Text of each token, for display only."""
    images: list[ImageSpan] = Field(default_factory=list)
    """Images among the tokens, in order."""
    conversation: int = 0
    """Index of its conversation among those of the trajectory; 0 is the main one."""
    choice: int = 0
    """Index of this branch's first choice among the choices of one request (`n` above 1), from
    0."""
    reason: str = ""
    """Why the chat template does not continue an earlier branch; empty if the agent did not."""
    times: list[tuple[float, float]] = Field(default_factory=list)
    """Times in seconds from the start of the rollout at which each answer was requested and
    complete; empty if not recorded."""
    rewards: list[float] = Field(default_factory=list)
    """Reward that the agent gave each answer, times the weight of the part `turns`; empty if it
    gave none. The reward of the trajectory already includes them."""
    grammars: list[tuple[int, str]] = Field(default_factory=list)
    """Spans that were sampled under a grammar: index of the span and the grammar, a structural tag
    of xgrammar as JSON. Training needs it to score the tokens as they were sampled."""

    @property
    def sampled(self) -> int:
        return sum(end - start for start, end in self.spans)

    @property
    def turns(self) -> list[tuple[int, int]]:
        """Half-open token range of each answer, in order, with its forced tokens."""
        return [(spans[0][0], spans[-1][1]) for spans in self.spans_of_turns]

    @property
    def spans_of_turns(self) -> list[list[tuple[int, int]]]:
        """Spans of each answer, in order: two if forced tokens closed its reasoning, else one."""
        forced = set(self.forced)
        found: list[list[tuple[int, int]]] = []
        for span in self.spans:
            if found and (found[-1][-1][1], span[0]) in forced:
                found[-1].append(span)
            else:
                found.append([span])
        return found

    @property
    def turn_sizes(self) -> list[int]:
        """Number of sampled tokens of each answer, in order."""
        return [sum(end - start for start, end in spans) for spans in self.spans_of_turns]


class ModelCall(Value):
    """Size and time of one model call, in seconds from the start of the rollout."""

    start_s: float = 0.0
    end_s: float = 0.0
    """0 if unknown."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    conversation: int = 0
    """Index of its conversation among those of the trajectory; 0 is the main one."""

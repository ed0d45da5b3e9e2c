"""Sessions at the gateway: limits and record of one rollout, or of one request of a script.

A provider's model returns no token ids and log-probs, so its rollouts cannot be trained on. A
failed provider call makes the whole rollout unscored, even if the agent handles it.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from engine.policy.base import Policy, SampledToken
from engine.protocol.problems import AtelierError, Problem, RolloutError
from engine.protocol.records.conversations import Branch, ModelCall
from engine.protocol.records.judging import Usage
from engine.protocol.records.runs import CutBy
from engine.rollout.conversations import Conversations
from engine.rollout.gateway.requests import MODEL_NAME, ChatRequest, too_many_turns
from engine.rollout.images import RunImages
from engine.rollout.recording import Recording
from engine.rollout.rendering.chat import ChatFormat, text_of
from engine.runtime.seeds import derive


@dataclass
class Session:
    """Limits, sampling settings and record of one rollout at the gateway."""

    chat: ChatFormat
    policy: Policy
    seed: int
    temperature: float
    free: bool
    """True in validation: temperature and top_p of the agent are used."""
    max_tokens: int
    max_context: int
    max_turns: int
    system: str | None = None
    """System message that replaces the agent's."""
    name: str = MODEL_NAME
    """Model name in responses."""
    tells_logprobs: bool = False
    """Whether responses always carry log-probs."""
    images: RunImages | None = None
    """Images of the messages; None if the run keeps none."""
    recording: Recording = field(init=False)
    calls: int = 0
    capped_calls: int = 0
    """Number of calls for which the agent allowed more tokens than `max_tokens`."""
    failure: AtelierError | None = None
    """First failure caused by the policy, not the agent: the rollout does not count."""

    def __post_init__(self) -> None:
        self.recording = Recording(self.chat, self.images)

    @property
    def reads_images(self) -> bool:
        """Whether its messages may have images."""
        return self.images is not None and self.chat.vision is not None

    def seed_of(self, call: int, index: int) -> int:
        """Sampling seed of choice `index` (from 0) of model call number `call`, derived from the
        rollout's seed."""
        return derive(self.seed, "sample", call, index)


@dataclass(frozen=True)
class Choice:
    """Answer of a model call; a call has `n` of them."""

    index: int
    sampled: list[SampledToken]
    """Sampled tokens, without forced ones; empty for a provider's model."""
    finish: str
    """OpenAI's finish_reason: stop, length or tool_calls."""
    message: dict[str, Any]
    """Assistant message in OpenAI's form."""
    prompt_tokens: int
    """Prompt tokens that this choice adds to the usage of the call."""
    completion_tokens: int
    """Number of tokens of the answer, with forced ones."""
    reasoning_tokens: int = 0
    """Completion tokens that are reasoning."""
    stopped: str | None = None
    """The stop string that ended it."""
    id: str = ""
    """Id of the completion's record, if it has one."""


class SessionFactory(Protocol):
    """Interface behind an API key that many rollouts share: each request gets a session of its
    own."""

    name: str
    max_context: int
    """Token limit of prompt and completion together, per request."""

    @property
    def reads_images(self) -> bool:
        """Whether messages may have images."""
        ...

    async def enter(self, request: ChatRequest) -> Session:
        """Return a new session for one request. Raises RolloutError if the request is refused."""
        ...


class RequestLimits(NamedTuple):
    """Limits per key: requests that are handled at once, and further ones that may wait."""

    active: int
    waiting: int


ROLLOUT_LANE, SCRIPT_LANE = RequestLimits(64, 256), RequestLimits(1024, 8192)
REMOTE_BYTES = 8 * 2**20
"""Size limit of a request to a provider's model, whose context length is unknown."""


IMAGES_BYTES = 64 * 2**20
"""Further bytes of a request to a model that reads images: an agent sends all images of its
conversation with each request."""


def request_bytes(max_context: int, reads_images: bool) -> int:
    """Size limit in bytes that admits every request whose prompt fits into `max_context` tokens: 1
    MiB and 32 bytes a token, and `IMAGES_BYTES` if it may have images. JSON encodes a character in
    up to 12 bytes, and a token of such characters is rarely shorter than two thirds of one."""
    return 2**20 + 32 * max_context + (IMAGES_BYTES if reads_images else 0)


PASSED_ON = (
    "tool_choice", "parallel_tool_calls", "response_format", "temperature", "top_p", "stop", "seed",
    "reasoning_effort",
)  # fmt: skip
"""Fields of a request that a provider receives as the agent sent them."""


NOT_PASSED_ON = ("logprobs", "structured_outputs", "chat_template_kwargs")
"""Fields of a request that only the policy can honour."""


class ProviderAnswer(NamedTuple):
    """Response of a provider."""

    message: dict[str, Any]
    """Assistant message with its tool calls."""
    finish: str
    usage: Usage


class NoProviderAnswer(RolloutError):
    """Error of a provider call without a response; `usd` may have been billed nevertheless."""

    def __init__(self, problem: Problem, usd: float) -> None:
        super().__init__(problem)
        self.usd = usd


class Remote(Protocol):
    """Client of a provider's model."""

    name: str
    max_tokens: int

    async def say(self, attempt: str, call: str, body: dict[str, Any]) -> ProviderAnswer:
        """Send the request `body` to the provider. `attempt` is the trajectory id of the rollout,
        `call` the number of its model call and the choice ("3.0"). The returned usage includes the
        cost of retries. Raises NoProviderAnswer, or ChildDied if the client process died."""
        ...


@dataclass
class ProviderRecording:
    """Record of a rollout with a provider's model: like a `Recording`, but without tokens."""

    conversations: Conversations = field(default_factory=Conversations)
    turns: list[Usage] = field(default_factory=list)
    """Turns, one per model call."""
    calls: list[ModelCall] = field(default_factory=list)
    """Time and size of each model call, in the order in which they ended; `conversation` is its
    index in `conversations`."""
    truncated: bool = False
    cut_by: CutBy = ""
    start_s: float = field(default_factory=time.monotonic)
    """Monotonic time of the beginning, in seconds."""

    def branches(self, places: Mapping[int, int] | None = None) -> list[Branch]:
        """Empty: a provider returns no tokens."""
        return []

    def record_call(self, start_s: float, usage: Usage, conversation: int) -> None:
        """Record the tokens (`usage`) and the time of a model call that was sent at the monotonic
        time `start_s` and ends now."""
        self.calls.append(
            ModelCall(
                start_s=start_s - self.start_s,
                end_s=time.monotonic() - self.start_s,
                prompt_tokens=usage.prompt_tokens,
                completion_tokens=usage.completion_tokens,
                conversation=conversation,
            )
        )


@dataclass
class RemoteSession:
    """Limits and record of a rollout whose model runs at a provider."""

    attempt: str
    """Id of the trajectory."""
    remote: Remote
    max_turns: int
    system: str | None = None
    recording: ProviderRecording = field(default_factory=ProviderRecording)
    calls: int = 0
    trouble: Problem | None = None
    """Problem of the first failed provider call, which makes the rollout unscored."""
    lost_usd: float = 0.0
    """Highest cost in USD of requests without a response."""
    failure: AtelierError | None = None
    """First failure caused by the engine: the rollout does not count."""

    async def answer(self, request: ChatRequest) -> list[ProviderAnswer]:
        """Send a request to the provider's model; returns one response per choice. Raises
        NoProviderAnswer if the provider gives none, which makes the rollout unscored, and
        RolloutError for an invalid request or too many model calls."""
        self.calls += 1
        if self.calls > self.max_turns:
            raise too_many_turns(self.max_turns)
        for message in request.messages:
            text_of(message.get("content"))
        for name in NOT_PASSED_ON:
            if getattr(request, name):
                raise RolloutError.of(
                    "gateway.refused_field",
                    f"{name}: the model of this rollout runs at a provider, which does not take "
                    "the field.",
                    "Leave the field out.",
                    where=name,
                )
        call, body = self.calls, self._request(request)
        try:
            choices = [await self._say(request, body, f"{call}.{n}") for n in range(request.n)]
        except NoProviderAnswer as error:
            self.lost_usd += error.usd
            self.trouble = self.trouble or error.problem
            raise
        return choices

    def _request(self, request: ChatRequest) -> dict[str, Any]:
        """Request to forward, with the parameters that the agent set."""
        limit = request.max_completion_tokens or request.max_tokens or self.remote.max_tokens
        body: dict[str, Any] = {
            "messages": request.messages,
            "max_tokens": min(limit, self.remote.max_tokens),
        }
        values = {name: getattr(request, name) for name in PASSED_ON}
        if request.tools:
            body["tools"] = request.tools
        else:
            del values["tool_choice"], values["parallel_tool_calls"]
        return body | {name: value for name, value in values.items() if value is not None}

    async def _say(self, request: ChatRequest, body: dict[str, Any], call: str) -> ProviderAnswer:
        exchange, start_s = self.recording, time.monotonic()
        answer = await self.remote.say(self.attempt, call, body)
        number = exchange.conversations.find(request.messages)
        exchange.record_call(start_s, answer.usage, number)
        exchange.turns.append(answer.usage)
        exchange.truncated |= answer.finish == "length"
        exchange.conversations.record(number, request.messages, request.tools or [], answer.message)
        return answer

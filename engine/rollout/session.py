"""What one rollout, or one request of a script, may do at the gateway; and the door of many."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from engine.policy.base import Policy, SampledToken
from engine.protocol.problems import AtelierError
from engine.rollout.chat import ChatFormat
from engine.rollout.conversation import Conversation
from engine.rollout.request import MODEL_NAME, ChatRequest
from engine.seeds import derive


@dataclass
class Session:
    """What one rollout may do, and what it has done."""

    chat: ChatFormat
    policy: Policy
    seed: int
    temperature: float
    free: bool
    """True in validation: the agent's own temperature and top_p are honoured."""
    max_tokens: int
    max_context: int
    max_turns: int
    system: str | None = None
    """Takes the place of the agent's system message."""
    name: str = MODEL_NAME
    """What answers call the model."""
    tells_logprobs: bool = False
    """Answers carry log-probs whether asked for or not."""
    conversation: Conversation = field(init=False)
    calls: int = 0
    failure: AtelierError | None = None
    """The first failure that is the policy's, not the agent's: the attempt does not count."""

    def __post_init__(self) -> None:
        self.conversation = Conversation(self.chat)

    def seed_of(self, call: int, index: int) -> int:
        """For one choice of one call."""
        return derive(self.seed, "sample", call, index)


@dataclass(frozen=True)
class Choice:
    index: int
    sampled: list[SampledToken]
    raw: str
    finish: str
    message: dict[str, Any]
    id: str
    """Its record's name, where completions have one."""


class Door(Protocol):
    """One key for many rollouts: each request gets a session of its own."""

    name: str
    max_context: int
    """Tokens of prompt and answer, of every request."""

    async def enter(self, asked: ChatRequest) -> Session:
        """Raises RolloutError where it must not."""
        ...


class Lane(NamedTuple):
    """How many requests under one key are worked on at once, and how many more may wait."""

    active: int
    waiting: int


ROLLOUT_LANE, SCRIPT_LANE = Lane(64, 256), Lane(1024, 8192)
REMOTE_BYTES = 8 * 2**20
"""Of a request to a provider's model, whose context is not known here."""


def request_bytes(max_context: int) -> int:
    """Length of a request whose prompt may fit: JSON writes a character in up to 12 bytes, and a
    token has at least two thirds of one in the languages that need that."""
    return 2**20 + 32 * max_context

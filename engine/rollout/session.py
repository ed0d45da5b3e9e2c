"""What one rollout, or one request of a script, may do at the gateway; and the door of many."""

from dataclasses import dataclass, field
from typing import Any, Protocol

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

    async def enter(self, asked: ChatRequest) -> Session:
        """Raises RolloutError where it must not."""
        ...

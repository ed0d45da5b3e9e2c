"""Sessions at the gateway: limits and record of one rollout, or of one request of a script."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from engine.policy.base import Policy, SampledToken
from engine.protocol.problems import AtelierError
from engine.rollout.conversation import Conversation
from engine.rollout.gateway.requests import MODEL_NAME, ChatRequest
from engine.rollout.rendering.chat import ChatFormat
from engine.runtime.seeds import derive


@dataclass
class Session:
    """Limits, sampling settings and record of one rollout at the gateway."""

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
    """System message that replaces the agent's."""
    name: str = MODEL_NAME
    """Model name in responses."""
    tells_logprobs: bool = False
    """Whether responses always carry log-probs."""
    conversation: Conversation = field(init=False)
    calls: int = 0
    failure: AtelierError | None = None
    """First failure that is the policy's, not the agent's: the rollout does not count."""

    def __post_init__(self) -> None:
        self.conversation = Conversation(self.chat)

    def seed_of(self, call: int, index: int) -> int:
        """Sampling seed of one choice of one call."""
        return derive(self.seed, "sample", call, index)


@dataclass(frozen=True)
class Choice:
    index: int
    sampled: list[SampledToken]
    raw: str
    finish: str
    message: dict[str, Any]
    id: str
    """Id of the completion's record, where it has one."""


class SessionFactory(Protocol):
    """Key for many rollouts: each request gets a session of its own."""

    name: str
    max_context: int
    """Token limit of prompt and completion together, per request."""

    async def enter(self, asked: ChatRequest) -> Session:
        """Session for a request. Raises RolloutError where it is refused."""
        ...


class RequestLimits(NamedTuple):
    """Limits per key: requests that are handled at once, and further ones that may wait."""

    active: int
    waiting: int


ROLLOUT_LANE, SCRIPT_LANE = RequestLimits(64, 256), RequestLimits(1024, 8192)
REMOTE_BYTES = 8 * 2**20
"""Size limit of a request to a provider's model, whose context length is not known here."""


def request_bytes(max_context: int) -> int:
    """Size limit in bytes of a request whose prompt may fit: JSON writes a character in up to 12
    bytes, and a token has at least two thirds of one in the languages that need that."""
    return 2**20 + 32 * max_context

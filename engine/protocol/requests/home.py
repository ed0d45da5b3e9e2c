"""Requests of a remote engine to the local machine: judge calls whose API keys stay local.

A remote engine sends its run and its call. Address, provider, models, budget and timeouts are never
taken from it: the local machine has them from the person who started the run.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from engine.protocol.base import Request, Value
from engine.protocol.identifiers import RunId
from engine.protocol.problems import Problem

MOST_REQUESTS = 1000
"""Maximum number of HomeRequests in one response."""
MOST_TEXT_BYTES = 2**23
"""Maximum size in bytes of one request."""
Key = Annotated[str, StringConstraints(pattern=r"^[0-9a-z:]{1,80}$")]
"""Idempotency key of a call, so that it is not billed twice; sent as a header of the request."""
Text = Annotated[str, StringConstraints(max_length=MOST_TEXT_BYTES)]


class HomeRequest(Value):
    """Call for the local judge process (engine/judge/providers/worker.py)."""

    id: str = Field(pattern=r"^[0-9a-f]{32}$")
    run_id: RunId
    op: str = Field(max_length=40)
    """`price`, `count`, `ask` or `chat`."""
    fields: dict[str, Any]


class HomeRequestList(Value):
    requests: list[HomeRequest] = Field(max_length=MOST_REQUESTS)


class Fields(BaseModel):
    """Fields of one call.

    Fields that the local machine sets itself are accepted and ignored, since an engine with its own
    keys sends them too; a different address is refused.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ModelFields(Fields):
    """Part of an agent's request to a provider's model; unknown fields are dropped."""

    model_config = ConfigDict(extra="ignore")


class Asking(Fields):
    """Fields common to judge and chat calls."""

    key: Key
    model: str
    attempt: int = Field(ge=0, le=100)
    base_url: str | None = None
    provider: str = ""
    timeout_s: float = 0.0


class Words(Fields):
    """Message of a judge call."""

    role: Literal["system", "user", "assistant"]
    content: Text


class AskFields(Asking):
    """Judge call."""

    messages: list[Words] = Field(min_length=1, max_length=1000)
    max_tokens: int = Field(ge=1)
    temperature: float = Field(ge=0, le=2)


class TextPart(Fields):
    """Text part of a message; images and links, which a provider would fetch, are not accepted."""

    type: Literal["text"] = "text"
    text: Text


class CalledFunction(ModelFields):
    name: str = Field(max_length=200)
    arguments: Text


class ToolCall(ModelFields):
    id: str = Field(max_length=200)
    type: Literal["function"] = "function"
    function: CalledFunction


class ChatMessage(ModelFields):
    """Message of an agent to a provider's model."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Text | list[TextPart] | None = None
    name: str | None = Field(default=None, max_length=200)
    tool_call_id: str | None = Field(default=None, max_length=200)
    tool_calls: list[ToolCall] | None = Field(default=None, max_length=1000)


class Function(ModelFields):
    name: str = Field(max_length=200)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(ModelFields):
    """Function tool of the agent; tools that a provider executes itself are not accepted."""

    type: Literal["function"]
    function: Function


class ChosenFunction(Fields):
    name: str = Field(max_length=200)


class ToolChoice(Fields):
    type: Literal["function"]
    function: ChosenFunction


class ChatAsked(Fields):
    """Chat completion request of an agent: all fields that may be passed on."""

    messages: list[ChatMessage] = Field(min_length=1, max_length=10_000)
    max_tokens: int = Field(ge=1)
    tools: list[Tool] | None = Field(default=None, max_length=500)
    tool_choice: Literal["none", "auto", "required"] | ToolChoice | None = None
    temperature: float | None = Field(default=None, ge=0, le=5)
    top_p: float | None = Field(default=None, gt=0, le=1)
    stop: str | list[str] | None = None


class ChatFields(Asking):
    """Chat call of an agent in an evaluation."""

    request: ChatAsked


class PriceFields(Fields):
    model: str


class CountFields(Fields):
    """Token count of messages."""

    model: str
    questions: list[list[Words]] = Field(max_length=1000)


class HomeResponse(Request):
    """Response of the judge process to a request."""

    answer: Any = None
    problem: Problem | None = None
    """Why there is no response."""


class Lease(Request):
    """Lease of a remote engine, held by one local machine at a time."""

    home: str = Field(pattern=r"^[A-Za-z0-9-]{8,64}$")
    """Id of the workspace, created once."""
    name: str = ""
    """Display name of the local machine."""
    take_over: bool = False
    fresh: bool = False
    """True directly after connecting: requests sent before are sent again."""


class Leased(Value):
    seconds: float
    """Seconds until the lease ends unless renewed."""

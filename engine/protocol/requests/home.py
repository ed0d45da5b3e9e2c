"""Requests of an engine to its home machine: questions to judges, where keys stay at home.

An engine on a server names its run and its question. Address, provider, models, budget and timeouts
are never taken from it: the home machine has them from the person who started the run.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from engine.protocol.base import Request, Value
from engine.protocol.identifiers import RunId
from engine.protocol.problems import Problem

MOST_ERRANDS = 1000
"""HomeRequests in one response."""
MOST_TEXT_BYTES = 2**23
"""Size limit of everything in one errand."""
Key = Annotated[str, StringConstraints(pattern=r"^[0-9a-z:]{1,80}$")]
"""Idempotency key of a question, against billing it twice; it becomes a header of the request."""
Text = Annotated[str, StringConstraints(max_length=MOST_TEXT_BYTES)]


class HomeRequest(Value):
    """One call of a judge's process (engine/judge/providers/worker.py), to be made at home."""

    id: str = Field(pattern=r"^[0-9a-f]{32}$")
    run_id: RunId
    op: str = Field(max_length=40)
    """`price`, `count`, `ask` or `chat`."""
    fields: dict[str, Any]


class HomeRequestList(Value):
    errands: list[HomeRequest] = Field(max_length=MOST_ERRANDS)


class Fields(BaseModel):
    """Fields of one call. Fields that home decides are accepted, since an engine that has its keys
    itself sends the same, and ignored, but for the address: another one is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Asking(Fields):
    """Fields of both kinds of questions."""

    key: Key
    model: str
    attempt: int = Field(ge=0, le=100)
    base_url: str | None = None
    provider: str = ""
    timeout_s: float = 0.0


class Words(Fields):
    """Message of a question to a judge."""

    role: Literal["system", "user", "assistant"]
    content: Text


class AskFields(Asking):
    """A question to a judge."""

    messages: list[Words] = Field(min_length=1, max_length=1000)
    max_tokens: int = Field(ge=1)
    temperature: float = Field(ge=0, le=2)


class TextPart(Fields):
    """Text part of a message; pictures and links, which a provider would fetch, are not
    accepted."""

    type: Literal["text"] = "text"
    text: Text


class CalledFunction(Fields):
    model_config = ConfigDict(extra="ignore")

    name: str = Field(max_length=200)
    arguments: Text


class ToolCall(Fields):
    model_config = ConfigDict(extra="ignore")

    id: str = Field(max_length=200)
    type: Literal["function"] = "function"
    function: CalledFunction


class ChatMessage(Fields):
    """Message of an agent to a provider's model; further fields are left out."""

    model_config = ConfigDict(extra="ignore")

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Text | list[TextPart] | None = None
    name: str | None = Field(default=None, max_length=200)
    tool_call_id: str | None = Field(default=None, max_length=200)
    tool_calls: list[ToolCall] | None = Field(default=None, max_length=1000)


class Function(Fields):
    model_config = ConfigDict(extra="ignore")

    name: str = Field(max_length=200)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Fields):
    """Function tool of the agent; tools that a provider runs itself are not accepted."""

    model_config = ConfigDict(extra="ignore")

    type: Literal["function"]
    function: Function


class ChosenFunction(Fields):
    name: str = Field(max_length=200)


class ToolChoice(Fields):
    type: Literal["function"]
    function: ChosenFunction


class ChatAsked(Fields):
    """An agent's request to a provider's model: everything that may be passed on."""

    messages: list[ChatMessage] = Field(min_length=1, max_length=10_000)
    max_tokens: int = Field(ge=1)
    tools: list[Tool] | None = Field(default=None, max_length=500)
    tool_choice: Literal["none", "auto", "required"] | ToolChoice | None = None
    temperature: float | None = Field(default=None, ge=0, le=5)
    top_p: float | None = Field(default=None, gt=0, le=1)
    stop: str | list[str] | None = None


class ChatFields(Asking):
    """A request of an agent in an evaluation."""

    request: ChatAsked


class PriceFields(Fields):
    model: str


class CountFields(Fields):
    """Token counts of questions."""

    model: str
    questions: list[list[Words]] = Field(max_length=1000)


class HomeResponse(Request):
    """Answer to an errand, as the judge's process gave it."""

    answer: Any = None
    problem: Problem | None = None
    """Reason why there is no answer."""


class Lease(Request):
    """Lease of an engine by the home machine it works for, one at a time."""

    home: str = Field(pattern=r"^[A-Za-z0-9-]{8,64}$")
    """Id that a workspace created for itself once."""
    name: str = ""
    """Name that the person gave the home machine."""
    take_over: bool = False
    fresh: bool = False
    """True from a home machine that has just connected: errands it was given before are given to it
    again."""


class Leased(Value):
    seconds: float
    """Seconds after which the lease ends unless it is renewed."""

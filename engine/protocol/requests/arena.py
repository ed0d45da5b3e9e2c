"""Side-by-side chat: questions to several models, streamed answers and votes."""

from typing import Any, Literal

from pydantic import Field, model_validator

from engine.protocol.base import Request, Value
from engine.protocol.records.runs import GroupSummary, Interval, Trajectory

MOST = 4


class AskArena(Request):
    """Send the same message to each model, or run the project's agent on one scenario with each."""

    project: str
    models: list[str] = Field(min_length=1, max_length=MOST)
    """Models as in `StartEvaluation`: `base`, `RUN@STEP`, `openai/gpt-5.4`."""
    chats: list[list[dict[str, Any]]] = Field(default_factory=list)
    """Messages of the chat with each model in the OpenAI format, the new one last; one chat for all
    models if there is only one."""
    tools: list[dict[str, Any]] = Field(default_factory=list)
    """Tools that a chat offers the models, in the OpenAI format; they are not executed."""
    scenario: str = ""
    """Scenario id: the agent runs on it instead of a chat."""
    seed: int = Field(default=0, ge=0, lt=2**31)
    """Sampling seed shared by all models: equal models give equal answers."""
    temperature: float = Field(default=0.7, ge=0, le=5)
    max_tokens: int = Field(default=256, ge=1, le=32_768)

    @model_validator(mode="after")
    def _check_input(self) -> "AskArena":
        if bool(self.chats) == bool(self.scenario):
            raise ValueError("needs either chats or a scenario")
        if self.chats and len(self.chats) not in (1, len(self.models)):
            raise ValueError("needs one chat for all models, or one chat per model")
        return self


class ArenaTicked(Value):
    """Streamed update of an answer. `begun` assigns the places; `said` adds text; `ended` has the
    trajectory; `stored` says where to vote."""

    kind: Literal["begun", "said", "ended", "stored"]
    place: int = 0
    """Index of the model."""
    text: str = ""
    names: list[str] = Field(default_factory=list)
    trajectory: Trajectory | None = None
    run_id: str = ""
    group: GroupSummary | None = None


class Duel(Value):
    """Votes between two models."""

    name: str
    against: str
    wins: int
    ties: int
    losses: int
    share: Interval
    """Share of votes with Wilson's interval (1927); ties count half."""


class Tally(Value):
    run_id: str = ""
    """Id of the arena's run; empty before the first message."""
    votes: int = 0
    pairs: list[Duel] = Field(default_factory=list)

"""What is asked of models side by side, how they answer, and how the votes stand."""

from typing import Any, Literal

from pydantic import Field, model_validator

from engine.protocol.base import Request, Value
from engine.protocol.records.runs import GroupSummary, Interval, Trajectory

MOST = 4


class AskArena(Request):
    """The same question to each model; or the project's agent at one scenario, once with each."""

    project: str
    models: list[str] = Field(min_length=1, max_length=MOST)
    """As in `StartEvaluation`: `base`, `RUN@STEP`, `openai/gpt-5.4`."""
    chats: list[list[dict[str, Any]]] = Field(default_factory=list)
    """What was said so far with each, in the OpenAI form, the new question last; one for all where
    there is only one."""
    scenario: str = ""
    """Id of a scenario: the agent runs, and nothing is said."""
    seed: int = Field(default=0, ge=0, lt=2**31)
    """The same for every model: equal models say the same."""
    temperature: float = Field(default=0.7, ge=0, le=5)
    max_tokens: int = Field(default=256, ge=1, le=32_768)

    @model_validator(mode="after")
    def _something_is_asked(self) -> "AskArena":
        if bool(self.chats) == bool(self.scenario):
            raise ValueError("needs either chats or a scenario")
        if self.chats and len(self.chats) not in (1, len(self.models)):
            raise ValueError("has neither one chat for all models nor one for each")
        return self


class ArenaTold(Value):
    """One line of the answer. `begun` names the places; `said` adds text; `ended` has the attempt;
    `stored` says where a vote can be given."""

    kind: Literal["begun", "said", "ended", "stored"]
    place: int = 0
    """Of the model that is spoken of."""
    text: str = ""
    names: list[str] = Field(default_factory=list)
    trajectory: Trajectory | None = None
    run_id: str = ""
    group: GroupSummary | None = None


class Duel(Value):
    """How often people have preferred one of two models."""

    name: str
    against: str
    wins: int
    ties: int
    losses: int
    share: Interval
    """Of the votes, ties as halves: Wilson's interval (1927)."""


class Tally(Value):
    run_id: str = ""
    """Of the arena's run; empty before the first question."""
    votes: int = 0
    pairs: list[Duel] = Field(default_factory=list)

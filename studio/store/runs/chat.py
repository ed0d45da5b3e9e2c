"""Side-by-side chat with several models: messages, trajectories and votes. Free of I/O."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.protocol.records.conversations import Message
from engine.protocol.records.judging import Verdict
from engine.protocol.records.labels import Label, Word
from engine.protocol.records.runs import GroupSummary, Trajectory
from engine.protocol.requests.arena import ArenaTicked

ENOUGH_VOTES = 10
"""Minimum number of votes before a tally is shown; earlier it would bias the next vote."""


@dataclass(frozen=True)
class TurnPrompt:
    """Prompt of one model call, for a chat: messages and tools in the OpenAI format."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] = field(default_factory=list)
    title: str = ""
    """Where the prompt is from: "turn 2 of Visa letter"."""


def turn_prompt(record: Trajectory, turn: int) -> TurnPrompt:
    """Return what the model was given in a turn (from 1): all messages before its response."""
    places = [n for n, message in enumerate(record.messages) if message.role == "assistant"]
    end = places[turn - 1] if 0 < turn <= len(places) else len(record.messages)
    messages = [_plain(message) for message in record.messages[:end]]
    return TurnPrompt(messages, record.tools, f"turn {turn} of {record.title}")


def _plain(message: Message) -> dict[str, Any]:
    fields = message.model_dump(exclude_defaults=True)
    return {"role": message.role, "content": message.content, **fields}


@dataclass
class Side:
    """Model of the chat: name, messages, streamed response and last trajectory."""

    name: str
    messages: list[dict[str, Any]] = field(default_factory=list)
    text: str = ""
    attempt: Trajectory | None = None
    verdict: Verdict | None = None
    """Judge verdict on the last trajectory."""

    @property
    def shown(self) -> list[Message]:
        """Messages including the response being streamed."""
        messages = [Message.model_validate(one) for one in self.messages]
        return [*messages, Message(role="assistant", content=self.text)] if self.text else messages


@dataclass
class Talk:
    """Side-by-side chat. `order` lists indices into `sides`, left to right on screen."""

    sides: list[Side] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    run_id: str = ""
    group: GroupSummary | None = None
    voted: bool = False
    asking: bool = False
    prompt: TurnPrompt | None = None
    """Prompt with which every chat begins; None for an empty chat."""

    def begin(self, names: Sequence[str], order: Sequence[int]) -> None:
        """Start a new chat with the models `names`; `order`: their indices from left to right."""
        messages = self.prompt.messages if self.prompt else []
        self.sides = [Side(name, list(messages)) for name in names]
        self.order = list(order)
        self.group, self.voted, self.asking = None, False, False

    def ask(self, question: str) -> list[list[dict[str, Any]]]:
        """Add a user message to the chat with each model. Returns the messages to send to each."""
        self.group, self.voted, self.asking = None, False, True
        for side in self.sides:
            side.text, side.attempt, side.verdict = "", None, None
            side.messages = [*side.messages, {"role": "user", "content": question}]
        return [side.messages for side in self.sides]

    @property
    def is_unanswered(self) -> bool:
        """Whether the chats end with a prompt to which no response was requested yet."""
        last = [side.messages[-1]["role"] for side in self.sides if side.messages]
        return bool(last) and not self.asking and "assistant" not in last

    def answer(self) -> list[list[dict[str, Any]]]:
        """Start the responses to a prompt that is already in the chats, without a new user message.
        Returns the messages to send to each model."""
        self.group, self.voted, self.asking = None, False, True
        for side in self.sides:
            side.text, side.attempt, side.verdict = "", None, None
        return [side.messages for side in self.sides]

    def try_scenario(self) -> None:
        """Clear all messages, before the agents run on a scenario."""
        self.group, self.voted, self.asking = None, False, True
        for side in self.sides:
            side.text, side.attempt, side.verdict, side.messages = "", None, None, []

    def take(self, update: ArenaTicked) -> None:
        """Apply an update from the engine: streamed text, a finished trajectory, or the stored
        group, which ends the responses."""
        if update.run_id:
            self.run_id = update.run_id
        if update.kind == "said":
            self.sides[update.place].text += update.text
        elif update.kind == "ended" and update.trajectory is not None:
            side = self.sides[update.place]
            side.attempt, side.text = update.trajectory, ""
            messages = [one.model_dump(exclude_defaults=True) for one in update.trajectory.messages]
            side.messages = messages or side.messages
        elif update.kind == "stored":
            self.group, self.asking = update.group, False

    def hear(self, verdicts: Sequence[Verdict]) -> None:
        """Store for each model the newest of `verdicts` on its last trajectory."""
        latest = {verdict.trajectory_id: verdict for verdict in verdicts}
        for side in self.sides:
            side.verdict = latest.get(side.attempt.id) if side.attempt else None

    @property
    def can_vote(self) -> bool:
        """Whether both models have answered without an error and no vote was given."""
        answered = [side for side in self.sides if side.attempt and _is_complete(side.attempt)]
        return self.group is not None and not self.voted and len(answered) == len(self.sides) == 2

    def vote(self, choice: str, label_id: str) -> Label:
        """Record a vote (`left`, `right` or `tie`, as displayed); return it as a label with this
        id."""
        assert self.group is not None
        left, right = (self.sides[place].attempt for place in self.order)
        assert left is not None
        assert right is not None
        orders: dict[str, tuple[tuple[str, ...], ...]] = {
            "left": ((left.id,), (right.id,)),
            "right": ((right.id,), (left.id,)),
            "tie": ((left.id, right.id),),
        }
        self.voted = True
        return Label(
            id=label_id,
            run_id=self.run_id,
            split=self.group.split,
            step=self.group.step,
            group=self.group.group,
            words=(Word(kind="order", order=orders[choice]),),
            effect="none",
        )


def _is_complete(attempt: Trajectory) -> bool:
    """Return whether a trajectory can be voted on; a missing score is acceptable."""
    return attempt.problem is None or attempt.problem.code.startswith("reward.")

"""What may happen in a run, told by real calls of a RunWriter."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import apsw

from engine.protocol.events.run import LogWritten, StepFinished
from engine.protocol.problems import Problem
from engine.protocol.records.judging import Call, Usage, Verdict
from engine.protocol.records.labels import Label, Word
from engine.protocol.records.runs import Branch, Checkpoint, GroupSummary, Message, Trajectory
from engine.storage.run_db.schema import open_reader
from engine.storage.run_db.writer import RunWriter

WORDS = ("garden", "naïve", "Lisbon", "refund", "tile", "Ørsted", "search_flights", "slow")
TABLES = {
    "events": "seq", "trajectories": "number", "groups": "split, step, grp", "calls": "rowid",
    "verdicts": "trajectory_id, judge, rubric", "labels": "rowid", "checkpoints": "step",
}  # fmt: skip
"""All but `transcripts`, and an order of their rows."""

Place = tuple[str, int, int]


@dataclass
class Story:
    """Knows what a writer was given so far, and makes up the next thing."""

    dice: Random
    attempts: dict[Place, dict[int, Trajectory]] = field(default_factory=dict)
    labels: list[tuple[Label, bool]] = field(default_factory=list)
    open_calls: list[tuple[str, str]] = field(default_factory=list)
    checkpoints: dict[int, Checkpoint] = field(default_factory=dict)
    count: int = 0

    async def go_on(self, writer: RunWriter, times: int) -> None:
        for _ in range(times):
            self.count += 1
            name = self.dice.choice(list(MOVES))
            await MOVES[name](self, writer)

    async def say(self, writer: RunWriter) -> None:
        if self.dice.random() < 0.5:
            await writer.say(LogWritten(level="info", source="t", text=self.words()))
        else:
            await writer.say(StepFinished(step=self.count, metrics={"loss": self.dice.random()}))

    async def add_trajectory(self, writer: RunWriter) -> None:
        """Often one that is there already: it takes its place."""
        split = self.dice.choice(("train", "validation"))
        place = (split, self.dice.randint(1, 3), self.dice.randint(0, 1))
        siblings = self.attempts.setdefault(place, {})
        index = self.dice.randint(0, min(2, len(siblings)))
        siblings[index] = made = self.attempt(place, index)
        await writer.add_trajectory(made)

    async def add_verdicts(self, writer: RunWriter) -> None:
        if not (group := self.group()):
            return await self.add_trajectory(writer)
        rewarded = self.dice.random() < 0.7
        verdicts = [
            Verdict(trajectory_id=one.id, judge=self.dice.choice("ab"), rubric="r", score=0.5)
            for one in group
        ]
        now = [self.judged(one) for one in group] if rewarded else group
        await writer.add_verdicts(verdicts, now, rewarded)

    async def add_group(self, writer: RunWriter) -> None:
        if not (group := self.group()):
            return await self.add_trajectory(writer)
        await writer.add_group(self.scored(group))

    async def add_label(self, writer: RunWriter) -> None:
        if not (group := self.group()):
            return await self.add_trajectory(writer)
        first = group[0]
        before = next((one for one, undone in reversed(self.labels) if undone), None)
        label = Label(
            id=self.fresh(), split=first.split, step=first.step, group=first.group,
            words=(Word(kind="veto", trajectory_id=first.id),),
            redo_of=before.id if before and self.dice.random() < 0.5 else None,
        )  # fmt: skip
        self.labels.append((label, False))
        changed = [self.spoken_of(one) for one in group]
        await writer.add_label(label, self.scored(changed), changed)

    async def undo_label(self, writer: RunWriter) -> None:
        held = [number for number, (_, undone) in enumerate(self.labels) if not undone]
        if not held:
            return await self.add_label(writer)
        label, _ = self.labels[held[-1]]
        self.labels[held[-1]] = (label, True)
        group = self.siblings((label.split, label.step, label.group))
        await writer.undo_label(label, self.scored(group), group)

    async def open_call(self, writer: RunWriter) -> None:
        name = (self.fresh(), self.dice.choice(("k1", "k2", "attempt:x")))
        self.open_calls.append(name)
        await writer.open_call(*name, "judge", 0.1)

    async def close_call(self, writer: RunWriter) -> None:
        if not self.open_calls:
            return await self.open_call(writer)
        call_id, key = self.open_calls.pop(self.dice.randrange(len(self.open_calls)))
        problem = Problem(code="x", message="No answer.") if self.dice.random() < 0.3 else None
        usage = Usage(cost_usd=self.dice.random() / 10)
        call = Call(key=key, judge="judge", rubric="r", messages=[], usage=usage, problem=problem)
        await writer.close_call(call_id, call)

    async def add_checkpoint(self, writer: RunWriter) -> None:
        step = self.dice.randint(1, 4)
        path = f"checkpoints/step-{step:06d}"
        self.checkpoints[step] = Checkpoint(step=step, path=path, bytes=self.count, at=1.0)
        await writer.add_checkpoint(self.checkpoints[step])

    async def drop_checkpoint(self, writer: RunWriter) -> None:
        if not self.checkpoints:
            return await self.add_checkpoint(writer)
        step = self.dice.choice(sorted(self.checkpoints))
        await writer.drop_checkpoint(self.checkpoints.pop(step), "rule")

    # What they are made of

    def fresh(self) -> str:
        return f"{self.dice.getrandbits(64):x}"

    def words(self) -> str:
        return " ".join(self.dice.choices(WORDS, k=3))

    def siblings(self, place: Place) -> list[Trajectory]:
        return [one for _, one in sorted(self.attempts[place].items())]

    def group(self) -> list[Trajectory]:
        places = sorted(self.attempts)
        return self.siblings(self.dice.choice(places)) if places else []

    def attempt(self, place: Place, index: int) -> Trajectory:
        reward = self.dice.choice((None, 0.0, 0.5, 1.0))
        function = {"name": "search_flights", "arguments": '{"to": "Lisbon"}', "n": [1.5, None]}
        message = Message(role="assistant", content=self.words(), tool_calls=[
            {"id": "c", "type": "function", "function": function}
        ] * self.dice.randint(0, 1))  # fmt: skip
        branch = Branch(tokens=[1, 2], spans=[(1, 2)], logprobs=[-0.5], pieces=["a", "b"])
        split, step, group = place
        return Trajectory(
            id=f"{split}-{step}-{group}-{index}", split=split, step=step, group=group, index=index,
            scenario_id=f"s{group}", title=f"Task {self.dice.choice(WORDS)}", reward=reward,
            problem=Problem(code="x", message="Too slow.") if reward is None else None,
            messages=[message], branches=[branch], truncated=self.dice.random() < 0.2,
        )  # fmt: skip

    def judged(self, one: Trajectory) -> Trajectory:
        changed = one.model_copy(update={"reward": self.dice.random(), "problem": None})
        return self.remember(changed)

    def spoken_of(self, one: Trajectory) -> Trajectory:
        problem = Problem(code="label.veto", message="A person vetoed the garden.")
        changed = {"reward": None, "problem": problem, "labels": ("veto",)}
        return self.remember(one.model_copy(update=changed))

    def remember(self, one: Trajectory) -> Trajectory:
        self.attempts[one.split, one.step, one.group][one.index] = one
        return one

    def scored(self, group: list[Trajectory]) -> GroupSummary:
        first = group[0]
        advantages = [self.dice.choice((None, -0.5, 0.5)) for _ in group]
        return GroupSummary(
            split=first.split, step=first.step, group=first.group, scenario_id=first.scenario_id,
            title=first.title, rewards=[one.reward for one in group], advantages=advantages,
            mean=None, std=None, signal=self.dice.random() < 0.5,
        )  # fmt: skip


MOVES: dict[str, Callable[[Story, RunWriter], Awaitable[None]]] = {
    "say": Story.say,
    "add_trajectory": Story.add_trajectory,
    "add_verdicts": Story.add_verdicts,
    "add_group": Story.add_group,
    "add_label": Story.add_label,
    "undo_label": Story.undo_label,
    "open_call": Story.open_call,
    "close_call": Story.close_call,
    "add_checkpoint": Story.add_checkpoint,
    "drop_checkpoint": Story.drop_checkpoint,
}
"""By the method of RunWriter that it calls."""


def contents(file: Path) -> dict[str, list[tuple[object, ...]]]:
    """All rows of all tables in their order, with what each word finds."""
    db = open_reader(file)
    try:
        held = {
            table: [tuple(row) for row in db.execute(f"SELECT * FROM {table} ORDER BY {order}")]
            for table, order in TABLES.items()
        }
        for word in (*WORDS, "vetoed"):
            held[f"found by {word}"] = _found(db, word)
        return held
    finally:
        db.close()


def _found(db: apsw.Connection, word: str) -> list[tuple[object, ...]]:
    sql = "SELECT rowid FROM transcripts WHERE transcripts MATCH ? ORDER BY rowid"
    return [tuple(row) for row in db.execute(sql, (f'"{word}"',))]

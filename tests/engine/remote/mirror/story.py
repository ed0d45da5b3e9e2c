"""Simulation of a run by random calls of a RunWriter."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import apsw

from engine.protocol.events.run import LogWritten, StepFinished
from engine.protocol.problems import Problem
from engine.protocol.records.conversations import Branch, Message
from engine.protocol.records.judging import Call, Usage, Verdict
from engine.protocol.records.labels import Label, Word
from engine.protocol.records.runs import Checkpoint, GroupSummary, Trajectory
from engine.storage.run_db.schema import open_reader
from engine.storage.run_db.writer import RunWriter

WORDS = ("garden", "naïve", "Lisbon", "refund", "tile", "Ørsted", "search_flights", "slow")
TABLES = {
    "events": "seq", "trajectories": "number", "groups": "split, step, grp", "calls": "rowid",
    "verdicts": "trajectory_id, judge, rubric", "labels": "rowid", "checkpoints": "step",
}  # fmt: skip
"""All tables but `transcripts`, with a sort order of their rows."""

Place = tuple[str, int, int]


@dataclass
class RunSimulator:
    """State of a simulated run, and random actions that extend it."""

    rng: Random
    trajectories: dict[Place, dict[int, Trajectory]] = field(default_factory=dict)
    labels: list[tuple[Label, bool]] = field(default_factory=list)
    open_calls: list[tuple[str, str]] = field(default_factory=list)
    checkpoints: dict[int, Checkpoint] = field(default_factory=dict)
    count: int = 0

    async def perform(self, writer: RunWriter, times: int) -> None:
        for _ in range(times):
            self.count += 1
            name = self.rng.choice(list(MOVES))
            await MOVES[name](self, writer)

    async def say(self, writer: RunWriter) -> None:
        if self.rng.random() < 0.5:
            await writer.say(LogWritten(level="info", source="t", text=self.words()))
        else:
            await writer.say(StepFinished(step=self.count, metrics={"loss": self.rng.random()}))

    async def add_trajectory(self, writer: RunWriter) -> None:
        """Add a trajectory, which often replaces a stored one."""
        split = self.rng.choice(("train", "validation"))
        place = (split, self.rng.randint(1, 3), self.rng.randint(0, 1))
        siblings = self.trajectories.setdefault(place, {})
        index = self.rng.randint(0, min(2, len(siblings)))
        siblings[index] = new = self.trajectory(place, index)
        await writer.add_trajectory(new)

    async def add_verdicts(self, writer: RunWriter) -> None:
        if not (group := self.group()):
            return await self.add_trajectory(writer)
        rewarded = self.rng.random() < 0.7
        verdicts = [
            Verdict(trajectory_id=one.id, judge=self.rng.choice("ab"), rubric="r", score=0.5)
            for one in group
        ]
        now = [self.judged(one) for one in group] if rewarded else group
        await writer.add_verdicts(verdicts, now, rewarded)

    async def add_group(self, writer: RunWriter) -> None:
        if not (group := self.group()):
            return await self.add_trajectory(writer)
        await writer.add_group(self.summary(group))

    async def add_label(self, writer: RunWriter) -> None:
        if not (group := self.group()):
            return await self.add_trajectory(writer)
        first = group[0]
        before = next((one for one, undone in reversed(self.labels) if undone), None)
        label = Label(
            id=self.new_id(), split=first.split, step=first.step, group=first.group,
            words=(Word(kind="veto", trajectory_id=first.id),),
            redo_of=before.id if before and self.rng.random() < 0.5 else None,
        )  # fmt: skip
        self.labels.append((label, False))
        changed = [self.vetoed(one) for one in group]
        await writer.add_label(label, self.summary(changed), changed)

    async def undo_label(self, writer: RunWriter) -> None:
        open_labels = [number for number, (_, undone) in enumerate(self.labels) if not undone]
        if not open_labels:
            return await self.add_label(writer)
        label, _ = self.labels[open_labels[-1]]
        self.labels[open_labels[-1]] = (label, True)
        group = self.group_at((label.split, label.step, label.group))
        await writer.undo_label(label, self.summary(group), group)

    async def open_call(self, writer: RunWriter) -> None:
        name = (self.new_id(), self.rng.choice(("k1", "k2", "attempt:x")))
        self.open_calls.append(name)
        await writer.open_call(*name, "judge", 0.1)

    async def close_call(self, writer: RunWriter) -> None:
        if not self.open_calls:
            return await self.open_call(writer)
        call_id, key = self.open_calls.pop(self.rng.randrange(len(self.open_calls)))
        problem = Problem(code="x", message="No answer.") if self.rng.random() < 0.3 else None
        usage = Usage(cost_usd=self.rng.random() / 10)
        call = Call(key=key, judge="judge", rubric="r", messages=[], usage=usage, problem=problem)
        await writer.close_call(call_id, call)

    async def add_checkpoint(self, writer: RunWriter) -> None:
        step = self.rng.randint(1, 4)
        path = f"checkpoints/step-{step:06d}"
        self.checkpoints[step] = Checkpoint(step=step, path=path, bytes=self.count, at=1.0)
        await writer.add_checkpoint(self.checkpoints[step])

    async def drop_checkpoint(self, writer: RunWriter) -> None:
        if not self.checkpoints:
            return await self.add_checkpoint(writer)
        step = self.rng.choice(sorted(self.checkpoints))
        await writer.drop_checkpoint(self.checkpoints.pop(step), "rule")

    # Random content

    def new_id(self) -> str:
        return f"{self.rng.getrandbits(64):x}"

    def words(self) -> str:
        return " ".join(self.rng.choices(WORDS, k=3))

    def group_at(self, place: Place) -> list[Trajectory]:
        return [one for _, one in sorted(self.trajectories[place].items())]

    def group(self) -> list[Trajectory]:
        places = sorted(self.trajectories)
        return self.group_at(self.rng.choice(places)) if places else []

    def trajectory(self, place: Place, index: int) -> Trajectory:
        reward = self.rng.choice((None, 0.0, 0.5, 1.0))
        function = {"name": "search_flights", "arguments": '{"to": "Lisbon"}', "n": [1.5, None]}
        message = Message(role="assistant", content=self.words(), tool_calls=[
            {"id": "c", "type": "function", "function": function}
        ] * self.rng.randint(0, 1))  # fmt: skip
        branch = Branch(tokens=[1, 2], spans=[(1, 2)], logprobs=[-0.5], pieces=["a", "b"])
        split, step, group = place
        return Trajectory(
            id=f"{split}-{step}-{group}-{index}", split=split, step=step, group=group, index=index,
            scenario_id=f"s{group}", title=f"Task {self.rng.choice(WORDS)}", reward=reward,
            problem=Problem(code="x", message="Too slow.") if reward is None else None,
            messages=[message], branches=[branch], truncated=self.rng.random() < 0.2,
        )  # fmt: skip

    def judged(self, one: Trajectory) -> Trajectory:
        changed = one.model_copy(update={"reward": self.rng.random(), "problem": None})
        return self.store(changed)

    def vetoed(self, one: Trajectory) -> Trajectory:
        problem = Problem(code="label.veto", message="A person vetoed the garden.")
        changed = {"reward": None, "problem": problem, "labels": ("veto",)}
        return self.store(one.model_copy(update=changed))

    def store(self, one: Trajectory) -> Trajectory:
        self.trajectories[one.split, one.step, one.group][one.index] = one
        return one

    def summary(self, group: list[Trajectory]) -> GroupSummary:
        first = group[0]
        advantages = [self.rng.choice((None, -0.5, 0.5)) for _ in group]
        return GroupSummary(
            split=first.split, step=first.step, group=first.group, scenario_id=first.scenario_id,
            title=first.title, rewards=[one.reward for one in group], advantages=advantages,
            mean=None, std=None, signal=self.rng.random() < 0.5,
        )  # fmt: skip


MOVES: dict[str, Callable[[RunSimulator, RunWriter], Awaitable[None]]] = {
    "say": RunSimulator.say,
    "add_trajectory": RunSimulator.add_trajectory,
    "add_verdicts": RunSimulator.add_verdicts,
    "add_group": RunSimulator.add_group,
    "add_label": RunSimulator.add_label,
    "undo_label": RunSimulator.undo_label,
    "open_call": RunSimulator.open_call,
    "close_call": RunSimulator.close_call,
    "add_checkpoint": RunSimulator.add_checkpoint,
    "drop_checkpoint": RunSimulator.drop_checkpoint,
}
"""Actions by the name of the RunWriter method they call."""


def contents(file: Path) -> dict[str, list[tuple[object, ...]]]:
    """All rows of all tables in order, and the matches of each search word."""
    db = open_reader(file)
    try:
        rows = {
            table: [tuple(row) for row in db.execute(f"SELECT * FROM {table} ORDER BY {order}")]
            for table, order in TABLES.items()
        }
        for word in (*WORDS, "vetoed"):
            rows[f"found by {word}"] = _matching_rows(db, word)
        return rows
    finally:
        db.close()


def _matching_rows(db: apsw.Connection, word: str) -> list[tuple[object, ...]]:
    sql = "SELECT rowid FROM transcripts WHERE transcripts MATCH ? ORDER BY rowid"
    return [tuple(row) for row in db.execute(sql, (f'"{word}"',))]

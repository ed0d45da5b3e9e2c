"""Folding of condensed history: same state as folding event by event."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol.base import BaseEvent
from engine.protocol.events import run as e
from engine.protocol.events.history import COUNTED, MARK, History
from engine.protocol.events.run import decode, encode
from engine.protocol.problems import Problem
from engine.protocol.records.judging import Usage
from engine.protocol.records.labels import Label, Word
from engine.protocol.records.runs import GroupSummary, TrajectorySummary
from engine.storage.run_db import history
from engine.storage.run_db.history import HistoryReader
from engine.storage.run_db.schema import open_writer
from studio.store.runs.state import RunState, SequenceGap


class EventGenerator:
    """Random events of a run, step by step."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.attempts: list[TrajectorySummary] = []

    def steps(self, count: int) -> Iterator[BaseEvent]:
        for step in range(1, count + 1):
            if self.dice.random() < 0.15:
                step = max(1, step - 2)  # resumed from an older checkpoint
            planned = [e.PlannedGroup(group=0, scenario_id="s", title="t", size=3)]
            yield e.StepStarted(step=step, groups=planned)
            for _ in range(self.dice.randint(0, 25)):
                yield from self.something(step)
            if self.dice.random() < 0.8:
                yield e.StepFinished(step=step, metrics={"loss": self.dice.random()})

    def something(self, step: int) -> Iterator[BaseEvent]:
        attempt_id = self.dice.choice(("", "", "an attempt"))
        match self.dice.randrange(9):
            case 0 | 1 | 2:
                yield e.TrajectoryRecorded(trajectory=self.attempt(step))
            case 3 if self.attempts:
                trajectories = self.dice.choices(self.attempts, k=2)
                now = [self.judged(one) for one in trajectories]
                yield e.GroupJudged(split="train", step=step, group=0, trajectories=now)
            case 4 if self.attempts:
                yield self.labelled(step)
            case 5:
                yield e.CallOpened(key="k", judge="j", most_usd=1.0, attempt=attempt_id)
            case 6:
                problem = self.dice.choice((None, Problem(code="x", message="No answer.")))
                usage = Usage(cost_usd=self.dice.randint(0, 8) / 8)
                yield e.CallClosed(
                    key="k", judge="j", usage=usage, seconds=1, problem=problem, attempt=attempt_id
                )
            case 7:
                yield e.LogWritten(level="info", source="agent", text=str(self.dice.random()))
            case _:
                yield self.dice.choice((
                    e.PhaseChanged(step=step, phase="training"),
                    e.WorkerRestarted(worker="judge", attempt=1,
                                      problem=Problem(code="x", message="It broke.")),
                    e.GroupScored(group=self.group(step)),
                ))  # fmt: skip

    def attempt(self, step: int) -> TrajectorySummary:
        name = self.dice.choice([one.id for one in self.attempts[-3:]] + [f"{step}-{self.fresh()}"])
        made = TrajectorySummary(
            id=name, split="train", step=step, group=0, index=self.dice.randrange(3),
            scenario_id="s", title="t", reward=self.dice.choice((None, 1.0)),
            awaits_judge=self.dice.random() < 0.5,
        )  # fmt: skip
        self.attempts.append(made)
        return made

    def fresh(self) -> int:
        return self.dice.getrandbits(40)

    def judged(self, one: TrajectorySummary) -> TrajectorySummary:
        changed = {
            "reward": self.dice.choice((None, 0.5)),
            "awaits_judge": self.dice.random() < 0.2,
        }
        return one.model_copy(update=changed)

    def labelled(self, step: int) -> e.GroupLabelled:
        one = self.dice.choice(self.attempts).model_copy(update={"labels": ("veto",)})
        words = (Word(kind="veto", trajectory_id=one.id),)
        label = Label(id=str(self.fresh()), step=step, group=0, words=words)
        return e.GroupLabelled(label=label, group=self.group(step), trajectories=[one])

    def group(self, step: int) -> GroupSummary:
        return GroupSummary(split="train", step=step, group=0, scenario_id="s", title="t",
                            rewards=[1.0], mean=None, std=None, signal=True)  # fmt: skip


def write_events(file: Path, past: Iterator[BaseEvent]) -> int:
    db, seq = open_writer(file), 0
    with db:
        for seq, event in enumerate([*past, e.StepStarted(step=99, groups=[])], 1):
            stamped = event.model_copy(update={"run_id": "run", "seq": seq, "at": float(seq)})
            db.execute("INSERT INTO events VALUES (?, ?, ?)", (seq, stamped.kind, encode(stamped)))  # type: ignore[attr-defined]
    db.close()
    return seq


@given(seed=st.integers(0, 2**32), longest=st.integers(10, 200), known=st.integers(0, 40))
def test_condensed_history_folds_to_same_state(seed: int, longest: int, known: int) -> None:
    """Start at the beginning or at any event; the log is truncated in both."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(history, "FAR", 8)
        patch.setattr(history, "LONGEST", longest)
        last = write_events(Path(folder) / "run.db", EventGenerator(seed).steps(14))
        reader = HistoryReader(Path(folder) / "run.db")
        expected, state = RunState("run"), RunState("run")
        expected.fold(decode(line) for line in reader.events(0, 10_000))
        state.fold(decode(line) for line in reader.events(0, known))
        while state.seq < last:
            lines, _ = reader.brief(state.seq)
            state.fold(
                History.model_validate_json(line) if line.startswith(MARK) else decode(line)
                for line in lines
            )
        reader.close()
        assert state == expected


def test_history_condenses_old_events_to_one_line(tmp_path: Path) -> None:
    last = write_events(tmp_path / "run.db", EventGenerator(1).steps(1500))
    assert last > history.FAR
    reader = HistoryReader(tmp_path / "run.db")
    lines, seq = reader.brief(0)
    history_line = History.model_validate_json(lines[0])
    assert (len(lines), history_line.first, history_line.seq) == (1, 1, seq)
    assert not [one for one in history_line.events if one.kind in COUNTED[:-1]]  # type: ignore[union-attr]
    assert reader.brief(last - 100) == (reader.events(last - 100), last)
    assert reader.all(0)[1] == 2000
    with pytest.raises(SequenceGap):
        RunState("run", seq=5).apply(history_line)
    reader.close()

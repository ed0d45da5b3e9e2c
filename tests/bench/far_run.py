"""Run folder with as many events as a long disconnection leaves, with the usual kinds.

Of 1,000,000 events 150,000 are rollouts of four turns with their tokens, in groups of eight that
are judged and scored; 150,000 judge calls are opened and closed, steps have their phases and
metrics, and the rest are log lines.
"""

import random
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.protocol.base import BaseEvent
from engine.protocol.events import run as e
from engine.protocol.events.run import encode
from engine.protocol.records.conversations import Branch, Message
from engine.protocol.records.judging import Call, Usage, Verdict
from engine.protocol.records.runs import GroupSummary, RunSpec, Trajectory
from engine.storage.project import load_config
from engine.storage.run_db.schema import open_writer
from engine.storage.run_db.writer import summary_of
from engine.storage.run_folder.run import DATABASE, write_spec
from engine.storage.samples import create_project
from tests.studio.fakes.made_metrics import drift, lengths

RUN = "01JD5BENCHREPLICA000000000"
WORDS = [f"{a}{b}" for a in ("gar", "inv", "lis", "ref", "til", "sea") for b in range(400)]
GROUPS, SIBLINGS, CALLS, LOGS = 8, 8, 64, 206
POOL = 400


def make_trajectory(dice: random.Random) -> Trajectory:
    """Return a trajectory of four turns, 400 words, 260 tokens: about 14 kB of JSON, 5 kB
    compressed."""
    messages = [Message(role="user", content=" ".join(dice.choices(WORDS, k=40)))]
    branch = Branch(tokens=[], spans=[], logprobs=[], pieces=[])
    for turn in range(4):
        reply = dice.choices(WORDS, k=50)
        function = {"name": "read", "arguments": f'{{"id": {turn}}}'}
        call = {"id": f"c{turn}", "type": "function", "function": function}
        messages.append(Message(role="assistant", content=" ".join(reply), tool_calls=[call]))
        result = " ".join(dice.choices(WORDS, k=40))
        messages.append(Message(role="tool", content=result, tool_call_id=f"c{turn}"))
        start = len(branch.tokens)
        branch.tokens.extend(dice.randrange(50_000) for _ in range(65))
        branch.pieces.extend(f"{word} " for word in dice.choices(WORDS, k=65))
        branch.logprobs.extend(-dice.random() for _ in range(65))
        branch.spans.append((start, len(branch.tokens)))
    reward = round(dice.random(), 3)
    return Trajectory(
        id="", split="train", step=1, group=0, index=0, scenario_id="s", title="A task to do",
        reward=reward, parts={"rules": reward}, turns=4, sampled_tokens=260, duration_s=2.5,
        messages=messages, branches=[branch],
    )  # fmt: skip


class Filler:
    """Writes rows like the writer does, in transactions of a few steps."""

    def __init__(self, file: Path, count: int) -> None:
        dice = random.Random(1)
        self.count = count
        self.dice = dice
        self.db = open_writer(file)
        self.db.execute("PRAGMA synchronous = OFF")
        self.attempts = [make_trajectory(dice) for _ in range(POOL)]
        self.bodies = [zlib.compress(one.model_dump_json().encode(), 1) for one in self.attempts]
        self.summaries = [summary_of(one) for one in self.attempts]
        message = {"role": "user", "content": " ".join(dice.choices(WORDS, k=300))}
        call = Call(key="k", judge="openai/gpt-5.4", rubric="r", messages=[message], reply="0.5")
        self.call = zlib.compress(call.model_dump_json().encode(), 1)
        self.seq = 0
        self.at = time.time() - 86_400

    def fill(self, spec: RunSpec) -> None:
        self.db.execute("BEGIN")
        self.say(e.RunStarted(spec=spec))
        step = 0
        while self.seq < self.count - 400:
            step += 1
            for event in self.step(step):
                self.say(event)
        while self.seq < self.count - 1:
            self.say(e.LogWritten(level="info", source="agent", text="the last lines"))
        self.say(e.RunFinished(step=step, seconds=1.0, checkpoint="last"))
        self.db.execute("COMMIT")
        self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.db.close()

    def say(self, event: BaseEvent) -> None:
        self.seq += 1
        self.at += 0.05
        stamped = event.model_copy(update={"run_id": RUN, "seq": self.seq, "at": self.at})
        row = (self.seq, event.kind, encode(stamped))  # type: ignore[attr-defined]
        self.db.execute("INSERT INTO events VALUES (?, ?, ?)", row)

    def step(self, step: int) -> Iterator[BaseEvent]:
        planned = [
            e.PlannedGroup(group=g, scenario_id="s", title="A task to do", size=SIBLINGS)
            for g in range(GROUPS)
        ]
        yield e.StepStarted(step=step, groups=planned)
        yield e.PhaseChanged(step=step, phase="rolling_out")
        for group in range(GROUPS):
            yield from self.group(step, group)
        for number in range(LOGS):
            text = f"{number}: the agent has read {step} letters and goes on with the next"
            yield e.LogWritten(level="info", source="agent", text=text)
        for phase in ("training", "publishing"):
            yield e.PhaseChanged(step=step, phase=phase)
        yield e.BatchClosed(step=step)
        yield e.StepFinished(step=step, metrics=self.metrics(step))

    def metrics(self, step: int) -> dict[str, float]:
        reward = {"reward/mean": self.dice.random(), "reward/part/rules": self.dice.random()}
        times = {f"time_s/{name}": self.dice.random() for name in ("step", "training", "judging")}
        return {**reward, **times, **lengths(step), **drift(self.dice), "loss": self.dice.random()}

    def group(self, step: int, group: int) -> Iterator[BaseEvent]:
        rows = []
        for index in range(SIBLINGS):
            chosen = self.dice.randrange(POOL)
            name = f"01JD5{step:07d}{group}{index}"
            place = {"id": name, "step": step, "group": group, "index": index}
            row = self.summaries[chosen].model_copy(update=place)
            rows.append(row)
            yield e.TrajectoryRecorded(trajectory=row)
            values = (name, "train", step, group, index, "s", row.title, row.reward, 0.1, 4, 260)
            self.db.execute(
                "INSERT INTO trajectories(id, split, step, grp, idx, scenario_id, title, reward, "
                "advantage, turns, tokens, truncated, labelled, marked, duration, summary, body) "
                f"VALUES ({', '.join('?' * 11)}, 0, 0, 0, 2.5, ?, ?)",
                (*values, row.model_dump_json(), self.bodies[chosen]),
            )
            verdict = Verdict(
                trajectory_id=name, judge="openai/gpt-5.4", rubric="r", score=0.5,
                reason="It does what was asked, and says so in plain words.",
            )  # fmt: skip
            verdict_row = (name, verdict.judge, "r", self.at, verdict.model_dump_json())
            self.db.execute("INSERT INTO verdicts VALUES (?, ?, ?, ?, ?)", verdict_row)
        for number in range(CALLS // GROUPS):
            key = f"{step:07d}{group}{number:056d}"
            yield e.CallOpened(key=key, judge="openai/gpt-5.4", most_usd=0.01)
            usage = Usage(prompt_tokens=900, completion_tokens=40, cost_usd=0.002)
            yield e.CallClosed(key=key, judge="openai/gpt-5.4", usage=usage, seconds=1.2)
            row_of_call = (key, key, "openai/gpt-5.4", 1, 0.002, self.call)
            self.db.execute("INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?)", row_of_call)
        yield e.GroupJudged(split="train", step=step, group=group, trajectories=rows)
        rewards = [row.reward for row in rows]
        summary = GroupSummary(
            split="train", step=step, group=group, scenario_id="s", title="A task to do",
            rewards=rewards, advantages=[0.1] * SIBLINGS, mean=0.5, std=0.2, signal=True,
        )  # fmt: skip
        values = ("train", step, group, 1, summary.model_dump_json())
        self.db.execute("INSERT INTO groups VALUES (?, ?, ?, ?, ?)", values)
        yield e.GroupScored(group=summary)


def make_far_run(workspace: Path, count: int) -> Path:
    """Write a project with such a run and return its folder.

    Search entries are left out, because nothing reads them.
    """
    create_project(workspace / "bench", "hello")
    folder = workspace / "bench" / "runs" / RUN
    folder.mkdir(parents=True)
    config: Any = load_config(workspace / "bench")
    spec = RunSpec(id=RUN, name="far-run", project="bench", started_at=time.time(),
                   config=config, model_path="/none")  # fmt: skip
    write_spec(folder, spec)
    Filler(folder / DATABASE, count).fill(spec)
    return folder

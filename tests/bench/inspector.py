"""Time to open trajectories and to apply labels in the studio.

`python -m tests.bench.inspector [COUNT]`

A real engine over a store of 100,000 trajectories (filled like in tests.bench.store), and an
offscreen studio. Prints medians in milliseconds, from the key to the painted window, with their
limits. Labels go through the engine's routes.
"""

import asyncio
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ.setdefault("QT_API", "pyside6")

import qasync
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from engine.protocol.events.run import (
    GroupScored,
    RunFinished,
    RunStarted,
    TrajectoryRecorded,
    encode,
)
from engine.protocol.records.conversations import Branch, Message
from engine.protocol.records.runs import GroupSummary, RunSpec, Trajectory
from engine.storage.project import load_config
from engine.storage.run_db.schema import open_writer
from engine.storage.run_db.writer import group_rows, summary_of, trajectory_rows
from engine.storage.run_folder.run import write_spec
from engine.storage.samples import create_project
from studio.app import Studio
from studio.pages.trajectories.page import COLUMNS, COMPARE, READER, TrajectoriesPage
from tests.bench.store import fill_store

RUN, STEP, REPEATS, TURNS = "01JD5BENCHINSPECTOR0000000", 5000, 9, 12
PROMISED = {"open a group of 8": 150, "next group": 80, "next attempt, reader": 80,
            "open 5 MB with a line of 2 MB": 500}  # fmt: skip
WORDS = ["the", "first", "result", "is", "an", "itinerary", "so", "I", "look", "again"]


def make_trajectory(group: int, index: int, heavy: bool = False) -> Trajectory:
    """Return a trajectory of twelve turns with calls, results and tokens.

    A heavy one has 5 MB, 2 MB of it in one line.
    """
    dice = random.Random(f"{group} {index}")
    messages = [Message(role="system", content="You answer."), Message(role="user", content="Who?")]
    branch = Branch(tokens=[1, 2, 3], spans=[], logprobs=[], pieces=["a ", "b ", "c "])
    for turn in range(TURNS):
        reply = " ".join(dice.choices(WORDS, k=60))
        function = {"name": "read_email", "arguments": f'{{"id": {dice.randint(0, 9)}}}'}
        call = {"id": f"c{turn}", "type": "function", "function": function}
        messages.append(Message(role="assistant", content=reply, tool_calls=[call]))
        result = "\n".join(" ".join(dice.choices(WORDS, k=12)) for _ in range(30))
        if heavy:
            result = "x" * 2_000_000 if turn == 3 else "a line of a log\n" * 16_000
        messages.append(Message(role="tool", content=result, tool_call_id=f"c{turn}"))
        pieces = [f"{word} " for word in reply.split()]
        start = len(branch.tokens)
        branch.pieces.extend(pieces)
        branch.tokens.extend(range(len(pieces)))
        branch.logprobs.extend(-dice.random() for _ in pieces)
        branch.spans.append((start, len(branch.tokens)))
    reward = round(dice.random(), 3)
    return Trajectory(
        id=f"bench-{group:02}-{index}", split="train", step=STEP, group=group, index=index,
        scenario_id=f"s{group}", title=f"Bench {group}", reward=reward, parts={"rules": reward},
        advantage=reward - 0.5, turns=TURNS, sampled_tokens=branch.sampled, messages=messages,
        branches=[branch],
    )  # fmt: skip


def make_run(workspace: Path, count: int) -> Path:
    """Write a project with one finished run of `count` trajectories."""
    create_project(workspace / "bench", "hello")
    folder = workspace / "bench" / "runs" / RUN
    folder.mkdir(parents=True)
    config = load_config(workspace / "bench")
    spec = RunSpec(id=RUN, name="bench-run", project="bench", started_at=time.time(),
                   config=config, model_path="/none")  # fmt: skip
    write_spec(folder, spec)
    fill_store(folder / "run.db", count)
    db = open_writer(folder / "run.db")
    events: list[Any] = [RunStarted(spec=spec)]
    with db:
        for group in range(REPEATS * 3):
            siblings = [make_trajectory(group, i, heavy=group == 0 and i == 2) for i in range(8)]
            rewards = [one.reward or 0.0 for one in siblings]
            summary = GroupSummary(
                split="train", step=STEP, group=group, scenario_id=f"s{group}",
                title=f"Bench {group}", rewards=rewards, advantages=[r - 0.5 for r in rewards],
                mean=0.5, std=0.2, signal=True,
            )  # fmt: skip
            for one in siblings:
                row = summary_of(one)
                for sql, values in trajectory_rows(one, row):
                    db.execute(sql, values)
                events.append(TrajectoryRecorded(trajectory=row))
            for sql, values in group_rows(summary):
                db.execute(sql, values)
            events.append(GroupScored(group=summary))
        events.append(RunFinished(step=STEP, seconds=1.0, checkpoint="last"))
        for number, event in enumerate(events, count + 1):
            stamped = event.model_copy(update={"run_id": RUN, "seq": number, "at": time.time()})
            db.execute("INSERT INTO events VALUES (?, ?, ?)", (number, event.kind, encode(stamped)))
    db.close()
    return workspace / "bench"


async def until(check: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not check():
        if time.monotonic() > end:
            raise TimeoutError("timeout")
        await asyncio.sleep(0.001)


class Inspector:
    """The page being measured."""

    def __init__(self, studio: Studio) -> None:
        self.studio = studio
        page: Any = studio.pages["trajectories"]
        self.page: TrajectoriesPage = page
        self.result: dict[str, float] = {}

    async def measure(
        self, name: str, work: Callable[[int], Awaitable[None]], repeats: int = REPEATS
    ) -> None:
        times = []
        for number in range(repeats):
            started_at = time.perf_counter()
            await work(number)
            self.studio.window.repaint()
            times.append((time.perf_counter() - started_at) * 1000)
            await asyncio.sleep(0.02)
        self.result[name] = statistics.median(times)

    async def shown(self, group: int) -> None:
        page: Any = self.page
        await until(lambda: page._siblings and page._siblings.group.group == group)
        await until(lambda: page._siblings.group.step == STEP)

    async def open(self, group: int) -> None:
        self.page._fetch("train", STEP, group)
        await self.shown(group)

    async def next_group(self, number: int) -> None:
        before: Any = self.page._siblings
        self.page._panel.move(1)
        await until(lambda: self.page._siblings is not before)

    async def next_attempt(self, number: int) -> None:
        self.page._columns.move_focus(1 if number % 8 < 7 else -7)

    async def heavy(self, number: int) -> None:
        self.page._fetch("train", STEP, 0)
        await self.shown(0)
        self.page._columns.focus_index(2)
        self.page.set_mode(READER)

    async def preview(self, number: int) -> None:
        labelling = self.page._labels.labelling
        QTest.keyClick(self.page, Qt.Key(Qt.Key.Key_1 + number % 8))
        await until(lambda: labelling.preview)

    async def commit(self, number: int) -> None:
        labelling, page = self.page._labels.labelling, self.page
        labelling.best(labelling.attempts[number % 8].id)
        labelling.apply()
        await until(lambda: not labelling.draft and not page.tasks.busy("label"))
        await until(lambda: not page.tasks.busy("siblings"))

    async def undo(self, number: int) -> None:
        self.page._labels.labelling.undo()
        await until(lambda: not self.page.tasks.busy("label"))
        await until(lambda: not self.page.tasks.busy("siblings"))

    async def leave_heavy(self, number: int) -> None:
        self.page.set_mode(COLUMNS)
        await self.open(1)

    async def compare(self, number: int) -> None:
        self.page.set_mode(COMPARE)


async def work(app: QApplication, workspace: Path) -> dict[str, float]:
    studio = Studio(app, str(workspace), workspace / "studio.toml")
    studio.window.resize(1440, 900)
    started_at = time.perf_counter()
    studio.start(str(workspace / "bench"))
    try:
        await until(lambda: studio.session.connected, 120)
        studio.session.open_project(str(workspace / "bench"), "trajectories")
        await until(lambda: studio.session.project.view is not None)
        studio.session.select_run(RUN)
        await until(lambda: studio.session.run.state.status == "finished", 300)
        print(f"replayed in {time.perf_counter() - started_at:.0f} s")
        studio.window.show_page("trajectories")
        bench = Inspector(studio)
        await until(lambda: bench.page._siblings is not None)
        studio.window.activateWindow()
        await bench.open(1)
        await bench.measure("open a group of 8", lambda n: bench.open(n + 1))
        await bench.measure("next group", bench.next_group)
        bench.page.set_mode(READER)
        await bench.measure("next attempt, reader", bench.next_attempt)
        bench.page.set_mode(COLUMNS)
        await bench.open(2)
        await bench.measure("next attempt, columns", bench.next_attempt)
        bench.page._labels.labelling.discard()
        await bench.measure("preview of a label", bench.preview)
        bench.page._labels.labelling.discard()
        await bench.measure("commit a label", bench.commit)
        await bench.measure("undo a label", bench.undo)
        times = []
        for number in range(5):
            await bench.leave_heavy(number)
            await asyncio.sleep(0.05)
            await bench.measure("heavy", bench.heavy, 1)
            times.append(bench.result.pop("heavy"))
        bench.result["open 5 MB with a line of 2 MB"] = statistics.median(times)
        await bench.measure("compare it", bench.compare, 1)
        await bench.leave_heavy(0)
        return bench.result
    finally:
        studio.window.close()
        for page in studio.pages.values():
            await page.close_tasks()
        await studio.link.shut_down()
        await studio.close()


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as folder:
        for name in ("HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_DATA_HOME"):
            os.environ[name] = folder
        Path(folder).chmod(0o700)
        workspace = Path(folder) / "workspace"
        workspace.mkdir()
        make_run(workspace, count)
        app = QApplication(sys.argv[:1])
        app.setQuitOnLastWindowClosed(False)
        loop = qasync.QEventLoop(app)
        asyncio.set_event_loop(loop)
        with loop:
            result = loop.run_until_complete(work(app, workspace))
        for name, milliseconds in result.items():
            limit = f"   of {PROMISED[name]}" if name in PROMISED else ""
            print(f"{name:32} {milliseconds:8.1f} ms{limit}")


if __name__ == "__main__":
    main()

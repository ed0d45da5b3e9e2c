"""run.db: acknowledged writes are committed, ordered and searchable; newer files are refused."""

import asyncio
from pathlib import Path

import apsw
import pytest

from engine.protocol.events.run import LogWritten, TrajectoryRecorded, decode
from engine.protocol.problems import Problem, StoreError
from engine.protocol.records.conversations import Message
from engine.protocol.records.runs import GroupSummary, Trajectory
from engine.protocol.requests.runs import TrajectoryQuery
from engine.storage.run_db.filters import search_phrase
from engine.storage.run_db.reader import RunReader
from engine.storage.run_db.schema import VERSION, open_writer
from engine.storage.run_db.writer import RunWriter


def trajectory(number: int, reward: float | None = 0.5, words: str = "") -> Trajectory:
    return Trajectory(
        id=f"t{number:06d}",
        split="train",
        step=1 + number // 64,
        group=number % 64 // 8,
        index=number % 8,
        scenario_id=f"s{number % 40}",
        title=f"Scenario {number % 40}",
        reward=reward,
        problem=None if reward is not None else Problem(code="agent.timeout", message="Too slow."),
        parts={} if reward is None else {"rules": reward},
        turns=1 + number % 5,
        sampled_tokens=number % 97,
        messages=[Message(role="user", content=words or f"question {number}")],
    )


def write(file: Path, *trajectories: Trajectory) -> None:
    async def work() -> None:
        writer = RunWriter(file, "run")
        await asyncio.gather(*(writer.add_trajectory(t) for t in trajectories))
        writer.close()

    asyncio.run(work())


async def fill(writer: RunWriter) -> None:
    for _ in range(40):
        await writer.say(LogWritten(level="info", source="t", text="x" * 100_000))


def test_sequence_has_no_gaps_and_rows_come_with_their_event(tmp_path: Path) -> None:
    write(tmp_path / "run.db", *(trajectory(n) for n in range(200)))
    reader = RunReader(tmp_path / "run.db")
    events = [decode(line) for line in reader.events(0, 1000)]
    assert [event.seq for event in events] == list(range(1, 201))
    assert all(isinstance(event, TrajectoryRecorded) for event in events)
    assert reader.trajectories(TrajectoryQuery(limit=1)).total == 200
    reader.close()


def test_storing_a_trajectory_again_replaces_it(tmp_path: Path) -> None:
    write(tmp_path / "run.db", trajectory(1, 0.1, "apple"), trajectory(1, 0.9, "pear"))
    reader = RunReader(tmp_path / "run.db")
    (row,) = reader.trajectories(TrajectoryQuery()).items
    assert row.reward == 0.9
    assert reader.trajectories(TrajectoryQuery(filter="apple")).total == 0
    assert reader.trajectories(TrajectoryQuery(filter="pear")).total == 1
    reader.close()


def test_trajectories_can_be_filtered_sorted_and_searched(tmp_path: Path) -> None:
    rows = [trajectory(n, None if n % 10 == 0 else n / 100) for n in range(100)]
    write(tmp_path / "run.db", *rows, trajectory(500, 2.0, "Dana's Lisbon flight, naïve"))
    reader = RunReader(tmp_path / "run.db")

    def page(**query: object) -> list[str]:
        page_ = reader.trajectories(TrajectoryQuery(**query))  # type: ignore[arg-type]
        return [item.id for item in page_.items]

    assert page(sort="reward", limit=2) == ["t000500", "t000099"]
    lowest = page(sort="reward", descending=False, limit=1)
    assert lowest == ["t000001"]  # unscored rows come last in both directions
    assert len(page(state="unscored")) == 10
    assert page(filter="lisb") == ["t000500"]
    assert page(filter="naive flight") == ["t000500"]
    assert page(filter='"\\"; DROP TABLE"') == []
    assert len(page(step=1, step_to=2)) == 100
    assert page(step=1, group=0, sort="title", limit=3)[0] == "t000007"
    reader.close()


def test_reasoning_is_searched_with_the_answer(tmp_path: Path) -> None:
    thinking = Message(role="assistant", content="Lisbon", reasoning="The ferry is slower.")
    row = trajectory(1, 0.5)
    write(tmp_path / "run.db", row.model_copy(update={"messages": [*row.messages, thinking]}))
    reader = RunReader(tmp_path / "run.db")
    for text, total in (("ferry", 1), ("answer:ferry", 1), ("prompt:ferry", 0)):
        assert reader.trajectories(TrajectoryQuery(filter=text)).total == total
    reader.close()


def test_group_advantages_are_copied_to_its_trajectories(tmp_path: Path) -> None:
    async def work() -> None:
        writer = RunWriter(tmp_path / "run.db", "run")
        for n in range(2):
            await writer.add_trajectory(trajectory(n, float(n)))
        group = GroupSummary(
            split="train", step=1, group=0, scenario_id="s0", title="t", rewards=[0.0, 1.0],
            advantages=[-0.5, 0.5], mean=0.5, std=0.5, signal=True,
        )  # fmt: skip
        await writer.add_group(group)
        writer.close()

    asyncio.run(work())
    reader = RunReader(tmp_path / "run.db")
    siblings = reader.siblings("train", 1, 0)
    assert [t.advantage for t in siblings.trajectories] == [-0.5, 0.5]
    assert reader.trajectories(TrajectoryQuery(sort="advantage")).items[0].advantage == 0.5
    assert reader.groups(TrajectoryQuery(filter="question")).total == 1
    assert reader.trajectories(TrajectoryQuery(signal=True)).total == 2
    assert reader.trajectories(TrajectoryQuery(signal=False)).total == 0
    reader.close()


def test_newer_database_version_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "run.db"
    db = open_writer(file)
    db.execute(f"PRAGMA user_version = {VERSION + 1}")
    db.close()
    with pytest.raises(StoreError, match="newer version"):
        RunReader(file)


def test_full_disk_fails_the_write_and_keeps_earlier_data(tmp_path: Path) -> None:
    async def work() -> RunWriter:
        writer = RunWriter(tmp_path / "run.db", "run")
        await writer.say(LogWritten(level="info", source="t", text="kept"))
        writer._db.execute("PRAGMA max_page_count = 1")
        with pytest.raises(StoreError) as raised:
            await fill(writer)
        assert raised.value.problem.code == "store.disk_full"
        writer._db.execute("PRAGMA max_page_count = 1000000")
        await writer.say(LogWritten(level="info", source="t", text="goes on"))
        writer.close()
        return writer

    asyncio.run(work())
    reader = RunReader(tmp_path / "run.db")
    texts = [e.text for e in reader.events_of("log.written") if isinstance(e, LogWritten)]
    assert texts[0] == "kept"
    assert texts[-1] == "goes on"
    assert [decode(line).seq for line in reader.events()] == list(range(1, len(texts) + 1))
    reader.close()


def test_every_commit_of_the_writer_syncs(tmp_path: Path) -> None:
    syncs = []
    usual = apsw.vfs_names()[0]

    class File(apsw.VFSFile):
        def xSync(self, flags: int) -> None:
            syncs.append(flags)
            super().xSync(flags)

    class Counting(apsw.VFS):
        def __init__(self) -> None:
            super().__init__("counting", usual)

        def xOpen(self, name: object, flags: list[int]) -> apsw.VFSFile:
            return File(usual, name, flags)  # type: ignore[arg-type]

    async def work() -> None:
        writer = RunWriter(tmp_path / "run.db", "run")
        for _ in range(5):
            before = len(syncs)
            await writer.say(LogWritten(level="info", source="t", text="x"))
            assert len(syncs) > before
        writer.close()

    vfs = Counting()
    apsw.set_default_vfs("counting")
    try:
        asyncio.run(work())
    finally:
        apsw.set_default_vfs(usual)
    del vfs


def test_search_phrase_quotes_operators() -> None:
    assert search_phrase("a.b* OR") == '"a" "b" "OR"*'
    assert search_phrase("---") == '""'


def test_queued_writes_share_commits(tmp_path: Path) -> None:
    commits: list[None] = []

    async def work() -> None:
        writer = RunWriter(tmp_path / "run.db", "run", lambda: commits.append(None))
        await asyncio.gather(*(writer.add_trajectory(trajectory(n)) for n in range(2000)))
        writer.close()
        assert writer.seq == 2000

    asyncio.run(work())
    assert 4 <= len(commits) < 400, "at most 500 writes a commit, and not one commit a write"


def test_unwritable_event_fails_alone(tmp_path: Path) -> None:
    async def work() -> list[object]:
        writer = RunWriter(tmp_path / "run.db", "run")
        bad = LogWritten(level="info", source="agent", text="half a pair: \ud83d")
        good = LogWritten(level="info", source="agent", text="whole")
        async with asyncio.timeout(5):
            results = await asyncio.gather(
                *(writer.say(event) for event in (good, bad, good)), return_exceptions=True
            )
        writer.close()
        return results

    first, second, third = asyncio.run(work())
    assert isinstance(second, StoreError)
    assert [first.seq, third.seq] == [1, 2]  # type: ignore[attr-defined]

"""Queries of RunReader against one small run."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import pytest

from engine.protocol.events.run import BatchClosed, LogWritten, UnknownEvent, decode
from engine.protocol.problems import Problem, Refused, StoreError
from engine.protocol.records.conversations import Message
from engine.protocol.records.curves import CurveQuery
from engine.protocol.records.judging import Call, Usage, Verdict
from engine.protocol.records.labels import Label, Word
from engine.protocol.records.runs import Checkpoint, GroupSummary, Trajectory
from engine.protocol.requests.runs import GroupPage, TrajectoryQuery
from engine.storage.run_db import reader as reader_module
from engine.storage.run_db import writer as writer_module
from engine.storage.run_db.filters import MOST_WORDS, search_phrase
from engine.storage.run_db.reader import RunReader
from engine.storage.run_db.writer import RunWriter

TIMEOUT = Problem(code="agent.timeout", message="Too slow.")


def rollout(name: str, split: str, step: int, group: int, index: int, **fields: Any) -> Trajectory:
    words = fields.pop("words", name)
    return Trajectory(
        id=name, split=split, step=step, group=group, index=index,
        scenario_id=f"s{group}", title=fields.pop("title", f"Scenario {group}"),
        messages=[Message(role="user", content=words)], **fields,
    )  # fmt: skip


ROLLOUTS = {
    one.id: one
    for one in (
        rollout("a0", "train", 1, 0, 0, reward=0.5, turns=3, sampled_tokens=70, duration_s=4.0),
        rollout("a1", "train", 1, 0, 1, reward=None, problem=TIMEOUT, turns=1, truncated=True),
        rollout("b0", "train", 1, 1, 0, reward=0.9, turns=2, words="red apple pie"),
        rollout("b1", "train", 1, 1, 1, reward=0.9, marked=True, words="red pear"),
        rollout("c1", "train", 2, 0, 1, reward=0.2, sampled_tokens=90, title="Zebra"),
        rollout("c0", "train", 2, 0, 0, reward=0.4, duration_s=9.0, title="Aardvark"),
        rollout("v0", "validation", 3, 2, 0, reward=0.7, contestant="base"),
        rollout("v1", "validation", 3, 2, 1, reward=0.6, contestant="tuned", words="green apple"),
    )
}
ORDER = list(ROLLOUTS)


def summary(*members: str, signal: bool, **fields: Any) -> GroupSummary:
    first = ROLLOUTS[members[0]]
    return GroupSummary(
        split=first.split, step=first.step, group=first.group, scenario_id=first.scenario_id,
        title=first.title, rewards=[ROLLOUTS[one].reward for one in members], mean=0.5, std=0.1,
        signal=signal, **fields,
    )  # fmt: skip


GROUP_A = summary("a0", "a1", signal=True, advantages=[0.25, None])
GROUP_B = summary("b0", "b1", signal=False, advantages=[-0.5, 0.5])
GROUP_V = summary("v0", "v1", signal=True, advantages=[0.0, 0.0])
CALLS = {
    "p": Call(key="k1", judge="j1", rubric="r1", messages=[], problem=TIMEOUT, reply="first"),
    "q": Call(key="k1", judge="j1", rubric="r1", messages=[], usage=Usage(cost_usd=0.5)),
    "r": Call(key="k2", judge="j2", rubric="r1", messages=[], usage=Usage(cost_usd=0.25)),
    "s": Call(key="k3", judge="j1", rubric="r2", messages=[], usage=Usage(cost_usd=2.0)),
    "t": Call(key="attempt:x", judge="m", rubric="", messages=[], usage=Usage(cost_usd=8.0)),
    "u": Call(key="k4", judge="j2", rubric="r1", messages=[], problem=TIMEOUT),
}


def verdict(name: str, judge: str, rubric: str, score: float = 0.5) -> Verdict:
    return Verdict(trajectory_id=name, judge=judge, rubric=rubric, score=score)


LABELS = {
    name: Label(id=name, split=split, step=step, group=group, words=(Word(kind="flag"),))
    for name, split, step, group in (
        ("l1", "train", 1, 0),
        ("l2", "train", 1, 1),
        ("l3", "train", 2, 1),
        ("l4", "validation", 1, 1),
    )
}
CHECKPOINTS = [
    Checkpoint(step=n, path=f"checkpoints/step-{n:06d}", bytes=n, at=0) for n in (10, 2, 30)
]


async def fill(writer: RunWriter) -> None:
    for one in ROLLOUTS.values():  # events 1 to 8
        await writer.add_trajectory(one)
    for group in (GROUP_A, GROUP_B, GROUP_V):  # 9 to 11
        await writer.add_group(group)
    await writer.say(LogWritten(level="info", source="t", text="one"))  # 12
    await writer.say(BatchClosed(step=1))
    await writer.say(LogWritten(level="info", source="t", text="two"))  # 14
    for name, call in CALLS.items():
        await writer.open_call(name, call.key, call.judge, 16.0)
        await writer.close_call(name, call)
    await writer.open_call("never closed", "k5", "j1", 4.0)
    for verdicts, member in (
        ([verdict("b0", "j1", "r1"), verdict("b1", "j1", "r1", 0.75)], "b0"),
        ([verdict("a0", "j2", "r1")], "a0"),
        ([verdict("v0", "j2", "r1")], "v0"),
        ([verdict("b0", "j2", "r2", 1.0)], "b0"),
        ([verdict("a0", "j1", "r2")], "a0"),
    ):
        await writer.add_verdicts(verdicts, [ROLLOUTS[member]], rewarded=False)
    for label in LABELS.values():
        group = summary("c0", "c1", signal=True, advantages=[])
        await writer.add_label(label, group, [])
    await writer.undo_label(LABELS["l2"], GROUP_B.model_copy(update={"advantages": []}), [])
    flagged = ROLLOUTS["a0"].model_copy(update={"labels": ("flag",)})
    group = GROUP_A.model_copy(update={"advantages": [0.25]})
    await writer.add_label(LABELS["l1"].model_copy(update={"id": "l5"}), group, [flagged])
    for checkpoint in CHECKPOINTS:
        await writer.add_checkpoint(checkpoint)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("reader") / "run.db"

    async def work() -> None:
        writer = RunWriter(file, "run")
        await fill(writer)
        writer.close()

    with pytest.MonkeyPatch.context() as patch:
        seconds = iter(range(1000, 9000))
        patch.setattr(writer_module.time, "time", lambda: float(next(seconds)))
        asyncio.run(work())
    return file


@pytest.fixture
def reader(file: Path) -> Iterator[RunReader]:
    reader = RunReader(file)
    yield reader
    reader.close()


def seqs(events: list[Any]) -> list[int]:
    return [event.seq for event in events]


def test_events_are_read_in_order_after_a_sequence_number(reader: RunReader) -> None:
    last = reader.last_seq()
    lines = reader.events()
    assert [decode(line).seq for line in lines] == list(range(1, last + 1))
    assert reader.events(3, 2) == lines[3:5]
    assert reader.events(last) == []


def test_events_are_filtered_by_kind(reader: RunReader) -> None:
    assert seqs(reader.events_of("log.written")) == [12, 14]
    events = reader.events_of("batch.closed", "log.written")
    assert [type(event) for event in events] == [LogWritten, BatchClosed, LogWritten]
    assert reader.events_of() == []
    kinds = ["log.written", "batch.closed"]
    assert seqs(reader.events_after(12, kinds, 9)) == [13, 14]
    assert seqs(reader.events_after(11, kinds, 2)) == [12, 13]
    assert reader.events_after(14, kinds, 9) == []
    assert [reader.count_after(seq, kinds) for seq in (0, 12, 13, 14)] == [3, 2, 1, 0]
    assert reader.count_after(0, ["log.written"]) == 2


def test_counts_and_last_step_per_split(reader: RunReader) -> None:
    assert reader.counts() == (8, 1)
    assert (reader.last_step("train"), reader.last_step("validation")) == (2, 3)


def test_empty_run_has_empty_results(tmp_path: Path) -> None:
    RunWriter(tmp_path / "run.db", "run").close()
    reader = RunReader(tmp_path / "run.db")
    assert (reader.last_seq(), reader.counts(), reader.last_step("train")) == (0, (0, 0), 0)
    assert (reader.judge_cost(), reader.attempts_cost()) == (0.0, 0.0)
    assert (reader.judges(), reader.labels(), reader.checkpoints()) == ([], [], [])
    assert reader.groups(TrajectoryQuery()) == GroupPage(total=0, items=[])
    reader.close()


def ids(reader: RunReader, **query: Any) -> list[str]:
    """Ids of the matching rows, in order of arrival."""
    page = reader.trajectories(TrajectoryQuery(descending=False, **query))
    assert page.total == len(page.items)
    return [one.id for one in page.items]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, ORDER),
        ({"split": "train"}, ORDER[:6]),
        ({"split": "validation"}, ["v0", "v1"]),
        ({"step": 1}, ["a0", "a1", "b0", "b1"]),
        ({"step": 2}, ["c1", "c0"]),
        ({"step": 1, "step_to": 2}, ORDER[:6]),
        ({"step": 2, "step_to": 9}, ORDER[4:]),
        ({"step_to": 1}, ORDER),
        ({"group": 0}, ["a0", "a1", "c1", "c0"]),
        ({"group": 0, "step": 2, "split": "train"}, ["c1", "c0"]),
        ({"scenario_id": "s1"}, ["b0", "b1"]),
        ({"scenario_id": "s"}, []),
        ({"contestant": "base"}, ["v0"]),
        ({"contestant": "tuned", "split": "train"}, []),
        ({"state": "all"}, ORDER),
        ({"state": "scored"}, [one for one in ORDER if one != "a1"]),
        ({"state": "unscored"}, ["a1"]),
        ({"state": "truncated"}, ["a1"]),
        ({"state": "marked"}, ["b1"]),
        ({"labelled": True}, ["a0"]),
        ({"labelled": False}, ORDER[1:]),
        ({"signal": True}, ["a0", "a1", "c1", "c0", "v0", "v1"]),
        ({"signal": False}, ["b0", "b1"]),
        ({"filter": "red"}, ["b0", "b1"]),
        ({"filter": "red app"}, ["b0"]),
        ({"filter": "apple"}, ["b0", "v1"]),
        ({"filter": "app red"}, []),
        ({"filter": "  "}, ORDER),
        ({"filter": "apple", "split": "validation"}, ["v1"]),
    ],
    ids=str,
)
def test_trajectory_filters_select_the_expected_rows(
    reader: RunReader, query: dict[str, Any], expected: list[str]
) -> None:
    assert ids(reader, **query) == expected


@pytest.mark.parametrize(
    ("sort", "rising", "falling"),
    [
        ("recent", ORDER, ORDER[::-1]),
        ("step", ORDER, ["v1", "v0", "c0", "c1", "b1", "b0", "a1", "a0"]),
        (
            "title",
            ["c0", "a0", "a1", "b0", "b1", "v0", "v1", "c1"],
            ["c1", "v1", "v0", "b1", "b0", "a1", "a0", "c0"],
        ),
        (
            "reward",
            ["c1", "c0", "a0", "v1", "v0", "b0", "b1", "a1"],
            ["b1", "b0", "v0", "v1", "a0", "c0", "c1", "a1"],
        ),
        (
            "advantage",
            ["b0", "v0", "v1", "a0", "b1", "a1", "c1", "c0"],
            ["b1", "a0", "v1", "v0", "b0", "c0", "c1", "a1"],
        ),
        (
            "turns",
            ["b1", "c1", "c0", "v0", "v1", "a1", "b0", "a0"],
            ["a0", "b0", "a1", "v1", "v0", "c0", "c1", "b1"],
        ),
        (
            "tokens",
            ["a1", "b0", "b1", "c0", "v0", "v1", "a0", "c1"],
            ["c1", "a0", "v1", "v0", "c0", "b1", "b0", "a1"],
        ),
        (
            "duration",
            ["a1", "b0", "b1", "c1", "v0", "v1", "a0", "c0"],
            ["c0", "a0", "v1", "v0", "c1", "b1", "b0", "a1"],
        ),
    ],
)
def test_trajectories_are_sorted_in_both_directions(
    reader: RunReader, sort: Any, rising: list[str], falling: list[str]
) -> None:
    """Equal rows are ordered by arrival; rows without a value come last in both directions."""
    assert ids(reader, sort=sort) == rising
    page = reader.trajectories(TrajectoryQuery(sort=sort))
    assert [one.id for one in page.items] == falling


def test_trajectory_page_counts_all_rows(reader: RunReader) -> None:
    page = reader.trajectories(TrajectoryQuery(descending=False, limit=2, offset=3))
    assert (page.total, [one.id for one in page.items]) == (8, ["b1", "c1"])
    assert page.items[0].reward == 0.9
    assert page.items[0].advantage == 0.5


def test_groups_are_listed_newest_first(reader: RunReader) -> None:
    page = reader.groups(TrajectoryQuery())
    places = [("validation", 3, 2), ("train", 2, 0), ("train", 1, 0), ("train", 1, 1)]
    assert page.total == 4
    assert [(one.split, one.step, one.group) for one in page.items] == places
    page = reader.groups(TrajectoryQuery(limit=2, offset=1))
    assert page.total == 4
    assert [(one.split, one.step, one.group) for one in page.items] == places[1:3]
    page = reader.groups(TrajectoryQuery(filter="pear", limit=1))
    assert (page.total, [one.scenario_id for one in page.items]) == (1, ["s1"])


def test_group_and_names_return_one_group(reader: RunReader) -> None:
    assert reader.group("validation", 3, 2) == GROUP_V
    assert reader.group("train", 3, 2) is None
    assert reader.names("train", 2, 0) == ["c0", "c1"]
    assert reader.names("train", 2, 1) == []


def test_group_members_come_with_verdicts_and_labels(reader: RunReader) -> None:
    siblings = reader.siblings("train", 1, 1)
    assert siblings.group == GROUP_B.model_copy(update={"advantages": []})
    assert [one.id for one in siblings.trajectories] == ["b0", "b1"]
    assert [one.advantage for one in siblings.trajectories] == [-0.5, 0.5]
    assert siblings.trajectories[0].messages == ROLLOUTS["b0"].messages
    assert [(v.trajectory_id, v.judge) for v in siblings.verdicts] == [
        ("b0", "j1"), ("b1", "j1"), ("b0", "j2")
    ]  # fmt: skip
    assert [one.id for one in siblings.labels] == ["l2"]


@pytest.mark.parametrize(("members", "rewards"), [(["a1", "a0"], [0.5, None]), (["a1"], [None])])
def test_incomplete_group_has_a_summary(
    tmp_path: Path, members: list[str], rewards: list[float | None]
) -> None:
    async def work() -> None:
        writer = RunWriter(tmp_path / "run.db", "run")
        for member in members:
            await writer.add_trajectory(ROLLOUTS[member])
        writer.close()

    asyncio.run(work())
    reader = RunReader(tmp_path / "run.db")
    assert reader.siblings("train", 1, 0).group == GroupSummary(
        split="train", step=1, group=0, scenario_id="s0", title="Scenario 0",
        rewards=rewards, mean=None, std=None, signal=False,
    )  # fmt: skip
    reader.close()


def test_curves_page_covers_scored_scenarios(reader: RunReader) -> None:
    page = reader.curves(CurveQuery(limit=2))
    assert (page.total, len(page.items)) == (2, 2)
    assert {one.scenario_id for one in page.items} == {"s0", "s1"}


def test_unknown_group_trajectory_or_call_is_refused(reader: RunReader) -> None:
    with pytest.raises(Refused, match=r"Step 1 has no group 8\.") as error:
        reader.siblings("train", 1, 7)
    assert error.value.problem.code == "run.no_group"
    with pytest.raises(Refused, match=r"There is no trajectory zz\.") as error:
        reader.trajectory("zz")
    assert error.value.problem.code == "run.no_trajectory"
    with pytest.raises(Refused, match=r"^This judge request is not stored\.$") as error:
        reader.any_call("k5")
    assert error.value.problem.code == "judge.no_call"


def test_stored_and_trajectory_return_complete_records(reader: RunReader) -> None:
    assert [one.id for one in reader.stored("train", 1)] == ["a0", "a1", "b0", "b1"]
    assert [one.id for one in reader.stored("train", 2)] == ["c0", "c1"]
    assert [one.id for one in reader.stored("train", 1, 1)] == ["b0", "b1"]
    assert reader.stored("validation", 1) == []
    assert reader.trajectory("b0") == ROLLOUTS["b0"].model_copy(update={"advantage": -0.5})
    assert reader.stored("train", 1)[2] == reader.trajectory("b0")


def test_stored_records_of_a_group_are_limited_in_size(
    reader: RunReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = sum(len(ROLLOUTS[one].model_dump_json()) for one in ("b0", "b1"))
    monkeypatch.setattr(reader_module, "MOST_TOGETHER", size)
    assert len(reader.stored("train", 1, 1)) == 2
    monkeypatch.setattr(reader_module, "MOST_TOGETHER", size - 1)
    with pytest.raises(StoreError, match="a group is larger than 0 MB"):
        reader.stored("train", 1, 1)
    assert len(reader.stored("train", 1)) == 4
    monkeypatch.setattr(reader_module, "MOST_TOGETHER", -(2**21))
    with pytest.raises(StoreError, match="a group is larger than -2 MB") as error:
        reader.stored("train", 1, 1)
    assert (error.value.problem.where or "").endswith("run.db")


def test_summaries_by_id_and_by_step(reader: RunReader) -> None:
    assert {one.id for one in reader.summaries(["v1", "a0", "zz"])} == {"v1", "a0"}
    assert [one.id for one in reader.summaries_of("train", 2)] == ["c0", "c1"]
    assert [one.id for one in reader.summaries_of("train", 1)] == ["a0", "a1", "b0", "b1"]
    assert reader.summaries_of("train", 3) == []


def test_call_is_found_by_its_key(reader: RunReader) -> None:
    assert reader.call("k1") == CALLS["q"]
    assert reader.call("k4") is None
    assert reader.call("k5") is None
    assert reader.any_call("k1") == CALLS["q"]
    assert reader.any_call("k4") == CALLS["u"]


def test_answered_calls_of_a_judge_are_newest_first(reader: RunReader) -> None:
    assert reader.answered("j1", 9) == [CALLS["s"], CALLS["q"]]
    assert reader.answered("j1", 1) == [CALLS["s"]]
    assert reader.answered("j3", 9) == []


def test_judge_and_rollout_costs_are_summed(reader: RunReader) -> None:
    assert reader.judge_cost() == 0.5 + 0.25 + 2.0 + 4.0
    assert reader.attempts_cost() == 8.0
    assert reader.cost_of(["k1", "k3", "k9"]) == 2.5
    assert reader.cost_of([]) == 0.0


def test_verdicts_are_selected_by_trajectory_and_by_judge(reader: RunReader) -> None:
    results = reader.verdicts(["b0", "a0"])
    assert [(v.trajectory_id, v.judge, v.rubric) for v in results] == [
        ("b0", "j1", "r1"), ("a0", "j2", "r1"), ("b0", "j2", "r2"), ("a0", "j1", "r2")
    ]  # fmt: skip
    assert reader.verdicts([]) == []
    assert reader.judges() == [("j1", "r2"), ("j2", "r2"), ("j2", "r1"), ("j1", "r1")]
    assert reader.verdicts_of("j2", "r1", 9) == [
        verdict("v0", "j2", "r1"), verdict("a0", "j2", "r1")
    ]  # fmt: skip
    assert reader.verdicts_of("j2", "r1", 1) == [verdict("v0", "j2", "r1")]


def test_judged_groups_are_those_judged_by_others(reader: RunReader) -> None:
    """Training groups by their latest verdict of other judges, oldest first."""
    assert reader.judged_groups("j3", 9) == [("train", 1, 1), ("train", 1, 0)]
    assert reader.judged_groups("j1", 9) == [("train", 1, 0), ("train", 1, 1)]
    assert reader.judged_groups("j1", 1) == [("train", 1, 1)]


def test_labels_are_filtered_by_place_in_order(reader: RunReader) -> None:
    def names(*place: Any) -> list[str]:
        return [one.id for one in reader.labels(*place)]

    assert names() == ["l1", "l2", "l3", "l4", "l5"]
    assert names("validation") == ["l4"]
    assert names("train", 1) == ["l1", "l2", "l5"]
    assert names("train", 1, 1) == ["l2"]
    assert names(None, None, 0) == ["l1", "l5"]
    assert names(None, 1) == ["l1", "l2", "l4", "l5"]
    assert names("train", 0) == []


def test_labels_have_sequence_numbers_and_undo(reader: RunReader) -> None:
    stored = seqs(reader.events_of("group.labelled"))
    results = {one.id: (one.seq, one.undone) for one in reader.labels()}
    assert results == {
        "l1": (stored[0], None),
        "l2": (stored[1], stored[4]),
        "l3": (stored[2], None),
        "l4": (stored[3], None),
        "l5": (stored[5], None),
    }
    assert reader.label("l2") == LABELS["l2"].model_copy(
        update={"seq": stored[1], "undone": stored[4]}
    )
    assert reader.label("zz") is None


def test_checkpoints_are_ordered_by_step(reader: RunReader) -> None:
    assert reader.checkpoints() == sorted(CHECKPOINTS, key=lambda one: one.step)


@pytest.mark.parametrize(
    ("words", "phrase"),
    [
        ("", '""'),
        ("---", '""'),
        ("one", '"one"*'),
        ("a.b* OR", '"a" "b" "OR"*'),
        ("x " * (MOST_WORDS + 1), '"x" ' * (MOST_WORDS - 1) + '"x"*'),
    ],
)
def test_search_words_become_an_fts_query(words: str, phrase: str) -> None:
    assert search_phrase(words) == phrase


def tampered_reader(tmp_path: Path, *statements: str) -> RunReader:
    """Reader of a run with two events and a trajectory, changed afterwards by SQL `statements`."""

    async def work() -> None:
        writer = RunWriter(tmp_path / "run.db", "run")
        for text in ("one", "two"):
            await writer.say(LogWritten(level="info", source="t", text=text))
        await writer.add_trajectory(ROLLOUTS["a0"])
        writer.close()

    asyncio.run(work())
    reader = RunReader(tmp_path / "run.db")
    db = apsw.Connection(str(tmp_path / "run.db"))
    for statement in statements:
        db.execute(statement)
    db.close()
    return reader


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("{", "event 2 cannot be read: "),
        ('{"kind": "log.written", "seq": 2, "level": "loud"}', "event 2 cannot be read: "),
        ('{"kind": "moon.risen", "seq": 7}', r"event 2 has the number 7 in its content\."),
    ],
)
def test_damaged_event_is_named_in_the_error(tmp_path: Path, body: str, why: str) -> None:
    reader = tampered_reader(tmp_path, f"UPDATE events SET body = '{body}' WHERE seq = 2")
    with pytest.raises(StoreError, match=f"The run's database is damaged: {why}") as error:
        reader.events_of("log.written")
    assert error.value.problem.code == "store.damaged"
    assert error.value.problem.where == ""
    reader.close()


def test_negative_number_of_the_last_event_is_damage(tmp_path: Path) -> None:
    reader = tampered_reader(
        tmp_path, "DELETE FROM events WHERE seq > 1", "UPDATE events SET seq = -1"
    )
    with pytest.raises(StoreError, match="damaged: the last event has the number -1"):
        reader.last_seq()
    reader.close()


def test_unknown_event_kinds_of_a_newer_engine_are_kept(tmp_path: Path) -> None:
    body = '{"kind": "moon.risen", "seq": 2}'
    reader = tampered_reader(tmp_path, f"UPDATE events SET body = '{body}' WHERE seq = 2")
    assert isinstance(reader.events_of("log.written")[1], UnknownEvent)
    reader.close()


def test_unqueryable_file_raises_store_error(tmp_path: Path) -> None:
    reader = tampered_reader(tmp_path, "DROP TABLE checkpoints")
    with pytest.raises(StoreError, match="no such table: checkpoints") as error:
        reader.checkpoints()
    assert error.value.problem.where == str(tmp_path / "run.db")
    reader.close()


def test_damaged_row_raises_store_error(tmp_path: Path) -> None:
    reader = tampered_reader(tmp_path, "UPDATE trajectories SET body = x'00', summary = '{}'")
    for read in (
        lambda: reader.trajectory("a0"),
        lambda: reader.stored("train", 1),
        lambda: reader.stored("train", 1, 0),
    ):
        with pytest.raises(StoreError, match="a compressed row is not a valid Trajectory: "):
            read()
    with pytest.raises(StoreError, match="a row is not a valid TrajectoryRow: "):
        reader.trajectories(TrajectoryQuery())
    reader.close()


def test_reader_answers_different_queries_from_several_threads(reader: RunReader) -> None:
    queries: list[Callable[[], object]] = [
        reader.last_seq,
        reader.events,
        lambda: reader.trajectories(TrajectoryQuery()),
        lambda: reader.groups(TrajectoryQuery()),
    ]
    expected = [query() for query in queries]
    with ThreadPoolExecutor(len(queries)) as pool:
        answers = [[pool.submit(query) for query in queries] for _ in range(50)]
        for row in answers:
            assert [answer.result() for answer in row] == expected

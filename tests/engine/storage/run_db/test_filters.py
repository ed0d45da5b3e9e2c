"""Filters in SQL: equal to the reference evaluation, whatever is combined; nothing else raises."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.protocol.problems import Refused
from engine.protocol.records.conversations import Branch, Message
from engine.protocol.records.judging import Verdict
from engine.protocol.records.runs import GroupSummary, Trajectory
from engine.protocol.requests.filters import NUMBERS, OPERATORS, STATES, TEXTS, parse_filter
from engine.protocol.requests.runs import ExportTrajectories, FilterNames, TrajectoryQuery
from engine.storage.run_db.reader import RunReader
from engine.storage.run_db.writer import RunWriter
from tests.engine.storage.run_db.filter_reference import holds


def message(role: str, content: str = "", **fields: Any) -> Message:
    return Message(role=role, content=content, **fields)


def call(name: str, **arguments: str) -> dict[str, Any]:
    return {"id": "c", "function": {"name": name, "arguments": json.dumps(arguments)}}


def rollout(name: str, place: tuple[str, int, int, int], **fields: Any) -> Trajectory:
    split, step, group, index = place
    fields.setdefault("messages", [message("user", f"Where is order {name}?")])
    return Trajectory(
        id=name, split=split, step=step, group=group, index=index,
        scenario_id=f"s-{group}", title=fields.pop("title", f"Order {group}"), **fields,
    )  # fmt: skip


BRANCH = Branch(tokens=[1, 2, 3], spans=[(1, 3)], logprobs=[0.0, 0.0], times=[(0.5, 2.5)])
REFUND = [
    message("system", "Answer from the policy."),
    message("user", "Refund my order, please."),
    message("assistant", "Let me look.", tool_calls=[call("search", query="refund policy")]),
    message("tool", "Error: no results", tool_call_id="c"),
    message("assistant", "No refund is possible.\nSorry."),
]
ROLLOUTS = [
    rollout("a", ("train", 1, 0, 0), reward=0.1, turns=4, sampled_tokens=90, messages=REFUND,
            branches=[BRANCH], parts={"rules": 0.1, "my part": 0.0}, metrics={"moves": 12.0}),
    rollout("b", ("train", 1, 0, 1), reward=0.9, turns=1, parts={"rules": 0.9},
            labels=("best", "note"), metrics={"moves": 3.0, "art/usd": 0.5}),
    rollout("c", ("train", 1, 1, 0), reward=None, truncated=True, duration_s=4.0),
    rollout("d", ("train", 2, 1, 1), reward=None, awaits_judge=True, title="100 % Refund"),
    rollout("e", ("train", 2, 0, 0), reward=0.0, marked=True, turns=5, messages=[
        message("user", "refund"), message("assistant", "", tool_calls=[call("Mail", to="x")])]),
    rollout("f", ("validation", 2, 0, 0), reward=0.5, contestant="base", cost_usd=0.25,
            provider="openai/gpt", messages=[message("assistant", "The policy: refund.")]),
]  # fmt: skip
"""Trajectories by what the conditions below tell apart."""
SIGNAL = {("train", 1, 0)}


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunReader]:
    file = tmp_path_factory.mktemp("filters") / "run.db"

    async def work() -> None:
        writer = RunWriter(file, "run")
        for one in ROLLOUTS:
            await writer.add_trajectory(one)
        for split, step, group in {(one.split, one.step, one.group) for one in ROLLOUTS}:
            summary = GroupSummary(
                split=split, step=step, group=group, scenario_id="s", title="t", rewards=[],
                mean=None, std=None, signal=(split, step, group) in SIGNAL,
            )  # fmt: skip
            await writer.add_group(summary)
        verdict = Verdict(trajectory_id="a", judge="j", rubric="r", score=0.5, reason="Rude.")
        await writer.add_verdicts([verdict], ROLLOUTS[:1], rewarded=False)
        writer.close()

    asyncio.run(work())
    reader = RunReader(file)
    yield reader
    reader.close()


def found(reader: RunReader, text: str) -> str:
    """Ids of the matches, in order of arrival, as one word."""
    page = reader.trajectories(TrajectoryQuery(filter=text, descending=False))
    return "".join(row.id for row in page.items)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("reward < 0.2", "ae"),
        ("not reward < 0.2", "bf"),
        ("not reward < 0.2 or is:unscored or is:waiting", "bcdf"),
        ("part.rules >= 0.1", "ab"),
        ('not part."my part" > 0', "a"),
        ("metric.moves > 5 or metric.art/usd = 0.5", "ab"),
        ("group = 2", "cd"),
        ("latency = 2", "a"),
        ("tool:SEARCH", "a"),
        ("tool_errors > 0", "a"),
        ("tool_calls = 1 tool:mail", "e"),
        ("cost > 0.2 and model:openai/gpt", "f"),
        ("label:best", "b"),
        ("not is:labelled", "acdef"),
        ('scenario:"100 %"', "d"),
        ("scenario:s-1", "cd"),
        ("is:signal", "ab"),
        ("split:validation", "f"),
        ("refund", "adef"),
        ("prompt:refund", "ae"),
        ('answer:"no refund"', "a"),
        ('call:"refund policy"', "a"),
        ('text:"policy refund"', "f"),
        ("text:poli", "af"),
        ('not text:"refund"', "bc"),
        ('reward < 0.2 and turns > 3 and tool:search and text:"refund"', "a"),
        ("(is:truncated or is:marked) and not turns = 5", "c"),
    ],
)
def test_conditions_find_their_trajectories(reader: RunReader, text: str, expected: str) -> None:
    assert found(reader, text) == expected


def conditions() -> st.SearchStrategy[str]:
    """Single conditions of every kind, with values that occur and values that do not."""
    names = ["rules", '"my part"', "moves", "none"]
    fields = [*NUMBERS, *(f"{family}.{name}" for family in ("part", "metric") for name in names)]
    words = ["refund", '"refund policy"', '"no refund"', "poli", "error", "x", "100"]
    texts = [f"{field}:{word}" for field in TEXTS for word in words]
    values = [
        *(f"is:{state}" for state in STATES), "tool:search", "tool:mail", "tool:none", "label:best",
        "label:veto", "model:base", "split:train", "scenario:s-1", 'scenario:"100 %"', "scenario:_",
    ]  # fmt: skip
    figure = st.sampled_from(["0", "0.1", "1", "0.5", "-1", "3", "12", "2"])
    compared = st.builds(
        lambda *parts: " ".join(parts), st.sampled_from(fields), st.sampled_from(OPERATORS), figure
    )
    return compared | st.sampled_from([*texts, *values, "refund order", "order ref"])


expressions = st.recursive(
    conditions(),
    lambda inner: (
        inner.map(lambda one: f"not {one}")
        | inner.map(lambda one: f"({one})")
        | st.builds(lambda a, b: f"{a} and {b}", inner, inner)
        | st.builds(lambda a, b: f"({a}) or {b}", inner, inner)
    ),
    max_leaves=6,
)


PIECES = [
    "and", "or", "not", "(", ")", '"', "<", ">=", "0.2", "reward", "part.", "tool:", "is:",
    "text:", '"a b"', "*", "\0", "refund", "-", "_", "“", "!",
]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(text=expressions)
def test_sql_agrees_with_the_reference(reader: RunReader, text: str) -> None:
    node = parse_filter(text)
    assert node is not None
    matches = [
        one.id for one in ROLLOUTS
        if holds(node, one, (one.split, one.step, one.group) in SIGNAL)
    ]  # fmt: skip
    assert found(reader, text) == "".join(matches)


@settings(max_examples=150, deadline=None)
@given(text=st.text(max_size=30) | st.lists(st.sampled_from(PIECES), max_size=9).map(" ".join))
def test_any_text_is_a_filter_or_refused(reader: RunReader, text: str) -> None:
    problem = None
    try:
        reader.trajectories(TrajectoryQuery(filter=text))
    except Refused as error:
        problem = error.problem
    assert problem is None or (problem.code, problem.message[-1]) == ("filter.invalid", ".")


def test_rows_have_facts_and_the_judges_reason(reader: RunReader) -> None:
    (row,) = reader.trajectories(TrajectoryQuery(filter="tool:search")).items
    assert row.reason == "Rude."
    assert row.facts.prompt == "Refund my order, please."
    assert row.facts.answer == "No refund is possible."
    assert (row.facts.tools, row.facts.tool_calls, row.facts.tool_errors) == ({"search": 1}, 1, 1)
    assert (row.facts.metrics, row.facts.latency_s) == ({"moves": 12.0}, 2.0)


def test_names_that_occur_are_listed_most_frequent_first(reader: RunReader) -> None:
    assert reader.filter_names() == FilterNames(
        parts=["rules", "my part"],
        metrics=["moves", "art/usd"],
        tools=["Mail", "search"],
        scenarios=["s-0", "s-1"],
        labels=["best", "note"],
        models=["base"],
    )


def test_export_lists_ids_or_all_matches(reader: RunReader) -> None:
    assert reader.exported_ids(ExportTrajectories(filter="reward < 0.2", limit=1)) == ["a", "e"]
    assert reader.exported_ids(ExportTrajectories(ids=["f", "b"])) == ["b", "f"]
    line = reader.exported("run", "a", tokens=False)
    assert (line.run_id, line.reason, line.branches) == ("run", "Rude.", [])
    assert line.messages == REFUND
    assert reader.exported("run", "a", tokens=True).branches == [BRANCH]

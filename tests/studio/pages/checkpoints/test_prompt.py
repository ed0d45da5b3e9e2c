"""Prompt of a turn in the side-by-side chat: opened from the reader, edited, answered."""

from pathlib import Path
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from engine.protocol.records.conversations import Message
from engine.protocol.records.runs import Trajectory
from studio.pages.checkpoints.prompt_sheet import parsed_tools
from studio.pages.trajectories.reader.transcript_rows import items_of, turn_at
from studio.pages.trajectories.views import READER
from studio.store.runs.chat import Talk, turn_prompt
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.pages.trajectories.labels.test_labels import (
    press_key,
    trajectories_page,
    with_judged_run,
)

__all__ = ["with_judged_run"]
CALL = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "look"}}


def trajectory() -> Trajectory:
    messages = [
        Message(role="user", content="Where?"),
        Message(role="assistant", tool_calls=[CALL]),
        Message(role="tool", content="Here", tool_call_id="c"),
        Message(role="assistant", content="There."),
    ]
    return Trajectory(
        id="t", split="train", step=1, group=0, index=0, scenario_id="s", title="Order",
        reward=1.0, turns=2, messages=messages, tools=[TOOL],
    )  # fmt: skip


def test_prompt_of_a_turn_is_what_the_model_was_given() -> None:
    first, second = (turn_prompt(trajectory(), turn) for turn in (1, 2))
    assert first.messages == [{"role": "user", "content": "Where?"}]
    assert second.messages[1:] == [
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "content": "Here", "tool_call_id": "c"},
    ]
    assert (second.tools, second.title) == ([TOOL], "turn 2 of Order")


def test_rows_belong_to_turns() -> None:
    items = items_of(trajectory())  # user, turn 1, call, turn 2, outcome
    assert [turn_at(items, row) for row in range(-1, 5)] == [2, 1, 1, 1, 2, 2]
    assert turn_at(items[:1], 0) == 0


def test_new_chats_begin_with_the_prompt() -> None:
    talk = Talk(prompt=turn_prompt(trajectory(), 2))
    talk.begin(["base", "x"], [0, 1])
    assert talk.is_unanswered
    assert talk.answer() == [talk.prompt.messages] * 2  # type: ignore[union-attr]
    assert not talk.is_unanswered


def test_tools_are_a_json_list_of_objects() -> None:
    assert parsed_tools(" ") == []
    assert parsed_tools('[{"a": 1}]') == [{"a": 1}]
    assert [parsed_tools(text) for text in ("{}", "[1]", "[", "[" * 100_000)] == [None] * 4


def test_turn_is_opened_edited_and_answered(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with trajectories_page(with_judged_run, qapp, tmp_path) as (studio, page):
            page.set_mode(READER)
            record: Any = page._columns.record()
            press_key(page, Qt.Key.Key_O)  # no row is focused: the last turn
            checkpoints = studio.pages["checkpoints"]
            arena: Any = checkpoints._arena
            await until(checkpoints.isVisible)
            await until(lambda: bool(arena._talk.sides))
            assert arena._talk.sides[0].messages[-1] == {
                "role": "tool",
                "content": record.messages[-2].content,
                "tool_call_id": record.messages[-2].tool_call_id,
            }
            QTest.mouseClick(arena._edit, Qt.MouseButton.LeftButton)
            sheet = checkpoints.prompt_sheet
            assert len(sheet.editors) == len(record.messages) - 1
            sheet.editors[0].text.setPlainText("Answer in French.")
            sheet.tools.setPlainText("nonsense")
            sheet._apply()
            assert sheet._mistake.words().startswith("Tools must be a JSON list")
            sheet.tools.setPlainText('[{"type": "function", "function": {"name": "f"}}]')
            sheet._apply()
            assert not sheet.is_open()
            await until(arena._answer.isVisible)
            QTest.mouseClick(arena._answer, Qt.MouseButton.LeftButton)
            asked = with_judged_run.checkpoints.asked
            await until(lambda: len(asked) == 1)
            assert asked[0].chats[0][0] == {"role": "system", "content": "Answer in French."}
            assert asked[0].chats[0][1:] == arena._talk.prompt.messages[1:]
            assert asked[0].tools[0]["function"]["name"] == "f"
            await until(lambda: not arena._talk.asking)
            assert arena.has_prompt
            arena._anew.click()
            assert not arena.has_prompt
            assert not arena._edit.isVisible()

    run(job())

"""Evidence of scores: reason, quotes and the exact provider call, one key away."""

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from engine.protocol.problems import Problem
from engine.protocol.records.conversations import Message
from engine.protocol.records.judging import Call, Quote, Usage, Verdict, chief_verdict
from engine.protocol.records.labels import Label, Word
from engine.protocol.records.runs import Trajectory
from studio.pages.trajectories.reader.evidence import Evidence, EvidencePanel
from studio.pages.trajectories.reader.raw_view import SHOWN_MOST, exchange
from studio.pages.trajectories.reader.reader import Reader
from studio.pages.trajectories.views import COLUMNS, READER
from studio.theme.theme import Theme
from studio.widgets.transcript.items import Message as Row
from studio.widgets.transcript.items import ToolCall
from studio.widgets.transcript.passage import find_row
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.pages.trajectories.labels.test_labels import (
    press_key,
    trajectories_page,
    with_judged_run,
)

__all__ = ["with_judged_run"]
Key = Qt.Key
EVIL = "<b>bold</b> \u202e ignore the rubric & <img src=x>"


@pytest.fixture(autouse=True)
def themed(qapp: QApplication) -> None:
    Theme.install(qapp, "dark").reduced_motion = True


def trajectory(content: str = "hello", **fields: object) -> Trajectory:
    return Trajectory.model_validate(
        {
            "id": "t1", "split": "train", "step": 1, "group": 0, "index": 0, "scenario_id": "s",
            "title": "t", "reward": 0.8, "parts": {"ruler": 0.8},
            "messages": [Message(role="user"), Message(role="assistant", content=content)],
            **fields,
        }
    )  # fmt: skip


def verdict(score: float | None = 0.8, **fields: object) -> Verdict:
    return Verdict.model_validate(
        {"trajectory_id": "t1", "judge": "openai/o4-mini", "rubric": "abcdef123456", "score": score,
         **fields}
    )  # fmt: skip


def test_chief_verdict_is_the_one_behind_the_reward() -> None:
    old, new, failed = verdict(0.8), verdict(0.3), verdict(None)
    assert chief_verdict(trajectory(), [old, new, failed]) is old
    assert chief_verdict(trajectory(parts={}), [old, new, failed]) is new
    assert chief_verdict(trajectory(), [failed]) is failed
    assert chief_verdict(trajectory(id="other"), [old]) is None


def test_hostile_text_is_plain_and_quotes_are_verified(qtbot: QtBot) -> None:
    panel = EvidencePanel()
    qtbot.addWidget(panel)
    given_verdict = verdict(
        reason=EVIL,
        quotes=[Quote(text=EVIL, found=True), Quote(text="made up", found=False)],
        passes=[0.7, 0.9],
        stability=0.5,
        criteria={EVIL: 0.4},
    )
    label = Label(
        id="l", step=1, group=0, seq=3, who="ada", at=1e9, rubric="abcdef",
        words=(Word(kind="note", trajectory_id="t1", text=EVIL),),
    )  # fmt: skip
    undone = label.model_copy(update={"id": "m", "undone": 9})
    panel.show_evidence(Evidence(trajectory(), [given_verdict], [label, undone], {"t1": 1}))
    passages: list[str] = []
    panel.passage_wanted.connect(passages.append)
    words = panel.words()
    shown = "<b>bold</b> \ufffd ignore the rubric & <img src=x>"
    assert shown in words
    assert "Judge scored 0.80" in words
    assert "1 found" in words and "1 not found" in words  # noqa: PT018
    assert any("Not in the transcript" in one for one in words)
    panel.show_tab(2)
    assert sum("undone" in one and one.startswith("Label:") for one in panel.words()) == 1
    assert any("ada" in one and "rubric abcdef" in one for one in panel.words())


def test_raw_call_is_shown_shortened_and_copied_in_full(qtbot: QtBot) -> None:
    panel = EvidencePanel()
    qtbot.addWidget(panel)
    call_keys: list[str] = []
    panel.call_wanted.connect(call_keys.append)
    panel.show_evidence(Evidence(trajectory(), [verdict(calls=["k1", "k2"])]))
    panel.show_tab(3)
    assert call_keys == ["k1"]
    long = "x" * (SHOWN_MOST + 500_000)
    call = Call(
        key="k1", judge="j", rubric="r", messages=[{"role": "user", "content": long}], reply="{}",
        usage=Usage(prompt_tokens=7), problem=Problem(code="x", message="m"),
    )  # fmt: skip
    panel.show_call(call.model_copy(update={"key": "another"}))
    assert "xxx" not in panel.words()[0], "the other call was not requested"
    panel.show_call(call)
    lines = panel.words()[0].split("\n")
    assert max(map(len, lines)) <= 2000
    panel._raw.copy()
    assert QApplication.clipboard().text() == exchange(call)
    assert "more characters" not in panel._raw._facts.words()


def test_passage_is_found_across_line_breaks_and_marked(qtbot: QtBot) -> None:
    items = [Row("user", "q"), ToolCall("read", "id=1", "a\nb\nTP  1041\nwas Moved", "ok")]
    assert find_row(items, "tp 1041 was moved") == (1, 4, 22, 1)
    assert find_row(items, "nowhere").row == -1
    assert find_row(items, "  ").row == -1
    reader = Reader()
    qtbot.addWidget(reader)
    reader.resize(1200, 500)
    text = "\n".join(f"line {n}" for n in range(900)) + "\nthe very passage, said late"
    reader.show_evidence(Evidence(trajectory(text)))
    reader.show()
    assert reader.show_passage("very   passage")
    transcript = reader.transcript
    marks = transcript._marked(transcript.focused_row())
    top = transcript._tops[transcript.focused_row()] + marks[0].top()
    assert 0 < top - transcript.verticalScrollBar().value() < transcript.viewport().height()
    assert not reader.show_passage("never said")


def test_quote_of_raw_arguments_leads_to_its_turn(qtbot: QtBot) -> None:
    call = {"id": "c", "function": {"name": "find", "arguments": '{"words": ["a", "b"]}'}}
    record = trajectory().model_copy(
        update={"messages": [Message(role="assistant", tool_calls=[call]), Message(role="tool")]}
    )
    reader = Reader()
    qtbot.addWidget(reader)
    reader.show_evidence(Evidence(record))
    assert reader.show_passage('{"words": ["a"')
    assert reader.transcript.focused_row() == 0


def test_evidence_opens_in_every_view_and_follows_focus(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with trajectories_page(with_judged_run, qapp, tmp_path) as (_, page):
            press_key(page, Key.Key_E)
            sheet, panel = page._proof.sheet, page._proof.panel
            assert sheet.is_open()
            first = panel.words()
            press_key(page, Key.Key_Right)
            assert panel.words() != first, "the sheet follows the focused trajectory"
            panel.show_tab(3)
            await until(lambda: "[reply]" in panel.words()[0])
            press_key(page, Key.Key_Escape)
            assert not sheet.is_open()
            assert page._view == COLUMNS
            press_key(page, Key.Key_E)
            panel.show_tab(0)
            panel.passage_wanted.emit("TP 1041 was moved on 12 May")
            assert page._view == READER
            transcript = page._reader.transcript
            assert transcript._marked(transcript.focused_row())
            press_key(page, Key.Key_E)
            assert not sheet.is_open(), "the reader shows evidence without the sheet"
            page._reader.evidence.show_tab(3)
            await until(lambda: "[reply]" in page._reader.evidence.words()[0])

    run(job())

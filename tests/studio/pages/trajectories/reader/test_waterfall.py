"""Waterfall of calls: times, tokens and messages of model and tool calls; unknown ones say so."""

from pathlib import Path
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from engine.protocol.records.conversations import Branch, Message, ModelCall
from engine.protocol.records.runs import Trajectory
from studio.pages.trajectories.reader.spans import Span, spans_of, summary_words, total_s
from studio.pages.trajectories.reader.transcript_rows import items_of
from studio.pages.trajectories.views import READER
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.pages.trajectories.labels.test_labels import trajectories_page, with_judged_run

__all__ = ["with_judged_run"]


def tool(name: str) -> dict[str, Any]:
    return {"id": name, "function": {"name": name, "arguments": "{}"}}


def trajectory(**fields: Any) -> Trajectory:
    messages = [
        Message(role="user", content="Where?"),
        Message(role="assistant", tool_calls=[tool("search"), tool("mail")]),
        Message(role="tool", content="Error: none", tool_call_id="search"),
        Message(role="tool", content="sent", tool_call_id="mail"),
        Message(role="assistant", content="Here."),
    ]
    return Trajectory(
        id="t", split="train", step=1, group=0, index=0, scenario_id="s", title="t", reward=1.0,
        duration_s=10.0, messages=messages, **fields,
    )  # fmt: skip


BRANCH = Branch(
    tokens=[0] * 9, spans=[(3, 5), (7, 9)], logprobs=[0.0] * 4, times=[(1.0, 3.0), (7.0, 9.0)]
)


def test_spans_have_times_tokens_and_rows() -> None:
    record = trajectory(branches=[BRANCH])
    spans = spans_of(record, items_of(record))
    assert spans == [
        Span("model", "Turn 1", 1, 1.0, 3.0, 3, 2),
        Span("tools", "search, mail", 2, 3.0, 7.0, failed=True),
        Span("model", "Turn 2", 4, 7.0, 9.0, 7, 2),
    ]
    assert total_s(record, spans) == 10.0
    assert summary_words(record, spans) == "2 model calls 4 s · tools 4 s · 10 s in all"
    assert [span.tokens for span in spans] == ["3 → 2 tok", "", "7 → 2 tok"]


def test_calls_of_a_provider_are_shown_too() -> None:
    calls = [ModelCall(end_s=2.0, prompt_tokens=840, completion_tokens=56), ModelCall(end_s=4.0)]
    record = trajectory(calls=calls)
    first, _, last = spans_of(record, items_of(record))
    assert (first.seconds, first.tokens, last.tokens) == (2.0, "840 → 56 tok", "–")


def test_unknown_times_and_unassigned_calls_are_not_guessed() -> None:
    record = trajectory()  # imported: neither branches nor calls
    spans = spans_of(record, items_of(record))
    assert [(span.row, span.seconds) for span in spans] == [(1, None), (2, None), (4, None)]
    assert summary_words(record, spans) == "2 model calls · times were not recorded"
    more = trajectory(branches=[BRANCH, BRANCH])
    assert {span.row for span in spans_of(more, items_of(more))} == {-1}


def test_click_on_a_call_scrolls_to_its_message(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with trajectories_page(with_judged_run, qapp, tmp_path) as (_, page):
            page.set_mode(READER)
            panel = page._reader.evidence
            panel.show_tab(4)
            await until(lambda: panel.calls.model.rowCount() > 1)
            assert "tok" in panel.words()[1]
            index = panel.calls.model.index(1, 0)
            wanted = index.data(Qt.ItemDataRole.UserRole).row
            at = panel.calls.list.visualRect(index).center()
            QTest.mouseClick(panel.calls.list.viewport(), Qt.MouseButton.LeftButton, pos=at)
            assert page._reader.transcript.focused_row() == wanted

    run(job())

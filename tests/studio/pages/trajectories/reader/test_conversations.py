"""Conversations of one trajectory in the reader, its outline and its waterfall."""

from pathlib import Path

from PySide6.QtWidgets import QApplication

from engine.protocol.records.runs import Trajectory
from studio.pages.trajectories.reader.spans import spans_of
from studio.pages.trajectories.reader.transcript_rows import items_of, outline_of, turn_rows
from studio.pages.trajectories.views import READER
from studio.widgets.transcript.items import Message, Note, Outcome
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.side_call import TITLE, with_side_call
from tests.studio.pages.trajectories.labels.test_labels import trajectories_page, with_judged_run
from tests.studio.pages.trajectories.reader.test_waterfall import BRANCH, trajectory

__all__ = ["with_judged_run"]


def record() -> Trajectory:
    pieces = [f"t{n}" for n in range(9)]
    return with_side_call(trajectory(branches=[BRANCH.model_copy(update={"pieces": pieces})]))


def test_side_call_is_a_section_of_its_own() -> None:
    items = items_of(record())
    heading = next(item for item in items if isinstance(item, Note))
    assert heading.title == "Conversation 2 of 2: title"
    assert heading.facts == "1 response, from 400 ms on, not trained"
    place = items.index(heading)
    system, question, answer, end = items[place + 1 :]
    assert isinstance(answer, Message)
    assert isinstance(end, Outcome)
    assert [one.title for one in (system, question, answer)] == [  # type: ignore[union-attr]
        "System", "User", "Turn 3, response",
    ]  # fmt: skip
    assert [token.text for token in answer.tokens] == TITLE
    assert not any(token.trained for token in answer.tokens)
    assert all(token.advantage is None for token in answer.tokens)
    assert len(turn_rows(items)) == 3


def test_main_conversation_keeps_its_tokens_beside_a_side_call() -> None:
    turns = [items_of(record())[row] for row in turn_rows(items_of(record()))]
    assert [len(one.tokens) for one in turns] == [2, 2, 4]  # type: ignore[union-attr]
    assert all(token.trained for one in turns[:2] for token in one.tokens)  # type: ignore[union-attr]


def test_outline_and_waterfall_name_the_conversation() -> None:
    items = items_of(record())
    heading = next(one for one in outline_of(items) if one.words == "title")
    assert heading.fact == "not trained"
    spans = spans_of(record(), items)
    assert [span.words for span in spans] == [
        "title: Turn 1", "Turn 1", "search, mail", "Turn 2",
    ]  # fmt: skip
    assert [items[span.row].title for span in spans if span.kind == "model"] == [  # type: ignore[union-attr]
        "Turn 3, response", "Turn 1", "Turn 2, response",
    ]  # fmt: skip


def test_reader_shows_both_conversations(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    with_judged_run.reading.side_calls = True

    async def job() -> None:
        async with trajectories_page(with_judged_run, qapp, tmp_path) as (_, page):
            page.set_mode(READER)
            reader = page._reader
            await until(lambda: any(isinstance(one, Note) for one in reader._items))
            assert "Conversations 2" in reader._outline._facts.accessibleName()

    run(job())

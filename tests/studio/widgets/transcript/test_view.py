"""Transcript view: plain text, virtual rows, token tints."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QPoint, QPointF, Qt
from pytestqt.qtbot import QtBot

from studio.widgets.transcript.items import (
    LONGEST_LINE,
    Message,
    Token,
    ToolCall,
    break_long_lines,
    cap_lines,
    join_tokens,
    plain,
    shown_part,
    tint_of,
)
from studio.widgets.transcript.layout import MORE_LINES, Looks, lay_out_row
from studio.widgets.transcript.view import Transcript, token_tip
from tests.studio.gallery.parts import transcript_items

Key = Qt.Key


@given(st.text(max_size=200))
def test_plain_text_keeps_length_and_replaces_control_characters(text: str) -> None:
    out = plain(text)
    assert len(out) == len(text)
    assert not any(ord(mark) < 32 and mark != "\n" for mark in out)
    assert "\u202e" not in out


@given(st.text(alphabet="ab\n", max_size=9000))
def test_long_lines_are_broken_for_qt(text: str) -> None:
    out = break_long_lines(text)
    assert all(len(line) <= LONGEST_LINE for line in out.split("\n"))
    assert out.replace("\n", "") == text.replace("\n", "")


@given(st.lists(st.text(alphabet="xy \n", max_size=50), max_size=80))
def test_token_offsets_point_at_tokens(words: list[str]) -> None:
    text, starts = join_tokens([Token(w) for w in words], longest=60)
    for word, start in zip(words, starts, strict=True):
        assert text[start : start + len(word)] == word
    assert all(len(line) <= 60 for line in text.split("\n"))


def test_cap_lines_counts_omitted_lines() -> None:
    assert cap_lines("a\nb\nc", 2) == ("a\nb", 1)
    assert cap_lines("a", 2) == ("a", 0)


def test_only_trained_tokens_are_tinted() -> None:
    assert tint_of(Token("a", advantage=0.3), "advantage", 0.3) == "advantage-pos-3"
    assert tint_of(Token("a", advantage=0.3, trained=False), "advantage", 0.3) is None
    assert tint_of(Token("a", advantage=0.3), "none", 0.3) is None
    assert tint_of(Token("a"), "mask", 1) == "advantage-pos-2"
    assert tint_of(Token("a"), "entropy", 1) is None


def test_long_transcript_lays_out_visible_rows_only(qtbot: QtBot) -> None:
    view = Transcript()
    qtbot.addWidget(view)
    view.resize(800, 600)
    view.set_items([Message("assistant", f"message {n} " * 30, f"Turn {n}") for n in range(5000)])
    view.show()
    qtbot.waitExposed(view)
    view.viewport().grab()
    assert 0 < view.laid_out_count() < 60
    view.verticalScrollBar().setValue(view.verticalScrollBar().maximum())
    view.viewport().grab()
    assert view.laid_out_count() < 120
    view.focus_row(2500)
    view.viewport().grab()
    assert view.laid_out_count() < 200


def test_huge_result_is_capped_and_expands_by_key(qtbot: QtBot) -> None:
    view = Transcript()
    qtbot.addWidget(view)
    view.resize(700, 400)
    view.set_items([ToolCall("read", "id=1", "x" * 3_000_000 + "\nend")])
    view.show()
    view.viewport().grab()
    before = view._row(0).height
    assert before < 6000
    assert "more" in view._row(0).more_words
    view.focus_row(0)
    qtbot.keyClick(view, Key.Key_M)
    assert view._row(0).height > before


def test_markup_in_message_is_plain_text(qtbot: QtBot) -> None:
    view = Transcript()
    qtbot.addWidget(view)
    view.resize(700, 300)
    evil = '<img src="http://x/y.png"><b>b</b>\u202e'
    view.set_items([Message("user", evil)])
    assert view._row(0).blocks[0].layout.text() == evil.replace("\u202e", "\ufffd")


def test_keys_move_through_rows_tokens_and_tints(qtbot: QtBot) -> None:
    view = Transcript()
    qtbot.addWidget(view)
    view.resize(900, 900)
    view.set_items(transcript_items())
    view.show()
    qtbot.waitExposed(view)
    rows: list[int] = []
    tokens: list[Token] = []
    tints: list[str] = []
    view.row_focused.connect(rows.append)
    view.token_hovered.connect(lambda token: token and tokens.append(token))
    view.tint_chosen.connect(tints.append)
    qtbot.keyClick(view, Key.Key_J)
    qtbot.keyClick(view, Key.Key_J)
    qtbot.keyClick(view, Key.Key_K)
    assert rows == [0, 1, 0]
    for _ in range(3):
        qtbot.keyClick(view, Key.Key_Right, Qt.KeyboardModifier.ShiftModifier)
    assert [t.place for t in tokens] == [1200, 1201, 1202]
    qtbot.keyClick(view, Key.Key_2, Qt.KeyboardModifier.AltModifier)
    assert tints == ["logprob"]
    with pytest.raises(ValueError, match="rainbow"):
        view.set_tint("rainbow")


def test_hover_emits_token_under_pointer(qtbot: QtBot) -> None:
    view = Transcript()
    qtbot.addWidget(view)
    view.resize(900, 300)
    view.set_items(
        [Message("assistant", title="Turn", tokens=[Token("alpha ", 0.1), Token("beta", -0.2)])]
    )
    view.show()
    qtbot.waitExposed(view)
    view.viewport().grab()
    rect = view._row(0).blocks[0].rects_of(1)[0]
    at = QPoint(round(view._left() + rect.center().x()), round(view._tops[0] + rect.center().y()))
    hovered: list[Token] = []
    view.token_hovered.connect(lambda token: token and hovered.append(token))
    qtbot.mouseMove(view.viewport(), at)
    qtbot.waitUntil(lambda: bool(hovered), timeout=1000)
    assert hovered[0].text == "beta"


def test_token_tip_lists_advantage_and_logprobs() -> None:
    tip = token_tip(Token("retimed,", 0.31, -2.84, -2.71, clipped=True, place=1229))
    words = ["".join(span.words for span in line) for line in tip.lines]
    assert words == [
        "advantage +0.31",
        "log-prob \u22122.84 at sampling, \u22122.71 now",
        "clipped",
    ]
    assert tip.aside == "token 1,229"


def test_megabyte_lines_are_laid_out_in_chunks(qtbot: QtBot) -> None:
    big = "x" * 2_000_000
    for item in (Message("assistant", big, "Turn"), ToolCall("read", big, big)):
        started_at = time.perf_counter()
        row = lay_out_row(item, Looks(600), 0)
        assert time.perf_counter() - started_at < 0.25
        assert row.more is not None
        more = lay_out_row(item, Looks(600), MORE_LINES)
        assert more.height > row.height
    assert shown_part("a\nb\nc", 2, 100) == ("a\nb", 1)
    assert shown_part("ab\ncd", 9, 3) == ("ab\n", 1)
    assert shown_part("x" * 9000, 400, 1000)[1] == 4


def thinking_view(qtbot: QtBot) -> Transcript:
    thought = "Dana lands late. " * 30
    view = Transcript()
    qtbot.addWidget(view)
    view.resize(800, 600)
    view.set_items(
        [
            Message("user", "When?", "User"),
            Message("assistant", "At 15:10.", "Turn 1", reasoning=thought),
            Message(
                "assistant",
                title="Turn 2",
                tokens=[Token("At 16:10.")],
                reasoning="why so",
                reasoning_tokens=[Token("why"), Token(" so")],
            ),
        ]
    )
    view.show()
    qtbot.waitExposed(view)
    view.viewport().grab()
    return view


def shown_texts(view: Transcript, row: int) -> list[str]:
    return [block.layout.text() for block in view._row(row).blocks]


def test_forced_tokens_say_that_the_budget_closed_the_reasoning(qtbot: QtBot) -> None:
    view = thinking_view(qtbot)
    forced = Token("</think>", trained=False, forced=True, place=7)
    thoughts = [Token("why", 0.5), forced]
    view.set_items([Message("assistant", title="Turn 1", reasoning_tokens=thoughts)])
    assert view._row(0).fold_words == "Reasoning · 2 tokens · closed by the thinking budget"
    tip = token_tip(forced)
    assert [span.words for line in tip.lines for span in line] == [
        "Closed by the thinking budget; not trained"
    ]
    assert tint_of(forced, "mask", 1.0) is None


def test_reasoning_is_folded_until_its_header_is_clicked(qtbot: QtBot) -> None:
    view = thinking_view(qtbot)
    assert shown_texts(view, 1) == ["", "At 15:10."]
    assert view._row(2).fold_words == "Reasoning · 2 tokens"
    folded, fold = view._row(1).height, view._row(1).fold
    assert fold is not None
    centre = fold.center() + QPointF(view._left(), view._tops[1])
    qtbot.mousePress(view.viewport(), Qt.MouseButton.LeftButton, pos=centre.toPoint())
    assert shown_texts(view, 1)[0].startswith("Dana lands late.")
    assert view._row(1).height > folded + 40
    assert shown_texts(view, 2) == ["", "At 16:10."]
    qtbot.mousePress(view.viewport(), Qt.MouseButton.LeftButton, pos=centre.toPoint())
    assert view._row(1).height == folded


def test_key_shows_the_reasoning_of_all_turns_or_of_the_focused_one(qtbot: QtBot) -> None:
    view = thinking_view(qtbot)
    view.toggle_reasoning()
    assert shown_texts(view, 2) == ["why so", "At 16:10."]
    view.focus_row(1)
    view.toggle_reasoning()
    assert [shown_texts(view, row)[0] for row in (1, 2)] == ["", "why so"]


def test_hits_in_reasoning_unfold_it(qtbot: QtBot) -> None:
    view = thinking_view(qtbot)
    view.set_hits({"answer": re.compile("why|16:10")})
    assert view.hit_count() == 2
    view.next_hit()
    assert shown_texts(view, 2) == ["why so", "At 16:10."]
    assert view.show_passage("lands late")
    assert shown_texts(view, 1)[0].startswith("Dana")

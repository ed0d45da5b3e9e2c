"""Widgets construct, draw, have accessible names and work from the keyboard."""

from collections.abc import Callable

import pytest
import shiboken6
from PySide6.QtCore import QPoint, QRect, QSize, Qt
from PySide6.QtWidgets import QAbstractButton, QLineEdit, QMenu, QWidget
from pytestqt.qtbot import QtBot

from studio.theme.theme import Theme
from studio.widgets.cards.sheet import Sheet
from studio.widgets.cards.toast import Toast
from studio.widgets.controls.buttons import Button
from studio.widgets.controls.price_button import PriceButton
from studio.widgets.controls.segmented import Segmented
from studio.widgets.controls.train_button import TrainButton
from studio.widgets.forms.form import FormRow
from studio.widgets.forms.form_fields import ChoiceField, NumberField, SpinField
from studio.widgets.painting.focus import FocusRing
from studio.widgets.steps.step_strip import StepStrip
from studio.widgets.steps.strip_layout import StepCell, lay_out, merged_cell
from studio.widgets.tables.group_dots import place_dots
from studio.widgets.text.chip import Chip, FilterChip
from studio.widgets.text.chip_line import ChipLine
from studio.widgets.text.phrase import Phrase, Span
from studio.widgets.text.text import Text
from studio.widgets.text.tooltip import place_beside
from studio.widgets.window.page_header import PageHeader
from studio.widgets.window.sidebar import Sidebar
from tests.studio.gallery.pages import PAGES

Key = Qt.Key


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES.keys())
def test_gallery_page_draws_in_both_themes_with_accessible_names(
    page: Callable[[], QWidget], qtbot: QtBot, themed: Theme
) -> None:
    window = page()
    qtbot.addWidget(window)
    window.resize(1280, 800)
    window.show()
    for mode in ("dark", "light"):
        themed.set_mode(mode)
        qtbot.wait(40)
        assert not window.grab().isNull()
    nameless = [
        f"{type(w).__name__} in {type(w.parentWidget()).__name__}"
        for w in window.findChildren(QWidget)
        if w.focusPolicy() != Qt.FocusPolicy.NoFocus
        and w.isVisible()
        and isinstance(w, (QAbstractButton, QLineEdit))
        and not w.accessibleName()
        and w.objectName() != "qt_spinbox_lineedit"
    ]
    assert not nameless


def test_segmented_control_moves_with_arrow_keys(qtbot: QtBot) -> None:
    switch = Segmented(["Step", "Time", "Tokens", "Cost"], "x axis")
    qtbot.addWidget(switch)
    chosen: list[int] = []
    switch.chosen.connect(chosen.append)
    for key in (
        Key.Key_Right,
        Key.Key_Right,
        Key.Key_Left,
        Key.Key_End,
        Key.Key_Right,
        Key.Key_Home,
    ):
        qtbot.keyClick(switch, key)
    assert chosen == [1, 2, 1, 3, 0]
    assert switch.accessibleName() == "x axis: Step"
    switch.set_index(2)
    assert chosen[-1] == 0


@pytest.fixture
def strip(qtbot: QtBot) -> StepStrip:
    widget = StepStrip()
    qtbot.addWidget(widget)
    widget.resize(900, 40)
    cells = [StepCell(n, "done", n / 10) for n in range(10)]
    widget.set_steps([*cells, StepCell(10, "running"), StepCell(11, "planned")])
    widget.set_marks(validations=(0,), checkpoints=(9,), branches=(3,))
    return widget


def test_strip_selects_and_opens_steps_by_keyboard(strip: StepStrip, qtbot: QtBot) -> None:
    chosen: list[int] = []
    opened: list[int] = []
    strip.step_chosen.connect(chosen.append)
    strip.step_opened.connect(opened.append)
    for key in (
        Key.Key_Home,
        Key.Key_Right,
        Key.Key_Right,
        Key.Key_Left,
        Key.Key_End,
        Key.Key_Return,
    ):
        qtbot.keyClick(strip, key)
    assert chosen == [0, 1, 2, 1, 10]
    assert opened == [10]
    assert "step 10, running" in strip.accessibleName()


def test_empty_strip_ignores_keys(qtbot: QtBot) -> None:
    strip = StepStrip()
    qtbot.addWidget(strip)
    for key in (Key.Key_Left, Key.Key_Right, Key.Key_Home, Key.Key_End, Key.Key_Return):
        qtbot.keyClick(strip, key)
    assert strip.chosen() is None


@pytest.mark.parametrize(
    ("count", "width"), [(1, 900), (46, 900), (120, 1200), (2000, 900), (7, 30)]
)
def test_cells_cover_every_step_once_with_minimum_width(count: int, width: int) -> None:
    slots = lay_out(count, width)
    covered = [n for slot in slots for n in range(slot.first, slot.last + 1)]
    assert covered == list(range(count))
    assert all(slot.width >= 4 for slot in slots) or width < 5 * len(slots)
    assert slots[-1].x + slots[-1].width <= width + 1


def test_merged_cell_keeps_conspicuous_state() -> None:
    done = [StepCell(0, "done", 0.2), StepCell(1, "done", 0.4)]
    assert merged_cell(done).reward == pytest.approx(0.3)
    assert merged_cell([*done, StepCell(2, "stopped")]).state == "stopped"
    assert merged_cell([StepCell(0, "skipped", 0.5), StepCell(1, "planned")]).state == "skipped"


def test_dots_show_rewards_above_below_mean_and_unscored() -> None:
    dots = place_dots([0.1, 0.9, None], 60)
    assert [d.token for d in dots] == ["plot-5", "plot-1", "warn"]
    assert dots[2].hollow
    piled = place_dots([0.5] * 8, 60)
    assert {d.token for d in piled} == {"faint"}
    assert len({d.row for d in piled}) == 8
    assert place_dots([], 60) == []


def test_button_is_pressed_by_key_unless_busy(qtbot: QtBot) -> None:
    button = Button("Train", "primary", price="\u2248 $4.80")
    qtbot.addWidget(button)
    pressed: list[int] = []
    button.clicked.connect(lambda: pressed.append(1))
    qtbot.keyClick(button, Key.Key_Return)
    qtbot.keyClick(button, Key.Key_Space)
    assert len(pressed) == 2
    assert button.accessibleName() == "Train, \u2248 $4.80"
    button.set_busy("counting calls\u2026", 0.5)
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
    qtbot.keyClick(button, Key.Key_Return)
    assert len(pressed) == 2
    assert button.accessibleName() == "counting calls\u2026"


@pytest.mark.parametrize(
    ("state", "signal"),
    [
        ("ready", "train_requested"),
        ("paused", "resume_requested"),
        ("finished", "train_more_requested"),
    ],
)
def test_train_button_emits_signal_of_its_state(state: str, signal: str, qtbot: QtBot) -> None:
    train = TrainButton()
    qtbot.addWidget(train)
    train.set_state(state)
    with qtbot.waitSignal(getattr(train, signal), timeout=500):
        qtbot.mouseClick(train, Qt.MouseButton.LeftButton)


def test_queued_run_can_be_cancelled_from_menu(qtbot: QtBot) -> None:
    train = TrainButton()
    qtbot.addWidget(train)
    train.set_state("queued", 0, 5)
    assert train.words() == "Queued"
    train.show()
    qtbot.mouseClick(train, Qt.MouseButton.LeftButton)
    (menu,) = train.findChildren(QMenu)
    with qtbot.waitSignal(train.menu_chosen, timeout=500) as chosen:
        qtbot.keyClick(menu, Key.Key_Down)
        qtbot.keyClick(menu, Key.Key_Return)
    assert chosen.args == ["stop_now"]
    qtbot.waitUntil(lambda: not train.findChildren(QMenu))


def test_button_over_budget_cannot_be_pressed(qtbot: QtBot) -> None:
    button = PriceButton()
    qtbot.addWidget(button)
    pressed: list[int] = []
    button.pressed.connect(lambda: pressed.append(1))
    button.set_over_budget("Re-judge", "$0.31", "$0.31 of $0.12 left")
    button._button.click()
    assert not pressed
    button.set_priced("Re-judge", "$0.31")
    button._button.click()
    assert pressed


def test_chip_line_hides_chips_without_widening(qtbot: QtBot) -> None:
    line = ChipLine()
    qtbot.addWidget(line)
    chips = [Chip(words) for words in ("groups 4", "base url http://127.0.0.1", "steps 9")]
    line.set_chips(chips)
    line.resize(1000, 20)
    line.show()
    assert line.shown() == chips
    assert chips[-1].geometry().right() == 999
    line.resize(chips[0].sizeHint().width() + 40, 20)
    assert line.shown() == chips[:1]
    assert line.minimumSizeHint().width() <= 0


def test_filter_chip_toggles_and_is_removed_by_key(qtbot: QtBot) -> None:
    chip = FilterChip("Disagree", "4")
    qtbot.addWidget(chip)
    qtbot.keyClick(chip, Key.Key_Space)
    assert chip.accessibleName() == "Filter Disagree 4, on"
    with qtbot.waitSignal(chip.removed, timeout=500):
        qtbot.keyClick(chip, Key.Key_Delete)
    with pytest.raises(ValueError, match="pink"):
        Chip("x", "pink")


def test_sidebar_rows_are_disabled_without_project(qtbot: QtBot) -> None:
    side = Sidebar()
    qtbot.addWidget(side)
    assert not side._rows["run"].isEnabled()
    side.set_project("inbox-scout")
    side.set_fact("judge", "\u03c4 0.71")
    assert side._rows["judge"].accessibleName() == "Judge, \u03c4 0.71"
    with qtbot.waitSignal(side.place_chosen, timeout=500) as signal:
        qtbot.keyClick(side._rows["run"], Key.Key_Return)
    assert signal.args == ["run"]
    side.set_folded(True)
    assert side.width() == 56


def test_focus_ring_is_shown_for_keyboard_focus_only(qtbot: QtBot) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    window.resize(300, 100)
    first, second = Button("One", parent=window), Button("Two", parent=window)
    first.setGeometry(20, 20, 80, 28)
    second.setGeometry(120, 20, 80, 28)
    window.show()
    qtbot.waitExposed(window)
    window.activateWindow()
    qtbot.waitUntil(window.isActiveWindow, timeout=2000)
    second.setFocus(Qt.FocusReason.MouseFocusReason)
    first.setFocus(Qt.FocusReason.TabFocusReason)
    rings = window.findChildren(FocusRing)
    assert len(rings) == 1
    assert rings[0].geometry() == QRect(16, 16, 88, 36)
    second.setFocus(Qt.FocusReason.MouseFocusReason)
    assert rings[0].isHidden()


def test_links_in_phrase_are_reached_by_keyboard(qtbot: QtBot) -> None:
    phrase = Phrase([Span("a "), Span("one", link="1"), Span(" b "), Span("two", link="2")])
    qtbot.addWidget(phrase)
    phrase.show()
    phrase.setFocus(Qt.FocusReason.TabFocusReason)
    links: list[str] = []
    phrase.link_activated.connect(links.append)
    qtbot.keyClick(phrase, Key.Key_Return)
    qtbot.keyClick(phrase, Key.Key_Right)
    qtbot.keyClick(phrase, Key.Key_Return)
    assert links == ["1", "2"]


def test_text_label_uses_plain_text(qtbot: QtBot) -> None:
    label = Text("<b>bold</b>")
    qtbot.addWidget(label)
    assert label.textFormat() == Qt.TextFormat.PlainText


def test_form_fields_emit_user_edits_only(qtbot: QtBot) -> None:
    spin, number, choice = (
        SpinField("Steps"),
        NumberField("Rate", 0, 1),
        ChoiceField("Loss", [("a", "A"), ("b", "B")]),
    )
    edits: list[tuple[str, object]] = []
    for key, field in (("spin", spin), ("number", number), ("choice", choice)):
        row = FormRow(key, key, field, help="<i>help</i>")
        qtbot.addWidget(row)
        row.edited.connect(lambda name, value: edits.append((name, value)))
        assert "<i>" not in row.toolTip()
    spin.set_value(120)
    number.set_value(2e-5)
    choice.set_value("b")
    assert edits == []
    assert (spin.value(), number.value(), choice.value()) == (120, 2e-5, "b")
    qtbot.keyClick(spin.editor, Key.Key_Up)
    number.editor.selectAll()  # type: ignore[attr-defined]
    qtbot.keyClicks(number.editor, "x")
    assert edits == [("spin", 121), ("number", None)]
    assert number.problem() == "Not a number"


def test_focus_ring_survives_deletion_of_its_widget(qtbot: QtBot) -> None:
    host = QWidget()
    qtbot.addWidget(host)
    first, second = Button("One", parent=host), Button("Two", parent=host)
    second.move(0, 60)
    host.show()
    ring = FocusRing(host)
    ring.surround(first, 6.0)
    shiboken6.delete(first)
    ring.surround(second, 6.0)
    assert ring.geometry().center() == second.geometry().center()


def test_closed_sheet_returns_focus(qtbot: QtBot) -> None:
    host = QWidget()
    qtbot.addWidget(host)
    host.resize(900, 500)
    button = Button("Export", parent=host)
    sheet = Sheet("Export", host)
    host.show()
    qtbot.waitExposed(host)
    button.setFocus()
    sheet.open()
    assert sheet.is_open()
    assert sheet.geometry() == QRect(480, 0, 420, 500)
    qtbot.keyClick(sheet, Key.Key_Escape)
    assert not sheet.isVisible()
    assert host.focusWidget() is button


def test_toast_has_undo(qtbot: QtBot) -> None:
    host = QWidget()
    qtbot.addWidget(host)
    host.resize(900, 500)
    host.show()
    toast = Toast(host)
    toast.say("6 labelled best.", undo="Undo")
    assert toast.words() == "6 labelled best."
    with qtbot.waitSignal(toast.undo_requested, timeout=500):
        toast._undo.click()
    assert toast.words() == ""


@pytest.mark.parametrize("x", [5, 400, 795])
@pytest.mark.parametrize("y", [5, 300, 595])
def test_tooltip_stays_inside_and_beside_its_point(x: int, y: int) -> None:
    room, size = QRect(0, 0, 800, 600), QSize(180, 80)
    corner = place_beside(QPoint(x, y), size, room)
    assert room.contains(QRect(corner, size))
    assert not QRect(corner, size).contains(QPoint(x, y))


def test_long_choice_is_elided(qtbot: QtBot) -> None:
    field = ChoiceField("Model", [("m", "SmolLM2 135M Instruct · 134.5M parameters")], width_px=160)
    qtbot.addWidget(field)
    field.show()
    assert field.editor.shown_words().endswith("…")  # type: ignore[attr-defined]
    field.editor.setFixedWidth(600)
    assert field.editor.shown_words().endswith("parameters")  # type: ignore[attr-defined]


def test_engine_facts_yield_before_the_state_of_the_run(qtbot: QtBot) -> None:
    header = PageHeader()
    qtbot.addWidget(header)
    header.set_place("Customer support triage", "lilac-kingfisher")
    header.pill.set_engine("This machine · CPU · 2 cores", "connected")
    header.chip.set_run_state("alive", "Step 14 · training")
    header.resize(1072, 48)
    header.show()
    assert header.chip.width() == header.chip.sizeHint().width()
    assert header.pill.width() < header.pill.sizeHint().width()
    pill = header.pill
    assert pill.words_in(pill.sizeHint().width()) == "This machine · CPU · 2 cores"
    assert pill.words_in(pill.sizeHint().width() - 40) == "This machine · CPU"
    assert pill.words_in(10) == "This machine"

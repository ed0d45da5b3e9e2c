"""Sidebar: logo, Home, the six pages of the project with live figures, Models, Settings. 208 px
wide; collapsed 56 px, with icons and tooltips. The card of the active run is above Settings."""

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QSize, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from studio.theme.plain_tooltips import set_tip
from studio.theme.theme import theme
from studio.widgets.cards.now_training import NowTraining
from studio.widgets.controls.keycap import KeyCap
from studio.widgets.layouts import STRETCH, add, vbox
from studio.widgets.painting import paint
from studio.widgets.text.text import Text
from studio.widgets.window.sidebar_row import SidebarRow

WIDE_PX, FOLDED_PX = 208, 56


@dataclass(frozen=True)
class Place:
    """Destination: id, label, icon."""

    key: str
    words: str
    icon: str


HOME = Place("home", "Home", "house")
MODELS = Place("models", "Models", "box")
SETTINGS = Place("settings", "Settings", "settings")
PROJECTLESS = (HOME.key, MODELS.key, SETTINGS.key)
PROJECT_PLACES = (
    Place("runs", "Runs", "rows-3"),
    Place("setup", "Setup", "sliders-horizontal"),
    Place("judge", "Judge", "scale"),
    Place("run", "Run", "activity"),
    Place("trajectories", "Trajectories", "git-fork"),
    Place("checkpoints", "Checkpoints", "layers"),
)


class Sidebar(QWidget):
    """Sidebar: `set_project(name)` enables the six pages; `set_fact("judge", "τ 0.71")` sets a
    figure."""

    place_chosen = Signal(str)
    commands_requested = Signal()

    def __init__(
        self, places: Sequence[Place] = PROJECT_PLACES, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._folded = False
        self._rows = {
            place.key: SidebarRow(place.words, place.icon)
            for place in (HOME, *places, MODELS, SETTINGS)
        }
        self._rows["settings"].set_fact("Ctrl ,")
        self._brand = _Brand()
        self._heading = Text("", "caption", 500, "faint", elide=True)
        self.now_training = NowTraining()
        self._build()
        for key, row in self._rows.items():
            row.clicked.connect(lambda _=False, key=key: self.place_chosen.emit(key))
        self._brand.key_pressed.connect(self.commands_requested)
        self.set_project(None)
        self.set_folded(False)

    def set_project(self, name: str | None) -> None:
        """Set the name of the project, or None: its pages are then disabled."""
        self._heading.set_words(name if name is not None else "Open a project")
        for key, row in self._rows.items():
            if key not in PROJECTLESS:
                row.setEnabled(name is not None)

    def set_fact(self, key: str, fact: str, tone: str = "muted") -> None:
        """Set the figure `fact` at the end of the sidebar row `key`, such as "46/120"."""
        self._rows[key].set_fact(fact, tone)

    def set_selected(self, key: str) -> None:
        """Select a row."""
        for name, row in self._rows.items():
            row.setChecked(name == key)

    def set_folded(self, folded: bool) -> None:
        """Collapse to 56 px with icons and tooltips, or expand."""
        self._folded = folded
        self.setFixedWidth(FOLDED_PX if folded else WIDE_PX)
        for row in self._rows.values():
            row.set_folded(folded)
        self._brand.set_folded(folded)
        self._heading.setVisible(not folded)
        self.now_training.set_folded(folded)

    def is_folded(self) -> bool:
        return self._folded

    def _build(self) -> None:
        column = vbox(
            self._brand, self._rows["home"], 17, parent=self, margins=(8, 0, 9, 9), spacing=2
        )
        indented = vbox(self._heading, margins=(8, 0, 8, 5))
        column.addLayout(indented)
        for key, row in self._rows.items():
            if key not in PROJECTLESS:
                column.addWidget(row)
        add(column, STRETCH, self.now_training, 6, self._rows["models"], self._rows["settings"])

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), theme().color("background"))
        painter.fillRect(self.width() - 1, 0, 1, self.height(), theme().color("border"))
        painter.end()


class _Brand(QWidget):
    """Logo, name, and shortcut of the command palette."""

    key_pressed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setFixedHeight(46)
        self._folded = False
        self._cap = KeyCap("Ctrl K")
        self._cap.setParent(self)
        set_tip(self._cap, "All commands")

    def set_folded(self, folded: bool) -> None:
        self._folded = folded
        self._cap.setVisible(not folded)
        self.update()

    def mouseReleaseEvent(self, event: object) -> None:
        self.key_pressed.emit()

    def resizeEvent(self, event: object) -> None:
        size = self._cap.sizeHint()
        self._cap.setGeometry(self.width() - size.width() - 7, 14, size.width(), size.height())

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            ratio = self.devicePixelRatioF()
            x = (self.width() - 20) / 2 if self._folded else 8
            painter.drawPixmap(paint.QPointF(x, 14), theme().drawing("mark", QSize(20, 20), ratio))
            if not self._folded:
                room = paint.QRectF(36, 0, 80, 48)
                paint.text(painter, room, "Atelier", "text", "heading", 600)

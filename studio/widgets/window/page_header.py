"""Page header, 48 px high: location at the left, actions on the run at the right."""

import math

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from studio.theme.theme import theme
from studio.widgets.controls.buttons import Button
from studio.widgets.controls.train_button import TrainButton
from studio.widgets.layouts import hbox
from studio.widgets.painting import paint
from studio.widgets.tables.state_chip import StateChip
from studio.widgets.text.text import Text
from studio.widgets.window.engine_pill import EnginePill

NARROW_PX = 1060
"""Width of the header below which the actions on the run are icons."""
LEAST_RUN_PX, LEAST_PLACE_PX = 72, 120
PAUSING = "Pausing\u2026"


class PageHeader(QWidget):
    """Header: project / run, engine pill, state chip; Pause, Stop, Branch and Train. The parts are
    public (`pill`, `chip`, `train`) so that their own setters are used. On Home use
    `set_place("Home")`, `show_run_actions(False)` and `add_action(button)`."""

    project_requested = Signal()
    run_menu_requested = Signal()
    engine_requested = Signal()
    pause_requested = Signal()
    stop_requested = Signal()
    branch_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFixedHeight(48)
        self._place = Text("", "heading", 600, elide=True)
        self._slash = Text("/", "body", 400, "faint")
        self._run = Button("", "quiet", menu_arrow=True, height=28)
        self._run.set_text_style("body", 400)
        self._run.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self._run.set_shrinks(LEAST_RUN_PX)
        self.pill = EnginePill()
        self.chip = StateChip()
        self.train = TrainButton()
        self._pause = Button("Pause", "quiet", icon="pause")
        self._stop = Button("Stop", "quiet", icon="square")
        self._branch = Button("Branch", "quiet", icon="git-branch")
        self._build()
        self._run.clicked.connect(self.run_menu_requested)
        self.pill.clicked.connect(self.engine_requested)
        self._pause.clicked.connect(self.pause_requested)
        self._stop.clicked.connect(self.stop_requested)
        self._branch.clicked.connect(self.branch_requested)
        self.set_place("")

    def set_place(self, place: str, run: str = "") -> None:
        """Set project and run name in the header, or a page: `set_place("Home")`."""
        self._place.set_words(place)
        width = self._place.sizeHint().width()
        self._place.setMinimumWidth(min(width, LEAST_PLACE_PX))
        self._place.setMaximumWidth(width)
        self._slash.setVisible(bool(run))
        self._run.setVisible(bool(run))
        self._run.set_words(run)
        self._run.setAccessibleName(f"Run {run}, select another")

    def set_actions(self, *, pause: bool, stop: bool, branch: bool, pausing: bool = False) -> None:
        """Set which secondary buttons are enabled; all of them keep their place. `pausing`: a pause
        was requested and has not begun."""
        self._pause.setEnabled(pause)
        self._pause.set_busy(PAUSING if pausing else None)
        self._stop.setEnabled(stop)
        self._branch.setEnabled(branch)

    def show_run_actions(self, shown: bool) -> None:
        """Show the run's actions and state; False on Home and Settings, which have no run."""
        for part in (self._pause, self._stop, self._branch, self.train, self.chip):
            part.setVisible(shown)

    def add_action(self, button: QWidget) -> None:
        """Add a page's own button before Train."""
        self._line.insertWidget(self._line.count() - 1, button)

    def _build(self) -> None:
        self._line = hbox(parent=self, margins=(16, 0, 16, 1), spacing=8)
        place = QWidget()  # its texts are elided before the actions would move
        place.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        policy = QSizePolicy.Policy
        self._place.setSizePolicy(policy.Preferred, policy.Preferred)
        crumbs = hbox(self._place, 9, self._slash, self._run, spacing=0)
        line = hbox(crumbs, parent=place, spacing=8)
        for part in (self.pill, self.chip):
            line.addWidget(part, 0, Qt.AlignmentFlag.AlignVCenter)
        line.addStretch(1)
        self._line.addWidget(place, 1)
        for button in (self._pause, self._stop, self._branch, self.train):
            self._line.addWidget(button, 0, Qt.AlignmentFlag.AlignVCenter)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        narrow = self.width() < NARROW_PX
        for button in (self._pause, self._stop, self._branch):
            button.set_icon_only(narrow)
        longer = paint.text_width(PAUSING, "label", 500) - paint.text_width("Pause", "label", 500)
        usual = QSize(self._pause.sizeHint())
        room = 0 if narrow or self._pause.is_busy() else math.ceil(longer)
        self._pause.setFixedWidth(usual.width() + room)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), theme().color("background"))
        painter.fillRect(0, self.height() - 1, self.width(), 1, theme().color("border"))
        painter.end()

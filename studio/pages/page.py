"""What every page is: a widget that is told when it comes into view, with its own task scope."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QScrollArea, QSplitter, QWidget

from engine.protocol.problems import Problem
from studio.runtime.tasks import TaskScope
from studio.services.session import Session


class Page(QWidget):
    """Base of the pages. Jobs of a page run in `tasks`; their failures reach the notifier."""

    def __init__(self, session: Session, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.session = session
        self.tasks = TaskScope(self)
        self.tasks.failed.connect(self._raise)

    def enter(self) -> None:
        """It comes into view: load what it shows."""

    def save(self) -> None:
        """Ctrl S while it is in view: most pages have nothing that is not kept already."""

    def leave(self) -> None:
        """It goes out of view."""

    async def close_tasks(self) -> None:
        await self.tasks.close()

    def _raise(self, name: str, problem: Problem) -> None:
        self.session.problem_raised.emit(problem)

    def remember_splitter(self, key: str, splitter: QSplitter) -> None:
        """Restore a splitter's place, and keep it when a person moves it."""
        splitter.setChildrenCollapsible(False)
        settings = self.session.settings
        if sizes := settings.current.splitters.get(key):
            splitter.setSizes(sizes)

        def keep() -> None:
            kept = {**settings.current.splitters, key: splitter.sizes()}
            settings.update(splitters=kept)

        splitter.splitterMoved.connect(keep)


def scrolled(content: QWidget) -> QScrollArea:
    """Content that scrolls inside its pane, up and down only."""
    area = QScrollArea()
    area.setWidgetResizable(True)
    area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    content.setProperty("transparent", True)
    area.setWidget(content)
    area.viewport().setAutoFillBackground(False)
    content.setAutoFillBackground(False)
    return area

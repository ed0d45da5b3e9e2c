"""Base class of pages: a widget with enter and leave hooks and its own task scope."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QScrollArea, QSplitter, QWidget

from engine.protocol.problems import Problem
from studio.runtime.tasks import TaskScope
from studio.services.session import Session


class Page(QWidget):
    """Base of the pages. Jobs run in `tasks`; their failures reach the notifier."""

    def __init__(self, session: Session, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.session = session
        self.tasks = TaskScope(self)
        self.tasks.failed.connect(self._raise)

    def enter(self) -> None:
        """Load the content when the page becomes visible."""

    def save(self) -> None:
        """Save unsaved changes (Ctrl S); most pages have none."""

    def leave(self) -> None:
        """React to the page becoming hidden, for example stop polling."""

    async def close_tasks(self) -> None:
        await self.tasks.close()

    def _raise(self, name: str, problem: Problem) -> None:
        self.session.problem_raised.emit(problem)

    def remember_splitter(self, key: str, splitter: QSplitter) -> None:
        """Restore the position of a splitter from the settings, and store changes under `key`."""
        splitter.setChildrenCollapsible(False)
        settings = self.session.settings
        if sizes := settings.current.splitters.get(key):
            splitter.setSizes(sizes)

        def keep() -> None:
            kept = {**settings.current.splitters, key: splitter.sizes()}
            settings.update(splitters=kept)

        splitter.splitterMoved.connect(keep)


def scrolled(content: QWidget) -> QScrollArea:
    """Wrap content in a vertical scroll area."""
    area = QScrollArea()
    area.setWidgetResizable(True)
    area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    content.setProperty("transparent", True)
    area.setWidget(content)
    area.viewport().setAutoFillBackground(False)
    content.setAutoFillBackground(False)
    return area

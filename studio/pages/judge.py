"""Judge: an honest empty page. Judging is not built yet, and it says so."""

from PySide6.QtWidgets import QVBoxLayout, QWidget

from studio.actions import Actions
from studio.pages.page import Page
from studio.session import Session
from studio.widgets.empty_page import EmptyPage, Preparation


class JudgePage(Page):
    """What it will hold, and what scores attempts until then."""

    def __init__(self, session: Session, actions: Actions, parent: QWidget | None = None) -> None:
        super().__init__(session, parent)
        self._empty = EmptyPage(
            "No judge yet",
            "Here a rubric in plain words will rank the attempts of each group, and you will see "
            "how often it agrees with you. This version scores with rules only.",
            drawing="rows",
        )
        self._empty.set_actions("Open Setup", icon="sliders-horizontal")
        self._empty.action_requested.connect(lambda: actions.trigger("go.setup"))
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(self._empty)
        session.project_changed.connect(self._refresh)
        session.run.changed.connect(self._refresh)

    def enter(self) -> None:
        self._refresh()

    def _refresh(self) -> None:
        if not self.isVisible():
            return
        names = [n.removeprefix("reward/part/") for n in self.session.run.names("reward/part/")]
        words = ", ".join(names) if names else "returned by the agent or by rewards.py"
        self._empty.set_preparations(
            [
                Preparation("rules", "Rules score every attempt", words, done=True),
                Preparation("rubric", "Rubric", "rubric.md is kept in the project, not used yet"),
            ]
        )

"""Trust in the open project: a bar above the pages, and its confirmation dialog. The engine decides
what is refused; the bar shows the reason and lets the user confirm."""

from pydantic import TypeAdapter, ValidationError
from PySide6.QtCore import QObject, QPointF, QRectF, Slot
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QWidget

from engine.protocol.problems import AtelierError, Problem
from engine.protocol.requests.runs import EditProject
from engine.protocol.requests.trust import (
    AddressConfirmation,
    Confirmation,
    FileConfirmation,
    TrustProject,
)
from studio.services.notifications import Choice, ask
from studio.services.session import Session
from studio.theme.theme import theme
from studio.widgets.controls.buttons import Button
from studio.widgets.layouts import hbox
from studio.widgets.painting import paint
from studio.widgets.text.text import Text

CONFIRMATIONS: TypeAdapter[Confirmation] = TypeAdapter(Confirmation)
CODES = ("project.untrusted", "address.unconfirmed", "file.outside")
"""Problem codes that a confirmation resolves, which is JSON in the detail of the problem."""
BUTTONS = {"project": "Trust this project", "address": "Confirm address", "file": "Confirm file"}
ICON_PX = 16
SANDBOX = (
    "\n\nIn a sandbox, its agent sees only system folders and the project, writes to a scratch "
    "folder, and reaches the model alone (agent.sandbox in project.toml)."
)
UNTRUSTED = "This project is not trusted. None of its code runs and nothing is sent."


def confirmation_of(problem: Problem) -> Confirmation | None:
    """Return the confirmation by the user that would resolve the problem; None if none would."""
    if problem.code not in CODES:
        return None
    try:
        return CONFIRMATIONS.validate_json(problem.detail)
    except ValidationError:
        return None


def question_of(wanted: Confirmation) -> tuple[str, str]:
    """Return title and text of the dialog for a confirmation."""
    match wanted:
        case AddressConfirmation():
            return (
                f"Send to {wanted.address}?",
                f"This is not the official address of {wanted.provider}. The server will receive "
                f"your {wanted.provider} key and all requests. Confirm only if the server is "
                "yours or you trust it.",
            )
        case FileConfirmation():
            return (
                "Read a file outside the project?",
                f"The settings refer to {wanted.path}. The file may be sent to models and judges.",
            )
        case _:
            return (
                "Trust this project?",
                f"{wanted.project}\n\nIts agent, MCP servers and packages will run under your "
                "account with access to your files and network, and its judges can use your API "
                "keys. Review agent.py, mcp.json and project.toml first.",
            )


class TrustBar(QWidget):
    """Bar shown while the open project needs a confirmation, such as trust in its code."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFixedHeight(44)
        self._words = Text("", "body", elide=True)
        self.button = Button("", "primary", icon="shield-check", height=28)
        hbox(
            (self._words, 1), self.button, parent=self, margins=(ICON_PX + 34, 0, 16, 0), spacing=12
        )
        self.hide()

    def show_confirmation(self, wanted: Confirmation | None, words: str) -> None:
        """Show in the bar what the user has to confirm, as `words`; None hides the bar."""
        self.setVisible(wanted is not None)
        if wanted is not None:
            self._words.set_words(words)
            self.button.set_words(BUTTONS[wanted.kind])
            self.button.setAccessibleName(BUTTONS[wanted.kind])

    def words(self) -> str:
        """Return the text of the notice."""
        return self._words.words()

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            painter.fillRect(self.rect(), theme().color("warn-soft"))
            edge = QRectF(0, self.height() - 1, self.width(), 1)
            painter.fillRect(edge, theme().color("warn-line"))
            place = QPointF(24, (self.height() - ICON_PX) / 2)
            paint.icon(painter, place, "triangle-alert", "warn", ICON_PX)


class TrustController(QObject):
    """Controller of the trust bar of a window: shows the confirmation that the open project
    needs, and asks for it."""

    def __init__(self, window: QWidget, bar: TrustBar, session: Session) -> None:
        super().__init__(window)
        self._window, self._bar, self._session = window, bar, session
        self._wanted: Confirmation | None = None
        session.project_changed.connect(self._show)
        session.problem_raised.connect(self._refused)
        bar.button.clicked.connect(self._clicked)

    @Slot()
    def _show(self) -> None:
        view = self._session.project.view
        found: Confirmation | None = None
        words = ""
        if view is not None and not view.trusted:
            found, words = TrustProject(project=view.path), UNTRUSTED
        for problem in view.problems if view is not None else []:
            if found is None and (found := confirmation_of(problem)) is not None:
                words = problem.message
        self._wanted = found
        self._bar.show_confirmation(found, words)

    @Slot(object)
    def _refused(self, problem: Problem) -> None:
        """Show a confirmation that is missing in the project view, after a request was refused for
        lack of it."""
        if (wanted := confirmation_of(problem)) is not None:
            self._wanted = wanted
            self._bar.show_confirmation(wanted, problem.message)

    @Slot()
    def _clicked(self) -> None:
        if (wanted := self._wanted) is not None:
            self._session.tasks.run("trust", self._ask(wanted))

    async def _ask(self, wanted: Confirmation) -> None:
        client = self._session.client
        title, words = question_of(wanted)
        yes = Choice("yes", BUTTONS[wanted.kind], "primary")
        choices = [Choice("", "Cancel"), yes]
        if isinstance(wanted, TrustProject) and await self._can_sandbox(wanted.project):
            words += SANDBOX
            yes = Choice("yes", BUTTONS[wanted.kind])
            choices = [choices[0], yes, Choice("sandbox", "Trust in a sandbox", "primary")]
        answer, _ = await ask(self._window, title, words, choices)
        if not answer:
            return
        await client.confirm(wanted)
        path = self._session.project.path
        if answer == "sandbox" and isinstance(wanted, TrustProject):
            edit = EditProject(values={"agent.sandbox": "process"})
            await client.edit_project(wanted.project, edit)
        if path:
            self._session.show_project(await client.project(path))

    async def _can_sandbox(self, project: str) -> bool:
        """Whether the project's agent could run in a sandbox and is not set to."""
        view = self._session.project.view
        if view is None or view.path != project or view.config is None:
            return False
        if view.config.agent.sandbox != "none" or view.config.agent.source == "outside":
            return False
        try:
            values = {"agent.sandbox": "process"}
            checks = await self._session.client.model_checks(project, values)
        except AtelierError:  # the question is asked without this choice
            return False
        return any(one.name == "Sandbox" and one.state == "good" for one in checks)

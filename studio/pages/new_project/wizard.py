"""Wizard that creates a project from a task description in three steps. Closing it stops the
generation; generated text is stored in the project, and the wizard reopens at the same place."""

from contextlib import aclosing
from pathlib import Path
from typing import Literal

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QWidget

from engine.protocol.problems import Problem
from engine.protocol.records.judging import JudgeOption
from engine.protocol.records.runs import ProjectView
from engine.protocol.requests.drafts import DescribeTask, FinishProject
from studio.pages.new_project.draft_step import DraftStep
from studio.pages.new_project.finish_step import FinishStep
from studio.pages.new_project.task_step import TaskStep
from studio.runtime.tasks import TaskScope
from studio.services.session import Session
from studio.store.projects import draft
from studio.widgets.cards.sheet import Sheet
from studio.widgets.controls.buttons import Button
from studio.widgets.layouts import add
from studio.widgets.text.text import Text

Step = Literal["task", "draft", "finish"]
TITLES: dict[Step, str] = {
    "task": "Step 1 of 3 · Task",
    "draft": "Step 2 of 3 · Draft",
    "finish": "Step 3 of 3 · Project",
}
WIDTH_PX = 860
NEXT_KEY = "Ctrl+Return"


class DescribeSheet(Sheet):
    """Wizard sheet: `begin()` opens it, `go_on(view)` resumes a draft. Emits `made(view,
    measure)` for the new project, `measure` being whether to measure the baseline."""

    made = Signal(object, bool)

    def __init__(self, session: Session, tasks: TaskScope, workspace: Path, host: QWidget) -> None:
        super().__init__("New project from a description", host, WIDTH_PX)
        self._session, self._tasks = session, tasks
        self._at: Step = "task"
        self._request: DescribeTask | None = None
        self.writing = False
        self._step = Text("", "caption", 500, "faint")
        self.task = TaskStep(session, tasks, workspace, host)
        self.draft, self.finish = DraftStep(), FinishStep()
        self._parts: dict[Step, QWidget] = {
            "task": self.task, "draft": self.draft, "finish": self.finish,
        }  # fmt: skip
        self._note = Text("", "label", 400, "muted", elide=True)
        self._back = Button("Back", "quiet", height=32)
        self._anew = Button("Start over", "quiet", height=32)
        self._stop = Button("Stop", "outlined", icon="square", height=32)
        self._more = Button("Generate more", "outlined", icon="sparkles", height=32)
        self._main = Button("Generate", "primary", icon="sparkles", height=32)
        self._build()
        self._wire()
        self._forget()

    def begin(self) -> None:
        """Open the wizard at the step where it was closed, or an empty one."""
        self._open()

    def go_on(self, view: ProjectView) -> None:
        """Open the wizard where the generation of the unfinished project `view` stopped."""
        if self._request is None or self._request.folder != view.path:
            self._forget()
            self.task.go_on(view)
        self._open()

    def _open(self) -> None:
        self._tasks.run("writers", self._session.client.judges(), self._take_options)
        self._tasks.run("models", self._session.client.models(), self.finish.set_models)
        self._show(self._at)
        self.open()
        self._first(self._at).setFocus()

    def _take_options(self, options: list[JudgeOption]) -> None:
        used = [str(self._session.settings.current.writer.get("model", ""))]
        for project in self._session.projects:
            if project.config is not None:
                used += project.config.judge.models
        named = [name for name in used if name]
        self.task.set_options(options, named)
        self.finish.set_options(options, named)

    def _forget(self) -> None:
        self._request = None
        self._at = "task"
        self.task.begin()
        self.draft.begin()
        self.finish.begin()

    # User actions

    def _press(self) -> None:
        """Perform the primary action of the current step (button or Ctrl Enter)."""
        if not self._main.isEnabled() or self._main.isHidden():
            return
        match self._at:
            case "task":
                self._write()
            case "draft":
                assert self._request is not None
                self.finish.show_draft(self.draft.draft(), self._request.writer)
                self._show("finish")
            case "finish":
                self._create()

    def _write(self) -> None:
        request = self.task.request()
        if request is None:
            return
        if self._request is None or _subject(self._request) != _subject(request):
            self.draft.begin()
        self._request = request
        self._session.settings.update(writer=request.writer.model_dump(exclude_none=True))
        self.draft.expect(request.count, request.writer.budget_usd)
        self.writing = True
        self._tasks.run("write", self._tell(request), self._ended, self._refused)
        self._show("draft")

    async def _tell(self, request: DescribeTask) -> None:
        await self._session.lend_keys([request.writer.model])
        async with aclosing(self._session.client.write_draft(request)) as ticks:
            async for one in ticks:
                self.draft.show_generated(one)
                self._show_foot()

    def _ended(self, _: object) -> None:
        self.writing = False
        self._session.refresh()
        self._show_foot()

    def _refused(self, problem: Problem) -> None:
        """Show a problem; return to step 1 if nothing was generated."""
        self.writing = False
        if self.draft.has_content:
            self.draft.refuse(problem)
            self._show_foot()
        else:
            self._show("task")
            self.task.refuse(problem)

    def _halt(self) -> None:
        """Stop the generation; generated text is kept."""
        if self.writing:
            self.writing = False
            self._tasks.cancel("write")
            self.draft.stopped()
            self._session.refresh()
            self._show_foot()

    def _step_back(self) -> None:
        if self._at == "draft":
            self._halt()
        self._show("task" if self._at == "draft" else "draft")

    def _begin_anew(self) -> None:
        self._forget()
        self._show("task")

    def _create(self) -> None:
        judge = self.finish.judge.writer()
        if judge is None or self._request is None:
            return
        request = FinishProject(
            folder=self._request.folder,
            description=self._request.description,
            draft=self.draft.draft(),
            learner=self.finish.learner.value().strip(),
            judge=judge,
            tools=self.task.tools.wanted.isChecked(),
        )
        self._main.set_busy("Creating the project")
        call = self._session.client.finish_project(request)
        self._tasks.run("create", call, self._created, self._not_created)

    def _created(self, view: ProjectView) -> None:
        self._main.set_busy(None)
        measure = self.finish.measure.isChecked()
        self._forget()
        self.close_sheet()
        self.made.emit(view, measure)

    def _not_created(self, problem: Problem) -> None:
        self._main.set_busy(None)
        self.finish.refuse(problem)

    def _left(self) -> None:
        """Stop the generation when the sheet is closed, to avoid further cost."""
        if self.writing:
            self._halt()
            self._session.notice.emit(f"Generation was stopped. {draft.KEPT}")

    # State

    def _show(self, step: Step) -> None:
        self._at = step
        self._step.set_words(TITLES[step])
        self._parts[step].setVisible(True)
        self._show_foot()
        self._first(step).setFocus()
        for name, part in self._parts.items():
            part.setVisible(name == step)

    def _first(self, step: Step) -> QWidget:
        """Return the widget that gets the focus in a step."""
        if step == "draft":
            return self._stop if self.writing else self.draft.scenarios.table
        return self.task.name if step == "task" else self.finish.learner

    def _show_foot(self) -> None:
        at, writing = self._at, self.writing
        focused = self.window().focusWidget()
        wrong = draft.draft_problem(self.draft.draft()) if at != "task" else ""
        self._back.setVisible(at != "task")
        self._anew.setVisible(at == "task" and self._request is not None)
        self._stop.setVisible(at == "draft" and writing)
        self._more.setVisible(at == "draft" and not writing and not self.draft.whole)
        self._main.setVisible(not (at == "draft" and writing))
        words, icon, price = {
            "task": ("Generate", "sparkles", self._most()),
            "draft": ("Next", "arrow-right", ""),
            "finish": ("Create", "check", ""),
        }[at]
        self._main.set_words(words, price)
        self._main.set_icon(icon)
        self._main.setEnabled(not wrong and self._session.connected)
        self._note.set_words(draft.KEPT if writing else wrong)
        if focused in (self._stop, self._more, self._main) and not focused.isVisible():
            self._first(at).setFocus()

    def _most(self) -> str:
        """Describe the spending limit."""
        budget = self.task.writer.now().budget_usd
        return "no limit" if budget is None else f"at most {draft.dollars(budget)}"

    # Building

    def _build(self) -> None:
        add(self.body, self._step, *((part, 1) for part in self._parts.values()))
        add(self.foot, self._back, self._anew, (self._note, 1), self._stop, self._more, self._main)

    def _wire(self) -> None:
        self._main.clicked.connect(self._press)
        self._more.clicked.connect(self._write)
        self._stop.clicked.connect(self._halt)
        self._back.clicked.connect(self._step_back)
        self._anew.clicked.connect(self._begin_anew)
        self.task.edited.connect(self._show_foot)
        self.draft.edited.connect(self._show_foot)
        servers = self.task.tools.servers
        servers.listed.connect(lambda: self.bring_into_view(servers))
        self.closed.connect(self._left)
        go_on = QShortcut(QKeySequence(NEXT_KEY), self)
        go_on.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        go_on.activated.connect(self._press)


def _subject(request: DescribeTask) -> tuple[object, ...]:
    """Return the values that identify a draft; others may change when generation is resumed."""
    return request.folder, request.description, [tool.name for tool in request.tools]

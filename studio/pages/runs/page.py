"""Runs page: table of all runs of the project; up to eight of them are compared."""

from collections.abc import Sequence

from PySide6.QtCore import QPoint, Qt, QTimer, Slot
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QMenu, QStackedWidget, QWidget

from engine.protocol.problems import Problem
from engine.protocol.records.run_notes import RunNotes
from engine.protocol.records.run_table import MOST_COMPARED, RunPage
from engine.protocol.records.runs import ACTIVE_STATES, RunSummary
from engine.protocol.requests.run_table import RunQuery
from studio.actions.actions import Actions
from studio.pages.page import Page
from studio.pages.runs.compare.view import CompareView
from studio.pages.runs.notes_sheet import NotesSheet
from studio.pages.runs.rows import RunTableModel
from studio.pages.runs.sweeps.view import SweepsView
from studio.pages.runs.table import RunsTable
from studio.services.repair import ask_to_remove
from studio.services.session import Session
from studio.store.runs.chosen_runs import ChosenRuns
from studio.text import formatting
from studio.widgets.cards.card import Card
from studio.widgets.cards.empty_page import EmptyPage
from studio.widgets.controls.buttons import Button
from studio.widgets.controls.inputs import SearchInput
from studio.widgets.controls.segmented import Segmented
from studio.widgets.layouts import STRETCH, add, hbox, vbox
from studio.widgets.text.text import Text

STATES = ("all", "active", "finished", "failed")
REFRESH_MS = 3000
"""The table is read again so often while a run is active."""


class RunsPage(Page):
    """Runs page. `compare(run_ids)` shows a comparison."""

    def __init__(self, session: Session, actions: Actions, parent: QWidget | None = None) -> None:
        super().__init__(session, parent)
        self._actions = actions
        self.chosen = ChosenRuns()
        self._known: dict[str, RunSummary] = {}
        """Summaries of the chosen runs, by id."""
        self.model = RunTableModel(self.tasks, self.chosen, self)
        self.table = RunsTable(self.model)
        self.compare_view = CompareView(session, self.tasks, self.chosen)
        self._search = SearchInput("Find a run", "Find by name, tag, note or setting", compact=True)
        self._state = Segmented(["All", "Active", "Finished", "Failed"], "State")
        self._tags = Button("Tags", "quiet", icon="tag", menu_arrow=True)
        self._archived = Button("Archived", "quiet", icon="archive")
        self._count = Text("", "label", 400, "muted", elide=True)
        self._compare = Button("Compare", "primary", icon="git-compare-arrows")
        self._note = Button("Tags and note", "quiet", icon="sticky-note")
        self._pin = Button("Pin", "quiet", icon="pin")
        self._archive = Button("Archive", "quiet", icon="archive")
        self._delete = Button("Delete", "quiet", icon="trash-2")
        self._switch = Segmented(["Runs", "Sweeps"], "Runs or sweeps", height=28)
        self._switch_back = Segmented(["Runs", "Sweeps"], "Runs or sweeps", height=28)
        self._switch_back.set_index(1)
        self.sweeps = SweepsView(session, self.tasks, self._switch_back)
        self._empty = EmptyPage("No run yet", "", drawing="rows")
        self._stack = QStackedWidget()
        self._page: RunPage | None = None
        self._sheet = NotesSheet(self)
        self._timer = QTimer(self)
        self._timer.setInterval(REFRESH_MS)
        self._build()
        self._wire()
        self._show_tools()

    def enter(self) -> None:
        self._turn_to_project()
        self.model.refresh()
        self._timer.start()
        if self._stack.currentWidget() is self.sweeps:
            self.sweeps.enter()
        elif self._stack.currentWidget() is not self.compare_view:
            self.table.setFocus()

    def leave(self) -> None:
        self._timer.stop()
        self.sweeps.leave()

    def compare(self, run_ids: Sequence[str]) -> None:
        """Compare runs of the open project, the first one being the reference."""

        async def read() -> list[RunSummary]:
            return [await self.session.client.run(run_id) for run_id in run_ids]

        def show(runs: list[RunSummary]) -> None:
            self.chosen.choose(run_ids)
            self._known = {run.id: run for run in runs}
            self.model.repaint()
            self._show_tools()
            self._open_comparison()

        self.tasks.run("compared", read(), show)

    # Layout

    def _build(self) -> None:
        self._search.setMinimumWidth(150)
        self._search.setMaximumWidth(300)
        filters = hbox(
            self._switch,
            (self._search, 10),
            self._state,
            self._tags,
            self._archived,
            STRETCH,
            spacing=8,
        )
        tools = hbox(
            (self._count, 1), self._note, self._pin, self._archive, self._delete, 4, self._compare,
            spacing=4,
        )  # fmt: skip
        card = Card(padding=0)
        card.body.addWidget(self.table)
        self._list = QWidget()
        column = vbox(parent=self._list, margins=(16, 12, 16, 16), spacing=10)
        add(column, filters, tools, (card, 1))
        for part in (self._list, self._empty, self.compare_view, self.sweeps):
            self._stack.addWidget(part)
        vbox(self._stack, parent=self)

    def _wire(self) -> None:
        session = self.session
        session.project_changed.connect(self._project_changed)
        session.runs_changed.connect(self._refresh)
        self._timer.timeout.connect(self._look)
        self._search.search_changed.connect(lambda words: self._ask(search=words))
        self._state.chosen.connect(lambda index: self._ask(state=STATES[index]))
        self._tags.clicked.connect(self._tag_menu)
        self._archived.clicked.connect(lambda: self._ask(archived=not self.model.query.archived))
        self.model.total_changed.connect(lambda _: self._show_tools())
        self.model.loaded.connect(self._loaded)
        self.model.failed.connect(self._raise_listing)
        self.table.row_opened.connect(self._open)
        self.table.row_marked.connect(self._choose)
        self.table.delete_wanted.connect(self._remove)
        self.table.customContextMenuRequested.connect(self._menu)
        self.table.selectionModel().currentRowChanged.connect(self._selected)
        self._compare.clicked.connect(self._open_comparison)
        self._note.clicked.connect(lambda: self._sheet.show_runs(self._targets()))
        self._pin.clicked.connect(lambda: self._change("pinned"))
        self._archive.clicked.connect(lambda: self._change("archived"))
        self._delete.clicked.connect(self._remove)
        self._sheet.saved.connect(self._save)
        self.compare_view.left.connect(self._close_comparison)
        self._switch.chosen.connect(lambda _: self._show_sweeps())
        self._switch_back.chosen.connect(lambda _: self._show_table())
        self._empty.second_requested.connect(self._show_sweeps)
        self.sweeps.compare_wanted.connect(self.compare)
        self.sweeps.run_wanted.connect(self._open_id)
        self._empty.action_requested.connect(lambda: self._actions.trigger("run.train"))

    # Rows

    @Slot()
    def _project_changed(self) -> None:
        if self.isVisible():  # otherwise `enter` reads the runs
            self._turn_to_project()

    def _turn_to_project(self) -> None:
        path = self.session.project.path if self.session.project.view else ""
        if path == self.model.query.project:
            return
        self.chosen.choose(())
        self._known = {}
        self._page = None
        self._stack.setCurrentWidget(self._list)
        self.sweeps.leave()
        self.sweeps.forget()
        self.model.set_reference(None)
        self.model.query = RunQuery(project=path)
        self.model.set_source(self._fetch if path else None)
        self._show_tools()

    async def _fetch(self, query: RunQuery) -> RunPage:
        page = self._page = await self.session.client.run_page(query)
        return page

    def _ask(self, **change: object) -> None:
        self.model.set_query(self.model.query.model_copy(update=change))
        self._show_tools()

    @Slot()
    def _refresh(self) -> None:
        if self.isVisible():
            self.model.refresh()

    @Slot()
    def _look(self) -> None:
        """Read the table again while a run is active, whichever program started it, or older runs
        are still being read."""
        page = self._page
        changes = page and (page.partial or any(r.state in ACTIVE_STATES for r in page.items))
        if changes and self._stack.currentWidget() is self._list:
            self.model.refresh()

    @Slot()
    def _loaded(self) -> None:
        for row in range(min(self.model.total, 100)):
            run = self.table.run_at(row)
            if run is not None and run.id in self._known:
                self._known[run.id] = run
        if not self.table.currentIndex().isValid() and self.model.total:
            self.table.setCurrentIndex(self.model.index(0, 1))
        self._show_tools()

    def _raise_listing(self, problem: Problem) -> None:
        self.session.problem_raised.emit(problem)

    @Slot()
    def _selected(self) -> None:
        self.model.set_reference(self.table.run_at(self.table.currentIndex().row()))
        self._show_tools()

    @Slot(int)
    def _choose(self, row: int) -> None:
        run = self.table.run_at(row)
        if run is None:
            return
        if not self.chosen.toggle(run.id):
            self.session.notice.emit(f"At most {MOST_COMPARED} runs can be compared.")
            return
        self._known[run.id] = run
        self.model.repaint()
        self._show_tools()

    @Slot(int)
    def _open(self, row: int) -> None:
        if run := self.table.run_at(row):
            if not self.session.runs.known(run.id):
                self.session.runs.put(run)
            self.session.open_run(run)

    def _targets(self) -> list[RunSummary]:
        """Return the runs that the buttons act on: the chosen ones, else the selected one."""
        if self.chosen.ids:
            return [self._known[run_id] for run_id in self.chosen.ids if run_id in self._known]
        run = self.table.run_at(self.table.currentIndex().row())
        return [run] if run else []

    def _show_tools(self) -> None:
        query, targets = self.model.query, self._targets()
        filtered = bool(query.search or query.tag or query.archived or query.state != "all")
        nothing = self.model.is_loaded and not self.model.total and not filtered
        if self._stack.currentWidget() in (self._list, self._empty):
            self._stack.setCurrentWidget(self._empty if nothing else self._list)
        self._show_empty()
        self._count.set_words(self._count_words(filtered))
        self._tags.set_words(query.tag or "Tags")
        self._tags.setEnabled(bool(query.tag or (self._page and self._page.tags)))
        hidden = self._page.archived if self._page else 0
        self._archived.set_words("Back to all" if query.archived else f"Archived {hidden or ''}")
        self._archived.setEnabled(bool(hidden or query.archived))
        for button in (self._note, self._pin, self._archive, self._delete):
            button.setEnabled(bool(targets))
        self._pin.set_words("Unpin" if targets and all(r.notes.pinned for r in targets) else "Pin")
        restores = targets and all(run.notes.archived for run in targets)
        self._archive.set_words("Restore" if restores else "Archive")
        self._archive.set_icon("archive-restore" if restores else "archive")
        chosen = len(self.chosen.ids)
        self._compare.setEnabled(chosen > 1)
        self._compare.set_words(f"Compare {chosen} runs" if chosen > 1 else "Compare")

    def _show_empty(self) -> None:
        outside = self.session.project.outside
        archived = self._page.archived if self._page else 0
        words = (
            "Start the script that trains this project. The runs appear here."
            if outside
            else "Press Train to start the first run. This page lists and compares all runs."
        )
        if archived:
            words = f"{formatting.plural(archived, 'run is', 'runs are')} archived."
        self._empty.set_words("No run yet" if not archived else "All runs are archived", words)
        if outside or archived:
            self._empty.set_actions("")
        else:
            self._empty.set_actions("Train", second="Sweep settings…", icon="play")

    def _count_words(self, filtered: bool) -> str:
        if not self.model.is_loaded:
            return "Reading the runs …"
        if self._page is not None and self._page.partial:
            return f"{formatting.plural(self.model.total, 'run')} · reading the older ones …"
        if self.chosen.ids:
            return f"{formatting.plural(len(self.chosen.ids), 'run')} chosen"
        shown = formatting.plural(self.model.total, "run")
        if filtered and self._page is not None and not self.model.query.archived:
            return f"{shown} of {formatting.count(self._page.runs)}"
        archived = " archived" if self.model.query.archived else ""
        return f"{shown}{archived} · Space chooses a run to compare, Enter opens it"

    # Changes

    def _change(self, mark: str) -> None:
        """Pin or archive the targets; if all are, undo it."""
        runs = self._targets()
        value = not all(getattr(run.notes, mark) for run in runs)
        self._save([(run.id, run.notes.model_copy(update={mark: value})) for run in runs])
        if mark == "archived" and runs:
            what = runs[0].name if len(runs) == 1 else formatting.plural(len(runs), "run")
            self.session.notice.emit(f"{what} {'archived' if value else 'restored'}.")
            self.chosen.choose(())

    @Slot(object)
    def _save(self, notes: Sequence[tuple[str, RunNotes]]) -> None:
        async def save() -> list[RunSummary]:
            return [await self.session.client.note_run(run_id, one) for run_id, one in notes]

        def saved(runs: list[RunSummary]) -> None:
            for run in runs:
                self.session.runs.put(run)
                if run.id in self._known:
                    self._known[run.id] = run
            self.model.refresh()
            self._show_tools()

        self.tasks.run("notes", save(), saved)

    @Slot()
    def _remove(self) -> None:
        if runs := self._targets():
            self.chosen.choose(())
            ask_to_remove(self.session, runs, self.window())
            self._show_tools()

    def _tag_menu(self) -> None:
        menu = QMenu(self)
        if self.model.query.tag:
            menu.addAction("All tags").triggered.connect(lambda: self._ask(tag=None))
        for tag, count in (self._page.tags if self._page else {}).items():
            action = menu.addAction(f"{tag}  ({count})".replace("&", "&&"))
            action.triggered.connect(lambda _=False, tag=tag: self._ask(tag=tag))
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.popup(self._tags.mapToGlobal(QPoint(0, self._tags.height())))

    @Slot(QPoint)
    def _menu(self, at: QPoint) -> None:
        row = self.table.indexAt(at).row()
        run = self.table.run_at(row)
        if run is None:
            return
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addAction("Open").triggered.connect(lambda: self._open(row))
        if run.parent and run.parent.run_id:
            parent = run.parent.run_id
            menu.addAction(f"Compare with its parent {run.parent.name}").triggered.connect(
                lambda: self.compare([parent, run.id])
            )
        menu.addAction("Tags and note…").triggered.connect(lambda: self._sheet.show_runs([run]))
        menu.addAction("Delete…").triggered.connect(
            lambda: ask_to_remove(self.session, [run], self.window())
        )
        menu.popup(self.table.viewport().mapToGlobal(at))

    # Sweeps and comparison

    def _show_sweeps(self) -> None:
        self._switch.set_index(0)
        self._stack.setCurrentWidget(self.sweeps)
        self.sweeps.enter()

    def _show_table(self) -> None:
        self._switch_back.set_index(1)
        self.sweeps.leave()
        self._stack.setCurrentWidget(self._list)
        self.model.refresh()
        self._show_tools()

    @Slot(str)
    def _open_id(self, run_id: str) -> None:
        async def read() -> RunSummary:
            return await self.session.client.run(run_id)

        def show(run: RunSummary) -> None:
            self.session.runs.put(run)
            self.session.open_run(run)

        self.tasks.run("open run", read(), show)

    @Slot()
    def _open_comparison(self) -> None:
        runs = [self._known[run_id] for run_id in self.chosen.ids if run_id in self._known]
        if len(runs) > 1:
            self._stack.setCurrentWidget(self.compare_view)
            self.compare_view.show_runs(runs)
            self.compare_view.focus_first()

    @Slot()
    def _close_comparison(self) -> None:
        self._stack.setCurrentWidget(self._list)
        self._show_tools()
        self.table.setFocus()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        comparing = self._stack.currentWidget() is self.compare_view
        if event.key() == Qt.Key.Key_Escape and comparing:
            if not self.compare_view.close_full():
                self._close_comparison()
        elif event.key() == Qt.Key.Key_Slash and not comparing:
            self._search.setFocus()
        else:
            super().keyPressEvent(event)

"""Models page: search of the hub, facts and fit of a model, downloads, models on this machine."""

from functools import partial
from typing import Any

from PySide6.QtCore import Qt, QUrl, Slot
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QFileDialog, QSplitter, QStackedWidget, QWidget

from engine.protocol.problems import AtelierError, Problem
from engine.protocol.requests.models import (
    ActOnDownload,
    DeletedModel,
    HubModel,
    ModelDownload,
    ModelFacts,
)
from engine.protocol.requests.runs import EditProject
from studio.link.engine_state import LinkState
from studio.pages.models.deletion import ask_to_delete
from studio.pages.models.detail import ModelDetail
from studio.pages.models.downloads import DownloadsCard
from studio.pages.models.list import ModelTable
from studio.pages.models.results import ResultTable
from studio.pages.models.search import ModelSearch
from studio.pages.models.watch import ModelWatch
from studio.pages.page import Page
from studio.services.session import Session
from studio.store.hub.rows import disk_words, local_row
from studio.text import formatting
from studio.widgets.cards.card import Card
from studio.widgets.controls.buttons import Button
from studio.widgets.controls.segmented import Segmented
from studio.widgets.layouts import STRETCH, add, hbox, vbox
from studio.widgets.tables.meter import Meter
from studio.widgets.text.text import Text

HERE, HUB = 0, 1
UNREACHABLE = ("models.hub_unreachable", "models.hub_failed", "engine.unreachable")
"""Problems after which the facts of further results are not asked for."""
FULL_SHARE = 0.9
"""Share of the disk above which its meter warns."""


class ModelsPage(Page):
    """Models page. `search_for(words)` searches the hub; `browse()` chooses a model for the open
    project."""

    def __init__(self, session: Session, parent: QWidget | None = None) -> None:
        super().__init__(session, parent)
        self.watch = ModelWatch(session, self.tasks, self)
        self._facts: dict[str, ModelFacts] = {}
        """Facts that were read since the page was entered, by name."""
        self._shown = ""
        """Name of the model in the panel."""
        self._searched = ""
        self._contact = "none"
        self.search = ModelSearch()
        self._switch = Segmented(["On this machine", "Hub"], "Models shown", height=28)
        self._folder = Button("Use a folder…", "quiet", icon="folder-open")
        self.here, self.found = ModelTable("Models on this machine"), ResultTable()
        self._note = Text("", "body", 400, "muted", wrap=True)
        self._retry = Button("Try again", "outlined", icon="rotate-ccw")
        self._stack = QStackedWidget()
        self.downloads = DownloadsCard()
        self.detail = ModelDetail()
        self._disk, self._disk_words = Meter("Disk", "plot-1", 4), Text("", "caption", 400, "muted")
        self._build()
        self._wire()

    def enter(self) -> None:
        self._facts.clear()  # free memory and the project's settings may have changed
        self.watch.start()
        if self._shown:
            self._show_model(self._shown)
        self.search.setFocus()

    def leave(self) -> None:
        self.watch.stop()
        self.tasks.cancel("fits")

    def search_for(self, words: str) -> None:
        """Search Hugging Face for `words`; a full name (org/name) or a folder is shown directly."""
        self.search.setText(words)
        self._search(words)

    def focus_search(self) -> None:
        """Focus the search field, and select its text."""
        self.search.setFocus()
        self.search.selectAll()

    # Layout

    def _build(self) -> None:
        self._note_box = QWidget()
        retry = hbox(self._retry, STRETCH)
        add(vbox(parent=self._note_box, margins=16, spacing=12), self._note, retry, STRETCH)
        for part in (self.here, self.found, self._note_box):
            self._stack.addWidget(part)
        card = Card(padding=0)
        card.body.addWidget(self._stack)
        left = QWidget()
        tools = hbox(self._switch, STRETCH, self._folder, spacing=8)
        foot = hbox((self._disk, 1), self._disk_words, spacing=12, margins=(2, 0, 2, 0))
        add(
            vbox(parent=left, margins=(0, 0, 6, 0), spacing=10),
            *(self.search, tools, self.downloads, (card, 1), foot),
        )
        right = QWidget()
        vbox(self.detail, parent=right, margins=(6, 0, 0, 0))
        self.detail.setMinimumWidth(300)
        left.setMinimumWidth(380)
        splitter = QSplitter(Qt.Orientation.Horizontal)
        splitter.addWidget(left)
        splitter.addWidget(right)
        splitter.setStretchFactor(0, 3)
        splitter.setStretchFactor(1, 2)
        splitter.setSizes([640, 420])
        self.remember_splitter("models", splitter)
        vbox(splitter, parent=self, margins=(16, 12, 16, 12))

    def _wire(self) -> None:
        session = self.session
        session.engine_changed.connect(self._engine_changed)
        session.project_changed.connect(self._project_changed)
        self.search.wanted.connect(self._search)
        self.search.cleared.connect(lambda: self._switch_to(HERE))
        self.search.list_wanted.connect(lambda: self._table().setFocus())
        self._switch.chosen.connect(self._switch_to)
        self._folder.clicked.connect(self._choose_folder)
        self._retry.clicked.connect(self._try_again)
        for table in (self.here, self.found):
            table.chosen.connect(partial(self._choose, table))
            table.row_opened.connect(lambda _: self.detail.focus_action())
            table.delete_wanted.connect(self._delete)
            table.left.connect(self.focus_search)
        self.found.facts_wanted.connect(self._ask_fits)
        self.watch.listed.connect(self._show_list)
        self.watch.progressed.connect(self._show_downloads)
        self.watch.failed.connect(self._list_failed)
        self.downloads.pressed.connect(self._act)
        self.detail.download_wanted.connect(self._download)
        self.detail.tokenizer_wanted.connect(self._download_tokenizer)
        self.detail.use_wanted.connect(self._use)
        self.detail.page_wanted.connect(self._open_page)
        self.detail.delete_wanted.connect(self._delete)
        self.detail.again_wanted.connect(lambda: self._show_model(self._shown))

    def _table(self) -> ModelTable:
        return self.found if self._switch.index() == HUB else self.here

    def _choose(self, table: ModelTable, name: str) -> None:
        """Show the current model of a list, unless the list is hidden and only refreshed."""
        if table is self._table():
            self._show_model(name)

    @Slot(int)
    def _switch_to(self, index: int) -> None:
        """Show the models of this machine, or the search results."""
        self._switch.set_index(index)
        if index == HUB and not self.found.results:
            words = "Type search words or a model name (org/name) above, then press Enter."
            self._show_note(words if not self._searched else self._note.words() or words)
            return
        table = self._table()
        self._stack.setCurrentWidget(table)
        if name := table.current():
            self._show_model(name)

    def _show_note(self, words: str, retry: bool = False) -> None:
        """Show a sentence instead of a list, with a button if it can be tried again."""
        self._note.set_words(words)
        self._retry.setVisible(retry)
        self._stack.setCurrentWidget(self._note_box)

    # Search

    @Slot(str)
    def _search(self, words: str) -> None:
        """Search the hub; a complete name is shown whether or not the search lists it, and a folder
        without a search."""
        words = words.strip()
        if not words:
            self._switch_to(HERE)
            return
        if words.startswith(("/", "~", ".")):
            self._show_model(words)  # a folder
            return
        self._searched, self.found.results = words, []
        self._switch.set_index(HUB)
        self._show_note(f"Searching Hugging Face for {words} …")
        self.tasks.run("search", self._find(words), self._show_results, self._search_failed)

    async def _find(self, words: str) -> tuple[str, list[HubModel]]:
        return words, await self.session.client.search_models(words)

    def _show_results(self, found: tuple[str, list[HubModel]]) -> None:
        words, results = found
        named = next((one for one in results if one.id.lower() == words.lower()), None)
        if named is not None:
            results = [named, *(one for one in results if one is not named)]
        elif _is_name(words):
            results = [HubModel(id=words), *results]
        if not results:
            self._show_note(
                f"No language model with safetensors weights matches {words}. Try fewer words, or "
                "type the full name: org/name."
            )
            return
        self._stack.setCurrentWidget(self.found)
        self.found.show_results(results, self._facts)
        self._show_model(self.found.current())

    def _search_failed(self, problem: Problem) -> None:
        self._show_note(f"{problem.message} {problem.hint}".strip(), retry=True)

    @Slot(object)
    def _ask_fits(self, names: list[str]) -> None:
        """Ask for the facts of these results, one after another."""
        self.tasks.run("fits", self._read_fits(names), failed=lambda _: None)

    async def _read_fits(self, names: list[str]) -> None:
        for name in names:
            if name not in self._facts and name != self._shown:
                try:
                    self._keep(await self._read(name))
                except AtelierError as error:
                    if error.problem.code in UNREACHABLE:
                        return

    # One model

    @Slot(str)
    def _show_model(self, name: str) -> None:
        """Show a model in the panel; its facts are read if they are not known yet."""
        self._shown = name
        if not name:
            return
        if name in self._facts:
            self._show_facts()
            return
        self.detail.show_loading(name)

        def failed(problem: Problem) -> None:
            if name == self._shown:
                self.detail.show_problem(name, problem)

        self.tasks.run("facts", self._read(name), self._keep, failed)

    async def _read(self, name: str) -> tuple[str, ModelFacts]:
        project = self.session.project
        path = project.path if project.view and project.view.config else ""
        host = self.session.hosts.chosen(path) if path else ""
        return name, await self.session.client.model_facts(name, path, host)

    def _keep(self, read: tuple[str, ModelFacts]) -> None:
        """Show facts under the name that was asked for; the hub may know the model by another."""
        name, facts = read
        self._facts[name] = facts
        self.found.show_facts(name, facts)
        if name == self._shown:
            self._show_facts()

    def _show_facts(self) -> None:
        facts = self._facts.get(self._shown)
        if facts is not None:
            local, download = self.watch.local(self._shown), self.watch.download(self._shown)
            name = self.session.project.name if self.session.project.view else ""
            self.detail.show_facts(facts, local, download, name)

    @Slot()
    def _download(self) -> None:
        if facts := self._facts.get(self._shown):
            self._act(facts.summary.id, "start", weights=True)

    @Slot()
    def _download_tokenizer(self) -> None:
        if facts := self._facts.get(self._shown):
            self._act(facts.summary.id, "start", weights=False)

    @Slot()
    def _use(self) -> None:
        """Write the model into the settings of the open project, and return to Setup."""
        name = self._shown

        def done(_: object) -> None:
            self.session.notice.emit(f"{self.session.project.name} now uses {name}.")
            self.session.place_wanted.emit("setup")

        request = EditProject(values={"model.name": name})
        self.session.edit(request, done, self.session.problem_raised.emit)

    @Slot()
    def _open_page(self) -> None:
        facts = self._facts.get(self._shown)
        if facts is not None and facts.page.startswith(("https://", "http://")):
            QDesktopServices.openUrl(QUrl(facts.page))

    @Slot()
    def _choose_folder(self) -> None:
        dialog = QFileDialog(self, "Choose a model folder")
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.fileSelected.connect(self._show_model)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    # Downloads and this machine

    @Slot(object)
    def _list_failed(self, problem: Problem) -> None:
        self._show_note(f"{problem.message} {problem.hint}".strip(), retry=True)

    @Slot()
    def _show_list(self) -> None:
        found = self.watch.list
        assert found is not None
        arrived = {one.name for one in found.models if one.path and one.weights}
        for name in [n for n, facts in self._facts.items() if (n in arrived) != _is_here(facts)]:
            del self._facts[name]  # it has arrived, or was deleted
        paths = {one.name: one.path if one.weights else None for one in found.models}
        self.found.show_paths(paths, self._facts)
        self.here.show_rows([local_row(one) for one in found.models])
        if self._switch.index() == HERE:
            self._stack.setCurrentWidget(self.here)
        used = sum(one.bytes for one in found.models)
        self._disk_words.set_words(disk_words(found.free_bytes, used))
        share = 1 - found.free_bytes / found.disk_bytes if found.disk_bytes else 0.0
        self._disk.set_share(share, "warn" if share > FULL_SHARE else "plot-1")
        if self._shown and self._shown not in self._facts:
            self._show_model(self._shown)

    @Slot()
    def _show_downloads(self) -> None:
        self.downloads.show_downloads(self.watch.downloads)
        self._show_facts()

    @Slot(str, str)
    def _act(self, name: str, action: Any, weights: bool | None = None) -> None:
        """Start or resume, pause or cancel a download; `weights`: whether to download them."""

        async def act() -> list[ModelDownload]:
            return await self.session.client.act_on_download(
                ActOnDownload(name=name, action=action, weights=weights)
            )

        def done(downloads: list[ModelDownload]) -> None:
            self.watch.take(downloads)
            self.watch.start()

        self.tasks.run(f"download {name}", act(), done)

    @Slot()
    def _delete(self) -> None:
        """Delete the model in the panel from this machine, after confirmation."""
        local = self.watch.local(self._shown)
        if local is None or not local.removable:
            return
        name = local.name

        def done(deleted: DeletedModel | None) -> None:
            if deleted is not None:
                size = formatting.size(deleted.freed_bytes)
                self.session.notice.emit(f"{name} deleted, {size} freed.")
                self.watch.start()

        job = ask_to_delete(self.session, local, self.window())
        self.tasks.run(f"delete {name}", job, done)

    @Slot()
    def _try_again(self) -> None:
        if self._switch.index() == HUB:
            self._search(self._searched)
        else:
            self.watch.start()

    # Changes outside of the page

    @Slot(object)
    def _engine_changed(self, link: LinkState) -> None:
        """Read the list again from an engine that was started or reconnected."""
        before, self._contact = self._contact, link.contact
        if self.isVisible() and link.contact == "connected" != before:
            self.watch.start()

    @Slot()
    def _project_changed(self) -> None:
        """Forget forecasts that were made with the settings of another project."""
        self._facts.clear()
        if self.isVisible() and self._shown:
            self._show_model(self._shown)


def _is_name(words: str) -> bool:
    """Whether words are a complete name on the hub."""
    return words.count("/") == 1 and " " not in words and all(words.split("/"))


def _is_here(facts: ModelFacts) -> bool:
    return facts.summary.path is not None

"""Panel with the facts of one model, whether it fits, and what can be done with it."""

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from engine.protocol.problems import Problem
from engine.protocol.requests.models import LocalModel, ModelDownload, ModelFacts
from studio.pages.page import scrolled
from studio.store.hub.details import fact_values, file_lines, fit_figures, fit_note, fit_words
from studio.store.hub.downloads import is_active, share_of
from studio.text import formatting
from studio.theme.plain_tooltips import set_tip
from studio.widgets.cards.card import Card
from studio.widgets.cards.key_values import KeyValues
from studio.widgets.controls.buttons import Button
from studio.widgets.layouts import STRETCH, add, hbox, vbox
from studio.widgets.tables.meter import Meter
from studio.widgets.text.text import Text

NO_PROJECT = "Open a project first"


class ModelDetail(Card):
    """Facts of a model: `show_loading(name)`, `show_facts(…)`, `show_problem(…)`, `show_nothing()`.
    Its buttons emit `download_wanted`, `tokenizer_wanted`, `use_wanted`, `page_wanted`,
    `delete_wanted` and `again_wanted`."""

    download_wanted = Signal()
    tokenizer_wanted = Signal()
    use_wanted = Signal()
    page_wanted = Signal()
    delete_wanted = Signal()
    again_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(padding=0, parent=parent)
        self._title = Text("", "title", 600, wrap=True)
        self._name = Text("", "mono-small", 400, "muted", wrap=True, selectable=True)
        self._words = Text("", "body", 400, "muted", wrap=True)
        self._problem = Text("", "label", 400, "bad", wrap=True, selectable=True)
        self._download = Button("Download", "primary", icon="download", height=32)
        self._use = Button("Use in project", "primary", icon="check", height=32)
        self._tokenizer = Button("Tokenizer only", "outlined", icon="download")
        set_tip(self._tokenizer, "Download without the weights, for runs at a cluster")
        self._page = Button("Open page", "outlined", icon="external-link")
        self._delete = Button("Delete", "outlined", icon="trash-2")
        self._again = Button("Try again", "outlined", icon="rotate-ccw")
        self._fit = Text("", "body", 600, wrap=True)
        self._meter = Meter("Memory", "plot-1", 6)
        self._figures, self._facts, self._files = (KeyValues(columns=1) for _ in range(3))
        self._note = Text("", "caption", 400, "faint", wrap=True)
        self._memory_head = Text("Memory", "caption", 500, "faint")
        self._facts_head = Text("Facts", "caption", 500, "faint")
        self._files_head = Text("Files", "caption", 500, "faint")
        self._build()
        self.show_nothing("")

    def _build(self) -> None:
        inside = QWidget()
        column = vbox(parent=inside, margins=(16, 16, 16, 16), spacing=8)
        self._main = hbox(self._download, self._use, STRETCH, spacing=8)
        more = hbox(self._tokenizer, self._page, self._delete, self._again, STRETCH, spacing=8)
        add(
            column,
            *(self._title, self._name, self._words, self._problem),
            *(4, self._main, more, 8),
            *(self._memory_head, self._fit, self._meter, self._figures, self._note, 8),
            *(self._facts_head, self._facts, 8),
            *(self._files_head, self._files, STRETCH),
        )
        area = scrolled(inside)
        area.setAccessibleName("Model details")
        self.body.addWidget(area)
        self._download.clicked.connect(self.download_wanted)
        self._tokenizer.clicked.connect(self.tokenizer_wanted)
        self._use.clicked.connect(self.use_wanted)
        self._page.clicked.connect(self.page_wanted)
        self._delete.clicked.connect(self.delete_wanted)
        self._again.clicked.connect(self.again_wanted)

    def show_nothing(self, words: str) -> None:
        """Show the sentence `words` instead of a model."""
        self._head("", "", words)
        self._show_parts(None)

    def show_loading(self, name: str) -> None:
        self._head(name.rpartition("/")[2], name, "Loading model details …")
        self._show_parts(None)

    def show_problem(self, name: str, problem: Problem) -> None:
        """Show why the details of the model `name` cannot be loaded."""
        self._head(name.rpartition("/")[2], name, "")
        self._set(self._problem, f"{problem.message} {problem.hint}".strip())
        self._show_parts(None)
        self._again.show()

    def show_facts(
        self,
        facts: ModelFacts,
        local: LocalModel | None,
        download: ModelDownload | None,
        project: str,
    ) -> None:
        """Show the details of a model. `local`: its copy on this machine, `download`: its
        unfinished download (None: none), `project`: name of the open project (empty: none)."""
        self._head(facts.title, facts.summary.id, "")
        problem = facts.problem
        self._set(self._problem, f"{problem.message} {problem.hint}".strip() if problem else "")
        self._show_parts(facts)
        self._show_fit(facts)
        self._facts.set_values(fact_values(facts, local))
        self._show_buttons(facts, local, download, project)

    def focus_action(self) -> None:
        """Focus the first enabled button (download, use …)."""
        buttons = (self._download, self._use, self._tokenizer, self._page, self._delete)
        for button in (*buttons, self._again):
            if not button.isHidden() and button.isEnabled():
                button.setFocus()
                return

    def _head(self, title: str, name: str, words: str) -> None:
        self._set(self._title, title)
        self._set(self._name, name if name != title else "")
        self._set(self._words, words)
        self._set(self._problem, "")

    def _show_parts(self, facts: ModelFacts | None) -> None:
        """Show or hide everything below the heading."""
        shown: Sequence[QWidget] = (
            *(self._memory_head, self._fit, self._facts_head, self._facts),
            *(self._download, self._tokenizer, self._use, self._page, self._delete),
        )
        for part in shown:
            part.setVisible(facts is not None)
        files = file_lines(facts) if facts else []
        self._files.set_values(files)
        self._files.setVisible(bool(files))
        self._files_head.setVisible(bool(files))
        for part in (self._again, self._meter, self._figures, self._note):
            part.hide()

    def _show_fit(self, facts: ModelFacts) -> None:
        fit = facts.fit
        words, tone = fit_words(fit)
        self._fit.set_words(words)
        self._fit.set_tone(tone)
        figures = fit_figures(fit)
        self._figures.set_values(figures)
        self._figures.setVisible(bool(figures))
        in_4bit = fit.verdict == "fits_4bit"
        peak = fit.peak_4bit_bytes if in_4bit else fit.peak_bytes
        self._meter.setVisible(peak is not None and bool(fit.room_bytes))
        if peak is not None and fit.room_bytes:
            self._meter.set_share(
                min(1.0, peak / fit.room_bytes), tone if tone != "muted" else None
            )
        self._set(self._note, fit_note(fit))

    def _show_buttons(
        self,
        facts: ModelFacts,
        local: LocalModel | None,
        download: ModelDownload | None,
        project: str,
    ) -> None:
        here = facts.summary.path is not None
        bare = not here and local is not None and local.path is not None and not local.weights
        self._use.setVisible(here or bare)
        self._use.setEnabled(bool(project) and facts.problem is None)
        self._use.set_kind("outlined" if bare else "primary")
        purpose = " for runs at a cluster" if bare else ""
        set_tip(self._use, f"Set the model of {project}{purpose}" if project else NO_PROJECT)
        starter = local is not None and local.kind == "starter"
        self._tokenizer.setVisible(not (here or bare or starter or facts.problem))
        self._tokenizer.setEnabled(download is None or not is_active(download))
        self._download.setVisible(not here)
        self._download.setEnabled(download is None or not is_active(download))
        self._download.set_words(*_download_words(facts, download))
        self._download.set_kind("outlined" if facts.problem else "primary")
        self._page.setVisible(bool(facts.page))
        removable = local is not None and local.removable
        self._delete.setVisible(removable)
        busy = local.active_runs if local else ()
        self._delete.setEnabled(not busy)
        set_tip(self._delete, f"{busy[0]} uses this model" if busy else "Delete the model files")

    @staticmethod
    def _set(text: Text, words: str) -> None:
        text.set_words(words)
        text.setVisible(bool(words))


def _download_words(facts: ModelFacts, download: ModelDownload | None) -> tuple[str, str]:
    """Return the label of the download button and its price: the bytes to fetch."""
    if download is not None and is_active(download):
        return "Downloading", formatting.percent(share_of(download))
    left = None if facts.download_bytes is None else facts.download_bytes - facts.arrived_bytes
    size = formatting.size(left) if left is not None else ""
    return ("Resume" if download is not None and download.done_bytes else "Download"), size

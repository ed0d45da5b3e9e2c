"""List of search results; asks for the facts of the rows in view."""

from collections.abc import Mapping

from PySide6.QtCore import QTimer, Signal, Slot

from engine.protocol.requests.models import HubModel, ModelFacts
from studio.pages.models.list import ModelTable
from studio.store.hub.rows import result_row

LOOK_MS = 150
"""Pause in ms after scrolling before the facts of the rows in view are asked for."""


class ResultTable(ModelTable):
    """Search results: `show_results(models)`, then `show_facts(name, facts)` for each. Emits
    `facts_wanted(names)` for the rows in view."""

    facts_wanted = Signal(object)

    def __init__(self) -> None:
        super().__init__("Search results")
        self.results: list[HubModel] = []
        self._soon = QTimer(self)
        self._soon.setSingleShot(True)
        self._soon.setInterval(LOOK_MS)
        self._soon.timeout.connect(self._look)
        self.verticalScrollBar().valueChanged.connect(lambda _: self._soon.start())

    def show_results(self, results: list[HubModel], facts: Mapping[str, ModelFacts]) -> None:
        """Replace the results; the first one becomes current."""
        self.results = results
        self.show_rows([result_row(one, facts.get(one.id)) for one in results])
        self.choose("")
        self._soon.start()

    def show_paths(self, paths: Mapping[str, str | None], facts: Mapping[str, ModelFacts]) -> None:
        """Mark the results that are on this machine. `paths`: model name → its folder (absent or
        None: not on this machine), `facts`: name → details loaded so far."""
        self.results = [one.model_copy(update={"path": paths.get(one.id)}) for one in self.results]
        self.show_rows([result_row(one, facts.get(one.id)) for one in self.results])

    def show_facts(self, name: str, facts: ModelFacts) -> None:
        """Show size and fit of a model in its row; ignored if it is not among the results."""
        for model in self.results:
            if model.id == name:
                self.rows.replace(result_row(model, facts))

    @Slot()
    def _look(self) -> None:
        if self.isVisible():
            self.facts_wanted.emit(self.visible_names())

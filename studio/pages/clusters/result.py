"""Result of a request in the sheets of clusters."""

from PySide6.QtWidgets import QWidget

from engine.protocol.problems import Problem
from engine.protocol.requests.clusters import ClusterView
from studio.store.servers.cluster_rows import models_words
from studio.text import formatting
from studio.widgets.layouts import vbox
from studio.widgets.text.text import Text


class Result(QWidget):
    """Result of a connection test: models and SDK; or a problem, or the progress of a request."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._title = Text("", "body", 600, wrap=True)
        self._words = Text("", "label", 400, "muted", wrap=True, selectable=True)
        self._models = Text("", "mono-small", 400, "text", wrap=True, selectable=True)
        vbox(
            self._title, self._words, self._models,
            parent=self, margins=(0, 8, 0, 0), spacing=6,
        )  # fmt: skip
        self.clear()

    def clear(self) -> None:
        self._show("", "", "")

    def show_progress(self, title: str, words: str) -> None:
        """Show a request in progress."""
        self._show(title, words, "")

    def show_view(self, view: ClusterView) -> None:
        """Show the result of a finished test."""
        if view.problem is not None:
            self.show_problem(view.problem)
        elif view.report is not None:
            count = formatting.plural(len(view.report.models), "model")
            seconds = formatting.duration(view.report.seconds)
            words = f"SDK {view.report.client} · answered in {seconds}"
            self._show(f"Connected: {count}", words, models_words(view.report), "good")

    def show_problem(self, problem: Problem, title: str = "Connection failed") -> None:
        """Show why a test or another request failed, below a heading."""
        self._show(title, f"{problem.message} {problem.hint}".strip(), "", "bad")

    def _show(self, title: str, words: str, models: str, tone: str = "text") -> None:
        self._title.set_words(title)
        self._title.set_tone(tone)
        self._words.set_words(words)
        self._models.set_words(models)
        self._words.setVisible(bool(words))
        self._models.setVisible(bool(models))
        self.setVisible(bool(title))

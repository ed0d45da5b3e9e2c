"""News of runs that the user should hear of: new alerts, a waiting review, the end of a run."""

import time
from dataclasses import dataclass
from typing import Literal

from PySide6.QtCore import QObject, Signal

from engine.protocol.records.runs import RunSummary
from studio.store.runs.state import RunState
from studio.store.runs.status_words import run_words

JUST_NOW_S = 20.0
"""Age in seconds up to which an event is news; older ones are replayed history."""
ANNOUNCED = ("finished", "failed", "reviewing")


@dataclass(frozen=True)
class News:
    """Message about a run."""

    run_id: str
    title: str
    words: str
    kind: Literal["alert", "state"]

    def line(self) -> str:
        """Return title and text as one line."""
        return f"{self.title}: {self.words}"


class RunNews(QObject):
    """Emits `announced(News)` for each change of a run that is worth a message."""

    announced = Signal(object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._states: dict[str, str] = {}
        self._alerts: dict[str, set[str]] = {}

    def look(self, summary: RunSummary | None, state: RunState) -> None:
        """Compare a run with the last call, and emit `announced` for each new alert, and when the
        run has finished, failed or waits for a review. An old change, or a run that is not listed
        (`summary` None), is only remembered."""
        run_id = state.run_id
        raised = {alert.condition: alert.words for alert in state.alerts}
        fresh = [
            words for name, words in raised.items() if name not in self._alerts.get(run_id, ())
        ]
        changed = self._states.get(run_id) != state.status
        self._alerts[run_id], self._states[run_id] = set(raised), state.status
        if summary is None or summary.kind == "imported" or time.time() - state.at > JUST_NOW_S:
            return  # an import is reported by the page that made it
        for words in fresh:
            self.announced.emit(News(run_id, summary.name, words, "alert"))
        if changed and state.status in ANNOUNCED:
            words = run_words(summary).text
            words = f"{words[:1].lower()}{words[1:]}."
            self.announced.emit(News(run_id, summary.name, words, "state"))

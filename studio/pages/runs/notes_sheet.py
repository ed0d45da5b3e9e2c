"""Sheet with tags and note of one or several runs."""

from collections.abc import Sequence

from pydantic import ValidationError
from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from engine.protocol.problems import first_invalid
from engine.protocol.records.run_notes import RunNotes
from engine.protocol.records.runs import RunSummary
from studio.text.formatting import plural
from studio.widgets.cards.sheet import Sheet
from studio.widgets.controls.buttons import Button
from studio.widgets.forms.form_fields import TextField
from studio.widgets.forms.text_area import TextArea
from studio.widgets.layouts import STRETCH, add
from studio.widgets.text.text import Text


class NotesSheet(Sheet):
    """Notes sheet: `show_runs(runs)`; emits `saved([(run id, notes), …])`. For several runs, the
    tags in the field replace those that all have, and a note is added only if one is written."""

    saved = Signal(object)

    def __init__(self, host: QWidget) -> None:
        super().__init__("Tags and note", host)
        self._runs: list[RunSummary] = []
        self._common: tuple[str, ...] = ()
        self._tags = TextField("Tags", "baseline, long context")
        self._note = TextArea("Note", "What this run was for, and what it showed", least_px=140)
        self._about = Text("", "label", 400, "muted", wrap=True)
        self._problem = Text("", "label", 400, "bad", wrap=True)
        add(
            self.body,
            self._about,
            Text("Tags, separated by commas", "label", 500),
            self._tags,
            Text("Note", "label", 500),
            self._note,
            self._problem,
            STRETCH,
        )
        cancel, save = Button("Cancel", "quiet", height=32), Button("Save", "primary", height=32)
        cancel.clicked.connect(self.close_sheet)
        save.clicked.connect(self._save)
        self._tags.editor.returnPressed.connect(self._save)  # type: ignore[attr-defined]
        add(self.foot, STRETCH, cancel, save)

    def show_runs(self, runs: Sequence[RunSummary]) -> None:
        """Open the sheet with the notes of these runs."""
        self._runs = list(runs)
        several = len(runs) > 1
        shared = set.intersection(*(set(run.notes.tags) for run in runs))
        self._common = tuple(tag for tag in runs[0].notes.tags if tag in shared)
        self.set_title(f"Tags and note of {plural(len(runs), 'run') if several else runs[0].name}")
        self._about.set_words(
            "Shows the tags that all these runs share. A new note replaces the note of each run."
        )
        self._about.setVisible(several)
        self._tags.set_value(", ".join(self._common))
        self._note.set_text("" if several else runs[0].notes.note)
        self._problem.set_words("")
        self.open()

    def _save(self) -> None:
        typed = [tag.strip() for tag in self._tags.value().split(",") if tag.strip()]
        note = self._note.text()
        found = []
        try:
            for run in self._runs:
                own = [tag for tag in run.notes.tags if tag not in self._common]
                keeps_note = len(self._runs) > 1 and not note
                fields = {
                    **run.notes.model_dump(),
                    "tags": [*typed, *own],
                    "note": run.notes.note if keeps_note else note,
                }
                found.append((run.id, RunNotes.model_validate(fields)))
        except ValidationError as error:
            self._problem.set_words(f"{first_invalid(error)}.")
            return
        self.saved.emit(found)
        self.close_sheet()

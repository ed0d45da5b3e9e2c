"""Step 2 of the wizard: the generated draft, editable while it arrives."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QGridLayout, QWidget

from engine.protocol.problems import Problem
from engine.protocol.requests.drafts import Draft, DraftTicked
from studio.pages.new_project.scenario_table import ScenarioTable
from studio.store.projects import draft
from studio.widgets.forms.form_fields import TextField
from studio.widgets.forms.text_area import TextArea
from studio.widgets.layouts import vbox
from studio.widgets.tables.meter import Meter
from studio.widgets.text.text import Text

TEXT_PX, HEAD_PX = 116, 24
BOTTOM = Qt.AlignmentFlag.AlignBottom


class DraftStep(QWidget):
    """Editor of a draft: `show_generated(tick)` adds generated text; `draft()` returns the edited
    result."""

    edited = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._generated: DraftTicked | None = None
        self._wanted = 0
        self._budget: float | None = None
        self.title = TextField("Title", "first field")
        self.system = TextArea("System prompt", "System message of the agent.",
                               mono=True, least_px=TEXT_PX)  # fmt: skip
        self.rubric = TextArea("Rubric", "Scoring criteria for the judge, one per line.",
                               mono=True, least_px=TEXT_PX)  # fmt: skip
        self.scenarios = ScenarioTable()
        self._progress = Text("", "label", 500, elide=True)
        self._spent = Text("", "label", 400, "muted")
        self._meter = Meter("Generated scenarios", "accent", 4)
        self._left_out = Text("", "caption", 400, "faint", wrap=True)
        self._problem = Text("", "label", 400, "bad", wrap=True, selectable=True)
        self._build()
        self._wire()

    @property
    def has_content(self) -> bool:
        """Return whether a system prompt has been generated."""
        return self._generated is not None and bool(self._generated.draft.system)

    @property
    def whole(self) -> bool:
        """Return whether the generation has ended without a problem."""
        tick = self._generated
        return tick is not None and tick.ended and tick.problem is None

    def begin(self) -> None:
        """Clear the draft for a new task."""
        self._generated = None
        for part in (self.system, self.rubric):
            part.set_text("")
        self.title.set_value("")
        self.scenarios.begin()

    def expect(self, wanted: int, budget: float | None) -> None:
        """Prepare to generate `wanted` scenarios with a budget in US dollars (None: no limit)."""
        self._wanted, self._budget = wanted, budget
        self._say("Contacting the engine", "text")
        self._problem.hide()
        self._show()

    def show_generated(self, tick: DraftTicked) -> None:
        """Show the scenarios and texts generated so far; edits by the user are kept."""
        if self._generated is not None and self._is_behind(tick):
            self._say(draft.progress_words(tick), "text")
            self.refuse(tick.problem)
            return
        before = self._generated.draft if self._generated else Draft()
        if self.title.value() == before.title:
            self.title.set_value(tick.draft.title)
        for part, old, new in (
            (self.system, before.system, tick.draft.system),
            (self.rubric, before.rubric, tick.draft.rubric),
        ):
            if part.text() == old:
                part.set_text(new)
        self.scenarios.model.take(tick.draft.scenarios)
        self._generated = tick
        self._say(draft.progress_words(tick), "text")
        self._left_out.set_words(draft.left_out_words(tick.left_out))
        self.refuse(tick.problem)
        self._show()

    def _is_behind(self, tick: DraftTicked) -> bool:
        """Return whether a repeated generation has not yet reached the content shown."""
        assert self._generated is not None
        fewer = len(tick.draft.scenarios) < len(self._generated.draft.scenarios)
        lacks = bool(self._generated.draft.system) and not tick.draft.system
        return (fewer or lacks) and (not tick.ended or tick.problem is not None)

    def refuse(self, problem: Problem | None) -> None:
        """Show why the generation of scenarios ended early; None clears the message."""
        self._problem.set_words(f"{problem.message} {problem.hint}".strip() if problem else "")
        self._problem.setVisible(problem is not None)
        if problem is not None:
            self._say("Stopped before all scenarios were generated", "warn")

    def stopped(self) -> None:
        self._say(f"Stopped. {draft.KEPT}", "warn")

    def draft(self) -> Draft:
        return Draft(
            title=self.title.value().strip(),
            system=self.system.text(),
            rubric=self.rubric.text(),
            scenarios=self.scenarios.model.kept,
        )

    def _say(self, words: str, tone: str) -> None:
        self._progress.set_words(words)
        self._progress.set_tone(tone)

    def _show(self) -> None:
        kept = self.scenarios.model.kept
        self._spent.set_words(draft.spent_words(self._generated, self._budget))
        self._meter.set_share(min(1.0, len(kept) / self._wanted) if self._wanted else 0.0)
        self.scenarios.words.set_words(
            draft.counts_words(kept, self._wanted)
            if kept
            else ("Scenarios are generated a few at a time.")
        )
        self._left_out.setVisible(bool(self._left_out.words()))

    def _build(self) -> None:
        grid = QGridLayout()
        grid.setHorizontalSpacing(12)
        grid.setVerticalSpacing(4)
        grid.addWidget(self._progress, 0, 0)
        grid.addWidget(self._spent, 0, 1)
        grid.setColumnStretch(0, 1)
        grid.addWidget(self._meter, 1, 0, 1, 2)
        texts = QGridLayout()
        texts.setHorizontalSpacing(12)
        texts.setVerticalSpacing(4)
        texts.addWidget(Text("Title", "label", 600), 0, 0)
        texts.addWidget(self.title, 1, 0, 1, 2)
        texts.setRowMinimumHeight(2, HEAD_PX)
        for column, (name, part) in enumerate(
            (("System prompt", self.system), ("Rubric", self.rubric))
        ):
            texts.addWidget(Text(name, "label", 600), 2, column, BOTTOM)
            texts.addWidget(part, 3, column)
            texts.setColumnStretch(column, 1)
        vbox(
            grid, self._problem, texts, (self.scenarios, 1), self._left_out, parent=self, spacing=10
        )

    def _wire(self) -> None:
        for part in (self.system, self.rubric):
            part.edited.connect(self.edited)
        self.title.edited.connect(lambda _: self.edited.emit())
        self.scenarios.edited.connect(self._changed)

    def _changed(self) -> None:
        self._show()
        self.edited.emit()

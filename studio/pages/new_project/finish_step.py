"""Step 3 of the wizard: model to train, judge, and optional baseline."""

from collections.abc import Sequence

from PySide6.QtWidgets import QWidget

from engine.protocol.problems import Problem
from engine.protocol.records.choices import ModelInfo
from engine.protocol.records.judging import JudgeOption
from engine.protocol.requests.drafts import Draft, Writer
from studio.pages.new_project.writer_fields import LABEL_PX, WriterFields
from studio.store.projects.draft import ATTEMPTS
from studio.text import formatting
from studio.widgets.cards.key_values import KeyValues
from studio.widgets.controls.toggle import Toggle
from studio.widgets.forms.form import FormRow
from studio.widgets.forms.form_fields import SuggestField
from studio.widgets.layouts import STRETCH, add, vbox
from studio.widgets.text.text import Text

WORDS = (
    "The project folder gets system.md, rubric.md, scenarios and an agent. You can "
    "edit them in Setup."
)
MEASURE = (
    "The untrained model runs each training scenario {attempts} times within the "
    "judge budget. Setup lists the scenarios whose rollouts all get the same reward "
    "(no signal)."
)
LEARNER_HELP = "A local model, a folder, or a Hugging Face model name."


class FinishStep(QWidget):
    """Form of step 3 with the values `learner` (model), `judge.writer()`, `measure` (baseline)."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._facts = KeyValues(2)
        self.learner = SuggestField("Model to train", "the starter model")
        self.judge = WriterFields("Judge")
        self.measure = Toggle("Measure the baseline of the untrained model")
        self.measure.setChecked(True)
        self._problem = Text("", "label", 400, "bad", wrap=True, selectable=True)
        column = vbox(
            Text(WORDS, "label", 400, "muted", wrap=True), self._facts, parent=self, spacing=10
        )
        row = FormRow("learner", "Model to train", self.learner, help=LEARNER_HELP,
                      label_px=LABEL_PX)  # fmt: skip
        add(column, row, self.judge, self.measure)
        words = MEASURE.format(attempts=ATTEMPTS)
        add(column, Text(words, "label", 400, "muted", wrap=True), self._problem, STRETCH)

    def set_models(self, models: Sequence[ModelInfo]) -> None:
        self.learner.set_choices([one.name for one in models])

    def set_options(self, options: Sequence[JudgeOption], used: Sequence[str]) -> None:
        """Set the suggestions for the judge model: `used` before, then those found here."""
        self.judge.set_options(options, used)

    def show_draft(self, draft: Draft, writer: Writer) -> None:
        """Show a draft; the writer model is the default judge."""
        tests = sum(one.split == "validation" for one in draft.scenarios)
        practise = formatting.plural(len(draft.scenarios) - tests, "scenario")
        self._facts.set_values([("Title", draft.title), ("Training", practise),
                                ("Rubric", formatting.plural(len(draft.rubric.split()), "word")),
                                ("Validation", formatting.plural(tests, "scenario"))])  # fmt: skip
        if not self.judge.now().model:
            self.judge.show_writer(writer)
        self.refuse(None)

    def begin(self) -> None:
        self.learner.set_value("")
        self.judge.show_writer(Writer(model=""))
        self.measure.setChecked(True)

    def refuse(self, problem: Problem | None) -> None:
        """Show why no project was created; None clears the message."""
        self._problem.set_words(f"{problem.message} {problem.hint}".strip() if problem else "")
        self._problem.setVisible(problem is not None)

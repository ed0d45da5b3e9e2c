"""Form fields for a model: name, base URL, prices and budget."""

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QWidget

from engine.protocol.records.judging import JudgeOption
from engine.protocol.requests.drafts import Writer
from studio.store.projects.draft import writer_problem
from studio.widgets.controls.buttons import Button
from studio.widgets.forms.form import FormRow
from studio.widgets.forms.form_fields import NumberField, SuggestField, TextField
from studio.widgets.layouts import hbox, vbox

LABEL_PX = 132
FOLD_IN_PX = 5
"""Indent that aligns the chevron with the editors, px."""
MODEL_HELP = "LiteLLM model name (openai/gpt-5.4, anthropic/…) or a model server on this machine."
BUDGET_HELP = "Spending limit; when it is reached, results are kept."
URL_HELP = "URL of an OpenAI-compatible server, for models named openai/…"
PRICE_HELP = "USD per million tokens; only for models without a known price."


class WriterFields(QWidget):
    """Model fields; `writer()` returns None and shows errors while invalid; emits `edited()`."""

    edited = Signal()

    def __init__(self, who: str, parent: QWidget | None = None) -> None:
        """Create the fields; `who` is the label of the model field, such as "Writer model"."""
        super().__init__(parent)
        self._options: dict[str, JudgeOption] = {}
        self.model = SuggestField(who, "openai/gpt-5.4")
        self.budget = NumberField("Budget in USD", 0.0, placeholder="no limit")
        self.url = TextField("Base URL", "provider default", mono=True)
        self.price_in = NumberField("Input price", 0.0, placeholder="price list")
        self.price_out = NumberField("Output price", 0.0, placeholder="price list")
        self._rows = {
            key: FormRow(key, label, field, help=help, label_px=LABEL_PX)
            for key, label, field, help in (
                ("model", who, self.model, MODEL_HELP),
                ("budget", "Budget, $", self.budget, BUDGET_HELP),
                ("url", "Base URL", self.url, URL_HELP),
                ("price_in", "$ per million input tokens", self.price_in, PRICE_HELP),
                ("price_out", "$ per million output tokens", self.price_out, PRICE_HELP),
            )
        }  # fmt: skip
        self._fold = Button("Base URL and prices", "quiet", icon="chevron-right", height=28)
        self._build()

    def set_options(self, options: Sequence[JudgeOption], used: Sequence[str] = ()) -> None:
        """Set model suggestions: `used` before, then those found on this machine."""
        self._options = {one.model: one for one in options}
        self.model.set_choices(list(dict.fromkeys([*used, *self._options])))

    def show_writer(self, writer: Writer) -> None:
        self.model.set_value(writer.model)
        self.budget.set_value(writer.budget_usd)
        self.url.set_value(writer.base_url)
        self.price_in.set_value(writer.price_prompt)
        self.price_out.set_value(writer.price_completion)
        self.unfold(bool(writer.base_url or writer.price_prompt or writer.price_completion))
        for row in self._rows.values():
            row.set_problem("")

    def writer(self) -> Writer | None:
        """Return the entered model, or None if it is invalid."""
        wrong = {key: error for key, error in self._wrong().items() if error}
        for key, row in self._rows.items():
            row.set_problem(wrong.get(key, ""))
        if wrong:
            first = next(iter(wrong))
            self.unfold(first not in ("model", "budget") or not self._rows["url"].isHidden())
            self._rows[first].field.setFocus()
            return None
        return self.now()

    def now(self) -> Writer:
        """Return the current values without validation."""
        return Writer(
            model=self.model.value().strip(),
            base_url=self.url.value().strip() or None,
            budget_usd=_not_below(self.budget.value()),
            price_prompt=_not_below(self.price_in.value()),
            price_completion=_not_below(self.price_out.value()),
        )

    def ask_prices(self) -> None:
        """Show the price fields for a model without a known price."""
        self.unfold(True)
        for key in ("price_in", "price_out"):
            self._rows[key].set_problem("No known price for this model")

    def unfold(self, shown: bool) -> None:
        """Show or hide the fields of the base URL and the prices."""
        for key in ("url", "price_in", "price_out"):
            self._rows[key].setVisible(shown)
        self._fold.set_icon("chevron-down" if shown else "chevron-right")

    def _wrong(self) -> dict[str, str]:
        numbers = {"budget": self.budget, "price_in": self.price_in, "price_out": self.price_out}
        wrong = {key: field.problem() if field.text() else "" for key, field in numbers.items()}
        url = self.url.value().strip()
        if url and not url.startswith(("http://", "https://")):
            wrong["url"] = "Write http://… or https://…"
        if bool(self.price_in.text()) != bool(self.price_out.text()):
            wrong["price_out" if self.price_in.text() else "price_in"] = (
                "Enter both prices or neither"
            )
        return {"model": writer_problem(self.now()), **wrong}

    def _build(self) -> None:
        column = vbox(parent=self, spacing=8)
        for key in ("model", "budget"):
            column.addWidget(self._rows[key])
        line = hbox(margins=(LABEL_PX + FOLD_IN_PX, 0, 0, 0))
        line.addWidget(self._fold, 0, Qt.AlignmentFlag.AlignLeft)
        column.addLayout(line)
        for key in ("url", "price_in", "price_out"):
            column.addWidget(self._rows[key])
        self._fold.clicked.connect(lambda: self.unfold(self._rows["url"].isHidden()))
        for key, row in self._rows.items():
            row.edited.connect(lambda *_, which=key: self._edited(which))

    def _edited(self, key: str) -> None:
        self._rows[key].set_problem("")
        if key == "model":
            self._take_address()
        self.edited.emit()

    def _take_address(self) -> None:
        """Set the base URL of a detected server; clear it for other names."""
        option = self._options.get(self.model.value().strip())
        ours = {one.base_url for one in self._options.values()}
        if option is not None:
            self.url.set_value(option.base_url)
        elif self.url.value() in ours:
            self.url.set_value("")


def _not_below(value: float | None) -> float | None:
    return value if value is None or value >= 0 else None

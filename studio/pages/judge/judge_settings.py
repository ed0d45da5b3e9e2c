"""Judge settings: model, sampling, estimated cost of re-judging, amount spent."""

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from engine.protocol.config.project import JudgeConfig
from engine.protocol.records.judging import JudgeOption, TrialPrice
from studio.text import formatting
from studio.theme.plain_tooltips import set_tip
from studio.widgets.cards.card import Card
from studio.widgets.controls.buttons import Button, IconButton
from studio.widgets.controls.price_button import PriceButton
from studio.widgets.forms.form_fields import ChoiceField, TextField, ToggleField
from studio.widgets.layouts import STRETCH, add, hbox
from studio.widgets.text.chip import Chip
from studio.widgets.text.text import Text

OTHER, LOCAL = "other", "local"
NO_SERVER = (
    "No model server was found on this machine. Only the default ports of Ollama, LM Studio, vLLM "
    "and llama.cpp are searched; for another address, enter the model and its base URL."
)
LOCAL_WORDS = "Local judge trained on your labels · free"


class JudgeChoice(Card):
    """Card with the judge settings; emits `models_chosen(models, base_url)`."""

    models_chosen = Signal(list, object)
    local_chosen = Signal()
    enabled_chosen = Signal(bool)
    try_wanted = Signal()
    cancel_wanted = Signal()
    setup_wanted = Signal()
    search_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("Judge", parent=parent)
        self._options: dict[str, JudgeOption] = {}
        self._more, self._combine, self._spent = 0, "mean", ""
        self._shown: tuple[str, str | None] = ("", None)
        """Model and base URL in the project when they were shown last."""
        self._pick = ChoiceField("Judge", [(OTHER, "Enter a model…")])
        self._search = IconButton("refresh-cw", "Search for model servers on this machine")
        self._note = Text("", "label", 400, "muted", wrap=True)
        self._name = TextField("Judge model", "LiteLLM name, such as openai/gpt-5.4", mono=True)
        self._base = TextField("Base URL", "Base URL (optional)", mono=True)
        self._use = Button("Use", "outlined")
        self._temperature, self._passes = Chip("temperature 0"), Chip("one pass")
        self._on = ToggleField("Use this judge for new runs")
        self.price = PriceButton("scale")
        self._time = Text("", "label", 400, "muted")
        self._lay_out()
        self._pick.edited.connect(self._picked)
        self._use.clicked.connect(self._named)
        for field in (self._name, self._base):
            field.editor.returnPressed.connect(self._named)  # type: ignore[attr-defined]
        self._search.clicked.connect(self.search_wanted)
        self._on.edited.connect(lambda on: self.enabled_chosen.emit(bool(on)))
        self.price.pressed.connect(self.try_wanted)
        self.price.cancel_requested.connect(self.cancel_wanted)
        self.price.budget_requested.connect(self.setup_wanted)
        self.show_nothing("No run has stored groups yet.")

    def _lay_out(self) -> None:
        top = hbox((self._pick, 1), self._search, self._temperature, self._passes, spacing=8)
        self._typed = QWidget()
        hbox((self._name, 1), (self._base, 1), self._use, parent=self._typed, spacing=8)
        bottom = hbox(self.price, self._time, STRETCH, spacing=12)
        assert self.header is not None
        self.header.add_right(Text("used for new runs", "caption", 400, "muted"))
        self.header.add_right(self._on)
        add(self.body, top, self._note, self._typed, bottom)
        self._note.hide()

    def show_judge(
        self, judge: JudgeConfig, options: Sequence[JudgeOption], used: Sequence[str]
    ) -> None:
        """Show the project's judge, models found on this machine and those `used` by runs."""
        self._options = {one.model: one for one in options}
        choices = [(name, name) for name in judge.models[:1]]
        choices += [(one.model, f"{one.title} · {one.where}") for one in options]
        choices += [(name, name) for name in used if name != LOCAL]
        named = dict(reversed(choices))
        last = [(LOCAL, LOCAL_WORDS), (OTHER, "Enter a model…")]
        self._pick.set_choices([*reversed(named.items()), *last])
        now = judge.models[0] if judge.models else LOCAL if judge.local else OTHER
        self._pick.set_value(now)
        model = judge.models[0] if judge.models else ""
        if (model, judge.base_url) != self._shown:
            self._shown = (model, judge.base_url)
            self._name.set_value(model)
            self._base.set_value(judge.base_url)
        self._ask_name(now == OTHER)
        set_tip(self._pick.editor, f"{model} at {judge.base_url}" if judge.base_url else model)
        self._temperature.setVisible(bool(judge.models))
        self._passes.setVisible(bool(judge.models))
        self._temperature.set_state(f"temperature {judge.temperature:g}")
        looks = f"up to {judge.passes} passes"
        self._passes.set_state(looks if judge.passes > 1 else "one pass")
        self._on.set_value(judge.enabled)
        self._on.setEnabled(bool(judge.models) or judge.local)
        self._more, self._combine = len(judge.models) - 1, judge.combine
        self._say()

    def show_searching(self) -> None:
        """Show that the model servers of this machine are being searched for."""
        self._search.setEnabled(False)
        self._note.set_words("Searching for model servers on this machine…")
        self._note.show()

    def show_found(self, options: Sequence[JudgeOption]) -> None:
        """Show how many models the servers on this machine offer, after a search."""
        self._search.setEnabled(True)
        where = ", ".join(dict.fromkeys(one.where for one in options))
        found = f"{formatting.plural(len(options), 'model')} found: {where}."
        self._note.set_words(found if options else NO_SERVER)
        self._note.show()

    def show_spent(self, spent: float, budget: float | None) -> None:
        """Show the judge cost of the run and its `budget` (None: no limit), in US dollars."""
        of = f" of ${budget:.2f}" if budget is not None else ""
        self._spent = f"${spent:.2f}{of} spent on this run"
        self._say()

    def show_price(self, price: TrialPrice) -> None:
        """Show the cost of re-judging: exact number of calls, estimated tokens and USD."""
        words = f"Re-judge {formatting.plural(price.groups, 'group')}"
        self._time.set_words("")
        if not price.calls:
            self.price.set_free(words, f"all {price.cached} calls cached · free")
            return
        calls = formatting.plural(price.calls, "call")
        money = f"≈ ${price.usd:.2f}" if price.usd >= 0.005 else "under 1 ¢"
        money = money if price.most_usd else "free"
        details = f"{calls} · {formatting.short(price.tokens)} tokens · {money}"
        if price.left_usd is not None and price.usd > price.left_usd:
            left = f"${price.usd:.2f}, ${price.left_usd:.2f} left"
            self.price.set_over_budget(words, details, left)
            return
        self.price.set_priced(words, details)
        self._time.set_words(f"about {formatting.duration(max(1.0, price.seconds))}")

    def show_running(self, done: int, total: int) -> None:
        """Show the progress of re-judging, in groups."""
        self._time.set_words("")
        self.price.set_running(f"Judging {done} of {total}", done / max(1, total))

    def show_measuring(self, groups: int) -> None:
        """Show that the cost of re-judging `groups` groups is being estimated."""
        words = f"Re-judge {formatting.plural(groups, 'group')}" if groups else "Re-judge"
        self._time.set_words("")
        self.price.set_measuring(words)

    def show_nothing(self, why: str) -> None:
        """Show why no cost can be estimated."""
        self.price.set_unavailable("Re-judge")
        self._time.set_words(why)

    def _say(self) -> None:
        assert self.header is not None
        others = f"{self._combine} of {self._more + 1} judges · "
        self.header.set_words((others if self._more > 0 else "") + self._spent)

    def _ask_name(self, wanted: bool) -> None:
        self._typed.setVisible(wanted)
        self._temperature.setVisible(not wanted)
        self._passes.setVisible(not wanted)

    def _picked(self, value: object) -> None:
        if value == OTHER:
            self._ask_name(True)
            self._name.setFocus()
            return
        if value == LOCAL:
            self.local_chosen.emit()
            return
        option = self._options.get(str(value))
        self._ask_name(False)
        self.models_chosen.emit([str(value)], option.base_url if option else None)

    def _named(self) -> None:
        if name := self._name.value().strip():
            self.models_chosen.emit([name], self._base.value().strip() or None)
        else:
            self._name.setFocus()

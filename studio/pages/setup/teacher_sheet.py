"""Sheet for demonstrations from a teacher: model, rollouts, filter, cost limit."""

import uuid
from typing import Any

from PySide6.QtWidgets import QWidget

from engine.protocol.config.project import ProjectConfig
from engine.protocol.records.demonstrations import SelectDemonstrations
from engine.protocol.requests.runs import StartEvaluation
from studio.text import formatting
from studio.widgets.controls.buttons import Button
from studio.widgets.forms.form import FormRow
from studio.widgets.forms.form_fields import ChoiceField, NumberField, SpinField, SuggestField
from studio.widgets.forms.run_request_sheet import OrderSheet
from studio.widgets.text.text import Text

WORDS = (
    "A stronger model runs the training scenarios with this project's agent; your "
    "rules and judge score its trajectories. The good ones become demonstrations. Paid replies "
    "are cached."
)
KEEP = (
    ("best", "best of each scenario"),
    ("best:0.5", "best, if the reward is at least 0.5"),
    ("above:0.8", "all with a reward of at least 0.8"),
    ("all", "all scored"),
)
LABEL_PX = 132


class TeacherSheet(OrderSheet):
    """Teacher sheet: `show_project(config, scenarios)`, then `open()`;
    `ordered(StartEvaluation)`."""

    def __init__(self, host: QWidget) -> None:
        go = Button("Generate", "primary", icon="sparkles", height=32)
        super().__init__("Demonstrations from a teacher", host, go)
        self._scenarios = 0
        self._config = ProjectConfig()
        self.project = ""
        self.model = SuggestField("Teacher", "openai/gpt-5.4")
        self.attempts = SpinField("Rollouts", 1, 64)
        self.keep = ChoiceField("Keep", KEEP)
        self.budget = NumberField("Budget in USD", 0.0)
        self.price_in = NumberField("Input price", 0.0, placeholder="price list")
        self.price_out = NumberField("Output price", 0.0, placeholder="price list")
        self._rows = {
            name: FormRow(name, label, field, label_px=LABEL_PX)
            for name, label, field in (
                ("model", "Teacher", self.model),
                ("attempts", "Rollouts per scenario", self.attempts),
                ("keep", "Keep", self.keep),
                ("budget", "Budget, $", self.budget),
                ("price_in", "$ per million input tokens", self.price_in),
                ("price_out", "$ per million output tokens", self.price_out),
            )
        }
        self._build()

    def show_project(self, config: ProjectConfig, scenarios: int) -> None:
        """Fill in the project's teacher settings and budget; `scenarios`: their number."""
        self._config, self._scenarios = config, scenarios
        if self.turn_to((self.project, config)):
            self._fill(config)
        self._refresh()

    def _fill(self, config: ProjectConfig) -> None:
        usual = config.evaluate
        self.model.set_choices(config.judge.models)
        if not self.model.value():
            self.model.set_value(config.judge.models[0] if config.judge.models else "")
        self.attempts.set_value(max(4, usual.attempts))
        self.budget.set_value(5.0 if usual.budget_usd is None else usual.budget_usd)
        self.price_in.set_value(usual.price_prompt)
        self.price_out.set_value(usual.price_completion)

    def request(self) -> StartEvaluation:
        overrides: dict[str, Any] = {
            "evaluate.budget_usd": self.budget.value(),
            "evaluate.price_prompt": self.price_in.value(),
            "evaluate.price_completion": self.price_out.value(),
        }
        return StartEvaluation(
            project=self.project,
            models=[str(self.model.value()).strip()],
            attempts=self.attempts.value(),
            scenarios="train",
            demonstrate=SelectDemonstrations(keep=str(self.keep.value())),
            overrides={key: value for key, value in overrides.items() if value is not None},
            queue=True,
            key=uuid.uuid4().hex,
        )

    def _build(self) -> None:
        self.body.addWidget(Text(WORDS, "label", 400, "muted", wrap=True))
        for row in self._rows.values():
            self.body.addWidget(row)
            row.edited.connect(lambda *_: self._refresh())
        self.add_end()

    def _refresh(self) -> None:
        name, budget = str(self.model.value()).strip(), self.budget.value()
        wrong = "" if "/" in name else "Write PROVIDER/MODEL, for example openai/gpt-5.4"
        self._rows["model"].set_problem(wrong if name else "")
        wrong = wrong or self.budget.problem()
        self._rows["budget"].set_problem(self.budget.problem())
        for key, field in (("price_in", self.price_in), ("price_out", self.price_out)):
            problem = field.problem() if field.text() else ""
            self._rows[key].set_problem(problem)
            wrong = wrong or problem
        count = formatting.plural(self._scenarios * self.attempts.value(), "rollout")
        most = f"up to ${budget or 0:.2f}"
        self._go.set_words("Generate", f"{count} · {most}")
        self._go.setEnabled(bool(name) and not wrong)
        self.show_command(command_of(self.request()))


def command_of(request: StartEvaluation) -> str:
    """Return the `atelier` command line that starts the same teacher run."""
    assert request.demonstrate is not None
    path = f'"{request.project}"' if " " in request.project else request.project
    words = ["atelier distill", path, "--teacher", request.models[0] or "MODEL"]
    words += ["--attempts", str(request.attempts), "--keep", request.demonstrate.keep]
    if (budget := request.overrides.get("evaluate.budget_usd")) is not None:
        words += ["--budget", f"{budget:g}"]
    prices = [request.overrides.get(f"evaluate.price_{one}") for one in ("prompt", "completion")]
    if None not in prices:
        words += ["--price", *(f"{price:g}" for price in prices)]
    return " ".join(words)

"""Preflight panel of Setup: memory, time, baseline, checks, and Train."""

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import Problem
from engine.protocol.records.forecast import Forecast, JudgeForecast
from engine.protocol.records.machine.hardware import Check, VramPlan
from engine.protocol.records.runs import Interval
from studio.pages.page import scrolled
from studio.pages.setup.preflight.drawings import (
    USEFUL,
    BaselineBand,
    MemoryBar,
    SpreadBars,
    shares_of,
)
from studio.pages.setup.preflight.gpu_memory import CardMemory
from studio.pages.setup.preflight.strip import PreflightStrip
from studio.store.servers.cluster_rows import step_tokens
from studio.text import formatting
from studio.widgets.cards.card import Card
from studio.widgets.cards.check_line import CheckLine, CheckNote
from studio.widgets.cards.facts import Fact, FactRow
from studio.widgets.controls.buttons import Button
from studio.widgets.layouts import STRETCH, add, vbox
from studio.widgets.text.phrase import Phrase, Span
from studio.widgets.text.text import Text

WIDTH = 412
QWIDGETSIZE_MAX = (1 << 24) - 1
"""Qt's largest width: no limit."""


class Preflight(QWidget):
    """Preflight panel: `show_forecast`, `show_baseline`, `show_checks`, `set_train`. `strip` has
    the same on one line; the page shows it in a narrow window."""

    measure_wanted = Signal()
    train_wanted = Signal()
    again_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFixedWidth(WIDTH)
        self.strip = PreflightStrip()
        self._memory, self._facts = MemoryBar(), FactRow(spread=False)
        self.cards = CardMemory()
        self.cards.hide()
        self._memory_line = Phrase((), "label")
        self._baseline_line = Phrase((), "label")
        self._band, self._spread = BaselineBand(), SpreadBars()
        self._advice = Text("", "label", 400, "muted", wrap=True)
        self._measure = Button("Measure", "outlined", icon="ruler", height=28)
        self._checks: list[CheckLine] = []
        self._model_checks: list[CheckNote] = []
        self._train = Button("Train", "primary", icon="play", height=32)
        self._safe = Text("Closing this window does not stop training.", "caption", tone="faint")
        self._build()
        self._measure.clicked.connect(self.measure_wanted)
        self._train.clicked.connect(self.train_wanted)
        self.strip.train_wanted.connect(self.train_wanted)
        self._again.clicked.connect(self.again_wanted)
        self.show_baseline(None, [], False)

    def set_narrow(self, narrow: bool) -> None:
        """Switch to the narrow layout: fill the width of the page and hide the Train button, which
        the strip then shows; False: fixed width, with the button."""
        self.setMinimumWidth(0 if narrow else WIDTH)
        self.setMaximumWidth(QWIDGETSIZE_MAX if narrow else WIDTH)
        self._foot.setVisible(not narrow)

    def show_forecast(self, forecast: Forecast | None, problem: Problem | None = None) -> None:
        """Show the estimated memory and time. Without a forecast, show the problem that prevents
        it, or that it is being computed."""
        vram = forecast.vram if forecast else None
        self._memory.setVisible(forecast is not None and vram is None)
        self._memory_line.setVisible(vram is None)
        self.cards.setVisible(vram is not None)
        if forecast is None:
            words = problem.message if problem else "Estimating…"
            self._memory_line.set_spans([Span("Memory  ", "text", 600), Span(words)])
            self._facts.set_facts([Fact("Time", formatting.ABSENT)])
            self.strip.set_fact("memory", [Span(words)])
            self.strip.set_fact("time", [])
            return
        self.strip.set_fact("time", [Span(_time(forecast), "text", 600)])
        self._facts.set_facts(_time_facts(forecast))
        if vram is not None:
            self.cards.show_plan(vram)
            self.strip.set_fact("memory", _gpu_spans(vram))
        else:
            self._show_memory(forecast)

    def show_cluster(self, name: str, config: ProjectConfig, forecast: Forecast | None) -> None:
        """Show what a step samples on a cluster, whose memory and speed are unknown."""
        for part in (self._memory, self.cards):
            part.hide()
        self._memory_line.show()
        spans = [Span("Memory  ", "text", 600), Span(f"on the server of {name}")]
        self._memory_line.set_spans(spans)
        train = config.train
        below = f"{train.groups} groups × {train.group_size} rollouts × {train.max_tokens:,}"
        most = formatting.short(step_tokens(config))
        judge = _judge_facts(forecast.judge) if forecast and forecast.judge else []
        sampled = Fact("Tokens per turn of a step", f"up to {most}", below=below)
        self._facts.set_facts([sampled, *judge])
        self.strip.set_fact("memory", spans)
        self.strip.set_fact("time", [])

    def _show_memory(self, forecast: Forecast) -> None:
        need = sum(share.bytes for share in shares_of(forecast))
        fits = need <= forecast.available_bytes
        self._memory.set_forecast(forecast)
        room = f"{formatting.size(need)} of {formatting.size(forecast.available_bytes)} free"
        word = Span(
            "  fits" if fits else "  does not fit: choose a smaller model",
            "good" if fits else "bad",
        )
        spans = [Span("Memory  ", "text", 600), Span(room), word]
        self._memory_line.set_spans(spans)
        self.strip.set_fact("memory", spans)

    def show_baseline(self, rate: Interval | None, scenarios: list[float], measuring: bool) -> None:
        """Show the success rate before training (None: not measured) and `scenarios`, the mean
        reward of each; `measuring`: a measurement is running."""
        self._band.set_rate(rate)
        self._spread.set_rates(scenarios)
        spans = [Span("Solved before training  ", "text", 600)]
        if rate is not None:
            spans += [
                Span(formatting.percent(rate.mean), "text", 600, mono=True),
                Span(f"  {rate.low * 100:.0f} to {rate.high * 100:.0f}"),
            ]
        else:
            spans.append(Span("measuring…" if measuring else "not measured"))
        self._baseline_line.set_spans(spans)
        self.strip.set_fact("baseline", [Span("Baseline  ", "text", 600), *spans[1:]])
        self._advice.set_words(advice(rate, scenarios))
        self._measure.set_words("Measure again" if rate is not None else "Measure")
        self._measure.set_busy("Measuring…" if measuring else None)

    def show_checks(self, checks: list[tuple[str, str]]) -> None:
        """Replace the project checks, given as (state, text); the state is good, bad or open."""
        for line in self._checks:
            self._check_box.removeWidget(line)
            line.deleteLater()
        self._checks = [CheckLine(state, words) for state, words in checks]
        add(self._check_box, *self._checks)

    def show_model_checks(self, checks: Sequence[Check]) -> None:
        """Replace the checks of the model, such as its chat format."""
        for note in self._model_checks:
            self._model_box.removeWidget(note)
            note.deleteLater()
        self._model_checks = [CheckNote(c.state, c.name, c.words, c.hint) for c in checks]
        add(self._model_box, *self._model_checks)

    def set_train(self, words: str, price: str, enabled: bool, why: str = "") -> None:
        """Set label, price and state of the Train button; `why`: the text below it."""
        self._train.set_words(words, price)
        self._train.setEnabled(enabled)
        self.strip.set_train(words, enabled, why)
        self._safe.set_words(why or "Closing this window does not stop training.")

    def allow_measuring(self, allowed: bool) -> None:
        """Show or hide the button that measures the baseline; hidden for projects with an external
        training script."""
        self._measure.setVisible(allowed)

    def add_tests(self, tests: QWidget) -> None:
        """Insert the live checks below the project checks."""
        self._tests_box.addWidget(tests)

    def _build(self) -> None:
        card = Card("Preflight", " ", padding=14)
        self._again = Button("Recalculate", "quiet", icon="refresh-cw", height=24)
        assert card.header is not None
        card.header.add_right(self._again)
        card.body.setSpacing(10)
        memory: list[QWidget] = [self._memory_line, self._memory, self.cards, self._facts]
        baseline: list[QWidget] = [self._baseline_line, self._band, self._spread, self._advice]
        add(card.body, *memory, 6, *[*baseline, self._measure], 4)
        self._check_box = vbox(spacing=2)
        card.body.addLayout(self._check_box)
        self._model_box = vbox(spacing=2)
        card.body.addLayout(self._model_box)
        self._tests_box = QVBoxLayout()
        card.body.addLayout(self._tests_box)
        inner = QWidget()
        vbox(card, STRETCH, parent=inner, margins=(16, 16, 16, 8))
        self._foot = QWidget()
        vbox(self._train, self._safe, parent=self._foot, margins=(16, 8, 16, 16), spacing=8)
        vbox((scrolled(inner), 1), self._foot, parent=self, spacing=0)


def _gpu_spans(plan: VramPlan) -> list[Span]:
    """Return the memory of the fullest GPU and whether the run fits on all of them."""
    card, fits = plan.cards[0], all(card.fits for card in plan.cards)
    room = f"{formatting.size(card.peak_bytes)} of {formatting.size(card.total_bytes)}"
    verdict = Span("  fits", "good") if fits else Span("  does not fit", "bad")
    return [Span("GPU memory  ", "text", 600), Span(room), verdict]


def _time(forecast: Forecast) -> str:
    ends = (forecast.step_low_s * forecast.steps, forecast.step_high_s * forecast.steps)
    low, high = (formatting.duration(end) for end in ends)
    return low if low == high else f"{low} to {high}"


def _time_facts(forecast: Forecast) -> list[Fact]:
    per_step = formatting.duration((forecast.step_low_s + forecast.step_high_s) / 2)
    source = "measured in an earlier run" if forecast.measured else "estimated, not measured"
    return [
        Fact("Time", _time(forecast), below=f"about {per_step} per step, {source}"),
        *(_judge_facts(forecast.judge) if forecast.judge else []),
    ]


def _judge_facts(judge: JudgeForecast) -> list[Fact]:
    """Return calls and cost of the judge, of which the validations have a part."""
    calls = _between(formatting.short(judge.calls_low), formatting.short(judge.calls_high))
    tests = formatting.short(judge.validation_calls)
    cost = judge_cost(judge) or "price known after the first run"
    over = judge.budget_usd is not None and (judge.usd_high or 0.0) > judge.budget_usd
    words = f"{cost}, {tests} calls for validations"
    if over:
        words += f", budget ${judge.budget_usd:.2f}"
    return [Fact("Judge calls", calls, tone="warn" if over else "text", below=words)]


def judge_cost(judge: JudgeForecast) -> str:
    """Return the cost of the judge in words: "$0.80 to $2.10", "free"; empty if unknown."""
    if judge.usd_low is None or judge.usd_high is None:
        return ""
    if not judge.usd_high:
        return "free"
    return _between(f"${judge.usd_low:.2f}", f"${judge.usd_high:.2f}")


def _between(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def advice(rate: Interval | None, scenarios: list[float]) -> str:
    """Give advice by the baseline success `rate` (None: not measured) and `scenarios`, the mean
    rewards per scenario."""
    low, high = USEFUL
    if rate is None:
        return (
            "Training needs scenarios that are solved in some, but not all, rollouts. Measure the "
            "baseline to count them."
        )
    if rate.mean < low:
        return "Few rollouts succeed. Use easier scenarios, partial credit, or a warm-up with SFT."
    if rate.mean > high:
        return "Most rollouts already succeed. Use harder scenarios."
    between = sum(0.1 < share < 0.9 for share in scenarios)
    if not scenarios:
        return "The success rate is in the useful range."
    return (
        f"{between / len(scenarios):.0%} of scenarios are solved sometimes and give a "
        "training signal."
    ).replace("%", " %")

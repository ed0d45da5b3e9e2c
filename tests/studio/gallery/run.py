"""Run page of the design mock-ups, built from the shared widgets with sample data."""

import numpy as np
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QScrollArea, QVBoxLayout, QWidget

from studio.text import formatting
from studio.widgets.cards.card import Card
from studio.widgets.cards.diagnosis_card import DiagnosisCard
from studio.widgets.cards.facts import Fact, FactRow
from studio.widgets.charts.chart_card import ChartCard
from studio.widgets.charts.link import ChartLink
from studio.widgets.charts.pane import EventTag, Limit
from studio.widgets.controls.segmented import Segmented
from studio.widgets.steps.phase_bars import Phase, PhaseBars
from studio.widgets.steps.step_strip import StepStrip
from studio.widgets.steps.strip_layout import StepCell
from studio.widgets.steps.strip_legend import StripLegend
from studio.widgets.tables.group_row import GroupRow
from studio.widgets.tables.meter import MeterRow
from studio.widgets.text.phrase import Phrase, Span
from studio.widgets.text.text import Text
from studio.widgets.window.page_header import PageHeader
from studio.widgets.window.sidebar import Sidebar
from tests.studio import demo


def run_window() -> QWidget:
    """Return the whole window in the state of the mock-up."""
    window = QWidget()
    line = QHBoxLayout(window)
    line.setContentsMargins(0, 0, 0, 0)
    line.setSpacing(0)
    line.addWidget(sidebar("run"))
    column = QVBoxLayout()
    column.setSpacing(0)
    line.addLayout(column, 1)
    column.addWidget(header())
    column.addWidget(_Body(), 1)
    return window


def sidebar(selected: str) -> Sidebar:
    """Return the sidebar of an open project."""
    side = Sidebar()
    side.set_project("inbox-scout")
    for key, fact in (
        ("judge", "\u03c4 0.71"),
        ("run", "46/120"),
        ("trajectories", "2,944"),
        ("checkpoints", "6"),
    ):
        side.set_fact(key, fact)
    side.set_selected(selected)
    return side


def header() -> PageHeader:
    """Return the header of an active run."""
    head = PageHeader()
    head.set_place("inbox-scout", "amber-kestrel")
    head.pill.set_engine("gpu-box \u00b7 H200", "connected")
    head.chip.set_run_state("alive", "Step 47 \u00b7 judging")
    head.train.set_state("training", 46, 120)
    return head


class _Body(QWidget):
    """Steps strip, charts and right column."""

    def __init__(self) -> None:
        super().__init__()
        self.link = ChartLink(self)
        column = QVBoxLayout(self)
        column.setContentsMargins(16, 12, 16, 16)
        column.setSpacing(0)
        column.addLayout(self._facts())
        column.addSpacing(6)
        column.addWidget(self._strip())
        column.addSpacing(12)
        line = QHBoxLayout()
        line.setSpacing(12)
        grid = QGridLayout()
        grid.setSpacing(12)
        self.charts = chart_cards(self.link)
        for index, card in enumerate(self.charts):
            grid.addWidget(card, index // 2, index % 2)
        line.addLayout(grid, 1)
        line.addWidget(right_column())
        column.addLayout(line, 1)
        self.link.set_chosen(38)

    def _facts(self) -> QHBoxLayout:
        line = QHBoxLayout()
        line.setSpacing(12)
        line.addWidget(Text("Step 46 of 120", "body", 600))
        spans = [
            Span("reward "),
            Span("0.73", "text", 600),
            Span(" \u00b7 validation "),
            Span("0.64", "text", 600),
            Span(" \u00b7 2,944 trajectories \u00b7 "),
            Span("11 unscored", "warn", link="unscored"),
        ]
        facts = Phrase(spans, "label")
        facts.setMinimumWidth(facts.sizeHint().width())
        line.addWidget(facts)
        line.addStretch(1)
        legend = StripLegend()
        legend.set_range(0.20, 0.75)
        line.addWidget(legend)
        line.addWidget(Segmented(["Step", "Time", "Tokens", "Cost"], "x axis"))
        return line

    def _strip(self) -> StepStrip:
        strip = StepStrip()
        rewards = demo.reward()
        cells = [
            StepCell(step, "skipped" if step in (5, 12) else "done", float(rewards[step]))
            for step in range(46)
        ]
        cells.append(StepCell(46, "running"))
        cells += [StepCell(step, "planned") for step in range(47, 120)]
        strip.set_steps(cells, 0.20, 0.75)
        strip.set_marks(validations=(0, 10, 20, 30, 40), checkpoints=(9, 19, 29, 39))
        strip.set_chosen(38)
        return strip


def chart_cards(link: ChartLink) -> list[ChartCard]:
    """Return the six charts of the mock-up."""
    return [_reward(link), _parts(link), _spread(link), _entropy(link), _speed(link), _length(link)]


def _reward(link: ChartLink) -> ChartCard:
    card = ChartCard("Reward", link)
    line = card.add_line("training", "plot-1")
    diamonds = card.add_validation()
    card.set_y(0, 1)
    card.set_last("0.66", "+0.41", True)
    line.set_data(demo.STEPS, demo.reward())
    means = np.array([0.31, 0.42, 0.51, 0.58, 0.64])
    diamonds.set_data([0, 10, 20, 30, 40], means, means - 0.05, means + 0.05)
    card.set_events([EventTag(31, "rubric 4", "judge")])
    return card


def _parts(link: ChartLink) -> ChartCard:
    card = ChartCard("Reward parts", link)
    tokens = {"judge": "plot-2", "sources": "plot-3", "answer": "plot-6", "turn cost": "plot-5"}
    for name, values in demo.parts().items():
        card.add_line(name, tokens[name], width_px=2.0).set_data(demo.STEPS, values)
    return card


def _spread(link: ChartLink) -> ChartCard:
    card = ChartCard("Reward spread within groups", link)
    line = card.add_line("standard deviation", "plot-1", width_px=2.0)
    bars = card.add_bars(["groups without signal"], ["ghost"])
    noise = demo.rng()
    x = np.linspace(0, 1, 46)
    line.set_data(demo.STEPS, 0.23 + 0.06 * np.sin(3 * x) - 0.16 * x + noise.normal(0, 0.014, 46))
    share = noise.choice([0, 0.125, 0.125, 0.25, 0.25], 46)
    share[-1] = share[-7] = 0.375
    bars.set_data(demo.STEPS, share, newest_token="warn")
    card.set_y(0, 0.6)
    card.set_last("0.12")
    return card


def _entropy(link: ChartLink) -> ChartCard:
    card = ChartCard("Entropy and KL", link, ("Entropy, nats per token", "KL to the base model"))
    x, noise = np.linspace(0, 1, 46), demo.rng()
    card.add_line("entropy", "plot-3", width_px=2.0, in_legend=False).set_data(
        demo.STEPS, 0.6 + 0.65 * np.exp(-1.7 * x) + noise.normal(0, 0.02, 46)
    )
    card.add_line("KL", "plot-6", pane=1, width_px=2.0, in_legend=False).set_data(
        demo.STEPS, np.abs(0.032 * x + noise.normal(0, 0.0012, 46))
    )
    card.set_y(None, None, zero=False)
    card.set_last("0.71 \u00b7 0.031")
    return card


def _speed(link: ChartLink) -> ChartCard:
    card = ChartCard("Speed", link, ("Tokens per second", ""))
    noise = demo.rng()
    speed = 6600 + noise.normal(0, 380, 46)
    speed[27] = 2700
    card.add_line(
        "tokens per second",
        "plot-1",
        ghost=False,
        width_px=1.75,
        in_legend=False,
        form=formatting.short,
    ).set_data(demo.STEPS, speed)
    bars = card.add_bars(
        ["rollout", "judge", "train", "publish"], ["plot-1", "plot-2", "plot-3", "plot-7"], pane=1
    )
    judge = 26 + noise.normal(0, 3, 46)
    judge[27] = 82
    bars.set_data(
        demo.STEPS,
        78 + noise.normal(0, 6, 46),
        judge,
        32 + noise.normal(0, 3, 46),
        np.full(46, 4.0),
    )
    card.set_y(0, None, pane=1, unit="s")
    card.set_last("6.7k")
    return card


def _length(link: ChartLink) -> ChartCard:
    card = ChartCard("Completion length", link)
    line = card.add_line("median", "plot-1", ghost=False, width_px=2.0, form=formatting.short)
    band = card.add_band("10\u201390 %", "plot-1")
    x, noise = np.linspace(0, 1, 46), demo.rng()
    median = 230 + 85 * np.exp(-((x - 0.32) ** 2) / 0.03) - 40 * x
    line.set_data(demo.STEPS, median + noise.normal(0, 3, 46))
    band.set_data(
        demo.STEPS,
        median * 0.52 + noise.normal(0, 9, 46),
        np.minimum(530, median * 1.75 + noise.normal(0, 16, 46)),
    )
    card.set_limits([Limit(512, "limit 512")])
    card.set_last("196 tokens")
    return card


def right_column() -> QWidget:
    """Return the column of step, groups in flight, diagnosis and GPU."""
    side = QWidget()
    side.setFixedWidth(308)
    column = QVBoxLayout(side)
    column.setContentsMargins(0, 0, 0, 0)
    column.setSpacing(12)
    column.addWidget(_step_card())
    column.addWidget(_groups_card())
    column.addWidget(
        DiagnosisCard(
            "37 % of the groups gave no signal.",
            "Every rollout in these groups got the same reward, so they contribute no gradient.",
            "Rest the 3 scenarios",
            "Show them",
        )
    )
    column.addWidget(_gpu_card())
    column.addStretch(1)
    scroll = QScrollArea()
    scroll.setWidget(side)
    scroll.setWidgetResizable(True)
    scroll.setFixedWidth(318)
    scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    side.setProperty("transparent", True)
    return scroll


def _step_card() -> Card:
    card = Card("Step 47", "judging 5 of 8 groups")
    phases = PhaseBars()
    phases.set_phases(
        [
            Phase("Roll out", 74, 1.0, 74),
            Phase("Judge", 40, 0.6, 17, "plot-2"),
            Phase("Train", 8),
            Phase("Publish", 6),
        ]
    )
    facts = FactRow()
    facts.set_facts(
        [
            Fact("Time left", "2 h 40 min"),
            Fact("Judge spend", "$1.84", "of $6.00"),
            Fact("Per step", "2:10"),
        ]
    )
    card.body.addWidget(phases)
    card.body.addSpacing(2)
    card.body.addWidget(facts)
    return card


def _groups_card() -> Card:
    card = Card("Groups in flight", "8 \u00d7 8", padding=6)
    assert card.header is not None
    card.header.add_right(Text("0 \u00b7 reward \u00b7 1", "caption", tone="faint"))
    card.body.setSpacing(0)
    for name, rewards, tail, tone in demo.GROUPS:
        row = GroupRow()
        row.set_group(name, rewards, tail, tone)
        card.body.addWidget(row)
    return card


def _gpu_card() -> Card:
    card = Card("H200")
    assert card.header is not None
    card.header.add_right(Text("58 \u00b0C \u00b7 612 W", "caption", tone="faint"))
    card.body.setSpacing(0)
    for words, share, figure, token in (
        ("Compute", 0.91, "91 %", "plot-1"),
        ("Memory", 98 / 141, "98 / 141 GB", "plot-1"),
        ("KV cache", 0.47, "47 %", "plot-3"),
    ):
        row = MeterRow(words, token)
        row.set_value(share, figure)
        card.body.addWidget(row)
    foot = QHBoxLayout()
    foot.addWidget(Phrase("Sampler and trainer agree", "caption"))
    foot.addStretch(1)
    gap = Phrase([Span("\u2713 gap 3e-5", "good", mono=True)], "caption")
    foot.addWidget(gap)
    card.body.addSpacing(4)
    card.body.addLayout(foot)
    return card

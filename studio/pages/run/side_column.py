"""Side column of the Run page: current step, groups in flight, diagnosis, machine."""

import time

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import QScrollArea, QWidget

from engine.protocol.records.runs import Alert, Finding
from studio.models.run import RunModel
from studio.pages.run.gpus import CardsCard
from studio.store.runs.backend_labels import precision, programs, restarts
from studio.store.runs.eta import remaining_seconds, step_seconds, usual_phases, usual_switch
from studio.store.runs.parts import FlightGroup
from studio.store.runs.state import HELD_OUT, RunState
from studio.store.runs.status_words import PHASES, largest_gap, steps_of
from studio.text import formatting
from studio.widgets.cards.card import Card, CardHeader
from studio.widgets.cards.diagnosis_card import DiagnosisCard
from studio.widgets.cards.facts import Fact, FactRow
from studio.widgets.cards.key_values import KeyValues
from studio.widgets.layouts import STRETCH, add, vbox
from studio.widgets.steps.phase_bars import Phase, PhaseBars
from studio.widgets.tables.group_row import GroupRow
from studio.widgets.tables.meter import MeterRow
from studio.widgets.text.phrase import Phrase, Span
from studio.widgets.text.text import Text

WIDTH = 308
MOST_GROUPS = 16
FIGURE_PX = 106
MOST_FINDINGS = 2
ALERT = "alert: "
"""Start of the codes of findings made from alerts."""
BARS = (
    ("rolling_out", "Rollouts", "plot-1"),
    ("training", "Train", "plot-3"),
    ("publishing", "Publish", "plot-7"),
)
UNLIKE = (
    "Sampler and trainer compute in different precision. Their log-probs differ by "
    "rounding, and the update corrects for the difference."
)
FIRST_GUESS_S = {"rolling_out": 3.0, "training": 2.0, "publishing": 0.6}


class _Headed(Card):
    """Card with a header."""

    @property
    def head(self) -> CardHeader:
        assert self.header is not None
        return self.header


class StepCard(_Headed):
    """Card with the current phase, its duration and the time left."""

    def __init__(self) -> None:
        super().__init__("Step", " ")
        self._bars, self._facts = PhaseBars(), FactRow()
        self.body.setSpacing(10)
        add(self.body, self._bars, self._facts)

    def show_run(self, state: RunState) -> None:
        now = time.time()
        supervised = is_supervised(state)
        self._bars.setVisible(not supervised)
        self.head.title.set_words("Update" if supervised else "Step")
        if not supervised:
            self._bars.set_phases(_phases(state, now))
        self.head.set_words(_phase_words(state))
        left, per_step = remaining_seconds(state, now), step_seconds(state.steps)
        self._facts.set_facts(
            [
                _time(state, left, now),
                _held_out(state) if supervised else _validation(state),
                Fact("Per update" if supervised else "Per step", formatting.clock(per_step)),
            ]
        )


def _of_alert(alert: Alert) -> Finding:
    """Return an alert as a finding, which the cards show."""
    where = "unscored" if alert.condition.startswith("unscored") else ""
    title = f"Alert: {alert.condition}"
    return Finding(code=ALERT + alert.condition, title=title, words=alert.words, where=where)


def is_supervised(state: RunState) -> bool:
    """Return whether the run is an SFT run, without sampling."""
    return state.spec is not None and state.spec.kind == "sft"


def _validation(state: RunState) -> Fact:
    if state.win_rate:
        return Fact("Win rate", formatting.percent(state.win_rate.mean))
    last = state.validations[-1].reward if state.validations else None
    return Fact("Validation", formatting.number(last.mean if last else None))


def _held_out(state: RunState) -> Fact:
    series = state.series.get(HELD_OUT)
    return Fact("Held-out loss", formatting.number(series.last if series else None))


def _time(state: RunState, left: float | None, now: float) -> Fact:
    """Return the time left, or the training time of a run that has ended; the idle time of pauses
    and interruptions stands below."""
    trained_s, idle_s = state.times_at(now)
    idle = formatting.idle(trained_s, idle_s)
    trained = formatting.duration(trained_s)
    if state.ended:
        return Fact("Training time", trained, below=idle)
    below = ", ".join(part for part in (f"trained {trained}" if trained_s else "", idle) if part)
    return Fact("Time left", formatting.duration(left), below=below)


def _phase_words(state: RunState) -> str:
    if state.status == "paused":
        return f"{state.done} done, paused"
    if not state.active or state.phase is None:
        return steps_of(state.done, state.planned)
    tick = state.progress
    words = PHASES.get(state.phase, state.phase)
    if tick is not None and tick.phase == state.phase and tick.words:
        return tick.words
    if state.phase == "rolling_out" and state.flight:
        done = sum(group.done for group in state.flight.values())
        total = sum(group.size for group in state.flight.values())
        return f"{max(state.step, state.done)} · {words} {done} of {total}"
    return f"{max(state.step, state.done)} · {words}"


def _phases(state: RunState, now: float) -> list[Phase]:
    """Return the phases of the step, with the GPU switch before training if it was measured."""
    usual = {**FIRST_GUESS_S, **usual_phases(state)}
    bars = [_phase(state, key, words, token, usual[key], now) for key, words, token in BARS]
    switch_s = usual_switch(state)
    if switch_s is not None:
        bars.insert(1, _switch(bars[1], switch_s))
    return bars


def _switch(training: Phase, usual_s: float) -> Phase:
    """Return the GPU switch as a phase: the first `usual_s` seconds of training."""
    if training.elapsed_s is None:
        return Phase("Switch", usual_s, float(training.share >= 1), None, "plot-6")
    share = min(1.0, training.elapsed_s / usual_s) if usual_s else 1.0
    return Phase("Switch", usual_s, share, None, "plot-6")


def _phase(state: RunState, key: str, words: str, token: str, usual_s: float, now: float) -> Phase:
    order = [name for name, _, _ in BARS]
    running = state.phase if state.active and state.phase in order else None
    if running is None or state.status == "paused":
        return Phase(words, usual_s, 0.0, None, token)
    place, here = order.index(key), order.index(running)
    if place < here:
        return Phase(words, usual_s, 1.0, None, token)
    if place > here:
        return Phase(words, usual_s, 0.0, None, token)
    elapsed = max(0.0, now - state.phase_at)
    return Phase(words, usual_s, _share(state, key, elapsed, usual_s), elapsed, token)


def _share(state: RunState, phase: str, elapsed_s: float, usual_s: float) -> float:
    """Return the progress of a phase, 0 to 1: counted, or else estimated by time and below 1."""
    tick = state.progress
    if tick is not None and tick.phase == phase and tick.total:
        return min(1.0, tick.done / tick.total)
    total = sum(group.size for group in state.flight.values())
    if phase == "rolling_out" and total:
        return sum(group.done for group in state.flight.values()) / total
    return min(0.95, elapsed_s / usual_s) if usual_s else 0.0


class FlightCard(_Headed):
    """Card with the groups of this step, in scenario order so that rows keep their place."""

    group_opened = Signal(int, int)

    def __init__(self) -> None:
        super().__init__("Groups in flight", " ")
        self.head.add_right(Text("0 · reward · 1", "caption", tone="faint"))
        self.body.setSpacing(0)
        self._rows: list[GroupRow] = []
        self._groups: list[int] = []
        self._more = Text("", "caption", tone="faint")
        self.body.addWidget(self._more)
        self._step = 0

    def show_run(self, state: RunState) -> None:
        groups = [state.flight[key] for key in sorted(state.flight)]
        sizes = {group.size for group in groups}
        size = f" × {sizes.pop()}" if len(sizes) == 1 else ""
        self.head.set_words(f"{len(groups)}{size}" if groups else "none yet")
        self._step = state.step
        self._groups = [group.group for group in groups]
        self._make_rows(min(MOST_GROUPS, len(groups)))
        calls = state.progress.in_flight if state.progress else {}
        for row, group in zip(self._rows, groups, strict=False):
            tail, tone = _tail(group, calls.get(group.group))
            rewards = [group.rewards[i] for i in sorted(group.rewards)]
            row.set_group(group.title, rewards, tail, tone)
        hidden = len(groups) - MOST_GROUPS
        self._more.setVisible(hidden > 0)
        self._more.set_words(f"and {hidden} more")

    def _make_rows(self, count: int) -> None:
        while len(self._rows) < count:
            row, place = GroupRow(), len(self._rows)
            row.clicked.connect(lambda _=False, place=place: self._open(place))
            self._rows.append(row)
            self.body.insertWidget(self.body.count() - 1, row)
        for place, row in enumerate(self._rows):
            row.setVisible(place < count)

    def _open(self, place: int) -> None:
        if place < len(self._groups):
            self.group_opened.emit(self._step, self._groups[place])


def _tail(group: FlightGroup, flying: tuple[int, int] | None) -> tuple[str, str]:
    if group.summary is not None and not group.summary.signal:
        return "no signal", "warn"
    unscored = group.done - len(group.scored)
    count = f"{group.done}/{group.size}"
    if group.done < group.size and flying and flying[1]:
        return f"{formatting.plural(flying[1], 'call')} · {count}", "faint"
    return (f"{unscored} unscored", "warn") if unscored and group.summary else (count, "faint")


class MachineCard(_Headed):
    """Card with CPU cores, memory, tokens, sampler and trainer, and their log-prob gap."""

    def __init__(self) -> None:
        super().__init__("Machine", " ")
        self._cores = MeterRow("Cores", "plot-1", figure_px=FIGURE_PX)
        self._memory = MeterRow("Memory", "plot-1", figure_px=FIGURE_PX)
        self._tokens = MeterRow("Tokens", "plot-3", figure_px=FIGURE_PX)
        self._gap = Phrase((), "label")
        self._programs = KeyValues(1)
        self._unlike = Text(UNLIKE, "caption", tone="warn", wrap=True)
        self._cluster = Text("", "caption", tone="muted", wrap=True)
        self._best_tokens_per_s = 1.0
        self._hardware: dict[str, float] = {}
        self.body.setSpacing(0)
        add(
            self.body,
            self._cores,
            self._memory,
            self._tokens,
            4,
            self._programs,
            self._cluster,
            self._unlike,
            self._gap,
        )

    def show_run(self, state: RunState) -> None:
        if state.progress is not None and state.progress.hardware:
            self._hardware = state.progress.hardware
        hardware = self._hardware if state.active else {}
        self.head.set_words(state.device or "")
        cores = hardware.get("cpu/percent")
        self._cores.set_value(
            cores / 100 if cores is not None else None,
            formatting.percent(cores / 100) if cores is not None else formatting.ABSENT,
        )
        used, total = hardware.get("memory/bytes"), hardware.get("memory/total_bytes")
        share = used / total if used and total else None
        words = f"{_gb(used)} / {_gb(total)} GB" if used and total else formatting.ABSENT
        self._memory.set_value(share, words, "plot-5" if share and share > 0.92 else None)
        self._show_tokens(hardware.get("tokens_per_s"))
        self._show_programs(state)
        self._show_gap(state)

    def _show_programs(self, state: RunState) -> None:
        found = programs(state)
        found = None if is_supervised(state) else found
        self._programs.setVisible(found is not None)
        self._unlike.setVisible(found is not None and not found.alike)
        if found is not None:
            tone = "text" if found.alike else "warn"
            rows = [("Sampler", found.sampler, tone), ("Trainer", found.trainer, tone)]
            rows += [("Weights", found.weights, "text")] if found.weights else []
            self._programs.set_values(rows)
        self._cluster.set_words(f"Cluster: {found.cluster}" if found and found.cluster else "")
        self._cluster.setVisible(bool(found and found.cluster))

    def _show_tokens(self, per_s: float | None) -> None:
        self._best_tokens_per_s = max(self._best_tokens_per_s, per_s or 0.0)
        share = per_s / self._best_tokens_per_s if per_s else None
        self._tokens.set_value(
            share, f"{formatting.short(per_s)} / s" if per_s else formatting.ABSENT
        )

    def _show_gap(self, state: RunState) -> None:
        self._gap.setVisible(not is_supervised(state))
        series = state.series.get("logprob_gap/max")
        gap = series.last if series else None
        if gap is None:
            self._gap.set_spans([Span("Log-prob gap: available after step 1", "faint")])
            return
        fits = gap <= largest_gap(precision(state))
        word = "agree" if fits else "differ"
        figure = f"{gap:.0e}".replace("e-0", "e-") if gap < 0.01 else formatting.number(gap, 3)
        tone = "good" if fits else "bad"
        self._gap.set_spans(
            [Span(f"Sampler and trainer {word}  "), Span(f"gap {figure}", tone, mono=True)]
        )


def _gb(value: float) -> str:
    return f"{value / 1e9:.1f}"


class SideColumn(QScrollArea):
    """Scrollable side column, 308 px wide."""

    group_opened = Signal(int, int)
    finding_opened = Signal(object)
    finding_acted = Signal(object)
    log_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFixedWidth(WIDTH)
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewport().setAutoFillBackground(False)
        inner = QWidget()
        inner.setAutoFillBackground(False)
        self._column = vbox(parent=inner, spacing=12)
        self._step, self._flight, self._machine = StepCard(), FlightCard(), MachineCard()
        self._cards = CardsCard()
        self._diagnoses: list[DiagnosisCard] = []
        self._shown: list[Finding] = []
        self._dismissed: set[tuple[str, str]] = set()
        """(run id, finding code) pairs that the user has dismissed."""
        self._restarts: tuple[str, str] | None = None
        self._hushed: tuple[str, int] = ("", 0)
        """(run id, number of worker restarts) at the last dismissal."""
        self._run_id, self._restarted = "", 0
        add(self._column, self._step, self._flight, self._cards, self._machine, STRETCH)
        self.setWidget(inner)
        self._flight.group_opened.connect(self.group_opened)
        self._clock = QTimer(self)
        self._clock.setInterval(1000)

    def follow(self, run: RunModel) -> None:
        """Connect a run, once: its elapsed times then update every second while `set_ticking` is
        on."""
        self._clock.timeout.connect(lambda: self._step.show_run(run.state))

    def add_card(self, card: QWidget) -> None:
        self._column.insertWidget(self._column.count() - 1, card)

    def set_ticking(self, ticking: bool) -> None:
        """Start or stop the once-a-second update of elapsed times."""
        self._clock.start() if ticking else self._clock.stop()

    def show_run(self, state: RunState) -> None:
        self._step.show_run(state)
        self._flight.setVisible(state.active and not is_supervised(state))
        self._flight.show_run(state)
        self._machine.show_run(state)
        self._cards.show_run(state)
        notice = self._news(state)
        away = {code for run_id, code in self._dismissed if run_id == state.run_id}
        alerts = [_of_alert(alert) for alert in state.alerts]
        held = {alert.code for alert in alerts}
        self._dismissed = {
            (run_id, code)
            for run_id, code in self._dismissed
            if run_id != state.run_id or code in held or not code.startswith(ALERT)
        }  # an alert that is raised again is shown again
        findings = [f for f in alerts if f.code not in away]
        findings += [f for f in state.findings if f.code not in away][:MOST_FINDINGS]
        if findings != self._shown or notice != self._restarts:
            self._show_notices(findings, notice)

    def _news(self, state: RunState) -> tuple[str, str] | None:
        """Return a notice of restarted workers until the user dismisses it."""
        self._run_id, self._restarted = state.run_id, len(state.restarts)
        return None if self._hushed == (state.run_id, len(state.restarts)) else restarts(state)

    def _show_notices(self, findings: list[Finding], restart: tuple[str, str] | None) -> None:
        self._shown, self._restarts = findings, restart
        for card in self._diagnoses:
            self._column.removeWidget(card)
            card.deleteLater()
        self._diagnoses = [self._restart_card(*restart)] if restart else []
        self._diagnoses += [self._card(finding) for finding in findings]
        for place, card in enumerate(self._diagnoses):
            self._column.insertWidget(2 + place, card)

    def _restart_card(self, title: str, words: str) -> DiagnosisCard:
        card = DiagnosisCard(title, words, show="Show log")
        card.evidence_requested.connect(self.log_wanted)
        card.dismissed.connect(self._hush)
        return card

    def _hush(self) -> None:
        self._hushed = (self._run_id, self._restarted)
        self._show_notices(self._shown, None)

    def _card(self, finding: Finding) -> DiagnosisCard:
        words = f"{finding.words} {finding.suggestion}".strip()
        chart = finding.where.startswith("chart:")
        show = "Show the chart" if chart else "Show them" if finding.where else ""
        act = "Pause" if finding.action == "pause" else "Veto from the next run on"
        act = act if finding.action else ""
        card = DiagnosisCard(finding.title.rstrip("."), words, act, show)
        card.action_requested.connect(lambda: self.finding_acted.emit(finding))
        card.evidence_requested.connect(lambda: self.finding_opened.emit(finding))
        card.dismissed.connect(lambda: self._dismiss(finding))
        return card

    def _dismiss(self, finding: Finding) -> None:
        self._dismissed.add((self._run_id, finding.code))
        left = [f for f in self._shown if f.code != finding.code]
        self._show_notices(left, self._restarts)

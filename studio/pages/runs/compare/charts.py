"""Charts of several runs on top of each other, one colour per run."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.protocol.records.comparison import EQUAL
from engine.protocol.records.metrics import metric
from engine.protocol.records.runs import Interval
from studio.store.runs.axes import positions
from studio.store.runs.state import HELD_OUT, RunState
from studio.text import formatting
from studio.widgets.charts.chart_card import ChartCard
from studio.widgets.charts.link import ChartLink
from studio.widgets.charts.pane import Limit
from studio.widgets.charts.series import HeldLineSeries, ValidationSeries

Floats = NDArray[np.float64]
MAIN = (
    "reward/mean", "loss", "groups/std_mean", "entropy", "tokens/completion_mean", "time_s/step",
)  # fmt: skip
"""Metrics of the first charts, after validation."""
VALIDATION, WIN_RATE = "Validation", "Win rate against the baseline"
TITLES = {
    "reward/mean": "Training reward",
    "loss": "Loss",
    "groups/std_mean": "Reward spread within groups",
    "entropy": "Entropy, nats per token",
    "tokens/completion_mean": "Completion length, tokens",
    "time_s/step": "Seconds per step",
    HELD_OUT: "Held-out loss",
}


@dataclass(frozen=True)
class OverlaidRun:
    """Run of a comparison: its state, name and colour token."""

    state: RunState
    name: str
    token: str
    steps: Floats
    """Steps with a known place on the x axis; empty where the step is the place."""
    places: Floats
    """Seconds or tokens of training at the end of each of `steps`."""
    hidden: bool = False

    @classmethod
    def on_axis(
        cls, state: RunState, name: str, token: str, axis: str, hidden: bool
    ) -> "OverlaidRun":
        """Return the run titled `name`, drawn in the colour `token`, on the x axis `axis`: step,
        time (seconds of training) or tokens. `hidden`: it has no lines."""
        found = positions(state, axis)
        places = np.fromiter(found.values(), dtype=np.float64)
        return cls(state, name, token, np.fromiter(found, dtype=np.float64), places, hidden)

    def placed(self, steps: Floats) -> Floats:
        """Map steps to values on the x axis given to `on_axis`: seconds of training or sampled
        tokens up to each step, rounded to whole numbers; on the axis `step`, the steps
        themselves."""
        return np.round(np.interp(steps, self.steps, self.places)) if len(self.steps) else steps

    def values(self, name: str) -> tuple[Floats, Floats]:
        """Return x and y of a metric; empty if the run has none or is hidden."""
        series = None if self.hidden else self.state.series.get(name)
        if series is None:
            return np.zeros(0), np.zeros(0)
        return self.placed(np.array(series.xs)), np.array(series.ys)

    def results(self, rates: bool) -> dict[int, Interval]:
        """Return step → win rate (`rates`) or mean reward of each validation; none if hidden."""
        if self.hidden:
            return {}
        if rates:
            return dict(sorted(self.state.win_rates.items()))
        return {one.step: one.reward for one in self.state.validations if one.reward}


def metrics_of(runs: Sequence[OverlaidRun]) -> tuple[list[str], list[str]]:
    """Return the metrics of the main charts, then all others that any of the runs has. The training
    reward of judged runs is relative to its group, and is no main chart if all are judged."""
    known = dict.fromkeys(name for run in runs for name in run.state.series)
    relative = all(_is_judged(run.state) for run in runs)
    main = [n for n in (*MAIN, HELD_OUT) if n in known and not (n == "reward/mean" and relative)]
    return main, sorted(known.keys() - set(main))


def title_of(name: str) -> str:
    """Return the title of a metric's chart."""
    if name in TITLES:
        return TITLES[name]
    about = metric(name)
    return f"{name}, {about.unit}" if about and about.unit not in ("", "1") else name


class OverlayChart:
    """Chart of one metric of all runs."""

    def __init__(self, name: str, link: ChartLink) -> None:
        self.name, self.card = name, ChartCard(title_of(name), link)
        about = metric(name)
        self.card.set_about([about] if about else [])
        self.card.set_y(None, None, zero=name.startswith(("reward/", "groups/", "time_s/")))
        self._lines: dict[str, HeldLineSeries] = {}
        _plain(self.card)

    def fill(self, runs: Sequence[OverlaidRun]) -> None:
        """Draw the metric of each run as a curve in the colour of the run."""
        for run in runs:
            line = self._lines.get(run.state.run_id)
            if line is None:
                line = HeldLineSeries(run.name, run.token, form=formatting.significant)
                line.width_px = 1.75
                self._lines[run.state.run_id] = line
                self.card.add_series(line, in_legend=False)
            line.token = run.token
            line.set_data(*run.values(self.name))


class ValidationChart:
    """Validations of all runs: mean rewards, or win rates against each run's own baseline."""

    def __init__(self, link: ChartLink, rates: bool) -> None:
        self.name = WIN_RATE if rates else VALIDATION
        self.card = ChartCard(self.name, link)
        self._rates = rates
        self.card.set_empty("No validation yet")
        self.card.set_y(0.0 if rates else None, 1.0 if rates else None, unit="%" if rates else "")
        if rates:
            self.card.set_limits([Limit(EQUAL, "baseline", token="muted", left=True)])
        self._drawn: dict[str, tuple[HeldLineSeries, ValidationSeries]] = {}
        _plain(self.card)

    def fill(self, runs: Sequence[OverlaidRun]) -> None:
        """Draw the validation results of each run, with 95 % intervals."""
        for run in runs:
            if run.state.run_id not in self._drawn:
                line = HeldLineSeries(run.name, run.token, ghost=False, width_px=1.25)
                points = ValidationSeries(f"{run.name}, 95 % CI", run.token)
                self._drawn[run.state.run_id] = line, points
                self.card.add_series(line, in_legend=False)
                self.card.add_series(points, in_legend=False)
            line, points = self._drawn[run.state.run_id]
            line.token = points.token = run.token
            results = run.results(self._rates)
            xs = run.placed(np.fromiter(results, dtype=np.float64))
            ordered = list(results.values())
            means = [one.mean for one in ordered]
            line.set_data(xs, means)
            points.set_data(xs, means, [o.low for o in ordered], [o.high for o in ordered])


def _is_judged(state: RunState) -> bool:
    return state.spec is not None and state.spec.config.judge.enabled


def _plain(card: ChartCard) -> None:
    """Remove the legend, which stands above all charts once, and the words about a click."""
    card.view.click_words = ""
    card.view.colored = True
    card.hide_legend()

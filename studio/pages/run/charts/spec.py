"""Specification of a chart: card, fill function, help and section."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from engine.protocol.records.metrics import metric
from studio.models.run import RunModel
from studio.store.runs.state import RunState
from studio.widgets.charts.chart_card import ChartCard
from studio.widgets.charts.link import ChartLink

Fill = Callable[[RunModel], None]


@dataclass
class BoundChart:
    """Chart card on the page with the function that fills it."""

    key: str
    title: str
    card: ChartCard
    fill: Fill


Need = Literal["judge", "criteria", "script", "reasoning", "budget"]
"""A judge; a rubric with weighted criteria; training by an external script; reasoning in
answers."""
Maker = Callable[[ChartLink], tuple[ChartCard, Fill]]


@dataclass(frozen=True)
class ChartSpec:
    key: str
    title: str
    make: Maker
    metrics: Sequence[str] = ()
    """Metrics explained by the info button, from the registry."""
    section: str = ""
    """Section below the main charts; empty for a main chart."""
    words: str = ""
    """Subtitle, one line."""
    needs: Need | None = None
    """Property that a run must have to show the chart; None: every run shows it."""

    def bound(self, link: ChartLink) -> BoundChart:
        """Create the chart card, connected to the crosshair and zoom of `link`."""
        card, fill = self.make(link)
        card.set_about([found for key in self.metrics if (found := metric(key))], self.words)
        return BoundChart(self.key, self.title, card, fill)


def last_of(run: RunModel, name: str) -> float | None:
    """Return the last value of the metric `name`; None without any."""
    series = run.state.series.get(name)
    return series.last if series else None


def change_of(run: RunModel, name: str) -> float | None:
    """Return last minus first value of the metric `name`; None with fewer than two values."""
    series = run.state.series.get(name)
    if series is None or len(series) < 2 or series.last is None or series.first is None:
        return None
    return series.last - series.first


def is_judged(state: RunState) -> bool:
    """Return whether the run's configuration enables the judge."""
    return state.spec is not None and state.spec.config.judge.enabled

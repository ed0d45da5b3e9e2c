"""What a chart of the Run page is: a card, what fills it, and what explains it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.protocol.records.metrics import metric
from studio.models.run import RunModel
from studio.store.runs.state import RunState
from studio.widgets.charts.chart_card import ChartCard
from studio.widgets.charts.link import ChartLink

Fill = Callable[[RunModel], None]


@dataclass
class BoundChart:
    """A card on the page and the function that fills it."""

    key: str
    title: str
    card: ChartCard
    fill: Fill


Maker = Callable[[ChartLink], tuple[ChartCard, Fill]]


@dataclass(frozen=True)
class ChartSpec:
    key: str
    title: str
    make: Maker
    metrics: Sequence[str] = ()
    """What its ⓘ explains, from the registry."""
    section: str = ""
    """Which of the sections below the main charts it stands in; empty for a main chart."""
    words: str = ""
    """One line under the title."""
    of_judge: bool = False
    """Only for runs with a judge."""
    of_script: bool = False
    """Only for runs that a script outside trains."""

    def bound(self, link: ChartLink) -> BoundChart:
        card, fill = self.make(link)
        card.set_about([found for key in self.metrics if (found := metric(key))], self.words)
        return BoundChart(self.key, self.title, card, fill)


def last_of(run: RunModel, name: str) -> float | None:
    series = run.state.series.get(name)
    return series.last if series else None


def change_of(run: RunModel, name: str) -> float | None:
    series = run.state.series.get(name)
    if series is None or len(series) < 2 or series.last is None or series.first is None:
        return None
    return series.last - series.first


def is_judged(state: RunState) -> bool:
    """Whether anybody was asked to judge."""
    return state.spec is not None and state.spec.config.judge.enabled

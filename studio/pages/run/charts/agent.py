"""Charts of the metrics that an agent returns, and of custom label fields, one for each."""

from studio.models.run import RunModel
from studio.pages.run.charts.spec import ChartSpec, Fill, Maker, last_of
from studio.text import formatting
from studio.widgets.charts.chart_card import ChartCard
from studio.widgets.charts.link import ChartLink

AGENT, LABELS = "agent/", "label/"
SECTIONS = {AGENT: "Agent", LABELS: "Labels"}


def agent_chart(name: str) -> ChartSpec:
    """Return the chart of a metric `agent/NAME` or `label/NAME`."""
    kind, _, title = name.partition("/")
    return ChartSpec(name, title, _maker(name, title), (name,), SECTIONS[f"{kind}/"])


def _maker(name: str, title: str) -> Maker:
    def make(link: ChartLink) -> tuple[ChartCard, Fill]:
        card = ChartCard(title, link)
        line = card.add_line("mean", "plot-6", in_legend=False, form=formatting.significant)

        def fill(run: RunModel) -> None:
            line.set_data(*run.series(name))
            last = last_of(run, name)
            card.set_last(formatting.significant(last) if last is not None else "")

        return card, fill

    return make

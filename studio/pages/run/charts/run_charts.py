"""Charts of a run in their grid: which there are, their order, which are hidden, and their data."""

from PySide6.QtCore import Signal, Slot
from PySide6.QtWidgets import QMenu, QWidget

from studio.pages.run.charts.agent import AGENT, LABELS, agent_chart
from studio.pages.run.charts.agent import SECTIONS as RETURNED
from studio.pages.run.charts.diagnostics import SECTIONS
from studio.pages.run.charts.main import CHARTS
from studio.pages.run.charts.sft import SFT_CHARTS
from studio.pages.run.charts.spec import BoundChart, ChartSpec, Need
from studio.services.session import Session
from studio.store.runs.status_words import empty_words
from studio.widgets.charts.grid.chart_grid import ChartGrid, Section
from studio.widgets.charts.grid.deferred_fill import DeferredFill
from studio.widgets.charts.link import ChartLink


class RunCharts(ChartGrid):
    """Charts of the selected run: `show_kind(kind, judged)`, then `fill_all()` after each step."""

    step_opened = Signal(int)
    range_opened = Signal(int, int)

    def __init__(self, session: Session, link: ChartLink, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._session, self._settings, self._link = session, session.settings, link
        self.bound: dict[str, BoundChart] = {}
        """Charts made so far, by key."""
        self.supervised = False
        """Whether the run is SFT."""
        self._has: frozenset[Need] = frozenset()
        """Needs of charts that the run fulfils."""
        self._returned: tuple[str, ...] = ()
        """Metrics that the agent of the run returns, and of custom label fields."""
        self._filling: DeferredFill[BoundChart] = DeferredFill(self._fill, self)
        link.smoothing_changed.connect(self._keep_smoothing)
        self._show_charts()

    def show_kind(self, kind: str, judged: bool) -> None:
        """Show the charts for a run of this `kind` (such as "sft"), with judge charts if `judged`,
        and a chart for each metric that its agent returned."""
        series = self._session.run.state.series
        returned = tuple(name for name in series if name.startswith((AGENT, LABELS)))
        needs: dict[Need, bool] = {
            "judge": judged,
            "criteria": any(one.criteria for one in self._session.run.state.validations),
            "script": kind == "outside",
            "reasoning": "tokens/reasoning_mean" in series,
            "budget": "reasoning_closed" in series,
        }
        made = frozenset(need for need, has in needs.items() if has), kind == "sft", returned
        if made != (self._has, self.supervised, self._returned):
            self._has, self.supervised, self._returned = made
            self._show_charts()

    def fill_all(self) -> None:
        self._filling.start(self.bound.values())

    def expand(self, key: str) -> None:
        """Show the chart with the id `key` on the full page, and focus it."""
        self.show_full(self.bound[key].card)
        self.bound[key].card.view.setFocus()

    def _fill(self, chart: BoundChart) -> None:
        chart.fill(self._session.run)
        if not chart.card.has_data():
            chart.card.set_empty(empty_words(self._session.run.state))

    def _specs(self) -> list[ChartSpec]:
        """Return the charts of the run's kind, in the user's order, with one for each metric that
        the agent returns."""
        specs = [
            spec
            for spec in (SFT_CHARTS if self.supervised else CHARTS)
            if spec.needs is None or spec.needs in self._has
        ]
        specs += [agent_chart(name) for name in self._returned]
        order = self._settings.current.chart_order
        known = {key: place for place, key in enumerate(order)}
        return sorted(specs, key=lambda spec: known.get(spec.key, len(known)))

    def _show_charts(self) -> None:
        settings = self._settings.current
        charts = self._specs()
        for spec in charts:
            if spec.key not in self.bound:
                self.bound[spec.key] = self._bind(spec.bound(self._link))
        placed = {
            spec.key: "" if spec.key in settings.extra_charts else spec.section
            for spec in charts
            if spec.key not in settings.hidden_charts
        }
        own = {RETURNED[AGENT]: "returned by the agent", RETURNED[LABELS]: "custom label fields"}
        titles = {"": "", **own, **SECTIONS}
        cards = {
            title: [self.bound[key].card for key, section in placed.items() if section == title]
            for title in titles
        }
        self.set_sections(
            [Section(t, words, cards[t]) for t, words in titles.items() if cards[t] or not t]
        )
        if self._session.run.run_id:
            for chart in self.bound.values():
                self._fill(chart)

    def _bind(self, chart: BoundChart) -> BoundChart:
        card = chart.card
        card.step_clicked.connect(self.step_opened)
        card.range_selected.connect(self.range_opened)
        card.full_page_requested.connect(lambda: self.show_full(card))
        card.dragged.connect(lambda at: self.follow_drag(card, at))
        card.dropped.connect(self._keep_order)
        card.hide_requested.connect(lambda: self._show_chart(chart.key, False))
        card.save_failed.connect(self._session.notice)
        return chart

    @Slot()
    def _keep_smoothing(self) -> None:
        if self.isVisible():
            self._settings.update(smoothing=round(self._link.smoothing, 2))

    def _keep_order(self) -> None:
        keys = {chart.card: chart.key for chart in self.bound.values()}
        shown = [keys[card] for card in self.cards if card in keys]  # type: ignore[index]
        others = [k for k in self._settings.current.chart_order if k not in shown]
        self._settings.update(chart_order=[*shown, *others])

    def show_menu(self, button: QWidget) -> None:
        """Open the menu of all charts below `button`: it hides charts, and moves others among the
        main ones."""
        menu = QMenu(self)
        menu.aboutToHide.connect(menu.deleteLater)
        settings = self._settings.current
        for spec in self._specs():
            hidden = spec.key in settings.hidden_charts
            action = menu.addAction(spec.title.replace("&", "&&"))
            action.setCheckable(True)
            if spec.section and not hidden:
                action.setChecked(spec.key in settings.extra_charts)
                action.triggered.connect(lambda on, key=spec.key: self._toggle_chart(key, on))
            else:
                action.setChecked(not hidden)
                action.triggered.connect(lambda on, key=spec.key: self._show_chart(key, on))
        menu.addSeparator()
        standard = menu.addAction("Restore the standard layout")
        standard.setEnabled(bool(settings.hidden_charts or settings.chart_order))
        standard.triggered.connect(self._standard_layout)
        menu.popup(button.mapToGlobal(button.rect().bottomLeft()))

    def _show_chart(self, key: str, shown: bool) -> None:
        """Show a chart, or hide it until it is chosen again under Charts."""
        self.show_full(None)
        hidden = [one for one in self._settings.current.hidden_charts if one != key]
        self._settings.update(hidden_charts=hidden if shown else [*hidden, key])
        self._show_charts()

    def _standard_layout(self) -> None:
        self._settings.update(chart_order=[], hidden_charts=[], extra_charts=[])
        self._show_charts()

    def _toggle_chart(self, key: str, on: bool) -> None:
        others = [known for known in self._settings.current.extra_charts if known != key]
        self._settings.update(extra_charts=[*others, key] if on else others)
        self._show_charts()

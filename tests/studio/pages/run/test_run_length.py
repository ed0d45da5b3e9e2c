"""Cost of a step on the Run page does not grow with the run: counted, not timed."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtGui import QImage, QPainter
from PySide6.QtWidgets import QApplication

from studio.app import Studio
from studio.widgets.charts.chart_card import ChartCard
from studio.widgets.charts.series import LineSeries
from studio.widgets.charts.view import ChartView
from studio.widgets.painting import paint
from studio.widgets.steps.step_strip import StepStrip
from tests.studio.conftest import Run, until
from tests.studio.fakes.long_run import RUN, LongRun

SHORT, LONG = 500, 20_000


class CountingPainter(QPainter):
    """Painter that counts the points it is given; a call without a shape counts as one."""

    points = 0

    def __getattribute__(self, name: str) -> Any:
        attribute = super().__getattribute__(name)
        return _counted(attribute) if name.startswith(("draw", "fill")) else attribute


def _counted(draw: Callable[..., Any]) -> Callable[..., Any]:
    def count(*args: Any) -> Any:
        shape = args[0] if args else None
        size = getattr(shape, "elementCount", getattr(shape, "size", None))
        if isinstance(shape, QImage):
            CountingPainter.points += shape.width()
        elif isinstance(shape, list):
            CountingPainter.points += 4 * len(shape)
        else:
            counted = size() if callable(size) else 1
            CountingPainter.points += counted if isinstance(counted, int) else 1
        return draw(*args)

    return count


def count_points(work: Callable[[], object]) -> int:
    CountingPainter.points = 0
    work()
    return CountingPainter.points


def drawn(card: ChartCard) -> int:
    """Return the number of points that a chart hands to the painter."""
    card.view.redraw()
    image = QImage(card.size(), QImage.Format.Format_ARGB32_Premultiplied)
    painter = CountingPainter(image)
    try:
        return count_points(lambda: [pane._paint_data(painter) for pane in card.view.panes])
    finally:
        painter.end()


async def open_run(app: QApplication, folder: Path, steps: int) -> tuple[Studio, LongRun]:
    studio = Studio(app, str(folder), folder / f"{steps}.toml")
    studio.window.resize(1440, 900)
    run = LongRun(studio.session, steps)
    studio.window.show()
    studio.session.run.select(RUN)
    studio.window.show_page("run")
    await until(lambda: all_drawn(studio))
    return studio, run


def in_view(studio: Studio) -> list[ChartView]:
    views = studio.window.findChildren(ChartView)
    return [view for view in views if not view.visibleRegion().isEmpty()]


def all_drawn(studio: Studio) -> bool:
    shown = in_view(studio)
    return bool(shown) and not any(view._stale for view in shown)


async def close_studio(studio: Studio) -> None:
    studio.window.close()
    await studio.close()
    studio.window.deleteLater()


def smoothed_values(studio: Studio) -> int:
    """Return the number of values smoothed so far."""
    series = [one for view in studio.window.findChildren(ChartView) for pane in view.panes
              for one in pane.series]  # fmt: skip
    return sum(one.smoother.worked_out for one in series if isinstance(one, LineSeries))


async def cost(app: QApplication, folder: Path, steps: int) -> dict[str, int]:
    """Return points drawn by chart and strip, and values smoothed for one step."""
    studio, run = await open_run(app, folder, steps)
    try:
        before = smoothed_values(studio)
        run.say_step()
        studio.session.run.tell()
        await asyncio.sleep(0.1)
        await until(lambda: all_drawn(studio))
        QApplication.processEvents()
        counts = {"smoothed": smoothed_values(studio) - before}
        cards = studio.pages["run"].findChildren(ChartCard)
        counts |= {card._title: drawn(card) for card in cards if card.has_data()}
        strip = studio.pages["run"].findChildren(StepStrip)[0]
        return counts | {"strip": count_points(strip.grab)}
    finally:
        await close_studio(studio)


def test_redraw_at_20_000_steps_costs_no_more_than_at_500(
    qapp: QApplication, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paint, "QPainter", CountingPainter)

    async def both() -> tuple[dict[str, int], dict[str, int]]:
        return await cost(qapp, tmp_path, SHORT), await cost(qapp, tmp_path, LONG)

    short, long = run(both())
    assert len(short) > 15
    assert short.keys() == long.keys()
    assert 0 < long["smoothed"] == short["smoothed"]
    grown = {name: (short[name], long[name]) for name in long if long[name] > 3 * short[name]}
    assert not grown
    assert max(long.values()) < 10_000


def test_charts_redraw_one_at_a_time_and_only_in_view(
    qapp: QApplication, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[list[ChartView]] = [[]]
    redraw = ChartView.redraw

    def record(view: ChartView) -> None:
        turns[-1].append(view)
        redraw(view)

    async def follow() -> None:
        studio, long_run = await open_run(qapp, tmp_path, 40)
        try:
            monkeypatch.setattr(ChartView, "redraw", record)
            long_run.say_step()
            studio.session.run.tell()
            for _ in range(200):
                await asyncio.sleep(0.001)
                turns.append([])
            shown = in_view(studio)
            hidden = set(studio.window.findChildren(ChartView)) - set(shown)
            assert {view for turn in turns for view in turn} == set(shown)
            assert all(view._stale for view in hidden if view.panes[0].has_data())
            assert max(map(len, turns)) <= 2
            one = next(view for view in hidden if view.panes[0].has_data())
            studio.pages["run"]._grid.ensureWidgetVisible(one)  # type: ignore[attr-defined]
            await until(lambda: not one._stale)
        finally:
            await close_studio(studio)

    run(follow())

"""What one more step costs the Run page does not grow with the run: counted, not timed."""

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
    """Counts the points that it is given; a call without a shape counts as one."""

    points = 0

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return _counted(found) if name.startswith(("draw", "fill")) else found


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


def points(work: Callable[[], object]) -> int:
    CountingPainter.points = 0
    work()
    return CountingPainter.points


def drawn(card: ChartCard) -> int:
    """Points that the data of a chart hands to the painter."""
    card.view.redraw()
    image = QImage(card.size(), QImage.Format.Format_ARGB32_Premultiplied)
    painter = CountingPainter(image)
    try:
        return points(lambda: [pane._paint_data(painter) for pane in card.view.panes])
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


async def closed(studio: Studio) -> None:
    studio.window.close()
    await studio.close()
    studio.window.deleteLater()


def worked_out(studio: Studio) -> int:
    """Values that went through the smoothing so far."""
    series = [one for view in studio.window.findChildren(ChartView) for pane in view.panes
              for one in pane.series]  # fmt: skip
    return sum(one.smoother.worked_out for one in series if isinstance(one, LineSeries))


async def cost(app: QApplication, folder: Path, steps: int) -> dict[str, int]:
    """By chart the points of a redraw, those of the strip, and what one more step smooths."""
    studio, run = await open_run(app, folder, steps)
    try:
        before = worked_out(studio)
        run.say_step()
        studio.session.run.tell()
        await asyncio.sleep(0.1)
        await until(lambda: all_drawn(studio))
        QApplication.processEvents()
        found = {"smoothed": worked_out(studio) - before}
        cards = studio.pages["run"].findChildren(ChartCard)
        found |= {card._title: drawn(card) for card in cards if card.has_data()}
        strip = studio.pages["run"].findChildren(StepStrip)[0]
        return found | {"strip": points(strip.grab)}
    finally:
        await closed(studio)


def test_a_redraw_at_20_000_steps_is_no_more_work_than_at_500(
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


def test_charts_redraw_one_a_turn_and_only_in_view(
    qapp: QApplication, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[list[ChartView]] = [[]]
    redraw = ChartView.redraw

    def noted(view: ChartView) -> None:
        turns[-1].append(view)
        redraw(view)

    async def follow() -> None:
        studio, told = await open_run(qapp, tmp_path, 40)
        try:
            monkeypatch.setattr(ChartView, "redraw", noted)
            told.say_step()
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
            await closed(studio)

    run(follow())

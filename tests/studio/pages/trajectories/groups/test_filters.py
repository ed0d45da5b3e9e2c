"""Trajectory filters: saved across restarts, named, unreadable ones skipped."""

from pathlib import Path

from PySide6.QtWidgets import QApplication

from engine.protocol.requests.runs import TrajectoryQuery
from studio.pages.trajectories.groups.saved_filters import MOST, kept, name_of, packed, unpacked
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.pages.trajectories.labels.test_labels import trajectories_page, with_judged_run

__all__ = ["with_judged_run"]


def test_filter_is_named_and_packed() -> None:
    query = TrajectoryQuery(step=3, step_to=9, signal=False, labelled=False, filter="visa & co")
    assert name_of(query) == "Steps 3–9 · no signal · not labelled · visa & co"
    assert name_of(TrajectoryQuery(filter="tool:search")) == "tool:search"
    assert unpacked(packed(query)) == query
    assert unpacked(packed(query.model_copy(update={"offset": 40, "sort": "reward"}))) == query
    assert unpacked('{"colour": 1}') is None
    assert unpacked("nonsense") is None
    assert kept(["a", packed(query)], query) == [packed(query), "a"]
    assert len(kept([str(n) for n in range(50)], query)) == MOST


def test_saved_filter_is_restored_after_restart(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with trajectories_page(with_judged_run, qapp, tmp_path) as (studio, page):
            page._panel._silent.toggled.emit(True)
            await until(lambda: page._groups.query.signal is False)
            menu = page._panel.filter_menu()
            menu.actions()[0].trigger()
            line = packed(TrajectoryQuery(signal=False))
            assert studio.settings.current.saved_filters == [line]
            page._panel._silent.removed.emit()
        async with trajectories_page(with_judged_run, qapp, tmp_path) as (studio, page):
            menu = page._panel.filter_menu()
            assert [action.text() for action in menu.actions()] == [
                "No signal",
                "",
                "Save this filter",
                "Delete No signal",
            ]
            menu.actions()[0].trigger()
            await until(lambda: page._groups.query.signal is False)
            page._panel.filter_menu().actions()[-1].trigger()
            assert studio.settings.current.saved_filters == []

    run(job())

"""Repair and removal of a damaged run."""

from collections.abc import Sequence

from PySide6.QtWidgets import QWidget

from engine.protocol.records.runs import RunSummary
from studio.runtime.tasks import command_job
from studio.services.notifications import Choice, ask
from studio.services.session import Session
from studio.store.runs.status_words import run_words


def repair_run(session: Session, run_id: str) -> None:
    """Have the engine recover a damaged run's data up to the damage, then reload the lists."""

    async def repair() -> RunSummary:
        return await session.client.repair_run(run_id)

    def done(run: RunSummary) -> None:
        session.runs.forget(run_id)
        session.take_run(run)
        session.notice.emit(f"{run.name} was repaired: {run_words(run).text.lower()}.")
        session.refresh()

    session.tasks.run(command_job("repair", run_id), repair(), done)


def ask_to_remove(session: Session, runs: Sequence[RunSummary], parent: QWidget) -> None:
    """Delete runs with their trajectories, labels and checkpoints after confirmation. If the
    selected run is deleted, another run of the project is selected."""
    title = f"run {runs[0].name}" if len(runs) == 1 else f"{len(runs)} runs"

    async def remove() -> list[str]:
        """Return the ids of the deleted runs."""
        words = "Trajectories, labels and checkpoints are deleted. Exports are kept."
        choices = [Choice("", "Cancel"), Choice("delete", "Delete", "danger")]
        answer, _ = await ask(parent, f"Delete {title}?", words, choices)
        if answer != "delete":
            return []
        removed = []
        try:
            for run in runs:
                session.following.forget(run.id)
                await session.client.remove_run(run.id)
                removed.append(run.id)
        finally:
            session.runs.replace(await session.client.runs(recent=True))
            _show_another(session, removed)
        return removed

    def done(removed: list[str]) -> None:
        if removed:
            session.notice.emit(f"{title[:1].upper()}{title[1:]} deleted.")
            session.refresh()

    session.tasks.run(command_job("remove", runs[0].id), remove(), done)


def _show_another(session: Session, removed: Sequence[str]) -> None:
    for run_id in removed:
        session.runs.forget(run_id)
    if session.run.run_id in removed:
        left = session.runs.of(session.project.path)
        session.select_run(left[0].id if left else "")

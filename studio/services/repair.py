"""Repair and removal of a damaged run."""

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


def ask_to_remove(session: Session, run: RunSummary, parent: QWidget) -> None:
    """Delete a run with its checkpoints after confirmation, and show another run of the project."""

    async def remove() -> bool:
        words = "Its trajectories, labels and checkpoints are deleted. Exports are kept."
        choices = [Choice("", "Cancel"), Choice("delete", "Delete", "danger")]
        answer, _ = await ask(parent, f"Delete run {run.name}?", words, choices)
        if answer != "delete":
            return False
        session.following.forget(run.id)
        await session.client.remove_run(run.id)
        session.runs.replace(await session.client.runs())
        return True

    def done(removed: bool) -> None:
        if not removed:
            return
        session.runs.forget(run.id)
        if session.run.run_id == run.id:
            left = session.runs.of(session.project.path)
            session.select_run(left[0].id if left else "")
        session.notice.emit(f"{run.name} was deleted.")
        session.refresh()

    session.tasks.run(command_job("remove", run.id), remove(), done)

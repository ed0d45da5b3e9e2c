"""Deletion of a model from this machine, after confirmation."""

from PySide6.QtWidgets import QWidget

from engine.protocol.requests.models import DeletedModel, LocalModel
from studio.services.notifications import Choice, ask
from studio.services.session import Session
from studio.store.hub.rows import delete_words


async def ask_to_delete(
    session: Session, model: LocalModel, parent: QWidget
) -> DeletedModel | None:
    """Ask the person to confirm, then delete a model; returns None if cancelled. Raises Refused for
    a model in a folder outside of the caches, and while a run or download uses the model."""
    choices = [Choice("", "Cancel"), Choice("delete", "Delete", "danger")]
    answer, _ = await ask(parent, f"Delete {model.name}?", delete_words(model), choices)
    return await session.client.delete_model(model.name) if answer == "delete" else None

"""Dispatch of a person's confirmation to its store."""

from pathlib import Path

from engine.protocol.problems import Refused
from engine.protocol.requests.trust import AddressConfirmation, Confirmation, FileConfirmation
from engine.trust.addresses import confirm_address
from engine.trust.files import confirm_file
from engine.trust.projects import trust_project


def confirm(confirmation: Confirmation) -> None:
    """Store one confirmation. Raises Refused if that fails, or the folder does not exist."""
    match confirmation:
        case AddressConfirmation():
            confirm_address(confirmation.provider, confirmation.address)
        case FileConfirmation():
            confirm_file(_path(confirmation.project), _path(confirmation.path))
        case _:
            trust_project(_path(confirmation.project))


def _path(text: str) -> Path:
    """Resolved path. Raises Refused if the text is not a valid path."""
    try:
        return Path(text).expanduser().resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise Refused.of(
            "file.bad_name", f"{text[:200]!a} is not a valid path: {error}."
        ) from error

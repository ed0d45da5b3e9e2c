"""Dispatch of a person's confirmation to its store."""

from pathlib import Path

from engine.protocol.trust import AddressConfirmation, Confirmation, FileConfirmation
from engine.trust.addresses import confirm_address
from engine.trust.files import confirm_file
from engine.trust.projects import trust_project


def confirm(confirmation: Confirmation) -> None:
    """Store one confirmation. Raises Refused where it cannot be kept, or there is no such
    folder."""
    match confirmation:
        case AddressConfirmation():
            confirm_address(confirmation.provider, confirmation.address)
        case FileConfirmation():
            confirm_file(Path(confirmation.project), Path(confirmation.path))
        case _:
            trust_project(Path(confirmation.project).expanduser())

"""Trust on the wire: what a person confirms once.

A project or run from elsewhere is *untrusted* until the person trusts it. A key of a provider goes
to that provider's own address; another address, and a file outside of the project, need a
confirmation, which is remembered on the person's machine.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from engine.protocol.addresses import normal_address
from engine.protocol.base import Value

Address = Annotated[str, AfterValidator(normal_address)]


class AddressConfirmation(Value):
    """A key of this provider (or tracker) may go to this address."""

    kind: Literal["address"] = "address"
    provider: str
    address: Address


class FileConfirmation(Value):
    """A project may read this file although it lies outside of the project's folder."""

    kind: Literal["file"] = "file"
    project: str
    path: str


class TrustProject(Value):
    """The person trusts a project: its code may run, and it may send."""

    kind: Literal["project"] = "project"
    project: str


Confirmation = Annotated[
    AddressConfirmation | FileConfirmation | TrustProject, Field(discriminator="kind")
]

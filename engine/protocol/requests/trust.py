"""Trust: confirmations given once by the person.

A project or run from another source is *untrusted* until the person trusts it. An API key is sent
to its provider's own address; any other address, and any file outside the project, needs a
confirmation, which is stored on the person's machine.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from engine.protocol.addresses import normal_address
from engine.protocol.base import Value

Address = Annotated[str, AfterValidator(normal_address)]


class AddressConfirmation(Value):
    """Confirmation that the key of a provider (or tracker) may be sent to an address."""

    kind: Literal["address"] = "address"
    provider: str
    address: Address


class FileConfirmation(Value):
    """Confirmation that a project may read a file outside its folder."""

    kind: Literal["file"] = "file"
    project: str
    path: str


class TrustProject(Value):
    """Trust a project: its code may run, and it may send data."""

    kind: Literal["project"] = "project"
    project: str


Confirmation = Annotated[
    AddressConfirmation | FileConfirmation | TrustProject, Field(discriminator="kind")
]

"""What a person says about attempts. Frozen; a change of mind is another label."""

from typing import Annotated, Literal

from pydantic import Field

from engine.protocol.records import Record, Split

LabelKind = Literal["score", "order", "best", "worst", "veto", "exclude", "gold", "flag", "note"]
OF_GROUP: frozenset[str] = frozenset({"order", "best", "worst"})
"""Kinds that compare siblings; the others speak of one attempt."""


class Label(Record):
    """One word of a person on one group."""

    id: str
    split: Split = "train"
    step: int
    group: int
    kind: LabelKind
    trajectory_id: str | None = None
    """Whom it is about; None for an order."""
    value: Annotated[float, Field(ge=0, le=1)] | None = None
    """Of a score."""
    order: tuple[tuple[str, ...], ...] = ()
    """Of an order: best first; those in one tuple are equally good."""
    why: str = ""
    who: str = ""
    at: float = 0.0
    rubric: str = ""
    """Version of the rubric that the person saw."""
    undone: bool = False

"""A person's notes about a run: tags, text, pinned, archived."""

from typing import Annotated

from pydantic import StringConstraints, field_validator

from engine.protocol.base import Value

MOST_TAGS = 12
Tag = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=32)]


class RunNotes(Value):
    """Person's notes about a run, stored in the run folder; training never reads them."""

    tags: tuple[Tag, ...] = ()
    """At most `MOST_TAGS`, without duplicates, in the order given."""
    note: Annotated[str, StringConstraints(max_length=4000)] = ""
    pinned: bool = False
    """Whether the run is listed first."""
    archived: bool = False
    """Whether the run is hidden from lists that do not ask for archived runs."""

    @field_validator("tags")
    @classmethod
    def _without_duplicates(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        unique = tuple(dict.fromkeys(tags))
        if len(unique) > MOST_TAGS:
            raise ValueError(f"a run has at most {MOST_TAGS} tags, but {len(unique)} were given")
        return unique

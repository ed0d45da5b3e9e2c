"""Requests about the table of runs of a project."""

from typing import Annotated, Literal

from pydantic import Field

from engine.protocol.base import Request
from engine.protocol.identifiers import Seq
from engine.protocol.records.run_table import MOST_COMPARED
from engine.protocol.records.runs import RunKind

RunSort = Literal["started", "name", "state", "kind", "model", "steps", "best", "duration", "cost"]
StateFilter = Literal["all", "active", "finished", "stopped", "failed", "queued"]


class RunQuery(Request):
    """Query for one page of the table of runs; filtered and sorted by the engine. Pinned runs come
    first, then runs by `sort`; runs without the sorted value come last."""

    project: str
    """Folder of the project."""
    search: Annotated[str, Field(max_length=400)] = ""
    """Words that all must occur in name, model, tags, note, kind, state, parent or a setting."""
    state: StateFilter = "all"
    kind: RunKind | None = None
    tag: str | None = None
    archived: bool = False
    """Whether to list the archived runs instead of the others."""
    sort: RunSort = "started"
    descending: bool = True
    offset: Seq = 0
    limit: int = Field(default=100, ge=1, le=1000)


class CompareRuns(Request):
    """Compare runs with the first of them."""

    runs: Annotated[list[str], Field(min_length=2, max_length=MOST_COMPARED)]
    """Ids of runs; the first is the reference."""
    at: Literal["best", "last"] = "best"
    """Validation of each run to compare."""

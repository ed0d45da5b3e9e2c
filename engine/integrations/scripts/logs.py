"""Logs of a script: recorded on disk before any of their groups is stored, so that a log that is
sent again is stored once."""

import asyncio
from pathlib import Path

from pydantic import ValidationError

from engine.protocol.base import Value
from engine.protocol.problems import StoreError
from engine.runtime.files import append_lines


class Begun(Value):
    """Log that has been started."""

    key: str
    step: int
    first: int
    """Number of its first group."""
    groups: int
    after: int
    """`seq` of the event before all of its own."""


class Logs:
    """Open it with the run's file. One event loop uses it."""

    def __init__(self, file: Path) -> None:
        """Raises StoreError where the file is not one of ours."""
        self._file = file
        self._begun: dict[str, Begun] = {}
        self.lock = asyncio.Lock()
        """Held by who stores one: two at once would number their groups alike."""
        self._load()

    def get(self, key: str) -> Begun | None:
        return self._begun.get(key)

    def free(self, step: int) -> int:
        """The first number behind the groups of all logs of a step, stored or not."""
        return max((one.first + one.groups for one in self._of(step)), default=0)

    async def begin(self, one: Begun) -> None:
        """Returns when it is on disk."""
        await asyncio.to_thread(self._append, one)
        self._begun[one.key] = one

    def _of(self, step: int) -> list[Begun]:
        return [one for one in self._begun.values() if one.step == step]

    def _append(self, one: Begun) -> None:
        append_lines(self._file, [one.model_dump_json() + "\n"])

    def _load(self) -> None:
        """The last line may be torn: nothing of its log was stored."""
        if not self._file.exists():
            return
        raw = self._file.read_bytes()
        whole, _, torn = raw.rpartition(b"\n")
        try:
            found = [Begun.model_validate_json(line) for line in whole.split(b"\n") if line]
        except ValidationError as error:
            raise StoreError.of(
                "outside.damaged",
                "What the script has logged cannot be read.",
                "Remove the file: what a waiting script logs again is then stored twice.",
                where=str(self._file),
                detail=str(error)[:1000],
            ) from error
        self._begun = {one.key: one for one in found}
        if torn:
            with self._file.open("r+b") as file:
                file.truncate(len(raw) - len(torn))

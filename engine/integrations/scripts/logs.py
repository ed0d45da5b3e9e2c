"""Logs of a script, recorded on disk before any of their groups is stored, so that a repeated log
is stored only once."""

import asyncio
from pathlib import Path

from pydantic import ValidationError

from engine.protocol.base import Value
from engine.protocol.problems import StoreError
from engine.runtime.files import append_lines


class StartedLog(Value):
    """Call of `model.log` by the script, recorded before its groups are stored."""

    key: str
    step: int
    first: int
    """Number of the call's first group within the step."""
    groups: int
    after: int
    """`seq` of the last event before those of the log."""


class Logs:
    """File that records the `model.log` calls of a run's script. Use it in one event loop."""

    def __init__(self, file: Path) -> None:
        """Load the file if it exists. Raises StoreError if it is damaged."""
        self._file = file
        self._logs: dict[str, StartedLog] = {}
        self.lock = asyncio.Lock()
        """Held while the groups of a call are stored: two calls at once would use the same group
        numbers."""
        self._load()

    def get(self, key: str) -> StartedLog | None:
        return self._logs.get(key)

    def free(self, step: int) -> int:
        """Return the group number after the highest one in logs of this step; 0 without any."""
        return max((one.first + one.groups for one in self._of(step)), default=0)

    async def begin(self, log: StartedLog) -> None:
        """Append the key and group numbers of a log, before its trajectories are stored. Returns
        when they are on disk."""
        await asyncio.to_thread(self._append, log)
        self._logs[log.key] = log

    def _of(self, step: int) -> list[StartedLog]:
        return [one for one in self._logs.values() if one.step == step]

    def _append(self, one: StartedLog) -> None:
        append_lines(self._file, [one.model_dump_json() + "\n"])

    def _load(self) -> None:
        """Read the file. An incomplete last line is cut off: nothing of its log was stored."""
        if not self._file.exists():
            return
        raw = self._file.read_bytes()
        whole, _, torn = raw.rpartition(b"\n")
        try:
            found = [StartedLog.model_validate_json(line) for line in whole.split(b"\n") if line]
        except ValidationError as error:
            raise StoreError.of(
                "outside.damaged",
                "The trajectories logged by the script cannot be read.",
                "Remove the file; a script that is still logging may then store some trajectories "
                "twice.",
                where=str(self._file),
                detail=str(error)[:1000],
            ) from error
        self._logs = {one.key: one for one in found}
        if torn:
            with self._file.open("r+b") as file:
                file.truncate(len(raw) - len(torn))

"""Wall-clock time of a step by phase."""

import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from engine.protocol.records.runs import Phase
from engine.storage.run_folder.run import Run


@dataclass
class Clock:
    """Seconds by phase of one step."""

    begun: float = field(default_factory=time.monotonic)
    phases: dict[str, float] = field(default_factory=dict)

    @contextlib.asynccontextmanager
    async def phase(self, run: Run, step: int, name: Phase) -> AsyncIterator[None]:
        begun = time.monotonic()
        await run.enter(step, name)
        yield
        self.phases[name] = time.monotonic() - begun

    def seconds(self, name: str) -> float:
        return max(self.phases.get(name, 0.0), 1e-9)

    def metrics(self) -> dict[str, float]:
        total = time.monotonic() - self.begun
        return {f"time_s/{k}": v for k, v in self.phases.items()} | {"time_s/step": total}

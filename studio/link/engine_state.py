"""State of the connection to the engine."""

from dataclasses import dataclass
from typing import Literal

from engine.protocol.problems import Problem
from engine.protocol.requests.runs import EngineInfo

Contact = Literal["none", "starting", "connected", "reconnecting", "gone"]


@dataclass(frozen=True)
class LinkState:
    """State of the connection: `contact` for the status dot, `words` for the screen."""

    contact: Contact = "none"
    info: EngineInfo | None = None
    """Last known information about the engine."""
    latency_s: float | None = None
    retry_s: int = 0
    """Seconds until the next attempt."""
    problem: Problem | None = None

    @property
    def words(self) -> str:
        device = f"This machine · {self.info.device}" if self.info else "This machine"
        match self.contact:
            case "none":
                return "No engine"
            case "starting":
                return "Starting the engine…"
            case "connected":
                return device
            case "reconnecting":
                return f"This machine · reconnecting in {self.retry_s} s"
            case "gone":
                return "This machine · disconnected"

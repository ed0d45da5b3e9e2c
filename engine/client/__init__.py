"""Typed client of an engine, and its event stream. Studio and command line use nothing else.

Raises `Refused` (the engine's own problem) for anything it declines, and `LaunchError` with code
`engine.unreachable` when nothing answers.
"""

from engine.client.arena import ArenaCalls
from engine.client.checkpoints import CheckpointCalls
from engine.client.drafts import AuthoringCalls
from engine.client.engine import EngineCalls
from engine.client.environments import EnvironmentCalls
from engine.client.judging import JudgingCalls
from engine.client.mcp import McpCalls
from engine.client.mirrors import ReplicaCalls
from engine.client.projects import ProjectCalls
from engine.client.remote import HostCalls
from engine.client.runs import RunCalls
from engine.client.scripts import OutsideCalls
from engine.client.sync import SyncCalls
from engine.client.tracking import TrackCalls

__all__ = ["EngineClient"]


class EngineClient(
    EngineCalls,
    EnvironmentCalls,
    ProjectCalls,
    RunCalls,
    TrackCalls,
    OutsideCalls,
    ReplicaCalls,
    JudgingCalls,
    CheckpointCalls,
    ArenaCalls,
    AuthoringCalls,
    McpCalls,
    SyncCalls,
    HostCalls,
):
    """Client of one engine. Use as an async context manager, inside one event loop."""

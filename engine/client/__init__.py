"""Typed client of an engine, and its event stream. Studio and command line use nothing else.

Raises `Refused` (the engine's own problem) for anything it declines, and `LaunchError` with code
`engine.unreachable` when nothing answers.
"""

from engine.client.engine import EngineCalls
from engine.client.judging import JudgingCalls
from engine.client.projects import ProjectCalls
from engine.client.remote import HostCalls
from engine.client.runs import RunCalls
from engine.client.sync import ReplicaCalls, SyncCalls

__all__ = ["EngineClient"]


class EngineClient(
    EngineCalls, ProjectCalls, RunCalls, ReplicaCalls, JudgingCalls, SyncCalls, HostCalls
):
    """Client of one engine. Use as an async context manager, inside one event loop."""

"""Typed client of an engine with its event stream; the only interface for studio and command line.

Raises `Refused` with the engine's problem for a refused request, and `LaunchError` with code
`engine.unreachable` if the engine does not respond.
"""

from engine.client.clusters import ClusterCalls
from engine.client.engine import EngineCalls
from engine.client.judging import JudgingCalls
from engine.client.models import ModelCalls
from engine.client.projects import ProjectCalls
from engine.client.remote import HostCalls
from engine.client.runs import RunCalls
from engine.client.sweeps import SweepCalls
from engine.client.sync import ReplicaCalls, SyncCalls

__all__ = ["EngineClient"]


class EngineClient(
    EngineCalls,
    ModelCalls,
    ProjectCalls,
    RunCalls,
    SweepCalls,
    ReplicaCalls,
    JudgingCalls,
    SyncCalls,
    HostCalls,
    ClusterCalls,
):
    """Client of one engine. Use as an async context manager, inside one event loop."""

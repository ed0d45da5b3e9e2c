"""Packages required by a project's agent: a separate environment, installed after confirmation by
the user.

The name of such an environment is `agent:FILE`, where FILE is the requirements file.
"""

import asyncio
from pathlib import Path

from engine.environments.bootstrap import OF_AGENT, Status, status_of
from engine.protocol.config.agent import AgentConfig
from engine.protocol.problems import ConfigError
from engine.protocol.records.machine.environments import EnvironmentView
from engine.trust.files import project_file

TITLE = "Agent packages"


def packages_name(project: Path, agent: AgentConfig) -> str:
    """Return the name of the environment with the agent's packages; empty if it has no requirements
    file. Raises ConfigError if the file is missing, or outside of the project and not confirmed."""
    if agent.requirements is None:
        return ""
    file = project_file(project, agent.requirements, "agent.requirements")
    if not file.is_file():
        raise ConfigError.of(
            "agent.requirements_missing",
            f"The project has no file {agent.requirements}.",
            "Create the file with the agent's packages, or clear agent.requirements.",
            where="agent.requirements",
        )
    return f"{OF_AGENT}{file}"


async def packages_python(project: Path, agent: AgentConfig) -> str:
    """Return the path of the Python with the agent's packages; empty if the agent has no
    requirements file. Raises ConfigError until they are installed."""
    if not (name := packages_name(project, agent)):
        return ""
    status = await asyncio.to_thread(status_of, name)
    if status.state != "ready":
        raise ConfigError.of(
            "agent.needs_packages",
            f"The agent needs packages that are not installed ({agent.requirements}).",
            f"Install them in Setup, or with `atelier environments install {project}`.",
            where=str(project / (agent.requirements or "")),
        )
    return status.python


def packages_view(name: str) -> EnvironmentView:
    """Return the state of the environment of an agent's packages. Raises EnvironmentMissing unless
    Atelier runs from a source checkout."""
    return view_of(status_of(name))


def view_of(status: Status) -> EnvironmentView:
    kept = status.model_dump(exclude={"homes", "busy", "requirements", "wanted"})
    return EnvironmentView(
        **kept,
        title=TITLE,
        purpose="Packages that the agent imports.",
        needs="",
        elsewhere=status.busy,
    )

"""Agents of the documentation pages "Bring your own agent" and "Agent harnesses", and Pythons with
their packages."""

import re
from pathlib import Path

from engine.environments import python_of
from engine.environments.bootstrap import OF_AGENT

REQUIREMENTS = Path(__file__).parent / "requirements.txt"
HOW_TO = Path(__file__).parents[2] / "resources" / "help" / "how-to"
PAGE, HARNESSES = HOW_TO / "bring-your-own-agent.md", HOW_TO / "agent-harnesses.md"
FRAMEWORKS = ("OpenAI SDK", "LangGraph", "OpenAI Agents SDK", "pydantic-ai", "Anthropic SDK")
COMMAND = "Any program"
CODING_AGENT = Path(__file__).parent / "mini_swe_agent" / "agent.sh"
"""Rollout of mini-SWE-agent: agent.sh FOLDER_OF_EXECUTABLES MODEL."""


def agents_python() -> str:
    """Return a Python with the packages, installed into the user's cache on the first call (about
    a minute).
    """
    return str(python_of(f"{OF_AGENT}{REQUIREMENTS}"))


def coding_agent_command(model: str) -> str:
    """Return an agent command that runs mini-SWE-agent with litellm's `model`; installs it into
    the user's cache on the first call (about a minute).
    """
    return f"sh {CODING_AGENT} {Path(harness_python('mini_swe_agent')).parent} {model}"


def harness_python(name: str) -> str:
    """Return a Python with the packages of a harness (`mini_swe_agent`, `smolagents`), installed
    into the user's cache on the first call (about a minute)."""
    return str(python_of(f"{OF_AGENT}{Path(__file__).parent / name / 'requirements.txt'}"))


def example(title: str, page: Path = PAGE) -> str:
    """Return the code block under a heading of a page."""
    section = page.read_text(encoding="utf-8").split(f"\n## {title}\n")[1].split("\n## ")[0]
    (code,) = re.findall(r"```\w+\n(.*?)```", section, re.DOTALL)
    return str(code)

"""Agents of the documentation page "Bring your own agent", the coding agent mini-SWE-agent, and
Pythons with their packages."""

import re
from pathlib import Path

from engine.environments import python_of
from engine.environments.bootstrap import OF_AGENT

REQUIREMENTS = Path(__file__).parent / "requirements.txt"
PAGE = Path(__file__).parents[2] / "resources" / "help" / "how-to" / "bring-your-own-agent.md"
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
    python = python_of(f"{OF_AGENT}{CODING_AGENT.with_name('requirements.txt')}")
    return f"sh {CODING_AGENT} {python.parent} {model}"


def example(title: str) -> str:
    """Return the code block under a heading of the page."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {title}\n")[1].split("\n## ")[0]
    (code,) = re.findall(r"```\w+\n(.*?)```", section, re.DOTALL)
    return str(code)

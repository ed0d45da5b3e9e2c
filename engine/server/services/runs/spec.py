"""Versions and rubric that a run records at its start."""

import contextlib
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from engine import __version__
from engine.judge.prompting.rubric import load_rubric
from engine.judge.ruler import check_fit
from engine.protocol.config.project import JudgeConfig
from engine.trust.files import project_file

VERSIONED = ("torch", "transformers", "peft", "tokenizers", "apsw")


def rubric_of(project: Path, judge: JudgeConfig) -> str:
    """As it is now, where somebody judges by it. Raises ConfigError where it cannot be used."""
    if not (judge.enabled and judge.models):
        return ""
    rubric = load_rubric(project_file(project, judge.rubric, "judge.rubric"))
    check_fit(judge, rubric)
    return rubric.source


def versions() -> dict[str, str]:
    found = {"atelier": __version__, "python": platform.python_version(), "system": sys.platform}
    for name in VERSIONED:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found

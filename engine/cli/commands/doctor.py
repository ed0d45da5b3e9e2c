"""`doctor`: check this machine and a project's model; exit 0 if it can train, 1 otherwise."""

import argparse

from engine.cli.terminal import say, say_json
from engine.hardware.doctor import examine
from engine.rollout.rendering.facts import model_checks
from engine.rollout.sandbox.machine import agent_checks, sandbox_check
from engine.storage.project import load_config

MARKS = {"good": "ok  ", "warn": "look", "bad": "BAD "}


def run(arguments: argparse.Namespace) -> int:
    checks = [*examine(), sandbox_check()]
    if arguments.project is not None:
        project = arguments.project.expanduser().resolve()
        config = load_config(project)
        checks += model_checks(project, config) + agent_checks(config.agent)
    for check in checks:
        if arguments.json:
            say_json(check)
        else:
            say(
                f"{MARKS[check.state]}  {check.name}: {check.words}"
                + (f"  → {check.hint}" if check.hint else "")
            )
    return int(any(check.state == "bad" for check in checks))

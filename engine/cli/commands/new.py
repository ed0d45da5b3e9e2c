"""`new FOLDER [--sample NAME]`, `new FOLDER --describe TEXT --model M`, `new FOLDER --verifiers
NAME` or `new FOLDER --inspect TASK`: create a project.

Text from an LLM is stored in the project as it arrives: the same command resumes, and nothing is
paid for twice.
"""

import argparse
import asyncio
import os
from collections import Counter
from pathlib import Path

from engine.autorl.draft_folder import open_draft
from engine.autorl.project_files import begin_with_tools, finish_project
from engine.autorl.writer import BUDGET, open_writer
from engine.cli.new_environment import create_from_environment
from engine.cli.terminal import Progress, complain, say, say_json
from engine.integrations.mcp_servers import discover_tools
from engine.judge.providers.access import Access
from engine.protocol.problems import ConfigError, Problem, Refused
from engine.protocol.records.judging import keys_in
from engine.protocol.requests.drafts import (
    LEAST,
    DescribeTask,
    DraftTicked,
    FinishProject,
    ToolView,
    Writer,
)
from engine.storage.run_folder.run import opened_run
from engine.storage.samples import create_project

USAGE = 2


def run(arguments: argparse.Namespace) -> int:
    folder = Path(arguments.folder).expanduser().resolve()
    try:
        if arguments.describe:
            return asyncio.run(_write(folder, arguments))
        if arguments.verifiers or arguments.inspect:
            return asyncio.run(create_from_environment(folder, arguments))
        create_project(folder, arguments.sample)
    except KeyboardInterrupt:
        say("Stopped. Run the same command to resume.")
        return 1
    say(f"Created {folder}. Train the project: atelier train {arguments.folder}")
    return 0


async def _write(folder: Path, arguments: argparse.Namespace) -> int:
    wanted = _wanted(folder, arguments)
    if arguments.mcp:
        begin_with_tools(folder, Path(arguments.mcp).expanduser())
        wanted = wanted.model_copy(update={"tools": await _offered(folder)})
    place = await open_draft(wanted)
    with opened_run(place) as opened:
        keys = keys_in(os.environ, (wanted.writer.model,))
        async with open_writer(wanted, opened, Access(keys)) as work:
            last = await _watch(work.tell(), wanted, arguments.json)
    if last.problem and not (arguments.enough and last.problem.code == BUDGET):
        complain(last.problem, arguments.json)
        have = len(last.draft.scenarios)
        if have < LEAST or not last.draft.system:
            return 1
        if last.problem.code == BUDGET:
            if not arguments.json:
                say(f"{have} of {wanted.count} scenarios are written. Continue with the same")
                say("command and a higher --budget, or create the project now with --enough.")
            return 1
    judge = wanted.writer.model_copy(update={"model": arguments.judge or wanted.writer.model})
    finish_project(
        FinishProject(
            folder=str(folder),
            description=wanted.description,
            draft=last.draft,
            learner=arguments.learner,
            judge=judge,
            tools=bool(arguments.mcp),
        )
    )
    if not arguments.json:
        _tell(folder, last, arguments.folder)
    return 0


async def _offered(folder: Path) -> list[ToolView]:
    """Tools that the servers offer to the agent. Raises Refused for the first unusable server."""
    views = (await discover_tools(folder)).servers
    for view in views:
        if view.problem:
            raise Refused(view.problem)
    return [tool for view in views for tool in view.offered]


def _wanted(folder: Path, arguments: argparse.Namespace) -> DescribeTask:
    """Request for a draft. Raises ConfigError if an option or file is invalid."""
    text = arguments.describe
    budget = 0.0 if arguments.enough else arguments.budget
    if not arguments.model:
        raise ConfigError(
            Problem(
                code="authoring.no_model",
                message="No model is set to draft the project.",
                hint="Pass a model: --model openai/gpt-5.4.",
            )
        )
    try:
        text = Path(text[1:]).expanduser().read_text("utf-8") if text.startswith("@") else text
        price_in, price_out = arguments.price or (None, None)
        writer = Writer(
            model=arguments.model,
            base_url=arguments.base_url,
            budget_usd=budget,
            price_prompt=price_in,
            price_completion=price_out,
        )
        return DescribeTask(
            folder=str(folder), description=text, writer=writer, count=arguments.count
        )
    except (OSError, ValueError) as error:
        lines = str(error).splitlines()
        raise ConfigError(
            Problem(
                code="authoring.bad_request",
                message=f"The description cannot be used: {' '.join(lines[1:3]) or error}",
                hint="Describe the task in a paragraph: inputs, expected outputs and criteria.",
                detail=str(error),
            )
        ) from error


async def _watch(ticks: object, wanted: DescribeTask, as_json: bool) -> DraftTicked:
    progress = Progress()
    try:
        async for one in ticks:  # type: ignore[attr-defined]
            if as_json:
                say_json(one)
            have = len(one.draft.scenarios)
            progress.show(
                f"{have:4} of {wanted.count}  ${one.spent_usd:.4f} spent, "
                f"next request at most ${one.next_usd:.4f}  {one.words}"
            )
    finally:
        progress.clear()
    last: DraftTicked = one
    return last


def _tell(folder: Path, last: DraftTicked, typed: str) -> None:
    splits = Counter(one.split for one in last.draft.scenarios)
    grades = Counter(one.difficulty or 0 for one in last.draft.scenarios)
    levels = ", ".join(f"{n or 'none'}: {grades[n]}" for n in sorted(grades))
    counts = f"{splits['train']} training scenarios, {splits['validation']} for validation"
    say(f"{last.draft.title}: {counts}.")
    say(f"Scenarios by difficulty: {levels}. Spent ${last.spent_usd:.4f}.")
    for why, count in last.left_out.items():
        say(f"Scenarios left out ({why}): {count}.")
    say(f"Created {folder}. Read system.md, rubric.md and scenarios/, then measure the base model:")
    say(f"  atelier train {typed} --baseline --set train.validation_attempts=4")

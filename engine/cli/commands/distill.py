"""`distill`: collect demonstrations from a teacher model on the scenarios of a project.

The project's own agent runs with the teacher, as in an evaluation, and is rewarded as usual. Paid
answers are not requested again: an interrupted or repeated call continues with what is missing.
Exit 0 where something was kept, 3 when it was stopped, 1 when it failed or nothing was kept.
"""

import argparse
import asyncio
import os
from pathlib import Path
from typing import Any

from engine.cli.commands.demonstrations import print_selection
from engine.cli.commands.evaluate import SPLITS, EvaluationWatch
from engine.cli.commands.train import FINISHED, lend_keys, read_overrides
from engine.cli.engine_connection import engine_for
from engine.cli.terminal import say
from engine.protocol.problems import ConfigError
from engine.protocol.records.demonstrations import SelectDemonstrations
from engine.protocol.records.runs import ACTIVE_STATES
from engine.protocol.requests.runs import StartEvaluation
from engine.training.sft.selection import read_rule


def run(arguments: argparse.Namespace) -> int:
    return asyncio.run(distill(arguments, read_overrides(arguments)))


async def distill(arguments: argparse.Namespace, overrides: dict[str, Any]) -> int:
    project = Path(arguments.project).expanduser().resolve()
    request = request_of(arguments, project, overrides)
    assert request.demonstrate is not None
    async with engine_for(arguments.workspace) as client:
        await lend_keys(client, project, request.overrides, [arguments.teacher])
        summary = await client.start_evaluation(request)
        if summary.state in ACTIVE_STATES:
            code = await EvaluationWatch(client, summary, arguments.json).until_end()
            if code != FINISHED:
                return code
        elif not arguments.json:
            say("Every scenario already has a scored trajectory: nothing was requested.")
        return print_selection(
            await client.demonstrate(summary.id, request.demonstrate), arguments.json
        )


def request_of(
    arguments: argparse.Namespace, project: Path, overrides: dict[str, Any]
) -> StartEvaluation:
    """Request to evaluate the teacher model in `arguments`, with `overrides` (dotted key → value)
    of settings. Raises ConfigError for an invalid teacher or selection rule."""
    if "/" not in arguments.teacher:
        raise ConfigError.of(
            "config.no_teacher",
            f"{arguments.teacher} is not an API model.",
            "Write PROVIDER/MODEL, for example openai/gpt-5.4. For trajectories "
            "of your own runs, use `atelier demonstrations RUN`.",
        )
    read_rule(arguments.keep)
    source = arguments.scenarios
    if source not in SPLITS:
        source = str(Path(source).expanduser().resolve())
    return StartEvaluation(
        project=str(project),
        models=[arguments.teacher],
        attempts=arguments.attempts,
        scenarios=source,
        demonstrate=SelectDemonstrations(keep=arguments.keep, file=arguments.out),
        again=arguments.again,
        overrides=overrides | _money(arguments),
        key=os.urandom(8).hex(),
    )


def _money(arguments: argparse.Namespace) -> dict[str, Any]:
    """Prices and budget of the command line as settings."""
    prices = arguments.price or (None, None)
    settings = {
        "evaluate.budget_usd": arguments.budget,
        "evaluate.price_prompt": prices[0],
        "evaluate.price_completion": prices[1],
        "evaluate.base_url": arguments.base_url,
    }
    return {key: value for key, value in settings.items() if value is not None}

"""`eval`: compare models on the scenarios of a project.

Exit 0 when it finished and something could be scored, 3 when it was stopped, 1 when it failed or
nothing could be scored, 2 on bad usage. Ctrl C once ends after the running rollouts, twice at once;
`--resume NAME` continues.
"""

import argparse
import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.cli.commands.hosts import connected
from engine.cli.commands.train import FAILED, FINISHED, Watch, lend_keys, read_overrides, resume
from engine.cli.engine_connection import engine_for
from engine.cli.terminal import complain, duration, say, say_json, signed, table
from engine.client import EngineClient
from engine.protocol.events.run import (
    EvaluationFinished,
    Event,
    LogWritten,
    ProgressTicked,
    RunFailed,
    RunStarted,
    RunStopped,
    UnknownEvent,
    WorkerRestarted,
)
from engine.protocol.problems import ConfigError
from engine.protocol.records.comparison import Comparison, EvaluationResult, Standing
from engine.protocol.records.runs import Interval, RunSummary
from engine.protocol.requests.evaluation import SystemPrompt
from engine.protocol.requests.runs import StartEvaluation

HEAD = ("model", "reward", "", "vs. first model", "", "p", "+/=/−", "latency", "$/1000", "unscored")
SPLITS = ("train", "validation")


def run(arguments: argparse.Namespace) -> int:
    return asyncio.run(evaluate(arguments, read_overrides(arguments)))


async def evaluate(arguments: argparse.Namespace, overrides: dict[str, Any]) -> int:
    project = Path(arguments.project).expanduser().resolve()
    overrides.pop("train.seed", None)  # --seed is the evaluation's own
    request = request_of(arguments, project, overrides)
    async with engine_for(arguments.workspace) as client:
        providers = await providers_of(client, project, arguments)
        await lend_keys(client, project, overrides, providers)
        if arguments.resume:
            summary = await resume(client, project, arguments.resume)
        else:
            if arguments.host:
                await connected(client, arguments.host)
            summary = await client.start_evaluation(request)
        code = await EvaluationWatch(client, summary, arguments.json).until_end()
        if code != FINISHED:
            problem = (await client.run(summary.id)).problem
            if problem and arguments.json:
                complain(problem, as_json=True)
            return code
        return print_result(await client.evaluation(summary.id), summary, arguments.json)


async def providers_of(
    client: EngineClient, project: Path, arguments: argparse.Namespace
) -> list[str]:
    """API models (`provider/model`) that need keys: those in `arguments` or, with `--resume`, those
    of that evaluation."""
    names = list(arguments.model)
    if arguments.resume:
        runs = await client.runs(str(project))
        same = [run for run in runs if arguments.resume in (run.id, run.name)]
        names = [name for run in same for name in run.contestants]
    return [name for name in names if "/" in name]


def request_of(
    arguments: argparse.Namespace, project: Path, overrides: dict[str, Any]
) -> StartEvaluation:
    """Request for the evaluation in `arguments`, with `overrides` (dotted key → value) of settings.
    Raises ConfigError if a file is unreadable."""
    source = arguments.scenarios
    if source not in SPLITS:
        source = str(Path(source).expanduser().resolve())
    return StartEvaluation(
        project=str(project),
        models=arguments.model,
        attempts=arguments.attempts,
        scenarios=source,
        systems=[_system(Path(file).expanduser()) for file in arguments.system],
        seed=arguments.seed,
        judge=arguments.judge,
        overrides=overrides,
        host=arguments.host,
        lend_keys=arguments.lend_keys,
        key=os.urandom(8).hex(),
    )


def print_result(result: EvaluationResult, summary: RunSummary, as_json: bool) -> int:
    """Print an evaluation's results, as tables or JSON; returns 1 if no trajectory was scored."""
    if as_json:
        say_json(result)
    else:
        say(report(result))
        say(f"Results: {summary.path}")
    return FINISHED if result.scored else FAILED


def report(result: EvaluationResult) -> str:
    """Result tables: all scenarios, then by system prompt and by tag if there are any."""
    scored = ", also scored by the judge" if result.judged else ""
    rollouts = "1 rollout" if result.attempts == 1 else f"{result.attempts} rollouts"
    parts = [
        f"{result.scenarios} scenarios, {rollouts} each, seed {result.seed}"
        f"{scored}; 95 % intervals"
        + (f"; computed in {result.precision}" if result.precision else ""),
        table(HEAD, [_row(one) for one in result.standings]),
    ]
    if result.variants:
        parts += ["By system prompt", table(HEAD, [_row(one) for one in result.variants])]
    for tag in result.tags:
        words = f"Tag {tag.tag} ({tag.scenarios} scenarios)"
        parts += [words, table(HEAD, [_row(one) for one in tag.standings])]
    if not result.scored:
        parts.append("No rollout could be scored. `atelier trajectories` shows why.")
    return "\n\n".join(parts)


class EvaluationWatch(Watch):
    """Progress of an evaluation; silent until the end with --json."""

    def _show(self, event: Event | UnknownEvent) -> None:
        if not self._json:
            self._tell(event)

    def _tick(self, tick: ProgressTicked) -> str:
        doing = "loading" if tick.phase == "loading" else tick.words
        return " · ".join(part for part in (doing, f"{tick.done}/{tick.total}") if part)

    def _words(self, event: Event | UnknownEvent) -> str:
        match event:
            case RunStarted():
                goes_on = "" if event.resumed_from is None else " resumes"
                names = " · ".join(self._summary.contestants)
                return f"Evaluation {event.spec.name}{goes_on}: {names}"
            case WorkerRestarted():
                return f"  ! {event.problem.message} Restart {event.attempt} of 3."
            case LogWritten():
                return f"  {event.text}"
            case RunStopped():
                return f"Stopped. {event.reason} {self._resume_words()}"
            case RunFailed():
                return f"Failed. {event.problem} {self._resume_words()}"
            case EvaluationFinished():
                return f"  {event.result.done} rollouts done"
            case _:
                return ""

    def _resume_words(self) -> str:
        project = self._summary.project_path
        return f"\nResume with: atelier eval {project} --resume {self._summary.name}"


def _system(file: Path) -> SystemPrompt:
    try:
        return SystemPrompt(name=file.stem, text=file.read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError.of(
            "evaluation.no_system",
            "The system prompt cannot be read.",
            "Use a text file in UTF-8.",
            where=str(file),
            detail=str(error),
        ) from error


def _row(one: Standing) -> Sequence[str]:
    versus = one.versus
    seconds = one.latency_median_s
    return (
        f"{one.name} · {one.variant}" if one.variant else one.name,
        *_interval(one.reward),
        *_difference(versus),
        _chance(versus),
        f"{versus.wins}/{versus.ties}/{versus.losses}" if versus else "",
        "–" if seconds is None else f"{seconds:.1f} s" if seconds < 10 else duration(seconds),
        "–" if one.usd_per_1000 is None else f"{one.usd_per_1000:.2f}",
        str(one.unscored),
    )


def _chance(versus: Comparison | None) -> str:
    if versus is None or versus.p is None:
        return ""
    return "<0.001" if versus.p < 0.001 else f"{versus.p:.3f}"


def _interval(value: Interval | None) -> tuple[str, str]:
    if value is None:
        return "–", ""
    return f"{value.mean:.3f}".replace("-", "−"), f"[{value.low:.3f}, {value.high:.3f}]".replace(
        "-", "−"
    )


def _difference(versus: Comparison | None) -> tuple[str, str]:
    if versus is None:
        return "", ""
    if versus.difference is None:
        return "–", versus.word
    found = versus.difference
    ends = f"[{signed(found.low)}, {signed(found.high)}] n={found.count}"
    return signed(found.mean), f"{ends}: {versus.word}"

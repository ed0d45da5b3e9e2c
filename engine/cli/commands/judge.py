"""`judge`: score the trajectories of a run, or of a JSONL file, by a rubric. No engine needed.

Verdicts, calls and costs are stored in the run folder (a file gets one beside it), so repeating a
call costs nothing. Rewards that a run was trained on are not changed; in an imported run the score
becomes the reward of trajectories without one.
"""

import argparse
import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

from engine.cli.run_lookup import find_run_folder
from engine.cli.terminal import figure, say, say_json, table
from engine.integrations.importers.chat_messages import as_awaiting_judge
from engine.integrations.importers.jsonl import read_attempts
from engine.judge.prompting.rubric import load_rubric, parse_rubric
from engine.judge.providers.access import Access
from engine.judge.providers.client import Provider
from engine.judge.providers.ledger import Ledger
from engine.judge.ruler import Ruler, combined
from engine.judge.scoring import with_verdicts
from engine.protocol.config.project import JudgeConfig, ProjectConfig
from engine.protocol.problems import ConfigError
from engine.protocol.records.judging import Rubric, Verdict, keys_in
from engine.protocol.records.runs import RunSpec, Trajectory
from engine.protocol.requests.runs import TrajectoryQuery
from engine.reward.advantage.group import group_summary
from engine.runtime.closing import closing
from engine.runtime.ids import run_name
from engine.storage.run_folder.run import Run, opened_run, read_spec, write_spec
from engine.trust.projects import require_run_trust, trust_new_project

PAGE = 200


def run(arguments: argparse.Namespace) -> int:
    return asyncio.run(judge(arguments))


async def judge(arguments: argparse.Namespace) -> int:
    target = Path(arguments.target).expanduser().resolve()
    if not target.is_file():
        target = find_run_folder(arguments.target)
    folder, groups = await asyncio.to_thread(_open, target, arguments)
    spec = read_spec(folder)
    config, rubric = _settings(arguments, spec)
    with opened_run(folder) as opened:
        keys = keys_in(os.environ, config.models)
        async with closing(await Provider.start(config, Access(keys), opened.log_file)) as provider:
            ledger = Ledger(opened, provider, config)
            ruler = Ruler(config, rubric, ledger, spec.config.train.seed)
            unscored = 0
            for group in groups or _stored(opened, arguments):
                for attempt in group if groups else ():
                    await opened.writer.add_trajectory(attempt)
                verdicts = await ruler.judge(group)
                if groups:
                    whole = ProjectConfig(judge=config)
                    now = with_verdicts(whole, group, verdicts)
                    await opened.writer.add_verdicts(verdicts, now, rewarded=True)
                else:
                    group = await _keep(opened, config, group, verdicts)
                unscored += _tell(arguments, config, group, verdicts)
            if not arguments.json:
                spent = f"Spent ${ledger.spent:.4f} on this run so far"
                say(f"{spent}; {unscored} trajectories unscored.")
    return 1 if unscored else 0


def _open(target: Path, arguments: argparse.Namespace) -> tuple[Path, list[list[Trajectory]]]:
    """Run folder, and the groups of a JSONL file (empty for a run, which has its own)."""
    if target.is_dir():
        require_run_trust(target)
        return target, []
    groups = read_attempts(target)
    folder = target.with_suffix(".run")
    folder.mkdir(exist_ok=True)
    if not (folder / "run.json").exists():
        spec = RunSpec(
            id=folder.name,
            name=run_name(),
            kind="imported",
            project=target.stem,
            started_at=time.time(),
            config=ProjectConfig(),
            model_path="",
        )
        write_spec(folder, spec)
        trust_new_project(folder)
    require_run_trust(folder)
    return folder, groups


def _settings(arguments: argparse.Namespace, spec: RunSpec) -> tuple[JudgeConfig, Rubric]:
    """Judge settings of the run, overridden by the command line, and the rubric."""
    given = {
        "models": tuple(arguments.judge) or None,
        "base_url": arguments.base_url,
        "budget_usd": arguments.budget,
        "passes": arguments.passes,
        "price_prompt": arguments.price and arguments.price[0],
        "price_completion": arguments.price and arguments.price[1],
    }
    changed = {name: value for name, value in given.items() if value is not None}
    try:
        config = JudgeConfig.model_validate(
            {**spec.config.judge.model_dump(), **changed, "enabled": True}
        )
    except ValueError as error:
        raise ConfigError.of(
            "judge.no_model",
            "No judge is set.",
            "Pass one: --judge openai/gpt-5.4, or --judge openai/NAME --base-url http://…/v1.",
            detail=str(error),
        ) from error
    if arguments.rubric:
        return config, load_rubric(Path(arguments.rubric))
    if not spec.rubric:
        raise ConfigError.of(
            "rubric.none", "This run has no rubric.", "Pass one: --rubric rubric.md"
        )
    return config, parse_rubric(spec.rubric)


async def _keep(
    run: Run, config: JudgeConfig, group: list[Trajectory], verdicts: list[Verdict]
) -> list[Trajectory]:
    """Store the verdicts of a group; returns the group with its current rewards."""
    now = group
    if run.spec.kind == "imported" and not any(one.labels for one in group):
        whole = run.config.model_copy(update={"judge": config})
        now = with_verdicts(whole, [as_awaiting_judge(one) for one in group], verdicts)
    await run.writer.add_verdicts(verdicts, now, rewarded=now != group)
    if now != group:
        await run.writer.add_group(group_summary(run.config.train.algorithm.advantage, now))
    return now


def _stored(run: Run, arguments: argparse.Namespace) -> Iterator[list[Trajectory]]:
    query = TrajectoryQuery(split=arguments.split, step=arguments.step, limit=PAGE)
    while (page := run.reader.groups(query)).items:
        for group in page.items:
            yield run.reader.stored(group.split, group.step, group.group)
        query = query.model_copy(update={"offset": query.offset + PAGE})


def _tell(
    arguments: argparse.Namespace,
    config: JudgeConfig,
    group: list[Trajectory],
    verdicts: list[Verdict],
) -> int:
    """Print the result of one group; returns the number of unscored trajectories."""
    scores = combined(config, verdicts)
    judged = {verdict.trajectory_id for verdict in verdicts}
    if arguments.json:
        for verdict in verdicts:
            say_json(verdict)
        return len(judged - set(scores))
    reasons = {v.trajectory_id: v.reason or (v.problem and v.problem.message) for v in verdicts}
    say(group[0].title)
    say(
        table(
            ("attempt", "score", "reward", "reason"),
            [
                (
                    one.id,
                    figure(scores.get(one.id)) if one.id in scores else "unscored",
                    figure(one.reward),
                    (reasons.get(one.id) or "failed before it could be judged")[:100],
                )
                for one in group
            ],
        )
    )
    say()
    return len(judged - set(scores))

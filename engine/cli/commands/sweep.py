"""`sweep`: print the plan of a sweep, start (or resume) it on the workspace's engine, follow it.

Exit 0 when it finished, 3 when it was paused or stopped, 1 when it stopped after failures. Ctrl C
once pauses after the current step, twice stops at once; the sweep can be resumed either way.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import tomllib
from pathlib import Path
from typing import Any

from engine.cli.commands.clusters import cluster_of, lend_cluster_key
from engine.cli.commands.track import lend_tracker_keys
from engine.cli.commands.train import lend_keys, read_overrides
from engine.cli.engine_connection import engine_for
from engine.cli.sweep_text import closing_text, plan_text, run_text
from engine.cli.terminal import Progress, say, say_json, warn
from engine.client import EngineClient
from engine.protocol.problems import AtelierError, ConfigError, LaunchError
from engine.protocol.records.sweeps import SweepRun, SweepTrial, SweepView
from engine.protocol.requests.sweeps import ActOnSweep, StartSweep

FINISHED, FAILED, STOPPED = 0, 1, 3
OPTIONS = ("method", "trials", "seeds", "prune", "budget_hours")
SILENT = 10
"""Seconds for which a lost connection is tried again."""


def run(arguments: argparse.Namespace) -> int:
    return asyncio.run(sweep(arguments, read_sweep_overrides(arguments)))


def read_sweep_overrides(arguments: argparse.Namespace) -> dict[str, Any]:
    """Settings by dotted key from `--set`, `--vary` and the other sweep options. Raises ConfigError
    for an invalid value."""
    overrides = read_overrides(arguments)
    for name in OPTIONS:
        if (value := getattr(arguments, name)) is not None:
            overrides[f"sweep.{name}"] = value
    if arguments.budget is not None:
        overrides["sweep.budget_usd"] = arguments.budget
    for item in arguments.vary:
        key, equals, text = item.partition("=")
        try:
            if not equals:
                raise ValueError
            overrides[f"sweep.parameters.{key.strip()}"] = tomllib.loads(f"value = {text}")["value"]
        except ValueError as error:
            raise ConfigError.of(
                "usage",
                f"--vary {item} has no valid list or range of values.",
                "Write a list or a range: train.lr=[1e-5,1e-4] or train.lr={low=1e-5,high=1e-3}.",
            ) from error
    return overrides


async def sweep(arguments: argparse.Namespace, overrides: dict[str, Any]) -> int:
    project = Path(arguments.project).expanduser().resolve()
    request = StartSweep(
        project=str(project), overrides=overrides, host=arguments.host, key=os.urandom(8).hex()
    )
    async with engine_for(arguments.workspace) as client:
        await lend_keys(client, project, overrides)
        if not arguments.dry_run:
            cluster = await asyncio.to_thread(cluster_of, project, overrides)
            await lend_cluster_key(client, cluster)
        await lend_tracker_keys(client)
        if arguments.resume:
            view = await resume(client, project, arguments)
        else:
            plan = await client.plan_sweep(request)
            if arguments.dry_run and arguments.json:
                say_json(plan)
            if not arguments.json:
                say(plan_text(plan, project.name))
            if arguments.dry_run:
                return FINISHED
            view = await client.start_sweep(request)
        return await SweepWatch(client, view, arguments.json).until_end()


async def resume(client: EngineClient, project: Path, arguments: argparse.Namespace) -> SweepView:
    """Resume the project's sweep with the id or name in `--resume`; one that is active just
    continues. Raises AtelierError if there is none."""
    wanted = next(
        (
            one
            for one in await client.sweeps(str(project))
            if arguments.resume in (one.id, one.name)
        ),
        None,
    )
    if wanted is None:
        raise AtelierError.of(
            "sweep.unknown",
            f"This project has no sweep {arguments.resume}.",
            "List them with `atelier sweeps PROJECT`.",
        )
    request = ActOnSweep(
        action="resume", budget_hours=arguments.budget_hours, budget_usd=arguments.budget
    )
    return await client.act_on_sweep(wanted.id, request)


class SweepWatch:
    """Progress of one sweep by its events, with reconnection, until no run of it is active."""

    def __init__(self, client: EngineClient, view: SweepView, as_json: bool) -> None:
        self._client, self._view, self._json = client, view, as_json
        self._progress = Progress()
        self._shown: dict[tuple[int, int], str] = {}
        """State of each run by trial and seed as it was last printed."""
        self._interrupts = 0
        self._revision = 0
        self._waiting = False

    async def until_end(self) -> int:
        if not self._json:
            say(f"Sweep {self._view.name} · {self._view.path}")
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        try:
            silent = 0
            while not self._has_ended():
                try:
                    await self._follow()
                    silent = 0
                except LaunchError:
                    silent += 1
                    if silent > SILENT:
                        raise
                    await asyncio.sleep(1)
        finally:
            loop.remove_signal_handler(signal.SIGINT)
        self._progress.clear()
        if not self._json:
            say("\n" + closing_text(self._view))
        if self._view.state == "finished":
            return FINISHED
        has_failed = self._view.state == "stopped" and self._view.problem is not None
        is_budget = has_failed and self._view.problem.code == "sweep.budget"  # type: ignore[union-attr]
        return FAILED if has_failed and not is_budget else STOPPED

    def _has_ended(self) -> bool:
        return self._view.state not in ("waiting", "running") and not self._view.running

    async def _follow(self) -> None:
        events = self._client.sweep_events(self._view.id, self._revision)
        async with contextlib.aclosing(events) as views:
            async for view in views:
                self._view, self._revision = view, view.revision
                self._show(view)
                if self._has_ended():
                    return

    def _show(self, view: SweepView) -> None:
        if self._json:
            say_json(view)
            return
        for trial in view.trials:
            for run in trial.runs:
                self._show_run(view, trial, run)
        if view.state == "waiting" and not self._waiting:
            self._say("waiting for another run on this machine")
        self._waiting = view.state == "waiting"
        runs = sum(run.state in ("finished", "pruned") for t in view.trials for run in t.runs)
        active = next((r for t in view.trials for r in t.runs if r.run_id == view.running), None)
        step = f" · step {active.step} of {active.steps}" if active else ""
        total = view.trials_planned * view.sweep.seeds
        self._progress.show(f"{runs} of {total} runs done{step}")

    def _show_run(self, view: SweepView, trial: SweepTrial, run: SweepRun) -> None:
        place = (trial.number, run.seed)
        before = self._shown.get(place, "waiting")
        named = run.state != "running" or run.name
        if run.state not in (before, "waiting") and named:
            self._shown[place] = run.state
            self._say(run_text(view, trial, run))

    def _say(self, text: str) -> None:
        self._progress.clear()
        say(text)

    def _interrupt(self) -> None:
        self._interrupts += 1
        first = self._interrupts == 1
        warn(
            "\nPausing after this step; Ctrl C again stops at once." if first else "\nStopping now."
        )
        request = ActOnSweep(action="pause" if first else "stop")
        self._command = asyncio.create_task(self._client.act_on_sweep(self._view.id, request))

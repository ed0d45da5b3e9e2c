"""`train`: start (or resume) a run on the workspace's engine and watch it to its end.

Exit 0 when it finished, 3 when it was stopped, 1 when it failed. Ctrl C once stops after the step,
twice at once; the run can be resumed either way.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.cli.commands.clusters import cluster_of, lend_cluster_key
from engine.cli.commands.hosts import connected
from engine.cli.commands.track import lend_tracker_keys, wait_for_trackers
from engine.cli.engine_connection import engine_for
from engine.cli.terminal import Progress, duration, figure, percent, say, say_json, sparkline, warn
from engine.client import EngineClient
from engine.protocol.events.checkpoints import CheckpointSaved
from engine.protocol.events.progress import RunProgress
from engine.protocol.events.run import (
    AlertsChanged,
    DiagnosisChanged,
    Event,
    GroupLabelled,
    LogWritten,
    PhaseChanged,
    PolicyLoaded,
    ProgressTicked,
    ReviewOpened,
    RunFailed,
    RunFinished,
    RunStarted,
    RunStopped,
    StepFinished,
    UnknownEvent,
    ValidationFinished,
    WorkerRestarted,
)
from engine.protocol.events.sft import WarmupFinished
from engine.protocol.problems import AtelierError, ConfigError, LaunchError
from engine.protocol.records.clusters import ClusterProfile
from engine.protocol.records.judging import keys_in
from engine.protocol.records.machine.backends import ignored
from engine.protocol.records.runs import ACTIVE_STATES, Interval, RunSummary, TrainingKind
from engine.protocol.requests.runs import Command, StartRun
from engine.storage.project import load_config
from engine.storage.run_folder.run import read_spec

FINISHED, FAILED, STOPPED = 0, 1, 3
CODES = {"finished": FINISHED, "stopped": STOPPED, "failed": FAILED}
PHASES = {
    "loading": "loading the model",
    "warming_up": "warming up on demonstrations",
    "validating": "validating",
    "rolling_out": "sampling",
    "reviewing": "waiting for your labels",
    "training": "training",
    "publishing": "publishing",
}


def run(arguments: argparse.Namespace) -> int:
    return asyncio.run(train(arguments, read_overrides(arguments)))


async def train(arguments: argparse.Namespace, overrides: dict[str, Any]) -> int:
    project = Path(arguments.project).expanduser().resolve()
    async with engine_for(arguments.workspace) as client:
        await lend_keys(client, project, overrides)
        await lend_tracker_keys(client)
        kind: TrainingKind = "baseline" if arguments.baseline else "train"
        summary = await begin(client, arguments, project, overrides, kind)
        code = await Watch(client, summary, arguments.json).until_end()
        await wait_for_trackers(client, summary, arguments.json)
        return code


async def begin(
    client: EngineClient,
    arguments: argparse.Namespace,
    project: Path,
    overrides: dict[str, Any],
    kind: TrainingKind,
) -> RunSummary:
    """Start a run of this kind with the options in `arguments`, and with `overrides` (dotted key →
    value) of settings, and print the checks of its model; with `--resume`, resume that run
    instead."""
    if arguments.resume:
        return await resume(client, project, arguments.resume, getattr(arguments, "steps", None))
    if arguments.host:
        await connected(client, arguments.host)
    else:
        await lend_cluster_key(client, await asyncio.to_thread(cluster_of, project, overrides))
    request = StartRun(
        project=str(project),
        kind=kind,
        overrides=overrides,
        origin=arguments.origin,
        replay=getattr(arguments, "replay", False),
        queue=arguments.queue,
        host=arguments.host,
        lend_keys=arguments.lend_keys,
        key=os.urandom(8).hex(),
    )
    summary = await client.start_run(request)
    if not arguments.json:
        await _say_model_checks(client, project, overrides)
    return summary


async def _say_model_checks(client: EngineClient, project: Path, overrides: dict[str, Any]) -> None:
    """Print what Setup says about the project's model: its chat format and its adapter. Prints
    nothing if the model is not on the engine's machine."""
    for check in await client.model_checks(str(project), overrides):
        mark = "" if check.state == "good" else "! "
        say(f"  {mark}{check.name}: {check.words} {check.hint}".rstrip())


async def resume(
    client: EngineClient, project: Path, name: str, steps: int | None = None
) -> RunSummary:
    """Resume a run of the project, by its id or name, to `steps` in total (None: as planned)."""
    runs = await client.runs(str(project))
    wanted = next((run for run in runs if name in (run.id, run.name)), None)
    if wanted is None:
        raise AtelierError.of("run.unknown", f"This project has no run {name}.")
    if wanted.host:
        await connected(client, wanted.host)
    else:
        spec = await asyncio.to_thread(read_spec, Path(wanted.path))
        await lend_cluster_key(client, spec.config.backend.cluster)
    return await client.command(wanted.id, Command(action="resume", steps=steps))


async def lend_keys(
    client: EngineClient, project: Path, overrides: dict[str, Any], more: Sequence[str] = ()
) -> None:
    """Send the engine, which keeps them in memory, the API keys in the terminal's environment for
    the project's judges (with `overrides` of settings) and for the models `more`. Does nothing if
    the settings are invalid."""
    with contextlib.suppress(ConfigError):  # what is wrong with the project is said when it starts
        models = [*load_config(project, overrides).judge.models, *more]
        if keys := keys_in(os.environ, models):
            await client.lend_keys(keys)


def read_overrides(arguments: argparse.Namespace) -> dict[str, Any]:
    """Settings of the command line, such as `--set train.lr=2e-4`: values are parsed as TOML, or
    taken as plain text if that fails. Raises ConfigError."""
    overrides: dict[str, Any] = {}
    for item in arguments.values:
        key, equals, text = item.partition("=")
        if not equals:
            raise ConfigError.of("usage", f"--set {item} has no value: write KEY=VALUE.")
        try:
            overrides[key.strip()] = tomllib.loads(f"value = {text}")["value"]
        except ValueError:  # no TOML, or a number with thousands of digits: taken as text
            overrides[key.strip()] = text
    for name in ("steps", "seed"):
        if (value := getattr(arguments, name, None)) is not None:
            overrides[f"train.{name}"] = value
    if cluster := getattr(arguments, "cluster", ""):
        overrides["backend.cluster"] = cluster
    return overrides


class Watch:
    """Progress of one run by its events, with reconnection, until the run ends."""

    def __init__(self, client: EngineClient, summary: RunSummary, as_json: bool) -> None:
        self._client = client
        self._summary = summary
        self._json = as_json
        self._progress = Progress()
        self._run = RunProgress(summary.id, planned=summary.steps)
        self._times: list[float] = []
        self._interrupts = 0
        self._found: set[str] = set()
        self._alerts: set[str] = set()
        self._seq = 0
        self._code: int | None = None

    async def until_end(self) -> int:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        try:
            silent = 0
            while self._code is None:
                try:
                    await self._follow()
                    silent = 0
                except LaunchError:
                    silent += 1
                    if silent > 10:
                        raise
                    await asyncio.sleep(1)
            return self._code
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    async def _follow(self) -> None:
        async with contextlib.aclosing(self._client.events(self._summary.id, self._seq)) as events:
            async for event in events:
                self._seq = event.seq or self._seq
                self._run.fold_progress(event)
                self._show(event)
                if self._run.ended and await self._has_ended():
                    self._code = CODES[self._run.status]
                    return

    def _show(self, event: Event | UnknownEvent) -> None:
        if self._json:
            say_json(event)
        else:
            self._tell(event)

    async def _has_ended(self) -> bool:
        """Whether the run is inactive now; an end event may be one from before it was resumed."""
        return (await self._client.run(self._summary.id)).state not in ACTIVE_STATES

    def _interrupt(self) -> None:
        self._interrupts += 1
        action = "stop_after_step" if self._interrupts == 1 else "stop_now"
        words = "Stopping after this step; Ctrl C again stops at once."
        warn(f"\n{words if self._interrupts == 1 else 'Stopping now.'}")
        command = Command(action=action)  # type: ignore[arg-type]
        self._command = asyncio.create_task(self._client.command(self._summary.id, command))

    def _tell(self, event: Event | UnknownEvent) -> None:
        if isinstance(event, ProgressTicked):
            self._progress.show(self._tick(event))
            return
        if text := self._words(event):
            self._progress.clear()
            say(text)

    def _tick(self, tick: ProgressTicked) -> str:
        speed = tick.hardware.get("tokens_per_s")
        parts = [f"step {tick.step} of {self._run.planned}", PHASES[tick.phase]]
        parts.append(f"{tick.done}/{tick.total}")
        parts += [f"{speed:.0f} tokens/s"] if speed else []
        parts += [f"about {duration(self._left())} left"] if self._times else []
        return " · ".join(parts)

    def _left(self) -> float:
        recent = sorted(self._times[-5:])
        return recent[len(recent) // 2] * (self._run.planned - self._run.done)

    def _words(self, event: Event | UnknownEvent) -> str:
        match event:
            case RunStarted(resumed_from=None):
                title = f"Run {event.spec.name} · {event.spec.project} · {event.device}"
                unused = ignored(event.spec.config).items()
                return "\n".join([title, *(f"  ! {k} has no effect: {why}." for k, why in unused)])
            case RunStarted():
                return f"Run {event.spec.name} resumes after step {event.resumed_from}"
            case PolicyLoaded(cluster=ClusterProfile() as cluster):
                return f"  on {cluster.name} ({cluster.client}): {cluster.words}"
            case PolicyLoaded():
                return (
                    f"  {event.parameters / 1e6:.0f} M parameters in {event.dtype}, "
                    f"{event.trainable / 1e6:.1f} M trainable"
                    + (f"; sampler: {event.sampler}" if event.sampler else "")
                )
            case WarmupFinished():
                losses = " → ".join(f"{loss:.2f}" for loss in event.losses)
                return f"  warm-up on {event.examples} demonstrations: loss {losses}"
            case PhaseChanged(phase="loading"):
                return "  loading the model"
            case ValidationFinished() if self._summary.kind == "baseline":
                return f"  baseline on the training scenarios: {_interval(event.reward)}"
            case ValidationFinished():
                return f"  validation after step {event.step}: {_validation(event)}"
            case StepFinished():
                return self._step(event)
            case ReviewOpened():
                return self._review(event)
            case GroupLabelled():
                verb = "undone" if event.undone else "labelled"
                return f"  step {event.group.step}, group {event.group.group + 1}: {verb}"
            case DiagnosisChanged():
                return self._new_findings(event)
            case AlertsChanged():
                return self._new_alerts(event)
            case CheckpointSaved():
                return f"  checkpoint {event.checkpoint.path}"
            case WorkerRestarted():
                return f"  ! {event.problem.message} Restart {event.attempt} of 3."
            case LogWritten():
                return f"  {event.text}"
            case RunFinished():
                return self._closing(event)
            case RunStopped():
                return f"Stopped at step {event.step}. {event.reason} {self._resume_words()}"
            case RunFailed():
                return f"Failed at step {event.step}. {event.problem} {self._resume_words()}"
            case _:
                return ""

    def _new_findings(self, event: DiagnosisChanged) -> str:
        """Text of findings that are new at this step."""
        new = [f for f in event.findings if f.code not in self._found]
        self._found = {f.code for f in event.findings}
        return "\n".join(f"  ! {f.title} {f.words} {f.suggestion}" for f in new)

    def _new_alerts(self, event: AlertsChanged) -> str:
        """Text of the alerts that are raised at this step."""
        new = [alert for alert in event.alerts if alert.condition not in self._alerts]
        self._alerts = {alert.condition for alert in event.alerts}
        return "\n".join(f"  ! Alert: {alert.words}" for alert in new)

    def _review(self, event: ReviewOpened) -> str:
        left = None if event.until is None else max(0.0, event.until - time.time())
        then = {"train": "training continues", "pause": "the run pauses"}[event.then]
        timeout = "" if left is None else f" After {duration(left)} {then}."
        path = self._summary.path
        return (
            f"  step {event.step} waits for your labels, in the studio or with "
            f"`atelier label import {path} FILE`.{timeout}\n"
            f"  Continue with: atelier label done {path}"
        )

    def _step(self, event: StepFinished) -> str:
        reward = self._run.rewards[event.step]
        self._times.append(event.metrics.get("time_s/step", 0.0))
        unscored = event.metrics.get("unscored", 0)
        tail = f" · {unscored:.0f} unscored" if unscored else ""
        tail += f" · skipped: {event.reason}" if event.skipped else ""
        return (
            f"step {event.step:>3} of {self._run.planned}  reward {figure(reward)}  "
            f"{sparkline(list(self._run.rewards.values()))}  {duration(self._times[-1])}{tail}"
        )

    def _closing(self, event: RunFinished) -> str:
        lines = [f"Finished {event.step} steps in {duration(event.seconds)}."]
        if event.reward_last is not None:
            lines.append(
                f"  training reward {figure(event.reward_first)} → {figure(event.reward_last)}"
                + (
                    " (relative within each group, so it does not measure progress)"
                    if event.win_rate
                    else ""
                )
            )
        if event.win_rate:
            lines.append(f"  win rate against the initial policy  {_rate(event.win_rate)}")
        if event.validation and event.step:
            before, after = _interval(event.baseline), _interval(event.validation)
            lines.append(f"  validation      {before} → {after}")
        elif event.validation:
            lines.append(f"  reward before training: {_interval(event.validation)}")
        lines.append(f"  run folder: {self._summary.path}")
        return "\n".join(lines)

    def _resume_words(self) -> str:
        project = self._summary.project_path
        return f"\nResume with: atelier train {project} --resume {self._summary.name}"


def _validation(event: ValidationFinished) -> str:
    criteria = [f"{name} {figure(score.mean)}" for name, score in event.criteria.items()]
    return "; ".join([_result(event), *criteria])


def _result(event: ValidationFinished) -> str:
    if rate := event.win_rates.get(event.step):
        return f"win rate against step {event.against[0].opponent}: {_rate(rate)}"
    if event.reward is None and not event.unscored:
        return "reference for the win rates of later validations"
    return _interval(event.reward)


def _rate(value: Interval) -> str:
    return f"{percent(value.mean)} ({percent(value.low)} to {percent(value.high)})"


def _interval(value: Interval | None) -> str:
    if value is None:
        return "no rollout could be scored"
    return f"{figure(value.mean)} ({figure(value.low)} to {figure(value.high)})"

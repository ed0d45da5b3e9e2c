"""`sft`: train on demonstrations and show progress. Exit codes and Ctrl C are those of `train`."""

import argparse
import asyncio
from pathlib import Path
from typing import Any

from engine.cli.commands.train import FAILED, FINISHED, Watch, begin, read_overrides
from engine.cli.engine_connection import engine_for
from engine.cli.terminal import complain, duration, figure, say, say_json
from engine.protocol.events.run import Event, RunFinished, RunStarted, StepFinished, UnknownEvent
from engine.protocol.events.sft import LossMeasured
from engine.protocol.problems import ConfigError
from engine.protocol.records.demonstrations import Demonstrations, Tally
from engine.storage.project import load_config
from engine.training.sft.preview import view

UNMEASURED_EVERY = 10
"""Updates between two progress lines of a run that has no held-out demonstrations."""


def run(arguments: argparse.Namespace) -> int:
    work = check if arguments.check else tune
    return asyncio.run(work(arguments, read_overrides(arguments)))


async def check(arguments: argparse.Namespace, overrides: dict[str, Any]) -> int:
    """Check the demonstrations without training; returns 1 if an SFT run could not start."""
    project = Path(arguments.project).expanduser().resolve()
    config = load_config(project, overrides | data_of(arguments, project))
    found = view(project, config, shown=None)
    if arguments.json:
        say_json(found)
    else:
        say(report(found))
    if found.problem and not arguments.json:
        complain(found.problem)
    return FAILED if found.problem else FINISHED


async def tune(arguments: argparse.Namespace, overrides: dict[str, Any]) -> int:
    project = Path(arguments.project).expanduser().resolve()
    overrides |= data_of(arguments, project)
    async with engine_for(arguments.workspace) as client:
        summary = await begin(client, arguments, project, overrides, "sft")
        return await SftWatch(client, summary, arguments.json).until_end()


def data_of(arguments: argparse.Namespace, project: Path) -> dict[str, Any]:
    """Return the setting `sft.data` for the file in `--data`; empty without that option. Raises
    ConfigError for a file outside the project if the run is on a remote server, which gets the
    project only."""
    if not arguments.data:
        return {}
    given = Path(arguments.data).expanduser()
    file = (given if given.exists() else project / given).resolve()
    if file.is_relative_to(project):
        return {"sft.data": str(file.relative_to(project))}
    if arguments.host:
        raise ConfigError.of(
            "config.data_outside",
            f"{file.name} is outside the project; only the project is sent to {arguments.host}.",
            "Copy the file into the project folder.",
            where=str(file),
        )
    return {"sft.data": str(file)}


def report(found: Demonstrations) -> str:
    lines = []
    for file in found.files:
        forms = ", ".join(f"{count} {form}" for form, count in file.forms.items())
        lines.append(
            f"{file.path} ({file.role}): {_amount(file.tally)}{': ' if forms else ''}{forms}"
        )
        lines += [f"  line {one.line}: {one.reason}" for one in file.bad]
    lines.append(f"Training: {_amount(found.train)}, in {found.updates} updates")
    lines.append(f"Held out: {_amount(found.held_out)}")
    return "\n".join(lines)


def _amount(tally: Tally) -> str:
    return f"{tally.examples} demonstrations, {tally.trained:,} of {tally.tokens:,} tokens trained"


class SftWatch(Watch):
    """Progress with one line per measurement of the held-out loss."""

    def _words(self, event: Event | UnknownEvent) -> str:
        match event:
            case RunStarted(resumed_from=None):
                plan = event.spec.supervised
                train = f"\n  training: {_amount(plan.train)}" if plan else ""
                held = f"\n  held out: {_amount(plan.held_out)}" if plan else ""
                return f"{super()._words(event)}{train}{held}"
            case StepFinished():
                return self._update(event)
            case LossMeasured():
                self._measured = True
                return (
                    f"update {event.step:>4} of {self._run.planned}  held-out loss "
                    f"{figure(event.loss)} ({event.tokens:,} tokens)"
                )
            case RunFinished():
                return self._closing(event)
            case _:
                return super()._words(event)

    _measured = False

    def _update(self, event: StepFinished) -> str:
        self._times.append(event.metrics.get("time_s/step", 0.0))
        if self._measured or event.step % UNMEASURED_EVERY:
            return ""
        loss = figure(event.metrics.get("loss"))
        return f"update {event.step:>4} of {self._run.planned}  loss {loss}"

    def _closing(self, event: RunFinished) -> str:
        lines = [f"Finished {event.step} updates in {duration(event.seconds)}."]
        if event.loss_best is not None:
            first, best = figure(event.loss_first), figure(event.loss_best)
            lines.append(f"  held-out loss {first} → {best} (after update {event.loss_step})")
        name, project = self._summary.name, self._summary.project_path
        best_or_last = "best" if event.loss_best is not None else "newest"
        lines.append(f"  Continue with RL: atelier train {project} --from {name}@{best_or_last}")
        lines.append(f"  run folder: {self._summary.path}")
        return "\n".join(lines)

    def _resume_words(self) -> str:
        project = self._summary.project_path
        return f"\nResume with: atelier sft {project} --resume {self._summary.name}"

"""`export`: export a checkpoint for other programs, verified against the trained model; or the
project as an environment package of verifiers.

If an engine has the run open, the command uses that engine, else the run folder. Exit 0: the export
equals the trained model or is close. Exit 1: it differs and was deleted, or the export failed.
"""

import argparse
import asyncio
import contextlib
import os
import sys
from pathlib import Path

from pydantic import ValidationError

from engine.cli.engine_connection import engine_of
from engine.cli.run_lookup import find_run_and_step, find_run_folder
from engine.cli.terminal import Progress, say, say_json, table
from engine.export.job import export_checkpoint
from engine.integrations.verifiers.export import export_environment
from engine.protocol.events.checkpoints import CheckpointExported
from engine.protocol.problems import ConfigError, Refused, first_invalid
from engine.protocol.requests.exports import (
    ExportCheckpoint,
    ExportReport,
    ExportTicked,
    ParityReport,
)
from engine.storage.project import FILE
from engine.storage.run_folder.run import opened_run, read_spec
from engine.trust.projects import project_of_run

BAR = 40


def run(arguments: argparse.Namespace) -> int:
    if arguments.environment:
        return _export_environment(arguments)
    if not arguments.out:
        raise ConfigError.of("export.no_out", "--format needs a folder: add --out FOLDER.")
    try:
        folder, step = find_run_and_step(arguments.run)
        request = _request(arguments)
        shown = _ExportDisplay(arguments.json)
        report = asyncio.run(_export(folder, step, request, shown, arguments))
    except KeyboardInterrupt:
        say("Cancelled; partial files were deleted.")
        return 1
    shown.end(report)
    return 1 if report.parity.verdict == "differs" else 0


def _export_environment(arguments: argparse.Namespace) -> int:
    named = Path(arguments.run).expanduser()
    is_project = (named / FILE).is_file()
    project = named.resolve() if is_project else project_of_run(find_run_folder(arguments.run))
    out = Path(arguments.environment).expanduser().resolve()
    name = export_environment(project, out)
    say(f"Wrote the package {name} to {out}. Install and evaluate it:")
    say(f"  pip install {out}")
    say(f"  vf-eval {name} -n 4 --model MODEL --client.base-url URL --client.api-key-var VARIABLE")
    return 0


async def _export(
    folder: Path,
    step: int | None,
    request: ExportCheckpoint,
    shown: "_ExportDisplay",
    arguments: argparse.Namespace,
) -> ExportReport:
    spec = read_spec(folder)

    async def record(event: CheckpointExported) -> None:
        with opened_run(folder) as opened:
            await opened.say(event)

    async with engine_of(folder, arguments.workspace) as client:
        if client is None:
            return await export_checkpoint(folder, step, request, shown.tick, record)
        async with contextlib.aclosing(client.export(spec.id, step, request)) as answers:
            async for answer in answers:
                if isinstance(answer, ExportReport):
                    return answer
                shown.tick(answer)
    raise Refused.of("export.cut_off", "The engine ended during the export.")


def _request(arguments: argparse.Namespace) -> ExportCheckpoint:
    try:
        return ExportCheckpoint(
            format=arguments.format,
            out=str(Path(arguments.out).expanduser().resolve()),
            dtype=arguments.dtype,
            prompts=arguments.prompts,
            shard_bytes=arguments.shard_mb * 1_000_000,
            force=arguments.force,
            push=arguments.push,
            token=_token(arguments) if arguments.push else "",
        )
    except ValidationError as error:
        raise ConfigError.of("export.wrong", first_invalid(error)) from error


def _token(arguments: argparse.Namespace) -> str:
    given = sys.stdin.readline() if arguments.token_stdin else os.environ.get("HF_TOKEN", "")
    if not given.strip():
        raise ConfigError.of(
            "export.no_token",
            "Uploading needs a Hub token with write access.",
            "Set HF_TOKEN, or pass the token on stdin with --token-stdin.",
        )
    return given.strip()


class _ExportDisplay:
    """Output of the export command, as text or as JSON lines."""

    def __init__(self, as_json: bool) -> None:
        self._json = as_json
        self._progress = Progress()
        self._phase = ""

    def tick(self, tick: ExportTicked) -> None:
        if self._json:
            say_json(tick)
            return
        done = round(tick.share * BAR)
        bar = "█" * done + "░" * (BAR - done)
        self._progress.show(f"{bar} {tick.share:4.0%}  {tick.words} {tick.done}/{tick.total}")

    def end(self, report: ExportReport) -> None:
        self._progress.clear()
        if self._json:
            say_json(report)
            return
        say(_parity_words(report.parity))
        if not report.path:
            say("The export differs from the trained model and was deleted.")
            say("To keep such an export, repeat with --force.")
            return
        say(f"\n{report.bytes / 1e6:.1f} MB in {report.path}")
        if report.pushed:
            say(f"Uploaded to {report.pushed}")
        for one in report.commands:
            note = f"\n    {one.note}" if one.note else ""
            say(f"\n{one.tool}\n    {one.command}{note}")


def _parity_words(parity: ParityReport) -> str:
    rows = [("files", f"{parity.files.files}, {len(parity.files.wrong)} changed after writing")]
    if weights := parity.weights:
        rows.append(("weights", f"{weights.outside} of {weights.numbers} differ beyond rounding"))
    if gap := parity.logprobs:
        rows += [
            ("compared", f"{gap.tokens} tokens from {gap.sequences} trajectories"),
            ("|Δ log-prob|", f"mean {gap.mean:.2g}, p99 {gap.p99:.2g}, largest {gap.largest:.2g}"),
        ]
    if match := parity.greedy:
        rows.append(("greedy text", f"{match.same} of {match.prompts} same, {match.ties} ties"))
    if same := parity.same:
        changed = [name for name, value in same if not value]
        rows.append(("other", f"changed: {', '.join(changed)}" if changed else "unchanged"))
    words = table((parity.verdict.upper(), f"{parity.format}, {parity.dtype}"), rows)
    if (match := parity.greedy) and (first := match.first):
        words += f"\nFirst difference at token {first.position}:\n    exported: {first.exported!r}"
        words += f"\n    trained: {first.reference!r}"
    return "\n".join([words, *parity.failures])

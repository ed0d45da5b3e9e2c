"""`bench --gpu`: all checks of a GPU, as Markdown and JSON. Exit 0 if every check that could run
passed, 1 if one failed, 2 without a GPU or for bad usage, 130 after Ctrl C."""

import argparse
import asyncio
import shlex
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from engine.bench.gpu.page import page
from engine.bench.gpu.plan import Check, checks, chosen
from engine.bench.gpu.report import CheckReport, GpuReport
from engine.bench.gpu.runner import Bench, ask_survey, run_checks
from engine.bench.gpu.survey import Survey
from engine.cli.terminal import Progress, duration, say, say_json, warn
from engine.hardware.machine import device_words
from engine.launcher.interpreters import Interpreter, chosen_interpreters
from engine.models import registry
from engine.runtime.files import replace_file
from engine.runtime.life_pipe import adopt_orphans
from engine.runtime.paths import ROOT

PASSED, FAILED, USAGE, STOPPED = 0, 1, 2, 130
PAGE, RECORD = "gpu-report.md", "gpu-report.json"
MARKS = {"passed": "ok  ", "failed": "BAD ", "skipped": "skip"}


def run(arguments: argparse.Namespace) -> int:
    try:
        wanted = chosen(checks(), arguments.only)
    except ValueError as error:
        warn(f"atelier bench --gpu: {error}.")
        return USAGE
    adopt_orphans()  # what a check leaves behind comes back to us, and is ended
    engines, notes = chosen_interpreters()
    try:
        found = asyncio.run(ask_survey(engines[0]))
        if found.no_card and not arguments.processor:
            warn(f"{found.no_card} --processor runs the same checks on the CPU.")
            return USAGE
        model = registry.find_model(arguments.model)
        return asyncio.run(_check(arguments, wanted, engines[0], found, model, notes))
    except KeyboardInterrupt:
        warn(f"Stopped. Results so far are in {arguments.out}.")
        return STOPPED


async def _check(
    arguments: argparse.Namespace,
    wanted: list[Check],
    engine: Interpreter,
    found: Survey,
    model: Path,
    notes: list[str],
) -> int:
    folder = Path(arguments.out).expanduser().resolve()
    folder.mkdir(parents=True, exist_ok=True)
    progress = Progress()
    done: list[CheckReport] = []
    started_at = time.monotonic()

    def so_far() -> GpuReport:
        return GpuReport(
            at=datetime.now().astimezone().isoformat(timespec="seconds"),
            command=f"atelier {shlex.join(sys.argv[1:])}",
            version=_version(),
            commit=_commit(),
            model=arguments.model,
            device=device_words() if arguments.processor else found.device,
            on_processor=arguments.processor,
            quick=arguments.quick,
            seconds=time.monotonic() - started_at,
            python=found.python,
            packages=found.packages,
            notes=notes,
            checks=done,
        )

    def keep(report: CheckReport) -> None:
        """Save all reports so far after every check, so that measurements survive a later crash."""
        done.append(report)
        write(so_far(), folder)
        if not arguments.json:
            progress.clear()
            say(f"{MARKS[report.state]}  {report.name}: {report.words}")

    with tempfile.TemporaryDirectory(prefix="atelier-gpu-") as scratch:
        bench = Bench(
            engine=engine,
            survey=found,
            model=model,
            scratch=Path(scratch),
            on_processor=arguments.processor,
            quick=arguments.quick,
            say=warn if arguments.json else progress.show,
        )
        await run_checks(bench, wanted, keep)
    report = so_far()
    write(report, folder)
    if arguments.json:
        say_json(report)
    else:
        say(f"\n{folder / PAGE}, after {duration(report.seconds)}")
    return FAILED if report.of("failed") else PASSED


def write(report: GpuReport, folder: Path) -> None:
    replace_file(folder / PAGE, page(report))
    replace_file(folder / RECORD, report.model_dump_json(indent=1) + "\n")


def _version() -> str:
    try:
        return version("atelier")
    except PackageNotFoundError:
        return "from source"


def _commit() -> str:
    """Commit of the checkout; empty without one."""
    try:
        git = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
        )
    except OSError:
        return ""
    return git.stdout.strip() if git.returncode == 0 else ""

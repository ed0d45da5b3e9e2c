"""Runner of checks, one process each, one after another. A check that crashes, hangs or runs out of
memory is reported, and the next one starts with a free GPU."""

import asyncio
import contextlib
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from engine.bench.gpu.plan import Check, has, lacks
from engine.bench.gpu.report import CheckReport, Job, Outcome
from engine.bench.gpu.survey import Survey
from engine.launcher.interpreters import Interpreter
from engine.protocol.problems import AtelierError
from engine.runtime.child import end_processes

Say = Callable[[str], None]
LIMIT_S, QUICK_LIMIT_S = 2400.0, 900.0
"""Timeouts of a check in seconds."""


class CheckError(AtelierError):
    """A check cannot start."""


@dataclass(frozen=True)
class Bench:
    """Settings that all checks share."""

    engine: Interpreter
    """Engine to check."""
    survey: Survey
    model: Path
    scratch: Path
    on_processor: bool
    quick: bool
    say: Say
    limit_s: float = 0.0
    """Timeout of a check in seconds; 0 selects the default."""

    @property
    def variables(self) -> dict[str, str]:
        hidden = {"CUDA_VISIBLE_DEVICES": ""} if self.on_processor else {}
        return self.engine.variables | {"TOKENIZERS_PARALLELISM": "false"} | hidden


async def ask_survey(engine: Interpreter) -> Survey:
    """Survey packages and GPUs of an interpreter. Raises CheckError if that fails."""
    process = await asyncio.create_subprocess_exec(
        *(engine.python, "-m", "engine.bench.gpu.survey"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=engine.folder,
        env=engine.variables,
    )
    output, errors = await process.communicate()
    if process.returncode:
        lines = errors.decode(errors="replace").strip().splitlines() or ["no output"]
        raise CheckError.of(
            "bench.no_survey",
            f"The {engine.title} did not start: {lines[-1][:300]}",
            "Run `atelier doctor`.",
            where=engine.python,
            detail="\n".join(lines[-40:]),
        )
    return Survey.model_validate_json(output)


async def run_checks(
    bench: Bench, every: Sequence[Check], done: Callable[[CheckReport], None]
) -> list[CheckReport]:
    """Run the checks `every` in order, each in its own process; `done` is called after each.
    Remaining child processes of a check are killed, if this process is a sub-reaper."""
    reports = []
    for number, check in enumerate(every):
        bench.say(f"{number + 1} of {len(every)} · {check.name}")
        report = await run_check(bench, check)
        reports.append(report)
        done(report)
    return reports


async def run_check(bench: Bench, check: Check) -> CheckReport:
    start_s = time.monotonic()
    missing = lacks(check, bench.survey, bench.on_processor)
    if missing:
        found = Outcome(state="skipped", words=missing)
    else:
        found = await _in_a_process(bench, check)
    return CheckReport(
        **found.model_dump(),
        name=check.name,
        title=check.title,
        section=check.section,
        seconds=time.monotonic() - start_s,
    )


async def _in_a_process(bench: Bench, check: Check) -> Outcome:
    folder = bench.scratch / check.name
    (folder / "work").mkdir(parents=True)
    job = Job(
        function=check.function,
        arguments=dict(check.arguments),
        model=str(bench.model),
        scratch=str(folder / "work"),
        answer=str(folder / "answer.json"),
        on_processor=bench.on_processor,
        quick=bench.quick,
        trl=_trl(bench.survey),
        vllm=has("vllm", bench.survey, bench.on_processor),
    )
    before = _family()
    log = folder / "log.txt"
    limit = bench.limit_s or (QUICK_LIMIT_S if bench.quick else LIMIT_S)
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *(bench.engine.python, "-m", "engine.bench.gpu.worker"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            cwd=bench.engine.folder,
            env=bench.variables,
            start_new_session=True,
        )
    in_time = True
    try:
        async with asyncio.timeout(limit):
            await _follow(process, job, lambda words: bench.say(f"{check.name}: {words}"))
    except TimeoutError:
        in_time = False
    finally:
        left = _family() - before
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        code = await process.wait()
        left |= _family() - before
        await asyncio.to_thread(end_processes, [one for one in left if one.pid != process.pid])
    found = _outcome(Path(job.answer), log, code, limit if not in_time else 0.0)
    shutil.rmtree(folder / "work", ignore_errors=True)
    return found


async def _follow(process: asyncio.subprocess.Process, job: Job, say: Say) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has died already
        process.stdin.write(job.model_dump_json().encode() + b"\n")
        await process.stdin.drain()
    async for line in process.stdout:
        say(line.decode(errors="replace").rstrip())
    await process.wait()


def _outcome(answer: Path, log: Path, code: int, limit_s: float) -> Outcome:
    text = log.read_text(errors="replace").strip()[-6000:]
    if answer.exists():
        return Outcome.model_validate_json(answer.read_text())
    if limit_s:
        words = f"The check did not finish within {limit_s:.0f} s and was stopped."
    elif code == -signal.SIGKILL:
        words = "The check's process was killed: it probably ran out of memory."
    elif code < 0:
        words = f"The check's process was stopped by {signal.Signals(-code).name}."
    else:
        last = (text.splitlines() or ["no output"])[-1]
        words = f"The check's process failed (exit {code}): {last}"
    return Outcome(state="failed", words=words, detail=text)


def _family() -> set[psutil.Process]:
    """All descendants of this process, including engines, which outlive their clients."""
    return set(psutil.Process().children(recursive=True))


def _trl(found: Survey) -> str:
    if "trl" in found.packages:
        return found.executable
    return found.environments.get("bench", "")

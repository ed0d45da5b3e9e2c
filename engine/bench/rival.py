"""TRL's side of a benchmark: a process in its own environment that waits between steps."""

import asyncio
import contextlib
import json
import signal
from pathlib import Path
from typing import Any

from engine.bench.atelier import StepResult
from engine.environments import python_of
from engine.protocol.problems import AtelierError
from engine.runtime.variables import allowed_environment

CONTENDER = Path(__file__).with_name("trl_contender.py")
LINE_LIMIT = 2**24


class BenchError(AtelierError):
    """TRL could not be installed, or its process ended early."""


def environment() -> Path:
    """Return the Python executable of the environment that contains TRL; the first call installs it
    into the user's cache."""
    return python_of("bench")


class Rival:
    """Process of TRL's trainer. Create it with `start`, end it with `close`."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    @classmethod
    async def start(cls, python: Path, job: dict[str, Any], log: Path) -> "Rival":
        quiet = {
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "TRL_EXPERIMENTAL_SILENCE": "1",
            "PYTHONUNBUFFERED": "1",
        }
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                str(python),
                str(CONTENDER),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env=allowed_environment(quiet),
                limit=LINE_LIMIT,
            )
        rival = cls(process, log)
        rival._write(json.dumps(job))
        await rival._answer()
        return rival

    async def step(self) -> StepResult:
        self._write("go")
        answer = await self._answer()
        return StepResult(
            answer["seconds"], answer["sample_s"], answer["update_s"], answer["peak_bytes"], answer
        )

    async def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), 5)
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")

    async def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            code = await self._process.wait()
            lines = self._log.read_text(errors="replace").strip().splitlines() or [""]
            memory = code == -signal.SIGKILL
            raise BenchError.of(
                "bench.contender_ended",
                "TRL's process was killed: it probably ran out of memory."
                if memory
                else f"TRL's process failed (exit {code}): {lines[-1][:300]}",
                "Use a smaller --shape." if memory else "The details show the end of TRL's log.",
                detail="\n".join(lines[-40:]),
            )
        answer: dict[str, Any] = json.loads(line)
        return answer

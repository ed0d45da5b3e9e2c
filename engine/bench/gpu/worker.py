"""Process of one check: the job arrives as JSON on stdin, progress goes to stdout, and the outcome
is written to a file atomically."""

import asyncio
import importlib
import os
import sys
import traceback
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from engine.bench.gpu.report import Job, Outcome
from engine.protocol.problems import AtelierError
from engine.runtime.files import replace_file


def main() -> None:
    job = Job.model_validate_json(sys.stdin.readline())
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is no progress

    def say(text: str) -> None:
        out.write(text + "\n")

    replace_file(Path(job.answer), outcome(job, say).model_dump_json())


def outcome(job: Job, say: object) -> Outcome:
    """Run the job's check, which reports progress to `say`, and return its outcome; an exception
    becomes a failed outcome."""
    module, _, name = job.function.partition(":")
    try:
        found: Outcome | Coroutine[Any, Any, Outcome] = getattr(
            importlib.import_module(module), name
        )(job, say)
        return found if isinstance(found, Outcome) else asyncio.run(found)
    except AtelierError as error:
        detail = error.problem.detail or traceback.format_exc()
        return Outcome(state="failed", words=str(error.problem), detail=detail[-6000:])
    except Exception as error:  # noqa: BLE001 - a check may break in any way; it is told as such
        lines = str(error).strip().splitlines() or ["no error message"]
        words = f"{type(error).__name__}: {lines[0][:400]}"
        return Outcome(state="failed", words=words, detail=traceback.format_exc()[-6000:])


if __name__ == "__main__":
    main()

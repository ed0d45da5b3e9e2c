"""Reads the data set of a packaged task in the interpreter with its packages, and writes it as the
scenarios of its project."""

import asyncio
import contextlib
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, FiniteFloat, ValidationError

from engine.environments.agent_packages import packages_python
from engine.environments.bootstrap import life
from engine.integrations.packaged_tasks.project import SCENARIOS, TRAIN, keep_weights, read_settings
from engine.protocol.base import Value
from engine.protocol.problems import Refused, first_invalid
from engine.protocol.requests.drafts import EnvironmentData
from engine.rollout.sandbox.machine import trial_problem
from engine.runtime.child import descendants, end_processes
from engine.runtime.paths import LIFE_PIPE
from engine.runtime.variables import allowed_environment
from engine.storage.project import edit_text, load_config, read_toml, write_scenarios, write_toml
from engine.trust.projects import require_trust

VALIDATION = "scenarios/validation.jsonl"
LIMIT_S = 1800.0
HELD_OUT = 5
"""Without a data set for evaluation, every fifth row is held out."""
MOST_VALIDATION = 100
CHARACTERS_PER_TOKEN = 3
CONTEXTS = (1024, 2048, 4096, 8192, 16_384, 32_768)
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    **dict.fromkeys(
        ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9"
    ),
}
"""Variables under which programs find no network."""
WITHOUT_SANDBOX = "so its code runs with your rights (agent.sandbox is none)."
FORKABLE = "import agent, sys, threading; sys.exit(threading.active_count() > 1)"
"""Program that fails if the agent cannot be loaded, or starts threads, which no fork survives."""
HOMES = ("HOME", "HF_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
TITLE_CHARACTERS = 200
EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)\b")
MOST_WORDS = 400


class Description(Value):
    """Rows and weights of a task, as the function `describe` of its agent writes them."""

    train: list[dict[str, Any]]
    validation: list[dict[str, Any]] | None = None
    total: int | None = None
    """Number of rows for training; None if they never end."""
    weights: Annotated[dict[str, FiniteFloat], Field(max_length=100)]


async def load_data(project: Path, limit: int) -> EnvironmentData:
    """Write the scenarios of a task's project, at most `limit` for training, and the
    weights of its rewards. Raises ConfigError if the packages are missing, Refused if the project
    is not trusted or the task cannot be loaded; nothing is written then."""
    await asyncio.to_thread(require_trust, project)
    settings = await asyncio.to_thread(read_settings, project)
    agent = (await asyncio.to_thread(load_config, project)).agent
    python = await packages_python(project, agent)
    held_out = min(MOST_VALIDATION, limit // (HELD_OUT - 1) + 1)
    with tempfile.TemporaryDirectory(prefix="atelier-") as scratch:
        file = Path(scratch) / "description.json"
        await _run(project, python, ["agent.py", str(file), str(limit + held_out)])
        found = await asyncio.to_thread(_parse, file)
        offline = await _loads_offline(project, python, Path(scratch))
    return await asyncio.to_thread(_write, project, found, limit, offline, settings)


def _parse(file: Path) -> Description:
    try:
        found = Description.model_validate(json.loads(file.read_bytes()))
    except (OSError, ValueError) as error:
        why = first_invalid(error) if isinstance(error, ValidationError) else str(error)
        raise Refused.of(
            "task.bad_description", f"The task's data cannot be read: {why}."
        ) from error
    if not found.train:
        raise Refused.of(
            "task.no_data",
            "The data set of the task is empty.",
            "Check its arguments in environment.json.",
        )
    return found


def _write(
    project: Path, found: Description, limit: int, offline: bool, settings: dict[str, Any]
) -> EnvironmentData:
    train, validation = split(found, limit)
    notes = _notes(found, len(train), len(validation))
    isolated = offline and not settings.get("needs_servers") and not trial_problem()
    if settings.get("needs_servers"):
        notes.append(f"The task needs servers, {WITHOUT_SANDBOX}")
    elif not offline:
        notes.append(
            "The task needs the network or the home folder to load, or starts threads then, "
            f"{WITHOUT_SANDBOX}"
        )
    is_taskset = settings.get("kind") == "taskset"
    parts = {k: v for k, v in found.weights.items() if v or is_taskset}  # others are metrics
    values: dict[str, Any] = {
        "model.max_context": _context(found.train),
        "reward.weights": {k: v for k, v in parts.items() if v != 1} or None,
        "reward.required": None if is_taskset else sorted(parts),
        "agent.sandbox": "process" if isolated else None,
    }
    if not validation:
        values["scenarios.validation"] = ""
    text = edit_text(read_toml(project), {k: v for k, v in values.items() if v is not None})
    keep_weights(project, found.weights)
    write_toml(project, text)
    if validation:
        write_scenarios(project / VALIDATION, scenarios(validation, "v"))
    write_scenarios(project / SCENARIOS, scenarios(train, "t"))
    return EnvironmentData(
        train=len(train), validation=len(validation), sandboxed=isolated, notes=notes
    )


def split(found: Description, limit: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows for training, at most `limit`, and for validation: the task's own, else every
    fifth row, and the last one of fewer than five."""
    if found.validation is not None:
        return found.train[:limit], found.validation[:MOST_VALIDATION]
    rows = found.train
    if len(rows) < 2:
        return rows, []
    step = min(HELD_OUT, len(rows))
    held_out = set(range(step - 1, len(rows), step)[:MOST_VALIDATION])
    train = [row for place, row in enumerate(rows) if place not in held_out]
    return train[:limit], [rows[place] for place in sorted(held_out)]


def scenarios(rows: list[dict[str, Any]], prefix: str) -> list[dict[str, Any]]:
    """Scenarios with the rows of a data set: an id, a title, and the row itself."""
    return [
        {"id": f"{prefix}{number:05}", "title": _title(row) or f"Row {number}", "row": row}
        for number, row in enumerate(rows, 1)
    ]


def _title(row: dict[str, Any]) -> str:
    """Name of a row, or the text of its last message."""
    prompt = row.get("prompt")
    if isinstance(prompt, list):
        texts = [one.get("content") for one in prompt if isinstance(one, dict)]
        prompt = next((one for one in reversed(texts) if isinstance(one, str)), "")
    text = row.get("name") or row.get("question") or prompt
    return " ".join(text.split())[:TITLE_CHARACTERS] if isinstance(text, str) else ""


def _notes(found: Description, train: int, validation: int) -> list[str]:
    notes = []
    if found.total is None:
        notes.append(f"The tasks never end; the first {train + validation} were taken.")
    elif found.total > len(found.train):
        notes.append(
            f"The data set has {found.total} rows; the first {len(found.train)} were taken. "
            "Take more with --scenarios."
        )
    if found.validation is None and validation:
        notes.append("The task has no data set for evaluation; every fifth row validates.")
    return notes


def _context(rows: list[dict[str, Any]]) -> int:
    """Context length in tokens for the longest prompt and two answers."""
    longest = max(len(json.dumps(row.get("prompt"), ensure_ascii=False)) for row in rows)
    needed = longest // CHARACTERS_PER_TOKEN + 2 * TRAIN["max_tokens"]
    return next((size for size in CONTEXTS if size >= needed), CONTEXTS[-1])


async def _loads_offline(project: Path, python: str, home: Path) -> bool:
    """Whether the task loads without network, home folder and threads, as in a sandbox."""
    homes = dict.fromkeys(HOMES, str(home))
    try:
        await _run(project, python, ["-c", FORKABLE], OFFLINE | homes)
    except Refused:
        return False
    return True


async def _run(
    project: Path, python: str, arguments: list[str], extra: dict[str, str] | None = None
) -> None:
    """Run a Python program in the project's folder. Raises Refused with its exception if it
    fails."""
    code, text = await _run_once(project, python, arguments, extra or {})
    if code == 0:
        return
    raise Refused.of(
        "task.not_loaded",
        f"The task cannot be loaded: {exception_of(text) or f'exit {code}'}.",
        "Check its arguments, and the packages in requirements.txt.",
        where=str(project),
        detail=text[-8000:],
    )


def exception_of(output: str) -> str:
    """The exception at the end of a program's output, in one line."""
    lines = [line.strip() for line in output.strip().splitlines() if re.search(r"\w", line)]
    start = max((n for n, line in enumerate(lines) if EXCEPTION.match(line)), default=-1)
    return " ".join(lines[start:])[:MOST_WORDS].rstrip(".")


async def _run_once(
    project: Path, python: str, arguments: list[str], extra: dict[str, str]
) -> tuple[int, str]:
    """Exit code and output of a Python program."""
    path = os.pathsep.join([str(Path(python).parent), os.environ.get("PATH", os.defpath)])
    variables = {"PATH": path, "PYTHONDONTWRITEBYTECODE": "1", **extra}
    with tempfile.TemporaryFile() as output, life() as descriptor:
        process = await asyncio.create_subprocess_exec(
            *(python, str(LIFE_PIPE), str(descriptor), python, *arguments),
            pass_fds=[descriptor],
            cwd=project,
            env=allowed_environment(variables),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        try:
            code = await asyncio.wait_for(process.wait(), LIMIT_S)
        except TimeoutError:
            raise Refused.of(
                "task.slow",
                f"The task was not loaded within {LIMIT_S / 60:g} minutes.",
                "Choose arguments with less data, or run `python agent.py` in a terminal.",
            ) from None
        finally:
            await _end(process)
        output.seek(0)
        return code, output.read().decode(errors="replace")


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the process, if it still runs, and those it has started."""
    family = descendants(process.pid)
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await asyncio.to_thread(end_processes, family)
    await process.wait()

"""Trajectories labelled gold, written to `gold.jsonl` in the project, which the warm-up reads."""

import json
from pathlib import Path

from engine.judge.prompting.transcript import openai_messages
from engine.protocol.problems import ConfigError, in_one_line
from engine.protocol.records.runs import Trajectory
from engine.runtime.files import replace_file
from engine.storage.run_folder.run import Run
from engine.trust.files import project_file, read_regular

FILE = "gold.jsonl"
MOST_BYTES = 2**31


def pin(run: Run) -> None:
    """Write the run's trajectories that are now labelled `gold` to gold.jsonl of its project,
    replacing earlier lines of this run; lines of other runs stay."""
    own = f"{run.spec.id}/"
    wanted = {
        word.trajectory_id
        for label in run.reader.labels()
        if label.holds()
        for word in label.words
        if word.kind == "gold" and word.trajectory_id
    }
    lines = [line_of(own, run.reader.trajectory(name)) for name in sorted(wanted)]
    replace_lines(project_file(run.project, FILE, FILE), own, lines)


def replace_lines(file: Path, own: str, lines: list[str]) -> None:
    """Replace the lines of a JSON Lines file whose id begins with `own` (a run's prefix) by
    `lines`; other lines stay, and an empty file is removed."""
    lines = [line for line in _lines(file) if not _id(line).startswith(own)] + lines
    if not lines:
        file.unlink(missing_ok=True)
        return
    replace_file(file, "".join(f"{line}\n" for line in lines))


def line_of(own: str, attempt: Trajectory) -> str:
    """Trajectory as a demonstration line in the OpenAI format; its id is prefixed with `own`."""
    messages = openai_messages(attempt)
    entry = {"id": own + attempt.id, "messages": messages, "tools": attempt.tools}
    return json.dumps(entry, ensure_ascii=False)


def _lines(file: Path) -> list[str]:
    """Return the non-empty lines of a file. Raises ConfigError if it cannot be read."""
    try:
        text = read_regular(file, MOST_BYTES).decode()
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise ConfigError.of(
            "demonstrations.unreadable",
            f"{file.name} cannot be read: {in_one_line(error)[:200]}.",
            "Move the file away, or set another file.",
            where=str(file),
        ) from error
    return [line for line in text.split("\n") if line.strip()]


def _id(line: str) -> str:
    try:
        return str(json.loads(line).get("id", ""))
    except (ValueError, AttributeError):
        return ""

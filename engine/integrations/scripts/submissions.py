"""Groups submitted by a script, written to disk before anything else, so that a step is trained
once, whatever fails in between and however often the script repeats the call."""

import json
from pathlib import Path

from pydantic import ValidationError

from engine.protocol.base import Value
from engine.protocol.config.algorithm import Algorithm
from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import StoreError
from engine.protocol.records.runs import Trajectory
from engine.runtime.files import replace_file


class Submission(Value):
    """Groups and arguments of one submitted step."""

    key: str
    step: int
    lr: float
    algorithm: Algorithm
    save: bool
    dropped: int
    """Number of skipped metrics that were not finite."""
    groups: list[list[Trajectory]]

    def over(self, config: ProjectConfig) -> ProjectConfig:
        """Return `config` with the learning rate and algorithm of this submission."""
        change = {"lr": self.lr, "algorithm": self.algorithm}
        return config.model_copy(update={"train": config.train.model_copy(update=change)})


class SubmissionFiles:
    """Files `step-000003.json` in a folder of the run, of the most recent steps."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, submission: Submission) -> None:
        """Write a submission atomically and fsync it."""
        self._folder.mkdir(exist_ok=True)
        replace_file(self._file(submission.step), submission.model_dump_json())

    def read(self, step: int) -> Submission | None:
        """Stored submission of a step; None without one. Raises StoreError if it is damaged."""
        file = self._file(step)
        try:
            return Submission.model_validate(json.loads(file.read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, ValidationError) as error:
            raise StoreError.of(
                "outside.damaged",
                f"The script's submission for step {step} cannot be read.",
                "Remove the file; the script then repeats the rollouts of that step.",
                where=str(file),
                detail=str(error)[:1000],
            ) from error

    def newest(self) -> Submission | None:
        numbers = [int(one.stem.removeprefix("step-")) for one in self._folder.glob("step-*.json")]
        return self.read(max(numbers)) if numbers else None

    def forget_until(self, step: int) -> None:
        """Delete submissions of steps before `step`. That of the step stays, since the script may
        send it again."""
        for one in self._folder.glob("step-*.json"):
            if int(one.stem.removeprefix("step-")) < step:
                one.unlink()

    def _file(self, step: int) -> Path:
        return self._folder / f"step-{step:06d}.json"

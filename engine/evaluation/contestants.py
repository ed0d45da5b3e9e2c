"""Who is compared: `base`, `RUN@STEP`, `openai/…` → contestants whose weights are whole.

Comes in: the names as they were typed, and the project's runs. Goes out: what an evaluation keeps
of them in its run.json. Raises ConfigError for what is not there.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from engine import checkpoint
from engine.models import find_model
from engine.protocol.config import ProjectConfig
from engine.protocol.evaluation import BASE, BEST, Contestant
from engine.protocol.events import ValidationFinished
from engine.protocol.problems import ConfigError
from engine.protocol.records import Checkpoint, RunSummary
from engine.run import DATABASE, read_spec
from engine.store.reader import RunReader

ADAPTER = "adapter"
ADAPTER_FILE = "adapter_model.safetensors"


class Roster:
    """The runs and models that a project's contestants are taken from."""

    def __init__(self, project: Path, config: ProjectConfig, runs: Sequence[RunSummary]) -> None:
        """`runs` are those of the project, newest first."""
        self._project = project
        self._config = config
        self._runs = [run for run in runs if run.kind == "train"]

    def contestants(self, names: Sequence[str]) -> list[Contestant]:
        """In their order; without names the base model and the newest trained run's best."""
        chosen = [self.find(name) for name in names] or [self.base(), self._newest_best()]
        seen: Counter[str] = Counter()
        numbered = []
        for one in chosen:
            seen[one.name] += 1
            count = seen[one.name]
            name = one.name if count == 1 else f"{one.name} #{count}"
            numbered.append(one.model_copy(update={"name": name}))
        return numbered

    def find(self, name: str) -> Contestant:
        """One contestant by the name that a person types."""
        if name == BASE:
            return self.base()
        if "/" in name:
            return Contestant(name=name, kind="provider", model=name)
        wanted, _, place = name.partition("@")
        run = self._run(wanted)
        known = _checkpoints(run)
        if not known:
            raise ConfigError.of(
                "evaluation.no_checkpoint",
                f"The run {run.name} has no checkpoint yet.",
                "Let it train on until it has saved one.",
                where=run.path,
            )
        if not place:
            return self._checkpoint(run, checkpoint.newest(Path(run.path), known))
        if place == BEST:
            return self._checkpoint(run, _best(run, known))
        return self._checkpoint(run, _at(run, known, place))

    def base(self) -> Contestant:
        """The project's model as it was before any training."""
        model = self._config.model
        path = find_model(model.name)
        return Contestant(
            name=BASE, kind="base", model=model.name, model_path=str(path), shape=model
        )

    def _newest_best(self) -> Contestant:
        """The best checkpoint of the newest run that has one; where no test was made at any of
        them, the newest."""
        for run in self._runs:
            if known := _checkpoints(run):
                best = _best_or_none(run, known)
                return self._checkpoint(run, best or checkpoint.newest(Path(run.path), known))
        raise ConfigError.of(
            "evaluation.nothing_trained",
            "No run of this project has a checkpoint to compare with the base model.",
            "Train first, or name the models: --model base --model openai/gpt-5.4.",
            where=str(self._project),
        )

    def _run(self, wanted: str) -> RunSummary:
        """By id, name, or the end of an id."""
        found = [run for run in self._runs if wanted in (run.id, run.name)]
        if wanted and not found:
            found = [run for run in self._runs if run.id.endswith(wanted.upper())]
        if not found:
            known = ", ".join(run.name for run in self._runs[:8]) or "none yet"
            raise ConfigError.of(
                "evaluation.no_run",
                f"There is no model `{wanted}`: it is neither `base`, nor a trained run, nor "
                "PROVIDER/MODEL.",
                f"The trained runs are: {known}.",
                where=str(self._project),
            )
        if len(found) > 1:
            ids = ", ".join(run.id[-8:] for run in found)
            raise ConfigError.of(
                "evaluation.ambiguous",
                f"{len(found)} runs are called {wanted}.",
                f"Name the one you mean by the end of its id: {ids}.",
            )
        return found[0]

    def _checkpoint(self, run: RunSummary, found: Checkpoint | None) -> Contestant:
        folder = Path(run.path) / found.path if found else None
        if found is None or folder is None or not checkpoint.verify(folder):
            step = f"The checkpoint of step {found.step}" if found else "Every checkpoint"
            raise ConfigError.of(
                "evaluation.damaged",
                f"{step} of {run.name} is damaged.",
                "Take another step of that run.",
                where=str(folder or run.path),
            )
        spec = read_spec(Path(run.path))
        adapter = folder / ADAPTER
        model = self._config.model
        shape = {"rank": spec.config.model.rank, "alpha": spec.config.model.alpha}
        return Contestant(
            name=f"{run.name}@{found.step}",
            kind="checkpoint",
            model=spec.config.model.name,
            model_path=spec.model_path,
            shape=model.model_copy(update={"name": spec.config.model.name, **shape}),
            run_id=run.id,
            step=found.step,
            adapter=os.path.relpath(adapter, self._project),
            sha256=sha256_of(adapter),
        )


def check_adapter(project: Path, contestant: Contestant) -> Path:
    """Its folder. Raises ConfigError where other weights stand there now, or none."""
    folder = project / contestant.adapter
    try:
        same = sha256_of(folder) == contestant.sha256
    except OSError:
        same = False
    if not same:
        raise ConfigError.of(
            "evaluation.adapter_changed",
            f"The weights of {contestant.name} are not those that this evaluation began with.",
            "Put the checkpoint back, or start another evaluation.",
            where=str(folder),
        )
    return folder


def sha256_of(adapter: Path) -> str:
    with (adapter / ADAPTER_FILE).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _checkpoints(run: RunSummary) -> list[Checkpoint]:
    """Those that are there, by step."""
    folder = Path(run.path)
    if not (folder / DATABASE).exists():
        return []
    reader = RunReader(folder / DATABASE)
    try:
        return [one for one in reader.checkpoints() if (folder / one.path).is_dir()]
    finally:
        reader.close()


def _best(run: RunSummary, known: list[Checkpoint]) -> Checkpoint:
    best = _best_or_none(run, known)
    if best is None:
        raise ConfigError.of(
            "evaluation.no_validation",
            f"No checkpoint of {run.name} was tested, so nobody knows which is the best.",
            f"Name a step: {run.name}@{known[-1].step}.",
            where=run.path,
        )
    return best


def _best_or_none(run: RunSummary, known: list[Checkpoint]) -> Checkpoint | None:
    """Highest validation mean; of equal ones the earlier."""
    reader = RunReader(Path(run.path) / DATABASE)
    try:
        events = reader.events_of("validation.finished")
    finally:
        reader.close()
    means = {
        e.step: e.reward.mean for e in events if isinstance(e, ValidationFinished) and e.reward
    }
    tested = [one for one in known if one.step in means]
    return max(tested, key=lambda one: (means[one.step], -one.step), default=None)


def _at(run: RunSummary, known: list[Checkpoint], place: str) -> Checkpoint:
    found = next((one for one in known if str(one.step) == place), None)
    if found is None:
        steps = ", ".join(str(one.step) for one in known)
        raise ConfigError.of(
            "evaluation.no_step",
            f"The run {run.name} has no checkpoint of step {place}.",
            f"It has those of step {steps}.",
            where=run.path,
        )
    return found
